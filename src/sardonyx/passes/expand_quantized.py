"""Take QLinear operators without a kernel of their own apart: dequantize, compute in floats, quantize.

    y = QLinearSoftmax(x, sx, zx, sy, zy)     =>   y = QuantizeLinear(Softmax(DequantizeLinear(x, sx, zx)), sy, zy)

That is what they mean; a loop over the elements does all three steps. QuantizeLinear and DequantizeLinear of com.microsoft become
those of ONNX, which the passes after this one know, where the opset of the model has their types. Refuses: scales that are not
known to be single numbers, and axes that the opset of the model has no operator for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.expand_fused import ExpandingRule, Expansion, inputs_of
from sardonyx.passes.expand_layouts import transposed
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_QUANTIZES: Final = 10  # the opset versions since which there is QuantizeLinear,
_BYTES: Final = 13  # it has an axis,
_SHORT: Final = 21  # it takes integers of 16 and of 4 bits,
_SOFTMAX: Final = 13  # Softmax along one axis,
_AXES: Final = 18  # and the axes of a ReduceMean are an input
_POOL: Final = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def _check_numbers(g: Rewriter, *parameters: Value | None) -> Reject | None:
    if g.version < _QUANTIZES:
        return Reject(f"opset {g.version} does not quantize")
    if any(value is not None and value.shape != () for value in parameters):
        return Reject("scales or zero points are not known to be single numbers")
    return None


def _check_unary(g: Rewriter, node: Node) -> Any:
    return _check_numbers(g, *inputs_of(node, 5)[1:])


def _dequantized(g: Rewriter, x: Value | None, scale: Value | None, point: Value | None) -> Value:
    return g.op("DequantizeLinear", x, scale, *(() if point is None else (point,)))


def _quantized(g: Rewriter, node: Node, x: Value, scale: Value | None, point: Value | None) -> Value:
    dtype = dtype_of(node.outputs[0])
    assert dtype is not None
    return g.op("QuantizeLinear", x, scale, point if point is not None else g.constant(np.zeros((), dtype.numpy), "zero_point"))


def _unary(g: Rewriter, node: Node, operator: str, *, channels_last: bool = False, **attrs: Any) -> Value:
    x, x_scale, x_point, y_scale, y_point = inputs_of(node, 5)
    values = _dequantized(g, x, x_scale, x_point)
    if channels_last:
        values = transposed(g, values, to_last=False)
    result = g.op(operator, values, **attrs)
    return _quantized(g, node, transposed(g, result, to_last=True) if channels_last else result, y_scale, y_point)


def _check_softmax(g: Rewriter, node: Node) -> Any:
    x, axis, opset = node.inputs[0], node.attr("axis", -1), node.attr("opset", 0)
    shape = None if x is None else x.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return Reject(f"axis {axis} of {None if x is None else x.type}")
    is_last = axis % len(shape) == len(shape) - 1
    if not is_last and (opset >= _SOFTMAX) != (g.version >= _SOFTMAX):
        return Reject(f"axis {axis} as opset {opset} understands it")
    return _check_unary(g, node)


def _softmax(g: Rewriter, node: Node, facts: None) -> Value:
    return _unary(g, node, "Softmax", axis=node.attr("axis", -1))


def _check_average_pool(g: Rewriter, node: Node) -> Any:
    x = node.inputs[0]
    if x is None or x.shape is None or len(x.shape) < 3:
        return Reject("the rank is not known")
    return _check_unary(g, node)


def _average_pool(g: Rewriter, node: Node, facts: None) -> Value:
    attrs = {key: node.attr(key) for key in _POOL}
    return _unary(g, node, "AveragePool", channels_last=bool(node.attr("channels_last", 0)), **attrs)


def _reduce_mean(g: Rewriter, node: Node, facts: None) -> Value:
    axes, keepdims = node.attr("axes"), node.attr("keepdims", 1)
    if g.version < _AXES:
        return _unary(g, node, "ReduceMean", axes=axes, keepdims=keepdims)
    x, x_scale, x_point, y_scale, y_point = inputs_of(node, 5)
    given = g.constant(np.array(axes, np.int64), "axes")
    mean = g.op("ReduceMean", _dequantized(g, x, x_scale, x_point), given, keepdims=keepdims)
    return _quantized(g, node, mean, y_scale, y_point)


def _check_reduce_mean(g: Rewriter, node: Node) -> Any:
    return Reject("no axes") if not node.attr("axes") else _check_unary(g, node)


def _check_where(g: Rewriter, node: Node) -> Any:
    parameters = inputs_of(node, 9)
    return _check_numbers(g, *parameters[2:4], *parameters[5:])


def _where(g: Rewriter, node: Node, facts: None) -> Value:
    condition, x, x_scale, x_point, y, y_scale, y_point, z_scale, z_point = inputs_of(node, 9)
    first = _quantized(g, node, _dequantized(g, x, x_scale, x_point), z_scale, z_point)
    second = _quantized(g, node, _dequantized(g, y, y_scale, y_point), z_scale, z_point)
    return g.op("Where", condition, first, second)


def _check_pair(g: Rewriter, node: Node) -> Any:
    integers = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    dtype, scale = dtype_of(integers), dtype_of(node.inputs[1])
    floats = dtype_of(node.inputs[0] if node.op_type == "QuantizeLinear" else node.outputs[0])
    since = _BYTES if dtype in (dtypes.UINT8, dtypes.INT8, dtypes.INT32) else _SHORT
    if dtype is None or not dtype.is_integer or scale is not dtypes.FLOAT32 or floats is not dtypes.FLOAT32:
        return Reject("integers or scales of another type")
    return None if g.version >= since else Reject(f"opset {g.version} does not quantize {dtype.name}")


def _pair(g: Rewriter, node: Node, facts: None) -> Value:
    return g.op(node.op_type, *node.inputs, axis=node.attr("axis"))


_OPERATORS: Final[Mapping[str, Expansion]] = {
    "QuantizeLinear": Expansion(_pair, _check_pair),
    "DequantizeLinear": Expansion(_pair, _check_pair),
    "QLinearAveragePool": Expansion(_average_pool, _check_average_pool),
    "QLinearReduceMean": Expansion(_reduce_mean, _check_reduce_mean),
    "QLinearSoftmax": Expansion(_softmax, _check_softmax),
    "QLinearWhere": Expansion(_where, _check_where),
}


@dataclass(frozen=True)
class ExpandQuantized(ExpandingRule):
    """QLinear operators become their float form between DequantizeLinear and QuantizeLinear."""

    name: ClassVar[str] = "ExpandQuantized"
    roots: ClassVar[frozenset[str]] = frozenset(_OPERATORS)
    domains: ClassVar[frozenset[str]] = frozenset((MICROSOFT,))
    expansions: ClassVar[Mapping[str, Expansion]] = _OPERATORS

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node if dtype_of(node.outputs[0]) is not None else Reject("the type is not known")
