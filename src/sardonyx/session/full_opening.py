"""A session's program out of the model file: read, compiled, described, and saved for the next session."""

from __future__ import annotations

import dataclasses
import json
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

from sardonyx import errors
from sardonyx.compile.compiler import compile_model
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile.program_code import constant_bytes
from sardonyx.compile_options import CompileOptions
from sardonyx.enums import ExecutionMode, GraphOptimizationLevel
from sardonyx.forks import ForkSafeLock, cached_property
from sardonyx.formats.loading import load
from sardonyx.formats.program.read import ProgramCode
from sardonyx.formats.program.write import Record
from sardonyx.ir.dims import DimExpr
from sardonyx.ir.graph import Graph, Model
from sardonyx.mapped_file import FileIdentity
from sardonyx.options import (
    BACKGROUND_KEY,
    CACHES_KEY,
    EXTERNAL_FOLDER_KEY,
    FIXED_KEY,
    LAST_KEY,
    LOAD_FORMAT_KEY,
    RECORDING_KEY,
    SAVE_PACKINGS_KEY,
    SHARE_PACKING_KEY,
    SessionOptions,
)
from sardonyx.plan.native import constant_keys
from sardonyx.program.constants import by_content, by_identity
from sardonyx.provider_names import CPU_PROVIDER, REFERENCE_PROVIDER
from sardonyx.runtime import saved
from sardonyx.runtime.ports import ModelDescription, ModelMetadata, to_plain
from sardonyx.runtime.profile import Profiler
from sardonyx.runtime.specialisations import SpecialisationKey
from sardonyx.runtime.weight_store import WeightStore, content_store, shared_store
from sardonyx.session.opening import Opened, Opening, ProviderSettings
from sardonyx.session.progress import progress_line

if TYPE_CHECKING:
    from sardonyx.codegen.library import OnProgress
    from sardonyx.formats.program.description import Description
    from sardonyx.session.opening import CompiledModel
    from sardonyx.session.saving import PackingSaver

_DECODER_KEYS: Final = frozenset((CACHES_KEY, FIXED_KEY, LAST_KEY))
_REPLAY: Final = "session.enable_saved_runtime_optimizations"
_DENOTATION: Final = "onnx.denotation."
_TO_SETTLE: Final = 0.12  # seconds; see `mapped_file.is_settled`
_LONG_TO_WRITE: Final = 256 << 20  # bytes of constants that nobody is kept waiting for; fewer would disturb the first runs more


class ModelRead:
    """A model that was read, with all that is to be said of it once it is compiled, which changes it."""

    def __init__(
        self, opening: Opening, options: SessionOptions, providers: ProviderSettings, profiler: Profiler | None = None
    ) -> None:
        folder = options.config_entries.get(EXTERNAL_FOLDER_KEY) or opening.folder
        with _span(profiler, "model_loading_uri" if isinstance(opening.source, str) else "model_loading_array"):
            chosen, files = options.config_entries.get(LOAD_FORMAT_KEY, ""), options.external_files or None
            replaced = options.replaced_initializers
            model = load(opening.source, chosen=chosen, base_dir=folder, external_files=files, replaced=replaced)
        if opening.reads_config_from_model:
            apply_model_config(options, model.metadata.get("ort_config", ""))
        is_extended = options.graph_optimization_level > GraphOptimizationLevel.ORT_ENABLE_BASIC
        if is_extended and options.config_entries.get(_REPLAY) == "1":
            from sardonyx.passes.runtime_optimisations import replay_optimisations  # lazy: few models have any

            replay_optimisations(model, model.saved_optimisations)
        if not _DECODER_KEYS.isdisjoint(options.config_entries):
            from sardonyx.passes.prepare_decoder import prepare_decoder  # lazy: only who generates text asks for it

            prepare_decoder(model, options.config_entries)
        opening.stop_if_cancelled()
        self.model = model
        self.looked_at = model.looked_at
        self._metadata = ModelMetadata.of(model)
        self._declared = {value.name: value.type for value in model.graph.outputs}
        ends = (*model.graph.inputs, *model.graph.outputs)
        self._written = {value.name: dict(value.metadata) for value in ends if value.metadata}
        self.compile_options = _compile_options(opening, options, providers, model)

    def description(self, program: CompiledModel) -> ModelDescription:
        """How sessions describe the model."""
        ports = program.inputs, program.outputs, program.overridable_initializers
        return ModelDescription.of(ports, self._declared, self._written, self._metadata)


def _compile_options(opening: Opening, options: SessionOptions, providers: ProviderSettings, model: Model) -> CompileOptions:
    found = CompileOptions.of(options, providers, opening.disabled_optimizers, model.graph.initializers)
    found = dataclasses.replace(found, weights=_store(opening, options))
    if options.optimized_model_filepath and options.config_entries.get(RECORDING_KEY):
        basic = min(found.optimization_level, GraphOptimizationLevel.ORT_ENABLE_BASIC)
        found = dataclasses.replace(found, optimization_level=basic)
    named = _dimensions_by_denotation(model.graph, found.free_dimension_denotations)
    if named:
        found = dataclasses.replace(found, free_dimension_overrides={**named, **found.free_dimension_overrides})
    return found


def open_fully(
    opening: Opening, options: SessionOptions, providers: ProviderSettings, entry: saved.CacheEntry | None, *, is_saved: bool
) -> Opened:
    """Read and compile the model; `entry` is where its program may be saved, if it is not there already (`is_saved`)."""
    profiler = Profiler(options.profile_file_prefix) if options.enable_profiling else None
    if entry is not None:
        entry.find_key()
    read = ModelRead(opening, options, providers, profiler)
    if options.enable_profiling and profiler is None:  # the model says so
        profiler = Profiler(options.profile_file_prefix)
    save_if_asked, packings = _saving(options)
    if not is_saved and profiler is None and save_if_asked is None and packings is None and _in_background(options, providers):
        return _open_in_background(opening, options, providers, read, entry)
    with _span(profiler, "session_initialization"), progress_line(opening.source, options) as on_progress:
        program = compile_model(read.model, dataclasses.replace(read.compile_options, on_progress=on_progress), save_if_asked)
        if packings is not None:
            packings.save(program.packed_constants() if isinstance(program, NativeModel) else {})
            _leave_program(opening, options, providers)
    opening.stop_if_cancelled()
    description = read.description(program)
    if entry is not None:
        _save(entry, program, description, read.looked_at, is_saved=is_saved)
    opened = Opened(options, providers, program, lambda: description, profiler)
    if profiler is not None:
        weakref.finalize(opened, profiler.finish)  # a trace nobody ends is written all the same
    return opened


def _leave_program(opening: Opening, options: SessionOptions, providers: ProviderSettings) -> None:
    """Have the program of the model that was saved with packed weights in the cache: whoever opens it next finds it there."""
    path, plain = options.optimized_model_filepath, options.without_saving()
    time.sleep(_TO_SETTLE)  # nothing is remembered of files that were changed just now
    Opening(path, plain, opening.disabled_optimizers, opening.reads_config_from_model).leave_program(providers)


def _in_background(options: SessionOptions, providers: ProviderSettings) -> bool:
    """Whether the model is to be compiled while the session answers already. Other providers' regions have no second way."""
    return options.config_entries.get(BACKGROUND_KEY, "0") == "1" and list(providers) == [CPU_PROVIDER]


def _open_in_background(
    opening: Opening, options: SessionOptions, providers: ProviderSettings, read: ModelRead, entry: saved.CacheEntry | None
) -> Opened:
    """A session that NumPy serves until the model is compiled. A model with errors is refused here, as ever."""
    from sardonyx.session.background import BackgroundModel, Compilation  # lazy: few sessions ask for it

    plain = ModelRead(opening, options, providers)  # compiling changes a model
    reference = dataclasses.replace(plain.compile_options, providers=(REFERENCE_PROVIDER,), provider_options={})
    quick = compile_model(plain.model, reference)
    description = plain.description(quick)

    def compile_(on_progress: OnProgress) -> CompiledModel:
        def stop_or_tell(made: int, count: int) -> None:
            opening.stop_if_cancelled()
            on_progress(made, count)

        program = compile_model(read.model, dataclasses.replace(read.compile_options, on_progress=stop_or_tell))
        if entry is not None:
            _save(entry, program, description, read.looked_at, is_saved=False, may_wait=False)
        return program

    compilation = Compilation(compile_)
    opened = Opened(options, providers, BackgroundModel(quick, compilation), lambda: description)
    waiting = weakref.ref(opened)

    def take(program: CompiledModel) -> None:
        session = waiting()
        if session is not None:
            session.take(program)

    compilation.begin(take)
    return opened


def _saving(options: SessionOptions) -> tuple[Callable[[Model], None] | None, PackingSaver | None]:
    """What is to be done with the optimised model, and who writes it with packed weights, if those are asked for."""
    if not options.optimized_model_filepath and SAVE_PACKINGS_KEY not in options.config_entries:
        return None, None
    from sardonyx.session.saving import PackingSaver, save_optimized, saves_packings  # lazy: few sessions write anything

    if saves_packings(options):
        saver = PackingSaver(options)
        return saver.keep, saver
    return partial(save_optimized, options=options) if options.optimized_model_filepath else None, None


def _store(opening: Opening, options: SessionOptions) -> WeightStore:
    """Who packs the weights, and for whom."""
    if opening.container is not None:
        return opening.container.store
    return content_store() if options.config_entries.get(SHARE_PACKING_KEY, "0") == "1" else shared_store()


def _span(profiler: Profiler | None, name: str) -> AbstractContextManager[None]:
    return nullcontext() if profiler is None else profiler.span(name)


def _save(
    entry: saved.CacheEntry,
    program: CompiledModel,
    description: ModelDescription,
    looked_at: Mapping[str, FileIdentity | None],
    *,
    is_saved: bool,
    may_wait: bool = True,
) -> None:
    """Keep a compiled program for the next session of this model, with its bodies and specialisations as they are compiled.

    `looked_at` are the files beside the model, as they were when it was read. With `is_saved`, a program is there already.
    A large one is written after the session is there, if it may wait.
    """
    if not isinstance(program, NativeModel):
        return
    code = None if is_saved else program.saved_program()
    if code is not None and not _is_small_enough(entry, program, code, looked_at) and not program.is_specialised:
        return
    plain = to_plain((program.inputs, program.outputs, program.overridable_initializers), description)
    saver = _Saver(entry, plain, looked_at)
    if is_saved:
        if saver.files is None:
            return
        program.compiles_all = True
    program.on_compiled, program.on_specialisation = saver.save, saver.save_specialisation
    if is_saved:
        return
    # Without code no constants are written, and those that were not loaded yet stay where they are.
    if may_wait and code is not None and _written_bytes(entry, program, looked_at) >= _LONG_TO_WRITE:
        assert entry.settled  # as things are now
        entry.save_later(partial(saver.save_first, program))
    else:
        saver.save_first(program)


class _Saver:
    """Writes the programs of a model. Nothing in it refers to one: it would keep its memory when it is dropped."""

    def __init__(self, entry: saved.CacheEntry, plain: Description, looked_at: Mapping[str, FileIdentity | None]) -> None:
        self._entry = entry
        self._plain = plain
        self._looked_at = looked_at
        self._is_saved = False
        self._lock = ForkSafeLock()  # taken by those only whom no fork cuts in half

    @cached_property
    def files(self) -> tuple[tuple[str, str], ...] | None:
        """The files beside the model; None if any has changed since it was read: then nothing is saved."""
        return self._entry.files(self._looked_at)

    def save_first(self, model: NativeModel) -> None:
        """Write the program, unless it was written meanwhile, with more in it."""
        with self._lock:
            if not self._is_saved and self.files is not None:
                self._save(model, self.files)
                self._entry.origin.keep()

    def save(self, model: NativeModel) -> None:
        """Write the program with all that was compiled since."""
        with self._lock:
            if self.files is not None:
                self._save(model, self.files)

    def _save(self, model: NativeModel, files: tuple[tuple[str, str], ...]) -> None:
        record = Record(None, model.node_count, model.deciding_inputs, self._plain, files, model.is_specialised)
        _keep(self._entry, model, record, self._looked_at)
        self._is_saved = True

    def save_specialisation(self, specialisation: SpecialisationKey, model: NativeModel) -> None:
        """Write the program of a specialisation."""
        with self._lock:
            if self.files is not None:
                _keep(self._entry, model, Record(None, model.node_count, files=self.files), self._looked_at, specialisation)


def _keep(
    entry: saved.CacheEntry,
    model: NativeModel,
    record: Record,
    looked_at: Mapping[str, FileIdentity | None],
    specialisation: SpecialisationKey | None = None,
) -> None:
    """Write a program; of one that cannot be saved, or is too large, what to know of the model."""
    code = model.saved_program()
    if code is not None and _is_small_enough(entry, model, code, looked_at):
        main = model.main
        keys = constant_keys(main.plan, by_content if model.shares_by_content else by_identity)
        arrays = main.program.constants
        saved.save(entry, record._replace(program=code), arrays, keys, specialisation, entry.locations(arrays, looked_at))
    elif specialisation is None:
        saved.save(entry, record, {})


def _written_bytes(entry: saved.CacheEntry, model: NativeModel, looked_at: Mapping[str, FileIdentity | None]) -> int:
    """How much of the constants is copied into the file of a program."""
    arrays = model.main.program.constants
    located = entry.locations(arrays, looked_at)
    return sum(array.nbytes for number, array in arrays.items() if number not in located)


def _is_small_enough(
    entry: saved.CacheEntry, model: NativeModel, code: ProgramCode, looked_at: Mapping[str, FileIdentity | None]
) -> bool:
    arrays = model.main.program.constants
    return saved.is_small_enough(entry, arrays, entry.locations(arrays, looked_at), constant_bytes(code))


def _dimensions_by_denotation(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The names of the input dimensions that have one of these denotations, with the size they shall have."""
    found: dict[str, int] = {}
    for value in graph.inputs if sizes else ():
        for axis, dim in enumerate(value.shape or ()):
            size = sizes.get(value.metadata.get(f"{_DENOTATION}{axis}", ""))
            if size is not None and isinstance(dim, DimExpr) and dim.is_symbol:
                found[str(dim)] = size
    return found


def apply_model_config(options: SessionOptions, text: str) -> None:
    """Set the options a model carries in its metadata: {"session_options": {"intra_op_num_threads": 2, ...}}."""
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
