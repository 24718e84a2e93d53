"""A progress bar on standard error, shown only to people and only when waiting gets long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from types import TracebackType

import sardonyx
from sardonyx.cli.tables import cut, duration, terminal_width

PATIENCE = 1.0  # seconds before anything is shown
INTERVAL = 0.2
WIDTH = 30


def is_watched() -> bool:
    """Whether somebody looks at standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


class Progress:
    """Counts finished steps of a known number; draws itself from a thread of its own, so that a long step does not freeze it.

    Without a number it says what is going on, and for how long: `compiling model.onnx, 3.20 s`.
    """

    def __init__(self, total: int | None, noun: str) -> None:
        self.total = total
        self.noun = noun
        self.done = 0
        self._start = time.perf_counter()
        self._stop = threading.Event()
        self.shown = False
        self._thread = threading.Thread(target=self._draw, daemon=True) if is_watched() else None

    def __enter__(self) -> Progress:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.shown:
            self._show("")

    def advance(self) -> None:
        """One step is finished."""
        self.done += 1

    def line(self, elapsed: float) -> str:
        """The bar as it stands; where more is done than was known (loops), the count alone."""
        if self.total is None:
            return cut(f"{self.noun}, {duration(elapsed)}", terminal_width() - 1)
        if self.done > self.total:
            return f"{self.done} {self.noun}, {duration(elapsed)}"
        filled = self.done * WIDTH // max(self.total, 1)
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"[{bar}] {self.done}/{self.total} {self.noun}, {duration(elapsed)}"

    @staticmethod
    def _show(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody is left to see it
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._stop.wait(PATIENCE):
            return
        while not self._stop.is_set():
            self.shown = True
            self._show(self.line(time.perf_counter() - self._start))
            self._stop.wait(INTERVAL)


class CountingRunOptions(sardonyx.RunOptions):
    """Run options that know how far a run is: the session asks for `terminate` before each node."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    @property
    def terminate(self) -> bool:  # type: ignore[override]
        """Never; but being asked is progress."""
        self._progress.advance()
        return False
