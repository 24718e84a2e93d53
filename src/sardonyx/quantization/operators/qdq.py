"""Which tensors of an operator get a QuantizeLinear and DequantizeLinear pair.

A rule marks them; the quantizer puts the pairs in. An operator without a rule has its float inputs and results marked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sardonyx.ir.graph import Node
from sardonyx.quantization import arithmetic
from sardonyx.quantization.models import dense
from sardonyx.quantization.operators.constants import constant_array

if TYPE_CHECKING:
    from sardonyx.quantization.qdq_quantizer import QDQQuantizer

Rule = Callable[["QDQQuantizer", Node], None]
logger = logging.getLogger(__name__)


def _gives_reals(q: QDQQuantizer, node: Node) -> bool:
    """Whether the results of this operator shall be quantized."""
    return node.op_type not in q.op_types_to_exclude_output_quantization


def _results(q: QDQQuantizer, node: Node) -> None:
    if _gives_reals(q, node):
        for value in node.outputs:
            q.quantize_activation_tensor(value)


def all_tensors(q: QDQQuantizer, node: Node) -> None:
    """Everything that is a float tensor."""
    for value in node.inputs:
        q.quantize_activation_tensor(value)
    _results(q, node)


def weighted(q: QDQQuantizer, node: Node) -> None:
    """Conv, ConvTranspose, Gemm: input, weight, bias and result."""
    given, weight = node.inputs[0], node.inputs[1]
    q.quantize_activation_tensor(given)
    if _gives_reals(q, node):
        q.quantize_activation_tensor(node.outputs[0])
    default = {"Conv": 0, "ConvTranspose": 1}.get(node.op_type, 0 if node.attr("transB", 0) else 1)
    _weight(q, node, default, op_type="")
    if len(node.inputs) < 3 or node.inputs[2] is None or given is None or weight is None:
        return
    if node.op_type != "Gemm":
        q.quantize_bias_tensor(node, 2, given, weight)
    elif dense(node.inputs[2]) is not None:
        q.quantize_bias_tensor(node, 2, given, weight, float(node.attr("beta", 1.0)))
        node.attrs.pop("beta", None)  # it is part of the bias's scale now
    else:
        logger.warning("%s: its bias is not constant. Exclude the node for better performance", node.label)


def _weight(q: QDQQuantizer, node: Node, default: int, op_type: str) -> None:
    axis = q.channel_axis(node.inputs[1], default, op_type)
    if axis is not None:
        q.quantize_weight_tensor_per_channel(node.inputs[1], axis)
    else:
        q.quantize_weight_tensor(node.inputs[1])


def matmul(q: QDQQuantizer, node: Node) -> None:
    """Constants are weights."""
    for value in (*node.inputs, *(node.outputs if _gives_reals(q, node) else ())):
        if dense(value) is None:
            q.quantize_activation_tensor(value)
            continue
        axis = q.channel_axis(value, 1, node.op_type)
        if axis is not None:
            q.quantize_weight_tensor_per_channel(value, axis)
        else:
            q.quantize_weight_tensor(value)


def removable(q: QDQQuantizer, node: Node) -> None:
    """Relu, Clip: what they cut off, quantization cuts off as well; so they go, unless zero must be in the middle."""
    if not q.is_tensor_quantized(node.inputs[0]):
        return
    stays = q.is_activation_symmetric or q.keep_removable_activations
    result = node.outputs[0]
    if stays or not q.try_replacing_upstream_output(node):
        q.quantize_activation_tensor(node.inputs[0])
    if _gives_reals(q, node):
        q.quantize_activation_tensor(result)


def unchanged(q: QDQQuantizer, node: Node) -> None:
    """Operators that only move numbers: the result has the input's parameters."""
    if q.force_quantize_no_input_check:
        q.quantize_activation_tensor(node.inputs[0])
    elif not q.is_tensor_quantized(node.inputs[0]):
        return
    if _gives_reals(q, node):
        q.quantize_output_same_as_input(node.outputs[0], node.inputs[0], node)


def resize(q: QDQQuantizer, node: Node) -> None:
    """Resize moves numbers, since it has its present form."""
    if q.opset_version >= 11:
        unchanged(q, node)


def max_pool(q: QDQQuantizer, node: Node) -> None:
    """MaxPool has had integers since opset 12, and has no float 8."""
    if q.opset_version >= 12 and q.activation_dtype not in arithmetic.FLOAT8:
        unchanged(q, node)


def split(q: QDQQuantizer, node: Node) -> None:
    """All parts have the input's parameters."""
    q.quantize_activation_tensor(node.inputs[0])
    if _gives_reals(q, node):
        for value in node.outputs:
            q.quantize_output_same_as_input(value, node.inputs[0], node)


def gather(q: QDQQuantizer, node: Node) -> None:
    """What is taken out of a table has its parameters."""
    is_table = dense(node.inputs[0]) is not None and q.real_type(node.inputs[0]) is not None
    if is_table or q.force_quantize_no_input_check:
        q.quantize_activation_tensor(node.inputs[0])
    elif not q.is_tensor_quantized(node.inputs[0]):
        return
    q.quantize_output_same_as_input(node.outputs[0], node.inputs[0], node)


def where(q: QDQQuantizer, node: Node) -> None:
    """QuantizedTensor if both sources are."""
    sources = node.inputs[1:3]
    if q.force_quantize_no_input_check:
        for value in sources:
            q.quantize_activation_tensor(value)
    elif not all(q.is_tensor_quantized(value) for value in sources):
        return
    _results(q, node)


def normalization(q: QDQQuantizer, node: Node) -> None:
    """Instance-, Layer- and BatchNormalization: input, scale, bias and results."""
    given, scale = node.inputs[0], node.inputs[1]
    q.quantize_activation_tensor(given)
    if dense(scale) is None:
        q.quantize_activation_tensor(scale)
    else:
        _weight(q, node, 1, node.op_type)
    if len(node.inputs) > 2 and node.inputs[2] is not None and given is not None and scale is not None:
        q.quantize_bias_tensor(node, 2, given, scale)
    _results(q, node)


def pad(q: QDQQuantizer, node: Node) -> None:
    """Numbers that are there already, or zeros, have the input's parameters; others do not."""
    for value in node.inputs:
        q.quantize_activation_tensor(value)
    if not _gives_reals(q, node):
        return
    if _pads_with_known(q, node):
        q.quantize_output_same_as_input(node.outputs[0], node.inputs[0], node)
    else:
        q.quantize_activation_tensor(node.outputs[0])


def _pads_with_known(q: QDQQuantizer, node: Node) -> bool:
    mode = node.attr("mode", "constant")
    if mode != "constant":
        return mode in ("reflect", "edge", "wrap")
    if q.opset_version < 11:
        return float(node.attr("value", 0.0)) == 0
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    filling = constant_array(node.inputs[2])
    return filling is not None and filling.dtype in (np.float32, np.float16) and not filling.any()


RULES: dict[str, Rule] = {
    "Conv": weighted,
    "ConvTranspose": weighted,
    "Gemm": weighted,
    "Clip": removable,
    "Relu": removable,
    "Reshape": unchanged,
    "Transpose": unchanged,
    "Squeeze": unchanged,
    "Unsqueeze": unchanged,
    "Flatten": unchanged,
    "Resize": resize,
    "MaxPool": max_pool,
    "AveragePool": unchanged,
    "Slice": unchanged,
    "Pad": pad,
    "MatMul": matmul,
    "Split": split,
    "Gather": gather,
    "GatherElements": gather,
    "Where": where,
    "InstanceNormalization": normalization,
    "LayerNormalization": normalization,
    "BatchNormalization": normalization,
    "TopK": unchanged,
    "CumSum": all_tensors,
}


def operator_of(op_type: str) -> Rule:
    """The rule of an operator."""
    return RULES.get(op_type, all_tensors)
