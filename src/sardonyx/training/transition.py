"""When a module is exported, when a graph is processed, and when what there is serves: one state machine.

A manager starts `new`, has a graph when it is `exported`, and what a program is compiled from when it is `processed`. Before each
call it looks at what the graph depends on, finds the heaviest change, and does what TRANSITIONS says. What was made for other
inputs, flags or gradients is remembered (as far as the tree of modules is the same), so that going back costs nothing. A step
that fails raises, and leaves the manager as it was before; an export that succeeded for a new manager stays.

docs/training.md prints the table; tests/training/test_transition.py goes through it row by row.
"""

from __future__ import annotations

import enum
import inspect
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.records import dataclass
from sardonyx.training.arrays import Array, TensorArrays, array_of
from sardonyx.training.debug import DebugOptions
from sardonyx.training.fallback import (
    ModuleHasHooks,
    ORTModuleDeviceException,
    ORTModuleIOError,
    ORTModuleONNXModelException,
)
from sardonyx.training.flatten import (
    ConstantSchema,
    Leaf,
    ScalarSchema,
    Schema,
    TensorSchema,
    UnsupportedType,
    constants,
    fits,
    flatten,
    leaf_schemas,
)
from sardonyx.training.frontend.cache import cached_export
from sardonyx.training.frontend.exported import ExportedGraph, ExportError, InputSource
from sardonyx.training.frontend.patches import NumberNeeded
from sardonyx.training.frontend.torchscript import CallInputs, export_module
from sardonyx.training.model_info import ExportedModelInfo, ModelInfoForExport, PostExportProcessedModelInfo
from sardonyx.training.size_guards import Sizes
from sardonyx.training.structure import ModuleStructure

REMEMBERED: Final = 16  # graphs, and processed graphs, that a manager keeps


class GraphState(enum.Enum):
    """How far a manager has come."""

    NEW = "new"
    EXPORTED = "exported"
    PROCESSED = "processed"


class Change(enum.IntEnum):
    """What is different from the call before; of several changes the greatest counts."""

    NOTHING = 0
    GRADIENTS = 1  # requires_grad of an input or parameter; gradients switched on or off
    INPUTS = 2  # structure, element type or rank; None, bool or str; a number that the graph has taken up
    FLAGS = 3  # training mode of a submodule, element type of a parameter, autocast
    MODULE = 4  # a submodule, parameter or buffer added, removed or replaced; an attribute set through the training module


class Action(enum.Enum):
    """What a transition does."""

    REUSE = "reuse"
    RECALL = "recall"  # what was made for an earlier call
    PROCESS = "process"
    EXPORT = "export"
    FORGET = "forget"  # everything made before


class Met(enum.Enum):
    """What of a call the manager has met before, and remembers."""

    NO = "no"
    GRAPH = "graph"  # the graph, with other gradients
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: in this state, after this change, if this was met before (None: whatever was), do this and be in that state."""

    state: GraphState
    change: Change
    met: Met | None
    actions: tuple[Action, ...]
    result: GraphState


_FULL: Final = (Action.EXPORT, Action.PROCESS)
TRANSITIONS: Final = (
    Transition(GraphState.NEW, Change.NOTHING, None, _FULL, GraphState.PROCESSED),
    Transition(GraphState.EXPORTED, Change.NOTHING, None, (Action.PROCESS,), GraphState.PROCESSED),
    Transition(GraphState.EXPORTED, Change.GRADIENTS, None, (Action.PROCESS,), GraphState.PROCESSED),
    Transition(GraphState.EXPORTED, Change.INPUTS, None, _FULL, GraphState.PROCESSED),
    Transition(GraphState.EXPORTED, Change.FLAGS, None, _FULL, GraphState.PROCESSED),
    Transition(GraphState.EXPORTED, Change.MODULE, None, (Action.FORGET, *_FULL), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.NOTHING, None, (Action.REUSE,), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.GRADIENTS, Met.GRAPH, (Action.PROCESS,), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.GRADIENTS, Met.ALL, (Action.RECALL,), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.INPUTS, Met.NO, _FULL, GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.INPUTS, Met.GRAPH, (Action.PROCESS,), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.INPUTS, Met.ALL, (Action.RECALL,), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.FLAGS, Met.NO, _FULL, GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.FLAGS, Met.GRAPH, (Action.PROCESS,), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.FLAGS, Met.ALL, (Action.RECALL,), GraphState.PROCESSED),
    Transition(GraphState.PROCESSED, Change.MODULE, None, (Action.FORGET, *_FULL), GraphState.PROCESSED),
)
_ROWS: Final = {(row.state, row.change, met): row for row in TRANSITIONS for met in (Met if row.met is None else (row.met,))}


def transition_of(state: GraphState, change: Change, met: Met) -> Transition:
    """The row that holds."""
    return _ROWS[state, Change.NOTHING if state is GraphState.NEW else change, met]


def transition_table() -> str:
    """The table as Markdown."""
    lines = ["| state | change | met before | does | state after |", "|---|---|---|---|---|"]
    for row in TRANSITIONS:
        change = "any" if row.state is GraphState.NEW else row.change.name.lower()
        actions = ", ".join(action.value for action in row.actions)
        lines.append(f"| {row.state.value} | {change} | {row.met.value if row.met else 'any'} | {actions} | {row.result.value} |")
    return "\n".join(lines)


@dataclass(slots=True)
class Counters:
    """How often each costly step was done."""

    exports: int = 0
    processings: int = 0
    compilations: int = 0


class _Call(NamedTuple):
    """What a call looks like to the manager: all that graphs depend on."""

    schema: Schema
    leaves: list[Leaf]
    export_key: tuple[Any, ...]
    gradient_key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Current:
    """A call, and what runs calls that look the same; None if its graph was exported, but not processed."""

    call: _Call
    info: PostExportProcessedModelInfo | None


class GraphTransitionManager:
    """Makes and keeps the graphs of a module; see the module's docstring."""

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        is_training: bool,
        debug_options: DebugOptions | None = None,
        logger: logging.Logger | None = None,
        opset: int = 17,
        skip_checks: bool = False,
        cache_dir: str = "",
    ) -> None:
        self._module = module
        self._is_training = is_training
        self._debug = debug_options or DebugOptions()
        self._logger = logger or logging.getLogger(__name__)
        self._opset = opset
        self._skip_checks = skip_checks
        self._cache_dir = cache_dir
        self._export_extra_kwargs: dict[str, Any] = {}
        self.counters = Counters()
        self._parameters = tuple(inspect.signature(module.forward).parameters.values())
        self._numbers_are_leaves = True
        self._structure: ModuleStructure | None = None
        self._original_model_has_changed = False
        self._lock = ForkSafeLock(reentrant=True)  # held while something is made: exports take turns in all of torch
        self._current: _Current | None = None  # of the last call that succeeded, or was exported; replaced, never changed
        self._model_info_for_export: ModelInfoForExport | None = None
        self._exported_model_info: ExportedModelInfo | None = None
        self._post_export_processed_model_info: PostExportProcessedModelInfo | None = None
        self._exports: OrderedDict[Any, ExportedModelInfo] = OrderedDict()
        self._guarded: dict[Any, list[ExportedModelInfo]] = {}  # graphs for some sizes only, by the rest of the key
        self._processed: OrderedDict[Any, PostExportProcessedModelInfo] = OrderedDict()

    @property
    def state(self) -> GraphState:
        """How far it has come."""
        if self._post_export_processed_model_info is not None:
            return GraphState.PROCESSED
        return GraphState.EXPORTED if self._exported_model_info is not None else GraphState.NEW

    def signal_model_changed(self) -> None:
        """The module is not what it was, in a way that its structure does not show: the next call exports."""
        self._original_model_has_changed = True

    def known_parameters(self) -> list[torch.nn.Parameter] | None:
        """The module's parameters, each once; None if the last call, if any, found another tree of modules."""
        structure = self._structure
        return None if structure is None or not structure.holds_tree() else structure.present_parameters()

    def get_post_processed_model(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[bool, PostExportProcessedModelInfo, list[Leaf]]:
        """For the arguments of a call: whether something was made anew, what to run, and the leaves of the arguments."""
        current = self._current
        if self._skip_checks and current is not None and current.info is not None:
            leaves: list[Leaf] = []
            flatten((args, kwargs), leaves, numbers=self._numbers_are_leaves)
            return False, current.info, leaves
        call = self._look(args, kwargs, current)
        if current is not None and current.info is not None and self._change(call, current) is Change.NOTHING:
            return False, current.info, call.leaves
        with held_off, self._lock:
            current = self._current  # another thread may have made it in the meantime
            call = self._look(args, kwargs, current)
            change = self._change(call, current)
            if current is not None and current.info is not None and change is Change.NOTHING:
                return False, current.info, call.leaves
            try:
                return self._step(call, change)
            except NumberNeeded:
                self._numbers_are_leaves = False
                return self.get_post_processed_model(args, kwargs)

    def _look(self, args: Sequence[Any], kwargs: Mapping[str, Any], current: _Current | None) -> _Call:
        leaves: list[Leaf] = []
        if current is not None and fits(current.call.schema, (args, kwargs), leaves, numbers=self._numbers_are_leaves):
            schema = current.call.schema
        else:
            leaves = []
            try:
                schema = flatten((args, kwargs), leaves, numbers=self._numbers_are_leaves)
            except UnsupportedType as error:
                raise self._unsupported_input(error, args, kwargs) from None
        structure = self._structure
        if structure is None or not structure.holds():
            self._original_model_has_changed = structure is not None or self._original_model_has_changed
            structure = self._structure = ModuleStructure(self._module)
        hook = structure.hook()
        if hook is not None:
            raise ModuleHasHooks(
                f"the module has a {hook}, which a compiled graph would not call: register it on the training module itself, "
                "or remove it"
            )
        types, parameter_gradients = structure.parameter_flags()
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        gradients: tuple[Any, ...] = (False,)
        if torch.is_grad_enabled():
            of_leaves = tuple([isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves])
            gradients = (True in parameter_gradients or True in of_leaves, of_leaves, parameter_gradients)
        key = (schema, structure.training_flags(), types, autocast)
        return _Call(schema, leaves, (*key, self._variant(key, leaves) if self._guarded else 0), gradients)

    def _variant(self, key: tuple[Any, ...], leaves: Sequence[Leaf]) -> int:
        """Which of the graphs of a key is right for the sizes of a call; the next number, if none is."""
        known = self._guarded.get(key, ())
        if not known:
            return 0
        sizes = _sizes_of(leaves)
        for number, exported in enumerate(known):
            guards = exported.graph.guards
            if guards is None or guards.hold(sizes, lambda exported=exported: self._guard_inputs(exported, leaves)):  # type: ignore[misc]
                return number
        return len(known)

    def _guard_inputs(self, exported: ExportedModelInfo, leaves: Sequence[Leaf]) -> list[Array]:
        structure, guards = self._structure, exported.graph.guards
        assert structure is not None
        assert guards is not None
        numbers = {name: number for number, name in enumerate(exported.call.onnx_graph_input_names)}
        found: list[Array] = []
        for name in guards.input_names:
            slot = None if name in numbers else structure.slot(name)
            value: Any = leaves[numbers[name]] if slot is None else slot[0][slot[1]]
            found.append(array_of(value if isinstance(value, torch.Tensor) else torch.tensor(value)))
        return found

    def _unsupported_input(self, error: UnsupportedType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ORTModuleIOError:
        for name, value in self._named_arguments(args, kwargs):
            try:
                flatten(value, [], path=name)
            except UnsupportedType as found:
                return ORTModuleIOError(f"ORTModule does not support input type {found.found} for input {name}: {found}")
        return ORTModuleIOError(str(error))

    def _change(self, call: _Call, current: _Current | None) -> Change:
        if self._original_model_has_changed:
            return Change.MODULE
        if current is None:
            return Change.NOTHING
        before = current.call
        if call.export_key != before.export_key:
            same = call.export_key[0] == before.export_key[0] and call.export_key[-1] == before.export_key[-1]
            return Change.FLAGS if same else Change.INPUTS
        return Change.NOTHING if call.gradient_key == before.gradient_key else Change.GRADIENTS

    def _step(self, call: _Call, change: Change) -> tuple[bool, PostExportProcessedModelInfo, list[Leaf]]:
        key = call.export_key, call.gradient_key
        row = transition_of(self.state, change, self._met(call))
        kept = self._exports, self._processed
        try:
            if Action.FORGET in row.actions:
                self._exports, self._processed = OrderedDict(), OrderedDict()
                self._guarded = {}
            if Action.RECALL in row.actions:
                info, exported = self._processed[key], self._exports[call.export_key]
            else:
                exported = self._export(call) if Action.EXPORT in row.actions else self._exports[call.export_key]
                info = self._process(exported, call)
        except BaseException:
            if self.state is not GraphState.NEW:
                self._exports, self._processed = kept
            raise
        self._remember(call, exported, info)
        return Action.RECALL not in row.actions, info, call.leaves

    def _met(self, call: _Call) -> Met:
        if (call.export_key, call.gradient_key) in self._processed:
            return Met.ALL
        return Met.GRAPH if call.export_key in self._exports else Met.NO

    def _remember(self, call: _Call, exported: ExportedModelInfo, info: PostExportProcessedModelInfo | None) -> None:
        self._exports[call.export_key] = exported
        self._exports.move_to_end(call.export_key)
        if info is not None:
            self._processed[call.export_key, call.gradient_key] = info
            self._processed.move_to_end((call.export_key, call.gradient_key))
        for table in (self._exports, self._processed):
            while len(table) > REMEMBERED:
                table.popitem(last=False)
        self._current = _Current(_Call(call.schema, [], call.export_key, call.gradient_key), info)  # without the tensors
        self._model_info_for_export, self._exported_model_info = exported.call, exported
        self._post_export_processed_model_info = info
        self._original_model_has_changed = False

    def _named_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """The arguments by the names of the parameters they are for: those of `*args` are numbered."""
        positional = [each for each in self._parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        variadic = next((each.name for each in self._parameters if each.kind is each.VAR_POSITIONAL), "input")
        named = [
            (positional[index].name if index < len(positional) else f"{variadic}_{index - len(positional)}", value)
            for index, value in enumerate(args)
        ]
        return [*named, *kwargs.items()]

    def _export(self, call: _Call) -> ExportedModelInfo:
        assert self._structure is not None
        self._check_devices(call.leaves)
        info = self._info_for_export(call)
        try:
            graph = self._graph_of(info.inputs)
        except UnsupportedType as error:
            raise ORTModuleIOError(
                f"ORTModule fails to extract schema from data: Unsupported flatten data type: {error.found}: {error}"
            ) from error
        except NumberNeeded:
            raise
        except ExportError as error:
            raise ORTModuleONNXModelException(f"There was an error while exporting the PyTorch model to ONNX: {error}") from error
        if graph.fixed_by_sizes:
            lines = "\n  ".join(graph.fixed_by_sizes)
            self._logger.debug(
                f"sizes of tensors became Python values at these lines; what they decided holds for all sizes:\n  {lines}"
            )
        args_schema, kwargs_schema = call.schema.children  # type: ignore[union-attr]
        exported = ExportedModelInfo(graph, info, args_schema, kwargs_schema, graph.output_schema)
        self._structure.look_again()
        if graph.guards is not None:
            graph.guards.note(_sizes_of(call.leaves))
            known = self._guarded.setdefault(call.export_key[:-1], [])
            known[call.export_key[-1] :] = [exported]
        self._debug.save_stage(graph.model, "torch_exported", is_training=self._is_training)
        if self.state is GraphState.NEW:
            self._remember(call, exported, None)
        return exported

    def _graph_of(self, inputs: CallInputs) -> ExportedGraph:
        if self._cache_dir and not self._export_extra_kwargs:
            graph, is_new = cached_export(self._cache_dir, self._module, inputs, opset=self._opset)
            self.counters.exports += is_new
            return graph
        self.counters.exports += 1
        return export_module(self._module, inputs, opset=self._opset, extra=self._export_extra_kwargs)

    def _info_for_export(self, call: _Call) -> ModelInfoForExport:
        args_schema, kwargs_schema = call.schema.children  # type: ignore[union-attr]
        arguments = self._named_arguments(
            args_schema.children, dict(zip(kwargs_schema.keys, kwargs_schema.children, strict=True))
        )
        leaves = [leaf for name, schema in arguments for leaf in leaf_schemas(schema, name)]
        names = _unique([name for name, _ in leaves])
        for name, schema in arguments:
            for at, constant in constants(schema, name):
                self._tell_constant(at, constant)
        wanted = [
            name for name, leaf in zip(names, call.leaves, strict=True) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        axes = {
            name: {axis: f"{name}_dim{axis}" for axis in range(schema.rank)}
            for name, (_, schema) in zip(names, leaves, strict=True)
            if isinstance(schema, TensorSchema)
        }
        return ModelInfoForExport(CallInputs(call.schema, tuple(call.leaves), names), names, wanted, axes)

    def _tell_constant(self, name: str, constant: ConstantSchema) -> None:
        if constant.type is str:
            self._logger.info(
                f"Received input of type {constant.type} is treated as a constant by ORT by default. "
                f"Input {name} is {constant.value!r}; for another value the module is exported anew."
            )

    def _check_devices(self, leaves: Sequence[Leaf]) -> None:
        device = next((each.device for each in self._module.parameters()), None)
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and device is not None and leaf.device != device:
                raise ORTModuleDeviceException(
                    f"Input argument to forward found on device {leaf.device}, but expected it to be on module device {device}."
                )
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
                raise ORTModuleDeviceException(f"an input is on {leaf.device}: compiled programs read the CPU's memory only")
            if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
                raise ORTModuleIOError(f"an input is a tensor of layout {leaf.layout}: pass it dense (.to_dense())")
        if device is not None and device.type != "cpu":
            raise ORTModuleDeviceException(
                f"the module is on {device}: compiled programs run on the CPU only; move it (.to('cpu'))"
            )

    def _process(self, exported: ExportedModelInfo, call: _Call) -> PostExportProcessedModelInfo:
        structure = self._structure
        assert structure is not None
        self.counters.processings += 1
        graph = exported.graph
        sources: list[tuple[int, dict[str, torch.Tensor | None] | None, str]] = []
        wanted: list[int] = []
        leaf_types: list[torch.dtype | None] = []
        schemas = [schema for _, schema in leaf_schemas(call.schema, "")]
        gradients_on = call.gradient_key[0]
        for position, each in enumerate(graph.inputs):
            leaf_types.append(None)
            if each.source is InputSource.USER:
                sources.append((each.leaf, None, each.origin))
                leaf = call.leaves[each.leaf]
                if isinstance(schemas[each.leaf], ScalarSchema):
                    leaf_types[-1] = torch.tensor(leaf).dtype
                tensor: Any = leaf
            else:
                slot = structure.slot(each.origin)
                sources.append((-1, *slot))
                tensor = slot[0][slot[1]]
            if gradients_on and isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                wanted.append(position)
        names = tuple(each.name for each in graph.inputs)
        lasting = tuple(position for position, each in enumerate(graph.inputs) if each.source is not InputSource.USER)
        user = tuple(each.name for each in graph.inputs if each.source is InputSource.USER)
        with_gradients = tuple(names[position] for position in wanted)
        info = PostExportProcessedModelInfo(
            onnx_graph_input_names=names,
            onnx_graph_input_names_require_grad=with_gradients,
            onnx_graph_input_names_user_defined=user,
            onnx_graph_input_names_require_grad_user_defined=tuple(name for name in with_gradients if name in user),
            onnx_graph_input_dynamic_axes_map=exported.call.onnx_graph_input_dynamic_axes_map,
            module_forward_output_schema=graph.output_schema,
            post_export_processed_model=graph.model,
            output_count=graph.output_count,
            updated_buffers=tuple(structure.slot(name) for name in graph.updated_buffers),
            counted_buffers=tuple((*structure.slot(name), count) for name, count in graph.counted_buffers),
            needs_gradients=bool(wanted),
            gradient_positions=tuple(wanted),
            updated_positions=frozenset(
                position
                for position, each in enumerate(graph.inputs)
                if each.origin in graph.updated_buffers and each.source is InputSource.BUFFER
            ),
            _sources=tuple(sources),
            _numbers=self._numbers_are_leaves,
            _leaf_types=tuple(leaf_types),
            _passed=tuple(position for position in range(len(sources)) if position not in lasting),
            _lasting=lasting,
            _arrays=TensorArrays(lasting),
        )
        if self._is_training:
            self._debug.save_stage(graph.model, "optimized_pre_grad", is_training=True)
        return info


def _sizes_of(leaves: Sequence[Leaf]) -> Sizes:
    return tuple([tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)])


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Names that occur again get a number: nesting can make two places sound alike."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(f"{name}_again{count}" if count else name)
    return tuple(result)
