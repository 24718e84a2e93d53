"""The ONNX backend interface as class methods."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.backend.backend_rep import OnnxRuntimeBackendRep, configure
from sardonyx.build_info import get_available_providers, get_device
from sardonyx.options import SessionOptions, environment
from sardonyx.session.inference_session import InferenceSession

# Options that write files are not among them: a model's user, not its source, decides about those.
_SESSION_OPTIONS: Final = frozenset((
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order",
    "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads", "log_severity_level", "log_verbosity_level",
    "logid", "use_deterministic_compute", "use_per_session_threads",
))  # fmt: skip


class OnnxRuntimeBackend:
    """The ONNX backend interface as class methods."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether models can run on the device; the model is not looked at."""
        return cls.supports_device(device or get_device())

    allowReleasedOpsetsOnly = False  # noqa: N815 - ONNX Runtime's name

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """(True, ""): a model of any opset is opened, an operator that is not known is refused by its name then."""
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device: the CPU."""
        return device.partition(":")[0] == get_device()

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """Open a model; keyword arguments set session options (those that write files excepted)."""
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected '{device}', got '{get_device()}'")
        options = SessionOptions()
        configure(options, kwargs, _SESSION_OPTIONS)
        excluded = environment().excluded_backend_providers
        providers = [name for name in get_available_providers() if name not in excluded]
        session = InferenceSession(model, options, providers=providers)
        session.disable_fallback()
        return OnnxRuntimeBackendRep(session)

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


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = run_model = OnnxRuntimeBackend.run_model
run_node = OnnxRuntimeBackend.run_node
supports_device = OnnxRuntimeBackend.supports_device
