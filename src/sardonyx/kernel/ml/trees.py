"""Forests: rows go through all trees, and the votes of the leaves they reach are combined, tree after tree.

The tables are those of `ops.ml.ml_decisions`. Rows are taken in blocks, whose keys are first written to scratch memory, column by
column, so that the keys of neighbouring rows are neighbours. Several blocks make a unit of work: each tree is done with all of
them while it is in the caches. What a block does with a tree:

    bits     A tree of few leaves: for each row, words of 32 bits say which of them are still possible. Every node of the tree,
             whether a row comes to it or not, takes leaves out of the words of those rows that exceed its key. The lowest bit
             that is left is the leaf. No jumps and no gathers: a vector of rows for each node.
    walks    Any other tree: several rows go down together, one step each in turn, so that none waits for its memory accesses.
             Meanwhile the nodes of the next tree are fetched, where all of them do not fit the second cache (`fetches`).
    few      Rows that do not make up a vector: each goes through several trees at a time.

However rows are divided, each has its votes added in the order of the trees. The parallel range counts units.
"""

from __future__ import annotations

from typing import Literal

from sardonyx.ir.dims import Dim, ceildiv, dim_max, dim_min
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

WAYS = 8  # rows or trees that are walked through together
FEW = 4  # rows of a block from which on vectors are worth it
MOST_BLOCKS = 16  # of a unit
UNITS, FEW_UNITS = 16, 4  # that rows are divided into before a unit has several blocks
WIDEST = 64  # votes of a leaf that are kept in registers


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeKernel:
    """All that decides the code of a forest."""

    type: Literal["f32", "f64"]  # of the rows
    sums: Literal["f32", "f64"]
    aggregate: Literal["SUM", "MIN", "MAX"]
    width: int  # votes of a leaf
    is_single: bool  # those are all there are
    wide: bool  # nodes of two words
    has_bits: bool
    has_walks: bool
    block: int  # rows
    fetches: bool = False  # the nodes of the next tree that is walked through are brought near meanwhile

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        flags = "".join(str(int(flag)) for flag in (self.is_single, self.wide, self.has_bits, self.has_walks, self.fetches))
        return f"trees|{self.type}|{self.sums}|{self.aggregate}|{self.width}|{flags}|{self.block}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with. Leaves hold the number of their votes, or their only vote if that is a float32."""
        return Arguments(
            number("rows"),
            number("blocks"),  # of a unit
            tensor("x", 2),
            number("columns"),
            number("trees"),
            number("targets"),
            address("column_table"),
            address("cuts"),
            address("cut_starts"),
            address("tree_table"),
            address("nodes"),
            address("votes"),
            number("leaves"),
            address("bit_votes"),  # of small trees, if a leaf has one
            address("words"),
            address("bits"),
            address("scores"),
            tensor("scratch", 1),
        )

    def scratch(self, columns: int, targets: int, blocks: Dim) -> Dim:
        """Elements of 32 bits that each worker needs: keys, sums, and the leaf of each row."""
        sums = 0 if self.width > 1 else targets * (2 if self.sums == "f64" else 1)
        return blocks * (self.block * (columns + 1 + sums)) + self.block


def blocks_of_unit(kernel: TreeKernel, rows: Dim, columns: int, limit: int, is_large: bool) -> Dim:
    """How many blocks of rows a worker takes at a time: as many as have keys of so many bytes, if enough are left for all.

    Trees that do not stay in the caches (`is_large`) are worth larger units.
    """
    most = min(max(limit // max(columns * kernel.block * 4, 1), 1), MOST_BLOCKS)
    return dim_max(dim_min(ceildiv(rows, kernel.block * (FEW_UNITS if is_large else UNITS)), most), 1)


def units(kernel: TreeKernel, rows: Dim, blocks: Dim) -> Dim:
    """How many units there are."""
    return ceildiv(ceildiv(rows, kernel.block), blocks)


def has_unsigned_vectors(target: Target) -> bool:
    """Whether vectors of unsigned numbers are compared in one instruction; else keys are signed."""
    return target.has_masked_accesses or target.architecture == "aarch64"
