"""InferenceSession: a model opened, compiled and ready to run, with ONNX Runtime's methods.

    session = InferenceSession("model.onnx")
    [y] = session.run(None, {"x": x})

Several threads may run one session; it can be pickled (it opens its model again) and used after a fork.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from sardonyx import errors
from sardonyx.codegen.object_cache import is_private
from sardonyx.ir.dims import Expr
from sardonyx.ir.graph import Graph, Model, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import Type
from sardonyx.options import (
    AVAILABLE_PROVIDERS,
    CPU_PROVIDER,
    KNOWN_PROVIDERS,
    ExecutionMode,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    environment,
)
from sardonyx.plan.plan import ExecutionPlan, Port
from sardonyx.runtime import saved
from sardonyx.runtime.binding import IOBinding
from sardonyx.runtime.devices import CPU_MEMORY, OrtEpDevice, OrtMemoryInfo, get_ep_devices
from sardonyx.runtime.executor import RunControl, never_fast
from sardonyx.runtime.feeds import FeedReader, present
from sardonyx.runtime.logs import INFO, log
from sardonyx.runtime.pool import usable_cores
from sardonyx.runtime.ports import ModelMetadata, NodeArg, OrtEpAssignedSubgraph, declared_type
from sardonyx.runtime.profile import Profiler
from sardonyx.runtime.values import OrtValue, OrtValueVector

Providers = Sequence["str | tuple[str, dict[Any, Any]]"]

_SPINNING: Final = "session.intra_op.allow_spinning"
_EXTERNAL_FILE: Final = "session.optimized_model_external_initializers_file_name"
_EXTERNAL_MIN: Final = "session.optimized_model_external_initializers_min_size_in_bytes"
_EXTERNAL_FOLDER: Final = "session.model_external_initializers_file_folder_path"
_RECORD_ASSIGNMENT: Final = "session.record_ep_graph_assignment_info"
_DENOTATION: Final = "onnx.denotation."
_UNCONTROLLED: Final = RunControl()


def check_and_normalize_provider_args(
    providers: Providers | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Provider names and, for each, its options as strings; names that are not there or come twice give a warning."""
    if providers is None:
        return [], []
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if isinstance(providers, str):  # a single name was meant: its letters never are
        providers = [providers]
    if provider_options is not None:
        if not isinstance(provider_options, Sequence):
            raise ValueError("'provider_options' should be a sequence.")
        if len(providers) != len(provider_options):
            raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
        if not all(isinstance(provider, str) for provider in providers):
            raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
        if not all(isinstance(options, dict) for options in provider_options):
            raise ValueError("'provider_options' values must be dicts.")
        pairs: list[tuple[Any, ...]] = list(zip(providers, provider_options))
    else:
        pairs = [provider if isinstance(provider, tuple) else (provider, {}) for provider in providers]
    chosen: dict[str, dict[str, str]] = {}
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], dict):
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        name, options = pair
        if name not in available_provider_names:
            listing = ", ".join(available_provider_names)
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names.Available providers: '{listing}'", stacklevel=4
            )
        if name in chosen:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=4)
            continue
        chosen[name] = {str(key): str(value) for key, value in options.items()}
    return list(chosen), list(chosen.values())


class CompiledModel(Protocol):
    """What a session needs of a compiled model, whoever computes it."""

    @property
    def plan(self) -> ExecutionPlan: ...

    @property
    def node_count(self) -> int: ...

    @property
    def inputs(self) -> tuple[Port, ...]: ...

    @property
    def outputs(self) -> tuple[Port, ...]: ...

    @property
    def overridable_initializers(self) -> tuple[Port, ...]: ...

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]: ...

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None: ...


@dataclass(frozen=True)
class _Opened:
    """All that belongs to one compiled model."""

    options: SessionOptions
    providers: dict[str, Mapping[str, str]]
    program: CompiledModel
    feeds: FeedReader
    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    output_types: dict[str, Type | None]
    metadata: ModelMetadata
    profiler: Profiler | None
    run_fast: Callable[[dict[str, Any]], list[Any] | None]


@dataclass(frozen=True)
class _About:
    """How a model describes itself; kept beside a saved program."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    metadata: ModelMetadata


def _opened(
    options: SessionOptions,
    providers: dict[str, Mapping[str, str]],
    program: CompiledModel,
    about: _About,
    profiler: Profiler | None,
) -> _Opened:
    return _Opened(
        options=options,
        providers=providers,
        program=program,
        feeds=FeedReader(program.inputs, program.overridable_initializers),
        inputs=about.inputs,
        outputs=about.outputs,
        overridable=about.overridable,
        output_types={port.name: port.type for port in program.outputs},
        metadata=about.metadata,
        profiler=profiler,
        run_fast=program.run_fast if profiler is None else never_fast,
    )


def _save(place: tuple[Path, str], program: CompiledModel, about: _About) -> None:
    """Keep a compiled program for the next session of this model, if all of it is native."""
    from sardonyx.native_model import NativeModel  # lazy: only a session that compiled something gets here

    if isinstance(program, NativeModel):
        record = program.record(about)
        if record is not None:
            saved.save(*place, record, program.main.program.constants)


def _is_external(value: Value) -> bool:
    return isinstance(value.constant, Tensor) and value.constant.external is not None


class InferenceSession:
    """A model ready to run.

    `path_or_bytes` is a path, the model's bytes, an open binary file, or an object with SerializeToString. `providers` are
    names, or (name, options) pairs, by falling priority; what no other provider takes runs on the CPU.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._source = _source(path_or_bytes)
        self._folder = None if isinstance(self._source, str) else _current_folder()
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options: expected SessionOptions, got {type(sess_options).__name__}")
        self._initial_options = sess_options if sess_options is not None else SessionOptions()
        self._enable_fallback = int(kwargs.get("enable_fallback", 1)) == 1
        from_model = kwargs.get("read_config_from_model", environment().load_config_from_model)
        self._read_config_from_model = int(from_model) == 1
        self._disabled_optimizers = frozenset(kwargs.get("disabled_optimizers") or ())
        names, settings = check_and_normalize_provider_args(providers, provider_options, AVAILABLE_PROVIDERS)
        if names and self._initial_options.has_providers():
            warnings.warn(
                "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has already been "
                "configured with providers. InferenceSession will only use the providers passed to InferenceSession().",
                stacklevel=2,
            )
        self._opened = self._open(dict(zip(names, settings)), strict=not self._enable_fallback)

    def __repr__(self) -> str:
        source = repr(self._source) if isinstance(self._source, str) else "a model in memory"
        return f"InferenceSession({source}, providers={self.get_providers()})"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        opened = state.pop("_opened")
        state["_pickled_providers"] = opened.providers
        state["_initial_options"] = self._initial_options.copy()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        providers = state.pop("_pickled_providers")
        self.__dict__.update(state)
        self._opened = self._open(providers, strict=False)

    def _open(self, providers: Mapping[str, Mapping[str, str]], strict: bool, use_saved: bool = True) -> _Opened:
        unknown = [name for name in providers if name not in KNOWN_PROVIDERS]
        if unknown and strict:
            raise RuntimeError(f"Unknown Provider Type: {unknown[0]}")
        options = self._initial_options.copy()
        self._stop_if_cancelled()
        profiler = Profiler(options.profile_file_prefix) if options.enable_profiling else None
        folder = options.config_entries.get(_EXTERNAL_FOLDER) or self._folder
        wanted = providers or dict(options.provider_settings)
        chosen = {name: wanted[name] for name in wanted if name in AVAILABLE_PROVIDERS}
        chosen.setdefault(CPU_PROVIDER, {})
        place = self._saved_place(options, chosen)
        if place is not None and use_saved:
            opened = self._open_saved(place, options, chosen)
            if opened is not None:
                return opened
        from sardonyx.compiler import compile_model  # lazy: a model that is saved as a program needs no compiler
        from sardonyx.formats.onnx import load  # lazy: nor its file

        with _span(profiler, "model_loading_uri" if isinstance(self._source, str) else "model_loading_array"):
            replaced = options.replaced_initializers
            model = load(self._source, base_dir=folder, external_files=options.external_files or None, replaced=replaced)
        if self._read_config_from_model:
            apply_model_config(options, model.metadata.get("ort_config", ""))
            if options.enable_profiling and profiler is None:
                profiler = Profiler(options.profile_file_prefix)
        self._stop_if_cancelled()
        metadata = ModelMetadata.of(model)
        declared = {value.name: value.type for value in model.graph.outputs}
        written = {value.name: dict(value.metadata) for value in (*model.graph.inputs, *model.graph.outputs) if value.metadata}
        self_contained = not any(_is_external(value) for value in model.graph.initializers.values())
        compile_options = options.compile_options(chosen, self._disabled_optimizers, model.graph.initializers)
        named = _dimensions_by_denotation(model.graph, compile_options.free_dimension_denotations)
        if named:
            sizes = {**named, **compile_options.free_dimension_overrides}
            compile_options = dataclasses.replace(compile_options, free_dimension_overrides=sizes)
        with _span(profiler, "session_initialization"):
            program = compile_model(model, compile_options)
        if profiler is not None:
            weakref.finalize(self, profiler.finish)  # a trace nobody ends is written all the same
        self._stop_if_cancelled()
        if options.optimized_model_filepath:
            save_optimized(model, options)
        self._log_opening(program, chosen, options)
        about = _About(
            inputs=[NodeArg.of(port.name, port.type, written.get(port.name)) for port in program.inputs],
            outputs=[
                NodeArg.of(port.name, declared_type(declared.get(port.name), port.type), written.get(port.name))
                for port in program.outputs
            ],
            overridable=[NodeArg.of(port.name, port.type, written.get(port.name)) for port in program.overridable_initializers],
            metadata=metadata,
        )
        if place is not None and self_contained:
            _save(place, program, about)
        return _opened(options, chosen, program, about, profiler)

    def _log_opening(self, program: CompiledModel, providers: Mapping[str, Any], options: SessionOptions) -> None:
        where = self._source if isinstance(self._source, str) else "memory"
        text, facts = "model from %s: %d nodes, providers %s", (where, program.node_count, ", ".join(providers))
        log(INFO, text, *facts, threshold=options.log_severity_level, logid=options.logid)

    def _saved_place(self, options: SessionOptions, providers: Mapping[str, Mapping[str, str]]) -> tuple[Path, str] | None:
        """Where a compiled program of this model and these options is kept; None if it may not be, or not be used."""
        folder = environment().cache_folder
        plain = not (options.enable_profiling or options.optimized_model_filepath or options.replaced_initializers)
        if folder is None or not plain or options.external_files or self._read_config_from_model:
            return None
        if next(iter(providers)) != CPU_PROVIDER or not is_private(folder):
            return None
        compile_options = options.compile_options(providers, self._disabled_optimizers, {})
        settings = dataclasses.replace(compile_options, intra_op_num_threads=0, inter_op_num_threads=0)
        key = saved.identity(self._source, f"{settings}|{sorted(settings.disabled_optimizers)}")
        return None if key is None else (folder, key)

    def _open_saved(
        self, place: tuple[Path, str], options: SessionOptions, providers: dict[str, Mapping[str, str]]
    ) -> _Opened | None:
        found = saved.read(*place)
        if found is None:
            return None
        record, arrays = found
        spinning = options.config_entries.get(_SPINNING, "1") != "0"
        workers = options.intra_op_num_threads or usable_cores()

        session = weakref.ref(self)  # the program must not keep the session alive

        def open_full() -> CompiledModel:
            owner = session()
            if owner is None:
                raise errors.NoModel("the session is gone")
            return owner._open(providers, strict=False, use_saved=False).program

        try:
            program = saved.SavedModel(record, arrays, workers, spinning, open_full)
        except errors.EngineError:  # code this machine does not take
            return None
        self._log_opening(program, providers, options)
        return _opened(options, providers, program, record.about, None)

    def _stop_if_cancelled(self) -> None:
        if self._initial_options.load_cancelled:
            raise errors.ModelLoadCanceled("loading the model was canceled due to user request.")

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute outputs from inputs: arrays, lists for sequences, dictionaries for maps, None for absent optional values.

        `output_names` may name any value of the graph, not only outputs; None or an empty list stands for all outputs.
        """
        if run_options is None and not output_names and type(input_feed) is dict:
            quick = self._opened.run_fast(input_feed)
            if quick is not None:
                return quick
        declared = self._opened.output_types
        fetches = self._fetches(output_names)
        results = self._compute(fetches, input_feed, run_options)
        return [present(value, declared.get(name)) for name, value in zip(fetches, results)]

    async def arun(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """`run` for asyncio: other tasks go on meanwhile; cancelling the task stops the run before its next node."""
        import asyncio  # lazy: most programs never use it

        options = run_options if run_options is not None else RunOptions()
        try:
            return await asyncio.to_thread(self.run, output_names, input_feed, options)
        except asyncio.CancelledError:
            options.terminate = True
            raise

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Sequence[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """`run` in another thread, which then calls `callback(results, user_data, error)`; the error is "" after success.

        A feed that lacks inputs is refused here; whatever else is wrong reaches the callback.
        """
        fetches = self._fetches(output_names)
        self._opened.feeds.require(input_feed)

        def work() -> None:
            try:
                results, error = self.run(fetches, input_feed, run_options), ""
            except Exception as failure:  # the callback is the only one who can be told
                results, error = [], getattr(failure, "message", str(failure)) or type(failure).__name__
            callback(results, user_data, error)

        threading.Thread(target=work, name="sardonyx-run-async").start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` with OrtValues in and out."""
        for name, value in input_dict_ort_values.items():
            if not isinstance(value, OrtValue):
                raise TypeError(f"input {name!r}: expected an OrtValue, got {type(value).__name__}")
        return self._run_ort_values(self._fetches(output_names), input_dict_ort_values, run_options)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any],
    ) -> None:
        """`run` with the inputs in one vector of OrtValues and the results put into another."""
        if len(feed_names) != len(feeds):
            raise errors.InvalidArgument(f"{len(feed_names)} names were given for {len(feeds)} feeds")
        fetches.assign(self._run_ort_values(self._fetches(fetch_names), dict(zip(feed_names, feeds)), run_options))

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """`run` with inputs and outputs as they were bound; results are read from the binding."""
        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        try:
            if not iobinding.fetches:
                raise errors.InvalidArgument("At least one output should be requested.")
            iobinding.accept(self._run_ort_values(iobinding.fetches, iobinding.feeds, run_options))
        except errors.InvalidArgument as error:
            raise errors.Fail(f"Error in execution: {error.message}", hint=error.hint) from error

    def io_binding(self) -> IOBinding:
        """A new binding of inputs and outputs."""
        return IOBinding(self)

    def _fetches(self, output_names: Sequence[str] | None) -> list[str]:
        if not output_names:
            return [port.name for port in self._opened.outputs]
        if isinstance(output_names, str):
            raise TypeError(f"output_names: expected a list of names, got the string {output_names!r}")
        for name in output_names:
            if not isinstance(name, str):
                raise TypeError(f"output_names: expected names, got {name!r}")
        return list(output_names)

    def _run_ort_values(
        self, fetches: Sequence[str], feed: Mapping[str, OrtValue], run_options: RunOptions | None
    ) -> list[OrtValue]:
        types = self._opened.output_types
        results = self._compute(fetches, feed, run_options)
        return [OrtValue.of(present(value, types.get(name)), types.get(name)) for name, value in zip(fetches, results)]

    def _compute(self, fetches: Sequence[str], feed: Mapping[str, Any], run_options: RunOptions | None) -> list[Any]:
        opened = self._opened
        if run_options is None:
            control = _UNCONTROLLED
        elif isinstance(run_options, RunOptions):
            if run_options.terminate:
                raise errors.Fail("Exiting due to terminate flag being set to true.")
            control = RunControl(terminate=lambda: run_options.terminate)
            if run_options.active_adapters:
                parameters = {
                    name: value for adapter in run_options.active_adapters for name, value in adapter.parameters.items()
                }
                feed = {**parameters, **feed}
        else:
            raise TypeError(f"run_options: expected RunOptions, got {type(run_options).__name__}")
        values = opened.feeds.read(feed)
        profiler = opened.profiler
        if profiler is None:
            return opened.program.run(values, fetches, control)
        with profiler.span("model_run"):
            return opened.program.run(values, fetches, dataclasses.replace(control, on_node=profiler.on_node))

    def input_names(self) -> list[str]:
        """Everything that may be fed: inputs and initializers that are inputs too."""
        return [arg.name for arg in (*self._opened.inputs, *self._opened.overridable)]

    def get_inputs(self) -> list[NodeArg]:
        """What must be fed."""
        return list(self._opened.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """What the model computes."""
        return list(self._opened.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Weights that are inputs too: a feed of that name replaces them in a run."""
        return list(self._opened.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._opened.metadata

    def get_session_options(self) -> SessionOptions:
        """The options the session was made with."""
        return self._opened.options

    def get_providers(self) -> list[str]:
        """Execution providers by falling priority; the CPU is always among them."""
        return list(self._opened.providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each execution provider."""
        return {name: dict(options) for name, options in self._opened.providers.items()}

    def set_providers(
        self, providers: Providers | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Compile the model again for other providers; if that fails the session stays as it was."""
        names, settings = check_and_normalize_provider_args(providers, provider_options, AVAILABLE_PROVIDERS)
        self._opened = self._open(dict(zip(names, settings)), strict=True)

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider computes which node; needs the configuration entry session.record_ep_graph_assignment_info=1."""
        if self._opened.options.config_entries.get(_RECORD_ASSIGNMENT) != "1":
            raise errors.Fail(
                f"Session configuration entry '{_RECORD_ASSIGNMENT}' must be set to \"1\" "
                "to retrieve EP graph assignment information."
            )
        return [OrtEpAssignedSubgraph.of(step) for step in self._opened.program.plan.steps]

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where inputs are expected to lie."""
        return [CPU_MEMORY] * len(self._opened.inputs)

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where outputs will lie."""
        return [CPU_MEMORY] * len(self._opened.outputs)

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The device that reads each input."""
        return get_ep_devices() * len(self._opened.inputs)

    def end_profiling(self) -> str:
        """Stop profiling and write the trace; its file name, or "" if nothing is being profiled."""
        profiler = self._opened.profiler
        return profiler.finish() if profiler is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, comparable to time.monotonic_ns(); 0 if it did not."""
        profiler = self._opened.profiler
        return profiler.start_ns if profiler is not None else 0

    def disable_fallback(self) -> None:
        """Let a failing provider's error reach the caller."""
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        """Fall back to the CPU when a provider is not there."""
        self._enable_fallback = True

    def get_tuning_results(self) -> list[Any]:
        """Nothing is tuned at run time: empty."""
        return []

    def set_tuning_results(self, results: Iterable[Any], *, error_on_invalid: bool = False) -> None:
        """Results of other runtimes do not apply; with `error_on_invalid` that is an error."""
        if error_on_invalid and list(results):
            raise errors.InvalidArgument("tuning results apply to the runtime and device they were made on")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Accepted for compatibility: the CPU has no options that change while a session lives."""
        for key, value in options.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"options must be pairs of strings, got {key!r}: {value!r}")

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor of zeros in memory this session can use."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Accepted for compatibility: nothing is captured on the CPU."""


def _span(profiler: Profiler | None, name: str) -> AbstractContextManager[None]:
    return nullcontext() if profiler is None else profiler.span(name)


def _source(given: Any) -> str | bytes:
    """A path, or bytes that can be read again."""
    if isinstance(given, (str, os.PathLike)):
        return os.path.abspath(os.fspath(given))
    if isinstance(given, bytes):
        return given
    if isinstance(given, (bytearray, memoryview)):
        return bytes(given)
    for reader in ("SerializeToString", "read"):
        if callable(getattr(given, reader, None)):
            content = getattr(given, reader)()
            if isinstance(content, bytes):
                return content
    raise TypeError(f"Unable to load from type '{type(given)}'")


def _current_folder() -> str | None:
    """Where the external data of a model without a path is looked for."""
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return None


def _dimensions_by_denotation(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The names of the input dimensions that have one of these denotations, with the size they shall have."""
    found: dict[str, int] = {}
    for value in graph.inputs if sizes else ():
        for axis, dim in enumerate(value.shape or ()):
            size = sizes.get(value.metadata.get(f"{_DENOTATION}{axis}", ""))
            if size is not None and isinstance(dim, Expr) and dim.is_symbol:
                found[str(dim)] = size
    return found


def apply_model_config(options: SessionOptions, text: str) -> None:
    """Set the options a model carries in its metadata: {"session_options": {"intra_op_num_threads": 2, ...}}."""
    import json  # lazy: few models carry options

    if not text:
        return
    try:
        settings = json.loads(text)["session_options"]
        for key, value in settings.items():
            if key in ("intra_op_num_threads", "inter_op_num_threads"):
                setattr(options, key, value)
            elif key == "execution_mode":
                options.execution_mode = ExecutionMode(value)
            elif key == "graph_optimization_level":
                options.graph_optimization_level = GraphOptimizationLevel(value)
            elif key == "enable_profiling":
                options.enable_profiling = bool(value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.Fail(f"the model's metadata entry 'ort_config' cannot be used: {type(error).__name__}: {error}") from error


def save_optimized(model: Model, options: SessionOptions) -> None:
    """Write the model as it was compiled to `optimized_model_filepath`."""
    from sardonyx.formats.onnx import save  # lazy: few sessions write their model

    external = options.config_entries.get(_EXTERNAL_FILE) or None
    threshold = int(options.config_entries.get(_EXTERNAL_MIN, "1024"))
    save(model, options.optimized_model_filepath, external_data=external, external_threshold=threshold)
