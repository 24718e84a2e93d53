"""Pools over images that lie row by row: the maximum or the mean of every window.

A row of results is made in two steps, a chunk of columns at a time: the rows of the windows are combined column by column into a
row on the stack, with what changes nothing to its left and right; then the columns of each window are.

Arguments: batch, channels; sizes of the input and of the result (planes, rows, columns each); for planes and rows: kernel, step,
spread; padding before (three), sizes with all padding (three); address of the input and its strides (batch, channel, plane, row);
for each operand of the epilogue its address and strides (batch, channel, plane, row, column). Strides count elements; the input's
columns are consecutive. The parallel range counts rows of results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sardonyx.kernel.epilogue import Epilogue

PoolKind: TypeAlias = Literal["max", "average"]

CHUNK: Final = 64  # columns of results worked on at once
POOL_NUMBERS: Final = (
    "batch", "channels", "depth", "height", "width", "planes", "rows", "columns",
    "kernel_planes", "kernel_rows", "plane_step", "row_step", "plane_spread", "row_spread",
    "front", "top", "left", "padded_depth", "padded_height", "padded_width",
)  # fmt: skip


@dataclass(frozen=True)
class PoolKernel:
    """What decides the code."""

    kind: PoolKind
    source: str  # type of the input
    type: str  # that it is combined in
    taps: int  # columns of a window
    step: int  # columns from one window to the next
    spread: int  # columns from one tap to the next
    padded: bool  # average: padding counts
    epilogue: Epilogue

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = (self.kind, self.source, self.type, self.taps, self.step, self.spread, self.padded)
        return f"pool|{'|'.join(map(str, fields))}|{self.epilogue.key}"

    @property
    def reach(self) -> int:
        """Columns of the input that a chunk of results needs."""
        return (CHUNK - 1) * self.step + (self.taps - 1) * self.spread + 1

    def argument_count(self) -> int:
        """How many entries the argument array has."""
        return len(POOL_NUMBERS) + 5 + 6 * len(self.epilogue.operands)
