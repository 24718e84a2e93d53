"""Matrix products: C = A * B over any number of batch axes, with an epilogue on every element of C.

The result is cut into tiles of a few rows and of one strip, which is a few vectors of columns; a tile is summed over the whole
depth in registers. A is read where it lies, with any strides. B comes in one of two forms:

    packed   strips one after the other, each [depth][strip] without gaps, columns beyond the matrix filled with zeros
    rows     as it lies, consecutive along its columns

Rows are divided into blocks of nearly equal height, at most the tallest tile, so that no tile is left nearly empty. A few
blocks make a group; a group's part of A stays in the cache while all strips pass by.

The parallel range counts tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.expr import BITS
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import Target
from sardonyx.target.tiles import product_rows

Source: TypeAlias = Literal["packed", "rows"]


def vector_lanes(type: str, target: Target) -> int:
    """Elements of a vector that is summed up in a type."""
    return target.lanes_of(max(BITS[type], 32))


_MOST_ROWS: Final = {1: 12, 2: 8, 3: 8, 4: 6}  # of a tile, by vectors: with more the code grows, and is no faster
_USUAL_DEPTH: Final = 256  # if it is not known
_SHORT_DEPTH: Final = 1024  # products that are added up one after the other
_FEWEST_ROWS: Final = 4  # fewer wait for B to come from memory, in strips of any width
_FETCHING_ROWS: Final = (4, 5)  # see `fetching_rows`; the second is for machines that compute whole vectors
_FEW_SUMS: Final = 16  # of a tile: with fewer, what a core has in flight takes less time than B from beyond the second cache
_FLOAT_BYTES: Final = 4
_EQUAL: Final = 1.001  # estimates that are no further apart
_MARGIN: Final = (
    1.03  # by so much other strips must be faster than those that are best for many rows: weights are packed for these
)


class ProductTile(NamedTuple):
    """What decides which tiles a product is divided into."""

    tallest: Callable[[Target, int], int]  # the most rows, by vectors
    time: Callable[..., float]  # of a tile: rows, vectors, depth, target, ragged (`cost.matmul_tile`)


def tallest(target: Target, vectors: int) -> int:
    """The most rows of a tile."""
    return min(product_rows(target, vectors), _MOST_ROWS[vectors])


def strip_vectors(
    columns: Dim,
    type: str,
    target: Target,
    rows: Dim | None = None,
    depth: Dim = _USUAL_DEPTH,
    tile: ProductTile | None = None,
) -> int:
    """How many vectors a strip should have, by the time of all tiles: those of the last strip and block may be mostly empty.

    Without `rows` there are many of them; without `tile` the product is one of floats.
    """
    lanes, deep = vector_lanes(type, target), depth if isinstance(depth, int) else _USUAL_DEPTH

    tallest_tile, time_of = tile or ProductTile(tallest, cost.matmul_tile)

    def strips(vectors: int, height: int) -> float:
        """The time of a row of tiles."""
        if not isinstance(columns, int):
            return time_of(height, vectors, deep, target) / vectors
        full, rest = divmod(max(columns, 1), lanes * vectors)
        last = time_of(height, vectors, deep, target, ragged=True) if rest else 0.0
        return full * time_of(height, vectors, deep, target) + last

    def time(vectors: int, rows: int | None) -> float:
        most = tallest_tile(target, vectors)
        if rows is None:
            return strips(vectors, most) / most
        blocks = -(-max(rows, 1) // most)
        height, taller = divmod(max(rows, 1), blocks)
        return (blocks - taller) * strips(vectors, height) + taller * strips(vectors, height + 1)

    def fastest(rows: int | None, margin: float) -> int:
        """Of those that take as long, but for the margin, the first: the widest where A need not be read into registers."""
        times = {vectors: time(vectors, rows) for vectors in sorted(_MOST_ROWS, reverse=target.has_broadcast_operands)}
        return next(vectors for vectors, taken in times.items() if taken <= min(times.values()) * margin)

    usual = fastest(None, _EQUAL)
    if not isinstance(rows, int) or rows < _FEWEST_ROWS:
        return usual
    best = fastest(rows, _EQUAL)
    return best if time(best, rows) * _MARGIN < time(usual, rows) else usual


@dataclass(frozen=True, kw_only=True)
class MatMulKernel:
    """All that decides the code of a matrix product; two equal ones share it."""

    type: str  # of A and of the sums
    b_type: str  # of B in memory; converted when loaded
    b: Source
    batch: int  # axes
    vectors: int  # in a strip
    rows: int  # of the tallest tile
    heights: tuple[int, ...]  # of tiles that can occur, ascending; others are rounded up to the next
    unit_depth: bool  # A is consecutive along its depth
    whole: bool  # the columns fill their strips
    epilogue: Epilogue
    deep: bool = False  # the depth may be long: it is summed up in blocks
    grouped: bool = False  # the batch axis counts groups; a table of tiles says which rows each has (`kernel.matmul.experts`)
    fetches: bool = False  # tiles of `fetching_rows` and more bring the next strip of B to the second cache meanwhile

    def __post_init__(self) -> None:
        if self.fetches and (self.b != "packed" or self.grouped or not self.unit_depth):
            raise ValueError("what is fetched are the strips of a packed B, for rows that are consecutive along their depth")
        if self.grouped and (self.batch, self.b) != (1, "packed"):
            raise ValueError("rows in groups have one batch axis, and a B that is packed")
        if not self.heights or self.heights[-1] > self.rows:
            raise ValueError(f"tiles of heights {self.heights} in blocks of at most {self.rows} rows")

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return self.text

    @property
    def text(self) -> str:
        """What the key is made of."""
        heights = ",".join(map(str, self.heights))
        return (
            f"matmul|{self.type}|{self.b_type}|{self.b}|{self.batch}|{self.vectors}x{self.rows}|{heights}"
            f"|{self.unit_depth}|{self.whole}|{self.epilogue.key}{'|grouped' if self.grouped else ''}"
            f"{'|deep' if self.deep else ''}{'|fetches' if self.fetches else ''}"
        )

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("batch", self.batch),
            number("rows"),
            number("columns"),
            number("depth"),
            number("group"),  # blocks in a group
            tensor("a", self.batch + 2),  # strides: batch axes, row, depth
            tensor("b", self.batch + 1),  # strides: batch axes, strip (packed) or row (rows)
            tensors("operands", len(self.epilogue.operands), self.batch + 2),  # strides: batch axes, row, column
            *([address("tiles")] if self.grouped else []),
        )


def is_deep(type: str, depth: Dim) -> bool:
    """Whether sums over a depth may be so long that they lose digits in one chain of additions."""
    return type == "f32" and not (isinstance(depth, int) and depth <= _SHORT_DEPTH)


def fetching_rows(target: Target) -> int:
    """Rows of a tile from which on it fetches: fewer take no longer than their own strip does to come."""
    return _FETCHING_ROWS[target.has_broadcast_operands and target.has_whole_vectors]


def waits_for_strips(target: Target, vectors: int) -> bool:
    """Whether a tile is held up by a strip that comes from beyond the second cache: it has too few products in flight to hide
    that, or takes the strip faster than the last cache gives it."""
    rows = tallest(target, vectors)
    if rows * vectors < _FEW_SUMS:
        return True
    return target.flops_per_ns * _FLOAT_BYTES > 2 * rows * target.shared_cache_bytes_per_ns


def heights(rows: Dim, tallest_: int) -> tuple[int, ...]:
    """The heights of the tiles that a number of rows is divided into; all that are possible if it is not known yet."""
    if not isinstance(rows, int):
        return tuple(range(1, tallest_ + 1))
    if rows == 0:
        return (1,)
    blocks = -(-rows // tallest_)
    return tuple(sorted({rows // blocks, -(-rows // blocks)}))


def units(kernel: MatMulKernel, batch: Sequence[Dim], rows: Dim, columns: Dim, target: Target) -> Dim:
    """How many tiles the result has."""
    strips = ceildiv(columns, kernel.vectors * vector_lanes(kernel.type, target))
    return product([*batch, ceildiv(rows, kernel.rows), strips])
