"""Runs that take long come back to Python every so often.

While native code runs, Python neither asks whether the run shall stop (`RunOptions.terminate`) nor tells anybody of signals
(Ctrl-C). So the steps of a run that is estimated to take long follow each other in parts of about `_PART` seconds; a single step
is never divided, nor a stretch of steps that are done again. The parts are found while they run: estimates need not be right.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

_PART: Final = 0.03  # seconds; starting a part takes microseconds


def in_parts(
    count: int, run: Callable[[int, int], None], between: Callable[[], None] | None, whole: Callable[[int], int]
) -> None:
    """Call `run` with the first step and the number of steps of each part, and `between` before every part but the first.

    `whole` gives the first step from one on in front of which a part may end.
    """
    first, size = 0, 1
    while True:
        start = perf_counter()
        end = whole(min(first + size, count))
        run(first, end - first)
        first = end
        if first >= count:
            return
        taken = perf_counter() - start
        if taken < _PART / 2:
            size *= 2
        elif taken > _PART:
            size = max(1, size // 2)
        if between is not None:
            between()
