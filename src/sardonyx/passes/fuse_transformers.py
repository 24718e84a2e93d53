"""Write the layers of transformers as the fused operators of com.microsoft.

    LayerNormalization(Add(a, b), g, s)                                  =>   SkipLayerNormalization(a, b, g, s)
    Gelu(Add(x, bias))                                                   =>   BiasGelu(x, bias)
    LayerNormalization(Add(Add(Gather(w, ids), Gather(t, types)), Gather(p, ...)))   =>   EmbedLayerNormalization(ids, types, ...)

    q, k, v = Transpose(Reshape(...))
    Reshape(Transpose(MatMul(Softmax(Add(Mul(MatMul(q, k'), scale), mask)), v)))     =>   MultiHeadAttention(q, k, v, mask)
    ... of three products of one x                                       =>   Attention(x, packed weights, packed bias, mask)

These are for models that are written to a file and run elsewhere, too (`sardonyx.transformers.optimizer`): sessions find the same
layers in plain graphs. They run after the passes that find norms and activations (`fuse_norms`, `fuse_activations`), on a graph
whose types are known. Refuses: parts that serve something else, shapes that are not known, weights that are no constants.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, attr_ints, dtype_of
from sardonyx.records import dataclass

_NORMS: Final = frozenset(("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"))
_HEADS_FIRST: Final = (0, 2, 1, 3)
_KEYS_ACROSS: Final = (0, 2, 3, 1)
_SWAPPED: Final = (0, 1, 3, 2)


def _maker(value: Value | None, *operators: str) -> Node | None:
    """The node that makes a value, if it is one of these operators of ONNX."""
    node = None if value is None else value.producer
    return node if node is not None and node.op_type in operators and node.domain == ONNX_DOMAIN else None


def _is_vector(g: Rewriter, value: Value | None, size: object) -> bool:
    """Whether a value is a constant vector of this size."""
    held = g.constant_of(value)
    return held is not None and tuple(held.shape) == (size,)


def _bias_of(g: Rewriter, value: Value | None) -> tuple[Value, Value] | None:
    """What a constant vector along the last axis is added to, and that vector; the sum serves nothing else."""
    add = _maker(value, "Add")
    if add is None or value is None or not g.is_private(value) or not value.shape:
        return None
    for x, bias in (add.inputs, add.inputs[::-1]):
        if x is not None and bias is not None and x.shape == value.shape and _is_vector(g, bias, value.shape[-1]):
            return x, bias
    return None


@dataclass(frozen=True)
class FuseSkipNorm(Rule[Node]):
    """A norm of a sum; the sum is an output, too, where something else reads it. A bias inside goes with it."""

    name: ClassVar[str] = "FuseSkipNorm"
    roots: ClassVar[frozenset[str]] = _NORMS
    with_bias: bool = True

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node if _maker(node.inputs[0], "Add") is not None else None

    def check(self, g: Rewriter, found: Node) -> Any:
        total = found.inputs[0]
        assert total is not None
        if found.attr("axis", -1) not in (-1, len(total.shape or ()) - 1) or len(total.shape or ()) not in (2, 3):
            return Reject("the norm is not over the last axis of two or three")
        add = total.producer
        assert add is not None
        if any(each is None or each.shape != total.shape or each.constant is not None for each in add.inputs):
            return Reject("what is added is broadcast or constant")
        if any(value.uses or g.is_output(value) for value in found.outputs[1:]):
            return Reject("mean or deviation is used")
        return add

    def rewrite(self, g: Rewriter, found: Node, add: Node) -> None:
        total = add.outputs[0]
        is_layer_norm = found.op_type == "LayerNormalization"
        x, skip = add.inputs
        bias: Value | None = None
        for first, second in (add.inputs, add.inputs[::-1]) if self.with_bias else ():
            inner = _bias_of(g, first)
            if inner is not None:
                (x, bias), skip = inner, second
                break
        shifts = [found.inputs[2] if len(found.inputs) > 2 else None] if is_layer_norm else []
        inputs = [x, skip, found.inputs[1], *shifts, *([bias] if bias is not None else [])]
        while inputs[-1] is None:
            inputs.pop()
        operator = "SkipLayerNormalization" if is_layer_norm else "SkipSimplifiedLayerNormalization"
        is_read = len(total.uses) > 1 or g.is_output(total)
        epsilon = found.attr("epsilon", 1e-5)
        made = g.at(found).node(operator, inputs, 4 if is_read else 1, domain=MICROSOFT, epsilon=epsilon)
        for unused in made[1:3]:
            unused.name = ""
        g.replace(found.outputs[0], made[0])
        if is_read:
            later = [(node, index) for node, index in total.uses if node is not found]
            if not g.is_output(total) and all(_is_behind(made[3].producer, node) for node, _ in later):
                for node, index in later:
                    node.set_input(index, made[3])


def _is_behind(first: Node | None, node: Node) -> bool:
    """Whether a node stands behind another in the same graph."""
    graph = node.graph
    if first is None or graph is None or first.graph is not graph:
        return False
    for each in graph.nodes:
        if each is first:
            return True
        if each is node:
            return False
    return False


@dataclass(frozen=True)
class FuseBiasGelu(Rule[Node]):
    """A Gelu of a sum with a bias."""

    name: ClassVar[str] = "FuseBiasGelu"
    roots: ClassVar[frozenset[str]] = frozenset(("Gelu", "FastGelu"))
    domains: ClassVar[frozenset[str]] = frozenset((ONNX_DOMAIN, MICROSOFT))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node if len(node.inputs) == 1 and _bias_of(g, node.inputs[0]) is not None else None

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        bias = _bias_of(g, found.inputs[0])
        assert bias is not None
        by_tanh = found.op_type == "FastGelu" or found.attr("approximate", "none") == "tanh"
        g.replace(found.outputs[0], g.op("FastGelu" if by_tanh else "BiasGelu", *bias, domain=MICROSOFT))


@dataclass(frozen=True)
class ApproximateGelu(Rule[Node]):
    """Gelu by tanh instead of erf: another function, where the caller asks for it."""

    name: ClassVar[str] = "ApproximateGelu"
    roots: ClassVar[frozenset[str]] = frozenset(("Gelu", "BiasGelu"))
    domains: ClassVar[frozenset[str]] = frozenset((ONNX_DOMAIN, MICROSOFT))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        g.replace(found.outputs[0], g.op("FastGelu", *found.inputs, domain=MICROSOFT))


@dataclass(frozen=True)
class _Embedding:
    norm: Node
    tables: list[tuple[Value, Value]]  # table, indices


@dataclass(frozen=True)
class FuseEmbedding(Rule[_Embedding]):
    """The norm of a sum of looked-up rows: of tokens, of segments (if there are any) and of positions."""

    name: ClassVar[str] = "FuseEmbedding"
    roots: ClassVar[frozenset[str]] = frozenset(("LayerNormalization",))

    def match(self, g: Rewriter, node: Node) -> _Embedding | Reject | None:
        pending, tables = [node.inputs[0]], []
        while pending:
            value = pending.pop()
            gather, add = _maker(value, "Gather"), _maker(value, "Add")
            if value is None or not g.is_private(value):
                return None
            if gather is not None and gather.attr("axis", 0) == 0 and None not in gather.inputs:
                tables.append((gather.inputs[0], gather.inputs[1]))
            elif add is not None and len(tables) + len(pending) < 3:
                pending.extend(add.inputs)
            else:
                return None
        return _Embedding(node, tables) if len(tables) in (2, 3) else None  # type: ignore[arg-type]

    def check(self, g: Rewriter, found: _Embedding) -> Any:
        norm = found.norm
        if len(norm.inputs) < 3 or norm.attr("axis", -1) not in (-1, 2) or len(norm.outputs[0].shape or ()) != 3:
            return Reject("the norm is not over the last of three axes, or has no bias")
        if any(g.constant_of(table) is None or len(table.shape or ()) != 2 for table, _ in found.tables):
            return Reject("a table is no constant matrix")
        inputs = {value for graph in g.graphs() for value in graph.inputs}
        fed = [pair for pair in found.tables if pair[1] in inputs and len(pair[1].shape or ()) == 2]
        rest = [pair for pair in found.tables if pair not in fed]
        if len(rest) == 0:  # positions are fed, too: by name, for nothing else tells them from segments
            rest = [pair for pair in fed if "position" in pair[1].name]
            fed = [pair for pair in fed if pair not in rest]
        if len(rest) != 1 or not 1 <= len(fed) <= 2 or not 1 <= len(rest[0][1].shape or ()) <= 2:
            return Reject("tokens, segments and positions cannot be told apart")
        fed.sort(key=lambda pair: -int(g.constant_of(pair[0]).shape[0]))  # type: ignore[union-attr]
        return fed, rest[0]

    def rewrite(self, g: Rewriter, found: _Embedding, facts: Any) -> None:
        fed, (positions, where) = facts
        norm = found.norm
        to_i32 = dtypes.INT32.onnx
        ids = [g.op("Cast", indices, to=to_i32) if dtype_of(indices) is not dtypes.INT32 else indices for _, indices in fed]
        position_ids = g.op("Cast", where, to=to_i32) if dtype_of(where) is not dtypes.INT32 else where
        if len(where.shape or ()) == 1:
            position_ids = g.op("Unsqueeze", position_ids, g.constant(np.array([0], np.int64), "axis"))
        segments = (ids[1], fed[1][0]) if len(fed) > 1 else (None, None)
        inputs = [ids[0], segments[0], fed[0][0], positions, segments[1], *norm.inputs[1:3], None, position_ids]
        epsilon = norm.attr("epsilon", 1e-5)
        made = g.node("EmbedLayerNormalization", inputs, 2, domain=MICROSOFT, epsilon=epsilon)
        made[1].type = TensorType(dtypes.INT32, (ids[0].shape[0],)) if ids[0].shape else None
        g.replace(norm.outputs[0], made[0])


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
        add = _maker(scores, "Add")
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
        node = _maker(value, "Mul", "Div")
        if node is None:
            matmul = _maker(value, "MatMul")
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
        scaled = _maker(value, "Mul", "Div")
        step = _scaled(g, scaled) if scaled is not None else None
        if step is not None:
            value, factor = step[0], factor * step[1]
            continue
        concat = _maker(value, "Concat")
        if concat is not None and past is None and concat.attr("axis") in (2, -2) and len(concat.inputs) == 2:
            if swaps != len(orders) - 1:
                return None
            past, present, value = concat.inputs[0], value, concat.inputs[1]
            orders = (_HEADS_FIRST,)
            continue
        transpose = _maker(value, "Transpose")
        perm = None if transpose is None else attr_ints(transpose, "perm")
        if transpose is None or perm is None:
            return None
        value = transpose.inputs[0]
        if perm == _SWAPPED and _SWAPPED in orders:
            orders, swaps = (_HEADS_FIRST,), 1
            continue
        if perm not in orders or perm == _SWAPPED:
            return None
        reshape = _maker(value, "Reshape")
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
        found = _bias_of(g, flat)
        product = _maker(found[0] if found is not None else flat, "MatMul")
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
