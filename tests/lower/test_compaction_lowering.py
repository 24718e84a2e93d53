"""NonZero and Compress against their NumPy meaning: sizes that kernels find, and what uses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native, run_reference
from sardonyx import errors
from sardonyx.ir.tensor import Array

TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "bool": np.bool_,
}


def sparse(shape: tuple[int, ...], kind: str, share: float, seed: int = 0) -> Array:
    """A share of elements is not zero; among floats also NaN, infinity and minus zero."""
    array: Array = (np.random.default_rng(seed).random(shape) < share).astype(TYPES[kind])
    if array.dtype.kind == "f" and array.size > 4:
        array.reshape(-1)[[0, 1, 3]] = np.nan, -0.0, np.inf
    return array


def agrees(graph: str, **feeds: Any) -> None:
    assert_native_agrees(model(graph), {name: guarded(array) for name, array in feeds.items()}, rtol=0, atol=0)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 9),
)
def test_places_of_elements_that_are_not_zero(kind: str, shape: list[int], share: float, seed: int) -> None:
    sizes = ",".join(f"D{place}" for place in range(len(shape)))
    agrees(f"({kind}[{sizes}] x) => (int64[a] y) {{ y = NonZero(x) }}", x=sparse(tuple(shape), kind, share, seed))


@pytest.mark.parametrize("shape", [(1023,), (1024,), (1025,), (5000,), (3, 2049), (2049, 3), (700, 1, 2), (1, 5, 1000)])
def test_places_in_several_chunks(shape: tuple[int, ...]) -> None:
    sizes = ",".join(f"D{place}" for place in range(len(shape)))
    for share in (0.001, 0.5, 1.0):
        agrees(f"(float[{sizes}] x) => (int64[a] y) {{ y = NonZero(x) }}", x=sparse(shape, "float", share))


def test_a_scalar_has_no_coordinates() -> None:
    graph = "(float[1] x) => (int64[a] y, int64[b] n) { s = Squeeze(x) y = NonZero(s) n = Shape(y) }"
    for number in (0.0, 2.0):
        agrees(graph, x=np.array([number], np.float32))


def test_a_transposed_input() -> None:
    graph = "(bool[A,B,C] x) => (int64[a] y) { t = Transpose<perm=[2,0,1]>(x) y = NonZero(t) }"
    agrees(graph, x=sparse((4, 5, 6), "bool", 0.4))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(-1, 2)),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.integers(0, 3),
)
def test_chosen_elements(kind: str, shape: list[int], axis: int | None, share: float, missing: int) -> None:
    axis = None if axis is None else axis % len(shape)
    size = int(np.prod(shape)) if axis is None else shape[axis]
    condition = sparse((max(size - missing, 0),), "bool", share)
    sizes = ",".join(f"D{place}" for place in range(len(shape)))
    attribute = "" if axis is None else f"<axis={axis}>"
    graph = f"({kind}[{sizes}] x, bool[C] c) => ({kind}[a] y) {{ y = Compress{attribute}(x, c) }}"
    agrees(graph, x=sparse(tuple(shape), kind, 0.5), c=condition)


def test_a_known_condition() -> None:
    graph = "(float[A,4] x) => (float[a] y) { c = Constant<value = bool[4] {1, 0, 0, 1}>() y = Compress<axis=1>(x, c) }"
    agrees(graph, x=sparse((3, 4), "float", 0.7))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_condition_beyond_the_data_is_an_error_that_names_the_node(workers: int) -> None:
    content = model("(float[A,B] x, bool[C] c) => (float[a] y) { y = Compress<axis=1>(x, c) }")
    graph, compiled = compile_native(content, workers)
    assert not host_nodes(compiled)
    with pytest.raises(errors.InvalidArgument, match=r"Compress.*condition selects element 5, but there are 4"):
        run_native(graph, compiled, {"x": np.zeros((2, 4), np.float32), "c": np.arange(6) == 5})
    longer = {"x": np.ones((2, 4), np.float32), "c": np.arange(6) < 2}  # what is not chosen need not be there
    np.testing.assert_array_equal(run_native(graph, compiled, longer)[0], np.ones((2, 2)))


def test_sizes_found_one_after_the_other() -> None:
    """Memory for what depends on two counts is taken when both are known."""
    graph = """(float[A,B] x, float[A,B] z) => (float[a] y, int64[b] n) {
        p = NonZero(x) q = NonZero(z) both = Concat<axis=1>(p, q) n = Shape(both)
        f = Cast<to=1>(both) r = Relu(f) y = Mul(r, f)
    }"""
    for first, second in ((0.5, 0.5), (0.0, 0.5), (1.0, 0.0), (0.02, 1.0)):
        agrees(graph, x=sparse((30, 50), "float", first), z=sparse((30, 50), "float", second, 1))


def test_what_follows_is_native_and_the_program_serves_all_counts() -> None:
    content = model("""(float[N] x, float[N,M] table) => (float[a] y) {
        zero = Constant<value = float {0.0}>() above = Greater(x, zero)
        zeroth = Constant<value = int64[1] {0}>()
        places = NonZero(above) flat = Squeeze(places, zeroth) rows = Gather(table, flat) y = ReduceSum(rows)
    }""")
    graph, compiled = compile_native(content)
    assert not host_nodes(compiled)
    for size in (3, 2000, 1, 40):
        feeds = {"x": np.linspace(-1, 1.5, size).astype(np.float32), "table": np.ones((size, 3), np.float32)}
        np.testing.assert_allclose(run_native(graph, compiled, feeds)[0], run_reference(content, feeds)[0])


def test_the_same_bits_on_any_number_of_workers() -> None:
    content = model("(float[A,B,C] x) => (int64[a] y) { y = NonZero(x) }")
    x = sparse((40, 50, 60), "float", 0.3)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, {"x": x})[0].tobytes())
    assert results == [np.stack(np.nonzero(x)).tobytes()] * 3
