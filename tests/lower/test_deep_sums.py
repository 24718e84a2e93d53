"""Long sums of products are summed up in blocks: what they round does not grow with the root of their length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx as sx
from guarded_session import guarded_feeds, guarded_memory
from sardonyx.ir.tensor import Array

MOST = 7e-7  # of the root of the mean square; in one chain of 10,000 it is 1.8e-6


def _session(node: Any, feeds: dict[str, Array], constants: dict[str, Array], shapes: dict[str, Sequence[Any]]) -> Any:
    graph = helper.make_graph(
        [node],
        "sums",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes.get(name, array.shape)) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    options = sx.SessionOptions()
    options.add_session_config_entry("session.exact_convolution", "1")
    return sx.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _run(node: Any, feeds: dict[str, Array], constants: dict[str, Array], **shapes: Sequence[Any]) -> Array:
    (plain,) = _session(node, feeds, constants, shapes).run(None, feeds)
    with guarded_memory() as guard:
        (guarded,) = _session(node, feeds, constants, shapes).run(None, guarded_feeds(guard, feeds))
    np.testing.assert_array_equal(plain, guarded)
    result: Array = plain
    return result


def _error(found: Array, exact: Array) -> float:
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))


@pytest.mark.parametrize("depth", [512, 1025, 1536, 4099, 10000])
@pytest.mark.parametrize("rows", [1, 3, 13, 40])
@pytest.mark.parametrize("fed", [False, True])
def test_products_of_any_depth(depth: int, rows: int, fed: bool) -> None:
    random = np.random.default_rng(depth)
    x, w = random.standard_normal((rows, depth), np.float32), random.standard_normal((depth, 70), np.float32)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    found = _run(node, {"x": x, "w": w} if fed else {"x": x}, {} if fed else {"w": w})
    assert _error(found, exact) < MOST


@pytest.mark.parametrize("depth", [0, 1, 511, 512, 513, 1100, 5000])
def test_depths_that_are_open(depth: int) -> None:
    random = np.random.default_rng(depth)
    x, w = random.standard_normal((20, depth), np.float32), random.standard_normal((depth, 33), np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    found = _run(node, {"x": x, "w": w}, {}, x=(20, "k"), w=("k", 33))
    exact = x.astype(np.float64) @ w.astype(np.float64)
    if not depth:
        np.testing.assert_array_equal(found, exact)
        return
    assert _error(found, exact) < MOST


@pytest.mark.parametrize(("depth", "rows"), [(4096, 84), (8200, 86)])
def test_products_in_halves(depth: int, rows: int) -> None:
    """Strassen's sums and differences round, too: twice as much as plain products do."""
    random = np.random.default_rng(depth)
    x, w = random.standard_normal((1, rows, depth), np.float32), random.standard_normal((depth, 256), np.float32)
    found = _run(helper.make_node("MatMul", ["x", "w"], ["y"]), {"x": x}, {"w": w})
    assert _error(found, x.astype(np.float64) @ w.astype(np.float64)) < 2 * MOST


def _windows(x: Array, kernel: int, stride: int) -> Array:
    pad = kernel // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    found: Array = windows
    return found


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "outputs", "size"),
    [(2048, 1, 1, 40, 7), (1030, 1, 1, 64, 3), (4100, 1, 1, 17, 1), (512, 3, 2, 40, 9), (200, 3, 1, 40, 9), (3, 25, 1, 20, 30)],
)
def test_convolutions_over_many_products(channels: int, kernel: int, stride: int, outputs: int, size: int) -> None:
    random = np.random.default_rng(channels)
    x = random.standard_normal((2, channels, size, size), np.float32)
    w = random.standard_normal((outputs, channels, kernel, kernel), np.float32)
    bias = random.standard_normal(outputs, np.float32)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[kernel // 2] * 4, strides=[stride] * 2)
    found = _run(node, {"x": x}, {"w": w, "b": bias})
    exact = np.einsum("nchwij,ocij->nohw", _windows(x, kernel, stride), w.astype(np.float64), optimize=True)
    assert _error(found, exact + bias[:, None, None]) < MOST


def test_infinities_and_nan_stay_in_their_rows() -> None:
    x, w = np.ones((5, 3000), np.float32), np.ones((3000, 20), np.float32)
    x[1, 700], x[2, 2999], x[3, 0] = np.inf, np.nan, -np.inf
    (found,) = _session(helper.make_node("MatMul", ["x", "w"], ["y"]), {"x": x}, {"w": w}, {}).run(None, {"x": x})
    np.testing.assert_array_equal(found[:, 0], np.array([3000, np.inf, np.nan, -np.inf, 3000], np.float32))
