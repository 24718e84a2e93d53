"""Write attention that is spelled out as the fused operators of com.microsoft.

    q, k, v = Transpose(Reshape(...))
    Reshape(Transpose(MatMul(Softmax(Add(Mul(MatMul(q, k'), scale), mask)), v)))     =>   MultiHeadAttention(q, k, v, mask)
    ... of three products of one x, each with a bias                     =>   Attention(x, packed weights, packed bias, mask)

What exporters put around it goes, too: scales of queries and keys, biases behind the division into heads, Casts of the scores,
zeros in place of weights that are not numbers. Refuses: parts that serve something else, shapes that are not known, weights that
are no constants.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.passes.fuse_transformers import bias_of, maker
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, attr_ints, dtype_of
from sardonyx.records import dataclass

_HEADS_FIRST: Final = (0, 2, 1, 3)
_KEYS_ACROSS: Final = (0, 2, 3, 1)
_SWAPPED: Final = (0, 1, 3, 2)


@dataclass(frozen=True)
class _Operand:
    """Query, key or value: what is divided into heads, [B, S, N * H], and keys or values of the past."""

    flat: Value
    heads: int
    factor: float = 1.0
    past: Value | None = None
    present: Value | None = None


@dataclass(frozen=True)
class _Attention:
    end: Value
    q: _Operand
    k: _Operand
    v: _Operand
    scale: float
    mask: Value | None


@dataclass(frozen=True)
class FuseContribAttention(Rule[_Attention]):
    """Attention spelled out. `packs`: products of one input become Attention, with their weights side by side."""

    name: ClassVar[str] = "FuseContribAttention"
    roots: ClassVar[frozenset[str]] = frozenset(("Softmax",))
    packs: bool = True

    def match(self, g: Rewriter, node: Node) -> _Attention | Reject | None:
        scores = node.inputs[0]
        if node.attr("axis", -1) not in (-1, 3) or scores is None or len(scores.shape or ()) != 4:
            return None
        mask: Value | None = None
        add = maker(scores, "Add")
        if add is not None:
            sides = [each for each in add.inputs if _product_of(g, each) is not None]
            if not sides:
                return None
            mask = next((each for each in add.inputs if each is not sides[0]), None)
            scores = sides[0]
        product = _product_of(g, scores)
        weights = node.outputs[0]
        reader = next(iter(weights.uses))[0] if g.is_private(weights) else None
        if product is None or reader is None or reader.op_type != "MatMul" or reader.inputs[0] is not weights:
            return None
        matmul, scale = product
        end = _joined_heads(g, reader.outputs[0])
        q = _divided(g, matmul.inputs[0], (_HEADS_FIRST,))
        k = _divided(g, matmul.inputs[1], (_KEYS_ACROSS, _SWAPPED))
        v = _divided(g, reader.inputs[1], (_HEADS_FIRST,))
        if end is None or q is None or k is None or v is None:
            return None
        return _Attention(end, q, k, v, scale * q.factor * k.factor, mask)

    def check(self, g: Rewriter, found: _Attention) -> Any:
        q, k, v = found.q, found.k, found.v
        if not q.heads == k.heads == v.heads or q.past is not None or (k.past is None) != (v.past is None) or v.factor != 1:
            return Reject("query, key and value have different heads or pasts")
        if found.mask is not None and len(found.mask.shape or ()) not in (2, 3, 4):
            return Reject("the mask has an unknown shape")
        return None

    def rewrite(self, g: Rewriter, found: _Attention, facts: Any) -> None:
        g.at(found.end.producer or g.anchor)
        q, k, v = found.q, found.k, found.v
        attrs: dict[str, Any] = {"num_heads": q.heads, "scale": found.scale}
        packed = _packed_weights(g, (q.flat, k.flat, v.flat)) if self.packs and k.past is None else None
        mask = self._mask(g, found.mask, q.flat if packed is None else packed[0])
        if packed is not None:
            x, weights, bias = packed
            given = [x, weights, bias, None, None, mask]
            while given[-1] is None:
                given.pop()
            result = g.node("Attention", given, 1, domain=MICROSOFT, **attrs)[0]
        else:
            given = [q.flat, k.flat, v.flat, None, None, mask, k.past, v.past]
            while given[-1] is None:
                given.pop()
            made = g.node("MultiHeadAttention", given, 3 if k.past is not None else 1, domain=MICROSOFT, **attrs)
            result = made[0]
            for operand, present in zip((k, v), made[1:]):
                if operand.present is not None:
                    g.replace(operand.present, present)
                    if operand.present.producer is not None:
                        g.discard(operand.present.producer)
        g.replace(found.end, result)
        if found.end.producer is not None:
            g.discard(found.end.producer)

    @staticmethod
    def _mask(g: Rewriter, mask: Value | None, x: Value) -> Value | None:
        """The mask with all four axes; what is broadcast along the queries of x is repeated, as the operator wants it."""
        if mask is None or mask.shape is None:
            return None
        missing = 4 - len(mask.shape)
        if missing:
            mask = g.op("Unsqueeze", mask, g.constant(np.arange(missing, dtype=np.int64), "axes"))
        assert mask.shape is not None
        queries = x.shape[1] if x.shape else None
        if mask.shape[2] == 1 and queries != 1:
            sizes = g.op("Shape", x)
            one = g.constant(np.array([1], np.int64), "one")
            count = g.op("Gather", sizes, one)
            mask = g.op("Expand", mask, g.op("Concat", one, one, count, one, axis=0))
        return mask


def _product_of(g: Rewriter, value: Value | None) -> tuple[Node, float] | None:
    """A MatMul and the number its result is multiplied by."""
    factor = 1.0
    while value is not None and g.is_private(value):
        node = maker(value, "Mul", "Div")
        if node is None:
            matmul = maker(value, "MatMul")
            return None if matmul is None else (matmul, factor)
        step = _scaled(g, node)
        if step is None:
            return None
        value, number = step
        factor *= number
    return None


def _scaled(g: Rewriter, node: Node) -> tuple[Value, float] | None:
    """What a Mul or Div by a number scales, and the factor."""
    a, b = node.inputs
    for x, other in ((a, b), (b, a)) if node.op_type == "Mul" else ((a, b),):
        number = g.number(other)
        if x is not None and number is not None and (node.op_type == "Mul" or number):
            return x, number if node.op_type == "Mul" else 1 / number
    return None


def _divided(g: Rewriter, value: Value | None, orders: tuple[tuple[int, ...], ...]) -> _Operand | None:
    """A value [B, N, S, H] (or with the last axes swapped) that is a reshaped and transposed one [B, S, N * H]."""
    factor = 1.0
    past = present = None
    swaps = 0
    while value is not None:
        scaled = maker(value, "Mul", "Div")
        step = _scaled(g, scaled) if scaled is not None else None
        if step is not None:
            value, factor = step[0], factor * step[1]
            continue
        concat = maker(value, "Concat")
        if concat is not None and past is None and concat.attr("axis") in (2, -2) and len(concat.inputs) == 2:
            if swaps != len(orders) - 1:
                return None
            past, present, value = concat.inputs[0], value, concat.inputs[1]
            orders = (_HEADS_FIRST,)
            continue
        transpose = maker(value, "Transpose")
        perm = None if transpose is None else attr_ints(transpose, "perm")
        if transpose is None or perm is None:
            return None
        value = transpose.inputs[0]
        if perm == _SWAPPED and _SWAPPED in orders:
            orders, swaps = (_HEADS_FIRST,), 1
            continue
        if perm not in orders or perm == _SWAPPED:
            return None
        reshape = maker(value, "Reshape")
        shape = None if value is None else value.shape
        if reshape is None or shape is None or len(shape) != 4:
            return None
        flat = reshape.inputs[0]
        heads, size = shape[2], shape[3]
        if flat is None or not isinstance(heads, int) or not isinstance(size, int) or len(flat.shape or ()) != 3:
            return None
        if (flat.shape or ())[2] != heads * size:
            return None
        return _Operand(flat, heads, factor, past, present)
    return None


def _joined_heads(g: Rewriter, value: Value) -> Value | None:
    """What becomes of [B, N, S, H]: transposed and reshaped to [B, S, N * H]."""
    for operator in ("Transpose", "Reshape"):
        if not g.is_private(value):
            return None
        node = next(iter(value.uses))[0]
        if node.op_type != operator or node.domain != ONNX_DOMAIN:
            return None
        if operator == "Transpose" and attr_ints(node, "perm") != _HEADS_FIRST:
            return None
        value = node.outputs[0]
    return value if len(value.shape or ()) == 3 else None


def _packed_weights(g: Rewriter, flats: tuple[Value, ...]) -> tuple[Value, Value, Value] | None:
    """The one input of three products, their weights side by side, and their biases."""
    x: Value | None = None
    weights, biases = [], []
    for flat in flats:
        found = bias_of(g, flat)
        product = maker(found[0] if found is not None else flat, "MatMul")
        if product is None or not g.is_private(flat) or (x is not None and product.inputs[0] is not x):
            return None
        x = product.inputs[0]
        weight = g.array(product.inputs[1])
        bias = g.array(found[1]) if found is not None else None
        if weight is None or weight.ndim != 2 or (found is not None and bias is None):
            return None
        weights.append(weight)
        biases.append(bias if bias is not None else np.zeros(weight.shape[1], weight.dtype))
    if x is None or len({weight.shape for weight in weights}) != 1:
        return None
    return x, g.constant(np.concatenate(weights, axis=1), "qkv_weight"), g.constant(np.concatenate(biases), "qkv_bias")
