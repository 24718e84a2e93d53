"""Attention: softmax(score(Q * K^T)) * V for every batch entry and head, a block of queries at a time.

    for a part of the keys:
      S := Q * K^T                                 a block of scores, on the stack
      S := exp(score(S) - the largest so far)      row by row; what was summed before is scaled to the new largest
      O := O * (that scale) + S * V
    O := O / (sum of the exponentials)

`score` is an expression of the product (`accumulator`), of operands (masks, biases: loads with a stride for batch entry, head,
query and key) and of the positions `query()` and `key()`; minus infinity takes a key out. A row without any key gives zeros, or,
where `score` has taken them all out and that is asked for, NaN.
Keys are also left out by numbers, and then never read: a query at position p sees keys from p - left to p + right, and only as
many as there are for its batch entry. Its position is its number plus `offset`; if batch entries have lengths of their own,
queries are the last ones of each, or stand where `first_positions` say (those behind the end count as the last).

K comes packed into strips ([strip][depth][lane], see `kernel.pack`), or as it lies, for few queries. V may be packed, too:
[strip of columns][key][lane]. Query heads share key heads in groups.

Scores, or what they are made of, may be stored as well (`captured`), for keys of parts that a block goes through.

Query heads may have sinks: a score each that takes part in the softmax like one more key, whose value is zero.

Q, V and O (and K, if not packed) lie consecutively along depth or columns. The parallel range counts batch * heads * blocks of
queries.
"""

from __future__ import annotations

from typing import Final

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, address, number, tensor, tensors
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, canonical, walk
from sardonyx.kernel.loops import Operand
from sardonyx.records import dataclass
from sardonyx.target.target import Target
from sardonyx.target.tiles import product_rows

_TILE_ROWS: Final = 6
QUERIES: Final = 24  # of a block, at most
KEYS: Final = 256  # whose scores are held at once
NO_LIMIT: Final = 1 << 40  # left or right: sees as far as there are keys


def query() -> Expr:
    """The number of the query, among those of this call."""
    return Expr("query", "i32")


def key() -> Expr:
    """The number of the key."""
    return Expr("key", "i32")


@dataclass(frozen=True, kw_only=True)
class AttentionKernel:
    """All that decides the code of an attention kernel."""

    type: str
    packed: bool  # K is in strips
    score: Expr
    operands: tuple[Operand, ...]
    banded: bool  # queries see only some keys, by their numbers
    lengths: str  # type of the lengths, "" if there are none
    more: int  # what is added to a length
    has_first_positions: bool  # the position of each batch entry's first query is given
    queries: int | None  # how many, if known
    columns: int | None  # of V, if known
    keys: int | None  # how many take part in every block of queries, if known
    has_sinks: bool = False
    nan_rows: bool = False  # a row whose scores are all minus infinity gives NaN, as a softmax does
    clears_nan: bool = False  # a row with a score that is NaN has weights of 0
    packed_values: bool = False  # V is in strips
    captured: Expr | None = None  # what is stored for each query and key that it looks at, if anything
    hidden: float = 0.0  # what is stored instead for keys that a query does not see by its number

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        operands = ",".join(f"{operand.type}:{operand.inner}" for operand in self.operands)
        keys = (self.banded, self.lengths, self.more, self.has_first_positions, self.keys)
        fields = (
            self.type,
            self.packed,
            operands,
            *keys,
            self.heights,
            self.columns,
            self.has_sinks,
            self.nan_rows,
            self.clears_nan,
            self.packed_values,
        )
        captured = "" if self.captured is None else f"|{self.hidden}|{canonical([self.captured])}"
        return f"attention|{'|'.join(map(str, fields))}|{canonical([self.score])}{captured}"

    @property
    def heights(self) -> range:
        """The heights of tiles that can occur."""
        if self.queries is None:
            return range(1, 7)
        found: set[int] = set()
        for rows in _divided(self.queries, QUERIES):
            found |= set(_divided(rows, 6))
        return range(min(found), max(found) + 1)

    @property
    def plain(self) -> bool:
        """Whether a score is a product and nothing else."""
        return self.score == accumulator(self.type) and not self.banded and self.captured is None

    @property
    def hides_strips(self) -> bool:
        """Whether strips of keys that masks hide from all queries of a block are looked for."""
        return self.packed and bool(self.operands) and self.captured is None and is_masked_product(self.score)

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            *map(number, ("batch", "heads", "queries", "keys", "depth", "columns")),
            *map(number, ("group", "offset", "left", "right")),  # group: query heads of a key head
            number("scale"),  # the bits of an f64
            tensor("q", 3),  # strides: batch entry, head, query
            tensor("k", 2 if self.packed else 3),  # batch entry, head; key, if not packed
            tensor("v", 4 if self.packed_values else 3),  # batch entry, head, key; strip
            tensor("o", 3),  # batch entry, head, query
            tensors("operands", len(self.operands), 4),  # batch entry, head, query, key
            *([address("lengths")] if self.lengths else []),
            *([address("first_positions")] if self.has_first_positions else []),
            *([tensor("sinks", 1)] if self.has_sinks else []),  # stride: head
            *([tensor("captured", 3)] if self.captured is not None else []),  # batch entry, head, query
        )


def is_masked_product(score: Expr) -> bool:
    """Whether a score is a product, something added to it once, or a choice between it and something else."""
    if score.op == "select":
        return all(node.op != "acc" for node in walk([score.args[0]])) and all(
            is_masked_product(side) or all(node.op != "acc" for node in walk([side])) for side in score.args[1:]
        )
    if score.op == "add":
        return any(one.op == "acc" and all(node.op != "acc" for node in walk([other])) for one, other in _orders(score))
    return score.op == "acc"


def _orders(node: Expr) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
    first, second = node.args
    return (first, second), (second, first)


def _divided(count: int, most: int) -> tuple[int, ...]:
    """The sizes of nearly equal parts."""
    parts = max(-(-count // most), 1)
    return (max(count // parts, 1), max(-(-count // parts), 1))


def strip_vectors(target: Target) -> int:
    """Vectors of keys in a strip: what a tile of six rows has registers for."""
    return 4 if product_rows(target, 4) >= _TILE_ROWS else 2


def units(batch: Dim, heads: Dim, queries: Dim) -> Dim:
    """How many blocks of queries there are."""
    return product([batch, heads, ceildiv(queries, QUERIES)])
