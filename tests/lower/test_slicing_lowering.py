"""Slices and pads against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_text import model
from native_support import assert_native_agrees, compile_native

TYPES = {"float": np.float32, "uint8": np.uint8, "float16": np.float16, "int64": np.int64, "bool": np.bool_}


def data(shape: tuple[int, ...], kind: str) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)) % 97).astype(TYPES[kind]).reshape(shape)


def constant(numbers: list[int]) -> str:
    return f"Constant<value = int64[{len(numbers)}] {{{','.join(map(str, numbers))}}}>()"


BOUNDS = st.sampled_from([-1000, -9, -3, -1, 0, 1, 2, 5, 8, 1000, 2**31 - 1, 2**63 - 1, -(2**63)])


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.lists(st.tuples(BOUNDS, BOUNDS, st.sampled_from([1, 2, 3, -1, -2])), min_size=1, max_size=3),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
)
def test_slices_of_known_sizes(kind: str, cuts: list[tuple[int, int, int]], shape: list[int]) -> None:
    starts, ends, steps = (list(part) for part in zip(*cuts))
    graph = f"""({kind}[{",".join(map(str, shape))}] x) => ({kind}[a] y) {{
        s = {constant(starts)}  e = {constant(ends)}  d = {constant(list(range(len(cuts))))}  t = {constant(steps)}
        y = Slice(x, s, e, d, t)
    }}"""
    assert_native_agrees(model(graph), {"x": data(tuple(shape), kind)}, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(1, 2**63 - 1, 1), (-3, 2**63 - 1, 1), (0, -1, 1), (2, 7, 2), (-1, -(2**63), -1), (-1, -(2**31), -2)],
)
@pytest.mark.parametrize("size", [0, 1, 2, 6, 9])
def test_slices_of_sizes_told_at_run_time(start: int, end: int, step: int, size: int) -> None:
    graph = f"""(float[N,3] x) => (float[a] y) {{
        s = {constant([start])}  e = {constant([end])}  d = {constant([0])}  t = {constant([step])}
        v = Slice(x, s, e, d, t)
        y = Neg(v)
    }}"""
    _, compiled = compile_native(model(graph))
    assert [getattr(one, "label", "host") for one in compiled.lowered.steps] == ["Neg"]
    assert_native_agrees(model(graph), {"x": data((size, 3), "float")}, rtol=0, atol=0)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 7, 8, 9, 20])
def test_slices_whose_bounds_may_count_from_the_end(size: int) -> None:
    # A table of positions of which as many are taken as the input has: more than that many count from the end.
    graph = f"""(float[N] x, float[4,3] table) => (float[a] y) {{
        all = Shape(x)  four = {constant([4])}  far = {constant([2**63 - 1])}  d = {constant([0])}
        start = Sub(four, all)
        v = Slice(table, start, far, d)
        y = Neg(v)
    }}"""
    _, compiled = compile_native(model(graph))
    assert [getattr(one, "label", "host") for one in compiled.lowered.steps] == ["Neg"]
    assert_native_agrees(model(graph), {"x": data((size,), "float"), "table": data((4, 3), "float")}, rtol=0, atol=0)


def test_old_slices_and_a_backward_view_that_is_reshaped() -> None:
    x = data((4, 6), "float")
    assert_native_agrees(model("(float[4,6] x) => (float[a] y) { y = Slice<starts=[1], ends=[5], axes=[1]>(x) }", 9), {"x": x})
    graph = f"""(float[4,6] x) => (float[a] y) {{
        s = {constant([-1])}  e = {constant([-1000])}  d = {constant([1])}  t = {constant([-1])}
        v = Slice(x, s, e, d, t)  shape = {constant([3, 8])}
        y = Reshape(v, shape)
    }}"""
    assert_native_agrees(model(graph), {"x": x})


PAD = st.integers(-2, 12)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(("constant", "reflect", "edge", "wrap")),
    st.sampled_from(list(TYPES)),
    st.lists(st.tuples(st.integers(5, 9), PAD, PAD), min_size=1, max_size=3),
    st.booleans(),
)
def test_pads(mode: str, kind: str, axes: list[tuple[int, int, int]], symbolic: bool) -> None:
    sizes = ",".join(f"D{axis}" if symbolic else str(size) for axis, (size, _, _) in enumerate(axes))
    pads = [begin for _, begin, _ in axes] + [end for _, _, end in axes]
    graph = f"""({kind}[{sizes}] x) => ({kind}[a] y) {{ p = {constant(pads)} y = Pad<mode="{mode}">(x, p) }}"""
    assert_native_agrees(model(graph), {"x": data(tuple(size for size, _, _ in axes), kind)}, rtol=0, atol=0)


def test_a_pad_with_a_value_that_is_fed_and_some_axes() -> None:
    graph = f"(float[N,4,5] x, float v) => (float[a] y) {{ p = {constant([1, 2])} d = {constant([-1])} y = Pad(x, p, v, d) }}"
    assert_native_agrees(model(graph), {"x": data((2, 4, 5), "float"), "v": np.array(7.5, np.float32)})


def test_old_pads() -> None:
    graph = "(float[2,3] x) => (float[a] y) { y = Pad<pads=[0,1,2,0], value=1.5>(x) }"
    assert_native_agrees(model(graph, 10), {"x": data((2, 3), "float")})


def test_center_crop_pad() -> None:
    for shape in ((3, 8, 5), (9, 2, 6)):
        graph = f"(float[A,B,5] x) => (float[a] y) {{ s = {constant([6, 5])} y = CenterCropPad<axes=[0,1]>(x, s) }}"
        assert_native_agrees(model(graph), {"x": data((*shape[:2], 5), "float")})
