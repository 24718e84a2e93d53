"""Quantized sums, products, activations, pools and Concat against their NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from lowering_case import model
from native_support import assert_native_agrees
from sardonyx.ir.tensor import Array
from targets import names_here

BYTES = [np.uint8, np.int8]
MICROSOFT = "com.microsoft"


def integers(seed: int, dtype: Any, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def parameters(seed: int, dtype: Any, name: str) -> dict[str, Array]:
    scale = np.array(0.003 * (seed + 1), np.float32)
    return {f"{name}s": scale, f"{name}z": integers(seed, dtype, ())}


def check(name: str, inputs: dict[str, Array], data: set[str], dtype: Any, target: str = "", **attrs: Any) -> None:
    feeds = {key: guarded(array) for key, array in inputs.items() if key in data}
    constants = {key: array for key, array in inputs.items() if key not in data}
    node = helper.make_node(name, list(inputs), ["y"], domain=MICROSOFT, **attrs)
    assert_native_agrees(model([node], feeds, {"y": dtype}, constants=constants, opset=21), feeds, target=target)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", [((2, 5, 33), (2, 5, 33)), ((2, 5, 33), (5, 1)), ((1, 33), (4, 1))])
@pytest.mark.parametrize("target", names_here())
def test_sums_and_products(name: str, dtype: Any, shapes: tuple[Any, Any], target: str) -> None:
    first, second = shapes
    inputs = {"a": integers(1, dtype, first), **parameters(2, dtype, "a"), "b": integers(3, dtype, second)}
    inputs |= {**parameters(4, dtype, "b"), **parameters(5, dtype, "c")}
    check(name, inputs, {"a", "b"}, dtype, target)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("name", "attrs"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.3})])
def test_activations(name: str, attrs: dict[str, Any], dtype: Any) -> None:
    every = np.arange(256).astype(np.uint8).view(dtype).reshape(4, 64)
    inputs = {"x": every, **parameters(7, dtype, "x"), **parameters(1, dtype, "y")}
    check(name, inputs, {"x"}, dtype, **attrs)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (1, 64, 7, 3), (1, 3, 40), (2, 1, 1, 1)])
def test_means_of_whole_images(dtype: Any, last: int, shape: tuple[int, ...]) -> None:
    inputs = {"x": integers(1, dtype, shape), **parameters(2, dtype, "x"), **parameters(1, dtype, "y")}
    check("QLinearGlobalAveragePool", inputs, {"x"}, dtype, channels_last=last)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", BYTES)
def test_concat_quantizes_anew(axis: int, dtype: Any) -> None:
    inputs = {**parameters(1, dtype, "y")}
    for number in range(3):
        shape = [2, 3, 17]
        shape[axis] += number
        inputs |= {f"x{number}": integers(number, dtype, tuple(shape)), **parameters(number, dtype, f"x{number}")}
    check("QLinearConcat", inputs, {"x0", "x1", "x2"}, dtype, axis=axis)


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(BYTES),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.tuples(*[st.integers(0, 1)] * 4),
    sizes=st.tuples(st.integers(1, 2), st.integers(3, 9), st.integers(3, 9), st.integers(1, 40)),
    ceil=st.booleans(),
    target=st.sampled_from(names_here()),
    seed=st.integers(0, 20),
)
def test_largest_of_windows_with_channels_last(
    dtype: Any,
    window: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    sizes: tuple[int, int, int, int],
    ceil: bool,
    target: str,
    seed: int,
) -> None:
    pads = tuple(min(pad, width - 1) for pad, width in zip(pads, (*window, *window)))  # type: ignore[assignment]
    attrs = {"kernel_shape": window, "strides": strides, "pads": pads, "ceil_mode": int(ceil)}
    check("NhwcMaxPool", {"x": integers(seed, dtype, sizes)}, {"x"}, dtype, target, **attrs)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 0, 1)])
@pytest.mark.parametrize("dtype", BYTES)
def test_largest_of_windows_of_an_image_whose_channels_lie_apart(dtype: Any, pads: tuple[int, ...]) -> None:
    x = guarded(integers(3, dtype, (2, 19, 9, 8)))
    nodes = [
        helper.make_node("Transpose", ["x"], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("NhwcMaxPool", ["last"], ["y"], domain=MICROSOFT, kernel_shape=[2, 3], strides=[2, 1], pads=pads),
    ]
    assert_native_agrees(model(nodes, {"x": x}, {"y": dtype}, opset=21), {"x": x})
