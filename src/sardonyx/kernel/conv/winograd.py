"""Winograd's convolution F(m x m, r x r) over blocked activations: fewer multiplications for kernels of several taps.

A tile of m x m results of a kernel of r x r taps depends on n x n inputs, n = m + r - 1. With three small matrices (`matrices`)

    Y = A^T [ sum over channels of (G w G^T) * (B^T x B) ] A            * is element by element

so a tile takes n^2 multiplications for a channel instead of r^2 m^2: with 3 x 3 taps 36 for 144 with m = 4, 16 for 36 with m = 2.
The matrices are those of Toom and Cook: x and w are polynomials that are multiplied by their values at `POINTS` and at infinity.

For every one of the n^2 *elements* of transformed tiles the sum over channels is a matrix product of tiles times channels. Tiles
of all images are counted through, row by row; `block_tiles` of them are transformed into a worker's memory together, in groups
of `rows`, which are the rows of a register tile of the product:

    v[group][element][group of taps][block of input channels][row][lane]       transformed inputs
    w[set][element][group of taps][input channel][output channel of the set]   transformed weights
    m[tile][vector][element][lane]                                              sums, of one set of output channels

Larger kernels are taken apart into groups of taps (`AxisTaps`), along each axis of two, three or four: 5 x 5 into four of up to
3 x 3, 7 x 7 into four of up to 4 x 4. All read other pixels and add to the same sums, as if they were more channels. The planes
of a kernel with three axes are such groups as well. With a stride of 2, so are the taps that meet even rows and columns, and odd
ones: they read every other pixel, as if the stride were 1 (3 x 3: groups of 2 x 2, 2 x 1, 1 x 2 and 1 x 1 taps). A group whose
last tap along an axis does not exist has nothing at infinity: v and w have no such elements for it.

Infinities and NaN would spread over whole tiles, and so would values that overflow in the transforms: a tile with results that
are no numbers is computed again as the definition says, from the kernels as they are (`kernel_output`, ... are their strides).

With dilations, the inputs of a tile and its results are that far apart; tiles with neighbouring starts fill the gaps.

A unit is a set of output channels for a block of tiles. Units of a block follow each other, so that a worker transforms inputs
once. The groups of a convolution, if it has any, are convolutions of their own, one after the other: `blocks` of output channels
each, `x_group` apart in the input; `outputs` counts the channels of all of them.
"""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from functools import cache
from math import prod
from typing import ClassVar, Final, NamedTuple, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.kernel.conv.conv import ADDRESSES, blocked_operands
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass

TAPS: Final = 3  # of a row or column of the kernels of most layers
TILES: Final = (2, 4)  # results of a side
ROW_TILE: Final = 4  # results of a tile along one axis
_ROW_TAPS: Final = (TAPS, 4)  # of a group of a row or column
_GROUP_TAPS: Final = (2, TAPS, 4)  # of a group along either of two axes
# By elements along an axis: one more than points. Pairs p and -p take the fewest operations. Of all that have exact coefficients
# these have the least error for tiles of 4 x 4: for 3 x 3 taps 0.62 of that of 0, 1, -1, 1/2, -2 and 0.3 of that of 0, 1, -1, 2,
# -2. With 2 x 2 taps it is 0.7 of that with 3 x 3, with 4 x 4 taps 1.35 times.
POINTS: Final = {
    3: (0.0, 1.0),
    4: (0.0, 1.0, -1.0),
    5: (0.375, -0.375, 1.25, -1.25),
    6: (0.0, 0.625, -0.625, 1.5, -1.5),
    7: (0.25, -0.25, 0.875, -0.875, 1.75, -1.75),
}

_NUMBERS: Final = (
    "tiles", "tile_rows", "tile_columns", "block_tiles", "tile_blocks", "sets", "outputs", "blocks", "planes", "rows", "columns",
    "depth", "height", "width", "front", "top", "left", "plane_stride", "plane_dilation",
    "input_blocks", "x_batch", "x_group", "x_block", "x_plane", "x_row", "v_element", "w_set",
    "kernel_output", "kernel_input", "kernel_plane", "kernel_row", "kernel_column",
)  # fmt: skip

Matrix: TypeAlias = tuple[tuple[float, ...], ...]


class Matrices(NamedTuple):
    """The transforms of one axis: of outputs [m][n], of weights [n][taps], of inputs [n][n]."""

    outputs: Matrix
    weights: Matrix
    inputs: Matrix


def _product(roots: list[float]) -> tuple[float, ...]:
    """The coefficients of the product of (x - root), lowest first."""
    made: tuple[float, ...] = (1.0,)
    for root in roots:
        made = tuple(up - root * same for up, same in zip((0.0, *made), (*made, 0.0)))
    return made


@cache
def matrices(tile: int, taps: int = TAPS) -> Matrices:
    """The matrices for tiles of so many results a side. Those of inputs and outputs are exact."""
    points = POINTS[tile + taps - 1]
    others = [[other for other in points if other != point] for point in points]
    scales = [prod(point - other for other in rest) for point, rest in zip(points, others)]
    outputs = tuple((*(point**power for point in points), float(power == tile - 1)) for power in range(tile))
    weights = tuple(tuple(point**power / scale for power in range(taps)) for point, scale in zip(points, scales))
    inputs = tuple((*_product(rest), 0.0) for rest in others)
    return Matrices(outputs, (*weights, (0.0,) * (taps - 1) + (1.0,)), (*inputs, _product(list(points))))


class AxisTaps(NamedTuple):
    """How the taps of an axis are taken apart, phase by phase of the stride: into groups of `own` taps, or of one less."""

    own: int
    full: tuple[int, ...]  # the first tap of each group; its others are a stride apart
    short: tuple[int, ...]  # the same of groups whose last tap does not exist, nor anything at infinity

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first tap of every group, as groups are counted."""
        return self.full + self.short

    def products(self, tile: int) -> int:
        """Elements of tiles, of all groups."""
        return (tile + self.own - 2) * len(self.firsts) + len(self.full)


@cache
def axis_taps(taps: int, stride: int, tile: int) -> AxisTaps:
    """The groups of an axis that make the fewest elements; a tap belongs to phase tap % stride. Some phase has several taps."""
    found = [_axis_groups(taps, stride, own) for own in _GROUP_TAPS]
    return min((each for each in found if each.full), key=lambda each: each.products(tile))


def _axis_groups(taps: int, stride: int, own: int) -> AxisTaps:
    full: list[int] = []
    short: list[int] = []
    for phase in range(min(taps, stride)):
        count = -(-(taps - phase) // stride)
        groups = -(-count // own)
        first = 0
        for group in range(groups):
            lacks = group >= groups - (groups * own - count)
            (short if lacks else full).append(phase + first * stride)
            first += own - lacks
    return AxisTaps(own, tuple(full), tuple(short))


class TapGroups(NamedTuple):
    """How a kernel is taken apart: its planes, and the groups of taps down and along."""

    tile: int
    planes: int
    axes: tuple[AxisTaps, AxisTaps]

    @property
    def sizes(self) -> tuple[int, int]:
        """Elements of a transformed tile along each axis."""
        down, along = self.axes
        return self.tile + down.own - 1, self.tile + along.own - 1

    @property
    def in_all(self) -> int:
        """How many groups there are."""
        return self.planes * prod(len(axis.firsts) for axis in self.axes)

    @property
    def products(self) -> int:
        """Elements of transformed tiles, of all groups."""
        return self.planes * prod(axis.products(self.tile) for axis in self.axes)


def tap_groups(taps: tuple[int, ...], strides: tuple[int, ...], tile: int) -> TapGroups:
    """How a kernel of so many planes, rows and columns is taken apart, with strides down and along."""
    planes, rows, columns = taps
    return TapGroups(tile, planes, (axis_taps(rows, strides[0], tile), axis_taps(columns, strides[1], tile)))


def row_taps(taps: int) -> int:
    """How many taps a group has along one axis: what makes the fewest elements of all groups."""
    return min(_ROW_TAPS, key=lambda own: row_products(taps, own))


def row_products(taps: int, own: int) -> int:
    """Elements of a tile along one axis, of all groups. One that lacks a tap has nothing at infinity."""
    return -(-taps // own) * (ROW_TILE + own - 1) - (taps % own > 0)


_ROW_NUMBERS: Final = (
    "tiles", "lines", "line_tiles", "block_tiles", "tile_blocks", "sets", "outputs", "blocks", "columns",
    "width", "left", "dilation", "taps", "tap_groups", "input_blocks", "x_batch", "x_group", "x_block", "x_line", "x_step",
    "v_element", "w_set",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _TiledKernel:
    """What decides the code of both kernels. `sets` of `vectors` blocks make the output channels."""

    kind: ClassVar[str]
    numbers: ClassVar[tuple[str, ...]]  # that it is called with
    tile: int  # results of a side
    block: int  # lanes
    vectors: int
    last_vectors: int  # of the last set
    last_lanes: int  # of the vectors of the last set: fewer than a block if so few channels are left
    rows: int  # tiles of a group: rows of the matrix products
    last_rows: int  # a last group of so many tiles or fewer has a product of its own; 0: there is none
    tail: int  # channels of one more block of inputs at the end; 0 if there is none
    fetched: int  # cache lines of the next element's weights that a group of tiles brings beside each block of input channels
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = [getattr(self, each.name) for each in dataclass_fields(self) if each.name != "epilogue"]
        return f"{self.kind}|{','.join(map(str, fields))}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with. `input_blocks` counts the full ones; v and m are memory of each worker."""
        scratch, operands = (tensor("v", 1), tensor("m", 1)), blocked_operands(self.epilogue)
        return Arguments(*map(address, (*ADDRESSES, "kernels")), *map(number, self.numbers), *scratch, operands)


@dataclass(frozen=True, kw_only=True)
class WinogradKernel(_TiledKernel):
    """All that decides the code."""

    kind = "winograd"
    numbers = _NUMBERS
    overhangs: bool  # whether tiles may reach past the right or lower end of the result
    strides: tuple[int, int]  # down and along
    dilations: tuple[int, int]  # 1 where the stride is not
    taps: tuple[int, int, int]  # planes, rows and columns of the kernels
    deep: bool  # whether images have planes

    @cached_property
    def groups(self) -> TapGroups:
        """How the taps are taken apart."""
        return tap_groups(self.taps, self.strides, self.tile)

    @property
    def elements(self) -> int:
        """Of a transformed tile."""
        return prod(self.groups.sizes)

    @property
    def spacing(self) -> tuple[int, int]:
        """How far the pixels that a transform reads are apart, down and along."""
        return self.strides[0] * self.dilations[0], self.strides[1] * self.dilations[1]


@dataclass(frozen=True, kw_only=True)
class WinogradRowKernel(_TiledKernel):
    """The same along one axis, for kernels of one row and any number of columns: F(m, 3) or F(m, 4) for so many of them.

    A tile is m results `dilation` apart in one line; tiles with neighbouring starts fill the gaps. Taps are taken by threes or
    fours (`row_taps`): their sums are added up in the products, as if they were more channels. A last group that lacks taps is
    filled up with zeros, and has nothing at infinity.

        v[group][element][group of taps][block of input channels][row][lane]
        w[set][element][group of taps][input channel][output channel of the set]

    Of its arguments, tap_groups tells how many groups of taps there are, x_line leads from one line to the next, x_step from
    one pixel of a line to the next.
    """

    kind = "winograd row"
    numbers = _ROW_NUMBERS
    taps: int  # of a group
    lacks_tap: bool  # the last group

    @property
    def size(self) -> int:
        """Elements of a transformed tile."""
        return self.tile + self.taps - 1

    @property
    def elements(self) -> int:
        """The same."""
        return self.size
