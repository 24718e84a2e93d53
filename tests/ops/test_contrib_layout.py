"""Operators on channels-last and blocked layouts: against onnxruntime, and models it optimized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contrib_oracle import check, evaluate, normal, optimized, quantized, run_model
from onnx import helper
from op_case import Array

from sardonyx.ops.indexing import contrib_layout


def _last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_nhwc_max_pool(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = quantized(rng, (2, 7, 6, 3), dtype)
    check("NhwcMaxPool", [x], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    check("NhwcMaxPool", [x], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    check("NhwcMaxPool", [x], kernel_shape=[3, 3], auto_pad="SAME_UPPER")


def test_nhwc_fused_conv() -> None:
    rng = np.random.default_rng(1)
    x, w, b = normal(rng, 2, 4, 7, 6), normal(rng, 8, 2, 3, 3), normal(rng, 8)
    plain = evaluate("FusedConv", [x, w, b], group=2, pads=[1, 1, 1, 1], activation="Relu")[0]
    y = evaluate("NhwcFusedConv", [_last(x), w, b], group=2, pads=[1, 1, 1, 1], activation="Relu")[0]
    np.testing.assert_array_equal(y, _last(plain))
    plain = evaluate("FusedConv", [x, w, b], group=2)[0]
    np.testing.assert_array_equal(evaluate("NhwcConv", [_last(x), _last(w), b], group=2)[0], _last(plain))


@pytest.mark.parametrize(
    ("name", "version", "inputs", "attrs"),
    [
        ("Conv", 11, [(2, 4, 7, 6), (8, 4, 3, 3), (8,)], {"strides": [2, 1], "pads": [1, 1, 0, 0]}),
        ("ConvTranspose", 11, [(2, 4, 5, 6), (4, 8, 3, 3)], {"strides": [2, 2]}),
        ("MaxPool", 12, [(2, 4, 7, 6)], {"kernel_shape": [3, 3]}),
        ("AveragePool", 11, [(2, 4, 7, 6)], {"kernel_shape": [3, 3], "count_include_pad": 1, "pads": [1, 1, 1, 1]}),
        ("GlobalAveragePool", 1, [(2, 4, 7, 6)], {}),
        ("GlobalMaxPool", 1, [(2, 4, 7, 6)], {}),
        ("BatchNormalization", 9, [(2, 4, 7, 6), (4,), (4,), (4,), (4,)], {}),
        ("BatchNormalization", 15, [(2, 4, 7, 6), (4,), (4,), (4,), (4,)], {}),
        ("InstanceNormalization", 6, [(2, 4, 7, 6), (4,), (4,)], {}),
        ("LRN", 13, [(2, 4, 7, 6)], {"size": 3}),
        ("DepthToSpace", 13, [(2, 4, 3, 3)], {"blocksize": 2}),
        ("SpaceToDepth", 13, [(2, 4, 4, 6)], {"blocksize": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_channels_last_form_is_the_standard_operator_between_transposes(
    name: str, version: int, inputs: list[tuple[int, ...]], attrs: dict[str, Any]
) -> None:
    rng = np.random.default_rng(2)
    arrays = [np.abs(normal(rng, *shape)) for shape in inputs]
    expected = evaluate(name, arrays, domain="", version=version, **attrs)[0]
    y = evaluate(name, [_last(arrays[0]), *arrays[1:]], domain="com.ms.internal.nhwc", version=version, **attrs)[0]
    np.testing.assert_array_equal(y, _last(expected))


def test_channels_last_form_applies_a_fused_activation() -> None:
    rng = np.random.default_rng(3)
    x, w = normal(rng, 1, 5, 5, 2), normal(rng, 3, 2, 3, 3)
    plain = evaluate("Conv", [x, w], domain="com.ms.internal.nhwc", version=11)[0]
    clipped = evaluate("Conv", [x, w], domain="com.ms.internal.nhwc", version=11, activation="Clip", activation_params=[0.0, 1.0])
    np.testing.assert_array_equal(clipped[0], np.clip(plain, 0, 1))


def test_resize_on_channels_last_scales_the_axes_as_they_lie() -> None:
    x = normal(np.random.default_rng(4), 1, 3, 4, 2)
    scales = np.array([1, 2, 2, 1], np.float32)
    y = evaluate("Resize", [x, None, scales], domain="com.ms.internal.nhwc", version=13, mode="nearest")[0]
    np.testing.assert_array_equal(y, x.repeat(2, 1).repeat(2, 2))


def test_a_model_optimized_to_blocked_channels_gives_the_same_result(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=24),
        node("Clip", ["c1", "low", "high"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"]),
        node("MaxPool", ["c2"], ["p2"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("AveragePool", ["p2"], ["a2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Conv", ["a2", "w3"], ["c3"], pads=[1, 1, 1, 1]),
        node("Add", ["c3", "p2"], ["s3"]),
        node("Relu", ["s3"], ["r3"]),
        node(
            "Resize",
            ["r3", "", "scales"],
            ["u3"],
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        node("Concat", ["u3", "u3"], ["k"], axis=1),
        node("Conv", ["k", "w4"], ["c4"]),
        node("GlobalAveragePool", ["c4"], ["y"]),
    ]
    weights = {
        "w0": normal(rng, 24, 3, 3, 3) * 0.3,
        "b0": normal(rng, 24),
        "w1": normal(rng, 24, 1, 3, 3) * 0.3,
        "w2": normal(rng, 32, 24, 1, 1) * 0.3,
        "b2": normal(rng, 32),
        "w3": normal(rng, 32, 32, 3, 3) * 0.1,
        "w4": normal(rng, 20, 64, 1, 1) * 0.1,
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    x = normal(rng, 1, 3, 20, 20)
    model, expected = optimized(nodes, weights, x, tmp_path)
    assert any(node.domain == "com.microsoft.nchwc" for node in model.graph.node), "this machine has no blocked layout"
    np.testing.assert_allclose(run_model(model, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", [8, 16])
def test_blocked_kernels_are_read_in_blocks_of_either_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    w, x = normal(rng, 32, 16, 3, 3), normal(rng, 1, 16, 6, 6)
    blocked = w.reshape(32 // block, block, 16 // block, block, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    monkeypatch.setattr(contrib_layout, "machine_block", lambda: block)
    y = evaluate("Conv", [x, np.ascontiguousarray(blocked).reshape(w.shape)], domain="com.microsoft.nchwc")[0]
    np.testing.assert_array_equal(y, evaluate("Conv", [x, w], domain="", version=11)[0])


def test_the_shape_of_kernels_may_rule_out_large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    monkeypatch.setattr(contrib_layout, "machine_block", lambda: 16)
    for kernels, channels in ((32, 24), (24, 16), (8, 8)):
        w, x = normal(rng, kernels, channels, 1, 1), normal(rng, 1, channels, 2, 2)
        blocked = w.reshape(kernels // 8, 8, channels // 8, 8, 1, 1).transpose(0, 2, 4, 5, 3, 1)
        y = evaluate("Conv", [x, np.ascontiguousarray(blocked).reshape(w.shape)], domain="com.microsoft.nchwc")[0]
        np.testing.assert_array_equal(y, evaluate("Conv", [x, w], domain="", version=11)[0])
    with pytest.raises(ValueError, match="12 kernels are no whole number of blocks of 8"):
        evaluate("Conv", [normal(rng, 1, 3, 2, 2), normal(rng, 12, 3, 1, 1)], domain="com.microsoft.nchwc")


def test_reorder_changes_channels_and_layout() -> None:
    x = normal(np.random.default_rng(7), 1, 4, 5, 8)
    inner = evaluate("ReorderInput", [x], domain="com.microsoft.nchwc", channels_last=1)[0]
    np.testing.assert_array_equal(inner, np.moveaxis(x, -1, 1))
    np.testing.assert_array_equal(
        evaluate("ReorderOutput", [inner], domain="com.microsoft.nchwc", channels=6, channels_last=1)[0], x[..., :6]
    )
    with pytest.raises(ValueError, match="channels is 9"):
        evaluate("ReorderOutput", [inner], domain="com.microsoft.nchwc", channels=9)


def test_blocked_upsample_interpolates() -> None:
    x = normal(np.random.default_rng(8), 1, 8, 3, 4)
    for mode, coordinates in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")):
        attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
        expected = evaluate(
            "Resize", [x, None, np.array([1, 1, 2, 3], np.float32)], domain="", version=13, nearest_mode="floor", **attrs
        )[0]
        y = evaluate("Upsample", [x], domain="com.microsoft.nchwc", scales=[1, 1, 2, 3], **attrs)[0]
        np.testing.assert_allclose(y, expected, rtol=1e-6)
