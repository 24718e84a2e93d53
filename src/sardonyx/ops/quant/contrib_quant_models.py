"""Whole layers of com.microsoft on quantized data: QAttention, QEmbedLayerNormalization, DynamicQuantizeLSTM."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT, attend_projected, infer_packed_attention
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import widen
from sardonyx.ops.quant.contrib_quant import real
from sardonyx.ops.quant.contrib_quant_matmul import scaled_product
from sardonyx.ops.quant.quant import dynamic_parameters, quantize
from sardonyx.ops.rnn.rnn import LSTM, infer_recurrent, lstm_core
from sardonyx.ops.rows.contrib_norm import checked_rows, infer_embedding, mask_lengths, normalized_embedding


def _qattention(
    input: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int,
    do_rotary: int | None,
    mask_filter_value: float | None,
    scale: float | None,
) -> tuple[Array, ...]:
    if do_rotary:
        raise ValueError("do_rotary=1 is not supported")
    projected = scaled_product(
        input, weight, widen(input_scale), widen(weight_scale), input_zero_point, weight_zero_point, widen(bias)
    )
    return attend_projected(
        projected, mask_index, past, None, None, bias.dtype, num_heads=num_heads, unidirectional=unidirectional,
        qkv_hidden_sizes=None, share_buffer=False, mask_filter_value=mask_filter_value, scale=scale,
    )  # fmt: skip


QATTENTION = op("QAttention", domain=MICROSOFT, eval=_qattention, infer=infer_packed_attention(8))


def _quantized_rows(table: Array, scale: Array | None, zero_point: Array | None, ids: Array, name: str) -> Array:
    if scale is None:
        raise ValueError(f"{name}: the scale of the embedding is missing")
    return real(checked_rows(table, ids, name), scale, zero_point)


def _qembed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None,
    word_scale: Array,
    position_scale: Array,
    segment_scale: Array | None,
    gamma_scale: Array,
    beta_scale: Array,
    word_zero_point: Array,
    position_zero_point: Array,
    segment_zero_point: Array | None,
    gamma_zero_point: Array,
    beta_zero_point: Array,
    *,
    epsilon: float,
) -> tuple[Array, Array]:
    batch, length = input_ids.shape
    total = _quantized_rows(word_embedding, word_scale, word_zero_point, input_ids, "input_ids")
    total = total + _quantized_rows(position_embedding, position_scale, position_zero_point, np.arange(length), "positions")
    if segment_ids is not None and segment_embedding is not None:
        total = total + _quantized_rows(segment_embedding, segment_scale, segment_zero_point, segment_ids, "segment_ids")
    scale, shift = real(gamma, gamma_scale, gamma_zero_point), real(beta, beta_scale, beta_zero_point)
    return normalized_embedding(total, scale, shift, epsilon), mask_lengths(mask, batch)


QEMBED_LAYER_NORMALIZATION = op(
    "QEmbedLayerNormalization", domain=MICROSOFT, eval=_qembed_layer_normalization, infer=infer_embedding
)


def _rounded_dynamically(x: Array) -> Array:
    """x as it is after quantization to bytes over its own range, as float32."""
    scale, zero_point = dynamic_parameters(x)
    return real(quantize(x, scale, zero_point), scale, zero_point)


def _real_weight(w: Array, scale: Array, zero_point: Array) -> Array:
    """Weights [directions, inputs, columns], with parameters per direction or per column, as [directions, columns, inputs]."""
    factors, points = (parameter.reshape(w.shape[0], 1, -1) for parameter in (scale, zero_point))
    values = (w.astype(np.int32) - points.astype(np.int32)).astype(np.float32) * factors
    return np.ascontiguousarray(values.swapaxes(1, 2))


def _dynamic_quantize_lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    sequence_lens: Array | None,
    initial_h: Array | None,
    initial_c: Array | None,
    p: Array | None,
    w_scale: Array,
    w_zero_point: Array,
    r_scale: Array,
    r_zero_point: Array,
    **attrs: Any,
) -> tuple[Array, ...]:
    """LSTM with quantized weights, which quantizes its inputs, and the hidden state at every step."""
    return lstm_core(
        _rounded_dynamically(x), _real_weight(w, w_scale, w_zero_point), _real_weight(r, r_scale, r_zero_point), b,
        sequence_lens, initial_h, initial_c, p, layout=0, recurrent_input=_rounded_dynamically, **attrs,
    )  # fmt: skip


def _infer_dynamic_quantize_lstm(ctx: InferContext) -> InferResult:
    # W and R lie transposed here: their second axis, not their last, is as long as the inputs and the hidden state.
    inner = copy.copy(ctx)
    inner.inputs = list(ctx.inputs)
    for position in (1, 2):
        weights, shape = inner.inputs[position], ctx.shape(position, rank=3)
        if isinstance(weights, TensorType) and shape is not None:
            inner.inputs[position] = TensorType(weights.dtype, (shape[0], shape[2], shape[1]))
    return infer_recurrent(inner, gates=4)


DYNAMIC_QUANTIZE_LSTM = op(
    "DynamicQuantizeLSTM",
    domain=MICROSOFT,
    eval=_dynamic_quantize_lstm,
    infer=_infer_dynamic_quantize_lstm,
    keywords=tuple(name for name in LSTM.attr_names if name != "layout"),
)
