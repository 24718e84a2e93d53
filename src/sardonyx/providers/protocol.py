"""What an execution provider is: it claims regions of a graph, and makes something of each that runs it.

    class Doubler(ExecutionProvider):
        name = "DoublerExecutionProvider"

        def claim(self, view: GraphView) -> Iterable[Collection[Node]]:
            return view.regions(node for node in view.nodes if node.op_type == "Add" and node.inputs[0] is node.inputs[1])

        def compile(self, region: ClaimedRegion) -> RegionFunction:
            return lambda inputs: [2 * inputs[0]]

The providers of a session are asked in their order; what one of them has taken is no longer offered to the next. See
docs/providers.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

from numpy.typing import NDArray

from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.matching.kernels import TypeResolver
from sardonyx.matching.signatures import SIGNATURES
from sardonyx.providers.connected import connected_regions
from sardonyx.records import dataclass

RegionFunction: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]


class Declined(Exception):
    """A provider raises this when it is asked to compile a region that it cannot compute after all.

    The nodes are then offered to the providers after it. Any other exception is an error of the provider, and ends the opening
    of the session.
    """


class Device(Protocol):
    """Memory that the host cannot read. What `upload` returns stands for the data; nobody else looks into it."""

    @property
    def name(self) -> str:
        """Values are handed from region to region without a copy if the devices of both have this name, as `cuda:0`."""

    def upload(self, array: NDArray[Any]) -> Any:
        """Copy an array to the device."""

    def download(self, handle: Any) -> NDArray[Any]:
        """Copy back what lies on the device."""


@dataclass(frozen=True)
class GraphView:
    """A graph as a provider sees it, with types and shapes.

    `nodes` are those that may be claimed: no provider before has taken them, nor a part of the bodies they run. A graph that is
    the body of another one's node is offered on its own, if nobody has claimed that node.
    """

    graph: Graph
    nodes: Sequence[Node]
    resolver: TypeResolver = SIGNATURES  # says which arguments of a node a type constraint is about: see `matching`

    def regions(self, claimed: Iterable[Node]) -> list[list[Node]]:
        """The largest connected regions that can be made of these nodes."""
        return connected_regions(self.graph, list(claimed))


@dataclass(frozen=True)
class ClaimedRegion:
    """Nodes that a provider has claimed, as a graph of their own.

    `graph.inputs` are the values it is given in each run, `graph.outputs` those it must return, both in order, with all that is
    known of their types and shapes: a dimension is a number, or an expression of names that a run gives a meaning. Weights are
    `graph.initializers`: they never change. Nodes may have subgraphs, which read nothing outside of the region.
    """

    name: str
    graph: Graph

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes, in an order in which they can be computed."""
        return list(self.graph.nodes)

    @property
    def inputs(self) -> list[Value]:
        """What it is given in each run."""
        return self.graph.inputs

    @property
    def outputs(self) -> list[Value]:
        """What it returns."""
        return self.graph.outputs

    @property
    def constants(self) -> Mapping[str, Value]:
        """The weights by name: `constants["w"].constant.numpy()`."""
        return self.graph.initializers


class ExecutionProvider(ABC):
    """Computes regions of graphs. One object serves one session, whose options for it were given to the factory.

    What `compile` returns is called with one value for each input of the region, and returns one for each output: arrays (which
    it may not change, and which need not be contiguous), lists for sequences, None for an optional value that is not there.
    With a `device`, values are what its `upload` returns. Several threads may call it at once, and a result may not change
    after it was returned. An exception it raises ends the run; the error names provider and nodes.
    """

    name: ClassVar[str]
    device: Device | None = None  # where its values lie; None: in the host's memory, which is shared without copies

    @abstractmethod
    def claim(self, view: GraphView) -> Iterable[Collection[Node]]:
        """The regions it wants to compute. No path may lead out of a region and back into it: `view.regions` sees to that."""

    @abstractmethod
    def compile(self, region: ClaimedRegion) -> RegionFunction:
        """Make something that runs a region; `Declined` if that is not possible."""


ProviderFactory: TypeAlias = Callable[[Mapping[str, str]], ExecutionProvider]
