"""Sizes that only a run can tell become sizes of a tensor, where they decide how large a result is.

    y = Resize(x, , , Concat(Shape(x)[:2], hw))   =>   t = Shape(ConstantOfShape(hw))
                                                       y = Resize(x, , , Concat(Shape(x)[:2], t))
    y = Resize(x, , Concat([1, 1], s))            =>   y = Resize(x, , s) {axes = [2, 3]}
    y = Slice(x, [0], ReduceMax(n), [1])          =>   t = Shape(ConstantOfShape(<ReduceMax(n), from the front, within x>))
                                                       y = Slice(x, [0], t, [1])
    y = Reshape(x, s)                             =>   t = Shape(ConstantOfShape(<s, with -1 and 0 worked out>))
                                                       y = Reshape(x, t) {allowzero = 1}
    y = Pad(x, p)                                 =>   t = Shape(ConstantOfShape(Max(Concat(p, -p), 0)))
                                                       y = Pad(x, t[:n] - t[n:])

`hw` is fed, or computed from data or in floats. A ConstantOfShape tells its elements in native code and takes no memory; from
there on they are sizes like any other, which shapes and contents are made of: the number of channels, which stood beside them,
stays known. Axes that a Resize leaves alone are not named by it, so that nothing has to be told of them.

Runs when the portable passes are done: another engine would make the tensor. Left alone: what is known, the proportions of images
that are to be kept, and in the bodies of loops, where each iteration would lay its memory out anew, slices, shapes and pads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_SINCE: Final[Mapping[str, int]] = {
    "Resize": 11, "Expand": 8, "OneHot": 9, "Pad": 11, "Reshape": 5, "Slice": 10, "Split": 13, "Tile": 6,
}  # fmt: skip
_BOUNDS: Final = (1, 2)  # of a Slice: where its axes start and end
_INTEGERS: Final = 13  # the version since which all that clamps positions takes integers
_NAMED_AXES: Final = 18  # the version since which a Resize may have fewer scales than axes
_ALLOWS_ZERO: Final = 14  # the version since which a Reshape may take a size of 0 for what it is
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
            if node.op_type in _SIGNED:
                changes += node.graph is model.graph and g.version >= _INTEGERS and _SIGNED[node.op_type](g, node, known)
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
    given = [_operand(node, _SIZES.get(node.op_type, 1))]
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


def _bind_shape(g: Rewriter, node: Node, known: ValueTable) -> bool:
    """Make sizes of the shape of a Reshape. What stands for no size, as a second -1, stays negative and is refused in the run."""
    x, value = node.inputs[0], _operand(node, 1)
    shape, length = shape_of(x), shape_of(value)
    if x is None or value is None or shape is None or not _is_data_dependent(value, known) or length is None or length[0] == 0:
        return False
    zero, one, open_ = (g.constant(np.array([number], np.int64), "number") for number in (0, 1, -1))
    sizes, given = g.op("Shape", x), value
    if not attribute_values(node).get("allowzero"):
        count = int(str(length[0]))
        same = [axis if axis < len(shape) else len(shape) for axis in range(count)]
        padded = g.op("Concat", sizes, open_, axis=0)  # an axis that the input has not
        ours = g.op("Gather", padded, g.constant(np.array(same, np.int64), "axes"))
        given = g.op("Where", g.op("Equal", value, zero), ours, value)
    is_open = g.op("Equal", value, open_)
    product = g.op("ReduceProd", g.op("Where", is_open, one, given), keepdims=1)
    rest = g.op("Div", g.op("ReduceProd", sizes, keepdims=1), g.op("Max", product, one))
    opens = g.op("ReduceSum", g.op("Cast", is_open, to=dtypes.INT64.onnx), keepdims=1)
    is_whole = g.op("And", g.op("Equal", opens, one), g.op("Greater", product, zero))
    bound = _as_sizes(g, g.op("Where", g.op("And", is_open, is_whole), rest, given))
    (made,) = g.clone(node, [x, _with_known_parts(g, value, bound, known)], allowzero=1)
    assert made.producer is not None
    made.producer.version = max(node.version, _ALLOWS_ZERO)
    g.replace(node.outputs[0], made)
    g.discard(node)
    return True


def _with_known_parts(g: Rewriter, value: Value, bound: Value, known: ValueTable) -> Value:
    """Sizes that were told, with those in their place that were known before, as the number of channels, in a joined shape."""
    joined = value.producer
    if joined is None or joined.op_type != "Concat" or joined.domain != ONNX_DOMAIN:
        return bound
    parts: list[Value] = []
    first = 0
    for part in joined.inputs:
        length = (shape_of(part) or (None,))[0]
        if part is None or not isinstance(length, int):
            return bound
        numbers = _known_numbers(part, known)
        which = g.constant(np.arange(first, first + length), "which")
        parts.append(part if numbers and min(numbers) > 0 else g.op("Gather", bound, which))
        first += length
    return g.op("Concat", *parts, axis=0)


def _bind_pads(g: Rewriter, node: Node, known: ValueTable) -> bool:
    """Make sizes of what a Pad puts around its input, or takes away from it."""
    value = _operand(node, 1)
    if value is None or shape_of(node.inputs[0]) is None or not _is_data_dependent(value, known):
        return False
    axes = _operand(node, 3)
    count = int(str((shape_of(value) or (0,))[0]))
    if count == 0 or (axes is not None and _known_numbers(axes, known) is None):
        return False
    both = g.op("Concat", value, g.op("Neg", value), axis=0)  # told at once
    sizes = _as_sizes(g, g.op("Max", both, g.constant(np.zeros(1, np.int64), "zero")))
    put, taken = (g.op("Gather", sizes, g.constant(np.arange(count) + first, "which")) for first in (0, count))
    node.set_input(1, g.op("Sub", put, taken))
    return True


def _is_data_dependent(value: Value, known: ValueTable) -> bool:
    """Whether a few whole numbers are known in the run only."""
    shape = shape_of(value)
    is_vector = shape is not None and len(shape) == 1 and isinstance(shape[0], int)
    return is_vector and known.known_of(value) is None and dtype_of(value) is dtypes.INT64


# Operators that read numbers which may be negative.
_SIGNED: Final[Mapping[str, Callable[[Rewriter, Node, ValueTable], bool]]] = {
    "Pad": _bind_pads,
    "Reshape": _bind_shape,
    "Slice": _bind_positions,
}
