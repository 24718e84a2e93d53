"""TopK and running sums against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from lowering_case import model as nodes_model
from lowering_case import samples
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx.ir.tensor import Array
from sardonyx.runtime.native_core import SizeConflict

TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
}


def numbers(shape: tuple[int, ...], kind: str) -> Array:
    """Many equal ones, and among floats NaN, infinities and both zeros."""
    array = np.random.default_rng(0).integers(0, 9, shape).astype(TYPES[kind])
    if array.dtype.kind == "f" and array.size > 8:
        array.reshape(-1)[[0, 3, 5, 6, 7]] = np.nan, np.inf, -np.inf, -0.0, np.nan
    return array


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(0, 12),
    st.integers(0, 1),
    st.booleans(),
)
def test_top_k(kind: str, shape: list[int], axis: int, k: int, largest: int, symbolic: bool) -> None:
    axis %= len(shape)
    k = min(k, shape[axis])
    sizes = ",".join(f"D{place}" if symbolic else str(size) for place, size in enumerate(shape))
    graph = f"""({kind}[{sizes}] x) => ({kind}[a] v, int64[b] i) {{
        k = Constant<value = int64[1] {{{k}}}>()
        v, i = TopK<axis={axis}, largest={largest}>(x, k)
    }}"""
    assert_native_agrees(model(graph), {"x": numbers(tuple(shape), kind)}, rtol=0, atol=0)


def test_top_k_with_one_result_and_more_than_there_are() -> None:
    graph = "(float[N] x) => (int64[b] i) { k = Constant<value = int64[1] {3}>() v, i = TopK(x, k) }"
    assert_native_agrees(model(graph), {"x": numbers((20,), "float")})
    compiled_graph, compiled = compile_native(model(graph))
    with pytest.raises(Exception, match="must agree"):
        run_native(compiled_graph, compiled, {"x": np.zeros(2, np.float32)})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.sampled_from([(700,), (3, 300), (300, 3), (2, 150, 2), (20, 70), (40, 1)]),
    st.integers(0, 2),
    st.floats(0, 1),
    st.integers(0, 1),
    st.booleans(),
    st.integers(0, 9),
)
def test_any_number_of_elements(
    kind: str, shape: tuple[int, ...], axis: int, share: float, largest: int, wide: bool, seed: int
) -> None:
    """k is data here, so that it may be anything; few and many are different kernels."""
    axis %= len(shape)
    x = numbers(shape, kind)
    if wide:  # values that differ in all bytes, of both signs
        bits = np.random.default_rng(seed).integers(0, 256, x.nbytes, np.uint8)
        x = bits.view(x.dtype).reshape(shape)
    sizes = ",".join(f"D{place}" for place in range(len(shape)))
    graph = (
        f"({kind}[{sizes}] x, int64[1] k) => ({kind}[a] v, int64[b] i) {{ v, i = TopK<axis={axis}, largest={largest}>(x, k) }}"
    )
    feeds = {"x": guarded(x), "k": np.array([round(share * shape[axis])])}
    assert_native_agrees(model(graph), feeds, rtol=0, atol=0)


@pytest.mark.parametrize("k", [63, 64, 65, 1000, 2000])
def test_a_long_row(k: int) -> None:
    graph = f"(float[N] x) => (float[a] v, int64[b] i) {{ k = Constant<value = int64[1] {{{k}}}>() v, i = TopK(x, k) }}"
    x = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    for feed in (x, np.sort(x), np.zeros(2000, np.float32), np.full(2000, np.nan, np.float32)):
        assert_native_agrees(model(graph), {"x": guarded(feed)}, rtol=0, atol=0)


@pytest.mark.parametrize("k", [-1, 21])
def test_a_k_that_cannot_be_is_left_to_numpy(k: int) -> None:
    graph, compiled = compile_native(model("(float[N] x, int64[1] k) => (float[a] v, int64[b] i) { v, i = TopK(x, k) }"))
    assert not host_nodes(compiled)
    with pytest.raises(SizeConflict):
        run_native(graph, compiled, {"x": np.zeros(20, np.float32), "k": np.array([k])})


def test_rows_are_sorted_alike_on_any_number_of_workers() -> None:
    content = model("(float[A,B] x, int64[1] k) => (float[a] v, int64[b] i) { v, i = TopK(x, k) }")
    x = np.random.default_rng(0).integers(0, 50, (100, 300)).astype(np.float32)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(content, workers)
        results.append([each.tobytes() for each in run_native(graph, compiled, {"x": x, "k": np.array([200])})])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "uint8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_cumulative_sums(kind: str, axis: int, exclusive: int, reverse: int) -> None:
    attributes = f"exclusive={exclusive}, reverse={reverse}"
    graph = f"({kind}[A,B,C] x) => ({kind}[z] y) {{ a = Constant<value = int64 {{{axis}}}>() y = CumSum<{attributes}>(x, a) }}"
    for shape in ((3, 5, 19), (1, 4, 1), (2, 0, 3), (2, 3, 40)):
        agrees(graph, x=numbers(shape, kind))


@pytest.mark.parametrize("kind", ["float", "float16", "int64"])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulative_sums_of_long_rows_of_a_known_length(kind: str, reverse: int) -> None:
    graph = f"({kind}[A,B,1100] x) => ({kind}[z] y) {{ a = Constant<value = int64 {{1}}>() y = CumSum<reverse={reverse}>(x, a) }}"
    for shape in ((2, 5, 1100), (2, 0, 1100), (3, 1, 1100)):
        agrees(graph, x=numbers(shape, kind))


def agrees(graph: str, opset: int = 24, **feeds: Any) -> None:
    assert_native_agrees(model(graph, opset), feeds, rtol=0, atol=0)


def test_running_products_and_vectors() -> None:
    x = np.linspace(0.5, 1.5, 12, dtype=np.float32)
    agrees("(float[12] x) => (float[z] y) { a = Constant<value = int64 {0}>() y = CumProd(x, a) }", 26, x=x)
    agrees("(float[N] x) => (float[z] y) { a = Constant<value = int64 {0}>() y = CumSum(x, a) }", x=x)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 90),
    st.integers(0, 12),
    st.sampled_from((np.float32, np.float64, np.float16, np.int64, np.uint8)),
    st.booleans(),
    st.booleans(),
)
def test_rows_of_any_length_are_sorted_as_a_whole(length: int, left_out: int, kind: Any, largest: bool, ties: bool) -> None:
    x = samples(kind, (3, length), seed=length)
    if ties:
        x[:, ::2] = x[:, :1]
    wanted = np.array([max(0, length - left_out)])
    feeds = {"x": guarded(x), "k": guarded(wanted)}
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], largest=int(largest))
    assert_native_agrees(nodes_model([node], feeds, {"y": x.dtype, "i": np.int64}), feeds, rtol=0, atol=0)
