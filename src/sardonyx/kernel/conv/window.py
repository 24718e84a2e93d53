"""Depthwise and lane-grouped convolutions, and pools, over blocked activations: kernels that never add up different lanes.

Every output vector is made of the input vectors of its window, lane by lane:

    depthwise   bias + sum of w * x
    grouped     the same with `group` input lanes for each output lane, all in the same block
    max         the largest; NaN wins
    average     the mean of those inside the image (or inside the padding, if `padded`)

Units are rows of one block; all blocks of a *band* of rows come before the next band, as in `kernel.conv.conv`.
With a known width the tiles of a row are laid out when code is made, and taps outside the image are left out; otherwise tiles
at the border look at every pixel.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.kernel.conv.conv import ADDRESSES, blocked_operands
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass

WindowKind: TypeAlias = Literal["depthwise", "max", "average"]

LONGEST_WRITTEN: Final = 48  # kernel columns, times lanes of a group

_NUMBERS: Final = (
    "batch", "blocks", "made", "planes", "band", "bands", "rows", "columns",
    "depth", "height", "width", "front", "top", "left", "plane_stride", "row_stride", "plane_dilation",
    "kernel_planes", "kernel_rows", "padded_depth", "padded_height", "padded_width",
    "x_batch", "x_block", "x_plane", "x_row",
)  # fmt: skip


def _window_arguments(epilogue: Epilogue, more: tuple[str, ...] = ()) -> Arguments:
    return Arguments(*map(address, (*ADDRESSES, *more)), *map(number, _NUMBERS), blocked_operands(epilogue))


@dataclass(frozen=True, slots=True)
class Row:
    """A row whose sizes are known: input and output width and the padding."""

    width: int
    columns: int
    left: int
    padded: int  # width with all padding


def _row_key(row: Row | None) -> str:
    """What a row adds to the key of a kernel."""
    return "?" if row is None else f"{row.width},{row.columns},{row.left},{row.padded}"


@dataclass(frozen=True, kw_only=True)
class WindowKernel:
    """All that decides the code of a depthwise convolution or a pool over blocked activations."""

    kind: WindowKind
    block: int
    group: int  # input lanes of an output lane
    pixels: int
    taps: int  # kernel columns
    stride: int  # input columns from one output pixel to the next
    dilation: int  # input columns from one tap to the next
    row_dilation: int  # input rows
    deep: bool  # whether images or kernels have planes
    row: Row | None  # None: not known
    padded: bool  # average: padding counts
    dense: bool  # neighbouring output pixels are one block apart
    epilogue: Epilogue
    row_sums: bool = False  # what is stored of each row is added up, a vector for each
    lane_by_lane: bool = False  # the taps of a row for one input lane of each group after the other
    written: int = LONGEST_WRITTEN  # taps that are written out in the code; longer kernel rows are a loop over so many

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = (
            self.kind,
            self.block,
            self.group,
            self.pixels,
            self.taps,
            self.stride,
            self.dilation,
            self.row_dilation,
            self.deep,
            _row_key(self.row),
            self.padded,
            self.dense,
            *(("row sums",) if self.row_sums else ()),
            *(("lane by lane",) if self.lane_by_lane else ()),
            *((f"{self.written} taps",) if self.taps > self.written else ()),
        )
        return f"window|{'|'.join(map(str, fields))}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return _window_arguments(self.epilogue, ("sums",) if self.row_sums else ())


@dataclass(frozen=True, kw_only=True)
class NarrowKernel:
    """A convolution with so few output channels that they would leave most lanes idle: the lanes are input channels instead.

    Every output is the sum over the lanes of a sum over blocks of input channels and taps. The arguments are those of a window
    kernel, with the number of full blocks in the place of `blocks`; weights lie as [block][plane][row][tap][output][lane].
    """

    block: int
    outputs: int
    tail: int  # channels of one more block of input at the end; 0 if there is none
    pixels: int
    taps: int
    stride: int
    dilation: int
    row_dilation: int
    deep: bool
    row: Row | None
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = (
            self.block,
            self.outputs,
            self.tail,
            self.pixels,
            self.taps,
            self.stride,
            self.dilation,
            self.row_dilation,
            self.deep,
            _row_key(self.row),
        )
        return f"narrow|{'|'.join(map(str, fields))}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return _window_arguments(self.epilogue)


@dataclass(frozen=True, kw_only=True)
class GlobalPoolKernel:
    """One vector for each image and block: the mean or the maximum of all pixels.

    Means divide by the `area`: pixels, or the pixels of all rows if `x` holds sums of rows.
    """

    kind: Literal["max", "average"]
    block: int
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"global|{self.kind}|{self.block}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        numbers = ("batch", "blocks", "pixels", "area", "x_batch", "x_block")
        return Arguments(address("x"), *map(number, numbers), blocked_operands(self.epilogue))
