"""Mixtures of experts of com.microsoft: MoE, and QMoE with weights packed to 2, 4 or 8 bits.

Each token goes to its k best experts; an expert is a network of two layers, and its results are added with the router's
weights. Letters in comments: T tokens, E experts, H hidden size, I inner size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias, Union

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.definition import op
from sardonyx.ops.elementwise.elementwise_math import gelu_tanh
from sardonyx.ops.elementwise.special import sigmoid
from sardonyx.ops.infer import same_as
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul
from sardonyx.ops.quant.contrib_quant_matmul import unpack_bits
from sardonyx.ops.rows.reduce import softmax
from sardonyx.records import dataclass

_Layer: TypeAlias = tuple[Array, Union[Array, None]]  # weight [out, in] and bias
_Layers: TypeAlias = tuple[_Layer, _Layer, Union[_Layer, None]]

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": gelu_tanh,
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """The sizes of a mixture: `outer` outputs of the first layer, which are gates and linear parts together if they are fused."""

    experts: int
    hidden: int
    inner: int
    outer: int

    def layer(self, number: int) -> tuple[int, int]:
        """Outputs and inputs of the first, second or third layer."""
        return ((self.outer, self.hidden), (self.hidden, self.inner), (self.inner, self.hidden))[number]


def expert_sizes(
    hidden: int,
    weights: Sequence[Sequence[int] | None],
    biases: Sequence[Sequence[int] | None],
    bits: Sequence[int] | None,
    activation: str,
    fusion: int,
) -> ExpertSizes:
    """The sizes that the shapes of three layers' weights and biases agree on (None: left out); with `bits`, of packed weights."""
    if activation not in (*_ACTIVATIONS, "swiglu"):
        raise ValueError(f"activation_type is {activation!r}; known are {', '.join([*_ACTIVATIONS, 'swiglu'])}")
    first, second, third = weights
    if first is None or second is None or len(first) != 3 or len(second) != 3:
        raise ValueError(f"experts with weights of shapes {first} and {second}: expected three axes")
    for number in bits or ():
        if number not in (2, 4, 8):
            raise ValueError(f"weights of {number} bits; expected 2, 4 or 8")
    per_byte = [8 // number for number in bits or (8, 8, 8)]
    experts = second[0]
    inner = second[1] * second[2] * per_byte[1] // max(hidden, 1)
    fused = activation == "swiglu" and fusion != 0
    if activation == "swiglu" and fused is (third is not None):
        raise ValueError(
            f"swiglu_fusion is {fusion} {'with' if third is not None else 'without'} fc3_experts_weights: expected both parts in "
            "fc1_experts_weights (swiglu_fusion 1 or 2), or the linear part in fc3_experts_weights (0)"
        )
    sizes = ExpertSizes(experts, hidden, inner, 2 * inner if fused else inner)
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        outputs, inputs = sizes.layer(number)
        found = None if weight is None else [weight[0], prod(weight[1:]) * per_byte[number]]
        if found is not None and found != [experts, outputs * inputs]:
            raise ValueError(
                f"fc{number + 1}_experts_weights has the shape {tuple(weight or ())}; "
                f"expected {outputs} x {inputs} weights for each of {experts} experts"
            )
        if bias is not None and tuple(bias) != (experts, outputs):
            raise ValueError(f"fc{number + 1}_experts_bias has the shape {tuple(bias)}; expected {(experts, outputs)}")
    return sizes


def _check_router(router: Array, sizes: ExpertSizes, tokens: int) -> None:
    if router.shape != (tokens, sizes.experts):
        raise ValueError(f"router_probs has the shape {router.shape}; expected {(tokens, sizes.experts)}: tokens and experts")


def _shapes(*arrays: Array | None) -> list[tuple[int, ...] | None]:
    return [None if array is None else array.shape for array in arrays]


def _best_experts(logits: Array, k: int) -> Array:
    """The k experts with the highest logits of each token, best first: [T, k]."""
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k is {k}; expected 1 to {logits.shape[1]}, the number of experts")
    # Of equal logits the later expert wins: sort the reversed columns.
    order = np.argsort(-logits[:, ::-1], axis=1, kind="stable")[:, :k]
    return np.asarray(logits.shape[1] - 1 - order)


def _swiglu(gate: Array, linear: Array, alpha: float, beta: float, limit: float | None) -> Array:
    if limit is not None:
        bound = np.float32(limit)
        gate, linear = np.minimum(gate, bound), np.clip(linear, -bound, bound)
    return gate * sigmoid(np.asarray(gate * np.float32(alpha))) * (linear + np.float32(beta))


class _Expert:
    """What all experts share: the activation between their layers."""

    def __init__(self, activation: str, alpha: float, beta: float, fusion: int, limit: float | None) -> None:
        self.activation = activation
        self.alpha, self.beta, self.fusion, self.limit = alpha, beta, fusion, limit

    def between(self, first: Array, gated: Array | None) -> Array:
        """The inner values [T, I] out of the first layer and, if there is one, the third."""
        if self.activation != "swiglu":
            inner = _ACTIVATIONS[self.activation](first)
            return inner if gated is None else inner * gated
        if gated is None:
            parts = (first[:, 0::2], first[:, 1::2]) if self.fusion == 1 else np.split(first, 2, axis=1)
            return _swiglu(parts[0], parts[1], self.alpha, self.beta, self.limit)
        return _swiglu(first, gated, self.alpha, self.beta, self.limit)


def _mixture(
    x: Array,
    experts: Array,
    weights: Array,
    layers: Callable[[int], _Layers],
    kind: _Expert,
) -> Array:
    """The weighted results of the chosen experts; `layers` gives weight [out, in] and bias of an expert's layers."""
    tokens = widen(x).reshape(-1, x.shape[-1])
    total = np.zeros(tokens.shape, np.float32)
    for expert in np.unique(experts):
        token, rank = np.nonzero(experts == expert)
        first, second, third = layers(int(expert))
        given = tokens[token]
        gated = None if third is None else _linear(given, *third)
        result = _linear(kind.between(_linear(given, *first), gated), *second)
        total[token] += result * weights[token, rank][:, None]
    return narrow(total.reshape(x.shape), x.dtype)


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    result = matmul(x, weight.T)
    return np.asarray(result if bias is None else result + bias)


def _layer(weights: Array, bias: Array | None, expert: int, outputs: int, inputs: int) -> _Layer:
    # Old models give the shape [E, in, out], but the memory is [E, out, in] all the same.
    return widen(weights[expert]).reshape(outputs, inputs), None if bias is None else widen(bias[expert])


def _moe(
    x: Array,
    router_probs: Array,
    fc1_weights: Array,
    fc1_bias: Array | None,
    fc2_weights: Array,
    fc2_bias: Array | None = None,
    fc3_weights: Array | None = None,
    fc3_bias: Array | None = None,
    *,
    activation_alpha: float,
    activation_beta: float,
    activation_type: str,
    k: int,
    normalize_routing_weights: int,
    swiglu_fusion: int,
    swiglu_limit: float | None,
    use_sparse_mixer: int,
) -> Array:
    if use_sparse_mixer:
        raise ValueError("use_sparse_mixer=1 is not supported")
    kind = _Expert(activation_type, activation_alpha, activation_beta, swiglu_fusion, swiglu_limit)
    weights_of, biases = _shapes(fc1_weights, fc2_weights, fc3_weights), _shapes(fc1_bias, fc2_bias, fc3_bias)
    sizes = expert_sizes(x.shape[-1], weights_of, biases, None, activation_type, swiglu_fusion)
    _check_router(router_probs, sizes, prod(x.shape[:-1]))
    # Softmax over all experts, then the best k.
    probabilities = softmax(widen(router_probs), 1)
    experts = _best_experts(probabilities, k)
    weights = np.take_along_axis(probabilities, experts, axis=1)
    if normalize_routing_weights:
        weights = weights / weights.sum(axis=1, keepdims=True)

    def layers(expert: int) -> _Layers:
        return (
            _layer(fc1_weights, fc1_bias, expert, *sizes.layer(0)),
            _layer(fc2_weights, fc2_bias, expert, *sizes.layer(1)),
            None if fc3_weights is None else _layer(fc3_weights, fc3_bias, expert, *sizes.layer(2)),
        )

    return _mixture(x, experts, weights, layers, kind)


MOE = op("MoE", domain=MICROSOFT, eval=_moe, infer=same_as(0))


@dataclass(frozen=True, slots=True)
class _PackedLayer:
    """One layer of all experts: rows packed to `bits` bits, with a scale per row or per block of a row."""

    weights: Array
    scales: Array | None
    zero_points: Array | None
    bias: Array | None
    bits: int
    block_size: int | None

    def of(self, expert: int, outputs: int, inputs: int) -> _Layer:
        """The weight [out, in] and bias of one expert."""
        if self.scales is None:
            raise ValueError("quantized experts need scales")
        values = unpack_bits(self.weights[expert].reshape(outputs, -1), self.bits, np.float32)[:, :inputs]
        factors = widen(self.scales[expert]).reshape(outputs, -1)
        blocks = factors.shape[1]
        points = np.full((outputs, blocks), 1 << (self.bits - 1), np.float32)
        if self.zero_points is not None:
            # Per row they are packed along the rows, per block along the blocks of a row.
            stored = self.zero_points[expert].reshape(1 if blocks == 1 else outputs, -1)
            unpacked = unpack_bits(stored, self.bits, np.float32)
            points = unpacked[0, :outputs, None] if blocks == 1 else unpacked[:, :blocks]
        block_of = np.arange(inputs) // (self.block_size or inputs) if blocks > 1 else np.zeros(inputs, np.int64)
        bias = None if self.bias is None else widen(self.bias[expert])
        return (values - points[:, block_of]) * factors[:, block_of], bias


def _qmoe(
    x: Array,
    router_probs: Array,
    fc1_weights: Array,
    fc1_scales: Array | None,
    fc1_bias: Array | None,
    fc2_weights: Array,
    fc2_scales: Array | None = None,
    fc2_bias: Array | None = None,
    fc3_weights: Array | None = None,
    fc3_scales: Array | None = None,
    fc3_bias: Array | None = None,
    fc1_zero_points: Array | None = None,
    fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None,
    router_weights: Array | None = None,
    *,
    activation_alpha: float,
    activation_beta: float,
    activation_type: str,
    block_size: int | None,
    expert_weight_bits: int,
    fc1_expert_weight_bits: int | None,
    fc2_expert_weight_bits: int | None,
    fc3_expert_weight_bits: int | None,
    k: int,
    normalize_routing_weights: int,
    quant_type: str,
    swiglu_fusion: int,
    swiglu_limit: float | None,
    use_sparse_mixer: int,
    weights_prepacked: int,
) -> Array:
    if weights_prepacked == 1:
        raise ValueError(
            "weights_prepacked=1: the weights are in the layout of a GPU's kernels; expected 0 or -1, as they are quantized"
        )
    if use_sparse_mixer or quant_type != "int":
        raise ValueError(
            f"use_sparse_mixer={use_sparse_mixer} with quant_type {quant_type!r} is not supported: expected 0 and 'int'"
        )
    kind = _Expert(activation_type, activation_alpha, activation_beta, swiglu_fusion, swiglu_limit)
    bits = [given or expert_weight_bits for given in (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]
    weights_of, biases = _shapes(fc1_weights, fc2_weights, fc3_weights), _shapes(fc1_bias, fc2_bias, fc3_bias)
    sizes = expert_sizes(x.shape[-1], weights_of, biases, bits, activation_type, swiglu_fusion)
    _check_router(router_probs, sizes, prod(x.shape[:-1]))
    logits = widen(router_probs)
    experts = _best_experts(logits, k)
    if router_weights is not None:
        weights = np.take_along_axis(widen(router_weights), experts, axis=1)
        if normalize_routing_weights:
            total = weights.sum(axis=1, keepdims=True)
            weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    else:
        weights = softmax(np.take_along_axis(logits, experts, axis=1), 1)  # over the best k only

    def layers(expert: int) -> _Layers:
        first = _PackedLayer(fc1_weights, fc1_scales, fc1_zero_points, fc1_bias, bits[0], block_size)
        second = _PackedLayer(fc2_weights, fc2_scales, fc2_zero_points, fc2_bias, bits[1], block_size)
        gated = None
        if fc3_weights is not None:
            third = _PackedLayer(fc3_weights, fc3_scales, fc3_zero_points, fc3_bias, bits[2], block_size)
            gated = third.of(expert, *sizes.layer(2))
        return first.of(expert, *sizes.layer(0)), second.of(expert, *sizes.layer(1)), gated

    return _mixture(x, experts, weights, layers, kind)


QMOE = op("QMoE", domain=MICROSOFT, eval=_qmoe, infer=same_as(0))
