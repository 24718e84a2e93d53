"""Winograd's convolution F(m x m, 3 x 3) over blocked activations: fewer multiplications for kernels with stride 1.

A tile of m x m results depends on n x n inputs, n = m + 2. With three small matrices (`matrices`)

    Y = A^T [ sum over channels of (G w G^T) * (B^T x B) ] A            * is element by element

so a tile takes n^2 multiplications for a channel instead of 9 m^2: 36 for 144 with m = 4, 16 for 36 with m = 2. The matrices are
those of Toom and Cook: x and w are polynomials that are multiplied by their values at `POINTS` and at infinity.

For every one of the n^2 *elements* of transformed tiles the sum over channels is a matrix product of tiles times channels. Tiles
of all images are counted through, row by row; `block_tiles` of them are transformed into a worker's memory together, in groups
of `rows`, which are the rows of a register tile of the product:

    v[group][element][3 x 3 taps][block of input channels][row][lane]       transformed inputs
    w[set][element][3 x 3 taps][input channel][output channel of the set]   transformed weights
    m[tile][vector][element][lane]                                           sums, of one set of output channels

Larger kernels are taken apart into kernels of 3 x 3, filled up with zeros at the end of each axis: 5 x 5 into four, 7 x 7 into
nine. All read other pixels and add to the same sums, as if they were more channels: with m = 4 they take 9 and 20 multiplications
for a result instead of 25 and 49. The planes of a kernel with three axes are such kernels as well. With a stride of 2, so are the
taps that meet even rows and columns, and odd ones: they read every other pixel, as if the stride were 1 (5 x 5: 9, not 25).

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

TAPS: Final = 3  # of a row or column of the kernels
ROW_TILE: Final = 4  # results of a tile along one axis
_ROW_TAPS: Final = (TAPS, 4)  # of a group along one axis
# For m = 4, pairs p and -p take the fewest operations. Of all that have exact coefficients these have the least error: 0.62 of
# that of 1, -1, 1/2, -2, and 0.3 of that of 1, -1, 2, -2.
POINTS: Final = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.625, -0.625, 1.5, -1.5)}
# By taps of a group along one axis. Those for four have 1.25 times the error of those for three; with 0 they have no less.
ROW_POINTS: Final = {TAPS: POINTS[ROW_TILE], 4: (0.25, -0.25, 0.75, -0.75, 1.75, -1.75)}

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
    points = POINTS[tile] if taps == TAPS else ROW_POINTS[taps]
    others = [[other for other in points if other != point] for point in points]
    scales = [prod(point - other for other in rest) for point, rest in zip(points, others)]
    outputs = tuple((*(point**power for point in points), float(power == tile - 1)) for power in range(tile))
    weights = tuple(tuple(point**power / scale for power in range(taps)) for point, scale in zip(points, scales))
    inputs = tuple((*_product(rest), 0.0) for rest in others)
    return Matrices(outputs, (*weights, (0.0,) * (taps - 1) + (1.0,)), (*inputs, _product(list(points))))


class AxisTaps(NamedTuple):
    """How the taps of an axis are taken apart: those of every phase of the stride, and these by threes."""

    phases: int
    threes: int  # of a phase

    @property
    def groups(self) -> int:
        """Of three taps, in all."""
        return self.phases * self.threes


def axis_taps(taps: int, stride: int) -> AxisTaps:
    """How many groups of three taps an axis has; a tap belongs to phase tap % stride."""
    return AxisTaps(min(taps, stride), -(-taps // (TAPS * stride)))


def tap_groups(taps: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int]:
    """How many kernels of 3 x 3 planes, rows and columns of a kernel are taken apart into, with strides down and along."""
    planes, rows, columns = taps
    return planes, axis_taps(rows, strides[0]).groups, axis_taps(columns, strides[1]).groups


def row_taps(taps: int) -> int:
    """How many taps a group has along one axis: what makes the fewest elements of all groups."""
    return min(_ROW_TAPS, key=lambda own: -(-taps // own) * (ROW_TILE + own - 1))


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

    @property
    def size(self) -> int:
        """Elements of a transformed tile along an axis."""
        return self.tile + TAPS - 1

    @property
    def elements(self) -> int:
        """Of a transformed tile."""
        return self.size**2

    @property
    def groups(self) -> tuple[int, int, int]:
        """How many kernels of 3 x 3 the taps are, along each axis."""
        return tap_groups(self.taps, self.strides)

    @property
    def spacing(self) -> tuple[int, int]:
        """How far the pixels that a transform reads are apart, down and along."""
        return self.strides[0] * self.dilations[0], self.strides[1] * self.dilations[1]

    @property
    def tap_groups(self) -> int:
        """How many sums of transformed taps are added up."""
        return prod(self.groups)


@dataclass(frozen=True, kw_only=True)
class WinogradRowKernel(_TiledKernel):
    """The same along one axis, for kernels of one row and any number of columns: F(m, 3) or F(m, 4) for so many of them.

    A tile is m results `dilation` apart in one line; tiles with neighbouring starts fill the gaps. Taps are taken by threes or
    fours (`row_taps`), the last of them filled up with zeros: their sums are added up in the products, as if they were more
    channels.

        v[group][element][group of taps][block of input channels][row][lane]
        w[set][element][group of taps][input channel][output channel of the set]

    Of its arguments, tap_groups tells how many groups of taps there are, x_line leads from one line to the next, x_step from
    one pixel of a line to the next.
    """

    kind = "winograd row"
    numbers = _ROW_NUMBERS
    taps: int  # of a group

    @property
    def size(self) -> int:
        """Elements of a transformed tile."""
        return self.tile + self.taps - 1

    @property
    def elements(self) -> int:
        """The same."""
        return self.size
