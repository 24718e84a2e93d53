"""What goes into a model and what comes out of it."""

from __future__ import annotations

from sardonyx.ir.graph import Graph, SparseConstant, Value
from sardonyx.ir.types import SparseTensorType, Type
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a program."""

    name: str
    type: Type | None


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
