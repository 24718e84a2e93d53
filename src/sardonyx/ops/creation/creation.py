"""Operators that make tensors: Constant, ConstantOfShape, Range, EyeLike; and Trilu and Det, which read matrices."""

from __future__ import annotations

from math import ceil, isfinite

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import dims
from sardonyx.ir.graph import SparseConstant
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, same_as
from sardonyx.ops.precision import rounded_once, widen
from sardonyx.ops.products import det


def _texts(values: tuple[str, ...]) -> Array:
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def _constant(
    *,
    value: Array | None,
    sparse_value: SparseConstant | None,
    value_float: float | None,
    value_floats: tuple[float, ...] | None,
    value_int: int | None,
    value_ints: tuple[int, ...] | None,
    value_string: str | None,
    value_strings: tuple[str, ...] | None,
) -> Array:
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value.numpy()
    if value_float is not None:
        return np.asarray(value_float, np.float32)
    if value_floats is not None:
        return np.asarray(value_floats, np.float32)
    if value_int is not None:
        return np.asarray(value_int, np.int64)
    if value_ints is not None:
        return np.asarray(value_ints, np.int64)
    if value_string is not None:
        return _texts((value_string,)).reshape(())
    if value_strings is not None:
        return _texts(value_strings)
    raise ValueError(
        "Constant has no value: expected one of the attributes value, sparse_value, value_float(s), value_int(s) ..."
    )


def infer_constant(ctx: InferContext) -> InferResult:
    """The type of whichever attribute is given."""
    value, sparse = ctx.attr("value"), ctx.attr("sparse_value")
    if value is not None:
        return TensorType(dtypes.from_numpy(value.dtype), value.shape)
    if sparse is not None:
        return TensorType(sparse.values.dtype, sparse.shape)
    for name, dtype in (("float", dtypes.FLOAT32), ("int", dtypes.INT64), ("string", dtypes.STRING)):
        if ctx.attr(f"value_{name}") is not None:
            return TensorType(dtype, ())
        if ctx.attr(f"value_{name}s") is not None:
            return TensorType(dtype, (len(ctx.attr(f"value_{name}s")),))
    return None


CONSTANT = op("Constant", eval=_constant, infer=infer_constant, traits=Trait.AHEAD)


def _constant_of_shape(shape: Array, *, value: Array | None) -> Array:
    sizes = tuple(shape.tolist())
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape {sizes} has a negative size")
    if value is None:
        return np.zeros(sizes, np.float32)
    if value.size != 1:
        raise ValueError(f"value has shape {value.shape}: expected one element")
    return np.full(sizes, value.reshape(-1)[0], dtype=value.dtype)


def infer_constant_of_shape(ctx: InferContext) -> InferResult:
    """The elements of the input are the shape; the type is that of `value`."""
    value, shape = ctx.attr("value"), ctx.dims(0)
    dtype = dtypes.FLOAT32 if value is None else dtypes.from_numpy(value.dtype)
    if shape is None:
        length = ctx.shape(0)
        rank = length[0] if length else None
        shape = ctx.unknown(rank if isinstance(rank, int) else None)
    return TensorType(dtype, shape)


CONSTANT_OF_SHAPE = op("ConstantOfShape", eval=_constant_of_shape, infer=infer_constant_of_shape, since=9, traits=Trait.AHEAD)


def _count(start: float, limit: float, delta: float) -> int:
    """How many numbers a range has; integers are divided exactly."""
    if delta == 0 or not (isfinite(start) and isfinite(limit) and isfinite(delta)):
        raise ValueError(
            f"a range from {start} to {limit} in steps of {delta} does not end: expected finite numbers, delta not 0"
        )
    if isinstance(start, int):
        return max(-int((start - limit) // delta), 0)
    return max(ceil((limit - start) / delta), 0)


def _range(start: Array, limit: Array, delta: Array) -> Array:
    for name, bound in (("start", start), ("limit", limit), ("delta", delta)):
        if bound.size != 1:
            raise ValueError(f"{name} has shape {bound.shape}: expected a scalar")

    def compute(first: Array, last: Array, step: Array) -> Array:
        count = _count(first.item(), last.item(), step.item())
        result: Array = np.arange(count).astype(first.dtype, copy=False)
        result *= step.reshape(())
        result += first.reshape(())
        return result

    return rounded_once(compute, start, limit, delta)


def infer_range(ctx: InferContext) -> InferResult:
    """ceil((limit - start) / delta) numbers, where the three are known."""
    for index in range(3):
        ctx.expect_equal(dims.product(ctx.shape(index) or ()), 1)
    start, limit, delta = (ctx.constant(index) for index in range(3))
    if start is not None and limit is not None and delta is not None:
        return (_count(widen(start).item(), widen(limit).item(), widen(delta).item()),)
    elements = [ctx.dims(index) for index in range(3)]
    if any(element is None or len(element) != 1 for element in elements):
        return (ctx.fresh("range"),)
    first, last, step = (element[0] for element in elements if element is not None)
    if not isinstance(step, int) or step == 0:
        return (ctx.fresh("range"),)
    length = dims.ceildiv(last - first, step) if step > 0 else dims.ceildiv(first - last, -step)
    return (dims.dim_max(length, 0),)


RANGE = op("Range", eval=_range, infer=infer_range, since=11, traits=Trait.AHEAD)


def _eye_like(x: Array, *, dtype: int | None, k: int) -> Array:
    if x.ndim != 2:
        raise ValueError(f"input has shape {x.shape}: expected a matrix")
    rows, columns = x.shape
    return np.eye(rows, columns, k=k).astype(x.dtype if dtype is None else dtypes.from_onnx(dtype).numpy)


def infer_eye_like(ctx: InferContext) -> InferResult:
    """The shape of the input; the type of `dtype`, or of the input."""
    code = ctx.attr("dtype")
    dtype = ctx.dtype(0) if code is None else dtypes.from_onnx(code)
    return ctx.shape(0) if dtype is None else TensorType(dtype, ctx.shape(0))


EYE_LIKE = op("EyeLike", eval=_eye_like, infer=infer_eye_like, since=9, traits=Trait.AHEAD)


def _triangle(x: Array, k: Array | None = None, *, upper: int) -> Array:
    if x.ndim < 2:
        raise ValueError(f"input has shape {x.shape}: expected at least two dimensions")
    diagonal = 0 if k is None else int(k.reshape(()))
    rows, columns = x.shape[-2:]
    distance = np.arange(columns) - np.arange(rows)[:, None]
    result = x.copy()
    result[..., distance < diagonal if upper else distance > diagonal] = "" if x.dtype == object else 0
    return result


TRILU = op("Trilu", eval=_triangle, infer=same_as(0), since=14, traits=Trait.AHEAD)


def _determinant(x: Array) -> Array:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"input has shape {x.shape}: expected square matrices in the last two dimensions")
    return rounded_once(det, x)


def infer_determinant(ctx: InferContext) -> InferResult:
    """The last two dimensions go."""
    shape = ctx.shape(0)
    if shape is not None and len(shape) >= 2:
        ctx.expect_equal(shape[-2], shape[-1])
    return None if shape is None else shape[:-2]


DET = op("Det", eval=_determinant, infer=infer_determinant, since=11)
