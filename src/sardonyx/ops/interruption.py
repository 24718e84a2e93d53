"""Whether the run an operator belongs to shall stop, for evaluations that can take long.

Who runs a node says how to find out (`interruptible`); an evaluation asks now and then (`stop_if_asked`), and is ended by the
exception that raises.
"""

from __future__ import annotations

from _thread import _local
from collections.abc import Callable
from types import TracebackType

_running = _local()  # .check: what the run of this thread asks


def stop_if_asked() -> None:
    """Raise if the run that this thread computes a node of shall stop."""
    check: Callable[[], None] | None = getattr(_running, "check", None)
    if check is not None:
        check()


class interruptible:  # noqa: N801 - used like a function
    """`with interruptible(check):` what is computed inside asks `check`, which raises if it shall stop."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def __enter__(self) -> None:
        self._outer: Callable[[], None] | None = getattr(_running, "check", None)
        _running.check = self._check

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _running.check = self._outer
