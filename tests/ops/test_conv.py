"""Convolutions against onnxruntime and NumPy sums; the geometry of windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, by_reference, f32, known_shape, random_array, run, seeds

from sardonyx.ir.dims import evaluate, symbol
from sardonyx.ops.conv import conv
from sardonyx.ops.conv.conv import conv_core
from sardonyx.ops.conv.windows import output_spatial, resolve_pads, windows

quick = settings(max_examples=25, deadline=None)


def direct(x: Array, w: Array, group: int, strides: Any, dilations: Any, pads: Any) -> Array:
    """A convolution by its definition, in float64."""
    rank = x.ndim - 2
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((pads[i], pads[i + rank]) for i in range(rank))])
    out = [(padded.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    result = np.zeros((x.shape[0], w.shape[0], *out))
    per_group = w.shape[0] // group
    for place in np.ndindex(*out):
        at = tuple(
            slice(place[i] * strides[i], place[i] * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1, dilations[i])
            for i in range(rank)
        )
        window = padded[(slice(None), slice(None), *at)].reshape(x.shape[0], group, 1, int(np.prod(w.shape[1:])))
        result[(slice(None), slice(None), *place)] = (
            (window * w.reshape(group, per_group, -1)).sum(-1).reshape(x.shape[0], w.shape[0])
        )
    return result  # fmt: skip


geometry = st.fixed_dictionaries(
    {
        "rank": st.integers(1, 3),
        "group": st.sampled_from([1, 2, 3]),
        "inner": st.integers(1, 2),
        "outer": st.integers(1, 2),
        "batch": st.integers(0, 3),
        "seed": seeds,
    }
)


def attributes(seed: int, rank: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "kernel_shape": tuple(int(k) for k in rng.integers(1, 4, rank)),
        "strides": tuple(int(k) for k in rng.integers(1, 4, rank)),
        "dilations": tuple(int(k) for k in rng.integers(1, 3, rank)),
        "pads": tuple(int(k) for k in rng.integers(0, 3, 2 * rank)),
    }


@quick
@given(case=geometry, dtype=st.sampled_from([np.float32, np.float64, np.float16]))
def test_conv_is_the_sum_over_its_windows(case: Any, dtype: Any) -> None:
    rank, group = case["rank"], case["group"]
    attrs = attributes(case["seed"], rank)
    x = random_array(case["seed"], (case["batch"], group * case["inner"], *(5, 6, 7)[:rank]), dtype, special=False)
    w = random_array(case["seed"] + 1, (group * case["outer"], case["inner"], *attrs["kernel_shape"]), dtype, special=False)
    b = random_array(case["seed"] + 2, (group * case["outer"],), dtype, special=False)
    expected = direct(x, w, group, attrs["strides"], attrs["dilations"], attrs["pads"])
    expected += b.astype(np.float64).reshape(-1, *(1,) * rank)
    tolerance = 2e-2 if dtype == np.float16 else 1e-4
    result = run("Conv", x, w, b, group=group, **attrs)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@quick
@given(seed=seeds, mode=st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]), group=st.sampled_from([1, 2]))
def test_automatic_padding_is_onnxruntimes(seed: int, mode: str, group: int) -> None:
    attrs = attributes(seed, 2) | {"auto_pad": mode, "dilations": (1, 1)}
    del attrs["pads"]
    x = random_array(seed, (1, 2, 7, 6), np.float32, special=False)
    w = random_array(seed, (4, 2 // group, *attrs["kernel_shape"]), np.float32, special=False)
    (expected,) = by_onnxruntime("Conv", x, w, like=[x], group=group, **attrs)
    np.testing.assert_allclose(run("Conv", x, w, group=group, **attrs), expected, rtol=1e-4, atol=1e-4)


@quick
@given(case=geometry, dtype=st.sampled_from([np.int8, np.uint8, np.int32]))
def test_integers_are_accumulated_exactly(case: Any, dtype: Any) -> None:
    rank, group = case["rank"], case["group"]
    attrs = attributes(case["seed"], rank)
    x = random_array(case["seed"], (case["batch"], group * case["inner"], *(5, 6, 5)[:rank]), dtype)
    w = random_array(case["seed"] + 1, (group * case["outer"], case["inner"], *attrs["kernel_shape"]), np.int8)
    result = conv_core(x, w, group=group, **attrs)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, direct(x, w, group, attrs["strides"], attrs["dilations"], attrs["pads"]))


def test_large_integers_wrap_around() -> None:
    x = np.full((1, 1, 3), 2**31 - 1, np.int32)
    w = np.full((1, 1, 3), 2**30, np.int32)
    np.testing.assert_array_equal(conv_core(x, w), (x.astype(np.int64) * w).sum(-1, keepdims=True).astype(np.int32))


def test_a_band_of_rows_may_be_smaller_than_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = random_array(1, (2, 4, 17, 13), np.float32, special=False), random_array(2, (6, 2, 3, 3), np.float32, special=False)
    whole = conv_core(x, w, group=2, pads=(1, 1, 1, 1))
    monkeypatch.setattr(conv, "GATHER_BYTES", 5000)
    np.testing.assert_allclose(conv_core(x, w, group=2, pads=(1, 1, 1, 1)), whole, rtol=1e-5, atol=1e-5)
    deep = random_array(3, (8, 1, 3, 3), np.float32, special=False)
    by_group = conv_core(x, deep, group=4, strides=(2, 2))
    np.testing.assert_allclose(by_group, direct(x, deep, 4, (2, 2), (1, 1), (0, 0, 0, 0)), rtol=1e-4, atol=1e-4)


def test_an_infinity_stays_in_its_windows() -> None:
    x = np.zeros((1, 1, 5), np.float32)
    x[0, 0, 0] = np.inf
    np.testing.assert_array_equal(run("Conv", x, np.ones((1, 1, 2), np.float32)), [[[np.inf, 0, 0, 0]]])


@pytest.mark.parametrize(
    ("x", "w", "attrs", "message"),
    [
        ((1, 3, 5, 5), (2, 4, 3, 3), {}, "X has 3 channels, but W has 4 in each of 1 groups"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"group": 2}, "3 kernels cannot be divided into 2 groups"),
        ((1, 3, 5), (2, 3, 3, 3), {}, "X of rank 3 and W of rank 4"),
        ((1, 3, 2, 5), (2, 3, 3, 3), {}, "reaches over 3 does not fit spatial axis 0 of size 2"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"kernel_shape": (3, 2)}, r"kernel_shape is \[3, 2\], but W has kernels of \[3, 3\]"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"pads": (1, 1)}, "expected a begin and an end for each of 2 spatial axes"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"strides": (0, 1)}, "must be positive"),
        ((1, 3, 5, 5), (2, 3, 3, 3), {"auto_pad": "SOME"}, "auto_pad is 'SOME'"),
    ],
)
def test_shapes_that_do_not_fit_are_named(x: Any, w: Any, attrs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("Conv", np.zeros(x, np.float32), np.zeros(w, np.float32), **attrs)


def test_a_symbolic_image_has_a_symbolic_result() -> None:
    h = symbol("H")
    shape = known_shape("Conv", [f32("N", 3, "H", 640), f32(16, 3, 3, 3)], strides=(2, 2), pads=(1, 1, 1, 1))
    assert shape == (symbol("N"), 16, (h - 1) // 2 + 1, 320)
    assert known_shape("Conv", [f32("N", 3, "H", 9), f32(16, 3, 3, 3)], auto_pad="SAME_UPPER", strides=(2, 2))[2:] == (
        (h + 1) // 2,
        5,
    )


@given(
    size=st.integers(1, 30), kernel=st.integers(1, 5), stride=st.integers(1, 4), dilation=st.integers(1, 3),
    begin=st.integers(0, 4), end=st.integers(0, 4), ceil=st.booleans(),
    mode=st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
)  # fmt: skip
def test_symbolic_and_numeric_geometry_agree(
    size: int, kernel: int, stride: int, dilation: int, begin: int, end: int, ceil: bool, mode: str
) -> None:
    fixed: dict[str, Any] = {"strides": (stride,), "dilations": (dilation,), "pads": (begin, end), "auto_pad": mode}
    try:
        (number,) = output_spatial((size,), (kernel,), ceil_mode=ceil, **fixed)
    except ValueError:
        return
    (formula,) = output_spatial((symbol("s"),), (kernel,), ceil_mode=ceil, **fixed)
    assert evaluate(formula, {"s": size}) == number
    for now, then in zip(
        resolve_pads((size,), (kernel,), **fixed), resolve_pads((symbol("s"),), (kernel,), **fixed), strict=True
    ):
        assert evaluate(then[0], {"s": size}) == now[0]
    view = windows((size,), (kernel,), ceil_mode=ceil, **fixed)
    if view.out[0] > 0:
        padded = view.pad(np.arange(1, size + 1), -1)
        places = np.arange(view.out[0]) * stride + np.arange(kernel)[:, None] * dilation - view.begin[0]
        expected = np.where((places >= 0) & (places < size), places + 1, -1)
        np.testing.assert_array_equal(view.view(padded), expected)
        for (index,), at in view.taps():
            np.testing.assert_array_equal(padded[at], expected[index])


@quick
@given(
    seed=seeds, rank=st.integers(1, 3), group=st.sampled_from([1, 2]), batch=st.integers(1, 2),
    mode=st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]), extra=st.booleans(), shaped=st.booleans(),
)  # fmt: skip
def test_conv_transpose_is_onnxruntimes(
    seed: int, rank: int, group: int, batch: int, mode: str, extra: bool, shaped: bool
) -> None:
    rng = np.random.default_rng(seed)
    attrs = attributes(seed, rank) | {"auto_pad": mode}
    attrs["pads"] = tuple(int(pad) for pad in rng.integers(0, 2, 2 * rank))
    if mode != "NOTSET":
        del attrs["pads"]
    if extra:
        attrs["output_padding"] = tuple(int(rng.integers(0, stride)) for stride in attrs["strides"])
    spatial = (3, 4, 2)[:rank]
    full = [
        (size - 1) * stride + (kernel - 1) * dilation + 1
        for size, stride, kernel, dilation in zip(
            spatial, attrs["strides"], attrs["kernel_shape"], attrs["dilations"], strict=True
        )
    ]
    if shaped:
        attrs["output_shape"] = tuple(max(1, size - int(rng.integers(0, 3))) for size in full)
        attrs.pop("pads", None)
    elif "pads" in attrs and any(
        size - low - high < 1 for size, low, high in zip(full, attrs["pads"][:rank], attrs["pads"][rank:], strict=True)
    ):
        return
    if mode.startswith("SAME") and any(
        size * stride > whole for size, stride, whole in zip(spatial, attrs["strides"], full, strict=True)
    ):
        return  # onnxruntime refuses what would need negative padding
    x = random_array(seed, (batch, 2 * group, *spatial), np.float32, special=False)
    w = random_array(seed + 1, (2 * group, 3, *attrs["kernel_shape"]), np.float32, special=False)
    b = random_array(seed + 2, (3 * group,), np.float32, special=False)
    (expected,) = by_onnxruntime("ConvTranspose", x, w, b, like=[x], group=group, **attrs)
    np.testing.assert_allclose(run("ConvTranspose", x, w, b, group=group, **attrs), expected, rtol=1e-4, atol=1e-4)


def test_conv_transpose_of_nothing_is_the_bias() -> None:
    result = run("ConvTranspose", np.zeros((0, 2, 3), np.float32), np.zeros((2, 1, 2), np.float32))
    assert result.shape == (0, 1, 4)


def test_conv_transpose_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="X has 3 channels, but W is made for 2"):
        run("ConvTranspose", np.zeros((1, 3, 4), np.float32), np.zeros((2, 1, 2), np.float32))
    with pytest.raises(ValueError, match="the pads are larger than what the kernels cover"):
        run("ConvTranspose", np.zeros((1, 2, 1), np.float32), np.zeros((2, 1, 2), np.float32), pads=(3, 3))


def test_conv_transpose_keeps_symbols() -> None:
    shape = known_shape("ConvTranspose", [f32("N", 8, "H", 4), f32(8, 3, 2, 2)], strides=(2, 2), group=2)
    assert shape == (symbol("N"), 6, 2 * symbol("H"), 8)


@quick
@given(seed=seeds, rank=st.integers(1, 3))
def test_col2im_adds_up_what_windows_take(seed: int, rank: int) -> None:
    attrs = attributes(seed, rank)
    kernel = attrs.pop("kernel_shape")
    image = (6, 7, 8)[:rank]
    window = windows(image, kernel, **attrs)
    x = random_array(seed, (2, 3, *image), np.float64, special=False)
    columns = window.view(window.pad(x)).reshape(2, 3 * int(np.prod(kernel)), -1)
    counts = np.zeros(image)
    ones = np.ascontiguousarray(window.view(window.pad(np.ones(image))))
    result = run("Col2Im", np.ascontiguousarray(columns), np.array(image), np.array(kernel), **attrs)
    counts = run("Col2Im", ones.reshape(1, int(np.prod(kernel)), -1), np.array(image), np.array(kernel), **attrs)[0, 0]
    np.testing.assert_allclose(result, x * counts, rtol=1e-9, atol=1e-9)


def test_col2im_names_a_wrong_number_of_blocks() -> None:
    with pytest.raises(ValueError, match=r"does not fit blocks of \[2\] in an image of \[5\]: expected \(N, C \* 2, 4\)"):
        run("Col2Im", np.zeros((1, 4, 5), np.float32), np.array([5]), np.array([2]))


@quick
@given(
    seed=seeds,
    length=st.integers(1, 5),
    kernel=st.integers(1, 4),
    past=st.booleans(),
    activation=st.sampled_from(["none", "silu", "swish"]),
)
def test_a_causal_conv_in_pieces_is_the_whole(seed: int, length: int, kernel: int, past: bool, activation: str) -> None:
    x = random_array(seed, (2, 3, 2 * length), np.float32, special=False)
    w = random_array(seed + 1, (3, 1, kernel), np.float32, special=False)
    b = random_array(seed + 2, (3,), np.float32, special=False)
    state = random_array(seed + 3, (2, 3, kernel - 1), np.float32, special=False) if past else None
    whole, last = run("CausalConvWithState", x, w, b, state, outputs=2, activation=activation)
    first, between = run("CausalConvWithState", x[:, :, :length], w, b, state, outputs=2, activation=activation)
    second, end = run("CausalConvWithState", x[:, :, length:], w, b, between, outputs=2, activation=activation)
    np.testing.assert_allclose(np.concatenate((first, second), 2), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(end, last)
    nothing, kept = run("CausalConvWithState", x[:, :, :0], w, b, between, outputs=2, activation=activation)
    assert nothing.shape == (2, 3, 0)
    np.testing.assert_array_equal(kept, between)


@quick
@given(seed=seeds, group=st.sampled_from([1, 2]), offset_group=st.sampled_from([1, 2]), masked=st.booleans())
def test_deform_conv_is_the_references(seed: int, group: int, offset_group: int, masked: bool) -> None:
    x = random_array(seed, (1, 2, 4, 5), np.float32, special=False)
    w = random_array(seed + 1, (2, 2 // group, 2, 2), np.float32, special=False)
    out = (4, 5)
    offset = random_array(seed + 2, (1, offset_group * 8, *out), np.float32, special=False)
    b = random_array(seed + 3, (2,), np.float32, special=False)
    mask = random_array(seed + 4, (1, offset_group * 4, *out), np.float32, special=False) if masked else None
    attrs: dict[str, Any] = {"group": group, "offset_group": offset_group, "pads": (1, 0, 0, 1)}
    expected = by_reference("DeformConv", x, w, offset, b, mask, version=22, **attrs)
    np.testing.assert_allclose(run("DeformConv", x, w, offset, b, mask, **attrs), expected, rtol=1e-3, atol=1e-3)


def test_deform_conv_without_offsets_is_conv() -> None:
    x, w = (
        random_array(1, (2, 4, 3, 4, 5), np.float32, special=False),
        random_array(2, (6, 2, 2, 2, 2), np.float32, special=False),
    )
    attrs: dict[str, Any] = {"group": 2, "strides": (1, 2, 1), "dilations": (1, 1, 2), "pads": (1, 0, 1, 0, 1, 1)}
    plain = run("Conv", x, w, **attrs)
    offset = np.zeros((2, 8 * 3, *plain.shape[2:]), np.float32)
    np.testing.assert_allclose(run("DeformConv", x, w, offset, **attrs), plain, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="offset has shape"):
        run("DeformConv", x, w, offset[:, 1:], **attrs)
