"""Operators on integers with fixed scales.

Conv(x, w, b)  ->  QLinearConv(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Node, Value
from sardonyx.quantization import arithmetic
from sardonyx.quantization.base_quantizer import QUANTIZED, QuantizedTensor
from sardonyx.quantization.models import CONTRIB_OPERATORS, dense
from sardonyx.quantization.operators import common, dynamic
from sardonyx.quantization.operators.constants import constant_array
from sardonyx.quantization.operators.dynamic import Rule, is_quantizable_matmul

if TYPE_CHECKING:
    from sardonyx.quantization.onnx_quantizer import ONNXQuantizer


def _triple(given: QuantizedTensor) -> list[Value]:
    return [given.data, given.scale, given.zero]


def conv(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearConv; by channels, its weights are of 8 bits with sign."""
    if not q.is_float_tensor(node.inputs[0]) or not q.can_quantize(node, [0, 1]):
        return False
    parameters = q.output_parameters(node.outputs[0])
    if parameters is None:
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and q.weight_dtype is dtypes.FLOAT8E4M3FN:
        raise RuntimeError("Quantization to FLOAT8E4M3FN for operator Conv is not supported.")
    [given] = q.quantize_inputs(node, [0])
    kernel = node.inputs[1]
    if kernel is not None and dense(kernel) is not None and q.per_channel:
        weight = q.quantize_constant(kernel, dtypes.INT8, True, 0)
    else:
        weight = q.quantize_weight(node, 1, reduce_range=q.reduce_range)
    inputs = [*_triple(given), *_triple(weight), *parameters]
    if bias is not None:
        inputs.append(q.quantize_bias(node, 2, given, weight))
    q.emit_quantized(node, "QLinearConv", inputs, parameters, node.attrs.values(), domain="")
    return True


def gemm(q: ONNXQuantizer, node: Node) -> bool:
    """QGemm; beta becomes part of the bias's scale."""
    if not is_quantizable_matmul(q, node) or not q.can_quantize(node, [0, 1]):
        return False
    parameters = q.output_parameters(node.outputs[0])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if parameters is None or (bias is not None and dense(bias) is None):
        return False
    [given] = q.quantize_inputs(node, [0])
    matrix = node.inputs[1]
    if matrix is not None and dense(matrix) is not None and q.per_channel:
        weight = q.quantize_constant(matrix, q.weight_dtype, True, 0 if node.attr("transB", 0) else 1)
    else:
        weight = q.quantize_weight(node, 1, reduce_range=q.reduce_range)
    held = None if bias is None else q.quantize_bias(node, 2, given, weight, float(node.attr("beta", 1.0)))
    attrs = [attr for attr in node.attrs.values() if attr.name != "beta"]
    q.emit_quantized(node, "QGemm", [*_triple(given), *_triple(weight), held, *parameters], parameters, attrs)
    return True


def matmul(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearMatMul."""
    if not is_quantizable_matmul(q, node) or not q.can_quantize(node, [0, 1]):
        return False
    parameters = q.output_parameters(node.outputs[0])
    if parameters is None:
        return False
    [left] = q.quantize_inputs(node, [0])
    right = q.quantize_weight(node, 1, reduce_range=True, axis=-1)
    domain = CONTRIB_OPERATORS if q.weight_dtype in arithmetic.FLOAT8 else ""
    q.emit_quantized(node, "QLinearMatMul", [*_triple(left), *_triple(right), *parameters], parameters, domain=domain)
    return True


def _elementwise(q: ONNXQuantizer, node: Node, count: int, scale: float | None = None, zero: int | None = None) -> bool:
    """`QLinear` and the operator's name, with its first inputs and its result quantized."""
    indices = range(count)
    if not q.is_float_tensor(node.inputs[0]) or not q.can_quantize(node, indices):
        return False
    parameters = q.output_parameters(node.outputs[0], scale, zero)
    if parameters is None:
        return False
    inputs = [each for given in q.quantize_inputs(node, list(indices)) for each in _triple(given)]
    attrs = list(node.attrs.values())
    if node.op_type == "Softmax":
        attrs.append(make_attr("opset", q.opset_version))
    q.emit_quantized(node, f"QLinear{node.op_type}", [*inputs, *parameters], parameters, attrs)
    return True


def binary(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearAdd, QLinearMul."""
    return _elementwise(q, node, 2)


def activation(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearSigmoid, QLinearLeakyRelu; a Relu or Clip of what is quantized is nothing: its range has cut it already."""
    if node.op_type in ("Relu", "Clip"):
        given = q.quantized.get(node.inputs[0]) if node.inputs[0] is not None else None
        if given is None or q.is_activation_symmetric or not q.is_float_tensor(node.inputs[0]):
            return False
        q.quantized[node.outputs[0]] = given
        return True
    if node.op_type == "Sigmoid" and q.extra_options.get("extra.Sigmoid.nnapi"):
        return _elementwise(q, node, 1, 1 / 256.0, 0)
    return _elementwise(q, node, 1)


def softmax(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearSoftmax: results are from 0 to 1, whatever was seen."""
    return _elementwise(q, node, 1, 1 / 256.0, 0 if q.activation_dtype is dtypes.UINT8 else -128)


def pooling(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearAveragePool."""
    return _elementwise(q, node, 1)


def global_average_pool(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearGlobalAveragePool, of what is quantized already."""
    given = q.quantized.get(node.inputs[0]) if node.inputs[0] is not None else None
    if given is None:
        return False
    parameters = q.output_parameters(node.outputs[0]) or (given.scale, given.zero)
    attrs = [*node.attrs.values(), make_attr("channels_last", 0)]
    q.emit_quantized(node, "QLinearGlobalAveragePool", [*_triple(given), *parameters], parameters, attrs)
    return True


def max_pool(q: ONNXQuantizer, node: Node) -> bool:
    """MaxPool has had integers since opset 12, and has no float 8."""
    if q.opset_version < 12 or q.activation_dtype in arithmetic.FLOAT8:
        return False
    return common.unchanged(q, node)


def resize(q: ONNXQuantizer, node: Node) -> bool:
    """Resize moves numbers, since it has its present form."""
    return q.opset_version >= 11 and common.unchanged(q, node)


def split(q: ONNXQuantizer, node: Node) -> bool:
    """All parts have the input's parameters."""
    if not q.is_float_tensor(node.inputs[0]) or not q.can_quantize(node, [0]):
        return False
    [given] = q.quantize_inputs(node, [0])
    parts = [Value(f"{value.name}quantized") for value in node.outputs]
    name = node.name and f"{node.name}_quant"
    q.emit("Split", [given.data, *node.inputs[1:]], parts, name, node.attrs.values())
    for value, part in zip(node.outputs, parts):
        q.quantized[value] = QuantizedTensor(part, given.scale, given.zero)
    return True


def concat(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearConcat."""
    indices = list(range(len(node.inputs)))
    if not q.is_float_tensor(node.inputs[0]) or not q.can_quantize(node, indices):
        return False
    parameters = q.output_parameters(node.outputs[0])
    if parameters is None:
        return False
    inputs = [each for given in q.quantize_inputs(node, indices) for each in _triple(given)]
    q.emit_quantized(node, "QLinearConcat", [*parameters, *inputs], parameters, node.attrs.values())
    return True


def where(q: ONNXQuantizer, node: Node) -> bool:
    """QLinearWhere, if that is wanted."""
    if not q.force_quantize_no_input_check or not q.can_quantize(node, [1, 2]):
        return False
    parameters = q.output_parameters(node.outputs[0])
    if parameters is None:
        return False
    inputs = [each for given in q.quantize_inputs(node, [1, 2]) for each in _triple(given)]
    q.emit_quantized(node, "QLinearWhere", [node.inputs[0], *inputs, *parameters], parameters, node.attrs.values())
    return True


def arg_max(q: ONNXQuantizer, node: Node) -> bool:
    """The greatest integer is where the greatest real is."""
    given = q.find_quantized(node.inputs[0])
    if given is None:
        return False
    q.emit("ArgMax", [given.data], node.outputs, node.name, node.attrs.values())
    return True


def pad(q: ONNXQuantizer, node: Node) -> bool:
    """Pad integers, with the integer that stands for the filling."""
    given = q.quantized.get(node.inputs[0]) if node.inputs[0] is not None else None
    if q.opset_version < 11 or given is None or not q.is_float_tensor(node.inputs[0]):
        return False
    rest: list[Value | None] = list(node.inputs[1:])
    if node.attr("mode", "constant") == "constant":
        filling = rest[1] if len(rest) > 1 else None
        if filling is None:
            rest = [*rest[:1], given.zero, *rest[2:]]
        else:
            scale, zero = dense(given.scale), dense(given.zero)
            if scale is None or zero is None:
                return False
            known = constant_array(filling)
            if known is not None:
                number = arithmetic.quantize_nparray(zero.dtype, known, scale.numpy(), zero.numpy()).reshape(known.shape)
                rest[1] = q.constant(filling.name + QUANTIZED, np.asarray(number))
            else:
                quantized = rest[1] = Value(filling.name + QUANTIZED)
                q.emit(
                    "QuantizeLinear", [q.real(filling), given.scale, given.zero], [quantized], f"{filling.name}_QuantizeLinear"
                )
    q.emit_moved(node, given, node.name, rest)
    return True


RULES: dict[str, Rule] = {
    "ArgMax": arg_max,
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": matmul,
    "Add": binary,
    "Mul": binary,
    "Relu": activation,
    "Clip": activation,
    "LeakyRelu": activation,
    "Sigmoid": activation,
    "MaxPool": max_pool,
    "GlobalAveragePool": global_average_pool,
    "Split": split,
    "Pad": pad,
    "Reshape": common.unchanged,
    "Squeeze": common.unchanged,
    "Unsqueeze": common.unchanged,
    "Flatten": common.unchanged,
    "Resize": resize,
    "AveragePool": pooling,
    "Concat": concat,
    "Softmax": softmax,
    "Where": where,
    **dynamic.COMMON,
}
