"""What passes ask about QuantizeLinear and DequantizeLinear: the tensor behind one, its scale and its zero point."""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Graph, Node, Value, captured_values
from sardonyx.passes.protocol import is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

BYTES: Final = frozenset((dtypes.UINT8, dtypes.INT8))
_FINE_BITS: Final = 16


@dataclass(frozen=True)
class Quantization:
    """A tensor of integers with its parameters: one of each, or one for each slice of an axis."""

    node: Node
    tensor: Value  # of integers: what a DequantizeLinear reads, a QuantizeLinear gives
    scale: Value
    zero_point: Value | None
    axis: int | None  # None: one scale for all of it

    def zero_or_constant(self, g: Rewriter) -> Value:
        """The zero point, made if there is none."""
        if self.zero_point is not None:
            return self.zero_point
        dtype = dtype_of(self.tensor)
        assert dtype is not None
        return g.constant(np.zeros(self.scale.shape or (), dtype.numpy), "zero_point")  # type: ignore[arg-type]

    @property
    def is_bytes(self) -> bool:
        """Whether the integers have 8 bits."""
        return dtype_of(self.tensor) in BYTES


def dequantized(value: Value | None) -> Quantization | None:
    """What a value in float32 was dequantized from; None if it was not, or in blocks or another precision."""
    node = None if value is None else value.producer
    return _found(node, "DequantizeLinear", None if node is None else node.inputs[0])


def quantizing(node: Node) -> Quantization | None:
    """What a node that is a QuantizeLinear of float32 gives."""
    return _found(node, "QuantizeLinear", node.outputs[0])


def _found(node: Node | None, op_type: str, tensor: Value | None) -> Quantization | None:
    if node is None or node.op_type != op_type or not is_standard(node) or node.version < 10 or tensor is None:
        return None
    scale = node.inputs[1]
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    if scale is None or scale.shape is None or dtype_of(scale) is not dtypes.FLOAT32 or len(scale.shape) > 1:
        return None
    if zero_point is not None and zero_point.shape is None:
        return None
    others = (node.inputs[0] if op_type == "QuantizeLinear" else node.outputs[0], scale)
    if any(dtype_of(value) is not dtypes.FLOAT32 for value in others):
        return None
    if node.attr("block_size", 0) or node.attr("precision", 0) not in (0, dtypes.FLOAT32.onnx):
        return None
    rank = len(tensor.shape or ())
    if set(scale.shape) <= {1}:
        return Quantization(node, tensor, scale, zero_point, None)
    axis = node.attr("axis", 1)
    if not -rank <= axis < rank:
        return None
    return Quantization(node, tensor, scale, zero_point, axis % rank)


def same_parameters(g: Rewriter, first: Quantization, second: Quantization) -> bool:
    """Whether two quantizations by one scale have the same type and parameters, known to be sound numbers."""
    if first.axis is not None or second.axis is not None or dtype_of(first.tensor) is not dtype_of(second.tensor):
        return False
    scales = [g.number(each.scale) for each in (first, second)]
    zeros = [0.0 if each.zero_point is None else g.number(each.zero_point) for each in (first, second)]
    sound = scales[0] is not None and np.finfo(np.float32).tiny <= scales[0] < np.finfo(np.float32).max / 512
    return bool(sound and scales[0] == scales[1] and zeros[0] is not None and zeros[0] == zeros[1])


def before_bytes(graph: Graph) -> frozenset[Node]:
    """The nodes of a graph whose results have a part in numbers that are rounded to bytes, by whatever way they get there."""
    found: set[Node] = set()
    waiting = [node for node in graph.nodes if _makes_bytes(node)]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        read = [*node.inputs, *(value for inner in node.subgraphs() for value in captured_values(inner))]
        waiting += [value.producer for value in read if value is not None and value.producer is not None]
    return frozenset(found)


def _makes_bytes(node: Node) -> bool:
    if node.op_type == "DynamicQuantizeLinear" or (node.op_type == "QuantizeLinear" and not _is_fine(node.outputs[0])):
        return True
    return any(_makes_bytes(each) for inner in node.subgraphs() for each in inner.nodes)


def _is_fine(value: Value) -> bool:
    """Whether a step of these integers is as little as other roundings."""
    dtype = dtype_of(value)
    return dtype is not None and dtype.bits >= _FINE_BITS
