"""Sizes that only a run can tell become sizes of a tensor, where they decide how large a result is.

    y = Resize(x, , , Concat(Shape(x)[:2], hw))   =>   t = Shape(ConstantOfShape(hw))
                                                       y = Resize(x, , , Concat(Shape(x)[:2], t))
    y = Resize(x, , Concat([1, 1], s))            =>   y = Resize(x, , s) {axes = [2, 3]}
    y = Slice(x, [0], ReduceMax(n), [1])          =>   t = Shape(ConstantOfShape(<ReduceMax(n), from the front, within x>))
                                                       y = Slice(x, [0], t, [1])

`hw` is fed, or computed from data or in floats. A ConstantOfShape tells its elements in native code and takes no memory; from
there on they are sizes like any other, which shapes and contents are made of: the number of channels, which stood beside them,
stays known. Axes that a Resize leaves alone are not named by it, so that nothing has to be told of them.

Runs when the portable passes are done: another engine would make the tensor. Left alone: what is known, numbers that may be
negative (the shape of a Reshape), the proportions of images that are to be kept, slices in the bodies of loops, where each
iteration would lay its memory out anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

# Which input has the sizes, or numbers of repeats.
_SIZES: Final[Mapping[str, int]] = {"Resize": 3, "Expand": 1, "OneHot": 1, "Split": 1, "Tile": 1}
_SCALES: Final = 2  # of a Resize
# The version from which it stands there.
_SINCE: Final[Mapping[str, int]] = {"Resize": 11, "Expand": 8, "OneHot": 9, "Slice": 10, "Split": 13, "Tile": 6}
_BOUNDS: Final = (1, 2)  # of a Slice: where its axes start and end
_INTEGERS: Final = 13  # the version since which all that clamps positions takes integers
_NAMED_AXES: Final = 18  # the version since which a Resize may have fewer scales than axes
_OLDEST: Final = 9  # the version since which there is a ConstantOfShape


@dataclass(frozen=True)
class BindSizes:
    """Ensures: what data says about the sizes of these results stands in shapes; types are inferred anew then."""

    name: ClassVar[str] = "BindSizes"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(_SINCE)

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
            if node.op_type == "Slice":
                changes += node.graph is model.graph and g.version >= _INTEGERS and _bind_positions(g, node, known)
            elif g.version >= _OLDEST:
                changes += _name_axes(g, node, known) or _bind(g, node, known, bound)
        if changes:
            infer_from_inputs(model)
        return PassResult(changes > 0, (), changes)


def _may_tell(node: Node) -> bool:
    """Whether sizes or scales of a node are computed or fed."""
    if node.domain != ONNX_DOMAIN or node.version < _SINCE.get(node.op_type, node.version + 1):
        return False
    if node.op_type == "Slice":
        return any(value is not None and value.constant is None for value in node.inputs[1:3])
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
    if shape is None or len(shape) > 1 or not all(isinstance(size, int) and size > 0 for size in shape):
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
        sizes = _as_sizes(g, value if shape else g.op("Reshape", value, g.constant(np.ones(1, np.int64), "vector")))
    bound[key] = sizes
    return sizes


def _as_sizes(g: Rewriter, value: Value) -> Value:
    return g.op("Shape", g.op("ConstantOfShape", value, value=np.zeros(1, np.uint8)))


def _bind_positions(g: Rewriter, node: Node, known: ValueTable) -> bool:
    """Make sizes of where a Slice of consecutive elements starts and ends."""
    x, axes, steps = node.inputs[0], _known_numbers(_operand(node, 3), known), _known_numbers(_operand(node, 4), known)
    shape = shape_of(x)
    if x is None or shape is None or (axes is None and _operand(node, 3) is not None):
        return False
    if any(step != 1 for step in steps or ()) or (steps is None and _operand(node, 4) is not None):
        return False
    changed = False
    for position in _BOUNDS:
        value = _operand(node, position)
        count = (shape_of(value) or (0,))[0]
        sliced = axes if axes is not None else tuple(range(count)) if isinstance(count, int) else ()
        if value is None or dtype_of(value) is not dtypes.INT64 or (len(sliced),) != shape_of(value):
            continue
        if len(shape) and all(-len(shape) <= axis < len(shape) for axis in sliced):
            sizes = _bound_positions(g, value, x, [axis % len(shape) for axis in sliced], known)
            if sizes is not None:
                node.set_input(position, sizes)
                changed = True
    return changed


def _known_numbers(value: Value | None, known: ValueTable) -> tuple[int, ...] | None:
    found = None if value is None else known.known_of(value)
    items = None if found is None else found.reshape(-1).tolist()
    return None if items is None or not all(isinstance(item, int) for item in items) else tuple(items)


def _bound_positions(g: Rewriter, value: Value, x: Value, axes: Sequence[int], known: ValueTable) -> Value | None:
    """Positions along axes, counted from the front and within them, known as sizes; None if they are known already."""
    if known.known_of(value) is not None:
        return None
    joined = value.producer
    if joined is not None and joined.op_type == "Concat" and joined.domain == ONNX_DOMAIN:
        parts: list[Value] = []
        for part in joined.inputs:
            length = (shape_of(part) or (None,))[0]
            if part is None or not isinstance(length, int):
                return None
            parts.append(_bound_positions(g, part, x, axes[:length], known) or part)
            axes = axes[length:]
        return g.op("Concat", *parts, axis=0)
    zero = g.constant(np.zeros(1, np.int64), "zero")
    lengths = g.op("Gather", g.op("Shape", x), g.constant(np.array(axes, np.int64), "axes"))
    forwards = g.op("Where", g.op("Less", value, zero), g.op("Add", value, lengths), value)
    return _as_sizes(g, g.op("Max", g.op("Min", forwards, lengths), zero))
