"""Graph -> plan: every value gets a slot, every node a step of the provider that claims it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.ir.graph import Graph, Node, SparseConstant, Value, captured_values
from sardonyx.ir.types import SparseTensorType, Type
from sardonyx.plan.plan import OMITTED, Constant, ExecutionPlan, HostStep, Port, schedule
from sardonyx.records import dataclass

StepMaker = Callable[[Node, Sequence[int], Sequence[int], Mapping[str, ExecutionPlan]], HostStep]
Order = Callable[[Graph], Sequence[Node]]


def build_plan(graph: Graph, make_step: StepMaker, order: Order, enclosing: Mapping[Value, int] | None = None) -> ExecutionPlan:
    """The plan of a graph and, inside its steps, of all subgraphs. `enclosing` maps the outer graph's values to slots."""
    slots: dict[Value, int] = {}

    def slot_of(value: Value) -> int:
        return slots.setdefault(value, len(slots))

    inputs = tuple(slot_of(value) for value in graph.inputs)
    constants = tuple((slot_of(value), Constant(_loader(value))) for value in graph.initializers.values())
    captured = captured_values(graph) if enclosing is not None else []
    captures = tuple((enclosing[value], slot_of(value)) for value in captured) if enclosing is not None else ()
    nodes = order(graph)
    for node in nodes:
        for value in node.outputs:
            slot_of(value)
    steps = tuple(_step(node, slots, make_step, order) for node in nodes)
    outputs = tuple(slots[value] for value in graph.outputs)
    input_ports, output_ports, overridable = ports_of(graph)
    return ExecutionPlan(
        graph.name,
        len(slots),
        inputs,
        outputs,
        steps,
        constants,
        captures,
        schedule(steps, constants, outputs),
        {value.name: slot for value, slot in slots.items() if value.name},
        input_ports,
        output_ports,
        overridable,
    )


def ports_of(graph: Graph) -> tuple[tuple[Port, ...], tuple[Port, ...], tuple[Port, ...]]:
    """What must be fed, what comes out, and the weights that a feed may replace."""
    fed = [Port(value.name, value.type) for value in graph.inputs if value.name not in graph.initializers]
    replaceable = [Port(value.name, value.type) for value in graph.inputs if value.name in graph.initializers]
    given = [Port(value.name, _given_type(value, type_)) for value, type_ in zip(graph.outputs, graph.output_types)]
    return tuple(fed), tuple(given), tuple(replaceable)


def _given_type(value: Value, stated: Type | None) -> Type | None:
    """The type of a graph's output: constants that the file holds as sparse tensors come out as those."""
    if isinstance(value.constant, SparseConstant):
        return SparseTensorType(value.constant.values.dtype, value.constant.shape)
    return stated


@dataclass(frozen=True)
class BodyPlan:
    """The plan of a subgraph on its own: `captured` are the outer values it reads, in the order its captures number them."""

    plan: ExecutionPlan
    captured: tuple[Value, ...]


def build_body(graph: Graph, make_step: StepMaker, order: Order) -> BodyPlan:
    """The plan of a subgraph that is run by itself."""
    captured = tuple(captured_values(graph))
    return BodyPlan(build_plan(graph, make_step, order, {value: number for number, value in enumerate(captured)}), captured)


def _step(node: Node, slots: dict[Value, int], make_step: StepMaker, order: Order) -> HostStep:
    bodies = {
        attr.name: build_plan(attr.value, make_step, order, slots)
        for attr in node.attrs.values()
        if isinstance(attr.value, Graph)
    }
    inputs = [OMITTED if value is None else slots[value] for value in node.inputs]
    outputs = [slots[value] if value.name else OMITTED for value in node.outputs]
    return make_step(node, inputs, outputs, bodies)


def _loader(value: Value) -> Callable[[], Any]:
    if value.constant is None:
        raise ValueError(f"initializer {value.name!r} has no data")
    return lambda: constant_array(value)


def constant_array(value: Value) -> np.ndarray[Any, Any]:
    """The data of a constant, read-only."""
    if value.constant is None:
        raise KeyError(f"{value.name!r} is not a constant")
    array = value.constant.numpy()
    array.flags.writeable = False
    return array
