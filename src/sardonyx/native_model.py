"""A compiled model: the face sessions see of native programs."""

from __future__ import annotations

import logging
import marshal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.assemble import Compiled, NativeSettings, compile_graph, library, needed_nodes
from sardonyx.ir.graph import Graph, Model, Value
from sardonyx.ir.types import TensorType
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.pipeline import PipelineReport
from sardonyx.plan.build import Order, constant_array, ports_of
from sardonyx.plan.plan import ExecutionPlan
from sardonyx.runtime.executor import Program, RunControl, borrowed, owned
from sardonyx.runtime.fast_path import USABLE, FastPath
from sardonyx.runtime.native_program import SizeConflict
from sardonyx.runtime.saved import Record, stripped

_log = logging.getLogger("sardonyx")
_MOST_PROGRAMS: Final = 16  # sets of fetched values whose programs are kept


class NativeModel:
    """A model as native programs.

    The outputs are computed by the graph as the passes left it. Other values are fetched from the graph as it was read: each
    set of them gets a program of its own, compiled when first asked for. Where actual sizes contradict the model (one name fed
    with two sizes), NumPy does the run.
    """

    def __init__(
        self,
        graph: Graph,
        original: Graph,
        reference: Callable[[], Program],
        order: Order,
        settings: NativeSettings,
        report: PipelineReport,
    ) -> None:
        self.graph = graph
        self.report = report  # what the passes did
        self.inputs, self.outputs, self.overridable_initializers = ports_of(original)
        self._original = original
        self._make_reference = reference
        self._reference: Program | None = None
        self._order = order
        self._settings = settings
        self._values = named_values(original)
        self._programs: dict[tuple[str, ...], Compiled] = {}
        self._lock = threading.Lock()
        self._names = tuple(value.name for value in graph.outputs)
        self.main = self._compile(graph, graph.outputs)
        self._fast = self._fast_path()
        self._typed = False  # whether the original's shapes are those that follow from the inputs

    def _compile(self, graph: Graph, outputs: Sequence[Value]) -> Compiled:
        unique = list(dict.fromkeys(outputs))
        return compile_graph(graph, unique, needed_nodes(self._order(graph), unique), self._order, self._settings)

    def _fast_path(self) -> FastPath | None:
        """The short way, if this model has one: all native, outputs that are different values."""
        program, graph = self.main.program, self.graph
        native_inputs = {view.buffer.value for view in program.plan.inputs}
        native_outputs = {view.buffer.value for view in program.plan.outputs}
        fits = (
            USABLE
            and program.is_all_native
            and len(set(graph.outputs)) == len(graph.outputs)
            and all(value in native_inputs and value.constant is None for value in graph.inputs)
            and all(value in native_outputs and _is_plain(value) for value in graph.outputs)
        )
        return FastPath(program, graph.inputs, graph.outputs) if fits else None

    @property
    def reference(self) -> Program:
        """The model as it was read, computed by NumPy."""
        if self._reference is None:
            self._reference = self._make_reference()
        return self._reference

    @property
    def node_count(self) -> int:
        """How many nodes the model has, bodies not counted."""
        return len(self._original)

    @property
    def plan(self) -> ExecutionPlan:
        """The plan by which NumPy runs the model: every node a step."""
        return self.reference.plan

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, if this run can go the short way; None if it needs `run`."""
        return None if self._fast is None else self._fast.run(feeds)

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds; any named value of the top-level graph may be fetched."""
        control = control or RunControl()
        names = tuple(fetches)
        if any(name not in self._values for name in names):
            return self.reference.run(feeds, fetches, control)  # says what is wrong
        try:
            if names == self._names:
                if self._fast is not None and control.is_idle:
                    return self._fast.run_checked(feeds)
                return _results(self.main, self.graph, self.graph.outputs, feeds, control)
            compiled = self._for_fetches(names)
            return _results(compiled, self._original, [self._values[name] for name in names], feeds, control)
        except SizeConflict as conflict:
            _log.info("sizes do not fit the compiled program, NumPy runs instead: %s", conflict)
        except errors.EngineError as error:
            _log.warning("%s cannot be compiled, NumPy computes them: %s", ", ".join(names), error)
        return self.reference.run(feeds, fetches, control)

    def _for_fetches(self, names: tuple[str, ...]) -> Compiled:
        with self._lock:
            found = self._programs.get(names)
            if found is None:
                if not self._typed:
                    infer_from_inputs(Model(self._original))
                    self._typed = True
                if len(self._programs) >= _MOST_PROGRAMS:
                    self._programs.pop(next(iter(self._programs)))
                found = self._programs[names] = self._compile(self._original, [self._values[name] for name in names])
            return found

    def record(self, about: Any) -> Record | None:
        """What can be saved of this model, with something to remember beside it; None if only a part of it is native."""
        if self._fast is None:
            return None
        kernels = library(self._settings.cache_folder)
        plan, inputs, outputs = stripped(self.main.plan, self.graph.inputs, self.graph.outputs)
        keys = [step.kernel.key for step in self.main.plan.steps]
        places = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        objects = {step.kernel.key: kernels.object_of(step.kernel) for step in self.main.plan.steps}
        return Record(
            plan,
            inputs,
            outputs,
            (self.inputs, self.outputs, self.overridable_initializers),
            self.node_count,
            [objects[key] for key in places],
            [places[key] for key in keys],
            kernels.driver_object(),
            marshal.dumps(self.main.program.sizes.__code__),
            {},
            about,
        )

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self.main.program.shrink()
        for compiled in self._programs.values():
            compiled.program.shrink()
        if self._fast is not None:
            self._fast.shrink()


def _results(
    compiled: Compiled, graph: Graph, outputs: Sequence[Value], feeds: Mapping[str, Any], control: RunControl
) -> list[Any]:
    given = {value: borrowed(feeds[value.name]) if value.name in feeds else constant_array(value) for value in graph.inputs}
    with np.errstate(all="ignore"):
        values = compiled.program.run(given, control)
    return owned([values[value] if value in values else constant_array(value) for value in outputs])


def _is_plain(value: Value) -> bool:
    """Whether NumPy itself has the element type, so that a result is handed over as it is."""
    return isinstance(value.type, TensorType) and value.type.dtype.numpy.isbuiltin == 1


def named_values(graph: Graph) -> dict[str, Value]:
    """The values of a graph by name, those of subgraphs left out."""
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph.nodes for value in node.outputs)]
    return {value.name: value for value in values if value.name}
