"""How the work of a call grows with its input, in numbers that are the same on every machine: lines of Python executed."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def executed_lines(call: Callable[[], object]) -> Counter[CodeType]:
    """How many lines of each function of Sardonyx a call executes in this thread."""
    counts: Counter[CodeType] = Counter()

    def lines(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            counts[frame.f_code] += 1
        return lines

    def calls(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return lines if "sardonyx" in frame.f_code.co_filename else None

    before = sys.gettrace()
    gc.collect()  # what earlier tests have left is taken down now, not in the middle of what is counted
    gc.disable()
    sys.settrace(calls)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return counts


def fastest_growing(work: Callable[[int], Callable[[], object]], size: int) -> tuple[float, str]:
    """How much more lines the next doubling of the size costs than the one before, in the function where it is most.

    2 if its work is linear in the size, 4 if it is quadratic. `work(n)` prepares something of size n and returns the call that is
    counted. What costs the same at any size, as code that is generated once, does not show, and what is done for few of the
    elements does not count.
    """
    for prepared in (work(1), work(2)):
        prepared()  # what is done once is done now
    small, middle, large = (executed_lines(work(size * factor)) for factor in (1, 2, 4))
    found = [(0.0, "nothing")]
    for code, most in large.items():
        first, second = middle[code] - small[code], most - middle[code]
        if second > 2 * size:
            found.append((second / max(first, 1), f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"))
    return max(found)
