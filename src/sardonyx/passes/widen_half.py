"""Compute half-precision nodes in float32.

    y: f16 = MatMul(a: f16, b: f16)     =>   y = Cast(MatMul(Cast(a, f32), Cast(b, f32)), f16)

WidenHalf serves files that ONNX Runtime runs as they are: on a CPU it has kernels of float16 for little more than moving data.
Opening an ONNX model it puts in these Casts by itself, and leaves out pairs of them; in an ORT model they must be there.

WidenConvolutions serves our own kernels: convolutions compute in float32, and so do the elementwise nodes, pools and the like
that are connected with them. Between such nodes nothing is rounded or converted, as ONNX Runtime has it. Products of matrices
are left alone: they read narrow weights, which is half the memory.

Constants are widened when their data is wanted. Refuses: nodes with subgraphs, operators that the table does not have, or that do
not take float32.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.graph import Attr, AttrKind, Graph, Model, Node, SparseConstant, Value, is_constant, max_version
from sardonyx.ir.tensor import Derivation, Tensor, origin_of, release_pages
from sardonyx.ir.types import TensorType, Type
from sardonyx.ops.registry import Trait, traits
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
_CONVOLUTIONS: Final = frozenset(("Conv", "ConvTranspose", "FusedConv", "NhwcConv", "NhwcFusedConv"))
_ON_IMAGES: Final = frozenset(  # beside elementwise operators: what stands between convolutions
    (
        "AveragePool", "BatchNormalization", "Concat", "DepthToSpace", "GlobalAveragePool", "GlobalMaxPool",
        "GroupNormalization", "InstanceNormalization", "MaxPool", "Pad", "Resize", "SpaceToDepth", "Split", "Upsample",
    )
)  # fmt: skip
_HALVES: Final = frozenset((dtypes.FLOAT16, dtypes.BFLOAT16))


@dataclass(frozen=True)
class WidenHalf:
    """Nodes whose kernels for float16 other engines lack compute in float32."""

    name: ClassVar[str] = "WidenHalf"
    ort_names: ClassVar[tuple[str, ...]] = ("InsertCastTransformer",)

    def run(self, model: Model) -> PassResult:
        """Put in the Casts."""
        changes = 0
        for graph in list(all_graphs(model)):
            chosen = [node for node in graph.nodes if node.domain or node.op_type not in _NARROW_KERNELS]
            changes += _widen_graph(graph, chosen, frozenset((dtypes.FLOAT16,)), model.opset_imports.get(""))
        return PassResult(bool(changes), changes=changes)


@dataclass(frozen=True)
class WidenConvolutions:
    """Half-precision convolutions and what is connected with them compute in float32."""

    name: ClassVar[str] = "WidenConvolutions"
    ort_names: ClassVar[tuple[str, ...]] = ("InsertCastTransformer",)
    roots: ClassVar[frozenset[str]] = _CONVOLUTIONS

    def run(self, model: Model) -> PassResult:
        """Put in the Casts around them."""
        changes = 0
        for graph in list(all_graphs(model)):
            changes += _widen_graph(graph, _around_convolutions(graph), _HALVES, model.opset_imports.get(""))
        return PassResult(bool(changes), changes=changes)


def _around_convolutions(graph: Graph) -> list[Node]:
    """Half-precision convolutions, and the nodes on images that values connect with them, in the order of the graph."""
    pending = [node for node in graph.nodes if node.op_type in _CONVOLUTIONS and _is_half(node.outputs[0].type, _HALVES)]
    found = dict.fromkeys(pending)
    while pending:
        node = pending.pop()
        values = [value for value in (*node.inputs, *node.outputs) if value is not None and _is_half(value.type, _HALVES)]
        for value in values:
            for other in (value.producer, *(reader for reader, _ in value.uses)):
                if other is None or other in found or other.graph is not graph:
                    continue
                if other.op_type in _ON_IMAGES or Trait.ELEMENTWISE in traits(other):
                    found[other] = None
                    pending.append(other)
    return [node for node in graph.nodes if node in found]


def _is_half(type_: Type | None, halves: Collection[DType]) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in halves


def _widen_graph(graph: Graph, nodes: Collection[Node], halves: Collection[DType], version: int | None) -> int:
    changes = 0
    widened: dict[Value, Value] = {}
    casts: list[Node] = []
    version = max_version(graph) if version is None else version
    for node in nodes:
        positions = _positions(node, halves)
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
            casts.append(graph.insert_after(node, _cast(wide, narrow, narrow.type.dtype.onnx, version)))
            widened[narrow] = wide  # as ONNX Runtime has it: between two such nodes nothing is rounded
        changes += 1
    for cast in casts:
        if not cast.outputs[0].uses and cast.outputs[0] not in graph.outputs:
            graph.remove(cast)
    return changes


def _positions(node: Node, halves: Collection[DType]) -> tuple[list[int], list[int]] | None:
    """Which inputs and outputs of a node are to be wide; None: it stays as it is."""
    inputs = [index for index, value in enumerate(node.inputs) if value is not None and _is_half(value.type, halves)]
    found = signature(node.domain, node.op_type, node.version)
    if not inputs or found is None or node.subgraphs():
        return None
    formals = [found.input_at(index) for index in inputs]
    if any(formal is None or dtypes.FLOAT32.name not in found.allowed(formal) for formal in formals):
        return None
    variables = {formal.type for formal in formals if formal is not None}
    outputs = []
    for index, value in enumerate(node.outputs):
        formal = found.output_at(index)
        if formal is not None and formal.type in variables and _is_half(value.type, halves):
            outputs.append(index)
    return inputs, outputs


def _wide(graph: Graph, node: Node, value: Value, version: int) -> Value:
    """A value in float32."""
    assert isinstance(value.type, TensorType)
    constant = value.constant
    if constant is not None and not isinstance(constant, SparseConstant) and is_constant(value, graph):
        name = f"{value.name}_f32"
        while name in graph.initializers:
            name += "_"
        return graph.add_initializer(name, _widened(constant, name))
    wide = Value(f"{value.name}_f32", TensorType(dtypes.FLOAT32, value.type.shape))
    graph.insert_before(node, _cast(value, wide, dtypes.FLOAT32.onnx, version))
    return wide


def _widened(constant: Tensor, name: str) -> Tensor:
    """A constant in float32, converted each time somebody wants its data: a model's weights are never all wide at once."""

    def load() -> memoryview:
        data = np.ascontiguousarray(constant.numpy(), np.float32).reshape(-1)
        release_pages([constant])
        return data.view(np.uint8).data

    origin = origin_of("widened", [constant], ())
    return Tensor(
        dtypes.FLOAT32, constant.shape, load, name=name, origin=origin, derivation=Derivation("widened", (constant,), ())
    )


def _cast(source: Value, target: Value, to: int, version: int) -> Node:
    return Node("Cast", [source], [target], [Attr("to", AttrKind.INT, to)], version=version, name=f"cast_{target.name}")
