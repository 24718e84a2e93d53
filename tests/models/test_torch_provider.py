"""The example provider on MobileNetV2: its regions are computed by PyTorch, and the result is the CPU's."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch_provider

import sardonyx
from provider_support import assignment, recording_options

torch = pytest.importorskip("torch", reason="the extra `training` installs it")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "dynamo"])
def test_mobilenet_v2_by_torch_and_cpu(dynamo: bool) -> None:
    from benchmarks.models import vision

    shape = (1, 3, 224, 224)
    network = vision.prepared(vision.mobilenet_v2(), shape)
    file = io.BytesIO()
    torch.onnx.export(network, (torch.randn(shape),), file, dynamo=dynamo)
    picture = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    sardonyx.register_provider(torch_provider.NAME, torch_provider.TorchProvider)
    try:
        session = sardonyx.InferenceSession(file.getvalue(), recording_options(), providers=[torch_provider.NAME])
    finally:
        sardonyx.unregister_provider(torch_provider.NAME)
    plain = sardonyx.InferenceSession(file.getvalue())
    feeds = {plain.get_inputs()[0].name: picture}
    by_torch, by_cpu = session.run(None, feeds)[0], plain.run(None, feeds)[0]
    np.testing.assert_allclose(by_torch, by_cpu, rtol=1e-3, atol=1e-4 * float(np.abs(by_cpu).max()))
    claimed = [op for name, ops in assignment(session) for op in ops if name == torch_provider.NAME]
    assert claimed.count("Conv") == 52
    assert claimed.count("Add") == 10
