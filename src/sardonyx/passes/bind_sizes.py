"""Sizes that only a run can tell become sizes of a tensor, where they decide how large a result is.

    y = Resize(x, , , Concat(Shape(x)[:2], hw))   =>   t = Shape(ConstantOfShape(hw))
                                                       y = Resize(x, , , Concat(Shape(x)[:2], t))
    y = Resize(x, , Concat([1, 1], s))            =>   y = Resize(x, , s) {axes = [2, 3]}

`hw` is fed, or computed from data or in floats. A ConstantOfShape tells its elements in native code and takes no memory; from
there on they are sizes like any other, which shapes and contents are made of: the number of channels, which stood beside them,
stays known. Axes that a Resize leaves alone are not named by it, so that nothing has to be told of them.

Runs when the portable passes are done: another engine would make the tensor. Left alone: what is known, numbers that may be
negative (the shape of a Reshape), the proportions of images that are to be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.analysis.values import ValueTable
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import Rewriter, all_graphs, dtype_of, shape_of
from sardonyx.records import dataclass

_SIZES: Final[Mapping[str, int]] = {"Resize": 3, "Expand": 1, "Tile": 1}  # which input has the sizes, or numbers of repeats
_SCALES: Final = 2  # of a Resize
_SINCE: Final[Mapping[str, int]] = {"Resize": 11, "Expand": 8, "Tile": 6}  # the version from which it stands there
_NAMED_AXES: Final = 18  # the version since which a Resize may have fewer scales than axes
_OLDEST: Final = 9  # the version since which there is a ConstantOfShape


@dataclass(frozen=True)
class BindSizes:
    """Ensures: what data says about the sizes of these results stands in shapes; types are inferred anew then."""

    name: ClassVar[str] = "BindSizes"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(_SIZES)

    def run(self, model: Model) -> PassResult:
        """Change all graphs."""
        found = [node for graph in all_graphs(model) for node in graph.nodes if _may_tell(node)]
        if not found:
            return PassResult(False)
        known = infer_from_inputs(model).values
        g = Rewriter(model)
        changes = 0
        bound: dict[tuple[Graph | None, Value], Value] = {}
        for node in found:
            g.at(node)
            if g.version >= _OLDEST:
                changes += _name_axes(g, node, known) or _bind(g, node, known, bound)
        if changes:
            infer_from_inputs(model)
        return PassResult(changes > 0, (), changes)


def _may_tell(node: Node) -> bool:
    """Whether sizes or scales of a node are computed or fed."""
    if node.domain != ONNX_DOMAIN or node.version < _SINCE.get(node.op_type, node.version + 1):
        return False
    given = [_operand(node, _SIZES[node.op_type])]
    if node.op_type == "Resize":
        given.append(_operand(node, _SCALES))
        if (attribute_values(node).get("keep_aspect_ratio_policy") or "stretch") != "stretch":
            return False
    return any(value is not None and value.constant is None for value in given)


def _operand(node: Node, position: int) -> Value | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _name_axes(g: Rewriter, node: Node, known: ValueTable) -> bool:
    """Leave out the axes of a Resize whose scale is 1, if the others are joined to these."""
    scales = _operand(node, _SCALES) if node.op_type == "Resize" else None
    joined = scales.producer if scales is not None else None
    x = shape_of(node.inputs[0])
    if joined is None or joined.op_type != "Concat" or joined.domain != ONNX_DOMAIN or x is None:
        return False
    attrs = attribute_values(node)
    if attrs.get("axes") or attrs.get("coordinate_transformation_mode") in ("tf_crop_and_resize", "tf_half_pixel_for_nn"):
        return False
    parts = [value for value in joined.inputs if value is not None]
    first = known.constant_of(parts[0])
    if len(parts) != 2 or first is None or known.constant_of(parts[1]) is not None or not (first == 1).all():
        return False
    if shape_of(parts[1]) != (len(x) - first.size,):
        return False
    inputs = list(node.inputs)
    inputs[_SCALES] = parts[1]
    (made,) = g.clone(node, inputs, axes=tuple(range(first.size, len(x))))
    assert made.producer is not None
    made.producer.version = max(node.version, _NAMED_AXES)
    made.type = node.outputs[0].type
    g.replace(node.outputs[0], made)
    g.discard(node)
    return True


def _bind(g: Rewriter, node: Node, known: ValueTable, bound: dict[tuple[Graph | None, Value], Value]) -> bool:
    """Make sizes of the numbers that a node reads."""
    position = _SIZES[node.op_type]
    value = _operand(node, position)
    if value is None or not value.name:
        return False
    sizes = _bound(g, value, known, bound)
    if sizes is None:
        return False
    node.set_input(position, sizes)
    return True


def _bound(g: Rewriter, value: Value, known: ValueTable, bound: dict[tuple[Graph | None, Value], Value]) -> Value | None:
    """The same numbers as a value has, known as sizes; None if they are known, or cannot be."""
    shape = shape_of(value)
    if known.known_of(value) is not None or dtype_of(value) is not dtypes.INT64:
        return None
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] == 0:
        return None
    key = (g.graph, value)
    if key in bound:
        return bound[key]
    joined = value.producer
    if joined is not None and joined.op_type == "Concat" and joined.domain == ONNX_DOMAIN and joined.graph is g.graph:
        parts = [part if part is None else _bound(g, part, known, bound) or part for part in joined.inputs]
        if tuple(parts) == tuple(joined.inputs):
            return None
        sizes = g.op("Concat", *parts, axis=0)
    else:
        zero = np.zeros(1, np.uint8)
        sizes = g.op("Shape", g.op("ConstantOfShape", value, value=zero))
    bound[key] = sizes
    return sizes
