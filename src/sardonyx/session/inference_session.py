"""InferenceSession: a model opened, compiled and ready to run, with ONNX Runtime's methods.

    session = InferenceSession("model.onnx")
    [y] = session.run(None, {"x": x})

Several threads may run one session; it can be pickled (it opens its model again) and used after a fork.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from sardonyx import errors
from sardonyx.forks import held_off, importing
from sardonyx.options import RunOptions, SessionOptions, environment
from sardonyx.provider_names import usable_providers
from sardonyx.session.opening import Opening

if TYPE_CHECKING:
    from sardonyx.runtime.binding import IOBinding
    from sardonyx.runtime.devices import OrtEpDevice, OrtMemoryInfo
    from sardonyx.runtime.ports import ModelMetadata, NodeArg, OrtEpAssignedSubgraph
    from sardonyx.runtime.values import OrtValue, OrtValueVector
    from sardonyx.session.inner_session import InnerSession

Providers = Sequence["str | tuple[str, dict[Any, Any]]"]


def check_and_normalize_provider_args(
    providers: Providers | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str] | None = None,
) -> tuple[list[str], list[dict[str, str]]]:
    """Provider names and, for each, its options as strings; names that are not there or come twice give a warning.

    `available_provider_names` are those that are there; None: those of this process.
    """
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
    if available_provider_names is None:
        available_provider_names = usable_providers([pair[0] for pair in pairs if pair])
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


@cache
def _ort_value() -> type[OrtValue]:
    from sardonyx.runtime.values import OrtValue  # lazy: who has values has imported it

    return OrtValue


class InferenceSession:
    """A model ready to run.

    `path_or_bytes` is a path, the model's bytes, an open binary file, or an object with SerializeToString. `providers` are
    names, or (name, options) pairs, by falling priority; what no other provider takes runs on the CPU.
    `prepacked_weights_container`, a `PrepackedWeightsContainer`, has the sessions that it is given share packed weights.
    """

    _how_to_open: ClassVar[type[Opening]] = Opening

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options: expected SessionOptions, got {type(sess_options).__name__}")
        options = sess_options if sess_options is not None else SessionOptions()
        self._enable_fallback = int(kwargs.get("enable_fallback", 1)) == 1
        self._inner: InnerSession | None = None
        from_model = kwargs.get("read_config_from_model", environment().load_config_from_model)
        disabled = frozenset(kwargs.get("disabled_optimizers") or ())
        # as it was given, unlike the opening's: programs look for other files beside the model
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None
        container = kwargs.get("prepacked_weights_container")
        if container is not None and not hasattr(container, "store"):
            raise TypeError(f"prepacked_weights_container: expected PrepackedWeightsContainer, got {type(container).__name__}")
        self._opening = self._how_to_open(path_or_bytes, options, disabled, int(from_model) == 1, container)
        names, settings = check_and_normalize_provider_args(providers, provider_options)
        if names and options.has_providers():
            warnings.warn(
                "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has already been "
                "configured with providers. InferenceSession will only use the providers passed to InferenceSession().",
                stacklevel=2,
            )
        self._opened = self._opening.open(dict(zip(names, settings)), strict=not self._enable_fallback)

    def __repr__(self) -> str:
        source = repr(self._opening.source) if isinstance(self._opening.source, str) else "a model in memory"
        return f"InferenceSession({source}, providers={self.get_providers()})"

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_inner": None}
        opened = state.pop("_opened")
        state["_pickled_providers"] = opened.providers
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        providers = state.pop("_pickled_providers")
        self.__dict__.update(state)
        self._opened = self._opening.open(providers, strict=False)

    @property
    def _sess(self) -> InnerSession:
        """What ONNX Runtime's compiled module has below this class; programs use it, private as it is."""
        with importing:
            from sardonyx.session.inner_session import InnerSession  # lazy: few programs look below

        if self._inner is None or self._inner.opened is not self._opened:
            self._inner = InnerSession.of(self._opening, self._opened)
        return self._inner

    @property
    def _model_bytes(self) -> bytes | None:
        return self._opening.source if isinstance(self._opening.source, bytes) else None

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute outputs from inputs: arrays, lists for sequences, dictionaries for maps, None for absent optional values.

        `output_names` may name any value of the graph, not only outputs; None or an empty list stands for all outputs.
        """
        opened = self._opened
        if run_options is None and type(input_feed) is dict:
            if not output_names or output_names == opened.output_names:
                quick = opened.run_fast(input_feed)
            else:
                quick = opened.run_part(output_names, input_feed) if type(output_names) is list else None
            if quick is not None:
                return quick
        return opened.caller.run(output_names, input_feed, run_options)

    async def arun(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """`run` for asyncio: other tasks go on meanwhile; cancelling the task stops the run before its next node."""
        with held_off:
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
        self._opened.caller.run_async(output_names, input_feed, callback, user_data, run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` with OrtValues in and out."""
        opened, ort_value = self._opened, _ort_value()
        feeds = {}
        for name, value in input_dict_ort_values.items():
            if not isinstance(value, ort_value):
                raise TypeError(f"input {name!r}: expected an OrtValue, got {type(value).__name__}")
            feeds[name] = value.value
        if run_options is None and (not output_names or output_names == opened.output_names):
            quick = opened.run_fast(feeds)
            if quick is not None:
                return [*map(ort_value.of, quick, opened.output_types)]
        return opened.caller.run_ort_values(output_names, input_dict_ort_values, run_options)

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
        self._opened.caller.run_vector(feed_names, feeds, fetch_names, fetches, run_options)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """`run` with inputs and outputs as they were bound; results are read from the binding."""
        opened = self._opened
        if run_options is None and getattr(iobinding, "_session", None) is self and iobinding.run_again(opened.program):
            return
        from sardonyx.runtime.binding import IOBinding  # lazy: who has a binding has imported it

        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        opened.caller.run_bound(iobinding, run_options)

    def io_binding(self) -> IOBinding:
        """A new binding of inputs and outputs."""
        with importing:
            from sardonyx.runtime.binding import IOBinding  # lazy: few sessions are used this way

        return IOBinding(self)

    def input_names(self) -> list[str]:
        """Everything that may be fed: inputs and initializers that are inputs too."""
        return [arg.name for arg in (*self._opened.description.inputs, *self._opened.description.overridable)]

    def get_inputs(self) -> list[NodeArg]:
        """What must be fed."""
        return list(self._opened.description.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """What the model computes."""
        return list(self._opened.description.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Weights that are inputs too: a feed of that name replaces them in a run."""
        return list(self._opened.description.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._opened.description.metadata

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
        names, settings = check_and_normalize_provider_args(providers, provider_options)
        self._opened = self._opening.open(dict(zip(names, settings)), strict=True)

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider computes which node; needs the configuration entry session.record_ep_graph_assignment_info=1."""
        return self._opened.assignment()

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where inputs are expected to lie."""
        with importing:
            from sardonyx.runtime.devices import CPU_MEMORY  # lazy: few sessions are asked for it

        return [CPU_MEMORY] * len(self._opened.description.inputs)

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where outputs will lie."""
        with importing:
            from sardonyx.runtime.devices import CPU_MEMORY  # lazy: few sessions are asked for it

        return [CPU_MEMORY] * len(self._opened.description.outputs)

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The device that reads each input."""
        with importing:
            from sardonyx.runtime.devices import get_ep_devices  # lazy: few sessions are asked for it

        return get_ep_devices() * len(self._opened.description.inputs)

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
        with importing:
            from sardonyx.runtime.values import OrtValue  # lazy: few sessions are used this way

        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Accepted for compatibility: nothing is captured on the CPU."""
