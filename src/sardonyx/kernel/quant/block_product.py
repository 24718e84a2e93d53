"""Products with weights of 2, 4 or 8 bits that have a scale for each block of a row, as MatMulNBits has them.

    result[i, n] = sum over blocks of scale[n, block] * sum over k in block of a[i, k] * (weight[n, k] - zero_point[n, block])

The activations are quantized first (`QuantizeRowsKernel`): each block of a row to integers of 8 or 16 bits with a scale of
its own. The products are then sums of integers, which are exact; only at the end of a block they become floats. Eight bits are
what accuracy level 4 allows; sixteen lose about 2e-5 of the largest activation of a block.

A lane is a column. A word of 32 bits has 32 / bits weights of one column, in an order that needs no shuffling: byte j of a word
holds the weights 4t + j for t = 0, 1, ..., the first in its lowest bits. So shifting and masking gives four weights in four bytes
beside four activations of 8 bits (dot products of bytes), or two in halfwords beside two activations of 16 bits (dot products of
halfwords), whose order is 0, 2, 1, 3 for that reason. Which of them a product takes is one question (`dots_of`):

    bytes      four at a time, where the machine adds them up in 32 bits
    pairs      two at a time in 16 bits, which are exact for weights of up to 4 bits and become 32 bits before they could overflow
    halfwords  two at a time in 32 bits, on any machine

With the first two, activations of 16 bits are two planes of bytes, 256 * high + low: of every four, first the low bytes, then the
high ones (`has_planes`). That takes as many dot products, but half as much shifting and masking.

    weights   [strip][block][word][lane] u32
    scales    [strip][block][lane] f32
    offsets   [strip][block][lane]: zero points of the model, if it gives any: u8, or f32 and times the scale where they are real

Without zero points in the model they are in the middle of the range, and `corrections` of the rows start the sums of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass
from sardonyx.target.target import CACHE_LINE, Target
from sardonyx.target.tiles import rows_in_registers

LevelBits: TypeAlias = Literal[8, 16]
Offsets: TypeAlias = Literal["", "u8", "f32"]
Dots: TypeAlias = Literal["bytes", "pairs", "halfwords"]

WORD: Final = 32  # bits
PAIRS: Final = {2: 32, 4: 8}  # sums of two products that 16 bits hold, by the bits of a weight
HALFWORDS: Final = (0, 2, 1, 3)  # which of four activations stands where, if they have 16 bits
MOST_ROWS: Final = 12  # of any tile: it reads so many scales, whatever rows exist
_ROUNDED: Final = (1, 2, 4, 8)  # heights of tiles that are made if the number of rows is not known; and the tallest


def has_byte_dots(target: Target) -> bool:
    """Whether the machine multiplies unsigned by signed bytes and adds four products up without saturating."""
    return target.has_int8_dot and target.architecture == "x86_64"


def dots_of(bits: int, target: Target) -> Dots:
    """The dot products that weights of so many bits are multiplied by."""
    if has_byte_dots(target):
        return "bytes"
    return "pairs" if target.has_byte_pairs and bits in PAIRS else "halfwords"


def level_bits_of(bits: int, target: Target, *, wants_bytes: bool) -> LevelBits:
    """The bits of an activation: 8 where they are allowed and faster than 16."""
    return 8 if wants_bytes and dots_of(bits, target) != "halfwords" else 16


def has_planes(bits: int, level_bits: int, target: Target) -> bool:
    """Whether activations of 16 bits are two planes of bytes."""
    return level_bits == 16 and dots_of(bits, target) != "halfwords"


def keeps_sums(target: Target) -> bool:
    """Whether sums of floats stay in registers while integers are added up. Few registers hold more rows without them."""
    return target.registers >= 32


def strips_of_tile(bits: int, rows: Dim, columns: int, target: Target) -> int:
    """The strips that a tile takes together.

    Two share the levels they read, where these take as long to load as vectors take to be multiplied. A single row has no use
    for it, nor have columns of a single strip.
    """
    shared = target.has_whole_vectors and keeps_sums(target) and dots_of(bits, target) == "bytes"
    return 2 if shared and rows != 1 and columns > target.lanes else 1


def tallest(bits: int, level_bits: int, target: Target, strips: int = 1) -> int:
    """The most rows of a tile: each takes one sum of integers, or one for each plane, and one of floats if they are kept.

    All that for each strip.
    """
    planes = 2 if has_planes(bits, level_bits, target) else 1
    if keeps_sums(target):
        return rows_in_registers(target, strips * (planes + 1), 7 if planes > 1 or strips > 1 else 8)
    return rows_in_registers(target, strips * planes, 6)


def tiles_of_panel(rows: int, row_bytes: int, target: Target) -> int:
    """How many tiles of so many rows all strips take before the next ones: their levels stay in half of the second cache."""
    return max(target.caches.l2 // 2 // (rows * row_bytes), 1)


def level_stride(levels: int, level_bits: int) -> int:
    """Levels from one row to the next: an odd number of lines, so that rows of a tile share no sets of the first cache."""
    lines = -(-levels * level_bits // (8 * CACHE_LINE)) | 1
    return lines * CACHE_LINE * 8 // level_bits


def heights(rows: Dim, most: int) -> tuple[int, ...]:
    """The heights of tiles that there is code for; a tile of another height is computed by the next higher one."""
    if not isinstance(rows, int):
        return (*(height for height in _ROUNDED if height < most), most)
    blocks = max(-(-rows // most), 1)
    return tuple(sorted({max(rows // blocks, 1), max(-(-rows // blocks), 1)}))


@dataclass(frozen=True, kw_only=True)
class QuantizeRowsKernel:
    """Rows of floats -> integers in blocks: levels, a scale for each block, and a correction for zero points.

    The correction of a block is -middle * the sum of its levels, an integer; or, if `middle` is 0, -scale * that sum, a float.
    Blocks reach beyond the row with zeros. A block with infinities or NaN has NaN for its scale.

    The parallel range counts blocks.
    """

    type: str  # of the rows
    level_bits: LevelBits
    block: int
    middle: int
    planes: bool = False  # levels of 16 bits are two planes of bytes

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"quantize_rows|{self.type}|{self.level_bits}|{self.block}|{self.middle}{'|planes' if self.planes else ''}"

    @property
    def largest(self) -> int:
        """The largest integer that an activation becomes: the high byte of two must not overflow."""
        return 127 * 256 + 127 if self.planes else (1 << (self.level_bits - 1)) - 1

    @property
    def arguments(self) -> Arguments:
        """What it is called with. Scales and corrections lie block by block: those of a tile are side by side."""
        return Arguments(
            number("columns"),
            number("blocks"),  # of a row
            tensor("source", 1),  # stride: row
            tensor("levels", 1),  # stride: row
            address("scales"),
            address("corrections"),
            number("between"),  # blocks: elements of both
        )


@dataclass(frozen=True, kw_only=True)
class BlockProductKernel:
    """All that decides the code of a product with weights in blocks.

    The parallel range counts tiles, strip by strip within a panel of rows.
    """

    bits: int  # of a weight
    block: int  # weights that share a scale
    level_bits: LevelBits  # of an activation
    offsets: Offsets
    batch: int  # axes
    rows: int  # of the tallest tile
    heights: tuple[int, ...]  # of tiles that there is code for, ascending
    epilogue: Epilogue
    strips: int = 1  # that a tile takes together
    grouped: bool = False  # the batch axis counts groups; a table of tiles says which rows each has (`kernel.matmul.experts`)

    def __post_init__(self) -> None:
        if self.grouped and self.batch != 1:
            raise ValueError("rows in groups have one batch axis")
        if self.bits not in (2, 4, 8) or self.block % 16:
            raise ValueError(f"weights of {self.bits} bits in blocks of {self.block}")
        if not self.heights or not self.heights[-1] <= self.rows <= MOST_ROWS:
            raise ValueError(f"tiles of heights {self.heights} in blocks of at most {self.rows} rows")

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        heights_ = ",".join(map(str, self.heights))
        return (
            f"block_product|{self.bits}|{self.block}|{self.level_bits}|{self.offsets}|{self.batch}|{self.rows}|{heights_}"
            f"|{self.epilogue.key}{'|grouped' if self.grouped else ''}{f'|strips{self.strips}' if self.strips > 1 else ''}"
        )

    @property
    def words(self) -> int:
        """Words of a column's block."""
        return self.block * self.bits // WORD

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        rows = self.batch + 1  # strides: batch axes, row
        return Arguments(
            numbers("batch", self.batch),
            number("rows"),
            number("columns"),
            number("blocks"),
            tensor("levels", rows),
            tensor("scales", rows),
            tensor("corrections", rows),
            number("between"),  # blocks: elements of scales and corrections
            *([] if self.grouped else [number("panel")]),  # row blocks that all strips take before the next
            address("weights"),
            address("weight_scales"),
            address("offsets"),
            tensors("operands", len(self.epilogue.operands), self.batch + 2),  # strides: batch axes, row, column
            *([address("tiles")] if self.grouped else []),
        )


def units(kernel: BlockProductKernel, batch: Sequence[Dim], rows: Dim, columns: Dim, target: Target) -> Dim:
    """How many tiles the result has."""
    return product([*batch, ceildiv(columns, target.lanes * kernel.strips), ceildiv(rows, kernel.rows)])
