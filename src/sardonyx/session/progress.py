"""A line on the terminal while a model is compiled, if that takes more than a second.

    sardonyx: compiling model.onnx, 23 of 57 kernels

It is written to standard error, only if that is a terminal, and is gone when the session is there. What was compiled once opens
at once the next time, without a line. `session.show_progress=0` turns it off.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from sardonyx.options import PROGRESS_KEY, SessionOptions

if TYPE_CHECKING:
    from sardonyx.codegen.library import OnProgress

_PATIENCE: Final = 1.0  # seconds before there is a line
_EACH: Final = 0.1  # seconds from one line to the next, at least


@contextmanager
def progress_line(source: Any, options: SessionOptions) -> Iterator[OnProgress | None]:
    """Who is to be told how far the compilation of a model is; None where nobody would see it."""
    stream = sys.stderr
    if options.config_entries.get(PROGRESS_KEY, "1") == "0" or not _is_terminal(stream):
        yield None
        return
    line = ProgressLine(stream, os.path.basename(source) if isinstance(source, str) else "a model")
    try:
        yield line.tell
    finally:
        line.end()


def _is_terminal(stream: TextIO | None) -> bool:
    if os.environ.get("TERM", "") == "dumb":
        return False
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # it was closed, or is something else
        return False


class ProgressLine:
    """Writes a line over itself."""

    def __init__(self, stream: TextIO, name: str, *, clock: Any = time.monotonic) -> None:
        self._stream = stream
        # A name may hold what a terminal obeys.
        self._name = "".join(letter if letter.isprintable() else "?" for letter in name)
        self._clock = clock
        self._due = clock() + _PATIENCE
        self._is_shown = self._has_ended = False

    def tell(self, made: int, count: int) -> None:
        """So many kernels of so many are made."""
        if self._has_ended or self._clock() < self._due:
            return
        self._due = self._clock() + _EACH
        self._is_shown = True
        self._write(f"\r\x1b[Ksardonyx: compiling {self._name}, {made} of {count} kernels")

    def end(self) -> None:
        """Take the line away; whatever is compiled later, in runs, writes none."""
        self._has_ended = True
        if self._is_shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a terminal that is gone is no reason to fail
            self._has_ended = True
            self._is_shown = False
