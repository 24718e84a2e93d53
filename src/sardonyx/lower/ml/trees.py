"""TreeScores: the tables are checked, once, and brought into the order in which the kernel reads them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.kernel.ml.trees import TreeKernel, blocks_of_unit, has_unsigned_vectors, units
from sardonyx.lower.derived import numbers
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.ml.ml_decisions import (
    BIT_ENTRIES,
    COLUMN_BITS,
    DEPTH,
    END_BIT,
    END_WORD,
    FIRST_BIT,
    FIRST_LEAF,
    FIRST_SLOT,
    FIRST_WORD,
    HIGHEST,
    PADDING,
    SIGN,
    SLOT_BITS,
    TARGET,
    TREE_ENTRIES,
    WORD_ENTRIES,
    WORD_LEAVES,
)
from sardonyx.ops.ml.tree_scores import COMBINED
from sardonyx.program.constants import transform
from sardonyx.program.steps import Address, KernelStep
from sardonyx.target import cost

_TABLES: Final = ("columns", "cuts", "cut_starts", "trees", "nodes", "votes", "words", "bits")
_BLOCK: Final = 4  # vectors of rows
_KEYS: Final = 4  # keys take this part of the second level of cache


def _fields(nodes: Array) -> tuple[Array, Array, Array]:
    """Key, column and first branch of nodes."""
    key = nodes[:, 0] & np.uint64(HIGHEST)
    if nodes.shape[1] == 2:
        return key, nodes[:, 1], nodes[:, 0] >> np.uint64(32)
    return key, nodes[:, 0] >> np.uint64(32) & np.uint64((1 << COLUMN_BITS) - 1), nodes[:, 0] >> np.uint64(64 - SLOT_BITS)


@transform("walked_nodes", 1)
def walked_nodes(nodes: Array, votes: Array, columns: int, is_signed: bool) -> Array:
    """Nodes as the kernel walks through them: keys signed if the machine wants that, a single vote of 32 bits in its leaf."""
    key, column, _ = _fields(nodes)
    is_leaf = column == columns
    made = nodes & np.uint64(HIGHEST << 32)
    if nodes.shape[1] == 2:
        made[:, 1] = column
    payload = votes[key[is_leaf].astype(np.int64), 0].view(np.uint32) if is_vote_in_leaf(votes) else key[is_leaf]
    made[:, 0] |= key ^ np.uint64(SIGN if is_signed else 0)
    made[is_leaf, 0] = (made[is_leaf, 0] & np.uint64(HIGHEST << 32)) | payload.astype(np.uint64)
    return made


def is_vote_in_leaf(votes: Array) -> bool:
    """Whether a leaf has room for its votes."""
    return votes.shape[1] == 1 and votes.dtype == np.float32


@transform("signed_bits", 1)
def signed_bits(bits: Array) -> Array:
    """The same of small trees."""
    made = bits.copy()
    made[:, 1] ^= np.int32(-(1 << 31))
    return made


@transform("bit_votes", 1)
def bit_votes(words: Array, votes: Array) -> Array:
    """The votes of the leaves of each word; those behind the last leaf of a tree are never asked for."""
    leaves = words[:, FIRST_LEAF, None] + np.arange(WORD_LEAVES)
    return np.ascontiguousarray(votes[np.minimum(leaves, len(votes) - 1), 0])


def _accepts(node: Node) -> str:
    tables: list[Any] = []
    for value in node.inputs[1:]:
        if value is None or not isinstance(value.constant, Tensor):
            return "tables that are not constant"
        tables.append(value.constant.numpy())
    attrs = attribute_values(node)
    if len(tables) != len(_TABLES) or attrs["aggregate"] not in COMBINED:
        return "tables or an aggregate that are not known"
    return table_fault(dict(zip(_TABLES, tables)), attrs)


def table_fault(tables: dict[str, Array], attrs: dict[str, Any]) -> str:
    """What in the tables could lead a kernel out of its memory; "" if nothing."""
    columns, nodes, trees, votes = (tables[name] for name in ("columns", "nodes", "trees", "votes"))
    count, targets, slots = attrs["tree_count"], attrs["targets"], len(nodes)
    ranks = {"columns": 1, "cuts": 1, "cut_starts": 1, "trees": 2, "nodes": 2, "votes": 2, "words": 2, "bits": 2}
    if any(tables[name].ndim != rank for name, rank in ranks.items()) or targets < 1 or nodes.shape[1] not in (1, 2):
        return "tables of another rank"
    sizes = (trees.shape, tables["words"].shape[1], tables["bits"].shape[1], len(tables["cut_starts"]))
    if sizes != ((count + PADDING, TREE_ENTRIES), WORD_ENTRIES, BIT_ENTRIES, len(columns) + 1) or count < 1 or not slots:
        return "tables of sizes that do not fit each other"
    if votes.shape[1] not in (1, targets) or not len(votes):
        return "votes for another number of targets"
    if (columns < 0).any() or (columns >> 1 >= attrs["features"]).any():
        return "columns of features that do not exist"
    starts = tables["cut_starts"]
    if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] != len(tables["cuts"]):
        return "thresholds that are not there"
    return _tree_fault(tables, count, targets) or _node_fault(nodes, trees, count, len(columns), len(votes))


def _tree_fault(tables: dict[str, Array], count: int, targets: int) -> str:
    own, words, bits = tables["trees"][:count], tables["words"], tables["bits"]
    if (
        (own[:, TARGET] < 0).any()
        or (own[:, TARGET] >= targets).any()
        or (own[:, DEPTH] < 0).any()
        or tables["trees"][count:].any()
    ):
        return "trees of targets that do not exist, or of negative depth"
    small = own[own[:, FIRST_WORD] >= 0]
    if (small[:, END_WORD] < small[:, FIRST_WORD]).any() or (small[:, END_WORD] > len(words)).any():
        return "words that do not exist"
    if (
        (words[:, FIRST_BIT] < 0).any()
        or (words[:, END_BIT] < words[:, FIRST_BIT]).any()
        or (words[:, END_BIT] > len(bits)).any()
    ):
        return "bits that do not exist"
    if (words[:, FIRST_LEAF] < 0).any() or (words[:, FIRST_LEAF] >= len(tables["votes"])).any():
        return "leaves of words that do not exist"
    return "bits of columns that do not exist" if (bits[:, 0] < 0).any() or (bits[:, 0] > len(tables["columns"])).any() else ""


def _node_fault(nodes: Array, trees: Array, count: int, columns: int, leaves: int) -> str:
    starts = trees[:count, FIRST_SLOT]
    ends = np.append(starts[1:], len(nodes))
    if starts[0] != 0 or (starts >= ends).any():
        return "trees without slots"
    key, column, pair = _fields(nodes)
    if (column > columns).any():
        return "nodes of columns that do not exist"
    length = np.repeat(ends - starts, ends - starts)
    own = np.arange(len(nodes)) - np.repeat(starts, ends - starts)
    is_leaf = column == columns
    if (pair[is_leaf] != own[is_leaf].astype(np.uint64)).any() or (pair[~is_leaf].astype(np.int64) + 1 >= length[~is_leaf]).any():
        return "nodes that lead out of their tree"
    return "leaves that do not exist" if (key[is_leaf] >= leaves).any() else ""


@template("TreeScores", domain="sardonyx", accepts=_accepts)
def tree_scores(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    attrs = attribute_values(node)
    x, *tables = (ctx.view(given(node, number)) for number in range(len(node.inputs)))
    columns, cuts, cut_starts, trees, nodes, votes, words, bits = tables
    scores = ctx.output(node.outputs[0])
    targets, tree_count = attrs["targets"], attrs["tree_count"]
    rows, features = x.shape if len(x.shape) == 2 else (1, x.shape[0])
    strides = x.strides if len(x.shape) == 2 else (0, x.strides[0])
    ctx.check_at_most(attrs["features"], features)
    table, sums = given(node, 4).constant, ctx.dtype(node.outputs[0])
    assert isinstance(table, Tensor)
    are_small = table.numpy()[:tree_count, FIRST_WORD] >= 0
    (width,), (slots, node_words), (column_count,) = numbers(votes.shape[1:]), numbers(nodes.shape), numbers(columns.shape)
    kernel = TreeKernel(
        type="f64" if ctx.dtype(given(node, 0)) is dtypes.FLOAT64 else "f32",
        sums="f64" if sums is dtypes.FLOAT64 else "f32",
        aggregate=attrs["aggregate"],
        width=width,
        is_single=width == targets,
        wide=node_words == 2,
        has_bits=bool(are_small.any()),
        has_walks=not are_small.all(),
        block=ctx.target.lanes * _BLOCK,
        fetches=slots * node_words * 8 > ctx.target.caches.l2 and not are_small.all(),
    )
    is_signed = not has_unsigned_vectors(ctx.target)
    walked = ctx.packed(walked_nodes, (nodes, votes), column_count, is_signed, dtype=dtypes.UINT64, shape=(slots, node_words))
    if is_signed:
        bits = ctx.packed(signed_bits, (bits,), dtype=dtypes.INT32, shape=numbers(bits.shape))
    by_bit = votes
    if width == 1:
        by_bit = ctx.packed(bit_votes, (words, votes), dtype=sums, shape=(*numbers(words.shape[:1]), WORD_LEAVES))
    caches = ctx.target.caches
    is_large = slots * node_words * 8 > caches.l2 // 2
    blocks = blocks_of_unit(kernel, rows, column_count, caches.l2 // _KEYS, is_large)
    scratch = ctx.worker_scratch(dtypes.INT32, kernel.scratch(column_count, targets, blocks), "keys")
    arguments = kernel.arguments.entries(
        rows=rows,
        blocks=blocks,
        x=(x.address, tuple(strides)),
        columns=column_count,
        trees=tree_count,
        targets=targets,
        column_table=columns.address,
        cuts=cuts.address,
        cut_starts=cut_starts.address,
        tree_table=trees.address,
        nodes=walked.address,
        votes=votes.address,
        leaves=votes.shape[0],
        bit_votes=by_bit.address,
        words=words.address,
        bits=bits.address,
        scores=scores.address,
        scratch=(Address(scratch), (scratch.size,)),
    )
    depths = int(table.numpy()[:tree_count, DEPTH][~are_small].sum())
    work = cost.trees(rows, column_count, depths, bits.shape[0])
    reads = tuple(each.buffer for each in (x, columns, cuts, cut_starts, trees, walked, votes, by_bit, words, bits))
    count = units(kernel, rows, blocks)
    ctx.step(KernelStep(kernel, arguments, count, work, reads, (scores.buffer, scratch), group.label, (node.label,)))
