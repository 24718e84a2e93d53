"""What the body of a Loop or Scan takes and gives in each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that an iteration hands on to the next one."""

    taken: Value
    given: Value

    @property
    def is_fixed(self) -> bool:
        """Whether every iteration hands on just what it was given."""
        return self.taken is self.given


@dataclass(frozen=True, slots=True)
class Slices:
    """A part of the body that goes along an axis: an input of a Scan, or a stacked result."""

    value: Value
    axis: int
    backwards: bool


@dataclass(frozen=True, slots=True)
class LoopBody:
    """A Loop (its body has a counter) or Scan, seen from its body."""

    body: Graph
    starts: tuple[Value | None, ...]  # what the first iteration is handed
    series: tuple[Value | None, ...]  # what iterations take in slices
    counter: Value | None  # takes the number of the iteration
    going: Value | None  # takes whether the iteration takes place
    condition: Value | None  # gives whether another one follows; None: always
    carried: tuple[Carried, ...]
    sliced: tuple[Slices, ...]
    stacked: tuple[Slices | None, ...]  # None: nobody asks for the result

    @property
    def made(self) -> list[Value]:
        """The values an iteration must compute, each once."""
        wanted = [carried.given for carried in self.carried if not carried.is_fixed]
        wanted += [slices.value for slices in self.stacked if slices is not None]
        if self.condition is not None:
            wanted.append(self.condition)
        return list(dict.fromkeys(wanted))


def loop_body_of(node: Node) -> LoopBody | None:
    """The body of a loop; None if it is no loop, or one whose numbers of inputs and outputs do not fit together."""
    if node.domain != ONNX_DOMAIN:
        return None
    if node.op_type == "Loop":
        return _loop(node)
    return _scan(node) if node.op_type == "Scan" and node.version >= 9 else None  # those before have an axis for batches


def _loop(node: Node) -> LoopBody | None:
    body = attribute_values(node).get("body")
    if not isinstance(body, Graph):
        return None
    count = max(len(node.inputs) - 2, 0)
    results = node.outputs[count:]
    if len(node.outputs) < count or len(body.inputs) != 2 + count or len(body.outputs) < 1 + count + len(results):
        return None
    counter, going, *taken = body.inputs
    condition, *given = body.outputs
    return LoopBody(
        body,
        tuple(node.inputs[2:]),
        (),
        counter,
        going,
        None if _is_true(condition, body) else condition,
        tuple(map(Carried, taken, given)),
        (),
        tuple(Slices(value, 0, False) if result.name else None for value, result in zip(given[count:], results)),
    )


def _is_true(condition: Value, body: Graph) -> bool:
    """Whether the condition for another iteration holds in every iteration: it held for this one, or is a constant."""
    if condition in body.inputs:
        return condition is body.inputs[1]
    constant = condition.constant if condition in body.initializers.values() else None
    return isinstance(constant, Tensor) and constant.size == 1 and bool(constant.numpy().reshape(())[()])


def _scan(node: Node) -> LoopBody | None:
    attrs = attribute_values(node)
    body, slice_count = attrs.get("body"), attrs.get("num_scan_inputs")
    if not isinstance(body, Graph) or not isinstance(slice_count, int) or not 0 < slice_count <= len(node.inputs):
        return None
    count = len(node.inputs) - slice_count
    results = node.outputs[count:]
    if len(node.outputs) < count or len(body.inputs) != len(node.inputs) or len(body.outputs) < len(node.outputs):
        return None
    sliced = _slices(body.inputs[count:], attrs.get("scan_input_axes"), attrs.get("scan_input_directions"))
    given = body.outputs[count : len(node.outputs)]
    stacked = _slices(given, attrs.get("scan_output_axes"), attrs.get("scan_output_directions"))
    if sliced is None or stacked is None:
        return None
    return LoopBody(
        body,
        tuple(node.inputs[:count]),
        tuple(node.inputs[count:]),
        None,
        None,
        None,
        tuple(map(Carried, body.inputs[:count], body.outputs)),
        tuple(sliced),
        tuple(slices if result.name else None for slices, result in zip(stacked, results)),
    )


def _slices(values: Sequence[Value], axes: Any, directions: Any) -> list[Slices] | None:
    """The values with their axes and directions; None if there are not as many of those as values."""
    axes = (0,) * len(values) if axes is None else axes
    directions = (0,) * len(values) if directions is None else directions
    if len(axes) != len(values) or len(directions) != len(values):
        return None
    return [Slices(value, axis, bool(back)) for value, axis, back in zip(values, axes, directions)]
