"""A compiled model: the face sessions see of native programs."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.compile.assemble import BodyCount, Compiled, NativeSettings, compile_graph
from sardonyx.compile.program_code import packed_constants, program_code
from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.formats.program.read import ProgramCode
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value, needed_nodes, walk
from sardonyx.ir.tensor import Array, Tensor, release_pages
from sardonyx.ir.types import TensorType
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.pipeline import InconsistentGraph, PipelineReport
from sardonyx.plan.host_plan import Order
from sardonyx.plan.ports import ports_of
from sardonyx.program.calls import HostNode
from sardonyx.program.constants import Derived
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.host_calls import calls_of
from sardonyx.runtime.mixed_program import MixedProgram
from sardonyx.runtime.native_core import SizeConflict
from sardonyx.runtime.reference_model import ReferenceModel, named_values
from sardonyx.runtime.runs import RunControl
from sardonyx.runtime.segment_runner import run_named
from sardonyx.runtime.sizes_apart import SizesApart, SpecialisationPays
from sardonyx.runtime.specialisations import MOST_SPECIALISATIONS, SpecialisationKey, SpecialisationTable

_log = logging.getLogger("sardonyx")
_MOST_PROGRAMS: Final = 16  # sets of fetched values whose programs are kept
_MOST_AXES: Final = 8  # that an input may name
# The operators whose axes, and steps, are operands, from this one on.
_AXES: Final = {"CumProd": 1, "CumSum": 1, "DFT": 2, "Pad": 3, "Slice": 3, "Squeeze": 1, "Unsqueeze": 1}


def _tell(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Call a method, if its object is still there."""
    found = method()
    if found is not None:
        found()


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
        reference: Callable[[], ReferenceModel],
        order: Order,
        settings: NativeSettings,
        report: PipelineReport,
        specialise: Callable[[SpecialisationKey], NativeModel] | None = None,
    ) -> None:
        self.graph = graph
        self.report = report  # what the passes did
        self.inputs, self.outputs, self.overridable_initializers = ports_of(original)
        self._original = original
        self._make_reference = reference
        self._reference: ReferenceModel | None = None
        self._order = order
        self._settings = settings = replace(settings, bodies=BodyCount())
        self._values = named_values(original)
        self._programs: dict[tuple[str, ...], Compiled] = {}
        self._lock = ForkSafeLock()
        self._names = tuple(value.name for value in graph.outputs)
        weights = [value.constant for value in original.initializers.values() if isinstance(value.constant, Tensor)]
        self._release = partial(release_pages, weights)
        self._release()  # passes have read them
        self.main = self._compile(graph, graph.outputs)
        program = self.main.program
        self._short = program if program.has_fast_path else None  # what the runs of a specialisation take
        # Sizes that are found out on the way cost nobody anything: a specialisation has to be looked for, and is no faster.
        is_native = program.is_one_call or {"native", "sizes"}.issuperset(program.kinds)
        self._fast = program if program.has_fast_path and is_native else None
        if isinstance(program, MixedProgram):
            program.on_bodies = partial(_tell, weakref.WeakMethod(self._tell_compiled))  # the program is this model's own
        self._release()  # what was packed lies in memory of its own now
        # The graph is full of cycles: without this, pages of the file would stay until Python looks for those.
        weakref.finalize(self, self._release).atexit = False
        self._apart = SizesApart.of(program) if self._fast is not None and specialise is not None else None
        self._specialise = specialise if self._fast is None or self._apart is not None else None
        self._specialisations = SpecialisationTable(deciding_inputs(graph) if self._fast is None and specialise else ())
        # All outputs, if a run can take the fast path; None if it needs `run`.
        self.run_fast: Callable[[Mapping[str, Any]], list[Any] | None] = self._run_short
        if self._fast is not None:
            self.run_fast = self._fast.run if self._apart is None else partial(self._specialisations.run_or, self._fast)
        self._compiled_specialisations: dict[SpecialisationKey, NativeModel] = {}
        self.on_specialisation: Callable[[SpecialisationKey, NativeModel], None] | None = (
            None  # told when a specialisation has run, and again as below
        )
        self.on_compiled: Callable[[NativeModel], None] | None = None  # told behind a run that has compiled bodies
        # Once one body is compiled, all are, of this program or of its specialisations: others that lack some were saved before.
        self.compiles_all = self.compiles_all_of_specialisations = False
        self._bodies_known = 0
        self._typed = False  # whether the original's shapes are those that follow from the inputs

    def _compile(self, graph: Graph, outputs: Sequence[Value]) -> Compiled:
        nodes = needed_nodes(self._order(graph), outputs)
        return compile_graph(graph, outputs, nodes, self._order, self._settings)

    @property
    def reference(self) -> ReferenceModel:
        """The model as it was read, computed by NumPy."""
        if self._reference is None:
            with held_off, self._lock:
                self._reference = self._reference or self._make_reference()
        return self._reference

    @property
    def node_count(self) -> int:
        """How many nodes the model has, bodies not counted."""
        return len(self._original)

    @property
    def assigned_nodes(self) -> list[HostNode]:
        """All nodes, with the provider that computes each."""
        return self.reference.assigned_nodes

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds; any named value of the top-level graph may be fetched."""
        results = self._run(feeds, fetches, control or RunControl())
        self._tell_compiled()
        return results

    def _tell_compiled(self) -> None:
        """Have the program saved with the bodies that were compiled since it was the last time, if there are any."""
        if self._bodies_known == self._settings.bodies.compiled or self.on_compiled is None:
            return
        with held_off, self._lock:
            if self.compiles_all:
                for call in calls_of(self.main.program):
                    call.compile_all()
            count = self._settings.bodies.compiled
            if self._bodies_known == count:
                return
            self._bodies_known = count
            self.on_compiled(self)

    def _run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl) -> list[Any]:
        names = tuple(fetches)
        if any(name not in self._values for name in names):
            return self.reference.run(feeds, fetches, control)  # says what is wrong
        try:
            if names == self._names:
                special = self._specialised(feeds, compiles=self._apart is None)
                if special is None:
                    try:
                        return self._run_general(feeds, control)
                    except SpecialisationPays as found:
                        special = self._for_sizes(feeds, found.symbols)
                return self._run_general(feeds, control) if special is None else special.run(feeds, fetches, control)
            return run_named(self._for_fetches(names).program, feeds, control)
        except SizeConflict as conflict:
            _log.info("sizes do not fit the compiled program, NumPy runs instead: %s", conflict)
        except (MemoryError, OverflowError) as error:  # NumPy finds out which node asks for that much
            _log.info("sizes are too large for the compiled program, NumPy runs instead: %s", error)
        except errors.SardonyxError as error:
            if isinstance(error, InconsistentGraph) or not isinstance(error, errors.EngineError):
                raise
            _log.warning("%s cannot be compiled, NumPy computes them: %s", ", ".join(names), error)
        except Exception as error:  # a defect, but no reason to fail: NumPy computes the run, or names the node that fails
            _log.warning("the compiled program failed, NumPy runs instead: %s: %s", type(error).__name__, error)
        return self.reference.run(feeds, fetches, control)

    def _run_general(self, feeds: Mapping[str, Any], control: RunControl) -> list[Any]:
        """All outputs by the program for all specialisations."""
        targeted = self._fast is not None or any(target is not None for target in control.targets)
        if targeted and self._short is not None and control.on_node is None:
            control.stop_if_asked()
            return self._short.run_checked(feeds, control.targets, control.shared, control)
        return run_named(self.main.program, feeds, control)

    def _for_sizes(self, feeds: Mapping[str, Any], symbols: tuple[int, ...]) -> NativeModel | None:
        """The model compiled for sizes that the program for all leaves to others; None if no further one is."""
        assert self._apart is not None
        special = self._specialised({name: np.asarray(value) for name, value in feeds.items()}, compiles=True)
        if special is None:
            self._apart.take(symbols)
        else:
            self._apart.leave(symbols)
        return special

    def short_program(self, names: Sequence[str]) -> Executable | None:
        """The program that has computed these values before, if it has a short way to run."""
        key = tuple(names)
        if key == self._names:
            return self._fast
        found = self._programs.get(key)
        return found.program if found is not None and found.program.has_fast_path else None

    def _run_short(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, by the program of the feeds' specialisation or, once no further one gets a program, by that for all."""
        results = self._specialisations.run(feeds)
        if results is not None or self._specialise is None or len(self._compiled_specialisations) < MOST_SPECIALISATIONS:
            return results
        specialisation = self._specialisations.key_of(feeds)
        if specialisation is None:
            return None
        program = self._specialisations.find(specialisation)
        if program is None and specialisation not in self._compiled_specialisations:
            program = self._short
        return None if program is None else program.run(feeds)

    def _specialised(self, feeds: Mapping[str, Any], *, compiles: bool) -> NativeModel | None:
        """The model compiled for the specialisation of these feeds, if it is one of the first few.

        For models that are not native as a whole: where branches depend on sizes, or sizes on data, numbers decide more than
        names do. And for sizes that a program for all serves badly (see `sizes_apart`). A specialisation is compiled when it
        first comes, or never: another program adds up in another order, and equal feeds shall have equal results, to the bit. A
        model that sees ever new specialisations stays as it is.
        """
        specialisation = self._specialisations.key_of(feeds) if self._specialise is not None else None
        if specialisation is None:
            return None
        found = self._compiled_specialisations.get(specialisation)
        if found is None and compiles and len(self._compiled_specialisations) < MOST_SPECIALISATIONS:
            with held_off, self._lock:
                found = self._compiled_specialisations.get(specialisation)
                if found is None and len(self._compiled_specialisations) < MOST_SPECIALISATIONS:
                    found = self._compile_specialisation(specialisation)
        if found is not None and found._short is not None:
            self._specialisations.put(specialisation, found._short)  # the next run of this specialisation takes the fast path
        return found

    def _compile_specialisation(self, specialisation: SpecialisationKey) -> NativeModel:
        assert self._specialise is not None
        made = self._compiled_specialisations[specialisation] = self._specialise(specialisation)
        if self.on_specialisation is not None:
            made.on_compiled = partial(self.on_specialisation, specialisation)
            made.compiles_all = self.compiles_all_of_specialisations
            made._bodies_known = -1  # its first run has it saved
        return made

    @property
    def deciding_inputs(self) -> tuple[str, ...]:
        """The inputs whose numbers tell specialisations apart."""
        return self._specialisations.deciding

    def _for_fetches(self, names: tuple[str, ...]) -> Compiled:
        found = self._programs.get(names)
        if found is not None:
            return found
        with held_off, self._lock:
            found = self._programs.get(names)
            if found is None:
                if not self._typed:
                    infer_from_inputs(Model(self._original))
                    self._typed = True
                if len(self._programs) >= _MOST_PROGRAMS:
                    self._programs.pop(next(iter(self._programs)))
                found = self._programs[names] = self._compile(self._original, [self._values[name] for name in names])
            return found

    def saved_program(self) -> ProgramCode | None:
        """The program as it can be saved; None if it is not to be."""
        if not self._settings.eager:
            return None
        return program_code(self.main.program, self._settings.library())

    @property
    def shares_by_content(self) -> bool:
        """Whether equal weights of different files are shared."""
        return self._settings.weights.by_content

    def packed_constants(self) -> dict[Derived, Callable[[], Array]]:
        """The packed constants of the main program and of all bodies, and how their arrays are found."""
        for call in calls_of(self.main.program):
            call.compile_all()
        return packed_constants(self.main.program)

    @property
    def is_specialised(self) -> bool:
        """Whether its first specialisations get programs of their own."""
        return self._specialise is not None

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        with self._lock:
            others, special = list(self._programs.values()), list(self._compiled_specialisations.values())
        for compiled in (self.main, *others):
            compiled.program.shrink()
        for model in special:
            model.shrink()


def deciding_inputs(graph: Graph) -> tuple[str, ...]:
    """The inputs of one whole number or truth value that conditions depend on, and of a few numbers that are axes or steps.

    Axes are few: lengths and the like, of which there are many, decide nothing by themselves.
    """
    nodes = list(walk(graph))
    conditions = _computed_from(value for node in nodes if node.op_type == "If" for value in node.inputs)
    axes = _computed_from(value for node in nodes for value in _axes(node))
    return tuple(
        value.name
        for value in graph.inputs
        if (value in conditions and _has_numbers(value, 1)) or (value in axes and _has_numbers(value, _MOST_AXES))
    )


def _computed_from(values: Iterable[Value | None]) -> set[Value]:
    """All values that others are computed from, and these."""
    pending = [value for value in values if value is not None]
    seen: set[Value] = set()
    while pending:
        value = pending.pop()
        if value not in seen:
            seen.add(value)
            if value.producer is not None:
                pending.extend(each for each in value.producer.inputs if each is not None)
    return seen


def _axes(node: Node) -> Sequence[Value | None]:
    """The axes, and steps, that a node reads."""
    if node.domain != ONNX_DOMAIN:
        return ()
    first = 1 if node.op_type.startswith("Reduce") else _AXES.get(node.op_type)
    return () if first is None else node.inputs[first:]


def _has_numbers(value: Value, most: int) -> bool:
    """Whether a value is at most so many whole numbers or truth values."""
    type = value.type
    if not isinstance(type, TensorType) or type.shape is None:
        return False
    count = prod(size if isinstance(size, int) else most + 1 for size in type.shape)
    return 0 < count <= most and (type.dtype.is_integer or type.dtype is dtypes.BOOL)
