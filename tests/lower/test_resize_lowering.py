"""Resize against the NumPy meaning of the operator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx.kernel.sampling.nearest import NearestKernel
from sardonyx.lower.sampling import resize, resize_tables
from sardonyx.ops.sampling import resize as meaning
from sardonyx.program.steps import Storage
from sardonyx.runtime.native_core import SizeConflict

COORDINATES = (
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn"
)  # fmt: skip
TYPES = {"float": np.float32, "double": np.float64, "float16": np.float16, "uint8": np.uint8, "int8": np.int8}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(("nearest", "linear", "cubic")),
    st.sampled_from(COORDINATES),
    st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    st.tuples(st.integers(1, 19), st.integers(1, 19)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(list(TYPES)),
    st.booleans(),
)
def test_resize_to_sizes(
    mode: str, coordinates: str, nearest: str, shape: tuple[int, int], sizes: tuple[int, int], kind: str, symbolic: bool
) -> None:
    x = np.random.default_rng(0).integers(0, 200, (2, 3, *shape)).astype(TYPES[kind])
    attributes = f'mode="{mode}", coordinate_transformation_mode="{coordinates}", nearest_mode="{nearest}", axes=[2,3]'
    lead = "N,C" if symbolic else "2,3"
    graph = f"""({kind}[{lead},{shape[0]},{shape[1]}] x) => ({kind}[a] y) {{
        s = Constant<value_ints=[{sizes[0]},{sizes[1]}]>()
        y = Resize<{attributes}>(x, , , s)
    }}"""
    assert_native_agrees(model(graph), {"x": x}, rtol=1e-3 if kind == "float16" else 1e-5, atol=1e-4)


@pytest.mark.parametrize(("coordinates", "nearest"), [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")])
@pytest.mark.parametrize("kind", ["float", "uint8"])
def test_enlarging_by_whole_factors_works_for_any_size(coordinates: str, nearest: str, kind: str) -> None:
    attributes = f'mode="nearest", coordinate_transformation_mode="{coordinates}", nearest_mode="{nearest}"'
    graph = f"""({kind}[N,C,H,W] x) => ({kind}[a] y) {{
        s = Constant<value_floats=[1.0,1.0,2.0,3.0]>()
        y = Resize<{attributes}>(x, , s)
    }}"""
    _, compiled = compile_native(model(graph))
    assert len(compiled.lowered.steps) == 1
    for shape in ((1, 2, 5, 33), (2, 1, 1, 1), (1, 0, 3, 3)):
        x = np.arange(np.prod(shape)).reshape(shape).astype(TYPES[kind])
        assert_native_agrees(model(graph), {"x": x}, rtol=0, atol=0)


def test_scales_that_are_no_whole_numbers_and_a_shrinking_antialias() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 12)).astype(np.float32)
    for attributes in (
        'mode="linear"',
        'mode="cubic", exclude_outside=1',
        'mode="linear", antialias=1',
        'mode="cubic", antialias=1',
    ):
        graph = f"""(float[1,2,9,12] x) => (float[a] y) {{
            s = Constant<value_floats=[1.0,1.0,0.6,1.7]>()
            y = Resize<{attributes}>(x, , s)
        }}"""
        assert_native_agrees(model(graph), {"x": x}, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(("not_larger", "not_smaller")),
    st.sampled_from(("nearest", "linear")),
    st.tuples(st.integers(1, 19), st.integers(1, 19)),
    st.tuples(st.integers(1, 19), st.integers(1, 19)),
)
def test_sizes_that_keep_the_aspect_ratio_have_one_factor(
    policy: str, mode: str, shape: tuple[int, int], sizes: tuple[int, int]
) -> None:
    """[2, 4] to at least [1, 3] is [2, 3] by 0.75 on both axes: the first keeps its size, but that factor is not 1."""
    x = np.random.default_rng(0).standard_normal((1, 2, *shape)).astype(np.float32)
    graph = f"""(float[1,2,{shape[0]},{shape[1]}] x) => (float[a] y) {{
        s = Constant<value_ints=[{sizes[0]},{sizes[1]}]>()
        y = Resize<mode="{mode}", axes=[2,3], keep_aspect_ratio_policy="{policy}">(x, , , s)
    }}"""
    assert_native_agrees(model(graph), {"x": x}, rtol=1e-5, atol=1e-4, native=False)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_aspect_ratio_can_be_kept(policy: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 6, 8)).astype(np.float32)
    graph = f"""(float[1,1,6,8] x) => (float[a] y) {{
        s = Constant<value_ints=[13,12]>()
        y = Resize<mode="linear", axes=[2,3], keep_aspect_ratio_policy="{policy}">(x, , , s)
    }}"""
    assert_native_agrees(model(graph), {"x": x}, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    scales = "Constant<value = float[4] {1, 1, 2, 2.5}>()"
    graph = f'(float[1,2,3,4] x) => (float[a] y) {{ s = {scales} y = Upsample<mode="{mode}">(x, s) }}'
    assert_native_agrees(model(graph, 9), {"x": x}, atol=1e-5)


def test_infinities_next_door_take_no_part() -> None:
    x = np.array([[[[1.0, np.inf, 2.0, 3.0]]]], np.float32)
    graph = """(float[1,1,1,4] x) => (float[a] y) {
        s = Constant<value_floats=[1.0,1.0,1.0,2.0]>()
        y = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(x, , s)
    }"""
    assert_native_agrees(model(graph), {"x": x})


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(("nearest", "linear", "cubic")),
    st.sampled_from(COORDINATES),
    st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    st.tuples(st.integers(1, 19), st.integers(1, 19)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(["float", "double", "float16"]),
    st.integers(0, 1),
)
def test_resize_of_any_size_to_the_size_of_something_else(
    mode: str, coordinates: str, nearest: str, shape: tuple[int, int], sizes: tuple[int, int], kind: str, exclude: int
) -> None:
    x = np.random.default_rng(0).integers(0, 200, (2, 3, *shape)).astype(TYPES[kind])
    attributes = f'mode="{mode}", coordinate_transformation_mode="{coordinates}", nearest_mode="{nearest}", axes=[2,3]'
    if mode == "cubic":
        attributes += f", exclude_outside={exclude}"
    graph = f"""({kind}[N,C,H,W] x, {kind}[A,B] like) => ({kind}[a] y) {{
        s = Shape(like) y = Resize<{attributes}>(x, , , s)
    }}"""
    feeds = {"x": guarded(x), "like": np.zeros(sizes, TYPES[kind])}
    assert_native_agrees(model(graph), feeds, rtol=1e-3 if kind == "float16" else 1e-5, atol=1e-4)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(("nearest", "linear", "cubic")),
    st.sampled_from(COORDINATES),
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.tuples(st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 3.0]), st.sampled_from([0.5, 1.0, 2.0, 2.25])),
    st.sampled_from(["float", "uint8", "int8"]),
)
def test_resize_of_any_size_by_factors(
    mode: str, coordinates: str, shape: tuple[int, int], factors: tuple[float, float], kind: str
) -> None:
    integers = kind != "float" and mode != "nearest"
    if integers:  # one axis: with two the order of the additions would not be known
        factors = (1.0, factors[1])
    x = np.random.default_rng(0).integers(-100, 100, (1, 2, *shape)).astype(TYPES[kind])
    attributes = f'mode="{mode}", coordinate_transformation_mode="{coordinates}"'
    height = shape[0] if integers else "H"
    graph = f"""({kind}[N,C,{height},W] x) => ({kind}[a] y) {{
        s = Constant<value_floats=[1.0,1.0,{factors[0]},{factors[1]}]>() y = Resize<{attributes}>(x, , s)
    }}"""
    if all(int(size * factor) for size, factor in zip(shape, factors)):
        native = not (integers and coordinates == "tf_half_pixel_for_nn")  # this one moves the other axes, too
        assert_native_agrees(model(graph), {"x": guarded(x)}, rtol=1e-5, atol=1e-4, native=native)


def test_an_image_without_pixels_is_left_to_numpy() -> None:
    graph, compiled = compile_native(
        model('(float[N,H] x) => (float[a] y) { s = Constant<value_floats=[1.0,1.5]>() y = Resize<mode="linear">(x, , s) }')
    )
    assert not host_nodes(compiled)
    with pytest.raises(SizeConflict):
        run_native(graph, compiled, {"x": np.zeros((2, 0), np.float32)})


WIDE = {
    "nearest": 'mode="nearest", coordinate_transformation_mode="half_pixel"',
    "linear": 'mode="linear", coordinate_transformation_mode="align_corners"',
    "cubic": 'mode="cubic", coordinate_transformation_mode="asymmetric", exclude_outside=1',
    "symmetric": 'mode="linear", coordinate_transformation_mode="half_pixel_symmetric"',
    "aspect": 'mode="linear", axes=[3], keep_aspect_ratio_policy="not_larger"',
    "antialias": 'mode="linear", antialias=1',
}


def wide_resize(how: str, before: int, after: int, lead: str = "") -> str:
    """A Resize of one long axis; `lead` computes `c` from `x` before it."""
    return f"""(float[1,8,1,{before}] x) => (float[1,8,1,{after}] y) {{
        s = Constant<value_ints=[{after if "axes" in WIDE[how] else f"1,8,1,{after}"}]>()
        {lead or "c = Relu(x)"}
        y = Resize<{WIDE[how]}>(c, , , s)
    }}"""


BLOCKED = "w = Constant<value=float[8,8,1,1] {" + ",".join(["0.1"] * 64) + "}>() c = Conv(x, w)"


@pytest.mark.parametrize("how", [how for how in WIDE if how != "antialias"])
@pytest.mark.parametrize("lead", ["", BLOCKED])
@pytest.mark.parametrize("sizes", [(9, 21), (21, 9), (7, 21), (11, 11)])
def test_tables_too_long_to_be_made_ahead_are_made_by_kernels(
    how: str, lead: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (resize, resize_tables):
        monkeypatch.setattr(module, "MOST_MADE_AHEAD", 4)
    x = np.random.default_rng(0).standard_normal((1, 8, 1, sizes[0])).astype(np.float32)
    assert_native_agrees(model(wide_resize(how, *sizes, lead)), {"x": x}, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", WIDE)
@pytest.mark.parametrize("lead", ["", BLOCKED])
@pytest.mark.parametrize("sizes", [(16_000_001, 32_000_000), (32_000_000, 32_000_000), (32_000_000, 64_000_000)])
def test_opening_looks_at_no_point_of_a_long_axis(
    how: str, lead: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = meaning.source_coordinates

    def few(plan: meaning.AxisPlan, mode: str) -> np.ndarray:
        assert plan.out <= resize_tables.MOST_MADE_AHEAD
        return real(plan, mode)

    for module in (resize, resize_tables):
        monkeypatch.setattr(module, "source_coordinates", few)
    _, compiled = compile_native(model(wide_resize(how, *sizes, lead)))
    constants = [buffer for buffer in compiled.plan.buffers if buffer.storage is Storage.CONSTANT]
    assert all(isinstance(each.size, int) and each.size <= 4 * resize_tables.MOST_MADE_AHEAD for each in constants)
    assert bool(host_nodes(compiled)) == (how == "antialias")  # no kernel makes its tables


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.lists(st.integers(1, 12), min_size=3, max_size=3),
    st.sampled_from(([0, 1, 2, 3, 4], [0, 1, 2, 4, 3], [0, 2, 3, 4, 1])),
    st.sampled_from(([0, 1, 2, 3, 4], [0, 2, 3, 4, 1], [4, 3, 2, 1, 0])),
    st.sampled_from(list(TYPES)),
)
def test_the_nearest_elements_of_volumes_however_they_lie(
    shape: list[int], sizes: list[int], before: list[int], after: list[int], kind: str
) -> None:
    x = (
        np.random.default_rng(0)
        .integers(0, 120, [np.r_[2, 2, shape][before.index(axis)] for axis in range(5)])
        .astype(TYPES[kind])
    )
    graph = f"""({kind}[{",".join(map(str, x.shape))}] x) => ({kind}[a] y) {{
        s = Constant<value_ints={sizes}>() t = Transpose<perm={before}>(x)
        r = Resize<mode="nearest", axes=[2,3,4]>(t, , , s) y = Transpose<perm={after}>(r)
    }}"""
    assert_native_agrees(model(graph), {"x": guarded(x)}, rtol=0, atol=0)


def test_two_axes_that_shrink_are_one_step_whose_rows_may_be_long() -> None:
    graph = """(float[N,2,9,9001] x) => (float[a] y) {
        s = Constant<value_ints=[4,8501]>() y = Resize<mode="nearest", axes=[2,3]>(x, , , s)
    }"""
    _, compiled = compile_native(model(graph))
    assert [type(getattr(step, "kernel", None)) for step in compiled.lowered.steps] == [NearestKernel]
    assert_native_agrees(model(graph), {"x": guarded(np.arange(2 * 9 * 9001, dtype=np.float32).reshape(1, 2, 9, 9001))})
