"""Products of 8-bit integers, summed exactly in 32 bits: C = A * B, with an epilogue on every element of C.

The tiles are those of `kernel.matmul.matmul`; an element of A or B is a *quad*, the bytes of four consecutive k in 32 bits, which
one instruction multiplies and adds up where the machine has one (`Target.has_int8_dot`).

    A    rows of bytes, consecutive along k; the last quad of a row may be short
    B    packed: strips one after the other, each [segments][quads][strip][4]; bytes beyond the depth or the columns are 0

Where x86 has no such instruction an element is a *pair* of two consecutive k: two products of 16 bits are added up at once.
A was widened to 16 bits beforehand, B is bytes all the same, [segments][pairs][strip][2], and widened as it is loaded.

The depth may be divided into segments (`segments` axes): each is consecutive in A, with a stride from one to the next, as the
rows of a window in an image are. Segments of B are filled up to whole elements. The rows of A may lie in lines (`lines`): so many
one after the other, then a jump to the next line, as the windows of an image do.

Machines multiply bytes of certain signs: those of B are signed, those of A have the sign that `sign_of_a` tells. A byte of the
other sign is taken with its highest bit flipped, that is 128 more or less than it is; zero points move along (`offset_of_a`,
`offset_of_b`), so that results stay the same. A widened A has both signs. Sums wrap around at 32 bits, nothing saturates before.

`QuadPackKernel` packs a B that is computed at run time, and adds up its columns on the way: what zero points need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor, tensors
from sardonyx.kernel.matmul.matmul import MatMulKernel, ProductTile, Source, strip_vectors, tallest, vector_lanes
from sardonyx.kernel.matmul.pack import Order
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import Target
from sardonyx.target.tiles import product_rows

Byte: TypeAlias = Literal["u8", "i8"]
OfA: TypeAlias = Literal["u8", "i8", "i16"]

QUAD: Final = 4  # consecutive k of an element
PAIR: Final = 2  # the same, where A is widened
_FLIPPED: Final = 128  # what flipping the highest bit of a byte adds to it, or takes away
_USUAL_DEPTH: Final = 256  # if it is not known
_PRODUCT: Final = 1  # register that a product takes before it is added to a sum


def takes_pairs(target: Target) -> bool:
    """Whether elements are pairs, of 16 bits in A."""
    return target.architecture == "x86_64" and not target.has_int8_dot


def element_depth(target: Target) -> int:
    """How many consecutive k are an element."""
    return PAIR if takes_pairs(target) else QUAD


def sign_of_a(target: Target) -> Byte:
    """The sign of A's bytes in a machine's products with signed bytes."""
    return "u8" if target.architecture == "x86_64" else "i8"


def offset_of_a(type: str, target: Target) -> int:
    """What is added to the bytes of A, and to their zero points, before they are multiplied."""
    if type == sign_of_a(target) or takes_pairs(target):
        return 0
    return _FLIPPED if type == "i8" else -_FLIPPED


def offset_of_b(type: str) -> int:
    """What is added to the bytes of B, and to their zero points, when they are packed."""
    return 0 if type == "i8" else -_FLIPPED


def tallest_tile(target: Target, vectors: int) -> int:
    """The most rows of a tile."""
    return min(tallest(target, vectors), product_rows(target, vectors, 0 if target.has_int8_dot else _PRODUCT))


def quad_strip_vectors(columns: Dim, target: Target, rows: Dim | None = None, depth: Dim | None = None) -> int:
    """How many vectors a strip should have; see `strip_vectors`."""
    elements = ceildiv(_USUAL_DEPTH if depth is None else depth, element_depth(target))
    return strip_vectors(columns, "i32", target, rows, elements, ProductTile(tallest_tile, cost.int8_tile))


@dataclass(frozen=True, kw_only=True)
class Int8MatMulKernel(MatMulKernel):
    """All that decides the code of a product of bytes; two equal ones share it."""

    type: str = "i32"
    b_type: str = "i32"  # a quad; "i16" is a pair
    b: Source = "packed"
    unit_depth: bool = True
    a_type: OfA
    segments: int = 0  # axes of them
    ragged: bool = True  # the depth of a segment may end inside an element
    lines: bool = False  # the rows of A lie in lines of some length

    def __post_init__(self) -> None:
        MatMulKernel.__post_init__(self)
        element = "i16" if self.a_type == "i16" else "i32"
        if (self.type, self.b_type, self.b, self.unit_depth) != ("i32", element, "packed", True):
            raise ValueError("a product of bytes adds up in i32, and its B is packed in quads, or in pairs if A is widened")

    @property
    def element_depth(self) -> int:
        """How many consecutive k are an element."""
        return PAIR if self.a_type == "i16" else QUAD

    @property
    def text(self) -> str:
        """What the key is made of."""
        return f"int8|{self.a_type}|{self.segments}|{self.ragged}|{self.lines}|{super().text}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("batch", self.batch),
            number("rows"),
            number("columns"),
            number("depth"),  # of a segment
            number("group"),  # blocks in a group
            numbers("segments", self.segments),
            numbers("line", int(self.lines)),  # rows in a line
            tensor("a", self.batch + 1 + self.segments + int(self.lines)),  # strides: batch axes, row, segments, line
            tensor("b", self.batch + 1),  # strides, in elements: batch axes, strip
            tensors("operands", len(self.epilogue.operands), self.batch + 2),  # strides: batch axes, row, column
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadPackKernel:
    """All that decides the code of a kernel that packs a matrix of bytes into quads, in one segment.

    strip s, quad q, column j of the strip, byte r   :=   matrix[4 * q + r, s * width + j] + offset_of_b

    The same of pairs, where those are elements.

    The parallel range counts strips.
    """

    source: Byte
    batch: int
    vectors: int  # in a strip
    order: Order  # which axis of the matrix is consecutive

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"quad_pack|{self.source}|{self.batch}|{self.vectors}|{self.order}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("batch", self.batch),
            number("columns"),
            number("depth"),
            tensor("source", self.batch + 2),  # strides: batch axes, column, depth
            address("target"),
            address("sums"),  # of every column as it is packed, strip after strip
        )


def pack_units(kernel: QuadPackKernel, batch: Sequence[Dim], columns: Dim, target: Target) -> Dim:
    """How many strips there are."""
    return product([*batch, ceildiv(columns, kernel.vectors * vector_lanes("i32", target))])
