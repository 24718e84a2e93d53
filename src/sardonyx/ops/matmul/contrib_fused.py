"""Fused products and activations of com.microsoft: FusedMatMul, FusedGemm, FusedConv, the Gelu family and their bias forms.

Each is a standard operator with something before or after it; narrow floats stay wide from the first to the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx.ir.dims import floordiv
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, SparseTensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.conv.conv import CONV, conv_core
from sardonyx.ops.definition import EvalContext, OpDef, Trait, op
from sardonyx.ops.elementwise import elementwise_math
from sardonyx.ops.elementwise.elementwise_math import gelu_exact, gelu_tanh
from sardonyx.ops.elementwise.special import sigmoid
from sardonyx.ops.infer import InferContext, InferResult, broadcast, normalize_axis, same_as
from sardonyx.ops.matmul.matmul import expect_product, gemm_core, infer_gemm, matmul_core, matmul_shape
from sardonyx.ops.precision import narrow, rounded_once, widen
from sardonyx.ops.rows.norm import DROPOUT
from sardonyx.ops.rows.reduce import softmax

# The activations a fused operator may name, with their parameters in the order of `activation_params`.
ACTIVATIONS: Final[dict[str, tuple[OpDef, dict[str, float]]]] = {
    "Celu": (elementwise_math.CELU, {"alpha": 1.0}),
    "Elu": (elementwise_math.ELU, {"alpha": 1.0}),
    "HardSigmoid": (elementwise_math.HARD_SIGMOID, {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": (elementwise_math.HARD_SWISH, {}),
    "LeakyRelu": (elementwise_math.LEAKY_RELU, {"alpha": 0.01}),
    "Relu": (elementwise_math.RELU, {}),
    "Selu": (elementwise_math.SELU, {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "Sigmoid": (elementwise_math.SIGMOID, {}),
    "Softplus": (elementwise_math.SOFTPLUS, {}),
    "Softsign": (elementwise_math.SOFTSIGN, {}),
    "Tanh": (elementwise_math.TANH, {}),
    "ThresholdedRelu": (elementwise_math.THRESHOLDED_RELU, {"alpha": 1.0}),
}


def activate(x: Array, activation: str | None, params: tuple[float, ...] | None) -> Array:
    """The activation of a fused convolution, with its parameters by position."""
    if not activation:
        return x
    given = params or ()
    if activation == "Clip":
        if len(given) != 2:
            raise ValueError(f"activation_params is {list(given)}; Clip takes two: minimum and maximum")
        low, high = (x.dtype.type(limit) for limit in given)
        return np.asarray(np.minimum(np.maximum(x, low), high))
    definition, defaults = _activation(activation)
    if len(given) not in (0, len(defaults)):
        raise ValueError(f"activation_params is {list(given)}; {activation} takes {len(defaults)}")
    result: Array = definition.eval(x, **(dict(zip(defaults, given, strict=True)) if given else defaults))
    return result


def _activation(name: str) -> tuple[OpDef, dict[str, float]]:
    found = ACTIVATIONS.get(name)
    if found is None:
        raise ValueError(f"activation is {name!r}; known are {', '.join(sorted([*ACTIVATIONS, 'Clip']))}")
    return found


def _activate_named(x: Array, activation: str | None, **params: float | None) -> Array:
    """The activation of a fused product, with its parameters by name."""
    if not activation:
        return x
    definition, defaults = _activation(activation)
    chosen = {name: default if params.get(name) is None else params[name] for name, default in defaults.items()}
    result: Array = definition.eval(x, **chosen)
    return result


def _arranged(
    x: Any, transpose: int, transpose_batch: int, swap: Callable[[Any, int, int], Any], move: Callable[..., Any]
) -> Any:
    """An operand (or its shape) as MatMul takes it: the first axis behind the batch axes, then the last two swapped."""
    rank = len(x) if isinstance(x, tuple) else x.ndim
    if transpose_batch:
        if rank < 3:
            raise ValueError(f"an operand whose batch axes are transposed needs a rank of at least 3, found {rank}")
        x = move(x, 0, -2)
    return swap(x, -1, -2) if transpose and rank > 1 else x


def fused_matmul(
    a: Array, b: Array, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0
) -> Array:
    """alpha * A @ B of arranged operands, as the wide type."""
    left = _arranged(widen(a), transA, transBatchA, np.swapaxes, np.moveaxis)
    right = _arranged(widen(b), transB, transBatchB, np.swapaxes, np.moveaxis)
    product = matmul_core(left, right)
    if alpha == 1.0:
        return product
    factor = product.dtype.type(alpha) if product.dtype.kind == "f" else alpha
    return np.asarray(product * factor).astype(product.dtype, copy=False)


def _fused_matmul(a: Array, b: Array, *, alpha: float, transA: int, transB: int, transBatchA: int, transBatchB: int) -> Array:
    product = fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB)
    return narrow(product, a.dtype)


def _transpose_matmul(a: Array, b: Array, *, alpha: float, transA: int, transB: int) -> Array:
    return narrow(fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB), a.dtype)


def _swap_dims(shape: Shape, first: int, second: int) -> Shape:
    dims = list(shape)
    dims[first], dims[second] = dims[second], dims[first]
    return tuple(dims)


def _move_first(shape: Shape, *_: int) -> Shape:
    return (*shape[1:-1], shape[0], shape[-1])


def _infer_fused_matmul(ctx: InferContext) -> InferResult:
    a, b = ctx.shape(0), ctx.shape(1)
    if a is None or b is None:
        return None
    left: Shape = _arranged(a, ctx.attr("transA") or 0, ctx.attr("transBatchA") or 0, _swap_dims, _move_first)
    right: Shape = _arranged(b, ctx.attr("transB") or 0, ctx.attr("transBatchB") or 0, _swap_dims, _move_first)
    return expect_product(ctx, left, right)


def _sparse_matmul(a: Array, b: Array, *, alpha: float, transA: int, transB: int) -> Array:
    """The first operand is declared sparse; its value comes dense."""
    return narrow(fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB), b.dtype)


def _infer_sparse_matmul(ctx: InferContext) -> InferResult:
    sparse, b = ctx.type(0), ctx.shape(1)
    if not isinstance(sparse, SparseTensorType) or sparse.shape is None or b is None:
        return None
    left: Shape = _arranged(sparse.shape, ctx.attr("transA"), 0, _swap_dims, _move_first)
    return matmul_shape(left, _arranged(b, ctx.attr("transB"), 0, _swap_dims, _move_first))


SPARSE_MATMUL = op("SparseToDenseMatMul", domain=MICROSOFT, eval=_sparse_matmul, infer=_infer_sparse_matmul)
FUSED_MATMUL = op("FusedMatMul", domain=MICROSOFT, eval=_fused_matmul, infer=_infer_fused_matmul)
TRANSPOSE_MATMUL = op("TransposeMatMul", domain=MICROSOFT, eval=_transpose_matmul, infer=_infer_fused_matmul)


def _fused_matmul_activation(
    a: Array,
    b: Array,
    *,
    activation: str,
    activation_alpha: float | None,
    activation_axis: int | None,
    activation_beta: float | None,
    activation_gamma: float | None,
    alpha: float,
    transA: int,
    transB: int,
    transBatchA: int,
    transBatchB: int,
) -> Array:
    product = fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB)
    with np.errstate(all="ignore"):
        if activation == "Softmax":
            axis = -1 if activation_axis is None else activation_axis
            result = softmax(product, axis)
        else:
            result = _activate_named(product, activation, alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)
    return narrow(result, a.dtype)


FUSED_MATMUL_ACTIVATION = op("FusedMatMulActivation", domain=MICROSOFT, eval=_fused_matmul_activation, infer=_infer_fused_matmul)


def _fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    activation: str | None,
    activation_alpha: float | None,
    activation_beta: float | None,
    activation_gamma: float | None,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> Array:
    product = gemm_core(widen(a), widen(b), None if c is None else widen(c), alpha=alpha, beta=beta, transA=transA, transB=transB)
    result = _activate_named(product, activation, alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)
    return narrow(result, a.dtype)


FUSED_GEMM = op("FusedGemm", domain=MICROSOFT, eval=_fused_gemm, infer=infer_gemm)


def _gemm_fast_gelu(x: Array, w: Array, bias: Array | None = None) -> Array:
    product = matmul_core(widen(x), widen(w))
    with np.errstate(all="ignore"):
        return narrow(gelu_tanh(product if bias is None else product + widen(bias)), x.dtype)


GEMM_FAST_GELU = op(
    "GemmFastGelu", domain=MICROSOFT, eval=_gemm_fast_gelu, infer=lambda ctx: matmul_shape(ctx.shape(0), ctx.shape(1))
)


def fused_conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    z: Array | None = None,
    *,
    activation: str | None,
    activation_params: tuple[float, ...] | None,
    **geometry: Any,
) -> Array:
    """activation(conv(x, w) + b + z), channels first."""
    result = conv_core(widen(x), widen(w), None if b is None else widen(b), **geometry)
    if z is not None:
        if z.shape != result.shape:
            raise ValueError(f"Z is {z.shape}, but the convolution gives {result.shape}: the shapes must agree")
        result = result + widen(z)
    with np.errstate(all="ignore"):
        return narrow(activate(result, activation, activation_params), x.dtype)


FUSED_CONV_ATTRIBUTES: Final = ("activation", "activation_params", *CONV.attr_names)
FUSED_CONV = op("FusedConv", domain=MICROSOFT, eval=fused_conv, infer=CONV.infer, keywords=FUSED_CONV_ATTRIBUTES)


def _fast_gelu(x: Array, bias: Array | None = None) -> Array:
    if bias is None:
        return rounded_once(gelu_tanh, x)
    return rounded_once(lambda values, added: gelu_tanh(np.asarray(values + added)), x, bias)


def _quick_gelu(x: Array, *, alpha: float) -> Array:
    return rounded_once(lambda values: values * sigmoid(np.asarray(values * values.dtype.type(alpha))), x)


def _bias_gelu(x: Array, bias: Array) -> Array:
    return rounded_once(lambda values, added: gelu_exact(np.asarray(values + added)), x, bias)


GELU = op("Gelu", domain=MICROSOFT, eval=lambda x: rounded_once(gelu_exact, x), infer=same_as(0), traits=Trait.ELEMENTWISE)
FAST_GELU = op("FastGelu", domain=MICROSOFT, eval=_fast_gelu, infer=same_as(0), traits=Trait.ELEMENTWISE)
QUICK_GELU = op("QuickGelu", domain=MICROSOFT, eval=_quick_gelu, infer=same_as(0), traits=Trait.ELEMENTWISE)
BIAS_GELU = op("BiasGelu", domain=MICROSOFT, eval=_bias_gelu, infer=same_as(0), traits=Trait.ELEMENTWISE)
BIAS_ADD = op(
    "BiasAdd",
    domain=MICROSOFT,
    eval=lambda x, bias, skip: rounded_once(lambda a, b, c: a + b + c, x, bias, skip),
    infer=same_as(0),
    traits=Trait.ELEMENTWISE,
)


def _bias_split_gelu(x: Array, bias: Array) -> Array:
    """The left half of the last axis, gated by the Gelu of the right half."""

    def compute(values: Array, added: Array) -> Array:
        left, right = np.split(values + added, 2, axis=-1)
        return np.asarray(left * gelu_exact(right))

    if x.shape[-1] % 2:
        raise ValueError(f"X is {x.shape}: its last axis must have an even size")
    return rounded_once(compute, x, bias)


def _infer_bias_split_gelu(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0, least=1)
    return None if shape is None else (*shape[:-1], floordiv(shape[-1], 2))


BIAS_SPLIT_GELU = op("BiasSplitGelu", domain=MICROSOFT, eval=_bias_split_gelu, infer=_infer_bias_split_gelu)


def _bias_softmax(data: Array, bias: Array, *, axis: int) -> Array:
    """Softmax of data + bias over all axes from `axis` on together."""
    first = normalize_axis(axis, data.ndim)

    def compute(values: Array, added: Array) -> Array:
        total = np.asarray(values + added)
        return softmax(total.reshape(prod(data.shape[:first]), prod(data.shape[first:])), 1).reshape(data.shape)

    return rounded_once(compute, data, bias)


BIAS_SOFTMAX = op("BiasSoftmax", domain=MICROSOFT, eval=_bias_softmax, infer=same_as(0))


def _bias_dropout(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None,
    ctx: EvalContext,
) -> tuple[Array, Array]:
    kept, mask = DROPOUT.eval(np.asarray(widen(data) + widen(bias)), ratio, training_mode, seed=seed, ctx=ctx)
    return narrow(kept if residual is None else kept + widen(residual), data.dtype), mask


BIAS_DROPOUT = op(
    "BiasDropout",
    domain=MICROSOFT,
    eval=_bias_dropout,
    infer=lambda ctx: [ctx.shape(0)] * ctx.outputs,
    traits=Trait.RANDOM,
)


def _gated_add(x: Array, y: Array, gate: Array) -> Array:
    """x + y * gate; the product is rounded first, as separate operators would round it."""
    product = rounded_once(np.multiply, y, gate)
    return rounded_once(np.add, x, product)


GATED_ADD = op("GatedAdd", domain=MICROSOFT, eval=_gated_add, infer=broadcast, traits=Trait.ELEMENTWISE)
