"""Cases for gradient rules: one line a case. What is checked of each stands in test_gradients.py.

A record has the nodes in ONNX's text form, the shapes of the inputs (a-e, in float64), how they are made, what PyTorch computes
for the same, and the inputs whose gradients are not looked at. The result is `y`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional as f

Array = np.ndarray[Any, Any]
Tensors = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Record:
    """One case."""

    name: str
    nodes: str
    shapes: tuple[tuple[int, ...], ...]
    torch: Tensors | None = None
    make: Callable[[np.random.Generator, tuple[int, ...]], Array] = lambda rng, shape: rng.standard_normal(shape)
    integers: dict[str, Array] = field(default_factory=dict)  # further inputs, through which nothing flows
    opset: int = 18
    native: bool = True  # whether the gradient is native code altogether
    symbolic: bool = True  # whether the first axis of `a` may be open


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.3, 2.0, shape)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(-0.9, 0.9, shape)


def _apart(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of which no two are nearly the same."""
    return (rng.permutation(int(np.prod(shape))).astype(np.float64) * 0.37 - 1.1).reshape(shape)


def _kinked(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers that stay away from 0, 1 and 3, where activations have kinks."""
    x = rng.uniform(-5, 5, shape)
    return np.where(np.abs(np.abs(x) - np.round(np.abs(x))) < 0.05, x + 0.2, x)


def _unary(name: str, function: Tensors | None, make: Any = None, nodes: str = "", **more: Any) -> Record:
    text = nodes or f"y = {name}(a)"
    return Record(name, text, ((3, 5),), function, make or Record.make, **more)


UNARY = (
    _unary("Exp", torch.exp),
    _unary("Log", torch.log, _positive),
    _unary("Sqrt", torch.sqrt, _positive),
    _unary("Reciprocal", torch.reciprocal, _positive),
    _unary("Sin", torch.sin),
    _unary("Cos", torch.cos),
    _unary("Tan", torch.tan, _small),
    _unary("Asin", torch.asin, _small),
    _unary("Acos", torch.acos, _small),
    _unary("Atan", torch.atan),
    _unary("Sinh", torch.sinh),
    _unary("Cosh", torch.cosh),
    _unary("Asinh", torch.asinh),
    _unary("Acosh", torch.acosh, lambda rng, shape: rng.uniform(1.2, 3, shape)),
    _unary("Atanh", torch.atanh, _small),
    _unary("Tanh", torch.tanh),
    _unary("Sigmoid", torch.sigmoid),
    _unary("Abs", torch.abs, _kinked),
    _unary("Erf", torch.erf),
    _unary("Softplus", f.softplus),
    _unary("Softsign", f.softsign),
    _unary("Mish", f.mish, opset=18),
    _unary("HardSwish", f.hardswish, _kinked),
    _unary("Neg", torch.neg),
    _unary("Identity", lambda a: a + 0),
    _unary("Relu", torch.relu, _kinked),
    _unary("Elu", f.elu, _kinked),
    _unary("Selu", f.selu, _kinked),
    _unary("Celu", f.celu, _kinked),
    _unary("HardSigmoid", lambda a: torch.clamp(0.2 * a + 0.5, 0, 1), lambda rng, shape: rng.uniform(-2.4, 2.4, shape)),
    _unary("ThresholdedRelu", lambda a: torch.where(a > 1, a, 0.0), _kinked),
    _unary("Gelu", f.gelu, opset=20),
    Record("Gelu tanh", 'y = Gelu <approximate="tanh"> (a)', ((3, 5),), lambda a: f.gelu(a, approximate="tanh"), opset=20),
    Record("LeakyRelu", "y = LeakyRelu <alpha=0.2> (a)", ((3, 5),), lambda a: f.leaky_relu(a, 0.2), _kinked),
    Record("com.microsoft Gelu", "y = com.microsoft.Gelu(a)", ((3, 5),), f.gelu),
    Record("QuickGelu", "y = com.microsoft.QuickGelu <alpha=1.5> (a)", ((3, 5),), lambda a: a * torch.sigmoid(1.5 * a)),
    Record("BiasGelu", "y = com.microsoft.BiasGelu(a, b)", ((3, 5), (5,)), lambda a, b: f.gelu(a + b)),
    Record("FastGelu", "y = com.microsoft.FastGelu(a, b)", ((3, 5), (5,)), lambda a, b: f.gelu(a + b, approximate="tanh")),
    Record("Clip", "lo = Constant <value=double {-0.5}> () hi = Constant <value=double {0.8}> () y = Clip(a, lo, hi)",
           ((4, 5),), lambda a: torch.clamp(a, -0.5, 0.8)),
    Record("CastLike", "y = CastLike(a, b)", ((3, 4), (2,)), lambda a, b: a + 0, opset=19),
    Record("Swish", "y = Swish(a)", ((3, 5),), f.silu, opset=24),
    Record("Dropout, not training", "y = Dropout(a)", ((3, 5),), lambda a: a + 0),
    Record("Cast", "f = Cast <to=1> (a) g = Mul(f, f) y = Cast <to=11> (g)", ((3, 4),), None),
)  # fmt: skip
BINARY = (
    Record("Add", "y = Add(a, b)", ((2, 3, 4), (3, 1)), torch.add),
    Record("Add of one value", "y = Add(a, a)", ((2, 3),), lambda a: a + a),
    Record("Sub", "y = Sub(a, b)", ((4,), (2, 3, 4)), torch.sub, symbolic=False),
    Record("Mul", "y = Mul(a, b)", ((2, 1, 4), (3, 1)), torch.mul),
    Record("Mul scalar", "y = Mul(a, b)", ((2, 3), ()), torch.mul),
    Record("Div", "y = Div(a, b)", ((2, 3, 4), (3, 1)), torch.div, _positive),
    Record("Pow", "y = Pow(a, b)", ((2, 3), (3,)), torch.pow, _positive),
    Record("Pow 2", "two = Constant <value=double {2.0}> () y = Pow(a, two)", ((2, 3),), lambda a: a**2),
    Record("Mod", "y = Mod <fmod=1> (a, b)", ((2, 3), (3,)), torch.fmod, _positive),
    Record("Max", "y = Max(a, b, c)", ((2, 3), (3,), (2, 1)), lambda *all: torch.maximum(torch.maximum(*all[:2]), all[2]),
           symbolic=False),
    Record("Min", "y = Min(a, b)", ((2, 3), (3,)), torch.minimum),
    Record("Sum", "y = Sum(a, b, c)", ((2, 3), (3,), (2, 1)), lambda a, b, c: a + b + c, symbolic=False),
    Record("Mean", "y = Mean(a, b)", ((2, 3), (3,)), lambda a, b: (a + b) / 2),
    Record("Where", "y = Where(m, a, b)", ((2, 3), (3,)), lambda a, b, m: torch.where(m, a, b),
           integers={"m": np.array([[True, False, True], [False, False, True]])}, symbolic=False),
    Record("PRelu", "y = PRelu(a, b)", ((2, 3, 4), (3, 1)), lambda a, b: torch.where(a > 0, a, a * b), _kinked),
)  # fmt: skip
PRODUCTS = (
    Record("MatMul", "y = MatMul(a, b)", ((3, 4), (4, 5)), torch.matmul),
    Record("MatMul 3-D by 2-D", "y = MatMul(a, b)", ((2, 3, 4), (4, 5)), torch.matmul),
    Record("MatMul batches", "y = MatMul(a, b)", ((2, 1, 3, 4), (6, 4, 5)), torch.matmul),
    Record("MatMul 2-D by 3-D", "y = MatMul(a, b)", ((3, 4), (2, 4, 5)), torch.matmul),
    Record("MatMul vector left", "y = MatMul(a, b)", ((4,), (2, 4, 5)), torch.matmul),
    Record("MatMul vector right", "y = MatMul(a, b)", ((2, 3, 4), (4,)), torch.matmul),
    Record("MatMul vectors", "y = MatMul(a, b)", ((4,), (4,)), torch.matmul),
    Record("Gemm", "y = Gemm <alpha=0.5, beta=2.0> (a, b, c)", ((3, 4), (4, 5), (5,)), lambda a, b, c: 0.5 * a @ b + 2 * c),
    Record("Gemm tA", "y = Gemm <transA=1> (a, b)", ((4, 3), (4, 5)), lambda a, b: a.T @ b),
    Record("Gemm tB", "y = Gemm <transB=1> (a, b, c)", ((3, 4), (5, 4), (3, 1)), lambda a, b, c: a @ b.T + c, symbolic=False),
    Record("Gemm tAtB", "y = Gemm <transA=1, transB=1, alpha=2.0> (a, b)", ((4, 3), (5, 4)), lambda a, b: 2 * a.T @ b.T),
    Record("FusedMatMul", "y = com.microsoft.FusedMatMul <transA=1, transB=1, alpha=0.5> (a, b)", ((2, 4, 3), (2, 5, 4)),
           lambda a, b: 0.5 * a.mT @ b.mT, symbolic=False),
    Record("Einsum", 'y = Einsum <equation="bij,bkj->bik"> (a, b)', ((2, 3, 4), (2, 5, 4)),
           lambda a, b: torch.einsum("bij,bkj->bik", a, b)),
    Record("Einsum sum", 'y = Einsum <equation="ij->i"> (a)', ((2, 3),), lambda a: a.sum(1)),
)  # fmt: skip


def _axes(*axes: int) -> str:
    return f"axes = Constant <value=int64[{len(axes)}] {{{', '.join(map(str, axes))}}}> () "


REDUCTIONS = (
    Record("ReduceSum", _axes(1) + "y = ReduceSum(a, axes)", ((2, 3, 4),), lambda a: a.sum(1, keepdim=True)),
    Record("ReduceSum all", "y = ReduceSum <keepdims=0> (a)", ((2, 3, 4),), torch.sum),
    Record("ReduceSum noop", "y = ReduceSum <noop_with_empty_axes=1> (a)", ((2, 3),), lambda a: a + 0, native=False),
    Record("ReduceMean", _axes(0, 2) + "y = ReduceMean <keepdims=0> (a, axes)", ((2, 3, 4),), lambda a: a.mean((0, 2))),
    Record("ReduceMean 13", "y = ReduceMean <axes=[-1]> (a)", ((2, 3, 4),), lambda a: a.mean(-1, keepdim=True), opset=13),
    Record("ReduceMax", _axes(-1) + "y = ReduceMax <keepdims=0> (a, axes)", ((2, 3, 4),), lambda a: a.amax(-1), _apart),
    Record("ReduceMin", _axes(1) + "y = ReduceMin(a, axes)", ((2, 3, 4),), lambda a: a.amin(1, keepdim=True), _apart),
    Record("ReduceProd", _axes(1) + "y = ReduceProd <keepdims=0> (a, axes)", ((2, 3, 4),), lambda a: a.prod(1)),
    Record("ReduceL1", _axes(1) + "y = ReduceL1(a, axes)", ((2, 3),), lambda a: a.abs().sum(1, keepdim=True), _kinked),
    Record("ReduceL2", _axes(1) + "y = ReduceL2 <keepdims=0> (a, axes)", ((2, 3, 4),), lambda a: a.norm(dim=1)),
    Record("ReduceSumSquare", _axes(1) + "y = ReduceSumSquare(a, axes)", ((2, 3),), lambda a: (a * a).sum(1, keepdim=True)),
    Record("ReduceLogSumExp", _axes(1) + "y = ReduceLogSumExp <keepdims=0> (a, axes)", ((2, 3, 4),), lambda a: a.logsumexp(1)),
    Record("ReduceLogSum", _axes(1) + "y = ReduceLogSum(a, axes)", ((2, 3),), lambda a: a.sum(1, keepdim=True).log(), _positive),
    Record("Softmax", "y = Softmax <axis=-1> (a)", ((2, 3, 4),), lambda a: a.softmax(-1)),
    Record("Softmax axis 1", "y = Softmax <axis=1> (a)", ((2, 3, 4),), lambda a: a.softmax(1)),
    Record("Softmax 11", "y = Softmax <axis=1> (a)", ((2, 3, 4),), lambda a: a.flatten(1).softmax(1).reshape(2, 3, 4), opset=11),
    Record("LogSoftmax", "y = LogSoftmax <axis=1> (a)", ((2, 3, 4),), lambda a: a.log_softmax(1)),
    Record("CumSum", "one = Constant <value=int64 {1}> () y = CumSum(a, one)", ((2, 3, 4),), lambda a: a.cumsum(1)),
    Record("CumSum back", "one = Constant <value=int64 {1}> () y = CumSum <reverse=1, exclusive=1> (a, one)", ((2, 3),), None),
)
_LABELS = np.array([2, 0, 1, 2])
_IGNORED = np.array([2, -100, 1, 0])
LOSSES = (
    Record("sequences", "l = LogSoftmax <axis=2> (a) y = sardonyx.CTCLoss <blank=1> (l, t, u, v)", ((7, 3, 4),),
           lambda a, t, u, v: f.ctc_loss(a.log_softmax(2), t, u, v, 1, "none"),
           integers={"t": np.array([[0, 0, 2], [3, 2, 3], [2, 1, 1]]), "u": np.array([7, 5, 4]), "v": np.array([3, 3, 1])}),
    Record("cross entropy", "y = SoftmaxCrossEntropyLoss(a, t)", ((4, 3),), f.cross_entropy,
           integers={"t": _LABELS}),
    Record("cross entropy none", 'y = SoftmaxCrossEntropyLoss <reduction="none"> (a, t)', ((2, 3, 2),),
           lambda a, t: f.cross_entropy(a, t, reduction="none"), integers={"t": _LABELS.reshape(2, 2)}),
    Record("cross entropy ignore", "y = SoftmaxCrossEntropyLoss <ignore_index=-100> (a, t)", ((4, 3),),
           f.cross_entropy, integers={"t": _IGNORED}),
    Record("cross entropy sum", 'y = SoftmaxCrossEntropyLoss <reduction="sum"> (a, t, w)', ((4, 3),),
           lambda a, t, w: f.cross_entropy(a, t, w, reduction="sum"),
           integers={"t": _LABELS, "w": np.array([0.2, 1.5, 0.7])}),
    Record("cross entropy, both outputs", "l, p = SoftmaxCrossEntropyLoss(a, t) y = Add(l, p)", ((4, 3),),
           lambda a, t: f.cross_entropy(a, t) + a.log_softmax(1), integers={"t": _LABELS}),
    Record("likelihood", "y = NegativeLogLikelihoodLoss <ignore_index=-100> (a, t, w)", ((4, 3),),
           f.nll_loss, integers={"t": _IGNORED, "w": np.array([0.2, 1.5, 0.7])}),
)  # fmt: skip
NORMS = (
    Record("LayerNormalization", "y = LayerNormalization <axis=-1> (a, b, c)", ((2, 3, 4), (4,), (4,)),
           lambda a, b, c: f.layer_norm(a, (4,), b, c)),
    Record("LayerNormalization 2 axes", "y = LayerNormalization <axis=1> (a, b)", ((2, 3, 4), (3, 4)),
           lambda a, b: f.layer_norm(a, (3, 4), b)),
    Record("BatchNormalization", "y, m, v = BatchNormalization <training_mode=1> (a, b, c, d, e)",
           ((4, 3, 2, 2), (3,), (3,), (3,), (3,)),
           lambda a, b, c, d, e: f.batch_norm(a, d.detach().clone(), e.detach().clone(), b, c, training=True)),
    Record("BatchNormalization fixed", "y = BatchNormalization(a, b, c, d, e)", ((4, 3, 2), (3,), (3,), (3,), (3,)),
           lambda a, b, c, d, e: f.batch_norm(a, d.detach(), e.detach(), b, c), _positive),
    Record("InstanceNormalization", "y = InstanceNormalization(a, b, c)", ((2, 3, 4, 2), (3,), (3,)),
           lambda a, b, c: f.instance_norm(a, weight=b, bias=c)),
    Record("GroupNormalization", "y = GroupNormalization <num_groups=2> (a, b, c)", ((2, 4, 3), (4,), (4,)),
           lambda a, b, c: f.group_norm(a, 2, b, c), opset=21),
    Record("LpNormalization", "y = LpNormalization <axis=1, p=2> (a)", ((2, 3, 4),), lambda a: f.normalize(a, dim=1)),
    Record("SimplifiedLayerNormalization", "y = SimplifiedLayerNormalization <axis=-1, epsilon=0.00001> (a, b)",
           ((2, 3, 4), (4,)), lambda a, b: f.rms_norm(a, (4,), b, 1e-5)),
    Record("GroupNormalization 18", "y = GroupNormalization <num_groups=2> (a, b, c)", ((2, 4, 3), (2,), (2,)),
           lambda a, b, c: f.group_norm(a, 2, b.repeat_interleave(2), c.repeat_interleave(2))),
    Record("SkipLayerNormalization", "y = com.microsoft.SkipLayerNormalization <epsilon=0.00001> (a, b, c, d, e)",
           ((2, 3, 4), (2, 3, 4), (4,), (4,), (4,)),
           lambda a, b, c, d, e: f.layer_norm(a + b + e, (4,), c, d), symbolic=False),
    Record("SkipLayerNormalization, plain", "y = com.microsoft.SkipLayerNormalization <epsilon=0.00001> (a, b, c)",
           ((2, 3, 4), (2, 3, 4), (4,)), lambda a, b, c: f.layer_norm(a + b, (4,), c), symbolic=False),
    Record("SkipSimplifiedLayerNormalization",
           "y, m, i, s = com.microsoft.SkipSimplifiedLayerNormalization <epsilon=0.00001> (a, b, c, d)",
           ((2, 3, 4), (2, 3, 4), (4,), (4,)), lambda a, b, c, d: f.rms_norm(a + b + d, (4,), c, 1e-5), symbolic=False),
    Record("LRN", "y = LRN <size=3, alpha=0.9, beta=0.6, bias=1.2> (a)", ((2, 5, 3, 2),),
           lambda a: f.local_response_norm(a, 3, 0.9, 0.6, 1.2)),
    Record("LRN even", "y = LRN <size=4, alpha=0.9> (a)", ((2, 5, 3),)),
    Record("MeanVarianceNormalization", "y = MeanVarianceNormalization(a)", ((2, 3, 4, 2),),
           lambda a: (a - a.mean((0, 2, 3), keepdim=True)) / a.std((0, 2, 3), correction=0, keepdim=True)),
    Record("RMSNormalization", "y = RMSNormalization <axis=-1, epsilon=0.00001> (a, b)", ((2, 3, 4), (4,)),
           lambda a, b: f.rms_norm(a, (4,), b, 1e-5), opset=23),
)  # fmt: skip


def _ints(name: str, *values: int) -> str:
    return f"{name} = Constant <value=int64[{len(values)}] {{{', '.join(map(str, values))}}}> () "


MOVEMENT = (
    Record("Reshape", _ints("s", 0, -1) + "y = Reshape(a, s)", ((2, 3, 4),), lambda a: a.reshape(2, 12)),
    Record("Flatten", "y = Flatten(a)", ((2, 3, 4),), lambda a: a.flatten(1)),
    Record("Squeeze", _ints("s", 1) + "y = Squeeze(a, s)", ((2, 1, 4),), lambda a: a.squeeze(1)),
    Record("Unsqueeze", _ints("s", 0, 2) + "y = Unsqueeze(a, s)", ((2, 3),), lambda a: a[None, :, None]),
    Record("Transpose", "y = Transpose <perm=[2, 0, 1]> (a)", ((2, 3, 4),), lambda a: a.permute(2, 0, 1)),
    Record("Expand", _ints("s", 2, 3, 4) + "y = Expand(a, s)", ((3, 1),), lambda a: a.expand(2, 3, 4), symbolic=False),
    Record("Concat", "y = Concat <axis=1> (a, b)", ((2, 3), (2, 4)), lambda a, b: torch.cat((a, b), 1)),
    Record("Split", _ints("s", 1, 2) + "p, q = Split <axis=1> (a, s) y = Mul(p, q)", ((2, 3),), lambda a: a[:, :1] * a[:, 1:]),
    Record("Split, one part", _ints("s", 1, 2) + "p, y = Split <axis=1> (a, s)", ((2, 3),), lambda a: a[:, 1:]),
    Record("Slice", _ints("s", 1) + _ints("e", 3) + _ints("x", 1) + "y = Slice(a, s, e, x)", ((2, 4),), lambda a: a[:, 1:3]),
    Record("Slice from end", _ints("s", -2) + _ints("e", 999) + _ints("x", 0) + "y = Slice(a, s, e, x)", ((4, 3),),
           lambda a: a[-2:]),
    Record("Slice step", _ints("s", 0) + _ints("e", 5) + _ints("x", 0) + _ints("t", 2) + "y = Slice(a, s, e, x, t)", ((5, 2),),
           lambda a: a[::2]),
    Record("Slice steps", _ints("s", 1, -1) + _ints("e", 99, 0) + _ints("x", 0, 1) + _ints("t", 3, -2)
           + "y = Slice(a, s, e, x, t)", ((7, 6),)),
    Record("Slice back", _ints("s", -1) + _ints("e", -99) + _ints("x", 0) + _ints("t", -1) + "y = Slice(a, s, e, x, t)",
           ((5, 2),), lambda a: a.flip(0), symbolic=False),
    Record("Pad", _ints("p", 0, 1, 0, 2) + "y = Pad(a, p)", ((2, 3),), lambda a: f.pad(a, (1, 2))),
    Record("Pad reflect", _ints("p", 0, 1, 0, 2) + 'y = Pad <mode="reflect"> (a, p)', ((2, 3),),
           lambda a: f.pad(a, (1, 2), mode="reflect")),
    Record("Pad reflect twice", _ints("p", 2, 4, 0, 5) + 'y = Pad <mode="reflect"> (a, p)', ((3, 3),)),
    Record("Pad wrap", _ints("p", 0, 1, 0, 2) + 'y = Pad <mode="wrap"> (a, p)', ((2, 3),),
           lambda a: torch.cat((a[:, -1:], a, a[:, :2]), 1), opset=19),
    Record("Pad edge", _ints("p", 0, 1, 0, 2) + 'y = Pad <mode="edge"> (a, p)', ((2, 3),),
           lambda a: f.pad(a, (1, 2), mode="replicate")),
    Record("Tile", _ints("r", 2, 3) + "y = Tile(a, r)", ((2, 3),), lambda a: a.repeat(2, 3)),
    Record("Gather", "y = Gather <axis=1> (a, i)", ((2, 5, 3),), lambda a, i: a[:, i],
           integers={"i": np.array([[0, 4, 4], [-1, 2, 0]])}),
    Record("Gather embedding", "y = Gather(a, i)", ((5, 3),), lambda a, i: f.embedding(i, a),
           integers={"i": np.array([[0, 4, 4], [1, 2, 0]])}),
    Record("Gather one", "y = Gather <axis=1> (a, i)", ((2, 5, 3),), lambda a, i: a[:, i], integers={"i": np.array(2)}),
    Record("GatherElements", "y = GatherElements <axis=1> (a, i)", ((2, 3),), lambda a, i: a.gather(1, i),
           integers={"i": np.array([[0, 0], [2, 1]])}),
    Record("GatherND", "y = GatherND(a, i)", ((2, 3, 2),), lambda a, i: a[i[:, 0], i[:, 1]],
           integers={"i": np.array([[0, 1], [1, 2], [0, 1]])}),
    Record("ScatterElements", "y = ScatterElements <axis=1> (a, i, b)", ((2, 4), (2, 2)), lambda a, b, i: a.scatter(1, i, b),
           integers={"i": np.array([[0, 2], [3, 1]])}),
    Record("ScatterElements add", 'y = ScatterElements <axis=1, reduction="add"> (a, i, b)', ((2, 4), (2, 2)),
           lambda a, b, i: a.scatter_add(1, i, b), integers={"i": np.array([[0, 0], [3, 1]])}),
    Record("Scatter", "y = Scatter <axis=1> (a, i, b)", ((2, 4), (2, 2)), lambda a, b, i: a.scatter(1, i, b),
           integers={"i": np.array([[0, 2], [3, 1]])}, opset=10),
    Record("ScatterND", "y = ScatterND(a, i, b)", ((4, 3), (2, 3)), lambda a, b, i: a.index_put((i[:, 0],), b),
           integers={"i": np.array([[2], [0]])}),
    Record("TopK", _ints("k", 2) + "y, i = TopK <axis=1> (a, k)", ((3, 5),), lambda a: a.topk(2, 1)[0], _apart),
    Record("Trilu", "y = Trilu <upper=0> (a)", ((4, 4),), torch.tril),
    Record("DepthToSpace", "y = DepthToSpace <blocksize=2> (a)", ((1, 8, 2, 3),), None),
    Record("DepthToSpace CRD", 'y = DepthToSpace <blocksize=2, mode="CRD"> (a)', ((1, 8, 2, 3),),
           lambda a: f.pixel_shuffle(a, 2)),
    Record("SpaceToDepth", "y = SpaceToDepth <blocksize=2> (a)", ((1, 2, 4, 6),), None),
    Record("ReverseSequence", "y = ReverseSequence <batch_axis=0, time_axis=1> (a, n)", ((2, 4, 3),), None,
           integers={"n": np.array([2, 4])}),
    Record("Compress", "y = Compress <axis=1> (a, m)", ((2, 4),), lambda a, m: a[:, m], native=False,
           integers={"m": np.array([True, False, True, True])}),
)  # fmt: skip
WINDOWS = (
    Record("Conv", "y = Conv <pads=[1, 1, 1, 1]> (a, b, c)", ((2, 3, 5, 6), (4, 3, 3, 3), (4,)),
           lambda a, b, c: f.conv2d(a, b, c, padding=1)),
    Record("Conv stride", "y = Conv <pads=[1, 1, 1, 1], strides=[2, 2]> (a, b)", ((2, 3, 6, 7), (4, 3, 3, 3)),
           lambda a, b: f.conv2d(a, b, stride=2, padding=1)),
    Record("Conv stride 1x1", "y = Conv <strides=[2, 2]> (a, b)", ((2, 3, 6, 7), (4, 3, 1, 1)),
           lambda a, b: f.conv2d(a, b, stride=2)),
    Record("Conv dilation", "y = Conv <dilations=[2, 1]> (a, b)", ((1, 2, 7, 6), (3, 2, 3, 2)),
           lambda a, b: f.conv2d(a, b, dilation=(2, 1))),
    Record("Conv groups", "y = Conv <group=2, pads=[0, 1, 0, 1]> (a, b)", ((2, 4, 5, 5), (6, 2, 3, 3)),
           lambda a, b: f.conv2d(a, b, padding=(0, 1), groups=2)),
    Record("Conv depthwise", "y = Conv <group=4, pads=[1, 1, 1, 1], strides=[2, 2]> (a, b)", ((2, 4, 5, 6), (4, 1, 3, 3)),
           lambda a, b: f.conv2d(a, b, padding=1, stride=2, groups=4)),
    Record("Conv 1-D", "y = Conv <pads=[2, 2]> (a, b, c)", ((2, 3, 9), (4, 3, 5), (4,)),
           lambda a, b, c: f.conv1d(a, b, c, padding=2)),
    Record("Conv SAME", 'y = Conv <auto_pad="SAME_UPPER", strides=[2, 2]> (a, b)', ((1, 2, 5, 6), (3, 2, 3, 3)),
           native=False),
    Record("ConvTranspose", "y = ConvTranspose <strides=[2, 2], pads=[1, 1, 1, 1]> (a, b, c)",
           ((2, 3, 4, 5), (3, 4, 3, 3), (4,)), lambda a, b, c: f.conv_transpose2d(a, b, c, stride=2, padding=1)),
    Record("ConvTranspose more", "y = ConvTranspose <strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]> (a, b)",
           ((2, 3, 4, 5), (3, 4, 3, 3)), lambda a, b: f.conv_transpose2d(a, b, stride=2, padding=1, output_padding=1)),
    Record("MaxPool", "y = MaxPool <kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]> (a)", ((2, 3, 6, 7),),
           lambda a: f.max_pool2d(a, 3, 2, 1), _apart),
    Record("MaxPool 2", "y = MaxPool <kernel_shape=[2, 2], strides=[2, 2]> (a)", ((2, 3, 6, 7),),
           lambda a: f.max_pool2d(a, 2), _apart),
    Record("AveragePool", "y = AveragePool <kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]> (a)", ((2, 3, 6, 7),),
           lambda a: f.avg_pool2d(a, 3, 2, 1, count_include_pad=False)),
    Record("AveragePool pads", "y = AveragePool <kernel_shape=[3, 2], pads=[1, 0, 1, 0], count_include_pad=1> (a)",
           ((2, 3, 5, 4),), lambda a: f.avg_pool2d(a, (3, 2), 1, (1, 0))),
    Record("LpPool", "y = LpPool <kernel_shape=[2, 3], strides=[1, 2], pads=[1, 0, 1, 1]> (a)", ((2, 3, 5, 6),)),
    Record("LpPool 3", "y = LpPool <kernel_shape=[2, 2], p=3, dilations=[1, 2]> (a)", ((2, 3, 5, 6),), None, _kinked),
    Record("LpPool 1", "y = LpPool <kernel_shape=[2], p=1> (a)", ((2, 3, 5),),
           lambda a: f.lp_pool1d(a.abs(), 1, 2, 1), _kinked),
    Record("GlobalLpPool", "y = GlobalLpPool(a)", ((2, 3, 4, 5),), lambda a: a.norm(dim=(2, 3), keepdim=True)),
    Record("GlobalLpPool 3", "y = GlobalLpPool <p=3> (a)", ((2, 3, 4, 5),),
           lambda a: (a.abs() ** 3).sum((2, 3), keepdim=True) ** (1 / 3), _kinked),
    Record("Resize nearest", "s = Constant <value=float[4] {1.0, 1.0, 2.0, 2.0}> () "
           'y = Resize <coordinate_transformation_mode="asymmetric", nearest_mode="floor"> (a, , s)', ((2, 3, 4, 5),),
           lambda a: f.interpolate(a, scale_factor=2.0)),
    Record("Resize linear", _ints("s", 2, 3, 7, 9) + 'y = Resize <mode="linear"> (a, , , s)', ((2, 3, 4, 5),),
           lambda a: f.interpolate(a, (7, 9), mode="bilinear"), symbolic=False),
    Record("Resize linear by scales", "s = Constant <value=float[4] {1.0, 1.0, 1.7, 0.6}> () "
           'y = Resize <mode="linear", coordinate_transformation_mode="align_corners"> (a, , s)', ((2, 3, 4, 5),)),
    Record("Resize nearest by scales", "s = Constant <value=float[4] {1.0, 1.0, 1.7, 0.6}> () "
           'y = Resize <nearest_mode="ceil"> (a, , s)', ((2, 3, 4, 5),)),
    Record("Resize antialias", _ints("s", 2, 3, 2, 3) + 'y = Resize <mode="linear", antialias=1> (a, , , s)', ((2, 3, 4, 5),),
           native=False, symbolic=False),
    Record("Resize cubic", _ints("s", 2, 3, 6, 10) + 'y = Resize <mode="cubic"> (a, , , s)', ((2, 3, 4, 5),),
           None, symbolic=False),
    Record("Upsample", "s = Constant <value=float[4] {1.0, 1.0, 2.0, 2.0}> () y = Upsample(a, s)", ((2, 3, 4, 5),),
           lambda a: f.interpolate(a, scale_factor=2.0), opset=9),
    Record("GlobalAveragePool", "y = GlobalAveragePool(a)", ((2, 3, 4, 5),), lambda a: a.mean((2, 3), keepdim=True)),
    Record("GlobalMaxPool", "y = GlobalMaxPool(a)", ((2, 3, 4, 5),), lambda a: a.amax((2, 3), keepdim=True), _apart),
)  # fmt: skip


def _lstm(
    x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, bias: torch.Tensor, *, kind: str = "LSTM", both: bool = False, **more: Any
) -> torch.Tensor:
    """Y of a recurrent layer, whose gates PyTorch has in another order."""
    order = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}[kind]
    hidden, directions = r.shape[2], w.shape[0]
    layer = getattr(torch.nn, kind)(x.shape[2], hidden, bidirectional=both, **more).double()

    def moved(value: torch.Tensor) -> torch.Tensor:
        parts = value.reshape(len(order), hidden, *value.shape[1:])
        return torch.cat([parts[gate] for gate in order])

    given: dict[str, torch.Tensor] = {}
    for number in range(directions):
        end = "_reverse" if number else ""
        half = bias.shape[1] // 2
        given |= {f"weight_ih_l0{end}": moved(w[number]), f"weight_hh_l0{end}": moved(r[number])}
        given |= {f"bias_ih_l0{end}": moved(bias[number, :half]), f"bias_hh_l0{end}": moved(bias[number, half:])}
    y, _ = torch.func.functional_call(layer, given, (x,))
    return y.reshape(*x.shape[:2], directions, hidden).transpose(1, 2)


def _peeping(
    x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, bias: torch.Tensor, p: torch.Tensor, *, clip: float = torch.inf
) -> torch.Tensor:
    """Y of an LSTM with peepholes, with its final states added to each step."""
    hidden, cell = (torch.zeros(x.shape[1], r.shape[2], dtype=x.dtype) for _ in range(2))
    to_enter, to_leave, to_keep = p[0].chunk(3)
    lines = []
    for each in x:
        enter, leave, keep, new = (each @ w[0].T + hidden @ r[0].T + sum(bias[0].chunk(2))).chunk(4, 1)
        enter, keep = ((g + to * cell).clamp(-clip, clip).sigmoid() for g, to in ((enter, to_enter), (keep, to_keep)))
        cell = keep * cell + enter * new.clamp(-clip, clip).tanh()
        hidden = (leave + to_leave * cell).clamp(-clip, clip).sigmoid() * cell.tanh()
        lines.append(hidden)
    return torch.stack(lines)[:, None] + (hidden + cell)[None]


_ENDS = "r = ReduceSum <keepdims=0> (h)"
_LENGTHS = np.array([4, 2, 3], np.int32)
RECURRENT = (
    Record("LSTM", "y = LSTM <hidden_size=3> (a, b, c, d)", ((4, 2, 5), (1, 12, 5), (1, 12, 3), (1, 24)), _lstm, _small),
    Record("LSTM both", 'y = LSTM <hidden_size=3, direction="bidirectional"> (a, b, c, d)',
           ((4, 2, 5), (2, 12, 5), (2, 12, 3), (2, 24)), lambda *all: _lstm(*all, both=True), _small),
    Record("LSTM states", "v, h, e = LSTM <hidden_size=3> (a, b, c, d, , f, f) p = Add(h, e) y = Add(v, p)",
           ((4, 2, 5), (1, 12, 5), (1, 12, 3), (1, 24)), None, _small, integers={"f": np.full((1, 2, 3), 0.3)}),
    Record("LSTM with peepholes", "v, h, s = LSTM <hidden_size=3> (a, b, c, d, , , , e) t = Add(h, s) y = Add(v, t)",
           ((4, 2, 5), (1, 12, 5), (1, 12, 3), (1, 24), (1, 9)), _peeping, _small),
    Record("LSTM with peepholes, both", 'y = LSTM <hidden_size=3, direction="bidirectional"> (a, b, c, d, , , , e)',
           ((4, 2, 5), (2, 12, 5), (2, 12, 3), (2, 24), (2, 9)), None, _small),
    Record("LSTM with peepholes that ends early",
           "v, h, s = LSTM <hidden_size=3> (a, b, c, d, n, , , e) " + _ENDS + " y = Add(v, r)",
           ((4, 3, 5), (1, 12, 5), (1, 12, 3), (1, 24), (1, 9)), None, _small, integers={"n": _LENGTHS}, native=False),
    Record("LSTM that clips", "v, h, s = LSTM <hidden_size=3, clip=0.4> (a, b, c, d, , , , e) t = Add(h, s) y = Add(v, t)",
           ((4, 2, 5), (1, 12, 5), (1, 12, 3), (1, 24), (1, 9)), lambda *all: _peeping(*all, clip=0.4), _small),
    Record("GRU", "y = GRU <hidden_size=3, linear_before_reset=1> (a, b, c, d)",
           ((4, 2, 5), (1, 9, 5), (1, 9, 3), (1, 18)), lambda *all: _lstm(*all, kind="GRU"), _small),
    Record("LSTM of whole vectors", "y = LSTM <hidden_size=16> (a, b, c, d)",
           ((4, 2, 3), (1, 64, 3), (1, 64, 16), (1, 128)), _lstm, _small),
    Record("LSTM of whole vectors, both", 'y = LSTM <hidden_size=16, direction="bidirectional"> (a, b, c, d)',
           ((3, 2, 3), (2, 64, 3), (2, 64, 16), (2, 128)), lambda *all: _lstm(*all, both=True), _small),
    Record("LSTM of whole vectors, states",
           'v, h, s = LSTM <hidden_size=16, direction="reverse"> (a, b, c, , , d, e) t = Add(h, s) y = Add(v, t)',
           ((3, 2, 3), (1, 64, 3), (1, 64, 16), (1, 2, 16), (1, 2, 16)), None, _small),
    Record("LSTM of whole vectors, last cell", "v, h, y = LSTM <hidden_size=16> (a, b, c)",
           ((3, 2, 3), (1, 64, 3), (1, 64, 16)), None, _small),
    Record("GRU of whole vectors", "y = GRU <hidden_size=16, linear_before_reset=1> (a, b, c, d)",
           ((4, 2, 3), (1, 48, 3), (1, 48, 16), (1, 96)), lambda *all: _lstm(*all, kind="GRU"), _small),
    Record("GRU of whole vectors, states",
           'v, h = GRU <hidden_size=16, direction="bidirectional", linear_before_reset=1> (a, b, c, d, , e) y = Add(v, h)',
           ((3, 2, 3), (2, 48, 3), (2, 48, 16), (2, 96), (2, 2, 16)), None, _small),
    Record("GRU of whole vectors, last state", "v, y = GRU <hidden_size=16, linear_before_reset=1> (a, b, c)",
           ((3, 2, 3), (1, 48, 3), (1, 48, 16)), None, _small),
    Record("GRU reset first", "y = GRU <hidden_size=3> (a, b, c, d)", ((4, 2, 5), (1, 9, 5), (1, 9, 3), (1, 18)), None, _small),
    Record("GRU reset first, both", 'v, y = GRU <hidden_size=3, direction="bidirectional"> (a, b, c)',
           ((4, 2, 5), (2, 9, 5), (2, 9, 3)), None, _small),
    Record("LSTM that ends early", 'v, h, e = LSTM <hidden_size=3, direction="bidirectional"> (a, b, c, d, n) ' + _ENDS
           + " p = ReduceSum <keepdims=0> (e) s = Add(r, p) y = Add(v, s)",
           ((4, 3, 5), (2, 12, 5), (2, 12, 3), (2, 24)), None, _small, integers={"n": _LENGTHS}, native=False),
    Record("GRU that ends early", 'v, h = GRU <hidden_size=3, linear_before_reset=1, direction="reverse"> (a, b, c, d, n) '
           + _ENDS + " y = Add(v, r)",
           ((4, 3, 5), (1, 9, 5), (1, 9, 3), (1, 18)), None, _small, integers={"n": _LENGTHS}, native=False),
    Record("RNN that ends early", "v, h = RNN <hidden_size=3> (a, b, c, d, n) " + _ENDS + " y = Add(v, r)",
           ((4, 3, 5), (1, 3, 5), (1, 3, 3), (1, 6)), None, _small, integers={"n": _LENGTHS}, native=False),
    Record("RNN relu", 'y = RNN <hidden_size=3, activations=["Relu"]> (a, b, c, d)', ((4, 2, 5), (1, 3, 5), (1, 3, 3), (1, 6)),
           lambda *all: _lstm(*all, kind="RNN", nonlinearity="relu"), _small),
    Record("RNN", "y = RNN <hidden_size=3> (a, b, c, d)", ((4, 2, 5), (1, 3, 5), (1, 3, 3), (1, 6)),
           lambda *all: _lstm(*all, kind="RNN"), _small),
)  # fmt: skip


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *mask: torch.Tensor, **more: Any) -> torch.Tensor:
    return f.scaled_dot_product_attention(q, k, v, *mask, **more)


def _heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.unflatten(2, (count, -1)).transpose(1, 2)


def _joined(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


def causal_with_past(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, past: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of two heads over a past, and what is handed on."""
    q, k, v = (_heads(part, 2) for part in (x @ w + bias).chunk(3, 2))
    present = torch.cat((past, torch.stack((k, v))), 3)
    seen = torch.ones(q.shape[2], present.shape[3]).tril(past.shape[3]).bool()
    return _joined(_attend(q, *present, seen)), present


def _spread(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Coordinates that reach past the image, none of them near a pixel's; other arrays are drawn."""
    if shape[-1] not in (2, 3) or len(shape) not in (4, 5):
        return rng.standard_normal(shape)
    return rng.uniform(-1.3, 1.3, shape)


def _sampled(mode: str, padding: str, corners: bool) -> Tensors:
    return lambda a, b: f.grid_sample(a, b, mode=mode, padding_mode=padding, align_corners=corners)


def _grid(mode: str, padding: str, corners: bool) -> Record:
    return Record(
        f"GridSample {mode} {padding} {corners}",
        f'y = GridSample <mode="{mode}", padding_mode="{padding}", align_corners={int(corners)}> (a, b)',
        ((2, 3, 4, 6), (2, 5, 3, 2)),
        _sampled(mode, padding, corners),
        _spread,
        opset=16,
        native=False,
        symbolic=False,
    )


def _dft(name: str, nodes: str, shape: tuple[int, ...], function: Callable[[torch.Tensor], torch.Tensor], opset: int) -> Record:
    """A transform of complex numbers, or of real ones whose last axis is 1, and what torch calls it."""

    def pairs(a: torch.Tensor) -> torch.Tensor:
        found = function(a[..., 0] if shape[-1] == 1 else torch.view_as_complex(a))
        return torch.view_as_real(found) if found.is_complex() else found[..., None]

    return Record(f"DFT {name}", nodes, (shape,), pairs, opset=opset, native=False)


_SIX = "l = Constant <value=int64 {6}> () "
_THREE = "s = Constant <value=int64 {3}> () "
SIGNALS = (
    *(
        _grid(mode, padding, corners)
        for mode in ("bilinear", "bicubic", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ),
    Record("GridSample of volumes", 'y = GridSample <mode="linear"> (a, b)', ((2, 2, 4, 3, 5), (2, 3, 2, 2, 3)),
           _sampled("bilinear", "zeros", False), _spread, opset=20, native=False, symbolic=False),
    Record("Col2Im", _ints("i", 5, 6) + _ints("k", 2, 3) + "y = Col2Im <strides=[1, 2], pads=[1, 0, 0, 1]> (a, i, k)",
           ((2, 18, 15),), None, symbolic=False, native=False),
    Record("Col2Im plain", _ints("i", 5, 6) + _ints("k", 3, 3) + "y = Col2Im(a, i, k)",
           ((2, 18, 12),), lambda a: f.fold(a, (5, 6), 3), symbolic=False, native=False),
    _dft("complex", "y = DFT <axis=1> (a)", (2, 6, 2), torch.fft.fft, 17),
    _dft("real", "y = DFT <axis=1> (a)", (2, 5, 1), torch.fft.fft, 17),
    _dft("one side", "y = DFT <axis=1, onesided=1> (a)", (2, 5, 1), torch.fft.rfft, 17),
    _dft("inverse", "y = DFT <inverse=1> (a)", (2, 6, 2), torch.fft.ifft, 20),
    _dft("longer", _SIX + "y = DFT <axis=1, onesided=1> (a, l)", (2, 4, 1), lambda a: torch.fft.rfft(a, 6), 17),
    _dft("shorter", _SIX + "y = DFT(a, l)", (2, 9, 2), lambda a: torch.fft.fft(a, 6), 20),
    _dft("back to real", "y = DFT <inverse=1, onesided=1> (a)", (2, 4, 2), torch.fft.irfft, 20),
    Record("STFT", _THREE + "y = STFT <onesided=1> (a, s, b)", ((2, 14, 1), (6,)),
           lambda a, b: torch.view_as_real(torch.fft.rfft(a[..., 0].unfold(1, 6, 3) * b)),
           opset=17, native=False, symbolic=False),
    Record("STFT both sides", _THREE + "l = Constant <value=int64 {5}> () y = STFT <onesided=0> (a, s, , l)", ((2, 14, 1),),
           lambda a: torch.view_as_real(torch.fft.fft(a[..., 0].unfold(1, 5, 3))), opset=17, native=False, symbolic=False),
)  # fmt: skip


_SEEN = np.array([[True, False, True, True], [False, False, False, True], [True, True, True, True]])
ATTENTION = (
    Record("Attention", "y = Attention(a, b, c)", ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2)), _attend, opset=23, symbolic=False),
    Record("Attention heads together", "y = Attention <q_num_heads=4, kv_num_heads=2, scale=0.3> (a, b, c)",
           ((2, 3, 8), (2, 5, 4), (2, 5, 6)),
           lambda a, b, c: _joined(_attend(_heads(a, 4), _heads(b, 2), _heads(c, 2), scale=0.3, enable_gqa=True)),
           opset=23, symbolic=False),
    Record("Attention causal", "y = Attention <is_causal=1> (a, b, c)", ((2, 2, 4, 3), (2, 2, 4, 3), (2, 2, 4, 3)),
           lambda a, b, c: _attend(a, b, c, is_causal=True), opset=23, symbolic=False),
    Record("Attention masked", "y = Attention(a, b, c, m)", ((2, 2, 3, 5), (2, 2, 4, 5), (2, 2, 4, 2)), _attend,
           integers={"m": _SEEN}, opset=23, symbolic=False),
    Record("Attention unseen", "y = Attention(a, b, c, m)", ((1, 2, 3, 5), (1, 2, 4, 5), (1, 2, 4, 2)), None,
           integers={"m": _SEEN & np.array([[True], [False], [True]])}, opset=23, symbolic=False),
    Record("Attention bias", "y = Attention <softcap=1.5> (a, b, c, d)", ((2, 2, 3, 5), (2, 2, 4, 5), (2, 2, 4, 2), (2, 1, 3, 4)),
           opset=23, symbolic=False),
    Record("Attention infinite bias", "y = Attention(a, b, c, m)", ((1, 1, 3, 5), (1, 1, 4, 5), (1, 1, 4, 2)), _attend,
           integers={"m": np.where(_SEEN, 0.5, -np.inf)}, opset=23, symbolic=False),
    Record("Attention with a past", "y = Attention <is_causal=1> (a, b, c, , d, e)",
           ((2, 4, 3, 5), (2, 2, 3, 5), (2, 2, 3, 2), (2, 2, 4, 5), (2, 2, 4, 2)),
           lambda a, b, c, d, e: _attend(a, torch.cat((d, b), 2), torch.cat((e, c), 2), torch.ones(3, 7).tril(4).bool(),
                                         enable_gqa=True),
           opset=23, symbolic=False),
    Record("Attention with a past that is handed on", "z, k, v = Attention(a, b, c, m, d, e) r = ReduceSum <keepdims=0> (k) "
           "s = ReduceSumSquare <keepdims=0> (v) t = Add(r, s) y = Add(z, t)",
           ((2, 2, 3, 5), (2, 2, 1, 5), (2, 2, 1, 2), (2, 2, 4, 5), (2, 2, 4, 2)), None, integers={"m": _SEEN},
           opset=23, symbolic=False),
    Record("MultiHeadAttention", "y = com.microsoft.MultiHeadAttention <num_heads=2> (a, b, c, d)",
           ((2, 3, 8), (2, 5, 8), (2, 5, 6), (22,)),
           lambda a, b, c, d: _joined(_attend(_heads(a + d[:8], 2), _heads(b + d[8:16], 2), _heads(c + d[16:], 2))),
           symbolic=False),
    Record("MultiHeadAttention masked", "y = com.microsoft.MultiHeadAttention <num_heads=2, scale=0.3> (a, b, c, , m, d)",
           ((2, 3, 4), (2, 5, 4), (2, 5, 4), (1, 2, 3, 5)),
           lambda a, b, c, d, m: _joined(_attend(_heads(a, 2), _heads(b, 2), _heads(c, 2),
                                                 d + torch.where(m > 0, 0.0, -10000.0)[:, None, None], scale=0.3)),
           integers={"m": np.array([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]], np.int32)}, symbolic=False),
    Record("MultiHeadAttention lengths",
           "y = com.microsoft.MultiHeadAttention <num_heads=2, mask_filter_value=-2.0> (a, b, c, , m)",
           ((2, 3, 4), (2, 5, 4), (2, 5, 4)), None, integers={"m": np.array([2, 5], np.int32)}, symbolic=False),
    Record("MultiHeadAttention mask of queries", "y = com.microsoft.MultiHeadAttention <num_heads=2> (a, b, c, , m)",
           ((2, 3, 4), (2, 4, 4), (2, 4, 4)), None, integers={"m": np.stack((_SEEN, _SEEN[::-1])).astype(np.int32)},
           symbolic=False),
    Record("MultiHeadAttention causal with a past",
           "y = com.microsoft.MultiHeadAttention <num_heads=2, unidirectional=1> (a, b, c, , , , d, e)",
           ((2, 3, 4), (2, 3, 4), (2, 3, 4), (2, 2, 2, 2), (2, 2, 2, 2)),
           lambda a, b, c, d, e: _joined(_attend(_heads(a, 2), torch.cat((d, _heads(b, 2)), 2), torch.cat((e, _heads(c, 2)), 2),
                                                 torch.ones(3, 5).tril(2).bool())), symbolic=False),
    Record("MultiHeadAttention packed", "y = com.microsoft.MultiHeadAttention <num_heads=2> (a, , , b)", ((2, 3, 2, 3, 4), (24,)),
           lambda a, b: _joined(_attend(*(a[:, :, :, i].transpose(1, 2) + b.reshape(3, 2, 1, 4)[i] for i in range(3)))),
           symbolic=False),
    Record("MultiHeadAttention keys packed", "y = com.microsoft.MultiHeadAttention <num_heads=2> (a, b)",
           ((2, 3, 8), (2, 5, 2, 2, 4)),
           lambda a, b: _joined(_attend(_heads(a, 2), *(b[:, :, :, i].transpose(1, 2) for i in range(2)))), symbolic=False),
    Record("MultiHeadAttention across", "y = com.microsoft.MultiHeadAttention <num_heads=2> (a, b, c, d)",
           ((2, 3, 8), (2, 2, 5, 4), (2, 2, 5, 4), (24,)),
           lambda a, b, c, d: _joined(_attend(_heads(a + d[:8], 2), b, c)), symbolic=False),
    Record("com.microsoft Attention", "y = com.microsoft.Attention <num_heads=2> (a, b, c)", ((2, 3, 5), (5, 24), (24,)),
           lambda a, b, c: _joined(_attend(*(_heads(part, 2) for part in (a @ b + c).chunk(3, 2)))), symbolic=False),
    Record("com.microsoft Attention of other sizes",
           "y = com.microsoft.Attention <num_heads=2, qkv_hidden_sizes=[4, 4, 6], unidirectional=1, scale=0.4> (a, b, , m, , c)",
           ((2, 3, 5), (5, 14), (2, 1, 3, 3)), None, integers={"m": np.array([[1, 1, 0], [1, 0, 1]], np.int32)}, symbolic=False),
    Record("com.microsoft Attention with a past", "y = com.microsoft.Attention <num_heads=2, unidirectional=1> (a, b, c, , d)",
           ((2, 3, 5), (5, 24), (24,), (2, 2, 2, 3, 4)),
           lambda a, b, c, d: causal_with_past(a, b, c, d)[0], symbolic=False),
)  # fmt: skip
RECORDS = (*UNARY, *BINARY, *PRODUCTS, *REDUCTIONS, *LOSSES, *NORMS, *MOVEMENT, *WINDOWS, *RECURRENT, *ATTENTION, *SIGNALS)
