"""What a graph demands of the contents of its inputs.

    ids -> Cast -> Gather(table: f32[97,32])      ->  whole numbers from 0 to 96
    colour -> OneHotEncoder(cats = red, green)    ->  "red" or "green"
    sr -> Equal(16000)                            ->  16000
    shape -> Reshape(x: f32[2,6], shape)          ->  (0, -1): the shape of x stays as it is

Each input is followed through nodes that move its elements without changing them, to the nodes that care what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.analysis.shapes import ShapeReport
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.records import dataclass

_MOVING: Final = {  # operators whose output consists of elements of the input at these positions
    "Cast": (0,), "Identity": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Reshape": (0,), "Flatten": (0,), "Transpose": (0,),
    "Slice": (0,), "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "Expand": (0,), "Tile": (0,), "Split": (0,),
    "Concat": None,
    "ArrayFeatureExtractor": (0,), "Where": (1, 2), "Dropout": (0,), "StringNormalizer": (0,), "Clip": (0,),
}  # fmt: skip
_DEEPEST: Final = 12
_MANY: Final = 1 << 30


@dataclass(frozen=True)
class Content:
    """What an input may hold: one of some values, whole numbers below a bound, or exactly these."""

    choices: tuple[Any, ...] = ()
    below: int = 0  # 0: no bound
    exact: tuple[Any, ...] | None = None
    columns: Mapping[int, Content] = field(
        default_factory=dict
    )  # what the columns of a table may hold that are read by themselves


def demanded_contents(inputs: Sequence[Value], report: ShapeReport) -> dict[str, Content]:
    """What the readers of each input demand, for inputs whose readers do. `report` has the types of all values."""
    found: dict[str, Content] = {}
    for value in inputs:
        content = _merged(list(_demands(value, report, 0)))
        columns: dict[int, list[Content]] = {}
        for node, column in _column_readers(value, report):
            columns.setdefault(column, []).extend(_demands(node.outputs[0], report, 1))
        by_column = {column: merged for column, demands in columns.items() if (merged := _merged(demands)) is not None}
        if content is not None or by_column:
            found[value.name] = replace(content or Content(), columns=by_column)
    return found


def _column_readers(value: Value, report: ShapeReport) -> Iterator[tuple[Node, int]]:
    """The nodes that take one column out of a table, and which."""
    for node, index in list(value.uses):
        indices = _input(node, 1) if index == 0 and node.op_type in ("Gather", "ArrayFeatureExtractor") else None
        constant = None if indices is None else report.values.constant_of(indices)
        if constant is None or constant.size != 1:
            continue
        if node.op_type == "ArrayFeatureExtractor" or node.attr("axis", 0) in (1, -1):
            yield node, int(constant.reshape(-1)[0])


def _merged(demands: list[Content]) -> Content | None:
    exact = next((each for each in demands if each.exact is not None), None)
    if exact is not None:
        return exact
    choices = [each for each in demands if each.choices]
    bounds = [each.below for each in demands if each.below]
    if choices:
        common = set(choices[0].choices).intersection(*(each.choices for each in choices[1:]))
        kept = tuple(item for item in choices[0].choices if item in common) or choices[0].choices
        return Content(choices=kept)
    return Content(below=min(bounds)) if bounds else None


def _demands(value: Value, report: ShapeReport, depth: int) -> Iterator[Content]:
    for node, index in list(value.uses):
        demand = _DEMANDS.get((node.op_type, index))
        if demand is None and node.op_type.startswith("Reduce") and index == 1:
            demand = _axes
        if demand is not None:
            content = demand(node, value, report)
            if content is not None:
                yield content
        positions = _MOVING.get(node.op_type, ())
        if (positions is None or index in positions) and depth < _DEEPEST:
            for output in node.outputs:
                yield from _demands(output, report, depth + 1)


def _shape(value: Value | None, report: ShapeReport) -> tuple[int, ...] | None:
    type_ = None if value is None else report.types.get(value) or value.type
    if not isinstance(type_, TensorType) or type_.shape is None or not all(isinstance(dim, int) for dim in type_.shape):
        return None
    return tuple(int(dim) for dim in type_.shape)  # type: ignore[arg-type]


def _count(value: Value, report: ShapeReport) -> int:
    shape = _shape(value, report)
    return 1 if shape is None else int(np.prod(shape))


def _input(node: Node, index: int) -> Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _indices(node: Node, value: Value, report: ShapeReport) -> Content | None:
    """Below the size of the axis that is indexed."""
    shape = _shape(_input(node, 0), report)
    axis = int(attribute_values(node).get("axis", 0) or 0)
    return None if not shape or not -len(shape) <= axis < len(shape) else Content(below=max(shape[axis], 1))


def _many_indices(node: Node, value: Value, report: ShapeReport) -> Content | None:
    """Below the smallest of the axes that one vector indexes together."""
    shape = _shape(_input(node, 0), report)
    return Content(below=max(min(shape), 1)) if shape else None


def _rows_of(table: int) -> Callable[[Node, Value, ShapeReport], Content | None]:
    """Below the number of rows of another input."""

    def demand(node: Node, value: Value, report: ShapeReport) -> Content | None:
        shape = _shape(_input(node, table), report)
        return Content(below=max(shape[0], 1)) if shape else None

    return demand


def _categories(node: Node, value: Value, report: ShapeReport) -> Content | None:
    names = ("cats_strings", "cats_int64s", "keys_strings", "keys_int64s", "keys_floats", "classes_strings", "keys_tensor")
    for name in names:
        listed = node.attr(name)
        if name == "keys_tensor" and listed is not None:
            listed = listed.numpy().reshape(-1).tolist()
        if listed:
            return Content(choices=tuple(each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in listed))
    return None


def _compared(node: Node, value: Value, report: ShapeReport) -> Content | None:
    """What a single number or string is compared with decides what is computed."""
    if _count(value, report) != 1:
        return None
    for other in node.inputs:
        constant = None if other is None or other is value else report.values.constant_of(other)
        if constant is not None and constant.size == 1:
            return Content(choices=(constant.reshape(-1)[0],))
    return None


def _filled(number: int) -> Callable[[Node, Value, ShapeReport], Content | None]:
    """This number everywhere."""
    return lambda node, value, report: Content(exact=(number,) * _count(value, report))


def _axes(node: Node, value: Value, report: ShapeReport) -> Content | None:
    return Content(exact=tuple(range(_count(value, report))))


def _same_shape(node: Node, value: Value, report: ShapeReport) -> Content | None:
    """The shape of the first input, as far as it reaches; 0 and -1 would do for a Reshape, but not for others."""
    shape, count = _shape(_input(node, 0), report), _count(value, report)
    if shape is None:
        return None
    if node.op_type == "Reshape":
        return Content(exact=(-1,) + (1,) * (count - 1)) if count != len(shape) else Content(exact=shape)
    return Content(exact=((1,) * count + shape)[-count:] if count else ())


def _equal_parts(node: Node, value: Value, report: ShapeReport) -> Content | None:
    shape, count = _shape(_input(node, 0), report), _count(value, report)
    axis = int(attribute_values(node).get("axis", 0) or 0)
    if not shape or not count or not -len(shape) <= axis < len(shape):
        return None
    part = shape[axis] // count
    return Content(exact=(part,) * (count - 1) + (shape[axis] - part * (count - 1),))


def _depth(node: Node, value: Value, report: ShapeReport) -> Content | None:
    constant = None if _input(node, 1) is None else report.values.constant_of(node.inputs[1])  # type: ignore[arg-type]
    return None if constant is None or constant.size != 1 else Content(below=max(int(constant.reshape(-1)[0]), 1))


_DEMANDS: Final[dict[tuple[str, int], Callable[[Node, Value, ShapeReport], Content | None]]] = {
    ("Gather", 1): _indices, ("GatherElements", 1): _indices, ("ScatterElements", 1): _indices, ("Scatter", 1): _indices,
    ("GatherND", 1): _many_indices, ("ScatterND", 1): _many_indices, ("ArrayFeatureExtractor", 1): _many_indices,
    ("EmbedLayerNormalization", 0): _rows_of(2), ("EmbedLayerNormalization", 1): _rows_of(4),
    ("GatherBlockQuantized", 1): _indices,
    ("OneHot", 0): _depth, ("OneHot", 1): _filled(4),
    ("OneHotEncoder", 0): _categories, ("LabelEncoder", 0): _categories, ("CategoryMapper", 0): _categories,
    ("Equal", 0): _compared, ("Equal", 1): _compared,
    ("Reshape", 1): _same_shape, ("Expand", 1): _same_shape, ("Resize", 3): _same_shape,
    ("Tile", 1): _filled(1), ("ConstantOfShape", 0): _filled(2), ("TopK", 1): _filled(1), ("Pad", 1): _filled(0),
    ("CumSum", 1): _filled(0),
    ("Slice", 1): _filled(0), ("Slice", 2): _filled(_MANY), ("Slice", 3): _axes, ("Slice", 4): _filled(1),
    ("Unsqueeze", 1): _axes, ("Squeeze", 1): _axes, ("Split", 1): _equal_parts, ("Trilu", 1): _filled(0),
    ("Resize", 2): _filled(1), ("Upsample", 1): _filled(1), ("Loop", 0): _filled(2), ("Loop", 1): _filled(1),
    ("If", 0): _filled(1),
    ("Range", 0): _filled(0), ("Range", 1): _filled(4), ("Range", 2): _filled(1),
}  # fmt: skip
