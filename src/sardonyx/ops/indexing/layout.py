"""Operators over activations whose channels lie in blocks; graph passes make them of standard operators.

    x[N, C, spatial ...]   as   x[N, ceil(C / block), spatial ..., block]

so that a block of channels at one pixel is a vector. What the lanes past C hold is undefined: no operator reads across lanes,
and FromBlocked drops them. Elementwise operators work on the blocked tensor as on any other. Weights stay in standard order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sardonyx.ir.dims import Dim, ceildiv
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType, format_shape
from sardonyx.ops.conv.conv import CONV
from sardonyx.ops.conv.conv_transpose import CONV_TRANSPOSE
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.pool.pool import max_of_windows, mean_of_windows, pool_windows, pooled_shape
from sardonyx.ops.sampling.resize import (
    AxisPlan,
    Interpolation,
    interpolate,
    nearest_index,
    resize_plans,
    scaled_length,
    source_coordinates,
)

DOMAIN: Final = "sardonyx"


def to_blocked(x: Array, block: int) -> Array:
    """[N, C, ...] in blocks; lanes past C are zero."""
    batch, channels, *spatial = x.shape
    blocks = -(-channels // block)
    if channels != blocks * block:
        x = np.concatenate((x, np.zeros((batch, blocks * block - channels, *spatial), x.dtype)), axis=1)
    return np.ascontiguousarray(np.moveaxis(x.reshape(batch, blocks, block, *spatial), 2, -1))


def from_blocked(x: Array, channels: int) -> Array:
    """The first channels of a blocked tensor in plain order."""
    plain = np.moveaxis(x, -1, 2)
    plain = plain.reshape(x.shape[0], x.shape[1] * x.shape[-1], *x.shape[2:-1])
    return np.ascontiguousarray(plain[:, :channels])


def _checked(shape: Shape, rank: int, name: str = "X") -> Shape:
    """A shape that has at least so many axes."""
    if len(shape) < rank:
        raise ValueError(f"{name} of shape {format_shape(shape)} has too few axes: expected at least {rank}")
    return shape


def blocked_shape(shape: Shape, block: int) -> Shape:
    """The shape of a plain tensor in blocks."""
    _checked(shape, 2)
    return (shape[0], ceildiv(shape[1], block), *shape[2:], block)


def plain_shape(shape: Shape, channels: Dim) -> Shape:
    """The shape of a blocked tensor in plain order."""
    _checked(shape, 3)
    return (shape[0], channels, *shape[2:-1])


def fits_blocks(groups: int, inputs: int, outputs: int, block: int) -> bool:
    """Whether a convolution's groups (of so many channels each) lie in whole blocks, or stay in their lanes."""
    if groups == 1 or (inputs % block == 0 and outputs % block == 0):
        return True
    return inputs == outputs and block % inputs == 0


def _to_blocked(x: Array, *, block: int) -> Array:
    return to_blocked(x, block)


def _infer_to_blocked(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    return None if x is None else blocked_shape(x, ctx.attr("block"))


TO_BLOCKED = op("ToBlocked", domain=DOMAIN, eval=_to_blocked, infer=_infer_to_blocked)


def _from_blocked(x: Array, *, channels: int) -> Array:
    if not 0 <= channels <= x.shape[1] * x.shape[-1]:
        raise ValueError(f"X of shape {x.shape} does not hold {channels} channels")
    return from_blocked(x, channels)


def _infer_from_blocked(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    if x is None:
        return None
    _checked(x, 3)
    ctx.expect_at_most(ctx.attr("channels"), x[1] * x[-1])
    return plain_shape(x, ctx.attr("channels"))


FROM_BLOCKED = op("FromBlocked", domain=DOMAIN, eval=_from_blocked, infer=_infer_from_blocked)


def _plain_context(ctx: InferContext, channels: Dim) -> InferContext:
    """The context of the standard operator: its input in plain order."""
    inner = copy.copy(ctx)
    inner.inputs = list(ctx.inputs)
    given = inner.inputs[0]
    if isinstance(given, TensorType) and given.shape is not None:
        inner.inputs[0] = TensorType(given.dtype, plain_shape(given.shape, channels))
    return inner


def _expect_blocks(ctx: InferContext, channels: Dim) -> None:
    """State that input 0 holds so many channels."""
    x = ctx.shape(0)
    if x is not None:
        _checked(x, 3)
        ctx.expect_equal(x[-1], ctx.attr("block"))
        ctx.expect_equal(x[1], ceildiv(channels, ctx.attr("block")))


def _blocked_conv(
    x: Array, w: Array, b: Array | None = None, *, block: int, plain: int, exact: int, group: int, **attrs: Any
) -> Array:
    # `exact` forbids algorithms that round otherwise than this sum does.
    given = x if plain else from_blocked(x, w.shape[1] * group)
    return to_blocked(CONV.eval(given, w, b, group=group, **attrs), block)


def _infer_blocked_conv(ctx: InferContext) -> InferResult:
    w = ctx.shape(1)
    if w is None or ctx.shape(0) is None:
        return None
    assert CONV.infer is not None
    if not ctx.attr("plain"):
        _expect_blocks(ctx, _checked(w, 2, "W")[1] * (ctx.attr("group") or 1))
    found = CONV.infer(ctx if ctx.attr("plain") else _plain_context(ctx, _checked(w, 2, "W")[1] * (ctx.attr("group") or 1)))
    return blocked_shape(found, ctx.attr("block")) if isinstance(found, tuple) else None


BLOCKED_CONV = op(
    "BlockedConv",
    domain=DOMAIN,
    eval=_blocked_conv,
    infer=_infer_blocked_conv,
    keywords=(*CONV.attr_names, "block", "plain", "exact"),
)


def _blocked_conv_transpose(x: Array, w: Array, b: Array | None = None, *, block: int, exact: int, **attrs: Any) -> Array:
    return to_blocked(CONV_TRANSPOSE.eval(from_blocked(x, w.shape[0]), w, b, **attrs), block)


def _infer_blocked_conv_transpose(ctx: InferContext) -> InferResult:
    w = ctx.shape(1)
    if w is None or ctx.shape(0) is None:
        return None
    assert CONV_TRANSPOSE.infer is not None
    _expect_blocks(ctx, _checked(w, 2, "W")[0])
    found = CONV_TRANSPOSE.infer(_plain_context(ctx, _checked(w, 2, "W")[0]))
    return blocked_shape(found, ctx.attr("block")) if isinstance(found, tuple) else None


BLOCKED_CONV_TRANSPOSE = op(
    "BlockedConvTranspose",
    domain=DOMAIN,
    eval=_blocked_conv_transpose,
    infer=_infer_blocked_conv_transpose,
    keywords=(*CONV_TRANSPOSE.attr_names, "block", "exact"),
)

POOLS: Final[dict[str, Callable[..., Array]]] = {"max": max_of_windows, "average": mean_of_windows}


def _blocked_pool(
    x: Array,
    *,
    auto_pad: str | None,
    ceil_mode: int | None,
    count_include_pad: int | None,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    kind: str,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    if kind not in POOLS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(POOLS)}")
    plain = from_blocked(x, x.shape[1] * x.shape[-1])
    window = pool_windows(
        plain, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    result = max_of_windows(plain, window) if kind == "max" else mean_of_windows(plain, window, count_include_pad)
    return to_blocked(result, x.shape[-1])


def _infer_blocked_pool(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    if x is None:
        return None
    found = pooled_shape(_plain_context(ctx, _checked(x, 3)[1]))
    return None if found is None else (*found, x[-1])


BLOCKED_POOL = op("BlockedPool", domain=DOMAIN, eval=_blocked_pool, infer=_infer_blocked_pool)


def _blocked_global_pool(x: Array, *, kind: str) -> Array:
    axes = tuple(range(2, x.ndim - 1))
    with np.errstate(all="ignore"):
        if kind == "max":
            return np.asarray(x.max(axis=axes, keepdims=True, initial=-np.inf))
        if kind == "average":
            return np.asarray(x.sum(axis=axes, keepdims=True) / x.dtype.type(np.prod(x.shape[2:-1])))
    raise ValueError(f"kind is {kind!r}, expected one of {', '.join(POOLS)}")


def _infer_blocked_global_pool(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    return None if x is None else (*_checked(x, 3)[:2], *(1,) * (len(x) - 3), x[-1])


BLOCKED_GLOBAL_POOL = op("BlockedGlobalPool", domain=DOMAIN, eval=_blocked_global_pool, infer=_infer_blocked_global_pool)


def resize_axes(spatial: Sequence[int], scales: Sequence[float] | None, sizes: Sequence[int] | None) -> list[AxisPlan]:
    """What resizing does to each spatial axis."""
    factors = np.array(scales, np.float32) if scales else None
    lengths = np.array(sizes, np.int64) if sizes else None
    return resize_plans(spatial, None, None, factors, lengths)


def repeats(attrs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """How often each pixel is repeated along every spatial axis, if that is all a BlockedResize does for images of any size."""
    if attrs.get("mode") != "nearest" or not attrs.get("scales"):
        return None
    factors = []
    for scale in attrs["scales"]:
        factor = int(scale)
        if factor != scale or factor < 1 or factor & (factor - 1):  # only then are all coordinates exact
            return None
        plan = AxisPlan(0, 8, 8 * factor, np.float32(scale), np.float32(0), np.float32(1))
        indices = nearest_index(
            source_coordinates(plan, attrs["coordinate_transformation_mode"]), attrs["nearest_mode"], plan.scale
        )
        if not np.array_equal(np.clip(indices, 0, 7), np.arange(8 * factor) // factor):
            return None
        factors.append(factor)
    return tuple(factors)


def _blocked_resize(
    x: Array,
    lengths: Array | None = None,
    *,
    coordinate_transformation_mode: str,
    mode: str,
    nearest_mode: str,
    scales: tuple[float, ...] | None,
    sizes: tuple[int, ...] | None,
) -> Array:
    if lengths is not None:
        sizes = tuple(int(each) for each in lengths.reshape(-1)[3 - x.ndim :])
    plans = [replace(plan, axis=plan.axis + 2) for plan in resize_axes(x.shape[2:-1], scales, sizes)]
    return interpolate(x, plans, Interpolation(mode, coordinate_transformation_mode, nearest_mode))


def _infer_blocked_resize(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    if x is None:
        return None
    _checked(x, 3)
    sizes, scales = ctx.attr("sizes"), ctx.attr("scales")
    if ctx.has(1):  # of the spatial axes, perhaps behind those of all others
        lengths = ctx.dims(1)
        if lengths is None:
            return (*x[:2], *(ctx.fresh() for _ in x[2:-1]), x[-1])
        sizes = lengths[3 - len(x) :]
    if len(sizes or scales or ()) != len(x) - 3:
        raise ValueError(f"X of shape {format_shape(x)} needs {len(x) - 3} sizes or scales, found {len(sizes or scales or ())}")
    out: list[Dim] = list(sizes or ())
    for length, scale in zip(x[2:-1], () if sizes else scales):
        above, below = float(np.float32(scale)).as_integer_ratio()
        out.append(scaled_length(length, np.float32(scale)) if isinstance(length, int) else length * above // below)
    return (*x[:2], *out, x[-1])


BLOCKED_RESIZE = op("BlockedResize", domain=DOMAIN, eval=_blocked_resize, infer=_infer_blocked_resize)


def _blocked_concat(*inputs: Array, channels: tuple[int, ...]) -> Array:
    plain = [_from_blocked(x, channels=count) for x, count in zip(inputs, channels, strict=True)]
    return to_blocked(np.concatenate(plain, axis=1), inputs[0].shape[-1])


def _infer_blocked_concat(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    if x is None:
        return None
    block = _checked(x, 3)[-1]
    for number in range(1, len(ctx.inputs)):
        other = ctx.shape(number)
        if other is not None and len(other) != len(x):
            raise ValueError(f"input {number} of shape {format_shape(other)} has another rank than {format_shape(x)}")
        if other is not None:
            ctx.expect_shape(number, x[0], other[1], *x[2:])
    for number, channels in enumerate(ctx.attr("channels")):
        blocks = ctx.shape(number)
        if blocks is not None:
            ctx.expect_at_most(channels, blocks[1] * block)
    return (x[0], ceildiv(sum(ctx.attr("channels")), block), *x[2:])


BLOCKED_CONCAT = op("BlockedConcat", domain=DOMAIN, eval=_blocked_concat, infer=_infer_blocked_concat)
