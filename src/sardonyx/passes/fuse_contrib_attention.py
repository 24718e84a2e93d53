"""Write attention that is spelled out as the fused operators of com.microsoft.

    q, k, v = Transpose(Reshape(...))
    Reshape(Transpose(MatMul(Softmax(Add(Mul(MatMul(q, k'), scale), mask)), v)))     =>   MultiHeadAttention(q, k, v, mask)
    ... of three products of one x, each with a bias                     =>   Attention(x, packed weights, packed bias, mask)

What exporters put around it goes, too: scales of queries and keys, biases behind the division into heads, Casts of the scores,
zeros in place of weights that are not numbers. A mask that is made of ones and zeros for each token is given as those.
Refuses: parts that serve something else, shapes that are not known.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.passes.fuse_transformers import bias_of, maker
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, attr_ints, dtype_of
from sardonyx.records import dataclass

_HEADS_FIRST: Final = (0, 2, 1, 3)
_KEYS_ACROSS: Final = (0, 2, 3, 1)
_SWAPPED: Final = (0, 1, 3, 2)
_MASKED: Final = -10000.0  # what the operators add to the scores of tokens that a mask hides, if nothing else is said


@dataclass(frozen=True)
class _Operand:
    """Query, key or value: what is divided into heads, [B, S, N * H], and keys or values of the past.

    Where it is nothing that was divided it is given as `heads_first`, [B, N, S, H], or with the last axes swapped.
    """

    flat: Value | None
    heads: int
    size: int  # of a head
    factor: float = 1.0
    bias: Array | None = None  # to be added to `flat`
    past: Value | None = None
    present: Value | None = None
    heads_first: Value | None = None
    is_swapped: bool = False


@dataclass(frozen=True)
class _Mask:
    added: Value  # to the scores
    tokens: Value | None = None  # ones and zeros that it is made of, [B, T]
    hidden: float = _MASKED  # what is added for zeros


@dataclass(frozen=True)
class _Attention:
    end: Value
    q: _Operand
    k: _Operand
    v: _Operand
    scale: float
    mask: _Mask | None


@dataclass(frozen=True)
class FuseContribAttention(Rule[_Attention]):
    """Attention spelled out. `packs`: products of one input become Attention, with their weights side by side."""

    name: ClassVar[str] = "FuseContribAttention"
    roots: ClassVar[frozenset[str]] = frozenset(("Softmax",))
    packs: bool = True

    def match(self, g: Rewriter, node: Node) -> _Attention | Reject | None:
        scores = _uncast(node.inputs[0])
        rank = 0 if scores is None else len(scores.shape or ())
        if scores is None or rank not in (3, 4) or node.attr("axis", -1) not in (-1, rank - 1):
            return None
        folded = _unfolded(g, scores) if rank == 3 else None  # the mask may be added with all four axes
        scores = folded if folded is not None else scores
        mask: Value | None = None
        add = maker(scores, "Add")
        if add is not None:
            products = [(each, _folded(g, each) if folded is not None else each) for each in add.inputs]
            sides = [(each, product) for each, product in products if _product_of(g, product) is not None]
            if not sides:
                return None
            mask = next((each for each in add.inputs if each is not sides[0][0]), None)
            scores = sides[0][1]
            if mask is not None and rank == 3 and folded is None:
                return None  # which of its rows are whose is not known
            if mask is not None and (mask.shape == () or (mask.shape or (0,))[-1] == 1):
                mask = None  # the same for all keys of a query: the softmax takes it out
        product = _product_of(g, scores)
        reader = _reader_of_weights(g, node, mask)
        if product is None or reader is None:
            return None
        matmul, scale = product
        ends = [*matmul.inputs[:2], reader.inputs[1], reader.outputs[0]]
        if rank == 3:
            ends = [_unfolded(g, ends[0]), _unfolded_keys(g, ends[1]), _unfolded(g, ends[2]), _folded_heads(g, reader.outputs[0])]
        query, keys, values, mixed = ends
        end = None if mixed is None else _joined_heads(g, mixed)
        q = _divided(g, query, (_HEADS_FIRST,)) or _heads_first(query, is_swapped=False)
        across = (_HEADS_FIRST,) if rank == 3 else (_KEYS_ACROSS, _SWAPPED)
        k = _divided(g, keys, across) or _heads_first(keys, is_swapped=rank == 4)
        v = _divided(g, values, (_HEADS_FIRST,)) or _heads_first(_uncast(values), is_swapped=False)
        if end is None or q is None or k is None or v is None:
            return None
        return _Attention(end, q, k, v, scale * q.factor * k.factor, None if mask is None else _mask_of(g, mask))

    def check(self, g: Rewriter, found: _Attention) -> Any:
        q, k, v = found.q, found.k, found.v
        if not q.heads == k.heads == v.heads or q.size != k.size or v.factor != 1:
            return Reject("query, key and value have different heads")
        if q.past is not None or (k.past is None) != (v.past is None):
            return Reject("only one of key and value has a past, or the query has one")
        if len({dtype_of(operand.flat or operand.heads_first) for operand in (q, k, v)}) != 1:
            return Reject("query, key and value have different types")
        if found.mask is not None and len(found.mask.added.shape or ()) not in (2, 3, 4):
            return Reject("the mask has an unknown shape")
        return None

    def rewrite(self, g: Rewriter, found: _Attention, facts: Any) -> None:
        g.at(found.end.producer or g.anchor)
        q, k, v = found.q, found.k, found.v
        attrs: dict[str, Any] = {"num_heads": q.heads, "scale": found.scale}
        packed = _packed_weights(g, (q, k, v)) if self.packs and k.past is None else None
        flats = [packed[0]] if packed is not None else [_flat(g, operand) for operand in (q, k, v)]
        tokens = bias = None
        if found.mask is not None and found.mask.tokens is not None:
            tokens = _as_int32(g, found.mask.tokens)
            if found.mask.hidden != _MASKED:
                attrs["mask_filter_value"] = found.mask.hidden
        elif found.mask is not None:
            bias = self._bias(g, found.mask.added, flats[0])
        if packed is not None:
            x, weights, biases = packed
            if v.size != q.size:
                attrs["qkv_hidden_sizes"] = [operand.heads * operand.size for operand in (q, k, v)]
            result = g.node("Attention", _trimmed([x, weights, biases, tokens, None, bias]), 1, domain=MICROSOFT, **attrs)[0]
        else:
            given = _trimmed([*flats, None, tokens, bias, k.past, v.past])
            made = g.node("MultiHeadAttention", given, 3 if k.past is not None else 1, domain=MICROSOFT, **attrs)
            result = made[0]
            for operand, present in zip((k, v), made[1:]):
                if operand.present is not None:
                    g.replace(operand.present, present)
                    if operand.present.producer is not None:
                        g.discard(operand.present.producer)
        wanted = dtype_of(found.end)
        if wanted is not None and wanted is not dtype_of(flats[0]):
            result = g.op("Cast", result, to=wanted.onnx)
        g.replace(found.end, result)
        if found.end.producer is not None:
            g.discard(found.end.producer)

    @staticmethod
    def _bias(g: Rewriter, mask: Value, x: Value) -> Value:
        """The mask with all four axes; what is broadcast along the queries of x is repeated, as the operator wants it."""
        if dtype_of(mask) is not dtype_of(x):
            mask = g.op("Cast", mask, to=(dtype_of(x) or dtypes.FLOAT32).onnx)
        assert mask.shape is not None
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


def _trimmed(inputs: list[Value | None]) -> list[Value | None]:
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _uncast(value: Value | None) -> Value | None:
    """What a Cast between floats is of."""
    cast = maker(value, "Cast")
    while cast is not None:
        kinds = [dtype_of(each) for each in (value, cast.inputs[0])]
        if not all(kind is not None and kind.is_float for kind in kinds):
            break
        value = cast.inputs[0]
        cast = maker(value, "Cast")
    return value


def _reader_of_weights(g: Rewriter, softmax: Node, mask: Value | None) -> Node | None:
    """The product of the weights and the values; Casts, and zeros in place of what is no number, may stand before it.

    Weights are no numbers where a mask hides all keys with minus infinity: with one that cannot, there are none.
    """
    weights = softmax.outputs[0]
    if len(weights.uses) == 2 and not g.is_output(weights):
        readers = {reader.op_type: reader for reader, _ in weights.uses}
        test, where = readers.get("IsNaN"), readers.get("Where")
        if test is None or where is None or where.inputs[0] is not test.outputs[0] or not g.is_private(test.outputs[0]):
            return None
        choice = maker(mask, "Where")
        ends = [] if choice is None else [g.number(each) for each in choice.inputs[1:]]
        if g.number(where.inputs[1]) != 0 or (mask is not None and not (ends and all(_is_finite(end) for end in ends))):
            return None
        weights = where.outputs[0]
    while g.is_private(weights):
        reader = next(iter(weights.uses))[0]
        if reader.op_type == "Cast" and reader.domain == ONNX_DOMAIN and (dtype_of(reader.outputs[0]) or dtypes.BOOL).is_float:
            weights = reader.outputs[0]
            continue
        return reader if reader.op_type == "MatMul" and reader.inputs[0] is weights else None
    return None


def _is_finite(number: float | None) -> bool:
    return number is not None and bool(np.isfinite(number))


def _mask_of(g: Rewriter, mask: Value) -> _Mask:
    """A mask, and what it is made of if that is `(1 - tokens) * number`, the tokens at the last axis."""
    product, choice = maker(mask, "Mul"), maker(mask, "Where")
    difference: Value | None = None
    hidden: float | None = None
    if product is not None:
        step = _scaled(g, product)
        difference, hidden = step if step is not None else (None, None)
    elif choice is not None:
        cast = maker(choice.inputs[0], "Cast")
        difference, hidden = choice.inputs[2], g.number(choice.inputs[1])
        if cast is None or cast.inputs[0] is not difference or (dtype_of(choice.inputs[0]) is not dtypes.BOOL):
            difference = None
    sub = maker(difference, "Sub")
    if sub is None or hidden is None or g.number(sub.inputs[0]) != 1:
        return _Mask(mask)
    tokens = sub.inputs[1]
    node = maker(tokens, "Cast", "Unsqueeze", "Reshape")
    while node is not None and (node.op_type == "Cast" or _inserts_axes(node)):
        tokens = node.inputs[0]
        node = maker(tokens, "Cast", "Unsqueeze", "Reshape")
    kind = dtype_of(tokens)
    if tokens is None or kind not in (dtypes.BOOL, dtypes.INT32, dtypes.INT64) or len(tokens.shape or ()) != 2:
        return _Mask(mask)
    first, last = tokens.shape or ()
    return _Mask(mask, tokens, hidden) if mask.shape == (first, 1, 1, last) else _Mask(mask)


def _inserts_axes(node: Node) -> bool:
    """Whether a node puts axes of size 1 between the first and the last axis, and does nothing else."""
    before = () if node.inputs[0] is None else node.inputs[0].shape or ()
    after = node.outputs[0].shape or ()
    return 2 <= len(before) <= len(after) and after == (before[0], *[1] * (len(after) - len(before)), *before[1:])


def _as_int32(g: Rewriter, tokens: Value) -> Value:
    """A mask as int32: the Cast that stands at the head of the graph already, or a new one."""
    if dtype_of(tokens) is dtypes.INT32:
        return tokens
    for reader, _ in tokens.uses:
        if reader.op_type == "Cast" and dtype_of(reader.outputs[0]) is dtypes.INT32 and reader.graph is g.graph:
            for node in g.graph.nodes:
                if node is reader:
                    return reader.outputs[0]
                if node is g.anchor:
                    break
    behind = g.anchor
    if tokens.producer is None:
        g.at(next(iter(g.graph.nodes)))
    cast = g.op("Cast", tokens, to=dtypes.INT32.onnx)
    cast.name = g.fresh_name(f"{tokens.name}_int32")
    assert cast.producer is not None
    cast.producer.name = ""  # it takes nobody's place
    g.at(behind)
    return cast


def _product_of(g: Rewriter, value: Value | None) -> tuple[Node, float] | None:
    """A MatMul and the number its result is multiplied by."""
    factor = 1.0
    while value is not None and g.is_private(value):
        node = maker(value, "Mul", "Div")
        if node is None:
            matmul = maker(value, "MatMul")
            if matmul is not None or _uncast(value) is value:
                return None if matmul is None else (matmul, factor)
            value = _uncast(value)
            continue
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
        if maker(value, "Cast") is not None and _uncast(value) is not value and past is None:
            value = _uncast(value)
            continue
        concat = maker(value, "Concat")
        if concat is not None and past is None and concat.attr("axis") in (2, -2) and len(concat.inputs) == 2:
            if swaps != len(orders) - 1:
                return None
            past, present, value = concat.inputs[0], value, concat.inputs[1]
            orders = (_HEADS_FIRST,)
            continue
        source = _swapped_in_three(value)
        transpose = maker(value, "Transpose")
        perm = _SWAPPED if source is not None else None if transpose is None else attr_ints(transpose, "perm")
        if source is None and transpose is not None:
            source = transpose.inputs[0]
        if source is None or perm is None:
            return None
        value = source
        if perm == _SWAPPED and _SWAPPED in orders:
            orders, swaps = (_HEADS_FIRST,), 1
            continue
        return None if perm not in orders or perm == _SWAPPED else _reshaped(g, value, factor, past, present)
    return None


def _reshaped(g: Rewriter, value: Value, factor: float, past: Value | None, present: Value | None) -> _Operand | None:
    """A value [B, S, N, H] that is a reshaped one [B, S, N * H], maybe with a bias."""
    shape = value.shape or ()
    if len(shape) != 4 or not isinstance(shape[2], int) or not isinstance(shape[3], int):
        return None
    heads, size = shape[2], shape[3]
    bias: Array | None = None
    add = maker(value, "Add")
    for x, other in (add.inputs, add.inputs[::-1]) if add is not None else ():
        held = g.array(other)
        is_bias = held is not None and held.shape[-2:] == (heads, size) and held.size == heads * size
        if x is not None and held is not None and is_bias and x.shape == shape:
            value, bias = x, held.reshape(-1)
            break
    reshape = maker(value, "Reshape")
    flat = None if reshape is None else reshape.inputs[0]
    if flat is None or len(flat.shape or ()) != 3 or (flat.shape or ())[2] != heads * size:
        return None
    scaled = maker(flat, "Mul", "Div") if bias is None else None
    step = _scaled(g, scaled) if scaled is not None and g.is_private(flat) else None
    if step is not None and step[0].shape == flat.shape:
        flat, factor = step[0], factor * step[1]
    return _Operand(flat, heads, size, factor, bias, past, present)


def _unfolded(g: Rewriter, value: Value | None) -> Value | None:
    """What a value [B * N, S, H] is of that was [B, N, S, H]."""
    reshape = maker(value, "Reshape")
    source = None if reshape is None else reshape.inputs[0]
    if value is None or source is None or len(source.shape or ()) != 4:
        return None
    whole = source.shape or ()
    return source if value.shape == (whole[0] * whole[1], *whole[2:]) else None


def _unfolded_keys(g: Rewriter, value: Value | None) -> Value | None:
    """What keys [B * N, H, S] are of that were [B, N, S, H]."""
    transpose = maker(value, "Transpose")
    return None if transpose is None or attr_ints(transpose, "perm") != (0, 2, 1) else _unfolded(g, transpose.inputs[0])


def _folded(g: Rewriter, value: Value | None) -> Value | None:
    """What a value [B, N, S, T] is of that was [B * N, S, T]."""
    reshape = maker(value, "Reshape")
    source = None if reshape is None else reshape.inputs[0]
    whole = () if value is None else value.shape or ()
    if source is None or len(whole) != 4 or value is None or not g.is_private(value):
        return None
    return source if source.shape == (whole[0] * whole[1], *whole[2:]) else None


def _folded_heads(g: Rewriter, value: Value) -> Value | None:
    """The value [B, N, S, H] that one [B * N, S, H] becomes."""
    reader = next(iter(value.uses))[0] if g.is_private(value) else None
    if reader is None or reader.op_type != "Reshape" or reader.domain != ONNX_DOMAIN:
        return None
    whole = reader.outputs[0].shape or ()
    return reader.outputs[0] if len(whole) == 4 and value.shape == (whole[0] * whole[1], *whole[2:]) else None


def _swapped_in_three(value: Value) -> Value | None:
    """What a value [B, N, H, S] is of whose last axes were swapped while the first two were one."""
    outer = maker(value, "Reshape")
    transpose = maker(None if outer is None else outer.inputs[0], "Transpose")
    inner = maker(None if transpose is None else transpose.inputs[0], "Reshape")
    source = None if inner is None else inner.inputs[0]
    if transpose is None or inner is None or source is None or attr_ints(transpose, "perm") != (0, 2, 1):
        return None
    whole, three = source.shape or (), inner.outputs[0].shape or ()
    if len(whole) != 4 or three != (whole[0] * whole[1], *whole[2:]):
        return None
    return source if value.shape == (whole[0], whole[1], whole[3], whole[2]) else None


def _heads_first(value: Value | None, is_swapped: bool) -> _Operand | None:
    """A value [B, N, S, H], or [B, N, H, S], that is nothing else."""
    shape = () if value is None else value.shape or ()
    size = shape[2 if is_swapped else 3] if len(shape) == 4 else None
    if not isinstance(size, int) or not isinstance(shape[1], int):
        return None
    return _Operand(None, shape[1], size, heads_first=value, is_swapped=is_swapped)


def _flat(g: Rewriter, operand: _Operand) -> Value:
    """An operand as [B, S, N * H]."""
    value = operand.flat
    if value is None:
        assert operand.heads_first is not None
        value = operand.heads_first
        if operand.is_swapped:
            value = g.op("Transpose", value, perm=_SWAPPED)
        value = g.op("Transpose", value, perm=_HEADS_FIRST)
        value = g.op("Reshape", value, g.constant(np.array([0, 0, operand.heads * operand.size], np.int64), "shape"))
    if operand.bias is not None:
        value = g.op("Add", value, g.constant(operand.bias, "bias"))
    return value


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


def _packed_weights(g: Rewriter, operands: tuple[_Operand, ...]) -> tuple[Value, Value, Value] | None:
    """The one input of three products with biases, their weights side by side, and their biases."""
    x: Value | None = None
    weights, biases = [], []
    for operand in operands:
        flat, bias = operand.flat, operand.bias
        if flat is None or not g.is_private(flat):
            return None
        if bias is None:
            found = bias_of(g, flat)
            if found is None:
                return None
            flat, bias = found[0], g.array(found[1])
        product = maker(flat, "MatMul")
        if product is None or (x is not None and product.inputs[0] is not x):
            return None
        x = product.inputs[0]
        weight = g.array(product.inputs[1])
        if weight is None or weight.ndim != 2 or bias is None:
            return None
        weights.append(weight)
        biases.append(bias)
    if x is None or len({weight.shape for weight in weights[:2]}) != 1:
        return None
    return x, g.constant(np.concatenate(weights, axis=1), "qkv_weight"), g.constant(np.concatenate(biases), "qkv_bias")
