"""Replace small integer tensors whose elements are known from shapes, and the shapes of Reshape where they can be written down.

    s = Concat(Gather(Shape(x: f32[N,4,8]), 1), [-1])           =>   const s = [4, -1]
    y = Reshape(x: f32[N,S,768], Concat(.., ..) = (N, S, 12, 64))   =>   Reshape(x, [0, 0, 12, 64])
    s = Shape(x: f32[N,4]); t = Shape(y: f32[N,4])                  =>   readers of t read s

Infers all types and contents anew, from the types of the inputs alone: what a model claims about its intermediate values may be
wrong and is not relied on by any pass. Elements that are expressions of sizes stay computed, but equal ones only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, Final

import numpy as np

from sardonyx.analysis.shapes import ShapeReport, infer_shapes
from sardonyx.analysis.value_rules import Known
from sardonyx.ir.dims import Dim, is_nonnegative
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.protocol import PassResult, Reject
from sardonyx.passes.rewriter import Rewriter, all_graphs
from sardonyx.records import dataclass

_RESHAPE_FROM: Final = 5  # the opset version since which Reshape takes its shape as an input


def infer_from_inputs(model: Model) -> ShapeReport:
    """Set the types of all values by what follows from the inputs of the model; shapes the model claims are forgotten."""
    graphs = all_graphs(model)
    claimed = [value for graph in graphs for node in graph.nodes for value in node.outputs]
    claimed.extend(value for graph in graphs[1:] for value in graph.inputs[control_inputs(graph) :] if value.constant is None)
    for value in claimed:
        if isinstance(value.type, TensorType):
            value.type = TensorType(value.type.dtype, None)
    return infer_shapes(model)


def control_inputs(graph: Graph) -> int:
    """How many inputs of a body have the types it states.

    A Loop's body says itself whether it takes number and condition as vectors.
    """
    node = graph.parent_node
    if node is not None and Trait.STATES_BODIES in traits(node):
        return len(graph.inputs)
    return 2 if node is not None and node.op_type == "Loop" and node.domain == ONNX_DOMAIN else 0


@dataclass(frozen=True)
class FoldShapeValues:
    """Known contents become constants; ensures types that hold."""

    name: ClassVar[str] = "FoldShapeValues"
    ort_names: ClassVar[tuple[str, ...]] = ("ReshapeFusion",)
    report: ShapeReport | None = field(default=None, compare=False, repr=False)  # of the model as it is; None: not inferred yet

    def run(self, model: Model) -> PassResult:
        """Change all graphs; bodies of loops too, where what is known holds for every iteration."""
        report = self.report or infer_from_inputs(model)
        g = Rewriter(model)
        changes = 0
        reasons: list[str] = []
        for graph in g.graphs():
            computed: dict[tuple[object, ...], Value] = {}
            for node in graph.nodes:
                g.at(node)
                if node.op_type == "Reshape" and node.domain == ONNX_DOMAIN and node.version >= _RESHAPE_FROM:
                    outcome = _write_shape(g, node, report)
                    changes += outcome is True
                    if isinstance(outcome, Reject):
                        reasons.append(f"{node.label}: {outcome.reason}")
                changes += sum(_fold(g, value, report, computed) for value in node.outputs)
        return PassResult(changes > 0, tuple(reasons), changes)


def _fold(g: Rewriter, value: Value, report: ShapeReport, computed: dict[tuple[object, ...], Value]) -> bool:
    """Replace a value whose elements are known: by a constant, or by one of `computed` with the same elements.

    Its producer goes if nothing else keeps it.
    """
    node = value.producer
    if node is None or node.op_type == "Constant" or not value.uses or g.is_output(value):
        return False
    if Trait.WIDENS in traits(node):  # quantized constants stay packed, whole numbers too
        return False
    known = report.values.known_of(value)
    if known is None or not isinstance(value.type, TensorType):
        return False
    if not all(isinstance(item, int) for item in known.reshape(-1)):
        key = (value.type.dtype, known.shape, *known.reshape(-1))
        first = computed.get(key)
        if first is None or first.producer is None or first.producer.graph is None:  # nothing yet, or gone in the meantime
            computed[key] = value
            return False
        if not g.can_replace(value, first):
            return False
        g.replace(value, first)
        g.discard(node)
        return True
    data = np.asarray(known.tolist(), value.type.dtype.numpy).reshape(known.shape)
    g.replace(value, g.constant(data, value.name or node.op_type))
    g.discard(node)
    return True


def _write_shape(g: Rewriter, node: Node, report: ShapeReport) -> bool | Reject:
    """Give a Reshape a literal shape; False if it has one."""
    data, shape = node.inputs[0], node.inputs[1]
    if data is None or shape is None or shape.constant is not None or data.shape is None:
        return False
    known = report.values.known_of(shape)
    if known is None:
        return False
    target = literal_shape(data.shape, known, bool(node.attr("allowzero", 0)))
    if isinstance(target, Reject):
        return target
    node.attrs.pop("allowzero", None)
    node.set_input(1, g.constant(np.array(target, np.int64), "shape"))
    if shape.producer is not None:
        g.discard(shape.producer)
    return True


def literal_shape(given: Sequence[Dim], wanted: Known | Sequence[Dim], allowzero: bool = True) -> list[int] | Reject:
    """A shape for Reshape (without allowzero) that means `wanted` for a tensor of shape `given`, whatever the sizes are.

    0 copies the size at the same position, and one size may be left to be computed, if no other size can be zero: otherwise it
    could be anything. An element of `wanted` may be -1; with `allowzero` a 0 in it is an empty dimension. Without, a size that
    turns out to be zero means that of the input, and no literal says the same.
    """
    target: list[int] = []
    inferred_dims = 0
    for index, dim in enumerate(np.asarray(wanted, dtype=object).reshape(-1)):
        copied = index < len(given) and given[index] == dim
        if isinstance(dim, int) and dim == 0 and not allowzero:
            target.append(0)  # copies already
        elif isinstance(dim, int) and dim != 0:
            target.append(dim)
            inferred_dims += dim == -1
        elif copied:
            target.append(0)
        else:
            target.append(-1)
            inferred_dims += 1
    if inferred_dims > 1:
        return Reject("more than one size is computed: a literal shape has room for one")
    if inferred_dims and any(size == 0 for size in target) and not _has_inferred_dim(wanted):
        return Reject("a size is computed and another one may be zero: the shape would not be unique")
    if not allowzero and may_mean_another(given, wanted):
        return Reject("a size may turn out to be zero, which means the size of the input")
    return target


def may_mean_another(given: Sequence[Dim], wanted: Known | Sequence[Dim]) -> bool:
    """Whether a computed size of a Reshape's target could be zero, which stands for another size of the input."""
    return any(
        not isinstance(dim, int) and not is_nonnegative(dim - 1) and (index >= len(given) or given[index] != dim)
        for index, dim in enumerate(np.asarray(wanted, dtype=object).reshape(-1))
    )


def _has_inferred_dim(wanted: Known | Sequence[Dim]) -> bool:
    return any(isinstance(dim, int) and dim == -1 for dim in np.asarray(wanted, dtype=object).reshape(-1))
