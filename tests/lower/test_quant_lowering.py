"""QuantizeLinear and DequantizeLinear as native steps, against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from guarded import guarded
from native_support import assert_native_agrees, compile_native, host_nodes
from sardonyx.ir.tensor import Array
from targets import names_here


def check(nodes: list[Any], feeds: dict[str, Array], result: str, constants: dict[str, Array] | None = None, **how: Any) -> None:
    graph = helper.make_graph(
        nodes,
        "quantization",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(result)), None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert_native_agrees(model, {name: guarded(array) for name, array in feeds.items()}, **how)


FLOATS = st.floats(width=32) | st.floats(-300, 300, width=32) | st.sampled_from([0.5, 1.5, -2.5, 127.5, np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16"])
@settings(max_examples=20, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=40), st.floats(2.0**-10, 1000, width=32), st.integers(0, 127))
def test_quantized_numbers_are_rounded_and_saturated(target: str, numbers: list[float], scale: float, zero: int) -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    feeds: dict[str, Array] = {"x": np.array(numbers, np.float32), "s": np.array(scale, np.float32), "z": np.array(zero, target)}
    check([node], feeds, target)


@pytest.mark.parametrize("machine", names_here())
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16"])
@settings(max_examples=10, deadline=None)
@given(
    st.lists(FLOATS | st.integers(-600, 600), min_size=1, max_size=40),
    st.floats(2.0**-70, 2.0**70, width=32) | st.integers(1, 300).map(lambda number: number / 1000),
    st.integers(0, 127),
)
def test_known_scales_divide_exactly(machine: str, target: str, numbers: list[float], scale: float, zero: int) -> None:
    """Numbers on, beside and far from the middle of two steps, by a scale that the program knows."""
    step = np.float32(scale)
    with np.errstate(over="ignore"):
        halves = np.array(numbers, np.float32) * np.float32(0.5) * step
    x = np.concatenate([halves, np.nextafter(halves, np.float32(np.inf)), np.array(numbers, np.float32)])
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    check([node], {"x": x}, target, {"s": np.array(step), "z": np.array(zero, target)}, target=machine)


@pytest.mark.parametrize("source", ["int8", "uint8", "int16", "uint16", "int32"])
def test_dequantized_numbers_agree(source: str) -> None:
    limits = np.iinfo(source)
    x = np.array([limits.min, limits.max, 0, 1, 77], source)
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    zero = np.array(0 if source == "int32" else 3, source)
    check([node], {"x": x, "s": np.array(0.37, np.float32), "z": zero}, "float32")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("zero", [True, False])
def test_scales_of_an_axis_agree(axis: int, zero: bool) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(0, 50, (3, 5, 20)).astype(np.float32)
    count = x.shape[axis]
    names = ["s", "z"] if zero else ["s"]
    parameters: dict[str, Array] = {
        "s": rng.uniform(0.1, 1.1, (count,)).astype(np.float32),
        "z": rng.integers(0, 200, (count,)).astype(np.uint8),
    }
    given_: dict[str, Array] = {name: parameters[name] for name in names}
    check([helper.make_node("QuantizeLinear", ["x", *names], ["y"], axis=axis)], {"x": x, **given_}, "uint8")
    stored = rng.integers(0, 255, x.shape).astype(np.uint8)
    nodes = [helper.make_node("DequantizeLinear", ["x", *names], ["f"], axis=axis), helper.make_node("Relu", ["f"], ["y"])]
    check(nodes, {"x": stored, **given_}, "float32")


def test_a_round_trip_is_one_kernel() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    feeds = {"x": np.linspace(-4, 4, 100, dtype=np.float32)}
    check(nodes, feeds, "float32", {"s": np.array(0.02, np.float32), "z": np.array(5, np.int8)})


def test_half_precision_agrees() -> None:
    feeds: dict[str, Array] = {
        "x": np.linspace(-4, 4, 50, dtype=np.float16),
        "s": np.array(0.03, np.float16),
        "z": np.array(3, np.int8),
    }
    check([helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])], feeds, "int8")
    stored: dict[str, Array] = {
        "x": np.arange(-100, 100, dtype=np.int8),
        "s": np.array(0.03, np.float16),
        "z": np.array(3, np.int8),
    }
    check([helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])], stored, "float16")


def test_blocks_are_left_to_the_host() -> None:
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=0, block_size=2)],
        "blocks",
        [helper.make_tensor_value_info("x", 3, [4, 3]), helper.make_tensor_value_info("s", 1, [2, 3])],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    _, compiled = compile_native(model.SerializeToString())
    assert host_nodes(compiled) == ["DequantizeLinear"]


@pytest.mark.parametrize(
    "x",
    [
        np.linspace(-3, 9, 50, dtype=np.float32).reshape(5, 10),
        np.linspace(2, 9, 33, dtype=np.float32),
        np.array([[np.nan, 4.0, -1.0], [np.nan, 0.5, 2.5]], np.float32),
        np.zeros((2, 3), np.float32),
        np.full(4, np.nan, np.float32),
        np.zeros((0, 3), np.float32),
    ],
    ids=["both signs", "positive", "with NaN", "zeros", "only NaN", "empty"],
)
def test_a_scale_is_found_for_the_tensor(x: Array) -> None:
    names = ["q", "scale", "zero"]
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], names)],
        "dynamic",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, (2, 1, 2))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert_native_agrees(model, {"x": guarded(x)}, rtol=1e-6)
