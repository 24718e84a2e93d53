"""Operators of ai.onnx that were experimental, or older than opset 7, and that ONNX Runtime still runs.

Their signatures stand in the table `ai.onnx.extra`; from opset 10 on they are deprecated.
"""

from __future__ import annotations

import copy
from math import prod

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.elementwise.elementwise import infer_identity
from sardonyx.ops.elementwise.elementwise_math import THRESHOLDED_RELU
from sardonyx.ops.elementwise.special import softplus
from sardonyx.ops.indexing.slicing import SLICE, infer_slice
from sardonyx.ops.infer import InferContext, InferResult, same_as
from sardonyx.ops.precision import narrow, rounded_once, widen
from sardonyx.ops.rows.norm import standardize


def _affine(x: Array, *, alpha: float, beta: float) -> Array:
    return rounded_once(lambda v: v * v.dtype.type(alpha) + v.dtype.type(beta), x)


def _scale(x: Array, *, scale: float) -> Array:
    return rounded_once(lambda v: v * v.dtype.type(scale), x)


def _scaled_tanh(x: Array, *, alpha: float | None, beta: float | None) -> Array:
    first, second = _required(alpha, "alpha"), _required(beta, "beta")
    return rounded_once(lambda v: v.dtype.type(first) * np.tanh(v * v.dtype.type(second)), x)


def _parametric_softplus(x: Array, *, alpha: float | None, beta: float | None) -> Array:
    first, second = _required(alpha, "alpha"), _required(beta, "beta")
    return rounded_once(lambda v: v.dtype.type(first) * softplus(np.asarray(v * v.dtype.type(second))), x)


def _required(value: float | None, name: str) -> float:
    if value is None:
        raise ValueError(f"the attribute {name} is missing")
    return value


AFFINE = op("Affine", eval=_affine, infer=same_as(0), traits=Trait.ELEMENTWISE)
SCALE = op("Scale", eval=_scale, infer=same_as(0), traits=Trait.ELEMENTWISE)
SCALED_TANH = op("ScaledTanh", eval=_scaled_tanh, infer=same_as(0), traits=Trait.ELEMENTWISE)
PARAMETRIC_SOFTPLUS = op("ParametricSoftplus", eval=_parametric_softplus, infer=same_as(0), traits=Trait.ELEMENTWISE)
THRESHOLDED_RELU_1 = op("ThresholdedRelu", eval=THRESHOLDED_RELU.eval, infer=same_as(0), traits=Trait.ELEMENTWISE)


def _image_scaler(x: Array, *, bias: tuple[float, ...] | None, scale: float) -> Array:
    """scale * x + bias, with one bias per channel."""
    if x.ndim != 4 or len(bias or ()) != x.shape[1]:
        raise ValueError(f"the input is {x.shape} and bias has {len(bias or ())} elements: expected (N, C, H, W) and C")
    shift = np.array(bias, np.float32)[:, None, None]
    return rounded_once(lambda v: v * v.dtype.type(scale) + shift.astype(v.dtype), x)


IMAGE_SCALER = op("ImageScaler", eval=_image_scaler, infer=same_as(0))


def _cropped(height: Dim, width: Dim, border: tuple[int, ...] | None, scale: tuple[int, ...] | None) -> tuple[int, int, Dim, Dim]:
    """Top, left, and the size of what is kept: up to the border, or `scale` rows and columns."""
    if len(border or ()) != 4:
        raise ValueError(f"border is {list(border or ())}; expected left, top, right, bottom")
    if scale is not None and len(scale) != 2:
        raise ValueError(f"scale is {list(scale)}; expected height and width")
    left, top, right, bottom = border or ()
    rows, columns = (scale[0], scale[1]) if scale else (height - top - bottom, width - left - right)
    for name, start, size, whole in (("height", top, rows, height), ("width", left, columns, width)):
        if isinstance(size, int) and isinstance(whole, int) and (size < 0 or start + size > whole):
            raise ValueError(f"border {list(border or ())} and scale {list(scale or ())} do not fit a {name} of {whole}")
    return top, left, rows, columns


def _crop(x: Array, *, border: tuple[int, ...] | None, scale: tuple[int, ...] | None) -> Array:
    if x.ndim != 4:
        raise ValueError(f"the input is {x.shape}, expected (N, C, H, W)")
    top, left, rows, columns = _cropped(x.shape[2], x.shape[3], border, scale)
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    return x[:, :, top : top + rows, left : left + columns].copy()


def _infer_crop(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0, rank=4)
    if shape is None:
        return None
    return (*shape[:2], *_cropped(shape[2], shape[3], ctx.attr("border"), ctx.attr("scale"))[2:])


CROP = op("Crop", eval=_crop, infer=_infer_crop)


def _dynamic_slice(data: Array, starts: Array, ends: Array, axes: Array | None = None) -> Array:
    result: Array = SLICE.eval(data, starts, ends, axes)
    return result


def _infer_dynamic_slice(ctx: InferContext) -> InferResult:
    inner = copy.copy(ctx)
    inner.version = 10  # the form of Slice it became
    return infer_slice(inner)


DYNAMIC_SLICE = op("DynamicSlice", eval=_dynamic_slice, infer=_infer_dynamic_slice)


def _mean_variance_normalization_1(x: Array, *, across_channels: int, normalize_variance: int) -> Array:
    """Over each channel of all images together, or over everything."""
    if x.ndim != 4:
        raise ValueError(f"the input is {x.shape}, expected (N, C, H, W)")
    axes = (0, 1, 2, 3) if across_channels else (0, 2, 3)
    wide = widen(x)
    with np.errstate(all="ignore"):
        if normalize_variance:
            result = standardize(wide, axes, 0.0)[0]
        else:
            result = wide - wide.sum(axis=axes, keepdims=True) / wide.dtype.type(prod(x.shape[axis] for axis in axes))
    return narrow(result, x.dtype)


MEAN_VARIANCE_NORMALIZATION_1 = op("MeanVarianceNormalization", eval=_mean_variance_normalization_1, infer=same_as(0))

# Copies between devices, in models saved from a session on an accelerator.
for _name in ("MemcpyFromHost", "MemcpyToHost"):
    op(_name, eval=lambda x: x, infer=infer_identity, traits=Trait.VIEW)
