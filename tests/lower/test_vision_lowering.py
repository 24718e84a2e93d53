"""NonMaxSuppression against the NumPy meaning of the operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx import errors
from sardonyx.ir.tensor import Array


def detections(images: int, classes: int, boxes: int, seed: int, special: bool = False) -> tuple[Array, Array]:
    """Boxes that overlap often, and scores of which many are equal."""
    rng = np.random.default_rng(seed)
    places = (rng.random((images, boxes, 4)) * 100).astype(np.float32)
    scores = (rng.integers(0, 100, (images, classes, boxes)) / 100).astype(np.float32)
    if special and places.size and scores.size > 6:
        places[0, 0], scores.reshape(-1)[:6] = np.nan, [np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan]
    return places, scores


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 70)),
    st.integers(0, 1),
    st.integers(-1, 80),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    st.one_of(st.none(), st.sampled_from([0.0, 0.5, 0.95, 2.0])),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
)
def test_boxes_are_chosen_as_numpy_chooses_them(
    sizes: tuple[int, int, int],
    center: int,
    most: int,
    overlap: float,
    least: float | None,
    known: bool,
    special: bool,
    seed: int,
) -> None:
    boxes, scores = detections(*sizes, seed, special)
    numbers = {"m": np.array([most]), "i": np.array([overlap], np.float32)}
    kinds = {"m": "int64", "i": "float", "t": "float"}
    if least is not None:
        numbers["t"] = np.array([least], np.float32)
    constants = " ".join(f"{name} = Constant<value = {kinds[name]}[1] {{{value[0]}}}>()" for name, value in numbers.items())
    inputs = "".join(f", {kinds[name]}[1] {name}" for name in numbers)
    graph = f"""(float[N,B,4] b, float[N,C,B] s{"" if known else inputs}) => (int64[a] y) {{
        {constants if known else ""} y = NonMaxSuppression<center_point_box={center}>(b, s, {", ".join(numbers)})
    }}"""
    feeds = {"b": guarded(boxes), "s": guarded(scores), **({} if known else numbers)}
    assert_native_agrees(model(graph), feeds)


def test_inputs_that_are_left_out() -> None:
    boxes, scores = detections(1, 2, 20, 0)
    assert_native_agrees(
        model("(float[N,B,4] b, float[N,C,B] s) => (int64[a] y) { y = NonMaxSuppression(b, s) }"), {"b": boxes, "s": scores}
    )
    graph = "(float[N,B,4] b, float[N,C,B] s, int64[1] m) => (int64[a] y) { y = NonMaxSuppression(b, s, m) }"
    assert_native_agrees(model(graph), {"b": boxes, "s": scores, "m": np.array([5])})


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("overlap", [-0.1, 1.5, np.nan])
def test_an_overlap_that_cannot_be_is_an_error_that_names_the_node(workers: int, overlap: float) -> None:
    text = "(float[N,B,4] b, float[N,C,B] s, int64[1] m, float[1] i) => (int64[a] y) { y = NonMaxSuppression(b, s, m, i) }"
    graph, compiled = compile_native(model(text), workers)
    assert not host_nodes(compiled)
    boxes, scores = detections(1, 2, 20, 0)
    feeds = {"b": boxes, "s": scores, "m": np.array([5]), "i": np.array([overlap], np.float32)}
    with pytest.raises(errors.InvalidArgument, match=r"NonMaxSuppression.*iou_threshold is not between 0 and 1"):
        run_native(graph, compiled, feeds)


def test_the_same_boxes_on_any_number_of_workers() -> None:
    text = """(float[N,B,4] b, float[N,C,B] s) => (int64[a] y) {
        m = Constant<value = int64[1] {30}>() i = Constant<value = float[1] {0.3}>() y = NonMaxSuppression(b, s, m, i)
    }"""
    boxes, scores = detections(2, 30, 200, 1)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(model(text), workers)
        results.append(run_native(graph, compiled, {"b": boxes, "s": scores})[0].tobytes())
    assert results[0] == results[1] == results[2]


SPREADS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "all alike": lambda rng, count: np.full(count, 0.5),
    "anywhere": lambda rng, count: rng.random(count),
    "near one number": lambda rng, count: 0.9 + rng.random(count) * 1e-6,
    "two groups": lambda rng, count: np.where(rng.random(count) < 0.3, 1e30, -1e-30) * rng.integers(1, 4, count),
    "of every kind": lambda rng, count: rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1e-40, -5.0], count),
    "a few far away": lambda rng, count: np.where(rng.random(count) < 0.005, 1e38, rng.random(count)),
}


@pytest.mark.parametrize("spread", SPREADS)
@settings(max_examples=12, deadline=None)
@given(
    boxes=st.integers(30, 700),
    most=st.sampled_from([1, 20, 1000]),
    least=st.one_of(st.none(), st.sampled_from([0.0, 0.9])),
    seed=st.integers(0, 99),
)
def test_many_boxes_of_any_scores(spread: str, boxes: int, most: int, least: float | None, seed: int) -> None:
    """They are divided by their scores before they are sorted: into one part, into many, with parts of any size."""
    rng = np.random.default_rng(seed)
    places, _ = detections(1, 1, boxes, seed)
    scores = np.stack([SPREADS[spread](rng, boxes) for _ in range(2)])[None].astype(np.float32)
    threshold = "" if least is None else f"t = Constant<value = float[1] {{{least}}}>()"
    graph = f"""(float[1,B,4] b, float[1,2,B] s) => (int64[a] y) {{
        m = Constant<value = int64[1] {{{most}}}>() i = Constant<value = float[1] {{0.4}}>() {threshold}
        y = NonMaxSuppression(b, s, m, i{"" if least is None else ", t"})
    }}"""
    assert_native_agrees(model(graph), {"b": guarded(places), "s": guarded(scores)})
