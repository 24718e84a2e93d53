"""Pools against onnxruntime and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import by_onnxruntime, by_reference, close, f32, i64, known_shape, random_array, run, seeds

from sardonyx.ir.dims import symbol

quick = settings(max_examples=25, deadline=None)


def attributes(seed: int, rank: int, *, dilated: bool = True) -> dict[str, Any]:
    """Windows that onnxruntime accepts: the padding is smaller than the kernel."""
    rng = np.random.default_rng(seed)
    kernel = rng.integers(1, 4, rank)
    attrs: dict[str, Any] = {
        "kernel_shape": tuple(int(k) for k in kernel),
        "strides": tuple(int(k) for k in rng.integers(1, 4, rank)),
        "ceil_mode": int(rng.integers(0, 2)),
    }
    mode = rng.choice(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode == "NOTSET":
        attrs["pads"] = tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    else:  # and no stride is larger than the kernel, which would need negative padding
        attrs["auto_pad"] = str(mode)
        attrs["strides"] = tuple(min(pair) for pair in zip(attrs["strides"], attrs["kernel_shape"], strict=True))
    if dilated and mode == "NOTSET":
        attrs["dilations"] = tuple(int(k) for k in rng.integers(1, 3, rank))
    return attrs


sizes = st.tuples(st.integers(1, 2), st.integers(1, 3))


@quick
@given(seed=seeds, rank=st.integers(1, 3), outer=sizes, dtype=st.sampled_from([np.float32, np.float64, np.int8, np.uint8]))
def test_max_pool_is_onnxruntimes(seed: int, rank: int, outer: Any, dtype: Any) -> None:
    attrs = attributes(seed, rank)
    x = random_array(seed, (*outer, *(6, 7, 5)[:rank]), dtype, special=False)
    (expected,) = by_onnxruntime("MaxPool", x, like=[x], **attrs)
    np.testing.assert_array_equal(run("MaxPool", x, **attrs), expected)


@quick
@given(seed=seeds, rank=st.integers(1, 3), outer=sizes, order=st.integers(0, 1))
def test_max_pool_says_where_the_maxima_stand(seed: int, rank: int, outer: Any, order: int) -> None:
    attrs = attributes(seed, rank) | {"storage_order": order}
    x = random_array(seed, (*outer, *(6, 7, 5)[:rank]), np.float32, special=False)
    expected = by_onnxruntime("MaxPool", x, like=[x, i64()], **attrs)
    for ours, theirs in zip(run("MaxPool", x, outputs=2, **attrs), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_window_of_minus_infinity_has_an_index_inside_the_image() -> None:
    x = np.full((1, 1, 3), -np.inf, np.float32)
    y, indices = run("MaxPool", x, outputs=2, kernel_shape=(2,), pads=(1, 1))
    assert y.tolist() == [[[-np.inf] * 4]]
    assert indices.tolist() == [[[0, 0, 1, 2]]]


def test_nan_wins_in_values_and_indices() -> None:
    x = np.array([[[1, np.nan, 5, 2]]], np.float16)
    plain = run("MaxPool", x, kernel_shape=(2,))
    y, indices = run("MaxPool", x, outputs=2, kernel_shape=(2,))
    np.testing.assert_array_equal(plain, [[[np.nan, np.nan, 5]]])
    np.testing.assert_array_equal(y, plain)
    assert indices.tolist() == [[[1, 1, 2]]]


@quick
@given(
    seed=seeds,
    rank=st.integers(1, 3),
    outer=sizes,
    include=st.integers(0, 1),
    dtype=st.sampled_from([np.float32, np.float64, np.float16]),
)
def test_average_pool_is_onnxruntimes(seed: int, rank: int, outer: Any, include: int, dtype: Any) -> None:
    attrs = attributes(seed, rank) | {"count_include_pad": include}
    x = random_array(seed, (*outer, *(6, 7, 5)[:rank]), dtype, special=False)
    (expected,) = by_onnxruntime("AveragePool", x.astype(np.float32), like=[x.astype(np.float32)], **attrs)
    result = run("AveragePool", x, **attrs)
    assert result.dtype == dtype
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(result.astype(np.float32), expected, rtol=tolerance, atol=tolerance)


@quick
@given(seed=seeds, rank=st.integers(1, 3), outer=sizes, p=st.integers(1, 3))
def test_lp_pool_is_onnxruntimes(seed: int, rank: int, outer: Any, p: int) -> None:
    attrs = attributes(seed, rank) | {"p": p}
    x = random_array(seed, (*outer, *(6, 7, 5)[:rank]), np.float32, special=False)
    (expected,) = by_onnxruntime("LpPool", x, like=[x], **attrs)
    np.testing.assert_allclose(run("LpPool", x, **attrs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kernel", "stride"), [(7, 1), (9, 2)])
def test_a_window_larger_than_the_image_by_two_strides_is_refused(kernel: int, stride: int) -> None:
    with pytest.raises(ValueError, match=f"a kernel that reaches over {kernel} does not fit spatial axis 0 of size 5"):
        run("MaxPool", np.zeros((1, 1, 5), np.float32), kernel_shape=[kernel], strides=[stride])


@pytest.mark.parametrize("version", [1, 8, 10, 11])
def test_older_max_pools_lack_attributes_but_mean_the_same(version: int) -> None:
    x = random_array(3, (1, 2, 6, 6), np.float32, special=False)
    expected = run("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2))
    close(run("MaxPool", x, version=version, kernel_shape=(3, 3), strides=(2, 2)), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 2, 3, 4), (2, 1, 2, 3, 2), (0, 2, 3)])
def test_global_pools_take_the_whole_image(dtype: Any, shape: tuple[int, ...]) -> None:
    x = random_array(1, shape, dtype, special=False)
    wide, axes = x.astype(np.float64), tuple(range(2, len(shape)))
    step = float(np.finfo(dtype).eps)
    for name, expected in (
        ("GlobalAveragePool", wide.mean(axes, keepdims=True)),
        ("GlobalMaxPool", wide.max(axes, keepdims=True)),
        ("GlobalLpPool", np.sqrt((wide * wide).sum(axes, keepdims=True))),
    ):
        np.testing.assert_allclose(run(name, x).astype(np.float64), expected, rtol=8 * step, atol=8 * step)
    np.testing.assert_allclose(run("GlobalLpPool", x, p=1), np.abs(wide).sum(axes, keepdims=True), rtol=16 * step, atol=16 * step)


def test_an_image_without_pixels_has_no_mean_and_no_maximum() -> None:
    empty = np.zeros((1, 2, 0), np.float32)
    assert np.isnan(run("GlobalAveragePool", empty)).all()
    assert run("GlobalMaxPool", empty).tolist() == [[[-np.inf], [-np.inf]]]


@quick
@given(seed=seeds, outer=sizes)
def test_unpooling_puts_the_maxima_back(seed: int, outer: Any) -> None:
    x = random_array(seed, (*outer, 4, 6), np.float32, special=False)
    y, indices = run("MaxPool", x, outputs=2, kernel_shape=(2, 2), strides=(2, 2))
    back = run("MaxUnpool", y, indices, kernel_shape=(2, 2), strides=(2, 2))
    expected = np.zeros_like(x)
    expected.flat[indices.reshape(-1)] = y.reshape(-1)
    np.testing.assert_array_equal(back, expected)
    shape = i64(*outer, 5, 7)
    larger = run("MaxUnpool", y, indices, shape, kernel_shape=(2, 2), strides=(2, 2))
    np.testing.assert_array_equal(larger, by_reference("MaxUnpool", y, indices, shape, kernel_shape=(2, 2), strides=(2, 2)))


def test_unpooling_names_an_index_that_is_out_of_range() -> None:
    with pytest.raises(IndexError, match="I has values from 9 to 9, but the unpooled tensor has 4 elements"):
        run("MaxUnpool", np.ones((1, 1, 2), np.float32), np.full((1, 1, 2), 9), kernel_shape=(2,), strides=(2,))
    with pytest.raises(ValueError, match="smaller than the unpooled shape"):
        run(
            "MaxUnpool",
            np.ones((1, 1, 2), np.float32),
            np.zeros((1, 1, 2), np.int64),
            i64(1, 1, 3),
            kernel_shape=(2,),
            strides=(2,),
        )


@quick
@given(seed=seeds, scale=st.sampled_from([1.0, 0.5, 0.25]), pooled=st.sampled_from([(1, 1), (2, 3), (4, 2)]))
def test_max_roi_pool_is_onnxruntimes(seed: int, scale: float, pooled: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    x = random_array(seed, (2, 3, 8, 7), np.float32, special=False)
    corners = np.sort(rng.uniform(0, 7 / scale, (4, 2, 2)), axis=1).reshape(4, 4)
    rois = np.concatenate((rng.integers(0, 2, (4, 1)), corners), axis=1).astype(np.float32)
    (expected,) = by_onnxruntime("MaxRoiPool", x, rois, like=[x], pooled_shape=pooled, spatial_scale=scale)
    np.testing.assert_array_equal(run("MaxRoiPool", x, rois, pooled_shape=pooled, spatial_scale=scale), expected)


def test_pools_keep_symbols() -> None:
    h = symbol("H")
    attrs: dict[str, Any] = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    assert known_shape("MaxPool", [f32("N", 8, "H", 9)], **attrs) == (symbol("N"), 8, (h - 1) // 2 + 1, 5)
    assert known_shape("AveragePool", [f32("N", 8, "H", 10)], kernel_shape=(2, 2), strides=(2, 2)) == (symbol("N"), 8, h // 2, 5)
    assert known_shape("GlobalAveragePool", [f32("N", "C", "H", "W")]) == (symbol("N"), symbol("C"), 1, 1)


def test_an_input_without_spatial_axes_is_named() -> None:
    with pytest.raises(ValueError, match=r"X of shape \(2, 3\) has no spatial axes"):
        run("MaxPool", np.zeros((2, 3), np.float32), kernel_shape=(1,))
