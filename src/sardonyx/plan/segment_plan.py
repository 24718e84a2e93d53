"""The segments of a native plan by numbers (see `program.segments`): nothing in them leads back to the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sardonyx import errors
from sardonyx.ir.dims import Dim, symbols_of
from sardonyx.ir.graph import Graph, Node, SparseConstant, Value, captured_values, is_constant
from sardonyx.plan import native
from sardonyx.plan.native import NativePlan
from sardonyx.program.calls import BodyNode
from sardonyx.program.segments import (
    CONSTANT,
    OMITTED,
    VALUE,
    VIEW,
    BoundView,
    CallOutput,
    CallSegment,
    ProgramInput,
    Segment,
    SegmentOperand,
    SegmentPlan,
    Sizes,
    SizeSegment,
    StepSegment,
)
from sardonyx.program.steps import Address, HostNodeStep, SizeStep, Storage, View


class Numbered(NamedTuple):
    """A plan by numbers, and what some of the numbers stand for."""

    plan: SegmentPlan
    calls: tuple[Node, ...]  # the nodes that Python computes
    constants: tuple[Value, ...]  # those that only Python reads


def captured_inputs(graph: Graph) -> list[Value]:
    """The values of the graphs around that a subgraph must be given: all it reads but constants."""
    return [value for value in captured_values(graph) if not is_constant(value, graph)]


def captured_by(node: Node) -> list[Value]:
    """What the subgraphs of a node must be given, each value once."""
    return list(dict.fromkeys(value for graph in node.subgraphs() for value in captured_inputs(graph)))


def body_of(graph: Graph, outer: Mapping[Value, int]) -> tuple[BodyNode, list[Value]]:
    """A subgraph seen from its node, given the positions of what that captures; and the values it must itself be given."""
    captured = captured_inputs(graph)
    types = tuple(value.type for value in graph.inputs), graph.output_types
    return BodyNode(graph.name, *types, tuple(outer[value] for value in captured)), captured


def graphs_of(node: Node) -> dict[str, Graph]:
    """The subgraphs of a node by the names of their attributes."""
    return {attr.name: attr.value for attr in node.attrs.values() if isinstance(attr.value, Graph)}


def segment_plan(plan: NativePlan, inputs: Sequence[Value], outputs: Sequence[Value], *, defaults: bool = True) -> Numbered:
    """Number what a plan does for these inputs and outputs of its graph; with `defaults`, inputs that are constants may be left
    out."""
    return _Numbering(plan, inputs).numbered(outputs, defaults=defaults)


class _Numbering:
    """Values and constants under construction."""

    def __init__(self, plan: NativePlan, inputs: Sequence[Value]) -> None:
        self._plan = plan
        self._inputs = inputs
        self._buffers = {buffer: number for number, buffer in enumerate(plan.buffers)}
        self._dims = {dim: number for number, dim in enumerate(plan.dims)}
        self._symbols = {name: number for number, name in enumerate(plan.symbols)}
        self._held = {value: number for number, value in enumerate(inputs)}  # what lies in the frame for all to read
        self._count = len(inputs)
        self._constants: dict[Value, int] = {}
        self._calls: list[Node] = []

    def numbered(self, outputs: Sequence[Value], *, defaults: bool) -> Numbered:
        given = [
            ProgramInput(value.name, self._constant(value) if defaults and value.constant is not None else -1)
            for value in self._inputs
        ]
        native_inputs = tuple(self._held[_value_of(view)] for view in self._plan.inputs)
        segments = tuple(self._segment(segment) for segment in self._plan.segments)
        written: dict[Value, int] = {}
        for view in self._plan.outputs:
            value = _value_of(view)
            written[value] = self._held[value] if value in self._held else self._new()
        known = {**self._held, **written}
        # A sparse constant is given out by itself: native code would write what callers do not get, a dense array.
        results = tuple(
            SegmentOperand(CONSTANT, self._constant(value))
            if value not in known or isinstance(value.constant, SparseConstant)
            else SegmentOperand(VALUE, known[value])
            for value in outputs
        )
        made = SegmentPlan(tuple(given), self._count, native_inputs, tuple(written.values()), results, segments)
        return Numbered(made, tuple(self._calls), tuple(self._constants))

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _constant(self, value: Value) -> int:
        if value.constant is None:
            raise errors.EngineError(f"nothing computes {value.name!r}")
        return self._constants.setdefault(value, len(self._constants))

    def _numbers(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(self._dims[dim] for dim in dims)

    def _bound_view(self, view: View) -> BoundView:
        buffer, number = view.buffer, self._buffers[view.buffer]
        shape, strides, offset = self._numbers(view.shape), self._numbers(view.strides), self._dims[view.offset]
        is_constant = buffer.storage is Storage.CONSTANT
        return BoundView(number, buffer.dtype.numpy, is_constant, shape, strides, offset, self._plan.sizes[number])

    def _operand(self, value: Value | None, view: View | None) -> SegmentOperand:
        if value is None:
            return SegmentOperand(OMITTED)
        if value in self._held:
            return SegmentOperand(VALUE, self._held[value])
        return (
            SegmentOperand(CONSTANT, self._constant(value)) if view is None else SegmentOperand(VIEW, -1, self._bound_view(view))
        )

    def _segment(self, segment: native.NativeSegment | HostNodeStep | SizeStep) -> Segment:
        if isinstance(segment, native.NativeSegment):
            return StepSegment(segment.first, segment.count, self._symbols_of(segment))
        if isinstance(segment, SizeStep):
            return SizeSegment(self._buffers[segment.counts], Sizes(segment.counts.label, self._numbers(segment.sizes)))
        node, views = segment.node, dict(segment.captured)
        inputs = tuple(self._operand(value, view) for value, view in zip(node.inputs, segment.inputs))
        captured = tuple(self._operand(value, views.get(value)) for value in captured_by(node))
        outputs: list[CallOutput] = []
        for value, view in zip(node.outputs, segment.outputs):
            if not value.name:
                outputs.append(CallOutput(-1))
                continue
            number = self._held[value] = self._new()
            if view is None:
                outputs.append(CallOutput(number))
            else:
                sizes = Sizes(view.buffer.label, self._numbers(view.shape))
                outputs.append(CallOutput(number, self._buffers[view.buffer], sizes))
        self._calls.append(node)
        return CallSegment(len(self._calls) - 1, inputs, captured, tuple(outputs))

    def _symbols_of(self, segment: native.NativeSegment) -> tuple[int, ...]:
        """The symbols that must be known before a segment runs."""
        sizes: set[Dim] = set()
        for step in self._plan.steps[segment.first : segment.first + segment.count]:
            sizes |= {step.units, *(entry.offset if isinstance(entry, Address) else entry for entry in step.arguments)}
            sizes |= {buffer.size for buffer in (*step.reads, *step.writes)}
        return tuple(sorted({self._symbols[name] for size in sizes for name in symbols_of(size)}))


def _value_of(view: View) -> Value:
    assert view.buffer.value is not None
    return view.buffer.value
