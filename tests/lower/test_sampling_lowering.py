"""GridSample and AffineGrid against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx import errors
from sardonyx.runtime.native_core import SizeConflict

FLOATS: dict[str, Any] = {"float": np.float32, "double": np.float64, "float16": np.float16}
OTHERS: dict[str, Any] = {"uint8": np.uint8, "int64": np.int64, "bool": np.bool_}
NAMES = ["D", "H", "W"]


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.integers(0, 1),
    st.sampled_from([*FLOATS, *OTHERS]),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.integers(0, 4), st.integers(1, 5), st.integers(1, 40)),
    st.booleans(),
    st.sampled_from(["C", "3", "19", "64"]),
)
def test_grids_agree(
    rank: int,
    mode: str,
    padding: str,
    corners: int,
    kind: str,
    image: tuple[int, ...],
    points: tuple[int, ...],
    special: bool,
    channels: str,
) -> None:
    if mode != "nearest" and kind in OTHERS:
        kind = "float"
    grid_kind = kind if kind in FLOATS else "float"
    rng = np.random.default_rng(0)
    count = 3 if channels == "C" else int(channels)
    x = (rng.standard_normal((2, count, *image[-rank:])) * 9).astype({**FLOATS, **OTHERS}[kind])
    if special and kind in FLOATS:
        x[0, -1, ..., 0] = np.inf
    grid = (rng.standard_normal((2, *points[-rank:], rank)) * 1.2).astype(FLOATS[grid_kind])
    if special and grid.size > 4:
        grid.reshape(-1)[:4] = np.nan, np.inf, -np.inf, 6e4
    sizes, lengths = ",".join(NAMES[-rank:]), ",".join(f"P{axis}" for axis in range(rank))
    attributes = f'mode="{mode}", padding_mode="{padding}", align_corners={corners}'
    graph = f"""({kind}[N,{channels},{sizes}] x, {grid_kind}[N,{lengths},{rank}] g) => ({kind}[a] y) {{
        y = GridSample<{attributes}>(x, g)
    }}"""
    tolerance = 5e-3 if kind == "float16" else 1e-5
    assert_native_agrees(model(graph), {"x": guarded(x), "g": guarded(grid)}, rtol=tolerance, atol=tolerance)


def test_more_points_than_a_chunk_on_any_number_of_workers() -> None:
    text = "(float[N,C,H,W] x, float[N,P,Q,2] g) => (float[a] y) { y = GridSample(x, g) }"
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((2, 5, 30, 31)).astype(np.float32),
        "g": (rng.random((2, 50, 47, 2)) * 2 - 1).astype(np.float32),
    }
    assert_native_agrees(model(text), {name: guarded(array) for name, array in feeds.items()})
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(model(text), workers)
        results.append(run_native(graph, compiled, feeds)[0].tobytes())
    assert results[0] == results[1] == results[2]


def test_an_image_without_pixels_is_left_to_numpy() -> None:
    graph, compiled = compile_native(model("(float[N,C,H,W] x, float[N,P,Q,2] g) => (float[a] y) { y = GridSample(x, g) }"))
    assert not host_nodes(compiled)
    with pytest.raises(SizeConflict):
        run_native(graph, compiled, {"x": np.zeros((1, 1, 0, 3), np.float32), "g": np.zeros((1, 2, 2, 2), np.float32)})


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("kind", list(FLOATS))
@pytest.mark.parametrize("sizes", [(4, 5), (2, 3, 4), (1, 1), (33, 40), (0, 3)])
def test_affine_grids_agree(corners: int, kind: str, sizes: tuple[int, ...]) -> None:
    rank = len(sizes)
    theta = np.random.default_rng(0).standard_normal((2, rank, rank + 1)).astype(FLOATS[kind])
    graph = f"""({kind}[N,{rank},{rank + 1}] t, float[N,C,{",".join(NAMES[-rank:])}] x) => ({kind}[a] y) {{
        s = Shape(x) y = AffineGrid<align_corners={corners}>(t, s)
    }}"""
    tolerance = 5e-3 if kind == "float16" else 1e-5
    feeds = {"t": guarded(theta), "x": np.zeros((2, 1, *sizes), np.float32)}
    assert_native_agrees(model(graph), feeds, rtol=tolerance, atol=tolerance)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([0, 0, 1, 2, 4, 9]),
    st.sampled_from(["avg", "max"]),
    st.sampled_from(["half_pixel", "output_half_pixel"]),
    st.sampled_from([1.0, 0.25]),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.integers(0, 9),
    st.booleans(),
    st.sampled_from(["C", "3", "19", "70"]),
)
def test_regions_agree(
    ratio: int, mode: str, coordinates: str, scale: float, bins: tuple[int, int], regions: int, special: bool, channels: str
) -> None:
    rng = np.random.default_rng(regions)
    x = rng.standard_normal((2, 5 if channels == "C" else int(channels), 8, 7)).astype(np.float32)
    rois = (rng.uniform(-3, 12, (regions, 4)) / scale).astype(np.float32)
    if special and regions > 2:
        rois[0, 0], rois[1, 2], rois[2, 1] = np.nan, np.inf, -np.inf
    attributes = f'mode="{mode}", coordinate_transformation_mode="{coordinates}", sampling_ratio={ratio}, spatial_scale={scale}'
    graph = f"""(float[N,{channels},H,W] x, float[R,4] r, int64[R] b) => (float[a] y) {{
        y = RoiAlign<{attributes}, output_height={bins[0]}, output_width={bins[1]}>(x, r, b)
    }}"""
    feeds = {"x": guarded(x), "r": guarded(rois), "b": guarded(rng.integers(0, 2, regions))}
    assert_native_agrees(model(graph), feeds, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("bad", [-1, 2, 1 << 40])
def test_a_region_of_an_image_that_is_not_there_is_an_error_that_names_the_node(workers: int, bad: int) -> None:
    text = "(float[N,C,H,W] x, float[R,4] r, int64[R] b) => (float[a] y) { y = RoiAlign<sampling_ratio=2>(x, r, b) }"
    graph, compiled = compile_native(model(text), workers)
    assert not host_nodes(compiled)
    feeds = {"x": np.zeros((2, 1, 4, 4), np.float32), "r": np.ones((3, 4), np.float32), "b": np.array([0, bad, 1])}
    with pytest.raises(errors.InvalidArgument, match=r"RoiAlign.*an image that is not there: X has 2 images"):
        run_native(graph, compiled, feeds)


def test_a_region_that_asks_for_too_many_samples_is_an_error_that_names_the_node() -> None:
    text = "(float[N,C,H,W] x, float[R,4] r, int64[R] b) => (float[a] y) { y = RoiAlign(x, r, b) }"
    graph, compiled = compile_native(model(text))
    assert not host_nodes(compiled)
    regions = np.array([[0, 0, 3, 3], [0, 0, 1e6, 2]], np.float32)
    feeds = {"x": np.zeros((1, 2, 4, 4), np.float32), "r": regions, "b": np.zeros(2, np.int64)}
    with pytest.raises(errors.InvalidArgument, match=r"RoiAlign.*more than 16384 samples of a bin: set sampling_ratio"):
        run_native(graph, compiled, feeds)
