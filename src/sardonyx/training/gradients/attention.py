"""Gradients of attention.

With S = scale * Q K^T (capped, masked), P = softmax(S) and Y = P V, a backward pass computes P again and has

    dV = P^T dY        dP = dY V^T        dS = P * (dP - sum(dP * P))        dQ = scale * dS K        dK = scale * dS^T Q

A query that may see no key has a P of zeros, so nothing flows back from it. Key heads that several query heads share get the
sum of their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Final

import numpy as np

from sardonyx.dtypes import BOOL
from sardonyx.ir.graph import Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.records import dataclass
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]

_LOWEST: Final = -1e30  # a score that no softmax shows; finite, so that a row of them is no NaN


@gradient("Attention", stops=(6,))
def _attention(b: Backward) -> Results:
    if b.has(6):
        b.refuse("it has nonpad_kv_seqlen", "train on whole sequences, with a mask")
    if len(b.gradients) > 3 and b.gradients[3] is not None:
        b.refuse("its scores are read as an output", "compute them outside of the Attention node")
    if b.attr("softmax_precision") is not None:
        b.refuse("it has a softmax_precision")
    layer = _Heads(b)
    q = layer.queries(b.x(0))
    parts = [layer.split_keys(b.x(index)) for index in (1, 2)]
    past = [b.x(index) for index in (4, 5)] if b.has(4) and b.has(5) else []
    k, v = (layer.repeated(each) for each in (joined(b, past, parts) if past else parts))
    scale = b.attr("scale")
    cap = float(b.attr("softcap") or 0.0)
    found = flow(layer.t, b, (q, k, v), _dy(b, layer), scale_of(b, scale, q), cap, lambda scores: layer.shares(scores, past))
    results: list[Value | None] = [None] * 7
    if b.has(3) and b.wants(3) and dtype_of(b.x(3)) is not BOOL:
        results[3] = layer.of_mask(found.of_scores.value, b.shape(q), b.shape(k))
    results[0] = None if found.q is None else layer.merged(found.q, b.x(0))
    present = [*b.gradients, None, None][1:3]
    for number, (own, of_present) in enumerate(zip((found.k, found.v), present)):
        old, new = parted(b, total(b, None if own is None else layer.ungrouped(own), of_present), past[number] if past else None)
        results[1 + number] = None if new is None else layer.merged(new, b.x(1 + number))
        results[4 + number] = old
    return results


@dataclass(frozen=True)
class AttentionGradients:
    """Gradients by head: of the scores after masks, of queries, keys and values. None where nothing comes from the result."""

    of_scores: Term
    q: Value | None
    k: Value | None
    v: Value | None


def flow(
    t: Callable[[Value], Term],
    b: Backward,
    given: tuple[Value, Value, Value],
    dy: Value,
    scale: float,
    cap: float,
    shares_of: Callable[[Term], Term],
) -> AttentionGradients:
    """The way back through softmax(scale * Q K^T) V; `shares_of` makes probabilities of the scores."""
    q, k, v = given
    scores = t(b.MatMul(q, _swapped(b, k))) * scale
    flat = (scores / cap).apply("Tanh") if cap else None
    shares = shares_of(scores if flat is None else flat * cap)
    of_shares = t(b.MatMul(dy, _swapped(b, v)))
    of_scores = shares * (of_shares - (of_shares * shares).apply("ReduceSum", b.ints(3), keepdims=1))
    through = (of_scores if flat is None else of_scores * (1 - flat * flat)) * scale
    return AttentionGradients(
        of_scores,
        b.MatMul(through.value, k),
        b.MatMul(_swapped(b, through.value), q),
        b.MatMul(_swapped(b, shares.value), dy),
    )


def _swapped(b: Backward, value: Value) -> Value:
    return b.Transpose(value, perm=[0, 1, 3, 2])


def scale_of(b: Backward, given: float | None, q: Value) -> float:
    """What scores are multiplied by, if the node does not say it."""
    size = b.shape(q)[3]
    if given is not None:
        return given
    if not isinstance(size, int):
        b.refuse("the size of its heads is not known", "declare the shape of Q, or give a scale")
    return 1 / sqrt(max(size, 1))


def _dy(b: Backward, layer: _Heads) -> Value:
    """The gradient of the result by head; zeros if only other outputs have one."""
    given = b.gradients[0]
    return layer.queries(given if given is not None else b.zeros_like(b.y()))


def joined(b: Backward, past: Sequence[Value], new: Sequence[Value]) -> list[Value]:
    """Keys and values of the past with those behind it, along time."""
    found = []
    for old, own in zip(past, new):
        made = b.Concat(old, own, axis=2)
        (batch, heads, time, size), before = b.shape(own), b.shape(old)[2]
        made.type = TensorType(dtype_of(old), (batch, heads, time + before, size))
        found.append(made)
    return found


def parted(b: Backward, gradient: Value | None, past: Value | None) -> tuple[Value | None, Value | None]:
    """A gradient along time: of the past, if there is any, and of what is behind it."""
    if gradient is None or past is None:
        return None, gradient
    end = b.sizes(past, 2)
    last = b.ints(np.iinfo(np.int64).max)
    return b.Slice(gradient, b.ints(0), end, b.ints(2)), b.Slice(gradient, end, last, b.ints(2))


def total(b: Backward, *gradients: Value | None) -> Value | None:
    """The sum of the gradients that there are."""
    found = [each for each in gradients if each is not None]
    return None if not found else found[0] if len(found) == 1 else b.Add(*found)


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

    def split_keys(self, x: Value) -> Value:
        """An input that has the key heads."""
        return self._split(x, self.key_heads)

    def repeated(self, split: Value) -> Value:
        """Key heads, each repeated for the queries that share it."""
        b = self.b
        if self.group == 1:
            return split
        repeated = b.Tile(b.Unsqueeze(split, b.ints(2)), b.ints(1, 1, self.group, 1, 1))
        sizes = b.Concat(b.sizes(split, 0), b.ints(self.heads), b.sizes(split, 2, 3), axis=0)
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

    def shares(self, scores: Term, past: Sequence[Value]) -> Term:
        """The softmax of the scores, zero where a query may not look."""
        b = self.b
        allowed: list[Value] = []
        if b.has(3):
            mask = b.x(3)
            if dtype_of(mask) is BOOL:
                allowed.append(self._all_keys(mask, scores.value, past))
            else:
                wide = self.t(self._all_keys(mask, scores.value, past, _LOWEST))
                allowed.append(wide.compare("Greater", _LOWEST))
                scores = scores + wide
        left, right = (b.attr(name) for name in ("left_window_size", "right_window_size"))
        if b.attr("is_causal") or (left is not None and left >= 0) or (right is not None and right >= 0):
            behind = distance(b, scores.value, b.sizes(past[0], 2) if past else None)
            if b.attr("is_causal"):
                allowed.append(b.LessOrEqual(behind, np.array(0)))
            if right is not None and right >= 0:
                allowed.append(b.LessOrEqual(behind, np.array(right)))
            if left is not None and left >= 0:
                allowed.append(b.GreaterOrEqual(behind, np.array(-left)))
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

    def _all_keys(self, mask: Value, scores: Value, past: Sequence[Value], fill: float | None = None) -> Value:
        """A mask that may have too few keys, which nobody sees behind them."""
        b = self.b
        if not past and b.shape(mask)[-1] == b.shape(b.x(1))[b.rank(b.x(1)) - 2]:
            return mask
        missing = b.Sub(b.sizes(scores, 3), b.sizes(mask, b.rank(mask) - 1))
        zeros = b.ints(*(0,) * (2 * b.rank(mask) - 1))
        if fill is not None:
            return b.Pad(mask, b.Concat(zeros, missing, axis=0), b.number(fill, mask))
        padded = b.Pad(b.Cast(mask, to=1), b.Concat(zeros, missing, axis=0))
        return b.Greater(padded, np.array(0, np.float32))


def distance(b: Backward, scores: Value, past: Value | None) -> Value:
    """How far behind each query, [queries, 1], each key stands; queries come behind the past."""
    query, key = (b.Range(np.array(0), b.Squeeze(b.sizes(scores, axis), b.ints(0)), np.array(1)) for axis in (2, 3))
    if past is not None:
        query = b.Add(query, past)
    return b.Sub(key, b.Unsqueeze(query, b.ints(1)))


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
