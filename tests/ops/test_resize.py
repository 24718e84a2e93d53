"""Resize, Upsample and sampling at arbitrary places, against onnxruntime and the onnx reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from op_case import by_onnxruntime, by_reference, close, f32, i64, known_shape, random_array, run, seeds

from sardonyx.ir.dims import symbol

quick = settings(max_examples=25, deadline=None)
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def f(*values: float) -> Any:
    return np.array(values, np.float32)


@quick
@given(
    seed=seeds, mode=st.sampled_from(["nearest", "linear", "cubic"]), coordinates=st.sampled_from(COORDINATES[:5]),
    nearest=st.sampled_from(NEAREST), height=st.integers(1, 9), width=st.integers(1, 9), outside=st.integers(0, 1),
)  # fmt: skip
def test_resize_to_a_size_is_onnxruntimes(
    seed: int, mode: str, coordinates: str, nearest: str, height: int, width: int, outside: int
) -> None:
    if mode != "cubic":
        outside = 0
    x = random_array(seed, (1, 2, 5, 4), np.float32, special=False)
    sizes = i64(1, 2, height, width)
    attrs: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": nearest,
        "exclude_outside": outside,
    }
    (expected,) = by_onnxruntime("Resize", x, None, None, sizes, like=[x], version=19, **attrs)
    result = run("Resize", x, None, None, sizes, **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@quick
@given(
    seed=seeds, mode=st.sampled_from(["nearest", "linear", "cubic"]), coordinates=st.sampled_from(["half_pixel", "asymmetric"]),
    scale=st.sampled_from([0.3, 0.5, 0.6, 1.0, 1.5, 2.0, 3.0, 2.7]), other=st.sampled_from([0.5, 1.0, 2.0]),
)  # fmt: skip
def test_resize_by_scales_is_onnxruntimes(seed: int, mode: str, coordinates: str, scale: float, other: float) -> None:
    x = random_array(seed, (1, 2, 6, 10), np.float32, special=False)
    scales = f(1, 1, scale, other)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    (expected,) = by_onnxruntime("Resize", x, None, scales, like=[x], version=19, **attrs)
    np.testing.assert_allclose(run("Resize", x, None, scales, **attrs), expected, rtol=1e-4, atol=1e-4)


@quick
@given(
    seed=seeds, mode=st.sampled_from(["linear", "cubic"]), height=st.integers(1, 6), width=st.integers(1, 12),
    outside=st.integers(0, 1),
)  # fmt: skip
def test_antialiasing_is_the_references(seed: int, mode: str, height: int, width: int, outside: int) -> None:
    x = random_array(seed, (5, 7), np.float32, special=False)
    attrs: dict[str, Any] = {"mode": mode, "antialias": 1, "exclude_outside": outside}
    expected = by_reference("Resize", x, None, None, i64(height, width), version=19, **attrs)
    np.testing.assert_allclose(run("Resize", x, None, None, i64(height, width), **attrs), expected, rtol=1e-3, atol=1e-3)


@quick
@given(seed=seeds, mode=st.sampled_from(["nearest", "linear"]), roi=st.tuples(*[st.floats(-0.25, 1.25, width=32)] * 4))
def test_a_crop_outside_of_the_image_has_the_extrapolation_value(seed: int, mode: str, roi: Any) -> None:
    x = random_array(seed, (1, 1, 4, 5), np.float32, special=False)
    box, sizes = f(0, 0, roi[0], roi[1], 1, 1, roi[2], roi[3]), i64(1, 1, 3, 4)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
    (expected,) = by_onnxruntime("Resize", x, box, None, sizes, like=[x], version=19, **attrs)
    np.testing.assert_allclose(run("Resize", x, box, None, sizes, **attrs), expected, rtol=1e-3, atol=1e-3)


FRACTIONS = st.builds(lambda above, below: float(np.float32(min(above, below) / below)), st.integers(0, 12), st.integers(1, 12))


@quick
@given(start=FRACTIONS, end=FRACTIONS, size=st.integers(2, 8), out=st.integers(1, 11), nearest=st.sampled_from(NEAREST[:2]))
@example(start=0.5, end=0.16666667, size=4, out=3, nearest="round_prefer_floor")
@example(start=0.0, end=0.49999905, size=2, out=3, nearest="round_prefer_ceil")
def test_the_nearest_element_of_a_crop_is_onnxruntimes_at_ties(
    start: float, end: float, size: int, out: int, nearest: str
) -> None:
    assume(size != out)  # onnxruntime copies an image that keeps its size, without cropping it
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size, 1)
    box, sizes = f(0, 0, start, 0, 1, 1, end, 1), i64(1, 1, out, 1)
    attrs: dict[str, Any] = {"nearest_mode": nearest, "coordinate_transformation_mode": "tf_crop_and_resize"}
    (expected,) = by_onnxruntime("Resize", x, box, None, sizes, like=[x], version=19, **attrs)
    np.testing.assert_array_equal(run("Resize", x, box, None, sizes, **attrs), expected)


@quick
@given(
    coordinates=st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]),
    size=st.integers(1, 12), out=st.integers(1, 30), nearest=st.sampled_from(NEAREST), by_scale=st.booleans(),
)  # fmt: skip
@example(coordinates="half_pixel_symmetric", size=11, out=29, nearest="ceil", by_scale=False)
@example(coordinates="half_pixel_symmetric", size=3, out=1, nearest="floor", by_scale=False)
@example(coordinates="align_corners", size=11, out=13, nearest="ceil", by_scale=False)
def test_the_nearest_element_is_onnxruntimes_at_ties(coordinates: str, size: int, out: int, nearest: str, by_scale: bool) -> None:
    assume(size != out)  # onnxruntime copies an image that keeps its size, whatever the scale is
    # With a scale, ONNX counts with a fractional length here; with it, coordinates round differently at whole numbers, too.
    assume(not by_scale or coordinates not in ("align_corners", "half_pixel_symmetric"))
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size, 1)
    scales, sizes = (f(1, 1, (out + 0.5) / size, 1), None) if by_scale else (None, i64(1, 1, out, 1))
    attrs: dict[str, Any] = {"nearest_mode": nearest, "coordinate_transformation_mode": coordinates}
    (expected,) = by_onnxruntime("Resize", x, None, scales, sizes, like=[x], version=19, **attrs)
    np.testing.assert_array_equal(run("Resize", x, None, scales, sizes, **attrs), expected)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_axes_and_aspect_ratio_are_the_references(policy: str, mode: str) -> None:
    x = random_array(1, (2, 4, 6), np.float32, special=False)
    attrs: dict[str, Any] = {"mode": mode, "axes": (2, 1), "keep_aspect_ratio_policy": policy}
    expected = by_reference("Resize", x, None, None, i64(9, 7), version=19, **attrs)
    np.testing.assert_allclose(run("Resize", x, None, None, i64(9, 7), **attrs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16, np.float64, np.bool_])
def test_nearest_takes_elements_of_any_type(dtype: Any) -> None:
    x = random_array(1, (1, 1, 3, 4), dtype, special=False)
    doubled = run("Resize", x, None, f(1, 1, 2, 3), coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    np.testing.assert_array_equal(doubled, x.repeat(2, 2).repeat(3, 3))


def test_nearest_takes_strings() -> None:
    x = np.array([["a", "b"]], dtype=object)
    assert run("Resize", x, None, f(1, 2)).tolist() == [["a", "a", "b", "b"]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_interpolated_integers_stay_in_their_range(dtype: Any) -> None:
    low, high = (0, 200) if dtype == np.uint8 else (-100, 120)
    x = np.array([[[[low, high, high, low]]]], dtype)
    limits = np.iinfo(dtype)
    smooth = run("Resize", x, None, f(1, 1, 1, 4), mode="cubic").astype(np.float64)
    exact = run("Resize", x.astype(np.float64), None, f(1, 1, 1, 4), mode="cubic")
    np.testing.assert_allclose(smooth, np.trunc(np.clip(exact, limits.min, limits.max)), atol=1)


def test_an_infinity_does_not_reach_pixels_it_has_no_weight_in() -> None:
    x = np.array([[[np.inf, 1, 2, 3]]], np.float32)
    result = run("Resize", x, None, None, i64(1, 1, 7), mode="linear", coordinate_transformation_mode="align_corners")
    np.testing.assert_allclose(result, [[[np.inf, np.inf, 1, 1.5, 2, 2.5, 3]]])


@quick
@given(
    seed=seeds, mode=st.sampled_from(["nearest", "linear"]),
    name=st.sampled_from([("Upsample", 7), ("Upsample", 9), ("Resize", 10)]),
    height=st.sampled_from([1.0, 2.0, 1.5]), width=st.sampled_from([1.0, 3.0, 2.3]),
)  # fmt: skip
def test_the_older_forms_are_onnxruntimes(seed: int, mode: str, name: tuple[str, int], height: float, width: float) -> None:
    x = random_array(seed, (1, 2, 4, 3), np.float32, special=False)
    scales = f(1, 1, height, width)
    if name[1] == 7:
        attrs: dict[str, Any] = {"scales": tuple(scales.tolist())}
        (expected,) = by_onnxruntime(name[0], x, like=[x], version=name[1], mode=mode, **attrs)
        np.testing.assert_allclose(run(name[0], x, version=name[1], mode=mode, **attrs), expected, rtol=1e-5, atol=1e-5)
    else:
        (expected,) = by_onnxruntime(name[0], x, scales, like=[x], version=name[1], mode=mode)
        np.testing.assert_allclose(run(name[0], x, scales, version=name[1], mode=mode), expected, rtol=1e-5, atol=1e-5)


def test_the_nearest_rule_of_opset_10_rounds_up_when_it_shrinks() -> None:
    x = random_array(1, (1, 1, 7, 7), np.float32, special=False)
    scales = f(1, 1, 0.6, 0.4)
    (expected,) = by_onnxruntime("Resize", x, scales, like=[x], version=10)
    close(run("Resize", x, scales, version=10), expected)


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        ((None, None, None), {}, "exactly one of scales and sizes"),
        ((None, f(1, 2), i64(2, 2)), {}, "exactly one of scales and sizes"),
        ((None, f(1, 2, 3), None), {}, "has 3 elements, expected 2"),
        ((None, f(1, -2), None), {}, "scales must be positive"),
        ((None, f(1, 2), None), {"mode": "magic"}, "mode is 'magic'"),
        ((None, f(1, 2), None), {"nearest_mode": "magic"}, "nearest_mode is 'magic'"),
        ((None, f(1, 2), None), {"coordinate_transformation_mode": "magic"}, "coordinate_transformation_mode is 'magic'"),
    ],
)
def test_what_resize_cannot_do_is_named(inputs: Any, attrs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("Resize", np.ones((2, 2), np.float32), *inputs, **attrs)


def test_nothing_can_be_shrunk_but_not_grown() -> None:
    assert run("Resize", np.zeros((1, 0, 3), np.float32), None, f(1, 1, 2)).shape == (1, 0, 6)
    with pytest.raises(ValueError, match="an input without elements"):
        run("Resize", np.zeros((1, 0), np.float32), None, None, i64(1, 2))


def test_resize_keeps_symbols() -> None:
    n, h = symbol("N"), symbol("H")
    x = f32("N", 3, "H", 20)
    assert known_shape("Resize", [x, None, f(1, 1, 2, 0.5)]) == (n, 3, 2 * h, 10)
    assert known_shape("Resize", [x, None, f(1, 1, 1.5, 1)]) == (n, 3, 3 * h // 2, 20)
    assert known_shape("Resize", [x, None, None, (n, 3, h, 7)]) == (n, 3, h, 7)


@quick
@given(
    seed=seeds, mode=st.sampled_from(["linear", "nearest", "cubic"]), padding=st.sampled_from(["zeros", "border", "reflection"]),
    align=st.integers(0, 1), rank=st.integers(2, 3),
)  # fmt: skip
def test_grid_sample_is_onnxruntimes(seed: int, mode: str, padding: str, align: int, rank: int) -> None:
    if rank == 3 and mode == "cubic":
        return
    x = random_array(seed, (2, 2, *(4, 5, 3)[:rank]), np.float32, special=False)
    grid = np.random.default_rng(seed).uniform(-1.6, 1.6, (2, *(3, 2, 4)[:rank], rank)).astype(np.float32)
    attrs: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": align}
    (expected,) = by_onnxruntime("GridSample", x, grid, like=[x], version=20, **attrs)
    np.testing.assert_allclose(run("GridSample", x, grid, **attrs), expected, rtol=1e-3, atol=1e-3)


def test_grid_sample_outside_of_all_numbers_is_zero_or_nan_but_no_error() -> None:
    x = np.ones((1, 1, 3, 3), np.float32)
    grid = np.array([[[[np.nan, 0], [np.inf, 0], [-1e30, 1e30]]]], np.float32)
    result = run("GridSample", x, grid, mode="nearest")
    np.testing.assert_array_equal(result, [[[[0, 0, 0]]]])
    assert run("GridSample", x, grid, mode="nearest", padding_mode="border")[0, 0, 0, 1] == 1


def test_grid_sample_of_empty_batches_is_empty() -> None:
    assert run("GridSample", np.zeros((0, 2, 3, 3), np.float32), np.zeros((0, 4, 5, 2), np.float32)).shape == (0, 2, 4, 5)
    assert run("GridSample", np.zeros((1, 2, 3, 3), np.float32), np.zeros((1, 0, 5, 2), np.float32)).shape == (1, 2, 0, 5)
    with pytest.raises(ValueError, match="needs a grid of shape"):
        run("GridSample", np.zeros((1, 2, 3, 3), np.float32), np.zeros((1, 4, 5, 3), np.float32))


@quick
@given(seed=seeds, align=st.integers(0, 1), rank=st.integers(2, 3))
def test_affine_grid_is_the_references(seed: int, align: int, rank: int) -> None:
    theta = random_array(seed, (2, rank, rank + 1), np.float32, special=False)
    size = i64(2, 3, *(4, 5, 2)[:rank])
    expected = by_reference("AffineGrid", theta, size, align_corners=align)
    np.testing.assert_allclose(run("AffineGrid", theta, size, align_corners=align), expected, rtol=1e-4, atol=1e-4)


def test_an_identity_grid_samples_the_image_itself() -> None:
    x = random_array(2, (1, 2, 4, 5), np.float32, special=False)
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    for align in (0, 1):
        grid = run("AffineGrid", theta, i64(1, 2, 4, 5), align_corners=align)
        np.testing.assert_allclose(run("GridSample", x, grid, align_corners=align), x, rtol=1e-4, atol=1e-4)
