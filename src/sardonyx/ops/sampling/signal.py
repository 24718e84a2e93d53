"""Signals: DFT and STFT, the windows of spectral analysis, and MelWeightMatrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis
from sardonyx.ops.precision import narrow, widen


def _as_complex(x: Array) -> Array:
    """The last axis holds real parts alone, or real and imaginary parts."""
    wide = widen(x)
    return wide[..., 0] if x.shape[-1] == 1 else np.ascontiguousarray(wide).view(np.result_type(wide.dtype, np.complex64))[..., 0]


def _as_pairs(z: Array, dtype: np.dtype[Any]) -> Array:
    return narrow(np.stack((z.real, z.imag), axis=-1), dtype)


def fourier(x: Array, length: int | None, axis: int, *, inverse: bool, onesided: bool) -> Array:
    """The (inverse) discrete Fourier transform of signals [..., 1 or 2] along an axis."""
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise ValueError(f"input has shape {x.shape}, expected a last axis of 1 (real) or 2 (complex)")
    along = normalize_axis(axis, x.ndim)
    if along == x.ndim - 1:
        raise ValueError(f"axis {axis} is the axis of real and imaginary parts, which has no transform")
    if length is not None and length < 1:
        raise ValueError(f"dft_length is {length}, expected a positive number")
    signal = _as_complex(x)
    with np.errstate(all="ignore"):
        if onesided and inverse:
            if x.shape[-1] == 1:
                raise ValueError("the inverse of a one-sided spectrum needs complex input, the last axis has 1 element")
            return narrow(np.fft.irfft(signal, length, along)[..., None], x.dtype)
        if onesided:
            if x.shape[-1] == 2:
                raise ValueError("a one-sided spectrum exists for real input only, the last axis has 2 elements")
            return _as_pairs(np.fft.rfft(signal, length, along), x.dtype)
        transform = np.fft.ifft if inverse else np.fft.fft
        return _as_pairs(transform(signal, length, along), x.dtype)


def _number(value: Array | None) -> int | None:
    return None if value is None else int(np.asarray(value).reshape(-1)[0])


def _dft_17(x: Array, dft_length: Array | None = None, *, axis: int, inverse: int, onesided: int) -> Array:
    return fourier(x, _number(dft_length), axis, inverse=bool(inverse), onesided=bool(onesided))


def _dft(x: Array, dft_length: Array | None = None, axis: Array | None = None, *, inverse: int, onesided: int) -> Array:
    along = _number(axis)
    return fourier(x, _number(dft_length), -2 if along is None else along, inverse=bool(inverse), onesided=bool(onesided))


def _infer_dft_along(ctx: InferContext, axis: int | None) -> InferResult:
    x = ctx.shape(0)
    if x is None:
        return None
    if axis is None:
        return (*(ctx.fresh() for _ in x[:-1]), ctx.fresh())
    along = normalize_axis(axis, len(x))
    onesided, inverse = bool(ctx.attr("onesided")), bool(ctx.attr("inverse"))
    length: Dim = x[along]
    if onesided and inverse:
        length = (length - 1) * 2
    if ctx.has(1):
        known = ctx.dims(1)
        length = known[0] if known else ctx.fresh()
    result = list(x)
    result[along] = length // 2 + 1 if onesided and not inverse else length
    result[-1] = 1 if onesided and inverse else 2
    return tuple(result)


def _infer_dft_17(ctx: InferContext) -> InferResult:
    return _infer_dft_along(ctx, ctx.attr("axis"))


def _infer_dft(ctx: InferContext) -> InferResult:
    if not ctx.has(2):
        return _infer_dft_along(ctx, -2)
    known = ctx.ints(2)
    return _infer_dft_along(ctx, known[0] if known else None)


DFT_17 = op("DFT", eval=_dft_17, infer=_infer_dft_17, since=17, traits=Trait.REFUSES)
DFT = op("DFT", eval=_dft, infer=_infer_dft, since=20, traits=Trait.REFUSES)


def _stft(
    signal: Array, frame_step: Array, window: Array | None = None, frame_length: Array | None = None, *, onesided: int
) -> Array:
    step = _number(frame_step)
    samples = signal if signal.ndim == 3 else signal[..., None]
    if samples.ndim != 3 or samples.shape[-1] not in (1, 2):
        raise ValueError(f"signal has shape {signal.shape}, expected (batch, length, 1 or 2)")
    length = _number(frame_length)
    if length is None:
        length = samples.shape[1] if window is None else window.shape[0]
    if window is not None and window.shape != (length,):
        raise ValueError(f"window has shape {window.shape}, but a frame has {length} samples")
    if step is None or step < 1 or not 1 <= length <= samples.shape[1]:
        raise ValueError(f"frames of {length} samples every {step} do not fit a signal of {samples.shape[1]}")
    if onesided and samples.shape[-1] == 2:
        raise ValueError("a one-sided spectrum exists for real signals only, the last axis has 2 elements")
    frames = sliding_window_view(_as_complex(samples), length, axis=1)[:, ::step]
    with np.errstate(all="ignore"):
        if window is not None:
            frames = frames * widen(window)
        spectrum = np.fft.rfft(frames, axis=-1) if onesided else np.fft.fft(frames, axis=-1)
    return _as_pairs(spectrum, signal.dtype)


def _infer_stft(ctx: InferContext) -> InferResult:
    signal, window, step, given = ctx.shape(0, least=2), ctx.shape(2, rank=1), ctx.dims(1), ctx.dims(3)
    if signal is None:
        return ctx.unknown(4)
    length: Dim = ctx.fresh()
    if given:
        length = given[0]
    elif window is not None:
        length = window[0]
    elif not ctx.has(2) and not ctx.has(3):
        length = signal[1]
    if step and isinstance(step[0], int) and step[0] < 1:
        raise ValueError(f"frame_step is {step[0]}, expected a positive number")
    frames = (signal[1] - length) // step[0] + 1 if step else ctx.fresh()
    return (signal[0], frames, length // 2 + 1 if ctx.attr("onesided") else length, 2)


STFT = op("STFT", eval=_stft, infer=_infer_stft, since=17, traits=Trait.REFUSES)


def _mel_weight_matrix(
    num_mel_bins: Array,
    dft_length: Array,
    sample_rate: Array,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    *,
    output_datatype: int,
) -> Array:
    bands, size, rate = (int(np.asarray(value).reshape(-1)[0]) for value in (num_mel_bins, dft_length, sample_rate))
    low, high = (float(np.asarray(value).reshape(-1)[0]) for value in (lower_edge_hertz, upper_edge_hertz))
    if bands < 1 or size < 1 or rate < 1:
        raise ValueError(f"num_mel_bins {bands}, dft_length {size} and sample_rate {rate} must be positive")
    low_mel, high_mel = (2595 * np.log10(1 + hertz / 700) for hertz in (low, high))
    edges = low_mel + np.arange(bands + 2) * ((high_mel - low_mel) / (bands + 2))
    hertz = 700 * (10 ** (edges / 2595) - 1)
    bins = np.floor((size + 1) * hertz / rate).astype(np.int64)
    lower, centre, upper = bins[:-2], bins[1:-1], bins[2:]
    row = np.arange(size // 2 + 1)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where(centre == lower, row == centre, (row - lower) / (centre - lower))
        falling = (upper - row) / (upper - centre)
    weights = np.where((row >= lower) & (row <= centre), rising, 0.0)
    weights = np.where((row >= centre) & (row < upper), np.where(row == centre, 1.0, falling), weights)
    return narrow(weights, dtypes.from_onnx(output_datatype).numpy)


def _infer_mel_weight_matrix(ctx: InferContext) -> InferResult:
    bands, size = ctx.dims(0), ctx.dims(1)
    shape = (size[0] // 2 + 1 if size else ctx.fresh(), bands[0] if bands else ctx.fresh())
    return TensorType(dtypes.from_onnx(ctx.attr("output_datatype")), shape)


MEL_WEIGHT_MATRIX = op("MelWeightMatrix", eval=_mel_weight_matrix, infer=_infer_mel_weight_matrix, since=17)


def _window(size: Array, output_datatype: int, periodic: int, shape: Callable[[Array], Array]) -> Array:
    """A window of `size` points; `shape` maps angles from 0 to a whole turn to its values."""
    count = int(np.asarray(size).reshape(-1)[0])
    if count < 0:
        raise ValueError(f"size is {count}, expected zero or more")
    steps = count if periodic else count - 1
    values = shape(np.arange(count) * (2 * np.pi / steps)) if steps > 0 else np.ones(count)
    return narrow(values, dtypes.from_onnx(output_datatype).numpy)


def _hann(size: Array, *, output_datatype: int, periodic: int) -> Array:
    return _window(size, output_datatype, periodic, lambda angle: 0.5 - 0.5 * np.cos(angle))


def _hamming(size: Array, *, output_datatype: int, periodic: int) -> Array:
    return _window(size, output_datatype, periodic, lambda angle: 25 / 46 - 21 / 46 * np.cos(angle))


def _blackman(size: Array, *, output_datatype: int, periodic: int) -> Array:
    return _window(size, output_datatype, periodic, lambda angle: 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle))


def _infer_window(ctx: InferContext) -> InferResult:
    size = ctx.dims(0)
    return TensorType(dtypes.from_onnx(ctx.attr("output_datatype")), (size[0] if size else ctx.fresh(),))


HANN_WINDOW = op("HannWindow", eval=_hann, infer=_infer_window, since=17)
HAMMING_WINDOW = op("HammingWindow", eval=_hamming, infer=_infer_window, since=17)
BLACKMAN_WINDOW = op("BlackmanWindow", eval=_blackman, infer=_infer_window, since=17)
