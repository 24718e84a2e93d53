"""DynamicQuantizeLSTM: the inputs of all times are quantized together and multiplied as bytes, the hidden state
at every step of the loop over time. Weights and their parameters are constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.expr import load
from sardonyx.lower.derived import is_fixed, numbers
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.product import as_matrices
from sardonyx.lower.quant.integer_product import Int8Product, MatrixTerms, Quantized
from sardonyx.lower.quant.quant import dynamic_steps
from sardonyx.lower.registry import template
from sardonyx.lower.rnn.rnn import Gates, Layer, accepts_cell
from sardonyx.program.constants import Cut, transform
from sardonyx.program.steps import View, element_count

_BYTES = ("u8", "i8")
_W_SCALE, _R_SCALE = 8, 10  # inputs; each is followed by the zero points
_QUAD = 4


def _accepts(node: Node) -> str:
    if len(node.inputs) < 12 or any(node.inputs[position] is None for position in (0, 1, 2, 8, 9, 10, 11)):
        return "inputs are missing"
    constants = [node.inputs[position] for position in (1, 2, 8, 9, 10, 11)]
    if any(value is None or value.constant is None for value in constants):
        return "weights that are computed"
    reason = accepts_cell(node)
    if reason:
        return reason
    for weights, first in ((node.inputs[1], _W_SCALE), (node.inputs[2], _R_SCALE)):
        assert weights is not None
        assert weights.shape is not None
        directions, _, columns = weights.shape
        for value in node.inputs[first : first + 2]:
            shape = () if value is None else value.shape
            if shape not in ((directions,), (directions, 1), (directions, columns)):
                return "scales or zero points of another form"
    return ""


@template("DynamicQuantizeLSTM", domain="com.microsoft", types={"T": ("f32",), "T2": _BYTES}, accepts=_accepts)
def dynamic_quantize_lstm(ctx: LowerContext, group: Group) -> None:
    """An LSTM whose weights are bytes."""
    assert group.root is not None
    _QuantizedLayer(ctx, group, group.root).lower()


class _QuantizedLayer(Layer):
    def _of_columns(self, position: int, kind: dtypes.DType) -> View:
        """Scales or zero points [direction, block, gate, lane]."""
        value = self.node.inputs[position]
        assert value is not None
        shape = (self.directions, self.blocks, self.gates, self.lanes)
        return self.ctx.packed(
            _arrange_columns, (self.ctx.view(value),), self.gates, self.hidden, self.lanes, kind, dtype=kind, shape=shape
        )

    def _has_points(self, position: int) -> bool:
        data = self.ctx.constant_data(self.node.inputs[position])
        return data is None or bool(np.any(data.numpy() != 0))

    @property
    def is_ahead(self) -> bool:
        """Never: inputs are quantized by the range of all of them."""
        return False

    def projection(self) -> View:
        """The inputs, quantized by the range of all of them, times their weights."""
        ctx, x = self.ctx, self.x
        given = self.node.inputs[0]
        assert given is not None
        levels = ctx.scratch(dtypes.UINT8, x.shape, "quantized inputs")
        scale, point = ctx.scratch(dtypes.FLOAT32, (), "scale"), ctx.scratch(dtypes.UINT8, (), "zero point")
        dynamic_steps(ctx, self.group, ctx.untransposed(given), levels, scale, point)

        columns = self.directions * self.blocks * self.gates * self.lanes
        kind = self.w.buffer.dtype
        weights = self.arranged("input weights", self.gates, True, [Gates(0, (self.gates_of(self.w, range(self.gates)),))], kind)
        matrix = View(weights.buffer, (weights.shape[0], columns), (columns, 1), weights.offset)
        points: View | None = None
        if self._has_points(_W_SCALE + 1):
            points = _flat(self._of_columns(_W_SCALE + 1, kind))
        terms = MatrixTerms(ctx, self.group, Quantized(levels, point), Quantized(matrix, points))
        shape = (*x.shape[:2], columns)
        target = ctx.scratch(dtypes.FLOAT32, shape, "projected")
        views: list[View] = []

        def operand(value: Value | View) -> int:
            views.append(value if isinstance(value, View) else ctx.view(value))
            return len(views) - 1

        value = terms.sum(operand).cast("f32")
        both = load(operand(scale), "f32") * load(operand(_flat(self._of_columns(_W_SCALE, dtypes.FLOAT32))), "f32")
        value = value * both
        bias = self.bias()
        if bias is not None:
            value = value + load(operand(_flat(bias)), "f32")
        epilogue = GroupEpilogue((*views, target), ((len(views), value),))
        first, second, sizes, strides = as_matrices(terms.a, terms.b, epilogue, shape)
        made = Int8Product(ctx, self.group, first, second, epilogue, sizes, strides)
        made.check()
        made.tiles(terms.columns, 1)
        return target

    def recurrent_weights(self, gates: range) -> View:
        quads = -(-self.hidden // _QUAD)
        shape = (self.directions, self.blocks, quads, len(gates), self.lanes)
        source = self.gates_of(self.r, gates)
        assert is_fixed(source)
        return self.ctx.packed(_pack_recurrent_quads, (source,), self.lanes, dtype=dtypes.INT32, shape=shape)

    def columns(self) -> list[View]:
        points = self.ctx.view(self._given(_R_SCALE + 1))
        source = self.gates_of(self.r, range(self.gates))
        shape = numbers((self.directions, self.blocks, self.gates, self.lanes))
        sums = self.ctx.packed(_sums_of_recurrent, (source, points), self.lanes, dtype=dtypes.INT32, shape=shape)
        signed = self.ctx.packed(_signed_points, (points,), self.gates, self.hidden, self.lanes, dtype=dtypes.INT32, shape=shape)
        return [self._of_columns(_R_SCALE, dtypes.FLOAT32), sums, signed]

    def _given(self, position: int) -> Value:
        value = self.node.inputs[position]
        assert value is not None
        return value


def _flat(view: View) -> View:
    """What columns have, in one axis."""
    return View(view.buffer, (element_count(view.shape),), (1,), view.offset)


def _in_lanes(values: Array, lanes: int) -> Array:
    """[direction, gate, hidden] as [direction, block, gate, lane], zeros in the last block."""
    directions, gates, hidden = values.shape
    blocks = -(-hidden // lanes)
    padded = np.zeros((directions, gates, blocks * lanes), values.dtype)
    padded[..., :hidden] = values
    return np.ascontiguousarray(padded.reshape(directions, gates, blocks, lanes).transpose(0, 2, 1, 3))


def _by_gate(values: Array, gates: int, hidden: int) -> Array:
    """[direction] or [direction, gate * hidden] as [direction, gate, hidden]."""
    directions = len(values)
    return np.broadcast_to(values.reshape(directions, -1), (directions, gates * hidden)).reshape(directions, gates, hidden)


def _signed(values: Array) -> Array:
    """Bytes as signed ones: unsigned ones are moved by 128."""
    return values if values.dtype == np.int8 else (values ^ np.uint8(128)).view(np.int8)


@transform("arrange_columns", 1, is_numbers=True)
def _arrange_columns(values: Array, gates: int, hidden: int, lanes: int, dtype: Any) -> Array:
    """Parameters of directions or columns as [direction, block, gate, lane]."""
    return _in_lanes(_by_gate(values, gates, hidden).astype(dtype.numpy), lanes)


@transform("signed_points", 1, is_numbers=True)
def _signed_points(values: Array, gates: int, hidden: int, lanes: int) -> Array:
    """Zero points of signed bytes [direction, block, gate, lane]."""
    return _in_lanes(_by_gate(_signed(values), gates, hidden).astype(np.int32), lanes)


@transform("sums_of_recurrent", 1, is_numbers=True)
def _sums_of_recurrent(weights: Array, points: Array, lanes: int) -> Array:
    """Sums of distances to zero points [direction, block, gate, lane] of weights [direction, gate, hidden, depth]."""
    _, gates, hidden, depth = weights.shape
    sums = weights.sum(axis=3, dtype=np.int64) - depth * _by_gate(points, gates, hidden).astype(np.int64)
    return _in_lanes(sums.astype(np.int32), lanes)


def _quad_cuts(weights: Array, lanes: int) -> tuple[Cut, ...]:
    """Directions, and blocks of hidden units."""
    return Cut(0, 0), Cut(2, 1, lanes)


@transform("pack_recurrent_quads", 1, _quad_cuts, is_numbers=True)
def _pack_recurrent_quads(weights: Array, lanes: int) -> Array:
    """[direction, gate, hidden, depth] as words of four signed bytes [direction, block, quad, gate, lane]."""
    directions, gates, hidden, depth = weights.shape
    blocks, quads = -(-hidden // lanes), -(-depth // 4)
    padded = np.zeros((directions, gates, blocks * lanes, quads * 4), np.int8)
    padded[:, :, :hidden, :depth] = _signed(weights)
    words = padded.reshape(directions, gates, blocks, lanes, quads, 4).transpose(0, 2, 4, 1, 3, 5)
    return np.ascontiguousarray(words).view("<i4").reshape(directions, blocks, quads, gates, lanes)
