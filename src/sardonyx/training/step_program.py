"""Programs of a training step: forward and backward, compiled from one joint graph.

    program = TrainingProgram(model, GradientRequest(outputs=("loss",), inputs=("w", "b")), TrainingOptions())
    outputs, saved = program.forward([x, w, b])
    dw, db = program.backward(saved, [np.ones((), np.float32)])

Every parameter, buffer and user tensor is an input of the model. The model is differentiated, the joint graph goes through the
usual passes, is divided (`joint.py`), and both halves are compiled for all sizes. Each forward pass has its own saved values, so
several may be under way before their backward passes come, in any order, on any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from sardonyx import errors
from sardonyx.compile.compiler import native_settings, optimise, prepare_model
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile.providers import reference_model
from sardonyx.compile_options import CompileOptions
from sardonyx.ir.clone import Cloner
from sardonyx.ir.dims import Dim, evaluate, symbols_of
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.passes.fold_constants import FoldConstants
from sardonyx.passes.pipeline import PipelineReport
from sardonyx.plan.native import NativePlan
from sardonyx.plan.order import execution_order
from sardonyx.program.steps import HostNodeStep
from sardonyx.records import dataclass
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.reused_memory import ReusedMemory
from sardonyx.runtime.runs import RunControl
from sardonyx.training.differentiate import LEAST_VERSION, differentiate
from sardonyx.training.expand import expand_training_operators
from sardonyx.training.joint import JointGraph
from sardonyx.training.recompute import RecomputeOptions, RecomputePlan
from sardonyx.training.settled_sizes import settle_sizes
from sardonyx.training.step_profile import profiled
from sardonyx.training.step_run import StepPlan, StepRun

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GradientRequest:
    """Which gradients a training program takes and gives."""

    outputs: tuple[str, ...]  # graph outputs whose gradients will be handed to backward
    inputs: tuple[str, ...]  # graph inputs (parameters, user inputs) whose gradients are wanted


@dataclass(frozen=True)
class TrainingOptions:
    """How training programs are compiled."""

    compile: CompileOptions = field(default_factory=CompileOptions)
    recompute: RecomputeOptions = field(default_factory=RecomputeOptions)  # what backward computes again


@dataclass(frozen=True)
class SavedValues:
    """What one forward pass leaves for its backward pass."""

    values: tuple[Array, ...]
    inputs: tuple[Array, ...]  # those of the forward pass that backward reads, unchanged
    shapes: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # shapes and types of the outputs with gradients

    @property
    def nbytes(self) -> int:
        """How much memory the kept values take, the inputs not counted."""
        return sum(array.nbytes for array in self.values)


class InferenceProgram:
    """A model whose weights are inputs: forward only."""

    def __init__(self, model: Model, options: TrainingOptions | None = None) -> None:
        chosen = options or TrainingOptions()
        whole = _prepared(model, chosen.compile)
        FoldConstants().run(whole)
        self.is_random = expand_training_operators(whole.graph, max(whole.opset_imports.get("", 0), LEAST_VERSION))
        whole.opset_imports.setdefault("sardonyx", 1)
        prepare_model(whole, chosen.compile)
        report = optimise(whole, chosen.compile)
        self._random = np.random.default_rng()
        self._program = _Half(whole.graph, chosen.compile, report)

    def run(self, inputs: Sequence[Array], seed: int | None = None) -> list[Array]:
        """The outputs for arrays in the order of the model's inputs; `seed` decides what random operators do, None draws one."""
        if self.is_random:
            inputs = [*inputs, np.array(int(self._random.integers(1 << 62)) if seed is None else seed, np.int64)]
        return self._program.run(inputs)


class TrainingProgram:
    """The forward and backward pass of a model."""

    def __init__(self, model: Model, request: GradientRequest, options: TrainingOptions | None = None) -> None:
        chosen = options or TrainingOptions()
        self.request = request
        whole = _prepared(model, chosen.compile)
        FoldConstants().run(whole)  # gradient rules look at axes, scales and the like
        graph = whole.graph
        count = len(graph.outputs)
        outputs = [_named(graph.outputs, name, "output") for name in request.outputs]
        inputs = [_named(graph.inputs, name, "input") for name in request.inputs]
        seeds = [_seed(graph, value) for value in outputs]
        gradients = differentiate(graph, outputs, inputs, seeds, version=whole.opset_imports.get("", 0))
        self._flows = tuple(seed is not None for seed in gradients.seeds)
        graph.inputs.extend(seed for seed, used in zip(seeds, self._flows) if used)
        wanted = [value for value in gradients.inputs if value is not None]
        self._positions: list[int | None] = []
        for value in gradients.inputs:
            self._positions.append(
                None if value is None else len([position for position in self._positions if position is not None])
            )
        graph.outputs.extend(_identities(graph, wanted))
        self._has_seed = expand_training_operators(graph, max(whole.opset_imports.get("", 0), LEAST_VERSION))
        whole.opset_imports.setdefault("sardonyx", 1)
        prepare_model(whole, chosen.compile)
        self.report = optimise(whole, chosen.compile)
        self.joint = whole
        seed_names = {seed.name for seed in seeds}
        given_seeds = [value for value in graph.inputs if value.name in seed_names]
        self.recompute = RecomputePlan(
            JointGraph(graph, graph.outputs[:count], given_seeds, graph.outputs[count:]), chosen.recompute
        )
        halves = self.halves = self.recompute.halves()
        self._input_positions = {value.name: position for position, value in enumerate(halves.forward.inputs)}
        self._held = tuple(self._input_positions[value.name] for value in halves.kept.inputs)
        self._seeded = tuple(
            next(i for i, value in enumerate(model.graph.outputs) if value.name == name) for name in request.outputs
        )
        self._symbols = _symbol_axes(halves.forward)
        self._refuse_sizes_of_data()
        self._count, self._given = count, len(model.graph.inputs)
        self._random = np.random.default_rng()
        self._last_shapes: Sequence[Sequence[int]] = ()
        self._forward = _Half(halves.forward, chosen.compile, self.report)
        self._backward = _Half(halves.backward, chosen.compile, self.report)
        self._saved_outputs = self._outputs_kept()
        self.run = self._step_run()  # what callers that have memory of their own use; None if a pass is no single call

    def _refuse_sizes_of_data(self) -> None:
        """What the backward pass measures must follow from the sizes of inputs."""
        known = {name for name, _, _ in self._symbols}
        for shape in self.halves.kept.shapes:
            unknown = [name for dim in shape if not isinstance(dim, int) for name in symbols_of(dim) if name not in known]
            if unknown:
                raise errors.NotImplemented(
                    f"the backward pass would need the size {unknown[0]!r}, which the data of a tensor decides",
                    hint="use masks (Where) instead of selections whose size depends on data (NonZero, Compress, Unique)",
                )

    def _step_run(self) -> StepRun | None:
        forward, backward = self._forward.executable, self._backward.executable
        if forward is None or backward is None or not any(self._flows):
            return None
        seeds = tuple(position for position, flows in zip(self._seeded, self._flows) if flows)
        return StepRun(forward, backward, StepPlan(self._count, self._held, self._carried, seeds, self._has_seed))

    def _carried(self, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """The shapes of what the backward pass only measures, for inputs of some shapes."""
        sizes = {name: int(shapes[position][axis]) for name, position, axis in self._symbols}
        return [(*_sizes(shape, sizes), 0) for shape in self.halves.kept.shapes]

    @property
    def executed(self) -> Model:
        """What is compiled, forward and backward in one graph; what is computed again stands in it twice."""
        if not self.recompute.options.is_enabled:
            return self.joint
        return dataclasses.replace(self.joint, graph=self.recompute.executed())

    @property
    def plans(self) -> tuple[NativePlan, NativePlan]:
        """How the forward and the backward pass are laid out."""
        return self._forward.model.main.plan, self._backward.model.main.plan

    @property
    def result_count(self) -> int:
        """How many outputs of the forward pass are results, in front of what it keeps."""
        return self._count

    @property
    def last_sizes(self) -> dict[str, int]:
        """The named dimensions in the last forward pass; none before the first."""
        shapes = self._last_shapes if self.run is None or self.run.last_shapes is None else self.run.last_shapes
        return {name: int(shapes[position][axis]) for name, position, axis in self._symbols} if shapes else {}

    def draw(self) -> int:
        """A seed for the random operators of a forward pass."""
        return int(self._random.integers(1 << 62)) if self._has_seed else 0

    @property
    def gradient_positions(self) -> tuple[int | None, ...]:
        """Of the inputs in the request: where the gradient of each stands among the results of the backward pass."""
        return tuple(self._positions)

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """The nodes of both passes that have no kernel, and are computed by NumPy; loops are programs of their own."""
        return (*self._forward.host_nodes, *self._backward.host_nodes)

    @property
    def is_native(self) -> bool:
        """Whether both passes are machine code altogether."""
        return not self.host_nodes

    @property
    def differentiable_outputs(self) -> tuple[bool, ...]:
        """Of the outputs in the request: whether any gradient flows from each."""
        return self._flows

    @property
    def saved_inputs(self) -> tuple[int, ...]:
        """The positions of inputs that the backward pass reads: they must not change in between."""
        return tuple(position for position in self._held if position < self._given)

    @property
    def saved_outputs(self) -> tuple[int, ...]:
        """The positions of outputs that the backward pass reads: they must not change in between."""
        return self._saved_outputs

    def _outputs_kept(self) -> tuple[int, ...]:
        names = {value.name for value in self.halves.kept.values}
        return tuple(i for i, value in enumerate(self.halves.forward.outputs[: self._count]) if value.name in names)

    @property
    def is_random(self) -> bool:
        """Whether a seed decides what its random operators do."""
        return self._has_seed

    def forward(self, inputs: Sequence[Array], seed: int | None = None) -> tuple[list[Array], SavedValues]:
        """The outputs, for arrays in the order of the model's inputs, and what the backward pass needs of this run.

        `seed` decides what random operators do; None draws one.
        """
        if self._has_seed:
            inputs = [*inputs, np.array(self.draw() if seed is None else seed, np.int64)]
        with profiled("forward") as on_node:
            results = self._forward.run(inputs, on_node)
        self._last_shapes = [array.shape for array in inputs]
        outputs = results[: self._count]
        shapes = tuple(self._carried([array.shape for array in inputs]))
        given = tuple((outputs[i].shape, outputs[i].dtype) for i in self._seeded)
        held = tuple(inputs[position] for position in self._held)
        return outputs, SavedValues(tuple(results[self._count :]), held, shapes, given)

    def backward(self, saved: SavedValues, gradients: Sequence[Array | None]) -> list[Array | None]:
        """The gradients of the inputs asked for, given those of the outputs; None stands for zeros, or for nothing."""
        if len(gradients) != len(self.request.outputs):
            raise errors.InvalidArgument(
                f"{len(gradients)} gradients for {len(self.request.outputs)} outputs: expected one for each, or None"
            )
        feeds: list[Array] = [*saved.values, *saved.inputs, *(np.empty(shape, np.float32) for shape in saved.shapes)]
        for name, gradient, flows, (shape, dtype) in zip(self.request.outputs, gradients, self._flows, saved.outputs):
            if not flows:
                continue
            if gradient is not None and (gradient.shape != shape or gradient.dtype != dtype):
                raise errors.InvalidArgument(
                    f"the gradient of output {name!r} is {gradient.dtype}{list(gradient.shape)}, expected {dtype}{list(shape)}"
                )
            feeds.append(np.zeros(shape, dtype) if gradient is None else gradient)
        results: list[Array] = []
        if any(position is not None for position in self._positions):
            with profiled("backward") as on_node:
                results = self._backward.run(feeds, on_node)
        return [None if position is None else results[position] for position in self._positions]


class _Half:
    """One compiled graph, whose arrays are given by position."""

    def __init__(self, graph: Graph, options: CompileOptions, report: PipelineReport) -> None:
        def order(each: Graph) -> list[Node]:
            return execution_order(each, options.execution_order)

        original = Cloner().graph(graph)
        # Gradients stand as the backward pass goes. Ordered by kernels, all that follows from kept values would come first, and
        # lie in memory until its layer is reached.
        settings = dataclasses.replace(native_settings(options), by_kernels=False)
        self.model = NativeModel(graph, original, lambda: reference_model(original, order), order, settings, report)
        self._names = [value.name for value in graph.inputs]
        self._results = [value.name for value in graph.outputs]
        # What one step leaves is as a rule gone in the next.
        self._control = RunControl(memory=ReusedMemory())

    @property
    def executable(self) -> Executable | None:
        """The native program, if every run of it is one call that may be given addresses."""
        program = self.model.main.program
        return program if program.takes_addresses else None

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """The nodes that have no kernel."""
        main = self.model.main
        nodes = [step.node for step in main.lowered.steps if isinstance(step, HostNodeStep) and not step.node.subgraphs()]
        return tuple(f"{node.label}: {main.grouping.refusals.get(node, '')}" for node in nodes)

    def run(self, arrays: Sequence[Array], on_node: Callable[[NodeTiming], None] | None = None) -> list[Array]:
        if len(arrays) != len(self._names):
            raise errors.InvalidArgument(f"{len(arrays)} arrays for {len(self._names)} inputs: {', '.join(self._names)}")
        feeds: Mapping[str, Array] = dict(zip(self._names, arrays))
        if on_node is not None:
            return self.model.run(feeds, self._results, RunControl(on_node=on_node))
        found = self.model.run_fast(feeds) if self.executable is not None else None
        return found if found is not None else self.model.run(feeds, self._results, self._control)


def _prepared(model: Model, options: CompileOptions) -> Model:
    """A copy whose types are inferred, with those sizes of inputs that parameters decide."""
    whole = _copy_of(model)
    prepare_model(whole, options)
    if settle_sizes(whole.graph):
        prepare_model(whole, options)
    return whole


def _copy_of(model: Model) -> Model:
    """A copy whose outputs have the sizes that follow from the inputs, whatever names the model gives them."""
    graph = Cloner().graph(model.graph)
    for value in graph.outputs:
        if isinstance(value.type, TensorType) and value not in graph.inputs:
            value.type = TensorType(value.type.dtype)
    return dataclasses.replace(model, graph=graph)


def _named(values: Sequence[Value], name: str, kind: str) -> Value:
    for value in values:
        if value.name == name:
            return value
    raise errors.InvalidArgument(f"the model has no {kind} {name!r}, only {', '.join(value.name for value in values)}")


def _seed(graph: Graph, output: Value) -> Value:
    """The gradient of an output, as an input to be."""
    taken = {value.name for value in graph.inputs}
    name = f"{output.name}_grad"
    while name in taken:
        name += "_"
    return Value(name, output.type)


def _identities(graph: Graph, values: Sequence[Value]) -> list[Value]:
    """Values as outputs of their own, each computed by a node: one that is an input, a constant or given out twice is copied."""
    results: list[Value] = []
    version = max((node.version for node in graph.nodes if not node.domain), default=13)
    for value in values:
        if value.producer is not None and value not in graph.outputs and value not in results:
            results.append(value)
            continue
        copy = Value(f"{value.name}_copy{len(results)}", value.type)
        graph.append(Node("Identity", [value], [copy], version=version))
        results.append(copy)
    return results


def _symbol_axes(graph: Graph) -> tuple[tuple[str, int, int], ...]:
    """For every symbol that is a size of an input: its name, the input and the axis."""
    found: dict[str, tuple[str, int, int]] = {}
    for position, value in enumerate(graph.inputs):
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and dim.is_symbol:
                found.setdefault(str(dim), (str(dim), position, axis))
    return tuple(found.values())


def _sizes(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    def number(dim: Dim) -> int:
        return dim if isinstance(dim, int) else evaluate(dim, {name: sizes[name] for name in symbols_of(dim)})

    return tuple(number(dim) for dim in shape)
