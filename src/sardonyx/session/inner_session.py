"""InnerSession: the session that ONNX Runtime's compiled module has below its InferenceSession, with the arguments in its order.

    inner = InnerSession(SessionOptions(), "model.onnx", True, False)
    inner.initialize_session([], [], set())
    [y] = inner.run(["Y"], {"X": x}, None)

Programs reach it as `session._sess`, or as InferenceSession of the module `capi._pybind_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sardonyx import errors
from sardonyx.options import RunOptions, SessionOptions
from sardonyx.runtime.binding import SessionIOBinding
from sardonyx.runtime.devices import CPU_MEMORY, OrtDevice, OrtEpDevice, OrtMemoryInfo, get_ep_devices, require_cpu
from sardonyx.runtime.ports import ModelMetadata, NodeArg, OrtEpAssignedSubgraph
from sardonyx.runtime.values import OrtValue, OrtValueVector
from sardonyx.session.opening import Opened, Opening


class InnerSession:
    """A model and its options; opened by `initialize_session`."""

    def __init__(self, options: SessionOptions, model: Any, is_path: bool, read_config_from_model: bool) -> None:
        if not isinstance(options, SessionOptions):
            raise TypeError(f"expected SessionOptions, got {type(options).__name__}")
        if is_path and isinstance(model, bytes):
            model = model.decode()
        self._opening = Opening(model, options, frozenset(), read_config_from_model)
        self._opened: Opened | None = None

    @classmethod
    def of(cls, opening: Opening, opened: Opened) -> InnerSession:
        """The one below a session that is open."""
        made = cls.__new__(cls)
        made._opening, made._opened = opening, opened
        return made

    def initialize_session(
        self, providers: Sequence[str], provider_options: Sequence[Mapping[str, str]], disabled_optimizers: Iterable[str]
    ) -> None:
        """Open the model for these providers; a name that nobody knows is an error."""
        settings = list(provider_options) or [{}] * len(providers)
        if len(settings) != len(providers):
            raise RuntimeError(f"{len(providers)} providers were given with {len(settings)} sets of options")
        self._opening.disabled_optimizers = frozenset(disabled_optimizers)
        self._opened = self._opening.open(dict(zip(providers, settings)), strict=True)

    @property
    def opened(self) -> Opened:
        """What runs; an error before `initialize_session`."""
        if self._opened is None:
            raise errors.Fail("Session not initialized.", hint="call initialize_session first")
        return self._opened

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Any], run_options: RunOptions | None) -> list[Any]:
        """The named outputs."""
        return self.opened.caller.run(_named(output_names), input_feed, run_options)

    def run_async(
        self,
        output_names: Sequence[str],
        input_feed: Mapping[str, Any],
        callback: Callable[[Sequence[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None,
    ) -> None:
        """`run` in another thread, which then calls `callback(results, user_data, error)`."""
        self.opened.caller.run_async(_named(output_names), input_feed, callback, user_data, run_options)

    def run_with_ort_values(
        self, input_feed: Mapping[str, OrtValue], output_names: Sequence[str], run_options: RunOptions | None
    ) -> OrtValueVector:
        """The named outputs as OrtValues."""
        return OrtValueVector(self.opened.caller.run_ort_values(_named(output_names), input_feed, run_options))

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """`run` with the inputs in one vector of OrtValues and the results put into another."""
        self.opened.caller.run_vector(feed_names, feeds, fetch_names, fetches, run_options)

    def run_with_iobinding(self, io_binding: SessionIOBinding, run_options: RunOptions | None) -> None:
        """`run` with inputs and outputs as they were bound."""
        if not isinstance(io_binding, SessionIOBinding):
            raise TypeError(f"expected a SessionIOBinding, got {type(io_binding).__name__}")
        self.opened.caller.run_bound(io_binding.binding, run_options)

    def create_ortvalue_from_shape_and_type(self, shape: Sequence[int], numpy_obj: Any, device: OrtDevice) -> OrtValue:
        """A tensor of zeros on a device this session computes on."""
        require_cpu(device)
        return OrtValue.ortvalue_from_shape_and_type(shape, numpy_obj)

    create_ortvalue_from_shape_and_onnx_type = create_ortvalue_from_shape_and_type

    def input_names(self) -> list[str]:
        """Everything that may be fed: inputs and initializers that are inputs too."""
        return [arg.name for arg in (*self.inputs_meta, *self.overridable_initializers)]

    @property
    def inputs_meta(self) -> list[NodeArg]:
        """What must be fed."""
        return list(self.opened.description.inputs)

    @property
    def outputs_meta(self) -> list[NodeArg]:
        """What the model computes."""
        return list(self.opened.description.outputs)

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        """Weights that are inputs too."""
        return list(self.opened.description.overridable)

    @property
    def model_meta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self.opened.description.metadata

    @property
    def session_options(self) -> SessionOptions:
        """The options the session has."""
        return self._opening.options if self._opened is None else self._opened.options

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        """Where inputs are expected to lie."""
        return [CPU_MEMORY] * len(self.inputs_meta)

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        """Where outputs will lie."""
        return [CPU_MEMORY] * len(self.outputs_meta)

    @property
    def input_epdevices(self) -> list[OrtEpDevice]:
        """The device that reads each input."""
        return get_ep_devices() * len(self.inputs_meta)

    @property
    def get_profiling_start_time_ns(self) -> int:
        """When profiling began; 0 if it did not."""
        profiler = self.opened.profiler
        return profiler.start_ns if profiler is not None else 0

    def end_profiling(self) -> str:
        """Stop profiling and write the trace; its file name, or "" if nothing is being profiled."""
        profiler = self.opened.profiler
        return profiler.finish() if profiler is not None else ""

    def get_providers(self) -> list[str]:
        """Execution providers by falling priority; none before the session is initialized."""
        return [] if self._opened is None else list(self._opened.providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each execution provider."""
        return {} if self._opened is None else {name: dict(options) for name, options in self._opened.providers.items()}

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider computes which node; needs the configuration entry session.record_ep_graph_assignment_info=1."""
        return self.opened.assignment()

    def get_tuning_results(self) -> list[Any]:
        """Nothing is tuned at run time: empty."""
        return []

    def set_tuning_results(self, results: Sequence[Any], error_on_invalid: bool) -> None:
        """Results of other runtimes do not apply; with `error_on_invalid` that is an error."""
        if error_on_invalid and results:
            raise errors.InvalidArgument("tuning results apply to the runtime and device they were made on")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Accepted for compatibility: the CPU has no options that change while a session lives."""
        for key, value in options.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"options must be pairs of strings, got {key!r}: {value!r}")

    def release_captured_graph(self, graph_id: int) -> None:
        """Accepted for compatibility: nothing is captured on the CPU."""

    def is_webgpu_graph_capture_enabled(self) -> bool:
        """Never."""
        return False

    def webgpu_context_id(self) -> int:
        """-1: there is no WebGPU."""
        return -1


def _named(output_names: Sequence[str]) -> Sequence[str]:
    if not output_names:
        raise errors.InvalidArgument("At least one output should be requested.")
    return output_names
