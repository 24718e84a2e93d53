"""Gradients of convolution kernels: windows of x times the gradients dy of the results, summed over all pixels.

    w[o, c, r, s] = sum over n, i, j of dy[n, o, i, j] * x[n, c, i * stride + r * dilation - top, ...]

`WeightGradKernel` has output channels as lanes: dy is blocked, elements of x are repeated in all lanes. The channels of x lie
next to each other (blocked) or far apart (plain). `DepthwiseGradKernel` has channels as lanes on both sides.

The parallel range counts blocks of output channels times blocks of input channels (depthwise: blocks times kernel rows); all sums
of a unit are made by one worker, in order.
"""

from __future__ import annotations

from typing import Final

from sardonyx.kernel.arguments import Arguments, number, tensor
from sardonyx.records import dataclass

_SIZES: Final = (
    "batch", "output_blocks", "outputs", "rows", "columns", "height", "width", "top", "left",
    "row_stride", "column_stride", "row_dilation", "column_dilation", "kernel_rows", "kernel_columns",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGradKernel:
    """All that decides the code."""

    block: int
    inputs: int  # channels in a block of x
    last_inputs: int
    blocked: bool  # whether the channels of x lie next to each other, a block to a pixel
    sums: int  # neighbouring pixels that are added up apart

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"weight_grad|{self.block}|{self.inputs}|{self.last_inputs}|{int(self.blocked)}|{self.sums}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            tensor("x", 6),  # batch, group, block, channel, row, column
            tensor("dy", 4),  # batch, group, block, row
            tensor("w", 4),  # output, input, kernel row, kernel column
            number("input_blocks"),
            *map(number, _SIZES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseGradKernel:
    """All that decides the code."""

    block: int
    taps: int  # kernel columns

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"depthwise_grad|{self.block}|{self.taps}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            tensor("x", 3),  # batch, block, row
            tensor("dy", 3),
            tensor("w", 3),  # channel, kernel row, kernel column
            *map(number, _SIZES),
        )
