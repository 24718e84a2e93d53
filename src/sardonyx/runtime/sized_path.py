"""The short way through a program without host steps of which kernels tell some sizes (how many elements NonZero found)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.runtime.fast_path import FastPath
from sardonyx.runtime.native_core import Array, SizeConflict
from sardonyx.runtime.native_program import NativeProgram


class SizedPath(FastPath):
    """Checks feeds like the short way through other programs; sizes may turn out not to fit in the middle of any run."""

    def __init__(self, program: NativeProgram) -> None:
        super().__init__(program.core)
        self._program = program

    def run(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, or None if this run needs the full way."""
        try:
            return super().run(feeds)
        except (SizeConflict, MemoryError, OverflowError):
            return None  # the full way says what is wrong

    def _launch(self, arrays: list[Array], targets: Sequence[Array | None] = ()) -> list[Any]:
        return self._program.run_arrays(arrays)  # sizes become known while it runs: it makes all results itself

    def shrink(self) -> None:
        """Give the memory kept for later runs back."""
        self._program.shrink()
