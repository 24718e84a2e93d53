"""Models that onnxruntime has optimised and saved, its own operators and layouts included, are native and compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.explanation import explain_model
from sardonyx.ir.tensor import Array
from sardonyx.ops.indexing.contrib_layout import unblocked

_CHANNELS = 16
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _net(path: Path) -> None:
    """Convolutions with activations and a sum, depthwise, pools, a resize and 20 channels, which fill no whole block."""
    rng = np.random.default_rng(5)
    weights: dict[str, tuple[int, ...]] = {
        "w0": (_CHANNELS, 3, 3, 3), "w1": (_CHANNELS, 1, 3, 3), "w2": (_CHANNELS, _CHANNELS, 1, 1), "w3": (20, _CHANNELS, 1, 1),
        "b0": (_CHANNELS,), "b2": (_CHANNELS,),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["a0"]),
        helper.make_node("Conv", ["a0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=_CHANNELS),
        helper.make_node("Clip", ["c1", "zero", "six"], ["a1"]),
        helper.make_node("Conv", ["a1", "w2", "b2"], ["c2"]),
        helper.make_node("Add", ["c2", "a0"], ["s2"]),
        helper.make_node("LeakyRelu", ["s2"], ["a2"], alpha=0.2),
        helper.make_node("MaxPool", ["a2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["p2", "", "scales"], ["r2"], **NEAREST),
        helper.make_node("Conv", ["r2", "w3"], ["c3"]),
        helper.make_node("HardSigmoid", ["c3"], ["a3"], alpha=0.3, beta=0.4),
        helper.make_node("GlobalAveragePool", ["a3"], ["g3"]),
        helper.make_node("Mul", ["a3", "g3"], ["y"]),
    ]  # fmt: skip
    held = [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in weights.items()]
    held += [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in (("zero", 0), ("six", 6), ("scales", [1, 1, 2, 2]))
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 24, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 20, 12, 12])],
        held,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_what_onnxruntime_has_optimised_is_native(tmp_path: Path, level: str) -> None:
    _net(tmp_path / "net.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(tmp_path / "net.onnx", options, providers=["CPUExecutionProvider"])
    found = {(node.domain, node.op_type) for node in onnx.load(tmp_path / "optimised.onnx").graph.node}
    assert any(domain for domain, _ in found)
    image = np.random.default_rng(6).standard_normal((3, 3, 24, 24)).astype(np.float32)
    [wanted] = theirs.run(None, {"x": image})
    session = sardonyx.InferenceSession(tmp_path / "optimised.onnx")
    [result] = session.run(None, {"x": image})
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    reference = sardonyx.InferenceSession(tmp_path / "optimised.onnx", providers=["SardonyxReferenceExecutionProvider"])
    np.testing.assert_allclose(result, reference.run(None, {"x": image})[0], rtol=1e-4, atol=1e-5)
    assert explain_model(tmp_path / "optimised.onnx").host_steps == 0


@pytest.mark.parametrize("taken", [17, 20, 32])
@pytest.mark.parametrize("added", [False, True])
def test_depthwise_kernels_may_fill_blocks_that_the_image_does_not(taken: int, added: bool) -> None:
    """Channels that the image lacks are zeros: a bias is all there is of them."""
    rng = np.random.default_rng(7)
    blocked = {"domain": "com.microsoft.nchwc"}
    sums = ["filled"] if added else []
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], **blocked),
        helper.make_node("Conv", ["a", "w", "b", *sums], ["c"], group=32, pads=[1] * 4, activation="Relu", **blocked),
        helper.make_node("ReorderOutput", ["c"], ["y"], channels=taken, **blocked),
    ]
    inputs = {"x": (2, 20, 6, 7), **({"filled": (2, 32, 6, 7)} if added else {})}
    held = {"w": rng.standard_normal((32, 1, 3, 3)), "b": rng.standard_normal(32)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in held.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    [result] = sardonyx.InferenceSession(content).run(None, feeds)
    wanted = np.maximum(0, _depthwise(feeds["x"], held["w"], held["b"]) + feeds.get("filled", 0))
    np.testing.assert_allclose(result, wanted[:, :taken], rtol=1e-4, atol=1e-5)
    assert explain_model(content).host_steps == 0


def _depthwise(x: Array, w: Array, b: Array) -> Array:
    """Kernels in blocks of channels, applied to an image that has fewer of them."""
    kernels = unblocked(w)[:, 0]
    image = np.pad(x.astype(np.float64), ((0, 0), (0, len(kernels) - x.shape[1]), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    taps = [kernels[:, i, j, None, None] * image[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.asarray(sum(taps) + b[:, None, None])
