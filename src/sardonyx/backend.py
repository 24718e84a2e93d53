"""The ONNX backend interface: prepare, run, run_model, run_node, supports_device, is_compatible.

    import sardonyx.backend as backend
    outputs = backend.prepare(model).run([x, y])

Nothing of the onnx package is imported; models may be paths, bytes, sessions or objects with SerializeToString.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.build_info import get_device
from sardonyx.options import AVAILABLE_PROVIDERS, RunOptions, SessionOptions, environment
from sardonyx.session import InferenceSession

# Options that write files are not among them: a model's user, not its source, decides about those.
_SESSION_OPTIONS: Final = frozenset((
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order",
    "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads", "log_severity_level", "log_verbosity_level",
    "logid", "use_deterministic_compute", "use_per_session_threads",
))  # fmt: skip
_RUN_OPTIONS: Final = frozenset(("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"))


def _configure(options: Any, settings: Mapping[str, Any], allowed: frozenset[str]) -> None:
    """Set what is allowed, refuse what exists but is not, ignore the rest: it may be meant for the other kind of options."""
    for name, value in settings.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(type(options), name):
            raise RuntimeError(
                f"{type(options).__name__} attribute '{name}' is not permitted via the backend API. "
                f"Allowed attributes: {', '.join(sorted(allowed))}"
            )


class BackendRep:
    """A model ready to run, as the ONNX backend interface has it."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """The outputs for a list of inputs in the model's order, or for the one input of a model with a single one."""
        options = RunOptions()
        _configure(options, kwargs, _RUN_OPTIONS)
        arguments = self._session.get_inputs()
        if isinstance(inputs, (list, tuple)):
            if len(inputs) > len(arguments):
                raise RuntimeError(f"Model expect {len(arguments)} inputs, got {len(inputs)}")
            feed = {argument.name: value for argument, value in zip(arguments, inputs)}
        elif len(arguments) != 1:
            raise RuntimeError(f"Model expect {len(arguments)} inputs")
        else:
            feed = {arguments[0].name: inputs}
        return self._session.run(None, feed, options)


class Backend:
    """The ONNX backend interface as class methods."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether models can run on the device; the model is not looked at."""
        return cls.supports_device(device or get_device())

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device: the CPU."""
        return device.partition(":")[0] == get_device()

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> BackendRep:
        """Open a model; keyword arguments set session options (those that write files excepted)."""
        if isinstance(model, BackendRep):
            return model
        if isinstance(model, InferenceSession):
            return BackendRep(model)
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected '{device}', got '{get_device()}'")
        options = SessionOptions()
        _configure(options, kwargs, _SESSION_OPTIONS)
        excluded = environment().excluded_backend_providers
        providers = [name for name in AVAILABLE_PROVIDERS if name not in excluded]
        session = InferenceSession(model, options, providers=providers)
        session.disable_fallback()
        return BackendRep(session)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> list[Any]:
        """Open a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs, **kwargs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Sequence[Any],
        device: str | None = None,
        outputs_info: Any = None,
        opset_version: int | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Run one NodeProto on arrays, in the given opset version of its domain (default: the newest)."""
        onnx = importlib.import_module(type(node).__module__.partition(".")[0])  # whoever made the node has imported it
        names = [name for name in node.input if name]
        arrays = [np.asarray(value) for value in inputs if value is not None]
        version = opset_version or (onnx.defs.onnx_opset_version() if node.domain in ("", "ai.onnx") else 1)
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(name, dtypes.from_numpy(array.dtype).onnx, array.shape)
                for name, array in zip(names, arrays)
            ],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device, **kwargs).run(arrays)


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run = run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
