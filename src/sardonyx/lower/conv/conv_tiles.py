"""Which register tile a convolution gets: the one whose tiles take the least time in all, by `target.cost`.

    row of 49 pixels, 24 channels in blocks of 8         tiles of 2 x 6: 8 whole ones and a pixel, for 2 blocks and for 1
                                                         tiles of 3 x 4: 12 whole ones and a pixel, for 3 blocks

Both what is left of a row and what is left of the channels make smaller tiles, which wait for their own sums.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sardonyx.ir.dims import Dim
from sardonyx.kernel.conv.conv import CutTile
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import Target
from sardonyx.target.tiles import product_rows

ANY_WIDTH_PIXELS: Final = 8  # of a tile, if rows have no known length
_MOST_PIXELS: Final = {1: 14, 2: 12, 3: 8, 4: 6}  # of a tile, by vectors: with more the code grows, and is no faster
_MOST_AT_BORDERS: Final = 11  # tiles there keep a pointer for every pixel: long ones run out of registers for those
_MARGIN: Final = 1.02  # by so much wider tiles must be faster
_MOST_PAIRS: Final = 16  # of pixels of a tile
_FEWEST_SUMS: Final = 12  # that do not wait for each other
_MOST_CUT: Final = 3  # tiles of a row that reach past the image: each has code of its own
_BESIDE_WEIGHTS: Final = 3  # registers of a tile besides sums and the weights of a row of the kernel


def most_pixels(target: Target, vectors: int) -> int:
    """Of a tile: what registers have room for."""
    return min(product_rows(target, vectors), _MOST_PIXELS[vectors])


@dataclass(frozen=True)
class ConvTile:
    """How many vectors of output channels and how many pixels a kernel works on at once."""

    vectors: int
    pixels: int
    row_taps: int = 0  # of a row of the kernel that is written out
    paired: bool = False  # two pixels in a vector


@dataclass(frozen=True, kw_only=True)
class TileTask:
    """What a tile is chosen for: rows of a length, and sums over input channels and taps."""

    target: Target
    outputs: int  # channels
    inputs: int
    taps: int
    columns: Dim
    borders: bool = False
    plain: bool = False  # all channels and taps are one run

    @property
    def blocks(self) -> int:
        """Of output channels."""
        return -(-self.outputs // self.target.lanes)

    def time(self, vectors: int, pixels: int) -> float:
        """Nanoseconds of a row, or of a pixel if its length is not known."""
        sets, rest = divmod(self.blocks, vectors)
        left = self.outputs % self.target.lanes
        if vectors == 1 and self.target.has_faster_half_vectors and 0 < 2 * left <= self.target.lanes:
            return (sets - 0.5) * self._row(1, pixels)
        return sets * self._row(vectors, pixels) + (self._row(rest, pixels) if rest else 0.0)

    def _row(self, vectors: int, pixels: int) -> float:
        if not isinstance(self.columns, int):
            return self._tile(pixels, vectors) / pixels
        whole, rest = divmod(self.columns, pixels)
        return whole * self._tile(pixels, vectors) + (self._tile(rest, vectors) if rest else 0.0)

    def _tile(self, pixels: int, vectors: int) -> float:
        run = self.inputs * self.taps if self.plain else min(self.inputs, self.target.lanes)
        runs = 1 if self.plain else -(-self.inputs // run) * self.taps
        return cost.conv_tile(pixels, vectors, runs, run, self.target, pointwise=self.taps == 1)


@lru_cache(maxsize=1024)  # nets repeat their layers
def choose_tile(task: TileTask) -> ConvTile:
    """The tile that takes the least time; of wide ones only those that are clearly faster, since they are more code."""
    found: dict[float, ConvTile] = {}
    for vectors in range(1, min(task.blocks, max(_MOST_PIXELS)) + 1):
        most = min(most_pixels(task.target, vectors), _MOST_AT_BORDERS if task.borders else max(_MOST_PIXELS.values()))
        if isinstance(task.columns, int):
            sizes = range(max(min(most, task.columns), 1), 0, -1)
        else:
            sizes = range(min(most, ANY_WIDTH_PIXELS), min(most, ANY_WIDTH_PIXELS) - 1, -1)
        pixels = min(sizes, key=lambda pixels, vectors=vectors: task.time(vectors, pixels))  # type: ignore[misc]
        found.setdefault(task.time(vectors, pixels), ConvTile(vectors, pixels))
    return next(tile for time, tile in found.items() if time <= min(found) * _MARGIN)


def with_row_of_taps(tile: ConvTile, task: TileTask, taps: int, *, deep: bool) -> ConvTile:
    """The tile for plain input: where registers hold the weights of a row of the kernel as well, that is written out.

    Where loads take as long as products, an element is loaded once for all its products then. Channels that fill half a vector
    at most take half as many products, if two pixels share a vector.
    """
    target = task.target
    if not (target.has_broadcast_operands and target.has_whole_vectors):
        return tile
    left = target.registers - _BESIDE_WEIGHTS
    if 2 * task.outputs <= target.lanes and left > taps and not deep:
        pixels = ANY_WIDTH_PIXELS
        if isinstance(task.columns, int):
            pixels = _even(task.columns, 2 * min(left - taps, _MOST_PAIRS))
        return ConvTile(1, pixels, taps, paired=True)
    most = min(left // tile.vectors - taps, tile.pixels)
    if most * tile.vectors < _FEWEST_SUMS:
        return tile
    return ConvTile(tile.vectors, _even(task.columns, most) if isinstance(task.columns, int) else most, taps)


def cut_tiles(tile: ConvTile, geometry: Geometry) -> tuple[CutTile, ...] | None:
    """The tiles of a row that reach past the image, if they are few and known; else x needs zeros around it."""
    columns, width, left = geometry.out[2], geometry.size[2], geometry.pads_begin[2]
    if not tile.row_taps or not isinstance(columns, int) or not isinstance(width, int) or not isinstance(left, int):
        return None
    stride, found = geometry.stride[2], []
    for column in range(0, columns, tile.pixels):
        pixels = min(tile.pixels, columns - column)
        at, elements = column * stride - left, (pixels - 1) * stride + tile.row_taps
        first, end = max(-at, 0), min(elements, width - at)
        if (first, end) != (0, elements):
            found.append(CutTile(column, pixels, first, end))
    return tuple(found) if len(found) <= _MOST_CUT else None


def _even(count: int, most: int) -> int:
    """The size of nearly equal parts."""
    return max(-(-count // max(-(-count // most), 1)), 1)
