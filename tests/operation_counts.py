"""How much Python work a call does, as a number that is the same on every machine: the lines it executes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def executed_lines(call: Callable[[], object]) -> int:
    """How many lines of Python a call executes in this thread."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """How much more work the next doubling costs than the one before: 2 if work is linear in size, 4 if it is quadratic.

    `work(n)` prepares something of size n and returns the call that is counted. What costs the same at any size, as imports and
    code that is generated once, does not show.
    """
    for prepared in (work(1), work(2)):
        prepared()  # what is done once is done now
    small, middle, large = (executed_lines(work(size * factor)) for factor in (1, 2, 4))
    return (large - middle) / (middle - small)
