"""Operators on integers whose activations are quantized at run time.

MatMul(x, w)  ->  y = Cast(MatMulInteger(x_q, w_q, x_zero, w_zero)) * (x_scale * w_scale)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.quantization import arithmetic
from sardonyx.quantization.base_quantizer import QuantizedTensor
from sardonyx.quantization.models import CONTRIB_OPERATORS, computed, dense
from sardonyx.quantization.operators import common

if TYPE_CHECKING:
    from sardonyx.quantization.onnx_quantizer import ONNXQuantizer

Rule = Callable[["ONNXQuantizer", Node], bool]  # whether it has emitted what stands for the node


def is_quantizable_matmul(q: ONNXQuantizer, node: Node) -> bool:
    """Whether a product is of reals, and of a constant if only such are wanted."""
    if not q.is_float_tensor(node.inputs[0]) and not q.is_float_tensor(node.inputs[1]):
        return False
    return not q.q_matmul_const_b_only or dense(node.inputs[1]) is not None


def matmul(q: ONNXQuantizer, node: Node) -> bool:
    """MatMulInteger, and both scales."""
    if not is_quantizable_matmul(q, node) or not q.can_quantize(node, [0, 1]):
        return False
    dtype = q.result_type(node.outputs[0])
    [left] = q.quantize_inputs(node, [0])
    right = q.quantize_weight(node, 1, reduce_range=True, axis=-1)
    _scaled(q, node, "MatMulInteger", left, right, dtype, node.outputs[0])
    return True


def conv(q: ONNXQuantizer, node: Node) -> bool:
    """ConvInteger, both scales, and the bias."""
    if not q.is_float_tensor(node.inputs[0]) or not q.can_quantize(node, [0, 1]):
        return False
    weight = dense(node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and weight is None:
        raise ValueError(f"Expected {node.inputs[1]} to be an initializer")
    result = node.outputs[0]
    dtype = q.result_type(result)
    [given] = q.quantize_inputs(node, [0])
    kernel = q.quantize_weight(node, 1, reduce_range=q.reduce_range)
    scaled = result if bias is None else Value(f"{result.name}quant_scaled_output")
    _scaled(q, node, "ConvInteger", given, kernel, dtype, scaled)
    if bias is not None and weight is not None:
        shape = np.ones(len(weight.shape), np.int64)
        shape[1] = -1
        flat = Value(f"{result.name}_bias_reshape_output")
        q.emit("Reshape", [q.real(bias), q.constant(f"{result.name}_bias_reshape_shape", shape)], [flat])
        q.emit("Add", [scaled, flat], [result], f"{result.name}_bias_add")
    return True


def _scaled(
    q: ONNXQuantizer, node: Node, op_type: str, left: QuantizedTensor, right: QuantizedTensor, dtype: DType, result: Value
) -> None:
    """The product of integers, as reals."""
    name = node.name and f"{node.name}_quant"
    if dtype is not dtypes.FLOAT32 and left.data.producer is not None and left.data.producer.op_type == "DynamicQuantizeLinear":
        # Its scale has 32 bits, and sums of products would not fit 16: the result is narrowed at last.
        wide = Value(f"{node.outputs[0].name}_float32")
        held = dense(right.scale)
        if held is not None:
            right = QuantizedTensor(
                right.data, q.constant(f"{right.scale.name}_float32", held.numpy().astype(np.float32)), right.zero
            )
        _scaled(q, node, op_type, left, right, dtypes.FLOAT32, wide)
        q.emit("Cast", [wide], [result], f"{wide.name}_cast", [make_attr("to", dtype.onnx)])
        return
    product = Value(f"{node.outputs[0].name}_output_quantized")
    cast = Value(f"{product.name}_cast_output")
    attrs = node.attrs.values() if op_type == "ConvInteger" else ()
    q.emit(op_type, [left.data, right.data, left.zero, right.zero], [product], name, attrs)
    q.emit("Cast", [product], [cast], f"{product.name}_cast", [make_attr("to", dtype.onnx)])
    scale_name = f"{name}_scales_mul" if name else f"{left.scale.name}_{right.scale.name}_mul"
    scales = q.product_of_scales(scale_name, left.scale, right.scale)
    q.emit("Mul", [cast, scales], [result], name and f"{name}_output_scale_mul")


def attention(q: ONNXQuantizer, node: Node) -> bool:
    """QAttention."""
    if "qkv_hidden_sizes" in node.attrs or not q.can_quantize(node, [0, 1]):
        return False
    [given] = q.quantize_inputs(node, [0])
    weight = q.quantize_weight(node, 1, reduce_range=True, axis=-1)
    rest = [node.inputs[index] if index < len(node.inputs) else None for index in (2, 3, 4)]
    inputs = [given.data, weight.data, rest[0], given.scale, weight.scale, rest[1], given.zero, weight.zero, rest[2]]
    q.emit("QAttention", inputs, node.outputs, node.name and f"{node.name}_quant", node.attrs.values(), CONTRIB_OPERATORS)
    return True


def lstm(q: ONNXQuantizer, node: Node) -> bool:
    """DynamicQuantizeLSTM: its weights are transposed, and quantized by direction or by direction and row."""
    weights = [dense(value) for value in node.inputs[1:3]]
    if not q.is_float_tensor(node.inputs[0]) or any(each is None or len(each.shape) != 3 for each in weights):
        return False
    if not all(q.is_float_tensor(value) for value in node.inputs[1:3]):
        return False
    quantized = [_recurrent_weight(q, value) for value in node.inputs[1:3] if value is not None]
    rest = [q.real(value) if value is not None else None for value in node.inputs[3:8]]
    parameters = [each for weight in quantized for each in weight[1:]]
    inputs = [q.real(node.inputs[0]) if node.inputs[0] is not None else None, *(weight[0] for weight in quantized)]
    inputs += [*rest, *([None] * (5 - len(rest))), *parameters]
    attrs = [attr for attr in node.attrs.values() if attr.name != "layout"]
    q.emit("DynamicQuantizeLSTM", inputs, node.outputs, node.name and f"{node.name}_quant", attrs, CONTRIB_OPERATORS)
    return True


def _recurrent_weight(q: ONNXQuantizer, value: Value) -> tuple[Value, Value, Value]:
    """A weight [directions, rows, columns] as integers [directions, columns, rows], its scales and zero points."""
    source = dense(value)
    assert source is not None
    data = source.numpy()
    directions, rows, columns = data.shape
    flat = data.reshape(directions * rows, columns) if q.per_channel else data.reshape(directions, -1)
    symmetric = q.is_weight_symmetric(dtypes.INT8)
    zero, scale = arithmetic.channel_parameters(flat, dtypes.INT8, 0, symmetric, q.reduce_range, q.min_real_range)
    shape = (directions, rows) if q.per_channel else (directions,)
    zero, scale = zero.reshape(shape), scale.reshape(shape)

    def quantize(numbers: Array) -> Array:
        broadcast = (*shape, *([1] * (3 - len(shape))))
        exact = arithmetic.quantize_nparray(dtypes.INT8, numbers, scale.reshape(broadcast), zero.reshape(broadcast))
        return np.ascontiguousarray(exact.transpose(0, 2, 1))

    name = f"{value.name}_quantized"
    held = q.constant(name, computed(name, dtypes.INT8, (directions, columns, rows), source, quantize))
    q.release(value)
    return held, q.constant(f"{value.name}_scale", scale), q.constant(f"{value.name}_zero_point", zero)


def measured(q: ONNXQuantizer, value: Value, dtype: DType) -> tuple[Value, Value]:
    """Nodes that find scale and zero point of an activation, where DynamicQuantizeLinear cannot."""
    name = value.name

    def step(op_type: str, inputs: list[Value], ending: str, **attrs: int) -> Value:
        result = Value(f"{name}{ending}:0")
        q.emit(op_type, inputs, [result], f"{name}{ending}", [make_attr(key, number) for key, number in attrs.items()])
        return result

    real = q.real_type(value) or dtypes.FLOAT32
    low = step("ReduceMin", [value], "_ReduceMin", keepdims=0)
    high = step("ReduceMax", [value], "_ReduceMax", keepdims=0)
    scale = Value(f"{name}_scale")
    if dtype is dtypes.INT8:
        greatest = step("Max", [step("Abs", [low], "_ReduceMin_Abs"), step("Abs", [high], "_ReduceMax_Abs")], "_Abs_Max")
        half = q.constant("fixed_quantization_range_int8", np.array(127.5, real.numpy))
        q.emit("Div", [greatest, half], [scale], f"{name}scale_Div")
        return scale, q.constant("fixed_zero_zp", np.array(0, np.int8))
    if dtype is not dtypes.UINT8:
        raise ValueError(f"activations cannot be quantized to {dtype.ort} at run time: only to int8 and uint8")
    steps = q.constant("fixed_quantization_range_uint8", np.array(255, real.numpy))
    q.emit("Div", [step("Sub", [high, low], "_scale_Sub"), steps], [scale], f"{name}_scale_Div")
    below = step("Sub", [q.constant("fixed_zero", np.array(0, real.numpy)), low], "_zero_point_Sub")
    whole = step("Floor", [step("Div", [below, scale], "_zero_point_Div")], "_zero_point_Floor")
    zero = Value(f"{name}_zero_point")
    q.emit("Cast", [whole], [zero], f"{name}_zero_point_Cast", [make_attr("to", dtype.onnx)])
    return scale, zero


COMMON: dict[str, Rule] = {
    "Gather": common.gather,
    "Transpose": common.unchanged,
    "EmbedLayerNormalization": common.embed_layer_normalization,
}
RULES: dict[str, Rule] = {"Conv": conv, "MatMul": matmul, "Attention": attention, "LSTM": lstm, **COMMON}
