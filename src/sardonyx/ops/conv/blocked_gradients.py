"""Gradients of convolutions and pools over images whose channels lie in blocks; the layout pass makes these."""

from __future__ import annotations

from typing import Any

from sardonyx.ir.tensor import Array
from sardonyx.ops.conv.gradients import CONV_GRAD_DATA, CONV_GRAD_WEIGHTS
from sardonyx.ops.definition import op
from sardonyx.ops.indexing.gradients import shape_input
from sardonyx.ops.indexing.layout import DOMAIN, blocked_shape, from_blocked, to_blocked
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.pool.gradients import AVERAGE_POOL_GRAD, MAX_POOL_GRAD


def _blocked_conv_grad_data(dy: Array, w: Array, shape: Array, *, block: int, exact: int = 0, **attrs: Any) -> Array:
    # `exact` forbids algorithms that round otherwise than this sum does.
    return to_blocked(CONV_GRAD_DATA.eval(from_blocked(dy, w.shape[0]), w, shape, **attrs), block)


def _infer_data(ctx: InferContext) -> InferResult:
    made = shape_input(2)(ctx)
    dy, w = ctx.shape(0), ctx.shape(1)
    if isinstance(made, tuple) and dy is not None and w is not None:
        ctx.expect_equal(made[0], dy[0])
        ctx.expect_equal(made[1], w[1] * ctx.attr("group"))
        return blocked_shape(made, ctx.attr("block"))
    return None


BLOCKED_CONV_GRAD_DATA = op(
    "BlockedConvGradData",
    domain=DOMAIN,
    eval=_blocked_conv_grad_data,
    infer=_infer_data,
    keywords=(*CONV_GRAD_DATA.attr_names, "block", "exact"),
)
BLOCKED_DEPTHWISE_GRAD_DATA = op(
    "BlockedDepthwiseGradData",
    domain=DOMAIN,
    eval=_blocked_conv_grad_data,
    infer=_infer_data,
    keywords=(*CONV_GRAD_DATA.attr_names, "block"),
)


def _blocked_conv_grad_weights(x: Array, dy: Array, *, block: int, plain: int, inputs: int, outputs: int, **attrs: Any) -> Array:
    given = x if plain else from_blocked(x, inputs)
    made: Array = CONV_GRAD_WEIGHTS.eval(given, from_blocked(dy, outputs), **attrs)
    return made


def _infer_weights(ctx: InferContext) -> InferResult:
    x, dy = ctx.shape(0), ctx.shape(1)
    if x is not None and dy is not None:
        ctx.expect_equal(x[0], dy[0])
    return (ctx.attr("outputs"), ctx.attr("inputs") // ctx.attr("group"), *ctx.attr("kernel_shape"))


BLOCKED_CONV_GRAD_WEIGHTS = op(
    "BlockedConvGradWeights",
    domain=DOMAIN,
    eval=_blocked_conv_grad_weights,
    infer=_infer_weights,
    keywords=(*CONV_GRAD_WEIGHTS.attr_names, "block", "inputs", "outputs", "plain"),
)


def _all_channels(x: Array) -> Array:
    return from_blocked(x, x.shape[1] * x.shape[-1])


def _blocked_max_pool_grad(dy: Array, x: Array, y: Array, **attrs: Any) -> Array:
    return to_blocked(MAX_POOL_GRAD.eval(_all_channels(dy), _all_channels(x), _all_channels(y), **attrs), x.shape[-1])


def _infer_max_pool(ctx: InferContext) -> InferResult:
    y = ctx.shape(2)
    if y is not None:
        ctx.expect_shape(0, *y)
    return ctx.shape(1)


BLOCKED_MAX_POOL_GRAD = op(
    "BlockedMaxPoolGrad", domain=DOMAIN, eval=_blocked_max_pool_grad, infer=_infer_max_pool, keywords=MAX_POOL_GRAD.attr_names
)


def _blocked_average_pool_grad(dy: Array, shape: Array, **attrs: Any) -> Array:
    channels, block = int(shape[1]), dy.shape[-1]
    return to_blocked(AVERAGE_POOL_GRAD.eval(from_blocked(dy, channels), shape, **attrs), block)


def _infer_average_pool(ctx: InferContext) -> InferResult:
    made, dy = shape_input(1)(ctx), ctx.shape(0)
    if not isinstance(made, tuple) or dy is None:
        return None
    ctx.expect_equal(made[0], dy[0])
    return (dy[0], dy[1], *made[2:], dy[-1])


BLOCKED_AVERAGE_POOL_GRAD = op(
    "BlockedAveragePoolGrad",
    domain=DOMAIN,
    eval=_blocked_average_pool_grad,
    infer=_infer_average_pool,
    keywords=AVERAGE_POOL_GRAD.attr_names,
)
