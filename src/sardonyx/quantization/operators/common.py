"""Rules that hold with fixed scales and with those found at run time: operators that only move numbers, and embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.ir.graph import Node
from sardonyx.quantization.models import CONTRIB_OPERATORS, dense

if TYPE_CHECKING:
    from sardonyx.quantization.onnx_quantizer import ONNXQuantizer


def gather(q: ONNXQuantizer, node: Node) -> bool:
    """Take rows out of a quantized table."""
    if dense(node.inputs[0]) is None or not q.is_float_tensor(node.inputs[0]):
        return False
    [table] = q.quantize_inputs(node, [0])
    q.emit_moved(node, table, node.name)
    return True


def unchanged(q: ONNXQuantizer, node: Node) -> bool:
    """Transpose, Reshape and the like, on integers: if the input is quantized already, or is a constant and that is wanted."""
    if not q.is_float_tensor(node.inputs[0]):
        return False
    if q.force_quantize_no_input_check:
        if dense(node.inputs[0]) is None or not q.can_quantize(node, [0]):
            return False
        [given] = q.quantize_inputs(node, [0])
    else:
        found = q.find_quantized(node.inputs[0])
        if found is None:
            return False
        given = found
    q.emit_moved(node, given, node.name)
    return True


def embed_layer_normalization(q: ONNXQuantizer, node: Node) -> bool:
    """Tables, gamma and beta become integers; token ids stay."""
    if len(node.outputs) > 2:
        return False
    tables = [index for index in (2, 3, 4, 5, 6) if index < len(node.inputs) and node.inputs[index] is not None]
    if not q.can_quantize(node, tables):
        return False
    found = dict(zip(tables, q.quantize_inputs(node, tables)))
    parts = [found.get(index) for index in (2, 3, 4, 5, 6)]
    mask = node.inputs[7] if len(node.inputs) > 7 else None
    inputs = [
        *node.inputs[:2],
        *(part.data if part else None for part in parts),
        mask,
        *(part.scale if part else None for part in parts),
        *(part.zero if part else None for part in parts),
    ]
    name = node.name and f"{node.name}_quant"
    q.emit("QEmbedLayerNormalization", inputs, node.outputs, name, node.attrs.values(), CONTRIB_OPERATORS)
    return True
