"""How a session comes by its program (read from the cache of saved programs, or compiled), and what it holds then.

Nothing of the compiler is imported here: a model that was saved as a program opens without it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from sardonyx import errors
from sardonyx.forks import ForkSafeLock, cached_property, held_off, importing
from sardonyx.options import DIRECT_BYTES_KEY, EXTERNAL_FOLDER_KEY, SessionOptions, environment
from sardonyx.provider_names import CPU_PROVIDER, KNOWN_PROVIDERS, usable_providers
from sardonyx.runtime import saved
from sardonyx.runtime.pool import usable_cores

if TYPE_CHECKING:
    from sardonyx.ir.types import Type
    from sardonyx.plan.ports import Port
    from sardonyx.program.calls import HostNode
    from sardonyx.runtime.executable import Executable
    from sardonyx.runtime.ports import ModelDescription, OrtEpAssignedSubgraph
    from sardonyx.runtime.profile import Profiler
    from sardonyx.runtime.runs import RunControl
    from sardonyx.runtime.weight_store import PrepackedWeightsContainer
    from sardonyx.session.calls import Caller

    class CompiledModel(Protocol):  # for type checkers only: making it takes time at every start
        """What a session needs of a compiled model, whoever computes it."""

        @property
        def assigned_nodes(self) -> Sequence[HostNode]: ...

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

        def short_program(self, names: Sequence[str]) -> Executable | None: ...

        def shrink(self) -> None: ...


_MOST_PARTS: Final = 16  # sets of fetched values whose programs are remembered
_INFO: Final = 1  # the severity of what is logged here
_BUNDLE: Final = ".sdx"  # compiled models hold machine code: whoever opens one must have named it so
# What a compiled model has settled, or has no place for
_NOT_IN_BUNDLES: Final = (
    "enable_profiling", "optimized_model_filepath", "replaced_initializers", "dimension_overrides", "execution_order",
)  # fmt: skip
_SPINNING: Final = "session.intra_op.allow_spinning"
_RECORD_ASSIGNMENT: Final = "session.record_ep_graph_assignment_info"

ProviderSettings = Mapping[str, Mapping[str, str]]


class _NoCollector:
    """While it is entered, Python does not look for cycles of garbage.

    Compiling makes many objects that stay, and little garbage: looking through them again and again takes a tenth of the time.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._inside = 0  # threads
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._was_on:
                gc.enable()


_no_collector: Final = _NoCollector()


class Opening:
    """All that a session was asked to open. It can be done again, for other providers."""

    def __init__(
        self,
        source: Any,
        options: SessionOptions,
        disabled_optimizers: frozenset[str],
        reads_config_from_model: bool,
        container: PrepackedWeightsContainer | None = None,
    ) -> None:
        self.source = model_source(source, options.config_entries.get(DIRECT_BYTES_KEY) == "1")
        self.options = options
        self.disabled_optimizers = disabled_optimizers
        self.reads_config_from_model = reads_config_from_model
        self.container = container  # who packs weights, if not the process; a pickled session goes without
        self.folder = None if isinstance(self.source, str) else _current_folder()  # where external data is looked for

    def __getstate__(self) -> dict[str, Any]:
        source = bytes(self.source) if isinstance(self.source, memoryview) else self.source
        return {**self.__dict__, "options": self.options.copy(), "source": source, "container": None}

    def open(self, providers: ProviderSettings, strict: bool, use_saved: bool = True) -> Opened:
        """Open the model for some providers; with `strict` an unknown one is an error."""
        usable = usable_providers(providers)
        unknown = [name for name in providers if name not in KNOWN_PROVIDERS and name not in usable]
        if unknown and strict:
            raise RuntimeError(f"Unknown Provider Type: {unknown[0]}")
        options = self.options.copy()
        options.require_one_pool()
        self.stop_if_cancelled()
        wanted = providers or dict(options.provider_settings)
        usable = usable_providers(wanted)
        chosen = {name: wanted[name] for name in wanted if name in usable}
        chosen.setdefault(CPU_PROVIDER, {})
        if isinstance(self.source, str) and self.source.endswith(_BUNDLE):
            bundled = self._open_bundle(options, chosen)
            self._log(bundled)
            return bundled
        with importing:
            entry = self._saved_entry(options, chosen)
        opened = None
        if entry is not None and use_saved:
            entry.wait()
            with importing:
                opened = self._open_saved(entry, options, chosen)
        if opened is None:
            opened = self._open_fully(options, chosen, entry, is_saved=not use_saved)
        self._log(opened)
        return opened

    def _open_fully(
        self, options: SessionOptions, providers: ProviderSettings, entry: saved.CacheEntry | None, *, is_saved: bool
    ) -> Opened:
        """Open the model itself; `entry` is where its program may be saved, if it is not there already (`is_saved`)."""
        with held_off, _no_collector:
            from sardonyx.session.full_opening import open_fully  # lazy: it brings the whole compiler

            return open_fully(self, options, providers, entry, is_saved=is_saved)

    def leave_program(self, providers: ProviderSettings) -> None:
        """Save the program of this model for sessions to come, unless it is there already or programs are not saved."""
        options = self.options.copy()
        entry = self._saved_entry(options, providers)
        if entry is not None and saved.read(entry) is None:
            self._open_fully(options, providers, entry, is_saved=False)

    def _open_bundle(self, options: SessionOptions, providers: ProviderSettings) -> Opened:
        """Open a compiled model. What its program cannot do is left to the model inside, if there is one."""
        with importing:
            from sardonyx.runtime.bundled import NoProgram, open_bundled, read_bundle  # lazy: most models are not compiled ones

        assert isinstance(self.source, str)
        bundle, path = read_bundle(self.source), self.source

        def open_full(reason: str = "what was asked for is not in its program") -> Opened:
            model = bundle.model
            if model is None:
                text = f"the compiled model {path!r} cannot be used: {reason}, and the model it was made of is not inside"
                raise errors.Fail(text, hint="compile it again, with --include-model, or for this machine with --target")
            inside = options.copy()
            inside.add_external_initializers_from_files_in_memory(["weights"], [bundle.contents], [len(bundle.contents)])
            how = Opening(bytes(model[1]), inside, self.disabled_optimizers, self.reads_config_from_model, self.container)
            return how._open_fully(inside, providers, None, is_saved=False)

        changed = [name for name in _NOT_IN_BUNDLES if options.is_set(name)]
        if changed or next(iter(providers)) != CPU_PROVIDER:
            return open_full(f"{', '.join(changed) or 'another provider'} needs the compiler")
        spinning = options.config_entries.get(_SPINNING, "1") != "0"
        workers = options.thread_counts()[0] or usable_cores()
        try:
            program = open_bundled(bundle, path, workers, spinning, lambda: open_full().program)
        except NoProgram as problem:
            return open_full(str(problem))
        return Opened(options, providers, program, lambda: program.described[1])

    def data_folder(self, options: SessionOptions) -> str:
        """Where the model's external data is looked for; "" where there is no such entry."""
        chosen = options.config_entries.get(EXTERNAL_FOLDER_KEY) or self.folder
        if chosen is None and isinstance(self.source, str):
            return os.path.dirname(self.source)
        return os.path.abspath(chosen) if chosen else ""

    def stop_if_cancelled(self) -> None:
        """Raise if the options say that loading shall stop."""
        if self.options.load_cancelled:
            raise errors.ModelLoadCanceled("loading the model was canceled due to user request.")

    def _saved_entry(self, options: SessionOptions, providers: ProviderSettings) -> saved.CacheEntry | None:
        """Where the saved program of this model and these options is; None if it may not be saved, or not be used."""
        folder = environment().cache_folder
        plain = not (options.enable_profiling or options.optimized_model_filepath or options.replaced_initializers)
        if folder is None or not plain or options.external_files or self.reads_config_from_model or self.container is not None:
            return None
        if next(iter(providers)) != CPU_PROVIDER or not saved.programs(folder).is_used():
            return None
        settings = f"{options.identity()}|{sorted(self.disabled_optimizers)}|{sorted(providers.items())}"
        return saved.CacheEntry(folder, self.source, self.data_folder(options), settings)

    def _open_saved(self, entry: saved.CacheEntry, options: SessionOptions, providers: ProviderSettings) -> Opened | None:
        spinning = options.config_entries.get(_SPINNING, "1") != "0"
        workers = options.thread_counts()[0] or usable_cores()
        program = saved.open_saved(entry, workers, spinning, lambda: self.open(providers, strict=False, use_saved=False).program)
        if program is None:
            return None
        return Opened(options, providers, program, lambda: program.described[1])

    def _log(self, opened: Opened) -> None:
        options = opened.options
        if options.log_severity_level > _INFO or (options.log_severity_level < 0 and "logging" not in sys.modules):
            return  # nobody can have asked for the line
        with held_off:
            from sardonyx.runtime.logs import log  # lazy: most programs listen to nothing

        where = self.source if isinstance(self.source, str) else "memory"
        facts = (where, opened.program.node_count, ", ".join(opened.providers))
        text = "model from %s: %d nodes, providers %s"
        log(_INFO, text, *facts, threshold=options.log_severity_level, logid=options.logid)


def model_source(given: Any, uses_directly: bool = False) -> str | bytes | memoryview:
    """A path, or bytes that can be read again: those of a buffer are copied unless the caller wants them used where they are."""
    if isinstance(given, (str, os.PathLike)):
        return os.path.abspath(os.fspath(given))
    if isinstance(given, bytes):
        return given
    if isinstance(given, (bytearray, memoryview)):
        return memoryview(given).cast("B").toreadonly() if uses_directly else bytes(given)
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


class Opened:
    """A program ready to run, with all that was decided for it."""

    def __init__(
        self,
        options: SessionOptions,
        providers: ProviderSettings,
        program: CompiledModel,
        describe: Callable[[], ModelDescription],
        profiler: Profiler | None = None,
    ) -> None:
        self.options = options
        self.providers = providers
        self.profiler = profiler
        self._describe = describe
        self._is_plain = profiler is None and options.enable_cpu_mem_arena
        self.take(program)

    def take(self, program: CompiledModel) -> None:
        """Run this program from now on; runs under way end as they began."""
        self.program = program
        self.run_fast: Callable[[Mapping[str, Any]], list[Any] | None] = program.run_fast if self._is_plain else never_fast
        self._parts: dict[tuple[str, ...], Executable] = {}  # what computes other values than all outputs

    @cached_property
    def output_names(self) -> list[str]:
        """The outputs of the model."""
        return [port.name for port in self.program.outputs]

    @cached_property
    def output_types(self) -> list[Type | None]:
        """Their types, as far as the model declares them."""
        return [port.type for port in self.program.outputs]

    def run_part(self, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any] | None:
        """These values, if they were computed before and there is a short way to do it; None if there is none."""
        key = tuple(names)
        program = self._parts.get(key)
        if program is None:
            program = self.program.short_program(key) if self._is_plain else None
            if program is None:
                return None
            if len(self._parts) >= _MOST_PARTS:
                self._parts.clear()
            self._parts[key] = program
        return program.run(feeds)

    @cached_property
    def description(self) -> ModelDescription:
        """Inputs, outputs and metadata of the model."""
        return self._describe()

    @cached_property
    def caller(self) -> Caller:
        """Does what the fast path cannot."""
        with importing:
            from sardonyx.session.calls import Caller  # lazy: plain runs of a saved program never need it

        options = self.options
        shares_weights = bool(options.replaced_initializers)
        return Caller(self.program, self.profiler, keeps_memory=options.enable_cpu_mem_arena, shares_weights=shares_weights)

    def assignment(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider computes which node; an error unless the session's configuration asked for it."""
        if self.options.config_entries.get(_RECORD_ASSIGNMENT) != "1":
            raise errors.Fail(
                f"Session configuration entry '{_RECORD_ASSIGNMENT}' must be set to \"1\" "
                "to retrieve EP graph assignment information."
            )
        with importing:
            from sardonyx.runtime.ports import OrtEpAssignedSubgraph  # lazy: few sessions are asked for it

        return [OrtEpAssignedSubgraph.of(node) for node in self.program.assigned_nodes if node.computes]


def never_fast(feeds: Mapping[str, Any]) -> list[Any] | None:
    """Stands where a fast path could be: this run needs the full path."""
    return None
