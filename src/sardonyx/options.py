"""What a caller can set: for a session, for one run, and what the compiler is told of it.

SessionOptions   mutable, public, ONNX Runtime's attributes; wrong types are refused when they are set
RunOptions       the same for one call of `run`; `terminate` may be set from another thread
environment()    the environment variables; nothing else in the package reads them
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

import numpy as np

from sardonyx import errors
from sardonyx.cache_folder import TRUST
from sardonyx.forks import importing
from sardonyx.provider_names import KNOWN_PROVIDERS, usable_providers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sardonyx.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy

T = TypeVar("T")

MAX_CONFIG_KEY: Final = 1024
MAX_CONFIG_VALUE: Final = 8192
DISABLED_OPTIMIZERS_KEY: Final = "optimization.disable_specified_optimizers"
EXTERNAL_FOLDER_KEY: Final = "session.model_external_initializers_file_folder_path"
LOAD_FORMAT_KEY: Final = "session.load_model_format"
DIRECT_BYTES_KEY: Final = "session.use_ort_model_bytes_directly"
RECORDING_KEY: Final = "optimization.minimal_build_optimizations"
EXTERNAL_FILE_KEY: Final = "session.optimized_model_external_initializers_file_name"
EXTERNAL_MIN_KEY: Final = "session.optimized_model_external_initializers_min_size_in_bytes"
SAVE_FORMAT_KEY: Final = "session.save_model_format"
SAVE_PACKINGS_KEY: Final = "session.save_external_prepacked_constant_initializers"
DISABLE_PACKING_KEY: Final = "session.disable_prepacking"
SHARE_PACKING_KEY: Final = "session.share_prepacked_weights"
BACKGROUND_KEY: Final = "session.background_compile"
PROGRESS_KEY: Final = "session.show_progress"
CACHES_KEY: Final = "sardonyx.caches_with_room"  # "1": give caches room
FIXED_KEY: Final = "sardonyx.fixed_inputs"  # "use_cache_branch=1": inputs that are always this
LAST_KEY: Final = "sardonyx.last_logits"  # the name of an output: compute it for the rows that the caller names
TIME_CANDIDATES_KEY: Final = "session.time_candidates"
SHRINK_KEY: Final = "memory.enable_memory_arena_shrinkage"


class Environment:
    """The environment variables Sardonyx knows, as they are when they are asked for."""

    __slots__ = ()

    @property
    def load_config_from_model(self) -> bool:
        """ORT_LOAD_CONFIG_FROM_MODEL=1: session options out of the model's metadata."""
        return os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1"

    @property
    def excluded_backend_providers(self) -> frozenset[str]:
        """ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS: comma list, for the backend interface."""
        return frozenset(filter(None, os.environ.get("ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS", "").split(",")))

    @property
    def verify(self) -> bool:
        """SARDONYX_VERIFY=1: check the graph after every pass."""
        return os.environ.get("SARDONYX_VERIFY") == "1"

    @property
    def cache_folder(self) -> str | None:
        """SARDONYX_CACHE_DIR: where object code is kept; empty: nowhere."""
        return _cache_folder()

    @property
    def cache_trusted(self) -> bool:
        """SARDONYX_CACHE_TRUSTED=1: that folder is used whoever owns it, and need not be written to."""
        return os.environ.get(TRUST) == "1"

    @property
    def runtime(self) -> str:
        """SARDONYX_RUNTIME=plain: threads wait in Python and LLVM loads code, as on systems without anything better."""
        return os.environ.get("SARDONYX_RUNTIME") or "native"

    @property
    def target(self) -> str:
        """SARDONYX_TARGET: the level of the instruction set that is compiled for; native: all that the machine has."""
        return os.environ.get("SARDONYX_TARGET") or "native"


_ENVIRONMENT: Final = Environment()


def environment() -> Environment:
    """The environment."""
    return _ENVIRONMENT


def _cache_folder() -> str | None:
    """Where compiled programs are kept; None: nowhere, because nobody wants it or because there is no home folder."""
    chosen = os.environ.get("SARDONYX_CACHE_DIR")
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # as its specification wants it
            base = os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(base, "sardonyx")
        return folder if os.path.isabs(folder) else None
    folder = os.path.expanduser(chosen)
    return None if folder.startswith("~") else folder or None


class Setting(Generic[T]):
    """An attribute with a type: what is assigned goes through `convert`, which raises TypeError for what does not fit.

    `enumeration` names the enumeration that the values are members of; then `default` is the name of a member.
    """

    def __init__(self, default: Any, convert: Callable[[Any], T], doc: str, enumeration: str = "") -> None:
        self.default = default
        self.convert = convert
        self.enumeration = enumeration
        self.__doc__ = doc

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Setting[T]: ...

    @overload
    def __get__(self, instance: _Settings, owner: type[Any]) -> T: ...

    def __get__(self, instance: _Settings | None, owner: type[Any]) -> Setting[T] | T:
        if instance is None:
            return self
        value: Any = instance._values.get(self.name)
        if value is None:
            value = getattr(_enumeration(self.enumeration), self.default) if self.enumeration else self.default
        found: T = value
        return found

    def __set__(self, instance: _Settings, value: Any) -> None:
        try:
            instance._values[self.name] = self.convert(value)
        except TypeError as error:
            raise TypeError(f"{type(instance).__name__}.{self.name}: {error}") from None


def _integer(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"expected an int, got {value!r}") from None


def _c_int(value: Any) -> int:
    """A number that ONNX Runtime's interface can hold: 32 bits."""
    number = _integer(value)
    if not -(1 << 31) <= number < 1 << 31:
        raise TypeError(f"expected an int of 32 bits, got {value!r}")
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, (bool, int, np.bool_)):
        return bool(value)
    raise TypeError(f"expected a bool, got {value!r}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"expected a str, got {value!r}")


def _path(value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return str(os.fspath(value))
    raise TypeError(f"expected a str or a path, got {value!r}")


def _enumeration(name: str) -> Any:
    """An enumeration, which is made when it is first needed."""
    with importing:
        from sardonyx import enums  # lazy: few programs choose anything

    return getattr(enums, name)


def _member(of: str, value: Any) -> Any:
    """A value that must be a member of an enumeration."""
    if isinstance(value, _enumeration(of)):
        return value
    raise TypeError(f"expected a member of {of}, got {value!r}")


def _choice(enumeration: str, default: str, doc: str) -> Setting[Any]:
    return Setting(default, partial(_member, enumeration), doc, enumeration)


class _Settings:
    """Named settings and configuration entries."""

    __slots__ = ("_config", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def _add_entry(self, key: str, value: str) -> None:
        key, value = _text(key), _text(value)
        if not key or len(key) > MAX_CONFIG_KEY:
            raise RuntimeError(f"Config key is empty or longer than maximum length {MAX_CONFIG_KEY}")
        if len(value) > MAX_CONFIG_VALUE:
            raise RuntimeError(f"Config value is longer than maximum length: {MAX_CONFIG_VALUE}")
        self._config[key] = value

    def _entry(self, key: str) -> str:
        try:
            return self._config[_text(key)]
        except KeyError:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}") from None


def _ort_value(value: Any) -> NDArray[Any]:
    """The array of an OrtValue that holds a tensor. The options stand below the class, so it is known by what it can do."""
    if not (hasattr(value, "is_tensor") and hasattr(value, "numpy") and hasattr(value, "element_type")):
        raise RuntimeError(f"The provided Python object must be an OrtValue, got {type(value).__name__}")
    if not value.is_tensor():
        raise RuntimeError("an initializer must be a dense tensor")
    array: NDArray[Any] = value.numpy()
    return array


class SessionOptions(_Settings):
    """How a session loads, rewrites and runs its model; see each attribute. Configuration entries are pairs of strings."""

    __slots__ = (
        "_denotations", "_dimensions", "_external_files", "_initializers", "_load_cancelled", "_policy", "_providers",
        "_required",
    )  # fmt: skip

    enable_profiling = Setting(False, _boolean, "Whether a trace of every run is recorded; default False.")
    profile_file_prefix = Setting("onnxruntime_profile_", _path, "Start of the trace file's name; the time is appended.")
    optimized_model_filepath = Setting("", _path, "Where to write the model after it was optimised; empty: nowhere.")
    enable_cpu_mem_arena = Setting(True, _boolean, "Whether memory is kept between runs; default True.")
    enable_mem_pattern = Setting(True, _boolean, "Whether memory is planned ahead; default True.")
    enable_mem_reuse = Setting(True, _boolean, "Whether values share memory when their lifetimes allow; default True.")
    logid = Setting("", _text, "Name of the session in log lines.")
    log_severity_level = Setting(-1, _c_int, "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1: the default severity.")
    log_verbosity_level = Setting(0, _c_int, "How much is told at severity 0.")
    use_per_session_threads = Setting(True, _boolean, "False: use the threads set by set_global_thread_pool_sizes.")
    intra_op_num_threads = Setting(0, _c_int, "Threads that work on one node; 0 or less: as many as the machine gives.")
    inter_op_num_threads = Setting(0, _c_int, "Nodes that may run at the same time in parallel mode; 0: chosen.")
    execution_mode: Setting[ExecutionMode] = _choice("ExecutionMode", "ORT_SEQUENTIAL", "Sequential (default) or parallel.")
    execution_order: Setting[ExecutionOrder] = _choice("ExecutionOrder", "DEFAULT", "The rule by which nodes are put in order.")
    graph_optimization_level: Setting[GraphOptimizationLevel] = _choice(
        "GraphOptimizationLevel", "ORT_ENABLE_ALL", "How much the graph is rewritten; default all."
    )
    use_deterministic_compute = Setting(False, _boolean, "Whether nothing may be timed; our kernels are all deterministic.")

    def __init__(self) -> None:
        super().__init__()
        self._dimensions: dict[str, int] = {}
        self._denotations: dict[str, int] = {}
        self._initializers: dict[str, NDArray[Any]] = {}
        self._required: dict[str, None] = {}  # of these, the names every model must have
        self._external_files: dict[str, memoryview] = {}
        self._providers: dict[str, dict[str, str]] = {}
        self._policy: OrtExecutionProviderDevicePolicy | None = None
        self._load_cancelled = False

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in (*_Settings.__slots__, *SessionOptions.__slots__)}
        state["_external_files"] = {name: bytes(view) for name, view in self._external_files.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._external_files = {name: memoryview(content) for name, content in self._external_files.items()}

    def copy(self) -> SessionOptions:
        """Options that can be changed without changing these; arrays and buffers are shared."""
        made = SessionOptions()
        for name in (*_Settings.__slots__, *SessionOptions.__slots__):
            value = getattr(self, name)
            setattr(made, name, dict(value) if isinstance(value, dict) else value)
        return made

    __copy__ = copy

    def without_saving(self) -> SessionOptions:
        """The same options, but for all that says how to save the optimised model."""
        made = self.copy()
        made._values.pop("optimized_model_filepath", None)
        for key in (SAVE_PACKINGS_KEY, EXTERNAL_FILE_KEY, EXTERNAL_MIN_KEY, SAVE_FORMAT_KEY):
            made._config.pop(key, None)
        return made

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry; an entry of the same key is replaced."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of a configuration entry; RuntimeError if it was not set."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix every dimension of this name in the model's inputs to a size."""
        self._dimensions[_text(name)] = _integer(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix every dimension with this denotation (DATA_BATCH ...) in the model's inputs to a size."""
        self._denotations[_text(denotation)] = _integer(size)

    def add_initializer(self, name: str, ort_value: Any) -> None:
        """Use this tensor (an OrtValue) in place of the model's initializer of that name; the memory is shared, not copied.

        A model without such an initializer ignores it: the options may serve several models.
        """
        self._initializers[_text(name)] = _ort_value(ort_value)

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[Any]) -> None:
        """Use these tensors (OrtValues) in place of initializers, so that their external data is never read."""
        if len(names) != len(ort_values):
            raise RuntimeError("Expecting names and ort_values lists to have equal length")
        for name, value in zip(names, ort_values):
            self.add_initializer(name, value)
            self._required[name] = None

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Read external data from these buffers in place of the files of those names."""
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError(
                "add_external_initializers_from_files_in_memory: expecting 'names', 'buffers' and 'lengths' to have equal length"
            )
        for name, buffer, length in zip(names, buffers, lengths):
            view = memoryview(buffer).cast("B")
            if not 0 <= _integer(length) <= len(view):
                raise RuntimeError(f"file {name!r} in memory: length is {length}, the buffer has {len(view)} bytes")
            self._external_files[_text(name)] = view[:length]

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Use an execution provider; those added first come first."""
        if _text(name) not in KNOWN_PROVIDERS and name not in usable_providers([name]):
            raise RuntimeError(f"Unknown Provider Type: {name}")
        self._providers[name] = {str(key): str(value) for key, value in options.items()}

    def add_provider_for_devices(self, ep_devices: Sequence[Any], options: Mapping[str, str]) -> None:
        """Use the execution provider of these devices (all of one provider)."""
        names = {device.ep_name for device in ep_devices}
        if len(names) != 1:
            raise errors.InvalidArgument(f"the devices must belong to one execution provider, got {sorted(names) or 'none'}")
        self.add_provider(names.pop(), options)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Choose providers by a policy; there is the CPU alone, so every policy chooses it."""
        self._policy = _member("OrtExecutionProviderDevicePolicy", policy)

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any]) -> None:
        """Choose providers by a function; there is the CPU alone, so it is not asked."""
        if not callable(delegate):
            raise TypeError(f"expected a callable, got {delegate!r}")
        self._policy = _enumeration("OrtExecutionProviderDevicePolicy").DEFAULT

    def has_providers(self) -> bool:
        """Whether providers or a policy were set on these options."""
        return bool(self._providers) or self._policy is not None

    def register_custom_ops_library(self, path: str) -> None:
        """Not possible: such a library holds machine code for ONNX Runtime's C interface."""
        raise errors.Fail(
            f"Failed to load library {os.fspath(path)}: libraries of custom operators need ONNX Runtime's C interface",
            hint="define the operator as a model-local function",
        )

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """True stops sessions that are loading with these options (ModelLoadCanceled); may be set from another thread."""
        self._load_cancelled = _boolean(cancel)

    @property
    def load_cancelled(self) -> bool:
        """Whether loading shall stop."""
        return self._load_cancelled

    @property
    def config_entries(self) -> Mapping[str, str]:
        """All configuration entries."""
        return MappingProxyType(self._config)

    @property
    def external_files(self) -> Mapping[str, memoryview]:
        """Files of external data given in memory, by name."""
        return MappingProxyType(self._external_files)

    @property
    def replaced_initializers(self) -> frozenset[str]:
        """Names of the initializers that get other data."""
        return frozenset(self._initializers)

    @property
    def provider_settings(self) -> Mapping[str, Mapping[str, str]]:
        """Providers set by `add_provider`, with their options, in order."""
        return MappingProxyType(self._providers)

    def is_set(self, name: str) -> bool:
        """Whether an attribute was set to something else than its default."""
        if name == "dimension_overrides":
            return bool(self._dimensions or self._denotations)
        if name == "replaced_initializers":
            return bool(self._initializers)
        value = self._values.get(name)
        return value is not None and getattr(value, "name", value) != getattr(type(self), name).default

    def thread_counts(self) -> tuple[int, int]:
        """How many threads work on one node, and on different nodes; 0 leaves it to us."""
        if self.use_per_session_threads:
            return max(self.intra_op_num_threads, 0), max(self.inter_op_num_threads, 0)
        return _global_threads or (0, 0)

    def require_one_pool(self) -> None:
        """RuntimeError if a session with these options wants threads of its own while there are those of the process."""
        if self.use_per_session_threads and _global_threads is not None:
            raise RuntimeError(
                "use_per_session_threads must be false when using a global thread pool: "
                "set SessionOptions.use_per_session_threads = False, or do not call set_global_thread_pool_sizes"
            )

    def identity(self) -> str:
        """Names everything here that may change what a model is compiled to, for a cache of compiled programs."""
        threads = ("intra_op_num_threads", "inter_op_num_threads")
        values = sorted((name, repr(value)) for name, value in self._values.items() if name not in threads)
        sizes = (sorted(self._dimensions.items()), sorted(self._denotations.items()))
        config = sorted(item for item in self._config.items() if item[0] not in (BACKGROUND_KEY, PROGRESS_KEY))
        return repr((values, config, sizes, environment().verify))

    @property
    def dimension_overrides(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Sizes of free dimensions: by name, and by denotation."""
        return MappingProxyType(self._dimensions), MappingProxyType(self._denotations)

    def initializers_for(self, names: Container[str] | None) -> Mapping[str, NDArray[Any]]:
        """The data that replaces initializers of a model that has these; None: of any."""
        return MappingProxyType(
            {
                name: array
                for name, array in self._initializers.items()
                if names is None or name in names or name in self._required
            }
        )


class RunOptions(_Settings):
    """How one call of `run` behaves."""

    __slots__ = ("_adapters",)

    log_severity_level = Setting(-1, _c_int, "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1: the session's.")
    log_verbosity_level = Setting(0, _c_int, "How much is told at severity 0.")
    logid = Setting("", _text, "Name of this run in log lines.")
    terminate = Setting(False, _boolean, "True stops the runs that use these options: they raise Fail. Any thread may set it.")
    only_execute_path_to_fetches = Setting(
        False, _boolean, "Whether nodes the wanted outputs do not depend on are left out; they always are."
    )

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[Any] = []

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry of the run; an entry of the same key is replaced."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of a configuration entry; RuntimeError if it was not set."""
        return self._entry(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Feed the parameters of a LoRA adapter to the inputs of their names."""
        if not hasattr(adapter, "parameters"):
            raise TypeError(f"expected a LoraAdapter, got {adapter!r}")
        self._adapters.append(adapter)

    @property
    def shrinks_arena(self) -> bool:
        """Whether memory kept for later runs is given back after this one: the entry names the CPU, as "cpu:0"."""
        listed = [each.partition(":") for each in self._config.get(SHRINK_KEY, "").split(";") if each]
        for device, _, number in listed:
            if device not in ("cpu", "gpu"):
                raise errors.InvalidArgument(f"Unsupported device specified in the memory arena shrink list: {device}")
            if number and not number.isdigit():
                raise errors.InvalidArgument(f"Unsupported device id in the memory arena shrink list: {number}")
        if listed and not any(device == "cpu" and int(number or 0) == 0 for device, _, number in listed):
            raise errors.InvalidArgument(
                "Did not find an arena based allocator registered for device-id combination in the memory arena shrink list: "
                + "".join(listed[0])
            )
        return bool(listed)

    @property
    def active_adapters(self) -> tuple[Any, ...]:
        """The adapters, in the order they were added."""
        return tuple(self._adapters)


_global_threads: tuple[int, int] | None = None


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Thread counts for all sessions of the process; 0 lets Sardonyx choose.

    From then on sessions must have `use_per_session_threads` off, and the sizes cannot be changed any more.
    """
    global _global_threads
    sizes = (max(_integer(intra_op_num_threads), 0), max(_integer(inter_op_num_threads), 0))
    if _global_threads is not None:
        raise errors.Fail("Global thread pools have already been created, cannot replace them")
    _global_threads = sizes
