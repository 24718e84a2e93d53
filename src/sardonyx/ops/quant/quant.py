"""Linear quantization: to integers and small floats, back again, and products of quantized tensors.

    q = saturate(round(x / scale) + zero_point)        x = (q - zero_point) * scale

A scale (and zero point) is one number, one per slice of an axis, or one per block of `block_size` elements along an axis.
Rounding is half to even. Integer products are exact in 32 bits: sums that leave them wrap around.
Float16 and bfloat16 are divided in float32, as ONNX Runtime does, unless the `precision` attribute asks for less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.dims import ceildiv, product
from sardonyx.ir.types import TensorType
from sardonyx.ops.conv.conv import CONV, conv_core, convolved_shape, expect_channels
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis
from sardonyx.ops.matmul.matmul import expect_product, integer_matmul
from sardonyx.ops.products import matmul

Array = NDArray[Any]

_FLOAT8 = (dtypes.FLOAT8E4M3FN, dtypes.FLOAT8E4M3FNUZ, dtypes.FLOAT8E5M2, dtypes.FLOAT8E5M2FNUZ)
_TARGETS = (
    dtypes.INT8, dtypes.UINT8, dtypes.INT16, dtypes.UINT16, dtypes.INT32, dtypes.INT4, dtypes.UINT4, dtypes.INT2, dtypes.UINT2,
    *_FLOAT8, dtypes.FLOAT4E2M1, dtypes.FLOAT6E2M3, dtypes.FLOAT6E3M2,
)  # fmt: skip


def limits_of(dtype: DType) -> tuple[int, int] | tuple[float, float]:
    """The least and the largest finite value of an integer or floating point type."""
    if dtype.is_float:
        floats = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
        return float(floats.min), float(floats.max)
    integers = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return int(integers.min), int(integers.max)


def along(parameter: Array, shape: tuple[int, ...], axis: int, block_size: int = 0, what: str = "scale") -> Array:
    """A scale or zero point in a form that broadcasts against a tensor of this shape."""
    if not block_size and parameter.size == 1:
        return parameter.reshape(())
    if not block_size:
        if parameter.ndim != 1:
            raise ValueError(f"the {what} has shape {parameter.shape}; without block_size it must be a scalar or have one axis")
        axis = 0 if len(shape) == 1 else normalize_axis(axis, len(shape))
        if parameter.size != shape[axis]:
            raise ValueError(f"the {what} has {parameter.size} elements but axis {axis} of the tensor {shape} has {shape[axis]}")
        return parameter.reshape([-1 if position == axis else 1 for position in range(len(shape))])
    if parameter.ndim == 0:
        return parameter
    axis = normalize_axis(axis, len(shape))
    expected = (*shape[:axis], -(-shape[axis] // block_size), *shape[axis + 1 :])
    if parameter.shape != expected:
        raise ValueError(
            f"the {what} has shape {parameter.shape}, expected {expected}: "
            f"the tensor {shape} in blocks of {block_size} along axis {axis}"
        )
    blocks = np.repeat(parameter, min(block_size, shape[axis]), axis)  # blocks may be longer than the axis
    return blocks[(slice(None),) * axis + (slice(shape[axis]),)]


def saturate_to(values: Array, dtype: DType, saturate: bool = True) -> Array:
    """Rounded (integers) or unrounded (small floats) values as `dtype`; what is out of range becomes the nearest limit.

    NaN becomes the least integer. With `saturate` off, float8 overflows to infinity or NaN instead.
    """
    if dtype.is_float:
        if saturate and dtype in _FLOAT8:
            values = np.clip(values, *limits_of(dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(dtype.numpy)
    wide = np.float64 if dtype is dtypes.INT32 else values.dtype  # float32 has no 2**31 - 1
    low, high = np.asarray(limits_of(dtype), wide)
    limited: Array = np.fmin(np.fmax(values, low), high)
    if dtype.bits >= 8:
        return limited.astype(dtype.numpy)
    byte = np.int8 if dtype in dtypes.SIGNED else np.uint8
    return limited.astype(byte).astype(dtype.numpy)


def quantize(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    dtype: DType | None = None,
    axis: int = 1,
    block_size: int = 0,
    saturate: bool = True,
    precision: DType | None = None,
) -> Array:
    """saturate(round(x / scale) + zero_point). The result has the type of the zero point, else `dtype`, else uint8."""
    if zero_point is not None:
        found = dtypes.from_numpy(zero_point.dtype)
        if dtype is not None and dtype is not found:
            raise ValueError(f"the output type is {dtype} but the zero point is {found}: they must agree")
        if zero_point.size != scale.size:
            raise ValueError(f"the zero point has shape {zero_point.shape} but the scale {scale.shape}: they must agree")
        dtype = found
    dtype = dtype or dtypes.UINT8
    if dtype not in _TARGETS:
        raise ValueError(f"cannot quantize to {dtype}; possible are {', '.join(target.name for target in _TARGETS)}")
    wide = np.dtype(np.float64 if scale.dtype.kind in "iu" or np.float64 in (scale.dtype, x.dtype) else np.float32)
    divided = wide if precision is None else precision.numpy
    broadcast = along(scale, x.shape, axis, block_size)
    with np.errstate(all="ignore"):  # x / 0, infinities and NaN saturate
        ratio = (x.astype(divided) / broadcast.astype(divided)).astype(wide, copy=False)
        if dtype.is_integer:
            ratio = np.rint(ratio)
        if zero_point is not None:
            ratio = ratio + along(zero_point, x.shape, axis, block_size, "zero point").astype(wide)
        return np.asarray(saturate_to(ratio, dtype, saturate))


def dequantize(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    dtype: DType | None = None,
    axis: int = 1,
    block_size: int = 0,
) -> Array:
    """(x - zero_point) * scale, computed in float32 (or float64, if the scale is) and given as `dtype` or the scale's type."""
    target = scale.dtype if dtype is None else dtype.numpy
    wide = np.promote_types(scale.dtype, np.float32) if scale.dtype.kind == "f" else np.dtype(np.float32)
    if zero_point is None:
        centred = x.astype(wide)
    else:
        if zero_point.dtype != x.dtype:
            found, expected = dtypes.from_numpy(zero_point.dtype), dtypes.from_numpy(x.dtype)
            raise ValueError(f"the zero point is {found} but the tensor is {expected}: they must agree")
        if zero_point.size != scale.size:
            raise ValueError(f"the zero point has shape {zero_point.shape} but the scale {scale.shape}: they must agree")
        exact = np.int64 if x.dtype == np.int32 else wide  # float32 does not hold every int32
        offset = along(zero_point, x.shape, axis, block_size, "zero point").astype(exact)
        centred = (x.astype(exact) - offset).astype(wide, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        product = centred * along(scale, x.shape, axis, block_size).astype(wide)
        return np.asarray(product.astype(target, copy=False))


def _dtype_attr(code: int | None) -> DType | None:
    return dtypes.from_onnx(code) if code else None


def _quantize_linear_10(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    if scale.size != 1:
        raise ValueError(f"the scale has shape {scale.shape}; before opset 13 it must be a scalar")
    return quantize(x, scale, zero_point)


def _quantize_linear_13(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int) -> Array:
    return quantize(x, scale, zero_point, axis=axis)


def _quantize_linear_19(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int, saturate: int) -> Array:
    return quantize(x, scale, zero_point, axis=axis, saturate=bool(saturate))


def _quantize_linear_21(
    x: Array, scale: Array, zero_point: Array | None = None, *, axis: int, block_size: int, output_dtype: int, saturate: int
) -> Array:
    dtype = _dtype_attr(output_dtype)
    return quantize(x, scale, zero_point, dtype=dtype, axis=axis, block_size=block_size, saturate=bool(saturate))


def _quantize_linear_23(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int,
    block_size: int,
    output_dtype: int,
    precision: int,
    saturate: int,
) -> Array:
    return quantize(
        x,
        scale,
        zero_point,
        dtype=_dtype_attr(output_dtype),
        axis=axis,
        block_size=block_size,
        saturate=bool(saturate),
        precision=_dtype_attr(precision),
    )


def _check_parameters(ctx: InferContext) -> None:
    """ValueError if the shapes of tensor, scale and zero point contradict each other."""
    shape, scale, zero_point = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    _expect_parameters(ctx)
    if scale is not None and zero_point is not None and len(scale) and len(zero_point):
        for first, second in zip(scale, zero_point, strict=False):
            if isinstance(first, int) and isinstance(second, int) and first != second:
                raise ValueError(f"the zero point has {second} elements where the scale has {first}")
    if shape is None or scale is None or ctx.attr("block_size") or len(scale) != 1 or len(shape) < 2:
        return
    axis = ctx.attr("axis")
    count = scale[0]
    if axis is not None and isinstance(count, int) and count != 1:
        size = shape[normalize_axis(axis, len(shape))]
        if isinstance(size, int) and size != count:
            raise ValueError(f"the scale has {count} elements but axis {axis} of the tensor has {size}")


def _expect_parameters(ctx: InferContext) -> None:
    """State that there is a scale for all elements, or one for each slice or block of them, and as many zero points."""
    shape, scale, zero_point = ctx.shape(0), ctx.shape(1), ctx.shape(2) if ctx.has(2) else None
    if scale is not None and zero_point is not None:
        ctx.expect_equal(product(zero_point), product(scale))
    if not shape or not scale:
        return
    axis = 0 if len(shape) == 1 else normalize_axis(1 if ctx.attr("axis") is None else ctx.attr("axis"), len(shape))
    block = ctx.attr("block_size") or 0
    blocks = (*shape[:axis], ceildiv(shape[axis], block), *shape[axis + 1 :]) if block else (shape[axis],)
    if len(scale) == 1 and not block:
        ctx.expect_broadcast(scale, blocks)
    else:
        for index in (1, 2):
            ctx.expect_shape(index, *blocks)


def _infer_quantize(ctx: InferContext) -> InferResult:
    _check_parameters(ctx)
    dtype = ctx.dtype(2) or _dtype_attr(ctx.attr("output_dtype"))
    if dtype is None and ctx.has(2):
        return ctx.shape(0)
    return TensorType(dtype or dtypes.UINT8, ctx.shape(0))


def _infer_dequantize(ctx: InferContext) -> InferResult:
    _check_parameters(ctx)
    dtype = _dtype_attr(ctx.attr("output_dtype")) or ctx.dtype(1)
    if dtype is not None and not dtype.is_float:
        raise ValueError(f"the result would be {dtype.name}: expected a type of floats")
    return ctx.shape(0) if dtype is None else TensorType(dtype, ctx.shape(0))


op("QuantizeLinear", since=10, eval=_quantize_linear_10, infer=_infer_quantize, traits=Trait.AHEAD)
op("QuantizeLinear", since=13, eval=_quantize_linear_13, infer=_infer_quantize, traits=Trait.AHEAD)
op("QuantizeLinear", since=19, eval=_quantize_linear_19, infer=_infer_quantize, traits=Trait.AHEAD)
op("QuantizeLinear", since=21, eval=_quantize_linear_21, infer=_infer_quantize, traits=Trait.AHEAD)
op("QuantizeLinear", since=23, eval=_quantize_linear_23, infer=_infer_quantize, traits=Trait.AHEAD)


def _dequantize_linear_10(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    if scale.size != 1:
        raise ValueError(f"the scale has shape {scale.shape}; before opset 13 it must be a scalar")
    return dequantize(x, scale, zero_point)


def _dequantize_linear_13(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int) -> Array:
    return dequantize(x, scale, zero_point, axis=axis)


def _dequantize_linear_21(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int, block_size: int) -> Array:
    return dequantize(x, scale, zero_point, axis=axis, block_size=block_size)


def _dequantize_linear_23(
    x: Array, scale: Array, zero_point: Array | None = None, *, axis: int, block_size: int, output_dtype: int
) -> Array:
    return dequantize(x, scale, zero_point, dtype=_dtype_attr(output_dtype), axis=axis, block_size=block_size)


op("DequantizeLinear", since=10, eval=_dequantize_linear_10, infer=_infer_dequantize, traits=Trait.AHEAD | Trait.WIDENS)
op("DequantizeLinear", since=13, eval=_dequantize_linear_13, infer=_infer_dequantize, traits=Trait.AHEAD | Trait.WIDENS)
op("DequantizeLinear", since=21, eval=_dequantize_linear_21, infer=_infer_dequantize, traits=Trait.AHEAD | Trait.WIDENS)
op("DequantizeLinear", since=23, eval=_dequantize_linear_23, infer=_infer_dequantize, traits=Trait.AHEAD | Trait.WIDENS)


def dynamic_parameters(x: Array, dtype: DType = dtypes.UINT8) -> tuple[Array, Array]:
    """The scale and zero point that map the range of x, widened to hold 0, to the whole range of `dtype`."""
    least, largest = limits_of(dtype)
    with np.errstate(all="ignore"):
        low = np.fmin.reduce(x, axis=None, initial=np.float32(0))
        high = np.fmax.reduce(x, axis=None, initial=np.float32(0))
        span = np.float32(high) - np.float32(low)
        scale = np.asarray(span / np.float32(largest - least) if span > 0 else 1, np.float32)
        zero_point = np.rint(np.float32(least) - low / scale)
    return scale, np.asarray(saturate_to(np.asarray(zero_point, np.float32), dtype))


def _dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    scale, zero_point = dynamic_parameters(x)
    return quantize(x, scale, zero_point), scale, zero_point


op("DynamicQuantizeLinear", since=11, eval=_dynamic_quantize_linear, infer=lambda ctx: [ctx.shape(0), (), ()])


def _centred(x: Array, zero_point: Array | None) -> Array:
    """x - zero_point without overflow: 16 bits for 8-bit integers, float32 for small floats."""
    wide = x.astype(np.int16 if x.dtype.kind in "iu" else np.float32)
    return wide if zero_point is None else wide - zero_point.astype(wide.dtype)


def _per_row(parameter: Array) -> Array:
    """A vector of one value per row of a matrix, as a column; a single value as a scalar; anything else as it is."""
    if parameter.ndim != 1:
        return parameter
    return parameter.reshape(()) if parameter.size == 1 else parameter[:, None]


def _per_column(parameter: Array) -> Array:
    return parameter.reshape(()) if parameter.shape == (1,) else parameter


def _per_kernel(parameter: Array, rank: int) -> Array:
    """A scale or zero point of convolution kernels, in front of `rank` axes to broadcast over."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, *(1,) * rank)


def matmul_integer(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
    """(a - a_zero_point) @ (b - b_zero_point) in int32; a's zero point may be given per row, b's per column."""
    rows = None if a_zero_point is None else _per_row(a_zero_point)
    columns = None if b_zero_point is None else _per_column(b_zero_point)
    return integer_matmul(_centred(a, rows), _centred(b, columns))


def _qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    rows = a[None, :] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    left, right = _centred(rows, _per_row(a_zero_point)), _centred(columns, _per_column(b_zero_point))
    product = integer_matmul(left, right) if left.dtype.kind == right.dtype.kind == "i" else matmul(left, right)
    result = requantize(product, _per_row(a_scale), _per_column(b_scale), y_scale, y_zero_point)
    added = ((-2,) if a.ndim == 1 else ()) + ((-1,) if b.ndim == 1 else ())
    return np.asarray(result.squeeze(added))


def requantize(product: Array, first: Array, second: Array, y_scale: Array, y_zero_point: Array) -> Array:
    """An accumulated product, whose factors have these scales, as the quantized output."""
    factor = first.astype(np.float32) * second.astype(np.float32) / y_scale.astype(np.float32)
    dtype = dtypes.from_numpy(y_zero_point.dtype)
    with np.errstate(all="ignore"):
        value = product.astype(np.float32) * factor
        if dtype.is_integer:
            value = np.rint(value)
        return np.asarray(saturate_to(value + y_zero_point.astype(np.float32), dtype))


def _expect_rows_and_columns(ctx: InferContext, b: int, rows: Sequence[int], columns: Sequence[int]) -> InferResult:
    """A product of inputs 0 and `b`, with parameters for each row of A and for each column of B, or one for all."""
    left, right = ctx.shape(0), ctx.shape(b)
    result = expect_product(ctx, left, right)
    for indices, shape, axis in ((rows, left, -2), (columns, right, -1)):
        for index in indices:
            parameter = ctx.shape(index) if ctx.has(index) else None
            if shape is not None and parameter is not None and len(parameter) == 1:
                ctx.expect_broadcast(parameter, (shape[axis] if len(shape) > 1 else 1,))
    return result


def _infer_qlinear_matmul(ctx: InferContext) -> InferResult:
    for index in (6, 7):
        ctx.expect_equal(product(ctx.shape(index) or ()), 1)
    return _expect_rows_and_columns(ctx, 3, (1, 2), (4, 5))


def _infer_matmul_integer(ctx: InferContext) -> InferResult:
    return _expect_rows_and_columns(ctx, 1, (2,), (3,))


op("QLinearMatMul", since=10, eval=_qlinear_matmul, infer=_infer_qlinear_matmul)
op("MatMulInteger", since=10, eval=matmul_integer, infer=_infer_matmul_integer)


def _conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    **geometry: Any,
) -> Array:
    return conv_core(
        _centred(x, None if x_zero_point is None else x_zero_point.reshape(())),
        _centred(w, None if w_zero_point is None else _per_kernel(w_zero_point, w.ndim - 1)),
        **geometry,
    )


def _qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    bias: Array | None = None,
    **geometry: Any,
) -> Array:
    total = conv_core(_centred(x, x_zero_point.reshape(())), _centred(w, _per_kernel(w_zero_point, w.ndim - 1)), bias, **geometry)
    return requantize(total, x_scale.reshape(()), _per_kernel(w_scale, w.ndim - 2), y_scale.reshape(()), y_zero_point.reshape(()))


def _infer_conv(ctx: InferContext, kernels: int, ones: Sequence[int], per_kernel: Sequence[int], bias: int) -> InferResult:
    """A convolution of input 0 with `kernels`; some parameters are one number, some may have one for each kernel."""
    expect_channels(ctx, kernels, bias)
    w = ctx.shape(kernels)
    for index in (*ones, *per_kernel):
        parameter = ctx.shape(index) if ctx.has(index) else None
        if parameter is not None and (index in ones or w is None or len(parameter) != 1):
            ctx.expect_equal(product(parameter), 1)
        elif parameter is not None and w:
            ctx.expect_broadcast(parameter, w[:1])
    return convolved_shape(ctx, kernels)


op("ConvInteger", since=10, eval=_conv_integer, infer=lambda ctx: _infer_conv(ctx, 1, (2,), (3,), 99), keywords=CONV.attr_names)
QLINEAR_CONV = op(
    "QLinearConv",
    since=10,
    eval=_qlinear_conv,
    infer=lambda ctx: _infer_conv(ctx, 3, (1, 2, 6, 7), (4, 5), 8),
    keywords=CONV.attr_names,
)
