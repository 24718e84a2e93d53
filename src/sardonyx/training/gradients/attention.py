"""Gradients of attention.

With S = scale * Q K^T (capped, masked), P = softmax(S) and Y = P V, a backward pass computes P again and has

    dV = P^T dY        dP = dY V^T        dS = P * (dP - sum(dP * P))        dQ = scale * dS K        dK = scale * dS^T Q

A query that may see no key has a P of zeros, so nothing flows back from it. Key heads that several query heads share get the
sum of their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final

import numpy as np

from sardonyx.dtypes import BOOL
from sardonyx.ir.graph import Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]

_LOWEST: Final = -1e30  # a score that no softmax shows; finite, so that a row of them is no NaN


@gradient("Attention", stops=(4, 5, 6))
def _attention(b: Backward) -> Results:
    if b.has(4) or b.has(5) or b.has(6):
        b.refuse("it has a past or nonpad_kv_seqlen", "train on whole sequences, with a mask")
    if any(each is not None for each in b.gradients[1:]):
        b.refuse("its keys, values or scores are read as outputs", "compute them outside of the Attention node")
    if b.attr("softmax_precision") is not None:
        b.refuse("it has a softmax_precision")
    layer = _Heads(b)
    q, k, v, dy = layer.queries(b.x(0)), layer.keys(b.x(1)), layer.keys(b.x(2)), layer.queries(b.dy())
    size = b.shape(q)[3]
    scale = b.attr("scale")
    if scale is None:
        if not isinstance(size, int):
            b.refuse("the size of its heads is not known", "declare the shape of Q, or give a scale")
        scale = 1 / sqrt(max(size, 1))
    scores = layer.t(b.MatMul(q, b.Transpose(k, perm=[0, 1, 3, 2]))) * scale
    cap = float(b.attr("softcap") or 0.0)
    flat = (scores / cap).apply("Tanh") if cap else None
    capped = scores if flat is None else flat * cap
    shares = layer.shares(capped)
    of_shares = layer.t(b.MatMul(dy, b.Transpose(v, perm=[0, 1, 3, 2])))
    of_scores = shares * (of_shares - (of_shares * shares).apply("ReduceSum", b.ints(3), keepdims=1))
    results: list[Value | None] = [None, None, None, None]
    if b.has(3) and b.wants(3) and dtype_of(b.x(3)) is not BOOL:
        results[3] = layer.of_mask(of_scores.value, b.shape(q), b.shape(k))
    through = (of_scores if flat is None else of_scores * (1 - flat * flat)) * scale
    if b.wants(0):
        results[0] = layer.merged(b.MatMul(through.value, k), b.x(0))
    if b.wants(1):
        results[1] = layer.merged(layer.ungrouped(b.MatMul(b.Transpose(through.value, perm=[0, 1, 3, 2]), q)), b.x(1))
    if b.wants(2):
        results[2] = layer.merged(layer.ungrouped(b.MatMul(b.Transpose(shares.value, perm=[0, 1, 3, 2]), dy)), b.x(2))
    return results


class _Heads:
    """An Attention node's inputs as [batch, query heads, time, size], and back."""

    def __init__(self, b: Backward) -> None:
        self.b = b
        self.dtype = dtype_of(b.x(0))
        counts = [self._count(0, "q_num_heads"), self._count(1, "kv_num_heads")]
        self.heads, self.key_heads = counts
        if not self.key_heads or self.heads % self.key_heads:
            b.refuse(f"{self.heads} query heads cannot share {self.key_heads} key heads")
        self.group = self.heads // self.key_heads

    def _count(self, index: int, name: str) -> int:
        b = self.b
        shape = b.shape(b.x(index))
        count = shape[1] if len(shape) == 4 else b.attr(name)
        if not isinstance(count, int):
            b.refuse("the number of its heads is not known", f"declare the shapes of its inputs, or {name}")
        return count

    def t(self, value: Value) -> Term:
        """A value of the node's element type, for formulas."""
        return Term(self.b, value, self.dtype)

    def _split(self, x: Value, heads: int) -> Value:
        b = self.b
        if b.rank(x) == 4:
            return x
        made = b.Transpose(b.Reshape(x, b.ints(0, 0, heads, -1)), perm=[0, 2, 1, 3])
        shape = b.shape(x)
        made.type = TensorType(self.dtype, (shape[0], heads, shape[1], shape[2] // heads))
        return made

    def queries(self, x: Value) -> Value:
        """An input that has the query heads."""
        if x.shape is None:  # the gradient of the result
            x.type = self.b.y().type
        return self._split(x, self.heads)

    def keys(self, x: Value) -> Value:
        """An input that has the key heads, each repeated for the queries that share it."""
        b = self.b
        split = self._split(x, self.key_heads)
        if self.group == 1:
            return split
        repeated = b.Tile(b.Unsqueeze(split, b.ints(2)), b.ints(1, 1, self.group, 1, 1))
        sizes = b.Concat(b.sizes(x, 0), b.ints(self.heads), b.sizes(split, 2, 3), axis=0)
        made = b.Reshape(repeated, sizes)
        made.type = TensorType(self.dtype, (b.shape(split)[0], self.heads, *b.shape(split)[2:]))
        return made

    def ungrouped(self, gradient: Value) -> Value:
        """The gradients of the queries that share a key head, added up."""
        b = self.b
        if self.group == 1:
            return gradient
        sizes = b.Concat(b.sizes(gradient, 0), b.ints(self.key_heads, self.group), b.sizes(gradient, 2, 3), axis=0)
        return b.ReduceSum(b.Reshape(gradient, sizes), b.ints(2), keepdims=0)

    def merged(self, gradient: Value, like: Value) -> Value:
        """A gradient in the form of the input."""
        b = self.b
        if b.rank(like) == 4:
            return gradient
        return b.Reshape(b.Transpose(gradient, perm=[0, 2, 1, 3]), b.Shape(like))

    def shares(self, scores: Term) -> Term:
        """The softmax of the scores, zero where a query may not look."""
        b = self.b
        allowed: list[Value] = []
        if b.has(3):
            mask = b.x(3)
            if dtype_of(mask) is BOOL:
                allowed.append(self._all_keys(mask))
            else:
                wide = self.t(self._all_keys(mask, _LOWEST))
                allowed.append(wide.compare("Greater", _LOWEST))
                scores = scores + wide
        left, right = (b.attr(name) for name in ("left_window_size", "right_window_size"))
        if b.attr("is_causal") or (left is not None and left >= 0) or (right is not None and right >= 0):
            query = b.Range(np.array(0), b.Squeeze(b.sizes(scores.value, 2), b.ints(0)), np.array(1))
            key = b.Range(np.array(0), b.Squeeze(b.sizes(scores.value, 3), b.ints(0)), np.array(1))
            distance = b.Sub(key, b.Unsqueeze(query, b.ints(1)))  # of a key, behind the query
            if b.attr("is_causal"):
                allowed.append(b.LessOrEqual(distance, np.array(0)))
            if right is not None and right >= 0:
                allowed.append(b.LessOrEqual(distance, np.array(right)))
            if left is not None and left >= 0:
                allowed.append(b.GreaterOrEqual(distance, np.array(-left)))
        if not allowed:
            return scores.apply("Softmax", axis=-1)
        seen = allowed[0]
        for each in allowed[1:]:
            seen = b.And(seen, each)
        return scores.select(seen, _LOWEST).apply("Softmax", axis=-1).select(seen)

    def of_mask(self, of_scores: Value, queries: Shape, keys: Shape) -> Value:
        """The gradient of a mask that was added to the scores; keys that it has not are left off."""
        b = self.b
        mask = b.x(3)
        count = b.shape(mask)[-1]
        if count != keys[2]:
            of_scores = b.Slice(of_scores, b.ints(0), b.sizes(mask, b.rank(mask) - 1), b.ints(3))
        return b.sum_to(of_scores, (*queries[:3], count), mask)

    def _all_keys(self, mask: Value, fill: float | None = None) -> Value:
        """A mask that may have too few keys, which nobody sees behind them."""
        b = self.b
        keys = b.x(1)
        axis = b.rank(keys) - 2
        if b.shape(mask)[-1] == b.shape(keys)[axis]:
            return mask
        missing = b.Sub(b.sizes(keys, axis), b.sizes(mask, b.rank(mask) - 1))
        zeros = b.ints(*(0,) * (2 * b.rank(mask) - 1))
        if fill is not None:
            return b.Pad(mask, b.Concat(zeros, missing, axis=0), b.number(fill, mask))
        padded = b.Pad(b.Cast(mask, to=1), b.Concat(zeros, missing, axis=0))
        return b.Greater(padded, np.array(0, np.float32))


@gradient("RotaryEmbedding", stops=(1, 2, 3))
def _rotary_embedding(b: Backward) -> Results:
    """Turning by an angle is undone, and its gradient found, by turning back."""
    attrs = {name: b.node.attrs[name].value for name in b.node.attrs}
    rest = [b.x(3)] if b.has(3) else []
    return [b.g.op("RotaryEmbedding", b.dy(), b.x(1), b.Neg(b.x(2)), *rest, version=max(b.g.version, 23), **attrs)]


@gradient("RotaryEmbedding", domain="com.microsoft", stops=(1, 2, 3))
def _contrib_rotary_embedding(b: Backward) -> Results:
    attrs = {name: b.node.attrs[name].value for name in b.node.attrs}
    given = (b.dy(), b.x(1), b.x(2), b.Neg(b.x(3)))
    return [b.g.op("RotaryEmbedding", *given, domain="com.microsoft", version=1, **attrs)]
