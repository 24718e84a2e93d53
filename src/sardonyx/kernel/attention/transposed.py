"""Attention whose scores are transposed: a row for each key, a lane for each query.

    Q := Q * scale, with depth as its rows                 a block of queries, on the stack
    for a part of the keys:
      S := K * Q                                           the rows of K as they lie: nothing is packed
      S := exp(score(S) - the largest so far)              lane by lane; what was summed before is scaled to the new largest
      O := O * (that scale) + (S transposed back) * V
    O := O / (sum of the exponentials)

The same as `kernel.attention.attention`, for queries that fill their vectors and masks that are the same for all of them: `score`
is an expression of the product (`accumulator`) and of operands (loads with a stride for batch entry, head and key). K is read in
its own order, once for every block of queries, which saves packing it: worth most where few queries look at many keys.

Q, K, V and O lie consecutively along depth or columns. The parallel range counts batch * heads * blocks of queries.
"""

from __future__ import annotations

from typing import Final

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, product
from sardonyx.kernel.arguments import Arguments, number, tensor, tensors
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, canonical
from sardonyx.records import dataclass

BLOCK: Final = 64  # queries of a block, at most
KEYS: Final = 256  # whose scores are held at once
MOST_DEPTH: Final = 256  # what a block of queries may have: it is held on the stack
MOST_COLUMNS: Final = 128  # of V, where the keys of a part have theirs copied to the stack


@dataclass(frozen=True, kw_only=True)
class TransposedAttentionKernel:
    """All that decides the code of such a kernel."""

    type: str
    score: Expr
    operands: tuple[str, ...]  # their types
    queries: int
    depth: int
    columns: int | None  # of V, if known
    nan_rows: bool = False  # a row whose scores are all minus infinity gives NaN, as a softmax does
    copies_values: bool = False  # V, whose columns are known, is put into strips of columns, part by part of the keys

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = (self.type, ",".join(self.operands), self.queries, self.depth, self.columns, self.nan_rows, self.copies_values)
        return f"transposed_attention|{'|'.join(map(str, fields))}|{canonical([self.score])}"

    @property
    def plain(self) -> bool:
        """Whether a score is a product and nothing else."""
        return self.score == accumulator(self.type)

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            *map(number, ("heads", "keys", "columns")),
            number("group"),  # query heads of a key head
            number("scale"),  # the bits of an f64
            tensor("q", 3),  # strides: batch entry, head, query
            tensor("k", 3),  # batch entry, head, key
            tensor("v", 3),
            tensor("o", 3),  # batch entry, head, query
            tensors("operands", len(self.operands), 3),  # batch entry, head, key
        )


def block_vectors(queries: int, lanes: int) -> tuple[int, int]:
    """Vectors of queries in all, and in how many blocks: nearly equal ones."""
    vectors = -(-queries // lanes)
    return vectors, max(-(-vectors * lanes // BLOCK), 1)


def units(batch: Dim, heads: Dim, queries: int, lanes: int) -> Dim:
    """How many blocks of queries there are."""
    return product([batch, heads, block_vectors(queries, lanes)[1]])
