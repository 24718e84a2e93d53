"""Gradients of pools over blocked images.

    max       each gradient is added to the first element of its window that is the maximum
    average   each is shared by the elements of its window

The parallel range counts blocks of channels of images: windows overlap, so one worker adds up a whole image.
"""

from __future__ import annotations

from typing import Final, Literal

from sardonyx.kernel.arguments import Arguments, number, tensor
from sardonyx.records import dataclass

_SIZES: Final = (
    "blocks", "rows", "columns", "height", "width", "top", "left", "bottom", "right",
    "row_stride", "column_stride", "row_dilation", "column_dilation", "kernel_rows", "kernel_columns",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGradKernel:
    """All that decides the code."""

    kind: Literal["max", "average"]
    block: int
    padded: bool  # whether padding counts as elements of a window

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"pool_grad|{self.kind}|{self.block}|{int(self.padded)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with. Strides: batch, block, row."""
        images = [tensor("x", 3), tensor("y", 3)] if self.kind == "max" else []
        return Arguments(tensor("dy", 3), tensor("dx", 3), *images, *map(number, _SIZES))
