"""Long kernels that are their own mirror image multiply half as often: samples that meet the same weight are added first.

    y = Conv(x: [n, 1, l], w: [o, 1, k]) {strides = [s]}      w[:, k - i] = w[:, i] (or -w[:, i]) for i = 1 .. k - 1
    =>
    frames = UnfoldTensor(x) {size = k, step = s}             [n, 1, frames, k], a view
    pairs  = frames[1 .. k/2] + frames[k-1 .. k/2, backwards] (or -)
    y      = MatMul(Concat(frames[0], pairs), half of w), transposed

Spectrograms are exported so: the real and the imaginary part of a Fourier transform are convolutions with cosines and sines under
a window. Weights may differ from their mirror image by what rounding the largest of them leaves; their mean is taken then.
Refuses: weights that are not constant, finite or mirrored, and few or short kernels. Needs Slice with operands (ai.onnx 10).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, attr_ints, dtype_of, shape_of
from sardonyx.records import dataclass

_LEAST_TAPS: Final = 128
_LEAST_OUTPUTS: Final = 32  # fewer do not repay the sums
_SLICE_WITH_OPERANDS: Final = 10
_SQUEEZE_WITH_OPERAND: Final = 13
_DIFFERENCE: Final = 2.0**-24  # of the largest weight, between a weight and its mirror image: what float32 rounds


@dataclass(frozen=True)
class _LongConv:
    """A convolution over one channel of samples."""

    x: Value
    weights: Value
    bias: Value | None
    taps: int
    stride: int


@dataclass(frozen=True)
class _Folded:
    matrix: Array  # [taps / 2 + 1, outputs]
    sign: int


@dataclass(frozen=True)
class FoldMirroredKernels(Rule[_LongConv]):
    """Ensures: no convolution of samples with long mirrored kernels multiplies both halves."""

    name: ClassVar[str] = "FoldMirroredKernels"
    roots: ClassVar[frozenset[str]] = frozenset(("Conv",))

    def match(self, g: Rewriter, node: Node) -> _LongConv | Reject | None:
        x, weights, bias = (*node.inputs, None)[:3]
        shape, kernel = shape_of(x), shape_of(weights)
        if x is None or weights is None or shape is None or kernel is None or len(shape) != 3 or len(kernel) != 3:
            return None
        outputs, inputs, taps = kernel
        if shape[1] != 1 or inputs != 1 or not isinstance(taps, int) or not isinstance(outputs, int):
            return None
        plain = node.attr("auto_pad", "NOTSET") == "NOTSET" and not any(attr_ints(node, "pads") or ())
        alone = node.attr("group", 1) == 1 and (attr_ints(node, "dilations") or (1,)) == (1,)
        (stride,) = attr_ints(node, "strides") or (1,)
        if not plain or not alone or taps % 2 or taps < _LEAST_TAPS or outputs < _LEAST_OUTPUTS or stride < 1:
            return None
        if dtype_of(x) is not dtypes.FLOAT32 or g.version < _SLICE_WITH_OPERANDS:
            return None
        return _LongConv(x, weights, bias, taps, stride)

    def check(self, g: Rewriter, found: _LongConv) -> Any:
        weights = g.array(found.weights)
        if weights is None:
            return Reject("the weights are no constant")
        if not np.isfinite(weights).all():
            return Reject("weights that are not finite")
        return folded(weights[:, 0]) or Reject("the weights are not their own mirror image")

    def rewrite(self, g: Rewriter, found: _LongConv, facts: Any) -> None:
        half = found.taps // 2
        frames = g.op("UnfoldTensor", found.x, domain="com.microsoft", dim=-1, size=found.taps, step=found.stride)

        def part(first: int, end: int, step: int = 1) -> Value:
            bounds = (g.constant(np.array([number], np.int64), "bound") for number in (first, end, 3, step))
            return g.op("Slice", frames, *bounds)

        ahead, back = part(1, half + 1), part(found.taps - 1, half - 1, -1)
        pairs = g.op("Add" if facts.sign > 0 else "Sub", ahead, back)
        joined = g.op("Concat", part(0, 1), pairs, axis=3)
        made = g.op("MatMul", joined, g.constant(facts.matrix, "folded"))
        if found.bias is not None:
            made = g.op("Add", made, found.bias)
        if g.version < _SQUEEZE_WITH_OPERAND:
            flat = g.op("Squeeze", made, axes=(1,))
        else:
            flat = g.op("Squeeze", made, g.constant(np.array([1], np.int64), "axes"))
        g.replace(g.anchor.outputs[0], g.op("Transpose", flat, perm=(0, 2, 1)))


def folded(weights: Array) -> _Folded | None:
    """The weights [outputs, taps] of sums of pairs, if all kernels are mirrored alike."""
    half = weights.shape[1] // 2
    wide = weights.astype(np.float64)
    ahead, back = wide[:, 1 : half + 1], wide[:, half:][:, ::-1]
    bound = np.abs(wide).max() * _DIFFERENCE
    for sign in (1, -1):
        if np.abs(ahead - sign * back).max() <= bound:
            pairs = (ahead + sign * back) / 2
            pairs[:, -1] /= 2 if sign > 0 else 1  # the tap in the middle meets itself
            matrix = np.concatenate([wide[:, :1], pairs], axis=1).T
            return _Folded(np.ascontiguousarray(matrix, np.float32), sign)
    return None
