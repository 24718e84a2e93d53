"""Take whole layers of ONNX Runtime's transformer tools apart: quantized attention, and the sum of embeddings.

    y = QAttention(x, w, b, sx, sw, mask, zx, zw)     =>   p = MatMulIntegerToFloat(x, w, sx, sw, zx, zw, b)
                                                           y = MultiHeadAttention(Split(p), mask)
    y = EmbedLayerNormalization(ids, kinds, ...)      =>   y = SkipLayerNormalization(Gather(words, ids) + Gather(positions), ...)
    y = QEmbedLayerNormalization(ids, kinds, ...)     =>   the same, with every row dequantized behind its Gather

An id below zero is an error for the whole layer, but counts from the end for Gather: it becomes one that no table has. Refuses: a
past or rotated queries, masks of other forms than MultiHeadAttention takes, and attention in narrow floats (see ExpandFused); the
sum of embeddings in float16 is one of float32, rounded at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.expand_fused import ExpandingRule, Expansion, inputs_of
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_NO_ROW: Final = np.array(np.iinfo(np.int32).max, np.int32)
_AXES_BY_INPUT: Final = 13  # the opset version since which the axes of a ReduceSum, and the sizes of a Split, are inputs
_QUANTIZES: Final = 10  # the opset version since which there is DequantizeLinear
_ATTENTION: Final = ("num_heads", "unidirectional", "mask_filter_value", "scale")


def _is_used(g: Rewriter, node: Node, index: int) -> bool:
    value = node.outputs[index] if len(node.outputs) > index else None
    return value is not None and (bool(value.uses) or g.is_output(value))


def _check_attention(g: Rewriter, node: Node) -> Any:
    x, w, bias, _, _, mask, _, _, past = inputs_of(node, 9)
    if past is not None or _is_used(g, node, 1) or node.attr("do_rotary", 0):
        return Reject("has a past, hands keys on, or rotates queries")
    if x is None or w is None or x.shape is None or w.shape is None or len(x.shape) != 3 or len(w.shape) != 2:
        return Reject("the ranks are not known")
    columns = w.shape[1]
    if not isinstance(columns, int) or columns % 3 or bias is None or bias.shape != (columns,):
        return Reject(f"weights {w.type} and bias {None if bias is None else bias.type} do not fit")
    if mask is not None and (mask.shape is None or mask.shape not in ((x.shape[0],), (x.shape[0], x.shape[1]))):
        return Reject(f"a mask {mask.type} for {x.type}")
    return columns // 3


def _attention(g: Rewriter, node: Node, columns: int) -> Value:
    x, w, bias, x_scale, w_scale, mask, x_point, w_point, _ = inputs_of(node, 9)
    projected = g.op("MatMulIntegerToFloat", x, w, x_scale, w_scale, x_point, w_point, bias, domain=MICROSOFT)
    if g.version >= _AXES_BY_INPUT:
        sizes = g.constant(np.full(3, columns, np.int64), "sizes")
        query, key, value = g.node("Split", [projected, sizes], 3, axis=2)
    else:
        query, key, value = g.node("Split", [projected], 3, axis=2, split=[columns] * 3)
    attrs = {name: node.attr(name) for name in _ATTENTION}
    operands = [query, key, value, *(() if mask is None else (None, mask))]
    return g.op("MultiHeadAttention", *operands, domain=MICROSOFT, **attrs)


@dataclass(frozen=True)
class _Table:
    """Rows of floats, or of bytes with a scale and a zero point for all of them."""

    rows: Value | None
    scale: Value | None = None
    zero_point: Value | None = None

    def real(self, g: Rewriter, read: Value | None) -> Value | None:
        """What was read of it, as floats of 32 bits or more."""
        if read is None or self.scale is not None:
            return None if read is None else g.op("DequantizeLinear", read, self.scale, self.zero_point)
        return g.op("Cast", read, to=dtypes.FLOAT32.onnx) if dtype_of(read) is dtypes.FLOAT16 else read


@dataclass(frozen=True)
class _Embedding:
    """The inputs of either operator."""

    ids: Value | None
    segments: Value | None
    tables: tuple[_Table, ...]  # of words, positions and kinds of segments; factors and summands of the norm
    mask: Value | None
    position_ids: Value | None


def _inputs(node: Node) -> _Embedding:
    if node.op_type == "EmbedLayerNormalization":
        ids, segments, *tables, mask, position_ids = inputs_of(node, 9)
        return _Embedding(ids, segments, tuple(map(_Table, tables)), mask, position_ids)
    given = inputs_of(node, 18)
    return _Embedding(given[0], given[1], tuple(map(_Table, given[2:7], given[8:13], given[13:18])), given[7], None)


def _check_quantized_embedding(g: Rewriter, node: Node) -> Any:
    parameters = [value for value in inputs_of(node, 18)[8:] if value is not None]
    if g.version < _QUANTIZES or any(value.shape != () for value in parameters):
        return Reject("scales or zero points are not known to be single numbers")
    return _check_embedding(g, node)


def _check_embedding(g: Rewriter, node: Node) -> Any:
    found = _inputs(node)
    ids, segments, mask, position_ids = found.ids, found.segments, found.mask, found.position_ids
    words, positions, kinds, *_ = (table.rows for table in found.tables)
    tables = [table for table in (words, positions, kinds) if table is not None]
    shapes = [table.shape for table in tables]
    if any(shape is None or len(shape) != 2 or shape[1] != (shapes[0] or ())[-1] for shape in shapes):
        return Reject("the tables are not known to have rows of one length")
    if ids is None or ids.shape is None or len(ids.shape) != 2:
        return Reject("the rank of input_ids is not known")
    others = [value for value in (segments if kinds is not None else None, mask, position_ids) if value is not None]
    if any(value.shape != ids.shape for value in others):
        return Reject("segments, mask or position_ids may broadcast")
    if (kinds is not None and segments is None) or (mask is None and _is_used(g, node, 1)):
        return Reject("segments or mask are missing")
    return None


def _rows(g: Rewriter, table: _Table, ids: Value) -> Value | None:
    """Rows of a table; an id below zero has none."""
    zero = g.constant(np.zeros((), np.int32), "zero")
    known = g.op("Where", g.op("Less", ids, zero), g.constant(_NO_ROW, "no_row"), ids)
    return table.real(g, g.op("Gather", table.rows, known))


def _embedding(g: Rewriter, node: Node, facts: None) -> list[Value | None]:
    found = _inputs(node)
    words, positions, kinds, *factors = found.tables
    assert found.ids is not None
    if found.position_ids is None:
        length = g.op("Gather", g.op("Shape", found.ids), g.constant(np.array(1, np.int64), "axis"))
        counted = (g.constant(np.array(number, np.int64), "number") for number in (0, 1))
        zero, one = counted
        placed = positions.real(g, g.op("Gather", positions.rows, g.op("Range", zero, length, one)))
    else:
        placed = _rows(g, positions, found.position_ids)
    total, skip = _rows(g, words, found.ids), placed
    if kinds.rows is not None:
        assert found.segments is not None
        total, skip = g.op("Add", total, skip), _rows(g, kinds, found.segments)
    gamma, beta = (table.real(g, table.rows) for table in factors)
    epsilon = attribute_values(node)["epsilon"]
    made = g.node("SkipLayerNormalization", [total, skip, gamma, beta], 4, domain=MICROSOFT, epsilon=epsilon)
    dtype = dtype_of(node.outputs[0])
    assert dtype is not None
    result, total = (g.op("Cast", value, to=dtype.onnx) if dtype is dtypes.FLOAT16 else value for value in (made[0], made[3]))
    return [result, _lengths(g, found.mask) if _is_used(g, node, 1) else None, total if _is_used(g, node, 2) else None]


def _lengths(g: Rewriter, mask: Value | None) -> Value:
    """How many elements of each row of a mask are one."""
    ones = g.op("Cast", g.op("Equal", mask, g.constant(np.ones((), np.int32), "one")), to=dtypes.INT32.onnx)
    if g.version >= _AXES_BY_INPUT:
        return g.op("ReduceSum", ones, g.constant(np.array([1], np.int64), "axes"), keepdims=0)
    return g.op("ReduceSum", ones, axes=[1], keepdims=0)


_LAYERS: Final[Mapping[str, Expansion]] = {
    "QAttention": Expansion(_attention, _check_attention),
    "EmbedLayerNormalization": Expansion(_embedding, _check_embedding),
    "QEmbedLayerNormalization": Expansion(_embedding, _check_quantized_embedding),
}


@dataclass(frozen=True)
class ExpandLayers(ExpandingRule):
    """Quantized attention and sums of embeddings become products, attention, rows of tables and norms."""

    name: ClassVar[str] = "ExpandLayers"
    roots: ClassVar[frozenset[str]] = frozenset(_LAYERS)
    domains: ClassVar[frozenset[str]] = frozenset((MICROSOFT,))
    expansions: ClassVar[Mapping[str, Expansion]] = _LAYERS

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        is_half = node.op_type == "EmbedLayerNormalization" and dtype_of(node.outputs[0]) is dtypes.FLOAT16
        return node if is_half else super().match(g, node)
