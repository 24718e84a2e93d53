"""Models that NumPy computes, node by node: programs all of whose segments are calls into Python.

    y = Neg(x); z = Exp(y)   =>   Executable: host Neg, host Exp

It is the same `Executable` that runs compiled models (see `executable`); what it lacks is a native segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from sardonyx import errors
from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.ir.graph import Graph, Node, Value, needed_nodes
from sardonyx.ir.region import region_of
from sardonyx.ops.definition import OpDef
from sardonyx.plan.host_plan import HostConstants, Order, host_plan
from sardonyx.plan.native import image_of
from sardonyx.plan.ports import ports_of
from sardonyx.plan.segment_plan import body_of, captured_by, graphs_of, segment_plan
from sardonyx.program.calls import HostNode
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.host_calls import Body, Call, call_of
from sardonyx.runtime.native_core import NativeCore
from sardonyx.runtime.runs import RunControl
from sardonyx.runtime.segment_runner import SegmentRunner, executable_of, run_named

_MOST_PROGRAMS: Final = 64  # sets of fetched values whose programs are kept

Evaluated = tuple[HostNode, "OpDef | None"]  # a node as plain data, and what evaluates it if that has been found already
DescribeNode = Callable[[Node], Evaluated]


class _NoWorkers:
    """The pool of programs that have nothing for it to do."""

    workers = 1
    keeps_awake = False

    def native_function(self, name: str) -> int:
        return 0

    def run(self, steps: int, count: int, table: int) -> NoReturn:
        raise errors.EngineError("a program without native steps was asked to run some")

    def run_alone(self, steps: int, count: int, table: int) -> NoReturn:
        self.run(steps, count, table)

    def launch_alone(self, block: int) -> NoReturn:
        self.run(block, 0, 0)

    def launch(self, block: int, pool_entry: memoryview, position: int) -> NoReturn:
        self.run(block, 0, 0)

    def launch_short(self, block: int, pool_entry: memoryview, position: int) -> NoReturn:
        self.run(block, 0, 0)

    def run_loop(self, block: int, alone: bool) -> NoReturn:
        self.run(block, 0, 0)


class HostPrograms:
    """Makes programs of graphs whose nodes Python computes, subgraphs included. A node has one call in all of them."""

    def __init__(self, describe: DescribeNode, order: Order) -> None:
        self._describe = describe
        self._order = order
        self._calls: dict[Node, Call] = {}

    def program(self, graph: Graph, outputs: Sequence[Value], captured: Sequence[Value] | None = None) -> Executable:
        """The program of a graph; of a body, which is given what it captures behind its own inputs, if `captured` is not None."""
        fed = graph.inputs if captured is None else [*graph.inputs, *captured]
        plan = host_plan(needed_nodes(self._order(graph), outputs))
        numbered = segment_plan(plan, fed, outputs, defaults=captured is None)
        calls = [self._call(node) for node in numbered.calls]
        core = NativeCore(image_of(plan), (), _NoWorkers(), dict)
        return executable_of(SegmentRunner(core, numbered.plan, calls, HostConstants(numbered.constants)))

    def _call(self, node: Node) -> Call:
        found = self._calls.get(node)
        if found is None:
            plain, definition = self._describe(node)
            outer = {value: position for position, value in enumerate(captured_by(node))}
            bodies = {name: self._body(graph, outer) for name, graph in graphs_of(node).items() if name in plain.bodies}
            found = self._calls[node] = call_of(plain, bodies, definition=definition, is_region=region_of(node) is not None)
        return found

    def _body(self, graph: Graph, outer: Mapping[Value, int]) -> Body:
        node, captured = body_of(graph, outer)
        return Body(node, lambda: self.program(graph, graph.outputs, captured))


class ReferenceModel:
    """A model as its operators define it. `run` may be called from several threads at once; after a fork it goes on working."""

    def __init__(self, graph: Graph, describe: DescribeNode, order: Order) -> None:
        self.inputs, self.outputs, self.overridable_initializers = ports_of(graph)
        self._graph = graph
        self._describe = describe
        self._order = order
        self._programs_of = HostPrograms(describe, order)
        self._names = tuple(port.name for port in self.outputs)
        self.main = self._programs_of.program(graph, graph.outputs)
        self._programs: dict[tuple[str, ...], Executable] = {self._names: self.main}
        self._values: dict[str, Value] | None = None  # every named value of the graph
        self._lock = ForkSafeLock()

    @property
    def node_count(self) -> int:
        """How many nodes the model has, bodies not counted."""
        return len(self._graph)

    @property
    def assigned_nodes(self) -> list[HostNode]:
        """All nodes, with the provider that computes each."""
        return [self._describe(node)[0] for node in self._order(self._graph)]

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """There is no shorter way than `run`."""
        return None

    def short_program(self, names: Sequence[str]) -> Executable | None:
        """There is none with a shorter way than `run`."""
        return None

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        for program in list(self._programs.values()):
            program.shrink()

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds; any named value of the top-level graph may be fetched.

        No fork happens meanwhile: NumPy's library of matrix products ends its threads when the process forks, and a run that
        waits for one of them would wait for ever.
        """
        names = tuple(fetches)
        program = self._programs.get(names) or self._program(names)
        with held_off:
            return run_named(program, feeds, control or RunControl())

    def _program(self, names: tuple[str, ...]) -> Executable:
        with held_off, self._lock:
            if self._values is None:
                self._values = named_values(self._graph)
            for name in names:
                if name not in self._values:
                    raise errors.InvalidArgument(
                        f"no value is called {name!r}; outputs are: {', '.join(self._names)}",
                        hint="any intermediate value may be fetched too, by its name in the model",
                    )
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs = {self._names: self.main}
            made = self._programs[names] = self._programs_of.program(self._graph, [self._values[name] for name in names])
            return made


def named_values(graph: Graph) -> dict[str, Value]:
    """The values of a graph by name, those of subgraphs left out."""
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph.nodes for value in node.outputs)]
    return {value.name: value for value in values if value.name}
