"""Products of 8-bit integers against the NumPy meaning of the operators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from guarded import guarded
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx.ir.tensor import Array

TYPES = {"uint8": np.uint8, "int8": np.int8}
SHAPES = [
    ("M,K", "K,N", (5, 7), (7, 9)),
    ("B,M,K", "K,N", (2, 5, 40), (40, 33)),
    ("B,H,M,K", "B,H,K,N", (2, 3, 5, 17), (2, 3, 17, 33)),
    ("K", "K,N", (7,), (7, 9)),
    ("M,K", "K", (5, 7), (7,)),
    ("M,K", "K,N", (0, 7), (7, 9)),
    ("M,K", "K,N", (3, 0), (0, 4)),
]


def integers(kind: str, shape: tuple[int, ...], seed: int) -> Array:
    limits = np.iinfo(TYPES[kind])
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(TYPES[kind])


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.sampled_from(list(TYPES)),
    st.sampled_from(SHAPES),
    st.sampled_from(["none", "one", "vector"]),
    st.integers(0, 9),
)
def test_integers_agree_to_the_bit(
    first: str, second: str, case: tuple[str, str, tuple[int, ...], tuple[int, ...]], origin: str, seed: int
) -> None:
    names_a, names_b, shape_a, shape_b = case
    feeds = {"a": integers(first, shape_a, seed), "b": integers(second, shape_b, seed + 1)}
    declared = [f"{first}[{names_a}] a", f"{second}[{names_b}] b"]
    if origin == "vector" and len(shape_a) > 1 and len(shape_b) > 1:
        feeds |= {"p": integers(first, shape_a[-2:-1], seed), "q": integers(second, shape_b[-1:], seed)}
        declared += [f"{first}[M] p", f"{second}[N] q"]
    elif origin != "none":
        feeds |= {"p": integers(first, (1,), seed), "q": integers(second, (1,), seed)}
        declared += [f"{first}[1] p", f"{second}[1] q"]
    graph = f"({', '.join(declared)}) => (int32[z] y) {{ y = MatMulInteger({', '.join(feeds)}) }}"
    assert_native_agrees(model(graph), {name: guarded(array) for name, array in feeds.items()})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.sampled_from(list(TYPES)),
    st.sampled_from(SHAPES[:3]),
    st.booleans(),
    st.sampled_from([0.0005, 0.02, 3.0]),
    st.integers(0, 9),
)
def test_quantized_results_agree_to_the_bit(
    first: str,
    second: str,
    case: tuple[str, str, tuple[int, ...], tuple[int, ...]],
    columns: bool,
    scale: float,
    seed: int,
) -> None:
    names_a, names_b, shape_a, shape_b = case
    count, name = (shape_b[-1], "N") if columns else (1, "1")
    rng = np.random.default_rng(seed)
    feeds = {
        "a": integers(first, shape_a, seed),
        "as": np.array([0.013], np.float32),
        "az": integers(first, (1,), seed),
        "b": integers(second, shape_b, seed + 1),
        "bs": (rng.random(count) * scale + 1e-4).astype(np.float32),
        "bz": integers(second, (count,), seed),
        "ys": np.array([0.5], np.float32),
        "yz": integers(first, (1,), seed + 2),
    }
    declared = [
        f"{first}[{names_a}] a", "float[1] as", f"{first}[1] az", f"{second}[{names_b}] b", f"float[{name}] bs",
        f"{second}[{name}] bz", "float[1] ys", f"{first}[1] yz",
    ]  # fmt: skip
    graph = f"({', '.join(declared)}) => ({first}[z] y) {{ y = QLinearMatMul({', '.join(feeds)}) }}"
    assert_native_agrees(model(graph), {name: guarded(array) for name, array in feeds.items()})


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_a_layer_quantized_at_run_time_with_constant_weights(rows: int) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-100, 100, (64, 33)).astype(np.int8),
        "wz": rng.integers(-9, 9, 33).astype(np.int8),
        "ws": np.array(0.01, np.float32),
        "bias": rng.random(33).astype(np.float32),
    }
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        helper.make_node("Cast", ["i"], ["c"], to=1),
        helper.make_node("Mul", ["s", "ws"], ["f"]),
        helper.make_node("Mul", ["c", "f"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", 1, ["N", 64])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    assert_native_agrees(content, {"x": guarded(rng.standard_normal((rows, 64)).astype(np.float32))}, rtol=1e-5, atol=1e-4)


def test_the_same_bits_on_any_number_of_workers() -> None:
    content = model("(uint8[M,K] a, int8[K,N] b) => (int32[z] y) { y = MatMulInteger(a, b) }")
    feeds = {"a": integers("uint8", (100, 120), 0), "b": integers("int8", (120, 90), 1)}
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(content, workers)
        assert not host_nodes(compiled)
        results.append(run_native(graph, compiled, feeds)[0].tobytes())
    assert results[0] == results[1] == results[2]
