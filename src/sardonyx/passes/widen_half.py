"""Compute half-precision nodes in float32, for a file that ONNX Runtime runs as it is.

    y: f16 = MatMul(a: f16, b: f16)     =>   y = Cast(MatMul(Cast(a, f32), Cast(b, f32)), f16)

On a CPU ONNX Runtime has kernels of float16 for little more than moving data. Opening an ONNX model it puts in these Casts by
itself, and leaves out pairs of them; in an ORT model they must be there. Constants are widened here. Refuses: nodes with
subgraphs, operators that the table does not have, or that do not take float32.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Attr, AttrKind, Graph, Model, Node, SparseConstant, Value, is_constant, max_version
from sardonyx.ir.tensor import from_numpy, origin_of
from sardonyx.ir.types import TensorType, Type
from sardonyx.ops.signature import signature
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import all_graphs
from sardonyx.records import dataclass

_NARROW_KERNELS: Final = frozenset(
    (
        "Cast", "Compress", "Concat", "ConcatFromSequence", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather",
        "GatherElements", "GatherND", "Identity", "IsInf", "IsNaN", "Reshape", "ReverseSequence", "ScatterElements", "ScatterND",
        "SequenceAt", "SequenceConstruct", "SequenceErase", "SequenceInsert", "SequenceLength", "Shape", "Slice", "Split",
        "SplitToSequence", "Squeeze", "Transpose", "Unsqueeze",
    )
)  # fmt: skip


@dataclass(frozen=True)
class WidenHalf:
    """Nodes whose kernels for float16 other engines lack compute in float32."""

    name: ClassVar[str] = "WidenHalf"
    ort_names: ClassVar[tuple[str, ...]] = ("InsertCastTransformer",)

    def run(self, model: Model) -> PassResult:
        """Put in the Casts."""
        changes = sum(_widen_graph(graph, model.opset_imports.get("")) for graph in list(all_graphs(model)))
        return PassResult(bool(changes), changes=changes)


def _is_half(type_: Type | None) -> bool:
    return isinstance(type_, TensorType) and type_.dtype is dtypes.FLOAT16


def _widen_graph(graph: Graph, version: int | None) -> int:
    changes = 0
    widened: dict[Value, Value] = {}
    casts: list[Node] = []
    version = max_version(graph) if version is None else version
    for node in list(graph.nodes):
        positions = _positions(node)
        if positions is None:
            continue
        for index in positions[0]:
            value = node.inputs[index]
            assert value is not None
            if value not in widened:
                widened[value] = _wide(graph, node, value, version)
            node.set_input(index, widened[value])
        for index in positions[1]:
            narrow = node.outputs[index]
            assert isinstance(narrow.type, TensorType)
            wide = Value(f"{narrow.name}_f32", TensorType(dtypes.FLOAT32, narrow.type.shape))
            node.outputs[index], wide.producer, wide.index = wide, node, index
            casts.append(graph.insert_after(node, _cast(wide, narrow, dtypes.FLOAT16.onnx, version)))
            widened[narrow] = wide  # as ONNX Runtime has it: between two such nodes nothing is rounded
        changes += 1
    for cast in casts:
        if not cast.outputs[0].uses and cast.outputs[0] not in graph.outputs:
            graph.remove(cast)
    return changes


def _positions(node: Node) -> tuple[list[int], list[int]] | None:
    """Which inputs and outputs of a node are to be wide; None: it stays as it is."""
    halves = [index for index, value in enumerate(node.inputs) if value is not None and _is_half(value.type)]
    found = signature(node.domain, node.op_type, node.version)
    if not halves or found is None or node.subgraphs() or (not node.domain and node.op_type in _NARROW_KERNELS):
        return None
    formals = [found.input_at(index) for index in halves]
    if any(formal is None or dtypes.FLOAT32.name not in found.allowed(formal) for formal in formals):
        return None
    variables = {formal.type for formal in formals if formal is not None}
    outputs = []
    for index, value in enumerate(node.outputs):
        formal = found.output_at(index)
        if formal is not None and formal.type in variables and _is_half(value.type):
            outputs.append(index)
    return halves, outputs


def _wide(graph: Graph, node: Node, value: Value, version: int) -> Value:
    """A value in float32."""
    assert isinstance(value.type, TensorType)
    constant = value.constant
    if constant is not None and not isinstance(constant, SparseConstant) and is_constant(value, graph):
        data = constant.numpy().astype(np.float32)
        name = f"{value.name}_f32"
        while name in graph.initializers:
            name += "_"
        return graph.add_initializer(name, from_numpy(data, name, origin_of("widened", [constant], ())))
    wide = Value(f"{value.name}_f32", TensorType(dtypes.FLOAT32, value.type.shape))
    graph.insert_before(node, _cast(value, wide, dtypes.FLOAT32.onnx, version))
    return wide


def _cast(source: Value, target: Value, to: int, version: int) -> Node:
    return Node("Cast", [source], [target], [Attr("to", AttrKind.INT, to)], version=version, name=f"cast_{target.name}")
