"""Results whose sizes are fed, or computed from data or in floats: native, with the answers and refusals of the definition."""

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
from native_support import assert_native_agrees, compile_native, host_nodes
from sardonyx.provider_names import REFERENCE_PROVIDER

COORDINATES = (
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn"
)  # fmt: skip
NUMPY = {"float": np.float32, "double": np.float64, "float16": np.float16, "uint8": np.uint8}


def agree(text: str, *runs: dict[str, Any], opset: int = 22, atol: float = 1e-4) -> None:
    """A session in guarded memory, run after run, answers as the definition does, or refuses what it refuses."""
    content = model(text, opset)
    reference = sardonyx.InferenceSession(content, providers=[REFERENCE_PROVIDER])
    for at_start in (False, True):
        with guarded_memory(at_start) as guard:
            session = sardonyx.InferenceSession(content, providers=["CPUExecutionProvider"])
            for feeds in runs:
                assert_run_agrees(session, reference, guard, feeds, rtol=1e-4, atol=atol)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(("nearest", "linear", "cubic")),
    st.sampled_from(COORDINATES),
    st.sampled_from(("round_prefer_floor", "ceil")),
    st.tuples(st.integers(1, 12), st.integers(1, 19)),
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.sampled_from(("float", "double", "float16", "uint8")),
    st.sampled_from(("sizes", "joined", "scales", "joined scales")),
)
def test_resize_by_what_is_fed(
    mode: str, coordinates: str, nearest: str, shape: tuple[int, int], sizes: tuple[int, int], kind: str, fed: str
) -> None:
    x = samples(NUMPY[kind], (2, 3, *shape))
    x = np.where(np.isfinite(x), x, 1).astype(x.dtype)
    attributes = f'mode="{mode}", coordinate_transformation_mode="{coordinates}", nearest_mode="{nearest}"'
    scales = [np.float32(after / before) for before, after in zip(shape, sizes)]
    text, s = {
        "sizes": (f"(%[N,C,H,W] x, int64[4] s) => (%[a] y) {{ y = Resize<{attributes}>(x, , , s) }}", np.array([2, 3, *sizes])),
        "joined": (
            f"(%[N,C,H,W] x, int64[2] s) => (%[a] y) {{ n = Shape<start=0, end=2>(x) t = Concat<axis=0>(n, s)"
            f" y = Resize<{attributes}>(x, , , t) }}",
            np.array(sizes),
        ),
        "scales": (
            f"(%[N,C,H,W] x, float[4] s) => (%[a] y) {{ y = Resize<{attributes}>(x, , s) }}",
            np.array([1, 1, *scales], np.float32),
        ),
        "joined scales": (
            f"(%[N,C,H,W] x, float[2] s) => (%[a] y) {{ o = Constant<value_floats=[1.0, 1.0]>() t = Concat<axis=0>(o, s)"
            f" y = Resize<{attributes}>(x, , t) }}",
            np.array(scales, np.float32),
        ),
    }[fed]
    largest = float(np.abs(x.astype(np.float64)).max())
    agree(text.replace("%", kind), {"x": x, "s": s}, atol=max(1e-4, largest * (2e-3 if kind == "float16" else 1e-5)))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_by_scales_that_are_fed(mode: str) -> None:
    text = f'(float[N,C,H,W] x, float[4] s) => (float[a] y) {{ y = Upsample<mode="{mode}">(x, s) }}'
    for scales in ([1, 1, 2, 3], [1, 1, 1.5, 1], [1, 1, 2.9, 1.01]):
        feeds = {"x": samples(np.float32, (1, 2, 5, 7)), "s": np.array(scales, np.float32)}
        assert_native_agrees(model(text, 9), feeds, atol=1e-5)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 1e-9, 1e30, 3.0])
def test_scales_that_make_no_image_are_refused_as_by_the_definition(scale: float) -> None:
    text = '(float[1,2,H,W] x, float[2] s) => (float[a] y) { y = Resize<mode="linear", axes=[2,3]>(x, , s) }'
    x = np.ones((1, 2, 4, 5), np.float32)
    agree(text, *({"x": x, "s": np.array(each, np.float32)} for each in ([1, scale], [2, 1.5], [scale, scale])))


@pytest.mark.parametrize("size", [0, -1, -(2**63), 2**40, 2**62, 3])
def test_sizes_that_make_no_image_are_refused_as_by_the_definition(size: int) -> None:
    text = """(float[1,2,H,W] x, int64[2] s) => (float[a] y) {
        y = Resize<mode="linear", axes=[2,3]>(x, , , s)
    }"""
    x = np.ones((1, 2, 4, 5), np.float32)
    agree(text, *({"x": x, "s": np.array(each)} for each in ([6, size], [2, 9], [size, size])))


def test_scales_that_no_fraction_has_work_for_any_size() -> None:
    text = "(float[N,2,H,W] x) => (float[a] z) { s = Constant<value_floats=[1.0,1.0,1.7,0.3]>() y = Resize(x, , s) z = Relu(y) }"
    for shape in ((1, 2, 5, 9), (2, 2, 11, 4)):
        assert_native_agrees(model(text), {"x": samples(np.float32, shape)})


def test_channels_stay_known_beside_sizes_that_are_fed() -> None:
    weights = ",".join(["0.1"] * 16 * 16)
    text = f"""(float[N,16,H,W] x, int64[2] hw) => (float[a] z) {{
        w = Constant<value=float[16,16,1,1] {{{weights}}}>()
        c = Conv(x, w) n = Shape<start=0, end=2>(c) s = Concat<axis=0>(n, hw)
        y = Resize<mode="linear">(c, , , s) z = Conv(y, w)
    }}"""
    x = np.random.default_rng(0).standard_normal((1, 16, 6, 7)).astype(np.float32)
    agree(text, *({"x": x, "hw": np.array(hw)} for hw in ([12, 14], [5, 3], [12, 14])))


@settings(max_examples=40, deadline=None)
@given(st.tuples(st.integers(0, 3), st.integers(1, 5)), st.tuples(st.integers(0, 4), st.integers(0, 6)), st.booleans())
def test_expand_and_tile_by_what_is_fed(shape: tuple[int, int], told: tuple[int, int], symbolic: bool) -> None:
    x, s = samples(np.float32, shape), np.array(told)
    sides = "A,B" if symbolic else f"{shape[0]},{shape[1]}"
    agree(f"(float[{sides}] x, int64[2] s) => (float[a] y) {{ r = Tile(x, s) y = Neg(r) }}", {"x": x, "s": s})
    agree(f"(float[{sides}] x, int64[2] s) => (float[a] y) {{ r = Expand(x, s) y = Neg(r) }}", {"x": x, "s": s})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-1, 5), min_size=0, max_size=3))
def test_a_constant_of_a_shape_that_is_fed(shape: list[int]) -> None:
    text = f"(int64[{len(shape)}] s) => (float[a] y) {{ r = ConstantOfShape<value=float[1] {{2.5}}>(s) y = Neg(r) }}"
    agree(text, {"s": np.array(shape, np.int64)}, {"s": np.ones(len(shape), np.int64)})


def test_nothing_of_it_needs_the_host() -> None:
    for text in (
        "(float[N,2] x, int64[2] s) => (float[a] y) { y = Resize(x, , , s) }",
        "(float[N,2] x, float[2] s) => (float[a] y) { y = Resize(x, , s) }",
        "(int64[2] s) => (float[a] z) { y = ConstantOfShape(s) z = Neg(y) }",
    ):
        _, compiled = compile_native(model(text))
        assert not host_nodes(compiled)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(0, 6), st.integers(1, 5)),
    st.lists(st.tuples(st.integers(-8, 8), st.one_of(st.integers(-8, 8), st.just(2**63 - 1))), min_size=1, max_size=3),
    st.sampled_from((0, 1, -1)),
    st.booleans(),
)
def test_slices_between_positions_that_are_fed(
    shape: tuple[int, int], bounds: list[tuple[int, int]], axis: int, symbolic: bool
) -> None:
    sides = "A,B" if symbolic else f"{shape[0]},{shape[1]}"
    text = f"""(float[{sides}] x, int64[1] s, int64[1] e) => (float[a] y, float[b] z) {{
        t = Constant<value_ints=[{axis}]>() r = Slice(x, s, e, t) y = Neg(r)
        zero = Constant<value_ints=[0]>() most = Constant<value_ints=[9223372036854775807]>() both = Constant<value_ints=[0,1]>()
        first = Concat<axis=0>(zero, s) last = Concat<axis=0>(most, e) v = Slice(x, first, last, both) z = Neg(v)
    }}"""
    agree(text, *({"x": samples(np.float32, shape), "s": np.array([s]), "e": np.array([e])} for s, e in bounds))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 6), st.integers(-1, 6)), min_size=1, max_size=3), st.integers(0, 8))
def test_parts_of_sizes_that_are_fed(sizes: list[tuple[int, int]], length: int) -> None:
    text = """(float[2,N] x, int64[2] s) => (float[a] y, float[b] z) {
        a, b = Split<axis=1>(x, s) y = Neg(a) z = Exp(b)
    }"""
    agree(text, *({"x": samples(np.float32, (2, length)), "s": np.array(each)} for each in (*sizes, (length, 0))))


@pytest.mark.parametrize("rank", ["", "1"])
def test_one_hot_rows_of_a_depth_that_is_fed(rank: str) -> None:
    text = f"""(int64[N] i, int64[{rank}] d) => (float[a] z) {{
        v = Constant<value_floats=[0.5,2.0]>() y = OneHot(i, d, v) z = Neg(y)
    }}"""
    runs = [{"i": np.array([0, 3, -1, 9]), "d": np.full((1,) * len(rank), depth)} for depth in (4, 4, 4, 1, 0, -1, 4)]
    agree(text, *runs)


def test_a_range_whose_steps_are_a_size() -> None:
    text = """(float[A,B] x) => (int64[a] y) {
        s = Shape(x) i = Constant<value_int=0>() j = Constant<value_int=1>() b = Gather(s, j) n = Size(x)
        r = Range(i, n, b) y = Neg(r)
    }"""
    _, compiled = compile_native(model(text))
    assert not host_nodes(compiled)
    agree(text, *({"x": np.zeros(shape, np.float32)} for shape in ((4, 6), (1, 1), (3, 2), (2, 0), (0, 3), (3, 2))))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(-1, 9), min_size=2, max_size=3),
    st.integers(0, 1),
    st.sampled_from(("float", "double", "float16")),
    st.integers(0, 3),
)
def test_affine_grids_of_sizes_that_are_fed(spatial: list[int], corners: int, kind: str, batch: int) -> None:
    rank = len(spatial)
    sides = f"({kind}[N,{rank},{rank + 1}] t, int64[{rank + 2}] s) => ({kind}[a] y)"
    text = f"{sides} {{ y = AffineGrid<align_corners={corners}>(t, s) }}"
    t = np.random.default_rng(0).standard_normal((batch, rank, rank + 1)).astype(NUMPY[kind])
    runs = [{"t": t, "s": np.array([batch, 3, *sizes])} for sizes in (spatial, [4] * rank, spatial)]
    agree(text, *runs, atol=2e-2 if kind == "float16" else 1e-5)
