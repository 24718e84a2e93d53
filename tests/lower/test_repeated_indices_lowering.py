"""GatherElements and ScatterElements whose indices are repeated along axes (Expand): rows are moved at once."""

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
from sardonyx.kernel.indexing.indexing import IndexKernel
from sardonyx.program.steps import KernelStep

KINDS = {"float": np.float32, "double": np.float64, "float16": np.float16, "int8": np.int8, "int64": np.int64, "bool": np.bool_}
REDUCTIONS = ("none", "add", "mul", "min", "max")


def graph_text(kind: str, rank: int, axis: int, reduction: str | None) -> str:
    """Indices `i` take the shape of `u`, whose elements are the updates of a scatter."""
    x, i, u = (",".join(f"{name}{number}" for number in range(rank)) for name in "XIU")
    inputs = f"{kind}[{x}] x, int64[{i}] i, {kind}[{u}] u"
    read = f"GatherElements<axis={axis}>(x, e)"
    written = f'ScatterElements<axis={axis}, reduction="{reduction}">(x, e, u)'
    return f"({inputs}) => ({kind}[z] y) {{ s = Shape(u) e = Expand(i, s) y = {written if reduction else read} }}"


def numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    return rng.integers(-3, 4, shape).astype(KINDS[kind])  # sums and products of few of them are exact


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(list(KINDS)),
    st.lists(st.sampled_from((1, 2, 3, 4, 5, 9, 33)), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.integers(0, 2),
    st.sampled_from((None, *REDUCTIONS)),
)
def test_repeated_indices_move_what_all_of_them_would(
    kind: str, shape: list[int], random: Any, axis: int, reduction: str | None
) -> None:
    axis %= len(shape)
    rng = np.random.default_rng(random.randint(0, 99))
    asked = tuple(random.randint(0, 12 if place == axis else size) for place, size in enumerate(shape))
    own = tuple(1 if random.random() < 0.6 else size for size in asked)
    places = rng.integers(-shape[axis], shape[axis], own)
    feeds = {"x": numbers(rng, tuple(shape), kind), "i": places, "u": numbers(rng, asked, kind)}
    assert_native_agrees(model(graph_text(kind, len(shape), axis, reduction), 18), feeds, rtol=0, atol=0)


def index_steps(content: bytes) -> list[KernelStep]:
    steps = compile_native(content)[1].lowered.steps
    return [step for step in steps if isinstance(step, KernelStep) and isinstance(step.kernel, IndexKernel)]


@pytest.mark.parametrize("width", [2, 3, 4, 64])
@pytest.mark.parametrize("reduction", [None, "none", "add"])
def test_rows_are_moved_at_once(width: int, reduction: str | None) -> None:
    shape = f"shape = Constant<value_ints=[2, 7, {width}]>() axes = Constant<value_ints=[2]>()"
    body = f"{shape} t = Unsqueeze(i, axes) e = Expand(t, shape)"
    last = f'ScatterElements<axis=1, reduction="{reduction}">(x, e, u)' if reduction else "GatherElements<axis=1>(x, e)"
    inputs = f"float[2,9,{width}] x, int64[2,7] i, float[2,7,{width}] u"
    content = model(f"({inputs}) => (float[z] y) {{ {body} y = {last} }}", 18)
    (step,) = index_steps(content)
    assert isinstance(step.kernel, IndexKernel)
    assert step.kernel.rows == (width > 3 or reduction is not None)  # few elements are gathered one by one
    assert not any(buffer.label == "e" for each in compile_native(content)[1].lowered.steps for buffer in each.writes)
    rng = np.random.default_rng(0)
    feeds = {
        "x": numbers(rng, (2, 9, width), "float"),
        "i": rng.integers(-9, 9, (2, 7)),
        "u": numbers(rng, (2, 7, width), "float"),
    }
    assert_native_agrees(content, feeds, rtol=0, atol=0)


def test_of_repeated_indices_that_meet_the_last_one_stays() -> None:
    graph, compiled = compile_native(model(graph_text("float", 2, 0, "none"), 18))
    feeds = {
        "x": np.zeros((2, 5), np.float32),
        "i": np.array([[1], [-1], [1]]),
        "u": np.arange(15, dtype=np.float32).reshape(3, 5),
    }
    (found,) = run_native(graph, compiled, feeds)
    np.testing.assert_array_equal(found, [[0, 0, 0, 0, 0], [10, 11, 12, 13, 14]])


@pytest.mark.parametrize("reduction", [None, "none", "max"])
@pytest.mark.parametrize("bad", [6, -7, 2**62, -(2**63)])
@pytest.mark.parametrize("at_start", [False, True])
def test_a_bad_repeated_index_is_named_and_nothing_outside_is_touched(reduction: str | None, bad: int, at_start: bool) -> None:
    content = model(graph_text("float", 2, 0, reduction), 18)
    graph, compiled = compile_native(content)
    rng = np.random.default_rng(1)
    places = rng.integers(-6, 6, (9, 1))
    feeds = {"x": numbers(rng, (6, 40), "float"), "i": places, "u": numbers(rng, (9, 40), "float")}
    with guarded_memory(at_start=at_start) as guard:
        run_native(graph, compiled, guarded_feeds(guard, feeds))
        places[[3, 5], 0] = bad, 77
        with pytest.raises(errors.InvalidArgument, match=f"index {bad} is out of range for axis 0 of size 6") as native:
            run_native(graph, compiled, guarded_feeds(guard, feeds))
    with pytest.raises(errors.InvalidArgument) as reference:
        run_reference(content, feeds)
    assert native.value.message.split(" for ")[0] == reference.value.message.split(" for ")[0]


@pytest.mark.parametrize("reduction", [None, "none"])
def test_an_index_that_is_repeated_no_time_is_not_looked_at(reduction: str | None) -> None:
    """Its elements are those of the repeated tensor, which has none."""
    content = model(graph_text("float", 2, 0, reduction), 18)
    feeds = {"x": np.zeros((6, 4), np.float32), "i": np.full((9, 1), 77), "u": np.zeros((9, 0), np.float32)}
    assert_native_agrees(content, feeds)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_repeated_indices_give_the_same_bits_on_any_number_of_workers(reduction: str) -> None:
    content = model(graph_text("float", 3, 1, reduction), 18)
    rng = np.random.default_rng(2)
    x, u = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8, 5000), (3, 90, 5000)))
    feeds = {"x": x, "i": rng.integers(-8, 8, (3, 90, 1)), "u": u}
    results = [run_native(*compile_native(content, workers), feeds)[0] for workers in (1, 2, 4)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
