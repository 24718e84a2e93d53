"""The ONNX backend interface: prepare, run, run_model, run_node, supports_device, is_compatible.

    import sardonyx.backend as backend
    outputs = backend.prepare(model).run([x, y])

Nothing of the onnx package is imported; models may be paths, bytes, sessions or objects with SerializeToString.
"""

from __future__ import annotations

from sardonyx.backend import backend as backend
from sardonyx.backend import backend_rep as backend_rep
from sardonyx.backend.backend import OnnxRuntimeBackend

is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = run_model = OnnxRuntimeBackend.run_model
run_node = OnnxRuntimeBackend.run_node
supports_device = OnnxRuntimeBackend.supports_device
