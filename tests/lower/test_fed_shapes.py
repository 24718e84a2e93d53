"""Shapes, pads, lengths of windows and axes that are fed: native, with the answers and refusals of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from guarded_session import assert_run_agrees, guarded_memory
from lowering_case import samples
from model_text import model
from native_support import host_nodes
from sardonyx.provider_names import REFERENCE_PROVIDER
from sardonyx.runtime.specialisations import MOST_SPECIALISATIONS

WINDOWS = ("HannWindow", "HammingWindow", "BlackmanWindow")


def agree(text: str, *runs: dict[str, Any], opset: int = 22, atol: float = 0) -> sardonyx.InferenceSession:
    """A session in guarded memory, run after run, answers as the definition does, or refuses what it refuses."""
    content = model(text, opset)
    reference = sardonyx.InferenceSession(content, providers=[REFERENCE_PROVIDER])
    for at_start in (False, True):
        with guarded_memory(at_start) as guard:
            session = sardonyx.InferenceSession(content, providers=["CPUExecutionProvider"])
            for feeds in (*runs, *runs):
                assert_run_agrees(session, reference, guard, feeds, rtol=2e-6, atol=atol)
    return session


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(-2, 6), min_size=2, max_size=2), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_any_shape_that_is_fed(shape: list[int], given_numbers: list[list[int]], symbolic: bool, zero: bool) -> None:
    x = samples(np.float32, tuple(shape))
    sides = ",".join(f"n{axis}" if symbolic else str(size) for axis, size in enumerate(shape))
    text = f"(float[{sides}] x, int64[2] s) => (float[a,b] y) {{ r = Reshape<allowzero={int(zero)}>(x, s) y = Neg(r) }}"
    agree(text, *({"x": x, "s": np.array(each, np.int64)} for each in given_numbers))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_shapes_that_fit(count: int) -> None:
    x = samples(np.float32, (6, 4))
    shapes = {1: ([24], [-1], [0], [7]), 2: ([4, 6], [-1, 3], [0, -1], [0, 0], [3, -1], [-1, -1], [5, -1]), 4: ([1, 2, 3, 4],
              [0, 2, -1, 1], [0, 4, 1, 0], [2, 0, -1, 1])}[count]  # fmt: skip
    text = f"(float[A,B] x, int64[{count}] s) => (float y) {{ y = Reshape(x, s) }}"
    agree(text, *({"x": x, "s": np.array(each, np.int64)} for each in shapes))


def test_channels_stay_known_in_a_shape_that_is_computed() -> None:
    weights = ",".join(["0.1"] * 16 * 16)
    text = f"""(float[N,16,H] x, int64[1] n) => (float[a,b,c,d] y) {{
        w = Constant<value=float[16,16,1,1] {{{weights}}}>()
        known = Constant<value_ints=[16]>() rest = Constant<value_ints=[-1]>() zero = Constant<value_ints=[0]>()
        s = Concat<axis=0>(zero, known, n, rest) r = Reshape(x, s) y = Conv(r, w)
    }}"""
    runs = [{"x": samples(np.float32, (2, 16, 12)), "n": np.array([n])} for n in (3, 4, 1, 5, 0, -1)]
    for feeds in runs:
        feeds["x"] = np.where(np.isfinite(feeds["x"]), feeds["x"], 1)
    agree(text, *runs, atol=1e-4 * max(float(np.abs(runs[0]["x"]).max()), 1))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(("constant", "reflect", "edge", "wrap")),
    st.tuples(st.integers(0, 4), st.integers(1, 5)),
    st.lists(st.lists(st.integers(-4, 5), min_size=4, max_size=4), min_size=1, max_size=3),
    st.booleans(),
)
def test_any_pads_that_are_fed(mode: str, shape: tuple[int, int], given_numbers: list[list[int]], symbolic: bool) -> None:
    sides = "A,B" if symbolic else f"{shape[0]},{shape[1]}"
    text = f'(float[{sides}] x, int64[4] p, float v) => (float[a,b] y) {{ r = Pad<mode="{mode}">(x, p, v) y = Neg(r) }}'
    v = np.array(7, np.float32)
    agree(text, *({"x": samples(np.float32, shape), "p": np.array(each, np.int64), "v": v} for each in given_numbers))


def test_pads_of_named_axes_and_pads_that_are_computed() -> None:
    text = """(float[A,B] x, int64[1] n) => (float[a,b] y) {
        axes = Constant<value_ints=[-1]>() two = Constant<value_ints=[2]>()
        w = Mul(n, two) p = Concat<axis=0>(n, w) zero = Constant<value_float=0.0>() y = Pad(x, p, zero, axes)
    }"""
    agree(text, *({"x": samples(np.float32, (2, 3)), "n": np.array([n])} for n in (0, 1, 5, -1, -2)))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(WINDOWS),
    st.lists(st.integers(-2, 70), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(("float", "double")),
    st.sampled_from(("int32", "int64")),
    st.sampled_from(("", "[1]")),
)
def test_windows_of_a_length_that_is_fed(
    window: str, lengths: list[int], periodic: bool, kind: str, length: str, shape: str
) -> None:
    kinds = {"float": 1, "double": 11}
    attributes = f"output_datatype={kinds[kind]}, periodic={int(periodic)}"
    text = f"({length}{shape} n) => ({kind}[a] y) {{ y = {window}<{attributes}>(n) }}"
    given = [np.full((1,) if shape else (), each, length) for each in lengths]
    agree(text, *({"n": each} for each in given), atol=3e-7 if kind == "float" else 1e-15)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_ends_of_long_windows_keep_their_digits(window: str) -> None:
    text = f"(int64 n) => (float[a] y) {{ y = {window}(n) }}"
    content, feeds = model(text, 22), {"n": np.array(100_003)}
    found = sardonyx.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    wanted = sardonyx.InferenceSession(content, providers=[REFERENCE_PROVIDER]).run(None, feeds)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-16)


def test_nothing_of_it_needs_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")  # a saved program has no steps to look at
    for text in (
        "(float[A,B] x, int64[3] s) => (float[a,b,c] y) { y = Reshape(x, s) }",
        "(float[A,B] x, int64[4] p) => (float[a,b] y) { y = Pad(x, p) }",
        "(int64 n) => (float[a] y) { y = HannWindow(n) }",
    ):
        session: Any = sardonyx.InferenceSession(model(text), providers=["CPUExecutionProvider"])
        assert host_nodes(session._opened.program.main) == []


AXES = {
    "(float[A,B,C] x, int64 k) => (float[A,B,C] y) { y = CumSum(x, k) }": (0, 1, 2, -1, 3, 1),
    "(float[A,B,C] x, int64[1] k) => (float y) { y = ReduceSum<keepdims=0>(x, k) }": (0, 1, 2, -1, 3, 1),
    "(float[A,B,C] x, int64[2] k) => (float y) { y = ReduceMax(x, k) }": ([0, 1], [1, 2], [-1, 0], [2, 2], [0, 4], [1, 2]),
    "(float[A,B,C] x, int64[2] k) => (float y) { y = Unsqueeze(x, k) }": ([0, 1], [1, 3], [-1, 0], [2, 2], [4, 3], [1, 3]),
    """(float[A,B,C] x, int64[1] s, int64[1] k) => (float y) {
        e = Constant<value_ints=[3]>() y = Slice(x, s, e, k) }""": (0, 1, 2, -1, 3, 1),
}


@pytest.mark.parametrize("text", AXES)
def test_axes_that_are_fed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    shape = next((count for count in (1, 2) if f"int64[{count}] k" in text), ())
    runs = []
    for axes in AXES[text]:
        feeds: dict[str, Any] = {"x": samples(np.float32, (2, 3, 4)), "k": np.array(axes, np.int64).reshape(shape)}
        runs.append({**feeds, "s": np.array([1])} if "int64[1] s" in text else feeds)
    session = agree(text, *runs, atol=1e-5)
    program: Any = session._opened.program
    assert program.deciding_inputs == ("k",)
    assert len(program._compiled_specialisations) == MOST_SPECIALISATIONS
