"""Gathers and scatters against the NumPy meaning of the operators, and what happens to bad indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded_session import guarded_feeds, guarded_memory
from model_text import model
from native_support import assert_native_agrees, compile_native, run_native, run_reference
from sardonyx import errors
from sardonyx.ir.tensor import Array
from sardonyx.program.steps import KernelStep

TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "uint16": np.uint16,
    "int32": np.int32,
    "int64": np.int64,
    "bool": np.bool_,
}
SIZES = st.integers(0, 6)


def numbers(shape: tuple[int, ...], kind: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if np.dtype(TYPES[kind]).kind == "f":
        array: Array = rng.standard_normal(shape).astype(TYPES[kind])
        if array.size > 2:
            array.reshape(-1)[0] = np.nan
        return array
    return rng.integers(0, 6, shape).astype(TYPES[kind])


def agrees(graph: str, opset: int = 24, **feeds: Any) -> None:
    assert_native_agrees(model(graph, opset), feeds, rtol=0, atol=0)


def declared(kind: str, shape: tuple[int, ...], name: str, symbolic: bool) -> str:
    """A declaration with numbers or names for the sizes."""
    sizes = ",".join(f"{name.upper()}{axis}" if symbolic else str(size) for axis, size in enumerate(shape))
    return f"{kind}[{sizes}] {name}" if shape else f"{kind} {name}"


def indices(shape: tuple[int, ...], size: int, seed: int, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(seed).integers(-size, max(size, 1 - size), shape).astype(dtype)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(SIZES, max_size=2),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
def test_gather(kind: str, shape: list[int], asked: list[int], axis: int, symbolic: bool, narrow: bool) -> None:
    axis %= len(shape)
    x = numbers(tuple(shape), kind)
    places = indices(tuple(asked), shape[axis], 1, np.int32 if narrow else np.int64)
    inputs = f"{declared(kind, x.shape, 'x', symbolic)}, {declared('int32' if narrow else 'int64', places.shape, 'i', symbolic)}"
    agrees(f"({inputs}) => ({kind}[z] y) {{ y = Gather<axis={axis}>(x, i) }}", x=x, i=places)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.integers(0, 2),
    st.booleans(),
)
def test_gather_elements(kind: str, shape: list[int], random: Any, axis: int, symbolic: bool) -> None:
    axis %= len(shape)
    x = numbers(tuple(shape), kind)
    asked = tuple(random.randint(0, size) if place != axis else random.randint(0, 20) for place, size in enumerate(shape))
    places = indices(asked, shape[axis], 2)
    inputs = f"{declared(kind, x.shape, 'x', symbolic)}, {declared('int64', asked, 'i', symbolic)}"
    agrees(f"({inputs}) => ({kind}[z] y) {{ y = GatherElements<axis={axis}>(x, i) }}", x=x, i=places)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("batch", [0, 1])
def test_gather_nd(depth: int, batch: int) -> None:
    if depth + batch > 3:
        pytest.skip("more indices than axes")
    x = numbers((4, 3, 5), "float")
    lead = (4, 6) if batch else (2, 6)
    columns = [indices(lead, x.shape[batch + column], column) for column in range(depth)]
    places = np.stack(columns, axis=-1) if columns else np.zeros((*lead, 0), np.int64)
    inputs = f"float[A,B,C] x, int64[D,E,{depth}] i"
    agrees(f"({inputs}) => (float[z] y) {{ y = GatherND<batch_dims={batch}>(x, i) }}", x=x, i=places)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("kind", list(TYPES))
def test_scatter_elements_with_duplicates(kind: str, reduction: str) -> None:
    for axis, asked in ((0, (9, 5)), (1, (6, 11)), (1, (0, 3))):
        x, updates = numbers((6, 5), kind), numbers(asked, kind, 3)
        places = indices(asked, (6, 5)[axis], 4)
        inputs = f"{kind}[A,B] x, int64[C,D] i, {kind}[C,D] u"
        graph = f'({inputs}) => ({kind}[z] y) {{ y = ScatterElements<axis={axis}, reduction="{reduction}">(x, i, u) }}'
        agrees(graph, x=x, i=places, u=updates)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize(
    ("depth", "kind"), [(1, "float"), (2, "float16"), (0, "float"), (3, "int32"), (1, "bool"), (1, "double")]
)
def test_scatter_nd_with_duplicates(depth: int, kind: str, reduction: str) -> None:
    x = numbers((4, 3, 70), kind)
    columns = [indices((7,), x.shape[column], column) for column in range(depth)]
    places = np.stack(columns, axis=-1) if columns else np.zeros((7, 0), np.int64)
    updates = numbers((7, *x.shape[depth:]), kind, 5)
    sizes = ",".join(f"U{axis}" for axis in range(updates.ndim))
    inputs = f"{kind}[A,B,C] x, int64[N,{depth}] i, {kind}[{sizes}] u"
    agrees(f'({inputs}) => ({kind}[z] y) {{ y = ScatterND<reduction="{reduction}">(x, i, u) }}', x=x, i=places, u=updates)


def test_old_scatter() -> None:
    graph = "(float[5,4] x, int32[2,3] i, float[2,3] u) => (float[z] y) { y = Scatter<axis=1>(x, i, u) }"
    agrees(graph, 10, x=numbers((5, 4), "float"), i=indices((2, 3), 4, 0, np.int32), u=numbers((2, 3), "float", 1))


@pytest.mark.parametrize(("mode", "starts"), [("linear", [0, 3]), ("circular", [5, -2])])
def test_tensor_scatter(mode: str, starts: list[int]) -> None:
    graph = f'(float[2,A,6,3] x, float[2,A,N,3] u, int64[2] s) => (float[z] y) {{ y = TensorScatter<mode="{mode}">(x, u, s) }}'
    agrees(graph, x=numbers((2, 4, 6, 3), "float"), u=numbers((2, 4, 3, 3), "float", 1), s=np.array(starts))


def test_known_evenly_spaced_indices_are_views() -> None:
    for text in ("int64 {-2}", "int64[1] {1}", "int64[3] {0,2,4}", "int64[3] {-1,-2,-3}"):
        graph = f"(float[N,5] x) => (float[z] y) {{ i = Constant<value = {text}>() g = Gather<axis=1>(x, i) y = Neg(g) }}"
        _, compiled = compile_native(model(graph))
        assert [getattr(step, "label", "") for step in compiled.lowered.steps] == ["Neg"]
        agrees(graph, x=numbers((3, 5), "float"))


def test_a_known_index_beyond_a_size_that_is_told_at_run_time_is_refused() -> None:
    content = model("(float[N] x) => (float y) { i = Constant<value = int64 {3}>() g = Gather(x, i) y = Neg(g) }")
    graph, compiled = compile_native(content)
    assert run_native(graph, compiled, {"x": np.arange(4, dtype=np.float32)})[0] == -3
    with pytest.raises(Exception, match="must agree"):
        run_native(graph, compiled, {"x": np.arange(3, dtype=np.float32)})


BAD = {
    "Gather": ("(float[4,300] x, int64[N] i) => (float[z] y) { y = Gather(x, i) }", (8,), 4),
    "GatherElements": ("(float[4,9] x, int64[N,9] i) => (float[z] y) { y = GatherElements<axis=0>(x, i) }", (50, 9), 4),
    "GatherND": ("(float[4,9] x, int64[N,1] i) => (float[z] y) { y = GatherND(x, i) }", (8, 1), 4),
}


@pytest.mark.parametrize("op", list(BAD))
@pytest.mark.parametrize("bad", [4, -5, 2**62, -(2**63)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_index_is_named_and_nothing_outside_is_read(op: str, bad: int, workers: int) -> None:
    graph_text, shape, size = BAD[op]
    content = model(graph_text)
    graph, compiled = compile_native(content, workers)
    places = indices(shape, size, 0)
    places.reshape(-1)[[3, 5]] = bad, 77
    feeds = {"x": numbers((4, 300 if op == "Gather" else 9), "float"), "i": places}
    with pytest.raises(errors.InvalidArgument, match=f"{op}.*index {bad} is out of range.*of size {size}") as native:
        run_native(graph, compiled, feeds)
    with pytest.raises(errors.InvalidArgument) as reference:
        run_reference(content, feeds)
    assert native.value.message.split(" for ")[0] == reference.value.message.split(" for ")[0]
    places[...] = 0  # the program is fine afterwards
    run_native(graph, compiled, feeds)


def test_a_bad_scatter_writes_nothing_outside() -> None:
    graph, compiled = compile_native(
        model("(float[4] x, int64[N] i, float[N] u) => (float[z] y) { y = ScatterElements(x, i, u) }")
    )
    with pytest.raises(errors.InvalidArgument, match="index 4 is out of range for axis 0 of size 4: expected -4 to 3"):
        run_native(graph, compiled, {"x": np.zeros(4, np.float32), "i": np.array([1, 4]), "u": np.ones(2, np.float32)})


def test_an_index_into_nothing_is_bad() -> None:
    graph, compiled = compile_native(model("(float[N,3] x, int64[M] i) => (float[z] y) { y = Gather(x, i) }"))
    with pytest.raises(errors.InvalidArgument, match="index 0 is out of range for axis 0 of size 0"):
        run_native(graph, compiled, {"x": np.zeros((0, 3), np.float32), "i": np.array([0])})


def test_the_first_bad_step_is_the_one_named() -> None:
    graph, compiled = compile_native(model("(int64[5] x, int64[M] i) => (int64[z] y) { a = Gather(x, i) y = Gather(x, a) }"))
    with pytest.raises(errors.InvalidArgument, match=r"-> a.*index 9"):
        run_native(graph, compiled, {"x": np.arange(5), "i": np.array([1, 9])})


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatters_give_the_same_bits_on_any_number_of_workers(reduction: str) -> None:
    content = model(
        "(float[8,5000] x, int64[300,1] i, float[300,5000] u) => (float[z] y) "
        f'{{ y = ScatterND<reduction="{reduction}">(x, i, u) }}'
    )
    feeds = {"x": numbers((8, 5000), "float"), "i": indices((300, 1), 8, 0), "u": numbers((300, 5000), "float", 1)}
    results = []
    for workers in (1, 2, 4):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, feeds)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


EMPTY_CASES = {
    "gather": "(float[N,5] x, int64[K] i) => (float[N,K] y) { y = Gather <axis=1> (x, i) }",
    "gather of rows": "(float[5,N] x, int64[K] i) => (float[K,N] y) { y = Gather <axis=0> (x, i) }",
    "gather of 32 bits": "(float[N,5] x, int32[K] i) => (float[N,K] y) { y = Gather <axis=1> (x, i) }",
    "positions": "(float[5,N] x, int64[K,1] i) => (float[K,N] y) { y = GatherND (x, i) }",
    "scatter": "(float[5,N] x, int64[K,1] i, float[K,N] u) => (float[5,N] y) { y = ScatterND (x, i, u) }",
}


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("name", EMPTY_CASES)
def test_indices_are_looked_at_natively_where_nothing_is_moved(name: str, at_start: bool) -> None:
    graph, compiled = compile_native(model(EMPTY_CASES[name], 18))
    shape = (5, 0) if "[5,N]" in EMPTY_CASES[name] else (0, 5)
    kind = np.int32 if "int32" in EMPTY_CASES[name] else np.int64

    def feeds(*positions: int) -> dict[str, Array]:
        given = np.array(positions, kind).reshape((-1, 1) if "[K,1]" in EMPTY_CASES[name] else (-1,))
        updates = {"u": np.zeros((len(positions), 0), np.float32)} if "u)" in EMPTY_CASES[name] else {}
        return {"x": np.zeros(shape, np.float32), "i": given, **updates}

    with guarded_memory(at_start=at_start) as guard:
        (found,) = run_native(graph, compiled, guarded_feeds(guard, feeds(4, 0, -5)))
        assert found.size == 0
        for bad in (5, -6, np.iinfo(kind).max, np.iinfo(kind).min):
            with pytest.raises(errors.BadNodeInput, match=f"index {bad} is out of range"):
                run_native(graph, compiled, guarded_feeds(guard, feeds(1, bad)))


def test_known_indices_inside_their_axis_need_no_look() -> None:
    graph = "(float[N,5] x) => (float[N,3] y) { i = Constant <value_ints = [4, 0, -2]> ()\n y = Gather <axis=1> (x, i) }"
    _, compiled = compile_native(model(graph, 18))
    assert not any(isinstance(step, KernelStep) and step.kernel.key.startswith("index-check") for step in compiled.lowered.steps)
    agrees(graph, 18, x=np.zeros((0, 5), np.float32))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.integers(0, 1100),
    st.integers(1, 70),
    st.lists(st.integers(-70, 69), min_size=1, max_size=70),
    st.booleans(),
)
def test_known_columns_of_rows_are_selected(kind: str, rows: int, width: int, asked: list[int], transposed: bool) -> None:
    places = [place % width - width * (place < 0) for place in asked]
    x = numbers((rows, width), kind)
    feed = f"{kind}[{width},N] x" if transposed else f"{kind}[N,{width}] x"
    source = "Transpose(x)" if transposed else "Identity(x)"
    body = f"i = Constant<value_ints={places}>() t = {source} y = Gather<axis=1>(t, i)"
    agrees(f"({feed}) => ({kind}[z,w] y) {{ {body} }}", x=np.ascontiguousarray(x.T) if transposed else x)


def columns_model() -> bytes:
    return model("(float[N,12] x) => (float[N,4] y) { i = Constant<value_ints=[11, 0, 5, -2]>() y = Gather<axis=1>(x, i) }", 24)


def test_columns_of_short_rows_are_put_in_order_in_registers() -> None:
    (step,) = [step for step in compile_native(columns_model())[1].lowered.steps if isinstance(step, KernelStep)]
    assert type(step.kernel).__name__ == "ColumnsKernel"


@pytest.mark.parametrize("at_start", [False, True])
def test_selecting_columns_reads_and_writes_nothing_outside(at_start: bool) -> None:
    graph, compiled = compile_native(columns_model())
    with guarded_memory(at_start=at_start) as guard:
        for rows in (1, 3, 512, 513):
            x = numbers((rows, 12), "float")
            (found,) = run_native(graph, compiled, guarded_feeds(guard, {"x": x}))
            assert np.array_equal(found, x[:, [11, 0, 5, -2]], equal_nan=True)
