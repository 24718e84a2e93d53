"""Resizing of blocked activations: every output pixel is one input pixel, or a blend of four."""

from __future__ import annotations

from typing import Final

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.kernel.conv.conv import blocked_operands
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass

# For every output row and column, which input row or column it is made of: one i64, or for a blend two, and as many float32
# shares.
TABLES: Final = ("row_indices", "row_shares", "column_indices", "column_shares")


@dataclass(frozen=True, kw_only=True)
class ResizeKernel:
    """All that decides the code of a resize of blocked activations.

    With `factors` (rows, columns) every pixel is repeated so often and there are no tables.
    """

    block: int
    blend: bool
    factors: tuple[int, int] | None
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"resize|{self.block}|{self.blend}|{self.factors}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        numbers = ("batch", "blocks", "rows", "columns", "x_batch", "x_block", "x_row")
        return Arguments(address("x"), *map(address, TABLES), *map(number, numbers), blocked_operands(self.epilogue))
