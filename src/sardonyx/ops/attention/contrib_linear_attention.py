"""Linear attention blocks of com.microsoft: LinearAttention, its gates, and the causal convolution in front of it.

The standard took LinearAttention and CausalConvWithState over; these are the forms before, which have more attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.attention.attention import LINEAR_ATTENTION
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.conv.conv import conv_core
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.elementwise.special import sigmoid, softplus
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, rounded_once, widen


def _refuse_window(state_window: int) -> None:
    if state_window:
        raise ValueError(f"state_window is {state_window}; only 0, the state after the last position, is supported")


def _linear_attention(*inputs: Array | None, state_window: int, **attrs: Any) -> tuple[Array, Array]:
    _refuse_window(state_window)
    result: tuple[Array, Array] = LINEAR_ATTENTION.eval(*inputs, **attrs)
    return result


OLD_LINEAR_ATTENTION = op(
    "LinearAttention",
    domain=MICROSOFT,
    eval=_linear_attention,
    infer=LINEAR_ATTENTION.infer,
    keywords=("state_window", *LINEAR_ATTENTION.attr_names),
    traits=Trait.REFUSES,
)


def _linear_attention_gate(a: Array, dt_bias: Array, decay_scale: Array, b: Array | None = None) -> tuple[Array, Array | None]:
    """decay_scale * softplus(a + dt_bias), and sigmoid(b)."""
    decay = rounded_once(lambda x, bias, scale: scale * softplus(np.asarray(x + bias)), a, dt_bias, decay_scale)
    return decay, None if b is None else rounded_once(sigmoid, b)


LINEAR_ATTENTION_GATE = op(
    "LinearAttentionGate",
    domain=MICROSOFT,
    eval=_linear_attention_gate,
    infer=lambda ctx: [ctx.shape(0), ctx.shape(3)],
)


def _causal_conv_with_state(
    x: Array,
    w: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str,
    channels_last: int,
    dilation: int,
    ndim: int,
    state_window: int,
) -> tuple[Array, Array]:
    """A depthwise convolution [N, C, L] that sees only the past: what came before is the state [N, C, (k - 1) * dilation]."""
    _refuse_window(state_window)
    if ndim != 1 or x.ndim != 3 or w.ndim != 3:
        raise ValueError(f"ndim is {ndim}, the input {x.shape}, the weight {w.shape}: only sequences (ndim 1) are supported")
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; expected none, silu or swish")
    first = x.swapaxes(1, 2) if channels_last else x
    reach = (w.shape[2] - 1) * dilation
    state = np.zeros((*first.shape[:2], reach), x.dtype) if past_state is None else past_state
    if state.shape != (*first.shape[:2], reach):
        raise ValueError(f"past_state is {state.shape}, expected {(*first.shape[:2], reach)}")
    sequence = np.concatenate((state, first), axis=2)
    wide_bias = None if bias is None else widen(bias)
    result = conv_core(widen(sequence), widen(w), wide_bias, group=first.shape[1], dilations=(dilation,))
    if activation != "none":
        with np.errstate(all="ignore"):
            result = result * sigmoid(result)
    shaped = np.ascontiguousarray(result.swapaxes(1, 2)) if channels_last else result
    return narrow(shaped, x.dtype), np.ascontiguousarray(sequence[:, :, first.shape[2] :])


def _infer_causal_conv_with_state(ctx: InferContext) -> InferResult:
    x, w, state = ctx.shape(0), ctx.shape(1), ctx.shape(3)
    if state is None and x is not None and w is not None and len(x) == len(w) == 3:
        state = (x[0], x[2] if ctx.attr("channels_last") else x[1], (w[2] - 1) * int(ctx.attr("dilation")))
    return [x, state]


CAUSAL_CONV_WITH_STATE = op(
    "CausalConvWithState",
    domain=MICROSOFT,
    eval=_causal_conv_with_state,
    infer=_infer_causal_conv_with_state,
    traits=Trait.REFUSES,
)
