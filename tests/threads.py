"""Several callers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def at_once(work: Callable[[T], object], arguments: Iterable[T]) -> None:
    """Call a function with each argument in a thread of its own, and wait for all; what one raises is raised here."""
    failures: list[BaseException] = []

    def run(argument: T) -> None:
        try:
            work(argument)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
