"""Fourier transforms and windows against NumPy and the onnx reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import by_onnxruntime, by_reference, f32, i64, known_shape, random_array, run, seeds

from sardonyx.ir.dims import symbol

quick = settings(max_examples=25, deadline=None)


def pairs(z: Any) -> Any:
    return np.stack((z.real, z.imag), -1)


@quick
@given(
    seed=seeds, axis=st.sampled_from([0, 1, -2, -3]), length=st.sampled_from([None, 3, 5, 8]), inverse=st.booleans(),
    parts=st.integers(1, 2), dtype=st.sampled_from([np.float32, np.float64, np.float16]), version=st.sampled_from([17, 20]),
)  # fmt: skip
def test_dft_is_numpys(seed: int, axis: int, length: int | None, inverse: bool, parts: int, dtype: Any, version: int) -> None:
    x = random_array(seed, (4, 5, parts), dtype, special=False)
    wide = x.astype(np.float64)
    z = wide[..., 0] + (1j * wide[..., 1] if parts == 2 else 0)
    expected = pairs((np.fft.ifft if inverse else np.fft.fft)(z, length, axis % 3))
    size = None if length is None else np.array(length)
    if version == 17:
        result = run("DFT", x, size, version=17, axis=axis, inverse=int(inverse))
    else:
        result = run("DFT", x, size, np.array(axis), inverse=int(inverse))
    tolerance = 3e-2 if dtype == np.float16 else 1e-4
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@quick
@given(seed=seeds, size=st.integers(2, 9))
def test_a_one_sided_spectrum_goes_back_to_its_signal(seed: int, size: int) -> None:
    x = random_array(seed, (2, size, 1), np.float64, special=False)
    spectrum = run("DFT", x, onesided=1)
    np.testing.assert_allclose(spectrum, pairs(np.fft.rfft(x[..., 0], axis=1)), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run("DFT", spectrum, np.array(size), onesided=1, inverse=1), x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "attrs", "message"),
    [
        ((2, 4, 2), {"onesided": 1}, "a one-sided spectrum exists for real input only"),
        ((2, 4, 1), {"onesided": 1, "inverse": 1}, "needs complex input"),
        ((2, 4, 3), {}, "expected a last axis of 1"),
    ],
)
def test_signals_that_have_no_transform_are_named(shape: Any, attrs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("DFT", np.zeros(shape, np.float32), **attrs)
    with pytest.raises(ValueError, match="axis -1 is the axis of real and imaginary parts"):
        run("DFT", np.zeros((2, 4, 1), np.float32), None, np.array(-1))


@quick
@given(
    seed=seeds, step=st.integers(1, 5), length=st.integers(1, 8), windowed=st.booleans(), parts=st.integers(1, 2),
    onesided=st.integers(0, 1), explicit=st.booleans(),
)  # fmt: skip
def test_stft_transforms_every_frame(
    seed: int, step: int, length: int, windowed: bool, parts: int, onesided: int, explicit: bool
) -> None:
    onesided = onesided if parts == 1 else 0
    x = random_array(seed, (2, 13, parts), np.float32, special=False)
    window = random_array(seed, (length,), np.float32, special=False) if windowed else None
    size = np.array(length) if explicit or not windowed else None
    z = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    frames = np.stack([z[:, at : at + length] for at in range(0, 13 - length + 1, step)], 1) * (1 if window is None else window)
    expected = pairs((np.fft.rfft if onesided else np.fft.fft)(frames))
    result = run("STFT", x, np.array(step), window, size, onesided=onesided)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


def test_stft_is_onnxruntimes() -> None:
    x, window = random_array(1, (1, 64, 1), np.float32, special=False), np.hanning(16).astype(np.float32)
    (expected,) = by_onnxruntime("STFT", x, np.array(8), window, np.array(16), like=[x], version=17)
    np.testing.assert_allclose(run("STFT", x, np.array(8), window, np.array(16)), expected, rtol=1e-3, atol=1e-4)


def test_a_frame_longer_than_the_signal_is_named() -> None:
    with pytest.raises(ValueError, match="frames of 9 samples every 2 do not fit a signal of 8"):
        run("STFT", np.zeros((1, 8, 1), np.float32), np.array(2), None, np.array(9))
    with pytest.raises(ValueError, match=r"window has shape \(4,\), but a frame has 5 samples"):
        run("STFT", np.zeros((1, 8, 1), np.float32), np.array(2), np.ones(4, np.float32), np.array(5))


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@quick
@given(size=st.integers(2, 20), periodic=st.integers(0, 1), code=st.sampled_from([1, 11, 10, 7]))
def test_windows_are_the_references(name: str, size: int, periodic: int, code: int) -> None:
    expected = by_reference(name, np.array(size), periodic=periodic, output_datatype=11)
    result = run(name, np.array(size), periodic=periodic, output_datatype=code)
    tolerance = {1: 1e-6, 11: 1e-9, 10: 1e-3, 7: 1.0}[code]
    np.testing.assert_allclose(result.astype(np.float64), expected, atol=tolerance)


def test_short_windows_have_no_division_by_zero() -> None:
    assert run("HannWindow", np.array(0)).shape == (0,)
    assert run("HannWindow", np.array(1), periodic=0).tolist() == [1.0]
    with pytest.raises(ValueError, match="size is -1, expected zero or more"):
        run("HannWindow", np.array(-1))


@quick
@given(
    bands=st.integers(1, 12),
    size=st.sampled_from([16, 32, 63, 64]),
    rate=st.sampled_from([4000, 8192]),
    low=st.sampled_from([0.0, 100.0]),
)
def test_mel_weights_are_onnxruntimes(bands: int, size: int, rate: int, low: float) -> None:
    inputs = (np.array(bands), np.array(size), np.array(rate), np.array(low, np.float32), np.array(rate * 0.4, np.float32))
    (expected,) = by_onnxruntime("MelWeightMatrix", *inputs, like=[np.zeros(0, np.float32)], version=17)
    np.testing.assert_allclose(run("MelWeightMatrix", *inputs), expected, rtol=1e-5, atol=1e-6)


def test_signals_keep_symbols() -> None:
    n, t = symbol("N"), symbol("T")
    assert known_shape("DFT", [f32("N", "T", 1)], onesided=1) == (n, t // 2 + 1, 2)
    assert known_shape("DFT", [f32("N", 9, 2), i64(16)], version=17, inverse=1, onesided=1) == (n, 16, 1)
    assert known_shape("STFT", [f32("N", "T", 1), i64(4), None, i64(8)]) == (n, t // 4 - 1, 5, 2)
    assert known_shape("HannWindow", [(t,)]).shape == (t,)
