"""The built-in execution providers, and how those of a session divide a model between them.

Any provider takes regions of a graph (`providers.protocol`). Those that are built in can also take a graph as a whole, with the
regions of others as nodes inside: the first of the session's that claims all that is left runs the model.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

from sardonyx import errors
from sardonyx.analysis.shapes import ShapeReport
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile_options import CompileOptions
from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Graph, Model, Node, needed_nodes
from sardonyx.matching.kernels import TypeResolver
from sardonyx.plan.host_plan import Order
from sardonyx.plan.order import execution_order
from sardonyx.plan.ports import Port
from sardonyx.program.calls import HostNode
from sardonyx.provider_names import CPU_PROVIDER, REFERENCE_PROVIDER, factory_of
from sardonyx.providers.partition import expand_regions, partition, view_of
from sardonyx.providers.protocol import ClaimedRegion, ExecutionProvider, GraphView, RegionFunction
from sardonyx.providers.reference import definition_of, plain_node
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.reference_model import ReferenceModel, named_values
from sardonyx.runtime.runs import RunControl

Compiled: TypeAlias = "ReferenceModel | NativeModel"
OnOptimised: TypeAlias = "Callable[[Model], None] | None"

_MOST_PROGRAMS: Final = 16  # sets of fetched values inside of regions whose programs are kept


class HostProvider(ExecutionProvider):
    """A provider that can run whole models; regions of others are steps of its programs."""

    def __init__(self, options: CompileOptions) -> None:
        self.options = options

    @abstractmethod
    def program(self, model: Model, on_optimised: OnOptimised, inferred: ShapeReport | None = None) -> Compiled:
        """Something that runs a model; `on_optimised` is shown the graph as it is run.

        `inferred` is what is known of the model, as long as nobody changes it.
        """

    def takes_all(self, graph: Graph) -> bool:
        """Whether it claims every node that no provider before has taken."""
        view = view_of(graph)
        return len(view.nodes) == sum(len(nodes) for nodes in self.claim(view))

    def compile(self, region: ClaimedRegion) -> RegionFunction:
        """A program for the region by itself."""
        model = Model(Cloner().graph(region.graph))
        program = self.program(model, None)
        inputs = [value.name for value in region.inputs]
        outputs = [value.name for value in region.outputs]
        return lambda values: program.run(dict(zip(inputs, values)), outputs)


class ReferenceProvider(HostProvider):
    """Computes every node by the NumPy definition of its operator, as it stands in the model.

    The option `operators` limits it to some, as "Softmax,LayerNormalization": the providers after it compute the others.
    """

    name: ClassVar[str] = REFERENCE_PROVIDER

    def __init__(self, options: CompileOptions) -> None:
        super().__init__(options)
        listed = options.provider_options.get(self.name, {}).get("operators", "")
        self._only = frozenset(name.strip() for name in listed.split(",") if name.strip())

    def claim(self, view: GraphView) -> Iterable[Collection[Node]]:
        claimed = [
            node for node in view.nodes if definition_of(node) is not None and (not self._only or node.op_type in self._only)
        ]
        return [claimed] if len(claimed) == len(view.nodes) else view.regions(claimed)

    def program(self, model: Model, on_optimised: OnOptimised, inferred: ShapeReport | None = None) -> ReferenceModel:
        if on_optimised is not None:
            on_optimised(model)
        order = partial(execution_order, kind=self.options.execution_order)
        return reference_model(model.graph, order, self.name)


def reference_model(graph: Graph, order: Order, provider: str = CPU_PROVIDER) -> ReferenceModel:
    """A graph as its operators' definitions compute it, on behalf of a provider."""
    return ReferenceModel(graph, lambda node: (plain_node(node, provider), None), order)


def make_provider(name: str, options: CompileOptions, built_in: Mapping[str, type[HostProvider]]) -> ExecutionProvider:
    """The provider of a name, for one session."""
    host = built_in.get(name)
    if host is not None:
        return host(options)
    factory = factory_of(name)
    try:
        made = factory(dict(options.provider_options.get(name, {})))
    except errors.SardonyxError:
        raise
    except Exception as error:
        raise errors.EPFail(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(made, ExecutionProvider):
        raise errors.EPFail(f"the factory of {name} returned {made!r}, expected a sardonyx.providers.ExecutionProvider")
    return made


def divide(graph: Graph, providers: Sequence[ExecutionProvider], resolver: TypeResolver) -> HostProvider | None:
    """Let providers claim their regions; the one that takes the rest, None if no provider does."""
    claiming: list[ExecutionProvider] = []
    for provider in providers:
        if isinstance(provider, HostProvider):
            partition(graph, claiming, resolver)
            claiming = []
            if provider.takes_all(graph):
                return provider
        claiming.append(provider)
    partition(graph, claiming, resolver)
    return None


class PartitionedModel:
    """A program with regions in it. Values inside of a region are fetched by a program in which the region gives them out."""

    def __init__(self, whole: Graph, hidden: frozenset[str], program: Compiled, compile_for: Callable[[Graph], Compiled]) -> None:
        """`whole` is the graph before it was divided, `hidden` are the names of values inside of regions.

        `compile_for` divides and compiles another graph like it.
        """
        self.node_count = len(whole)
        self.run_fast = program.run_fast
        self._whole = whole
        self._program = program
        self._compile_for = compile_for
        self._programs: dict[tuple[str, ...], Compiled] = {}
        self._lock = ForkSafeLock()
        self._hidden = hidden

    def short_program(self, names: Sequence[str]) -> Executable | None:
        """Other providers take the long way, but for all outputs at once."""
        return None

    @property
    def assigned_nodes(self) -> Sequence[HostNode]:
        """The nodes that are in no region, and one for every region."""
        return self._program.assigned_nodes

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What must be fed."""
        return self._program.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What the model gives."""
        return self._program.outputs

    @property
    def overridable_initializers(self) -> tuple[Port, ...]:
        """Weights that a feed of the same name replaces."""
        return self._program.overridable_initializers

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds; any named value of the top-level graph may be fetched."""
        if self._hidden.isdisjoint(fetches):
            return self._program.run(feeds, fetches, control)
        return self._for_fetches(tuple(fetches)).run(feeds, fetches, control)

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        with self._lock:
            programs = [self._program, *self._programs.values()]
        for program in programs:
            program.shrink()

    def _for_fetches(self, names: tuple[str, ...]) -> Compiled:
        with held_off, self._lock:
            found = self._programs.get(names)
            if found is None:
                if len(self._programs) >= _MOST_PROGRAMS:
                    self._programs.pop(next(iter(self._programs)))
                graph = Cloner().graph(self._whole)
                values = named_values(graph)
                unknown = [name for name in names if name not in values]
                if unknown:
                    return self._program  # says what is wrong
                graph.outputs = [values[name] for name in names]
                graph.stated_outputs = ()
                wanted = set(needed_nodes(list(graph.nodes), graph.outputs))
                for node in reversed([node for node in graph.nodes if node not in wanted]):
                    graph.remove(node)
                found = self._programs[names] = self._compile_for(graph)
            return found


def with_nodes_back(on_optimised: OnOptimised) -> OnOptimised:
    """What is shown of a model with regions: a copy with the nodes of all regions in their places."""
    if on_optimised is None:
        return None

    def show(model: Model) -> None:
        copy = dataclasses.replace(model, graph=Cloner().graph(model.graph))
        expand_regions(copy.graph)
        on_optimised(copy)

    return show
