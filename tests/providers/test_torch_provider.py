"""The example provider computes regions of a small net of MobileNetV2's shape by PyTorch, and agrees with the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch_provider
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from provider_support import CPU, assignment, recording_options
from threads import at_once

pytest.importorskip("torch", reason="the example computes by PyTorch, which is not installed")
TORCH = "TorchExecutionProvider"


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    sardonyx.register_provider(TORCH, torch_provider.TorchProvider)
    yield
    sardonyx.unregister_provider(TORCH)


def small_net(activation: str = "Clip") -> bytes:
    """Inverted residuals: 1x1 convolution, depthwise 3x3, 1x1 without activation, the input added; then pool and Gemm."""
    generator = np.random.default_rng(5)
    nodes: list[Any] = []
    weights: list[Any] = []
    numbers = iter(range(1000))

    def constant(array: Any) -> str:
        name = f"w{next(numbers)}"
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def op(kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"{kind.lower()}{next(numbers)}"
        nodes.append(helper.make_node(kind, inputs, [name], name, **attrs))
        return name

    low, high = constant(np.array(0)), constant(np.array(6))

    def conv(x: str, inputs: int, outputs: int, size: int, stride: int = 1, group: int = 1, activates: bool = True) -> str:
        shape = (outputs, inputs // group, size, size)
        kernels = generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        w, b = constant(kernels), constant(generator.standard_normal(outputs))
        pads = [size // 2] * 4
        y = op("Conv", x, w, b, kernel_shape=[size, size], strides=[stride, stride], pads=pads, group=group)
        if not activates:
            return y
        return op("Clip", y, low, high) if activation == "Clip" else op(activation, y)

    def block(x: str, inputs: int, outputs: int, stride: int) -> str:
        wide = conv(x, inputs, 4 * inputs, 1)
        deep = conv(wide, 4 * inputs, 4 * inputs, 3, stride, 4 * inputs)
        y = conv(deep, 4 * inputs, outputs, 1, activates=False)
        return op("Add", x, y) if stride == 1 and inputs == outputs else y

    x = conv("image", 3, 8, 3, 2)
    for inputs, outputs, stride in ((8, 8, 1), (8, 16, 2), (16, 16, 1)):
        x = block(x, inputs, outputs, stride)
    x = op("GlobalAveragePool", conv(x, 16, 32, 1))
    x = op("Flatten", x)
    out = op("Gemm", x, constant(generator.standard_normal((10, 32))), constant(np.ones(10)), transB=1)
    nodes.append(helper.make_node("Softmax", [out], ["scores"], "softmax"))
    graph = helper.make_graph(
        nodes,
        "small_mobilenet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 10])],
        weights,
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


def pictures(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 3, 32, 32)).astype(np.float32)


@pytest.mark.parametrize("activation", ["Clip", "Relu", "HardSwish"])
@pytest.mark.parametrize("level", list(sardonyx.GraphOptimizationLevel))
def test_regions_of_a_mobilenet_agree_with_the_cpu(activation: str, level: Any) -> None:
    content = small_net(activation)
    options = recording_options()
    options.graph_optimization_level = level
    session = sardonyx.InferenceSession(content, options, providers=[TORCH])
    assert session.get_providers() == [TORCH, CPU]
    plain = sardonyx.InferenceSession(content)
    for count in (1, 3):
        feeds = {"image": pictures(count)}
        np.testing.assert_allclose(session.run(None, feeds)[0], plain.run(None, feeds)[0], rtol=1e-4, atol=1e-6)
    parts = assignment(session)
    by_cpu = sorted(op for name, ops in parts for op in ops if name == CPU)
    if activation == "HardSwish":  # torch has no kernel for it here: many regions, and what is added goes around them
        assert set(by_cpu) == {"HardSwish", "Flatten", "Softmax"}
        assert sum(name == TORCH for name, _ in parts) > 5
    else:
        assert by_cpu == ["Flatten", "Softmax"]
        assert [len(ops) for name, ops in parts if name == TORCH] == [22, 1]


def test_small_regions_are_left_to_the_cpu_if_asked() -> None:
    session = sardonyx.InferenceSession(small_net(), recording_options(), providers=[(TORCH, {"least_nodes": "2"})])
    assert [op for name, ops in assignment(session) for op in ops if name == CPU] == ["Flatten", "Gemm", "Softmax"]


def test_several_callers_of_torch_at_once() -> None:
    content = small_net()
    session = sardonyx.InferenceSession(content, providers=[TORCH])
    plain = sardonyx.InferenceSession(content)
    wrong: list[Any] = []

    def call(count: int) -> None:
        feeds = {"image": pictures(count)}
        wanted = plain.run(None, feeds)[0]
        for _ in range(5):
            if not np.allclose(session.run(None, feeds)[0], wanted, rtol=1e-4, atol=1e-6):
                wrong.append(count)

    at_once(call, (1, 2, 3))
    assert not wrong
