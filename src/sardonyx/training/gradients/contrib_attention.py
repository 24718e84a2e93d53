"""Gradients of attention with as many key heads as query heads: MultiHeadAttention and Attention of com.microsoft.

Attention is taken apart first: its projection is one product, whose result both passes read, and what is behind it is a
MultiHeadAttention. Masks are added to the scores, as the operators do it (`ops/attention/contrib_attention.py`): what a mask
hides gets a filter value, what a causal mask hides the lowest float.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.ir.types import TensorType
from sardonyx.training.gradients.attention import distance, flow, joined, parted, scale_of, total
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]

MICROSOFT: Final = "com.microsoft"
_LOWEST: Final = float(np.finfo(np.float32).min)
_MASK_FILTER: Final = -10000.0


@gradient("MultiHeadAttention", domain=MICROSOFT, stops=(4, 8, 9))
def _multi_head_attention(b: Backward) -> Results:
    if b.has(8) or b.has(9):
        b.refuse("it writes into a buffer of keys and values", "train on whole sequences, or give past_key and past_value alone")
    if len(b.gradients) > 3 and b.gradients[3] is not None:
        b.refuse("its scores are read as an output", "compute them outside of the node")
    layer = _Inputs(b)
    past = [b.x(index) for index in (6, 7)] if b.has(6) and b.has(7) else []
    q, *new = layer.parts()
    k, v = joined(b, past, new) if past else new
    given = b.gradients[0]
    dy = layer.by_head(given if given is not None else b.zeros_like(b.y()), b.shape(q)[2], b.shape(v)[3])
    found = flow(
        layer.t, b, (q, k, v), dy, scale_of(b, b.attr("scale") or None, q), 0.0, lambda scores: layer.shares(scores, past)
    )
    present = [*b.gradients, None, None][1:3]
    olds, news = [], []
    for number, own in enumerate((found.k, found.v)):
        old, own_new = parted(b, total(b, own, present[number]), past[number] if past else None)
        olds.append(old)
        news.append(own_new)
    results: list[Value | None] = [None] * 8
    results[:4] = layer.packed([found.q, *news])
    if b.has(5) and b.wants(5):
        results[5] = b.sum_to(found.of_scores.value, (*b.shape(q)[:3], b.shape(k)[2]), b.x(5))
    results[6:] = olds
    return results


class _Inputs:
    """Queries, keys and values of a node in whichever form, as [batch, heads, time, size], and their gradients in that form."""

    def __init__(self, b: Backward) -> None:
        self.b = b
        self.heads = int(b.attr("num_heads"))
        self.dtype = dtype_of(b.x())

    def t(self, value: Value) -> Term:
        """A value of the node's element type, for formulas."""
        return Term(self.b, value, self.dtype)

    @property
    def _form(self) -> str:
        b = self.b
        if b.rank(b.x()) == 5:
            return "all packed"  # [B, S, N, 3, H]
        return {5: "keys packed", 4: "keys by head"}.get(b.rank(b.x(1)), "apart")

    def parts(self) -> list[Value]:
        """All three, with the bias."""
        b, form = self.b, self._form
        if form == "all packed":
            found = [self._of_packed(b.x(), number) for number in range(3)]
        elif form == "keys packed":
            found = [self._split(b.x()), *(self._of_packed(b.x(1), number) for number in range(2))]
        elif form == "keys by head":
            found = [self._split(b.x()), b.x(1), b.x(2)]
        else:
            found = [self._split(b.x(index)) for index in range(3)]
        if not b.has(3):
            return found
        sizes = [self._hidden(each) for each in found]
        biases = b.g.node("Split", [b.x(3), b.ints(*sizes)], 3, attrs={"axis": 0})
        for number, part in enumerate(found[:1] if form == "keys by head" else found):
            by_head = b.Reshape(biases[number], b.ints(1, self.heads, 1, -1))
            found[number] = b.Add(part, by_head)
            found[number].type = part.type
        return found

    def _hidden(self, part: Value) -> int:
        size = self.b.shape(part)[3]
        if not isinstance(size, int):
            self.b.refuse("the size of its heads is not known", "declare the shapes of its inputs")
        return self.heads * size

    def _split(self, x: Value) -> Value:
        time, hidden = self.b.shape(x)[1:]
        return self.by_head(x, time, hidden // self.heads)

    def by_head(self, x: Value, time: Any, size: Any) -> Value:
        """[batch, time, heads * size] by head."""
        b = self.b
        made = b.Transpose(b.Reshape(x, b.ints(0, 0, self.heads, -1)), perm=[0, 2, 1, 3])
        made.type = TensorType(self.dtype, (b.shape(b.x())[0], self.heads, time, size))
        return made

    def _of_packed(self, x: Value, number: int) -> Value:
        b = self.b
        made = b.Transpose(b.Gather(x, np.array(number, np.int64), axis=3), perm=[0, 2, 1, 3])
        batch, time, heads, _, size = b.shape(x)
        made.type = TensorType(self.dtype, (batch, heads, time, size))
        return made

    def packed(self, gradients: Sequence[Value | None]) -> list[Value | None]:
        """The gradients of query, key, value and bias in the form of the inputs."""
        b, form = self.b, self._form
        q, k, v = gradients
        of_bias = None
        if b.has(3) and b.wants(3):
            sums = [
                None if each is None else b.Reshape(b.ReduceSum(each, b.ints(0, 2), keepdims=0), b.ints(-1)) for each in gradients
            ]
            if form == "keys by head":
                rest = b.Sub(b.Shape(b.x(3)), b.Shape(sums[0]))
                sums[1:] = [b.ConstantOfShape(rest, value=np.zeros(1, self.dtype.numpy))]
            of_bias = b.Concat(*sums, axis=0)
        if form == "all packed":
            return [self._stacked([q, k, v]), None, None, of_bias]
        if form == "keys packed":
            return [self._merged(q), self._stacked([k, v]), None, of_bias]
        if form == "keys by head":
            return [self._merged(q), k, v, of_bias]
        return [self._merged(q), self._merged(k), self._merged(v), of_bias]

    def _merged(self, gradient: Value | None) -> Value | None:
        b = self.b
        return None if gradient is None else b.Reshape(b.Transpose(gradient, perm=[0, 2, 1, 3]), b.ints(0, 0, -1))

    def _stacked(self, gradients: Sequence[Value | None]) -> Value:
        b = self.b
        rows = [b.Unsqueeze(b.Transpose(each, perm=[0, 2, 1, 3]), b.ints(3)) for each in gradients if each is not None]
        return b.Concat(*rows, axis=3)

    def shares(self, scores: Term, past: Sequence[Value]) -> Term:
        """The softmax of the scores with masks and bias."""
        b = self.b
        hidden: Value | None = None  # by a bias of minus infinity: a query that sees nothing has no share
        if b.has(5):
            bias = self.t(b.x(5))
            hidden = bias.compare("LessOrEqual", _LOWEST)
            scores = scores + bias
        filtered = b.attr("mask_filter_value")
        if b.has(4):
            added = self.t(self._added(b.x(4), scores.value, _MASK_FILTER if filtered is None else float(filtered)))
            scores = scores + added
        if b.attr("unidirectional"):
            behind = distance(b, scores.value, b.sizes(past[0], 2) if past else None)
            reach = b.LessOrEqual(behind, np.array(0))
            last = b.Sub(b.sizes(scores.value, 2), b.ints(1))  # the last query sees every key
            rows = b.Range(np.array(0), b.Squeeze(b.sizes(scores.value, 2), b.ints(0)), np.array(1))
            scores = scores.select(b.Or(reach, b.Unsqueeze(b.Equal(rows, last), b.ints(1))), _LOWEST)
        if hidden is None:
            return scores.apply("Softmax", axis=-1)
        seen = b.Not(hidden)
        return scores.select(seen, _LOWEST).apply("Softmax", axis=-1).select(seen)

    def _added(self, mask: Value, scores: Value, filtered: float) -> Value:
        """A mask of whichever form as numbers that are added to [batch, heads, queries, keys]."""
        b = self.b
        shape, batch = b.shape(mask), b.shape(b.x())[0]
        none = np.zeros((), dtype_of(mask).numpy)
        if len(shape) == 1:
            keys = b.Range(np.array(0), b.Squeeze(b.sizes(scores, 3), b.ints(0)), np.array(1))
            lengths = b.Cast(mask, to=7)
            if shape[0] != batch:
                b.refuse("its mask is a vector of another length than the batch", "give a mask of (batch, keys)")
            seen = b.Less(keys, b.Unsqueeze(lengths, b.ints(1, 2, 3)))
        elif len(shape) == 2:
            if shape[1] == 1:
                b.refuse("its mask has one key for all", "give a mask of (batch, keys), or none")
            seen = b.Unsqueeze(b.Greater(mask, none), b.ints(1, 2))
        elif len(shape) == 3:
            seen = b.Unsqueeze(b.Greater(mask, none), b.ints(1))
        else:
            b.refuse(f"its mask has {len(shape)} axes", "give a mask of (batch, keys) or (batch, queries, keys)")
        return b.Where(seen, np.array(0.0, self.dtype.numpy), np.array(filtered, self.dtype.numpy))


@gradient("Attention", domain=MICROSOFT, stops=(3, 6))
def _attention(b: Backward) -> Results:
    if b.attr("do_rotary") or b.attr("past_present_share_buffer") or b.has(6):
        b.refuse("it rotates, or writes into a buffer of keys and values", "use RotaryEmbedding, and no shared buffer")
    f = Backward(b.g.inserting_before(b.node), b.node, (), ())
    x, w = b.x(), b.x(1)
    hidden = b.shape(w)[1]
    sizes = b.attr("qkv_hidden_sizes") or ((hidden // 3,) * 3 if isinstance(hidden, int) else None)
    if sizes is None:
        b.refuse("the number of its hidden units is not known", "declare the shape of its weights")
    projected = f.MatMul(x, w)
    projected = f.Add(projected, f.x(2)) if f.has(2) else projected
    batch, time = b.shape(x)[:2]
    dtype = dtype_of(x)
    parts = f.g.node("Split", [projected, f.ints(*sizes)], 3, attrs={"axis": 2})
    for part, size in zip(parts, sizes):
        part.type = TensorType(dtype, (batch, time, int(size)))
    past: list[Value | None] = [None, None]
    if f.has(4):
        past = [f.Gather(f.x(4), np.array(number, np.int64), axis=0) for number in range(2)]
        for each in past:
            assert each is not None
            each.type = TensorType(dtype, b.shape(f.x(4))[1:])
    wanted = {name: b.attr(name) for name in ("num_heads", "scale", "mask_filter_value", "unidirectional")}
    attrs = {name: value for name, value in wanted.items() if value is not None}
    given = [*parts, None, f.x(3) if f.has(3) else None, f.x(5) if f.has(5) else None, *past]
    found = f.g.node("MultiHeadAttention", given, 3, domain=MICROSOFT, version=1, attrs=attrs)
    new = found[0].producer
    assert new is not None
    made = [found[0]]
    if len(b.node.outputs) > 1:
        made.append(f.Concat(*(f.Unsqueeze(each, f.ints(0)) for each in found[1:]), axis=0))
    for old, value in zip(list(b.node.outputs), made):
        value.type = old.type
        f.g.graph.replace_uses(old, value)
    of_present = b.gradients[1] if len(b.gradients) > 1 else None
    both: list[Value | None] = [None, None]
    if of_present is not None:
        both = [b.Gather(of_present, np.array(number, np.int64), axis=0) for number in range(2)]
    inner = Backward(b.g, new, (b.gradients[0], *both), (True,) * 3 + (False,) * 2 + (b.wants(5),) + (b.wants(4),) * 2)
    results = _multi_head_attention(inner)
    d = b.Concat(*(each for each in results[:3] if each is not None), axis=2)
    rows = [b.Reshape(each, b.Concat(b.ints(-1), b.sizes(like, axis), axis=0)) for each, like, axis in ((x, w, 0), (d, w, 1))]
    of_bias = b.ReduceSum(d, b.ints(0, 1), keepdims=0) if b.has(2) and b.wants(2) else None
    of_past = None
    if b.has(4) and b.wants(4):
        of_past = b.Concat(*(b.Unsqueeze(each, b.ints(0)) for each in results[6:8] if each is not None), axis=0)
    of_x = b.MatMul(d, b.Transpose(w, perm=[1, 0]))
    return [of_x, b.g.op("Gemm", *rows, transA=1), of_bias, None, of_past, results[5]]
