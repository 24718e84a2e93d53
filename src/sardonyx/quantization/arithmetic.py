"""Scales, zero points and quantized numbers: real = scale * (quantized - zero point).

                 rmin            0                  rmax          the range that is to be represented, widened to hold zero
                  |--------------+--------------------|
                 qmin        zero point              qmax         the integers of the type

Arrays go in and come out; nothing here knows of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from ml_dtypes import int4, uint4
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.quantization.types import QuantType, element_type

Array = NDArray[Any]


def _range(dtype: Any, low: int, high: int) -> tuple[Array, Array]:
    return np.array(low, dtype), np.array(high, dtype)


FULL_RANGES: Final = {
    dtypes.UINT8: _range(np.uint8, 0, 255),
    dtypes.INT8: _range(np.int8, -128, 127),
    dtypes.UINT16: _range(np.uint16, 0, 65535),
    dtypes.INT16: _range(np.int16, -32768, 32767),
    dtypes.UINT4: _range(uint4, 0, 15),
    dtypes.INT4: _range(int4, -8, 7),
}
SYMMETRIC_RANGES: Final = {dtypes.INT8: _range(np.int8, -127, 127), dtypes.INT16: _range(np.int16, -32767, 32767)}
REDUCED_RANGES: Final = {
    dtypes.UINT8: _range(np.uint8, 0, 127),
    dtypes.INT8: _range(np.int8, -64, 64),
    dtypes.UINT16: _range(np.uint16, 0, 32767),
    dtypes.INT16: _range(np.int16, -16384, 16384),
    dtypes.UINT4: _range(uint4, 0, 7),
    dtypes.INT4: _range(int4, -4, 3),
}
FLOAT8: Final = frozenset((dtypes.FLOAT8E4M3FN, dtypes.FLOAT8E4M3FNUZ, dtypes.FLOAT8E5M2, dtypes.FLOAT8E5M2FNUZ))
_FLOAT8_DEVIATIONS: Final[dict[DType, np.floating[Any]]] = {}


def quantized_range(given: QuantType | DType | int, reduce_range: bool = False, symmetric: bool = False) -> tuple[Array, Array]:
    """The least and the greatest integer that a type is used with."""
    dtype = element_type(given)
    if dtype in FLOAT8:
        raise NotImplementedError(f"{dtype.ort} has no range of integers")
    ranges = REDUCED_RANGES if reduce_range else SYMMETRIC_RANGES if symmetric and dtype in SYMMETRIC_RANGES else FULL_RANGES
    if dtype not in ranges:
        known = ", ".join(each.ort for each in FULL_RANGES)
        raise ValueError(f"Unexpected data type {dtype.ort} requested: quantized integers are {known}")
    return ranges[dtype]


def compute_scale_zp(
    rmin: Any, rmax: Any, qmin: Array, qmax: Array, symmetric: bool = False, min_real_range: float | None = None
) -> list[Array]:
    """Zero point and scale that represent [rmin, rmax] by [qmin, qmax], in this order.

    The range is widened to hold zero, to span `min_real_range` at least, and, if `symmetric`, to reach as far on both sides.
    """
    if qmin > 0 or qmax < 0:
        raise ValueError(f"qmin and qmax must meet requirement: qmin <= 0 <= qmax while qmin:{qmin}, qmmax:{qmax}")
    zero, scale = _scales(np.asarray(rmin), np.asarray(rmax), qmin, qmax, symmetric, min_real_range)
    return [zero, scale]


def _scales(
    rmin: Array, rmax: Array, qmin: Array, qmax: Array, symmetric: bool, min_real_range: float | None
) -> tuple[Array, Array]:
    """The same for any number of ranges at once."""
    real = rmax.dtype
    low, high = np.minimum(rmin, np.zeros((), rmin.dtype)), np.maximum(rmax, np.zeros((), real))
    if min_real_range is not None:
        high = np.maximum(high, low + np.asarray(min_real_range, low.dtype))
    if symmetric:
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    least, greatest = np.float64(qmin), np.float64(qmax)
    scale = np.asarray(np.asarray(high - low).astype(np.float64) / (greatest - least))
    degenerate = scale < np.finfo(real).tiny
    scale = np.where(degenerate, 1.0, scale)
    if symmetric:  # independent of the scale: kernels expect the same zero point in all channels
        zero = np.full(scale.shape, np.round((least + greatest) / 2))
    else:
        zero = np.round(least - low / scale)
    return np.where(degenerate, 0.0, zero).astype(qmin.dtype), scale.astype(real)


def snap_zero_point_to_uint8(
    rmin: Any, rmax: Any, qmin: Any = 0, qmax: Any = 255, min_real_range: float | None = None
) -> tuple[Array, Array]:
    """Zero point and scale of an activation whose zero point is the least integer (no negative values) or the middle one."""
    least, greatest = int(qmin), int(qmax)
    middle = (least + greatest + 1) // 2
    low, high = min(float(np.squeeze(rmin)), 0.0), max(float(np.squeeze(rmax)), 0.0)
    if min_real_range is not None and min_real_range > 0:
        high = max(high, low + float(min_real_range))
    if high <= low:  # both are zero: one step is a fraction of 1
        zero, scale = least, 1.0 / max(1, greatest - least)
    elif low >= 0:
        zero, scale = least, high / (greatest - least)
    else:
        zero, scale = middle, max(-low / (middle - least), high / (greatest - middle))
    if min_real_range is not None:
        scale = max(scale, min_real_range / (greatest - least))
    return np.array(zero, np.uint8), np.array(scale, np.float32)


def compute_scale_zp_float8(given: QuantType | DType | int, std: Any) -> list[Array]:
    """Zero point and scale that give numbers of standard deviation `std` the spread of all float8 numbers."""
    try:
        dtype = element_type(given)
    except ValueError as error:
        raise ValueError(f"Quantization to element_type={given} not implemented: {error}") from None
    if dtype is not dtypes.FLOAT8E4M3FN:
        raise ValueError(f"Quantization to element_type={given} not implemented: only to float8e4m3fn")
    if dtype not in _FLOAT8_DEVIATIONS:
        every = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
        _FLOAT8_DEVIATIONS[dtype] = np.std(every[np.isfinite(every)])
    return [np.array(0, dtype.numpy), np.array(std / _FLOAT8_DEVIATIONS[dtype], np.asarray(std).dtype)]


def compute_data_quant_params(
    data: Array,
    quant_type: QuantType | DType | int,
    symmetric: bool,
    reduce_range: bool = False,
    min_real_range: float | None = None,
    rmin_override: float | None = None,
    rmax_override: float | None = None,
) -> tuple[Array, Array]:
    """Zero point and scale for these numbers, whose least and greatest may be overridden."""
    if not isinstance(data, np.ndarray):
        raise TypeError(f"Weight must be given as an array not {type(data)}.")
    try:
        dtype = element_type(quant_type)
    except ValueError:
        raise ValueError(f"Unexpected value for quant_type={quant_type}.") from None
    if dtype is dtypes.FLOAT8E4M3FN:
        if reduce_range:
            raise RuntimeError("Unsupported option reduce_range=True for float 8.")
        zero, scale = compute_scale_zp_float8(dtype, np.std(data))
        return zero, scale
    if dtype not in FULL_RANGES:
        raise ValueError(f"Unexpected value for quant_type={quant_type}.")
    qmin, qmax = quantized_range(dtype, reduce_range, symmetric)
    if not data.size:
        return np.array(0, qmin.dtype), np.array(1, data.dtype)
    rmin = np.array(data.min() if rmin_override is None else rmin_override, data.dtype)
    rmax = np.array(data.max() if rmax_override is None else rmax_override, data.dtype)
    zero, scale = compute_scale_zp(rmin, rmax, qmin, qmax, symmetric, min_real_range)
    return zero, scale


def channel_parameters(
    data: Array,
    dtype: DType,
    axis: int,
    symmetric: bool,
    reduce_range: bool,
    min_real_range: float | None,
    limits: Sequence[tuple[float | None, float | None]] = (),
) -> tuple[Array, Array]:
    """Zero points and scales of the channels along an axis; `limits` override the range of the first channels."""
    count = data.shape[axis]
    rows = np.moveaxis(data, axis, 0).reshape(count, -1)
    if dtype is dtypes.FLOAT8E4M3FN:
        found = [compute_data_quant_params(row, dtype, symmetric, reduce_range) for row in rows]
        return np.array([zero for zero, _ in found], dtype.numpy), np.array([scale for _, scale in found], data.dtype)
    qmin, qmax = quantized_range(dtype, reduce_range, symmetric)
    if not data.size:
        return np.zeros(count, qmin.dtype), np.ones(count, data.dtype)
    low, high = rows.min(axis=1), rows.max(axis=1)
    for index, (least, greatest) in enumerate(limits[:count]):
        low[index] = low[index] if least is None else least
        high[index] = high[index] if greatest is None else greatest
    return _scales(low, high, qmin, qmax, symmetric, min_real_range)


def block_count(size: int, block_size: int) -> int:
    """How many blocks a size is cut into; the last may be shorter."""
    return -(-size // block_size)


def compute_scale_zp_blocked(
    weight: Array, quant_type: QuantType | DType | int, axis: int, block_size: int, symmetric: bool
) -> tuple[Array, Array]:
    """Zero points and scales of blocks along an axis of a matrix; like the matrix, with one element a block on that axis."""
    if weight.ndim != 2:
        raise NotImplementedError(
            f"blocks are for matrices, but the weight has shape {weight.shape}: reshape it, or quantize it per channel"
        )
    dtype = element_type(quant_type)
    qmin, qmax = (np.float64(each) for each in quantized_range(dtype, False, symmetric))
    moved = np.moveaxis(weight, axis, 0)
    blocks = block_count(moved.shape[0], block_size)
    padded = np.zeros((blocks * block_size, moved.shape[1]), weight.dtype)
    padded[: moved.shape[0]] = moved
    cut = padded.reshape(blocks, block_size, -1)
    low, high = np.minimum(cut.min(axis=1), 0), np.maximum(cut.max(axis=1), 0)
    if symmetric:
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    scales = ((high - low).astype(np.float64) / (qmax - qmin)).astype(weight.dtype)
    degenerate = scales < np.finfo(weight.dtype).tiny
    scales = np.where(degenerate, np.ones_like(scales), scales)
    if symmetric:
        zeros = np.full(scales.shape, int(np.round((qmin + qmax) / 2))).astype(dtype.numpy)
    else:
        exact = np.round(qmin - low.astype(np.float64) / scales.astype(np.float64))
        zeros = np.where(degenerate, 0, np.clip(exact, qmin, qmax)).astype(dtype.numpy)
    return np.moveaxis(zeros, 0, axis), np.moveaxis(scales, 0, axis)


def quantize_nparray(
    qType: QuantType | DType | int, arr: Array, scale: Any, zero_point: Any, low: Any = None, high: Any = None
) -> Array:
    """The quantized numbers of an array, rounded to even and kept within the type (and within `low` and `high`).

    Scale and zero point are numbers, or arrays that broadcast.
    """
    dtype = element_type(qType)
    if dtype in FLOAT8:
        if np.any(np.asarray(zero_point, np.float32) != 0):
            raise NotImplementedError(f"zero_point is expected to be null for float 8 not {zero_point!r}.")
        if arr.dtype not in (np.float32, np.float16):
            raise ValueError(f"Unexpected dtype {arr.dtype}.")
        limit = np.float32(np.finfo(np.float32).max) if dtype is not dtypes.FLOAT8E4M3FN else np.float32(448)
        exact = arr.astype(np.float32) / np.asarray(scale, np.float32)
        return np.asarray(np.clip(exact, -limit, limit).astype(dtype.numpy))
    if dtype not in FULL_RANGES:
        raise AssertionError(f"Unexpected data type {dtype.ort} requested. Only INT8, UINT8, INT16, and UINT16 are supported.")
    qmin, qmax = (int(each) for each in FULL_RANGES[dtype])
    least = qmin if low is None else max(qmin, int(low))
    greatest = qmax if high is None else min(qmax, int(high))
    zero = np.asarray(zero_point).astype(np.float32)
    exact = np.asarray((arr.astype(np.float32) / np.asarray(scale)).round() + zero)
    return np.clip(exact, least, greatest).astype(dtype.numpy)


def quantize_data(
    data: Array,
    qType: QuantType | DType | int,
    symmetric: bool,
    reduce_range: bool = False,
    min_real_range: float | None = None,
    rmin_override: float | None = None,
    rmax_override: float | None = None,
) -> tuple[Array, Array, Array]:
    """Zero point, scale, and the quantized numbers of an array."""
    zero, scale = compute_data_quant_params(data, qType, symmetric, reduce_range, min_real_range, rmin_override, rmax_override)
    quantized = quantize_nparray(qType, data, scale, zero)
    if element_type(qType) in FLOAT8 and np.isnan(quantized.astype(np.float32)).any():
        raise RuntimeError(f"numbers in [{data.min()}, {data.max()}] become NaN in float 8")
    return zero, scale, quantized


def quantize_weight(data: Array, dtype: DType, zero: Array, scale: Array, axis: int | None, block_size: int = 0) -> Array:
    """A weight quantized as a whole, by channels along an axis, or by blocks along it; the result has the weight's shape."""
    if axis is None:
        return quantize_nparray(dtype, data, scale, zero).reshape(data.shape)
    if block_size:
        size = data.shape[axis]
        scale, zero = (np.repeat(each, block_size, axis).take(np.arange(size), axis) for each in (scale, zero))
    else:
        shape = [1] * data.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return quantize_nparray(dtype, data, scale, zero)


def dequantize(data: Array, zero: Array | None, scale: Array, axis: int | None = None, block_size: int = 0) -> Array:
    """The real numbers that quantized ones stand for."""
    zero = np.zeros(scale.shape, np.float32) if zero is None else zero.astype(np.float32)
    if scale.size > 1 and axis is not None:
        if block_size:
            size = data.shape[axis]
            scale, zero = (np.repeat(each, block_size, axis).take(np.arange(size), axis) for each in (scale, zero))
        else:
            shape = [1] * data.ndim
            shape[axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
    real = (data.astype(np.float32) - zero) * scale.astype(np.float32)
    return np.asarray(real).reshape(data.shape)


def least_weight_scale(bias: Array, input_scale: Array, weight_scale: Array, per_channel: bool) -> Array:
    """The scale of a weight, enlarged as far as its bias needs it: in units of both scales a bias must fit 32 bits."""
    if not weight_scale.size or not bias.size:
        return weight_scale
    room = 2.0 * np.iinfo(np.int32).max
    magnitude = np.abs(bias.astype(np.float64))
    if not per_channel:
        magnitude = np.array(magnitude.max())
    elif weight_scale.ndim != 1:
        return weight_scale
    least = 1.0001 * 2.0 * magnitude.reshape(weight_scale.shape) / room
    product = np.float64(input_scale.reshape(-1)[0]) * weight_scale.astype(np.float64)
    too_small = (product < least) & (product > 0)
    enlarged = weight_scale.astype(np.float64) * np.divide(least, product, out=np.ones_like(product), where=product > 0)
    return np.where(too_small, enlarged, weight_scale).astype(weight_scale.dtype)
