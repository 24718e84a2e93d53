"""Convolution kernels over activations whose channels lie in blocks: x[N, C/B, H, W, B], every lane a channel.

`ConvKernel` computes tiles of `vectors` blocks of output channels times `pixels` neighbours of a row. A tile is the sum over
iterations (blocks of input channels), kernel planes, rows and columns of a *run*: neighbouring input elements, each of
which is multiplied with `vectors` vectors of packed weights.

    blocked input   a run is the channels of one block at one pixel
    plain input     (a first layer with few channels) a run is one element, an iteration is a channel

Of plain input, a row of the kernel may be written out (`row_taps`): every element is loaded once for all pixels that it is a tap
of, and the weights of the row stay in registers. Where output channels fill half a vector, vectors hold two pixels then
(`paired`): the first half of a tile's pixels, and beside them the second. Where sizes are known the first and the last tiles of
a row are `cut`: they leave out elements that lie outside of the image. Otherwise x is surrounded by zeros first.

A unit is a chunk of a row for one set of output channels. Units of a set follow each other, so that its weights stay in the
cache; where a whole image does not, or weights are small, `banded` units do all sets for a *band* of chunks before the next band.
Workers then have pixels of their own, and find in their caches what they computed of the layer before.

Sizes, strides and the counts of iterations, kernel rows and columns are arguments, so that layers share code.

Weights of the next set are fetched into the cache beside the products of this one, `ahead` lines with every tap, other lines by
every tile until all are there: sets of few tiles would else wait for weights in the first of them.

Kernels of single pixels leave the way to memory idle: beside their products they fetch weights that *come* later
(`lower.fetching`), `COMING_LINES` in every iteration. Tiles and units begin at other lines each. From `coming_split` on they are
those of another step, which lie at `then_coming`, and nothing is fetched from `coming_bytes` on.
"""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from typing import Final

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, Field, address, number, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass

ADDRESSES: Final = ("x", "w", "bias", "zeros")
_NUMBERS: Final = (
    "batch", "sets", "blocks", "planes", "rows", "columns", "chunk", "chunks", "band",
    "depth", "height", "width", "front", "top", "left", "plane_stride", "row_stride",
    "plane_dilation", "row_dilation", "column_dilation", "kernel_planes", "kernel_rows", "kernel_columns", "iterations",
    "x_batch", "x_group", "x_iteration", "x_plane", "x_row", "w_set",
)  # fmt: skip


COMING_LINES: Final = 8  # of the cache, in an iteration
NOTHING_COMES: Final = dict.fromkeys(("coming_split", "coming_bytes", "coming_tile", "coming_unit"), 0)
_COMING: Final = (address("coming"), address("then_coming"), *map(number, NOTHING_COMES))


def blocked_operands(epilogue: Epilogue) -> Field:
    """The operands of an epilogue over a blocked result; strides: batch, block, plane, row, column."""
    return tensors("operands", len(epilogue.operands), 5)


@dataclass(frozen=True, slots=True)
class CutTile:
    """A tile some of whose elements lie outside of the image: they are left out."""

    column: int  # of the tile's first pixel
    pixels: int
    first: int  # of the elements of its row that lie inside
    end: int

    def __str__(self) -> str:
        return f"{self.column}+{self.pixels}:{self.first}-{self.end}"


@dataclass(frozen=True, kw_only=True)
class ConvKernel:
    """All that decides the code of a convolution. `sets` groups of `vectors` blocks make the output channels of one group."""

    block: int  # lanes: output channels in a vector
    vectors: int
    last_vectors: int  # of the last set
    last_lanes: int  # of the vectors of the last set: fewer than a block if so few channels are left
    pixels: int
    last_pixels: int | None  # what is left of a row after whole tiles; None if its length is not known
    stride: int  # input columns from one output pixel to the next
    column: int  # elements from one input column to the next
    run: int
    run_tail: int  # length of the run in one more iteration at the end; 0 if there is none
    single_tap: bool  # windows are single pixels, all of them inside the image
    borders: bool  # whether kernel columns may lie outside of the input
    reads_past_rows: bool  # reading past the end of a row of x is harmless
    dense: bool  # neighbouring output pixels are one block apart
    banded: bool  # units are counted by bands (see above)
    ahead: int  # lines of the next set's weights that every tap fetches into the cache
    epilogue: Epilogue
    deep: bool = False  # results are sums of so many products that they are summed up in blocks
    row_taps: int = 0  # of a kernel row that is written out (plain input); 0: kernel columns are a loop
    paired: bool = False  # each vector has the sums of two pixels (one set of half a block, a row that is written out)
    cut: tuple[CutTile, ...] = ()  # tiles of such rows that reach past the image; the others lie inside

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = [getattr(self, each.name) for each in dataclass_fields(self) if each.name not in ("epilogue", "cut")]
        cut = "".join(f"|cut {tile}" for tile in self.cut)
        return f"conv|{','.join(map(str, fields))}{cut}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        coming = _COMING if self.single_tap else ()
        return Arguments(*map(address, ADDRESSES), *map(number, _NUMBERS), *coming, blocked_operands(self.epilogue))
