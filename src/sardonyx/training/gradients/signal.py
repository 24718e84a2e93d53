"""Gradients of Fourier transforms.

A transform is a product with a matrix of unit numbers, so its gradient is the product with the conjugate: the inverse transform,
times its length; and that of an inverse transform is the transform, divided by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.ir.builder import Operand
from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]


def _resized(b: Backward, value: Value, axis: int, rank: int, now: Operand, wanted: Operand) -> Value:
    """Zeros behind the last element of an axis, or fewer elements."""
    none = b.ints(*[0] * (rank + axis))
    rest = b.ints(*[0] * (rank - axis - 1))
    return b.Pad(value, b.Concat(none, b.Sub(wanted, now), rest, axis=0))


def _transform(b: Backward, value: Value, axis: int, *, inverse: bool, onesided: bool = False) -> Value:
    attrs: dict[str, Any] = {"inverse": int(inverse), "onesided": int(onesided)}
    if b.g.version < 20:
        return b.g.op("DFT", value, None, axis=axis, **attrs)
    return b.g.op("DFT", value, None, np.array(axis), **attrs)


def _number(b: Backward, size: Value) -> Term:
    """A size [1] as a number of the node's type."""
    dtype = dtype_of(b.x())
    return Term(b, b.Cast(size, to=dtype.onnx), dtype)


def _real(b: Backward, value: Value) -> Value:
    return b.Slice(value, b.ints(0), b.ints(1), b.ints(-1))


@gradient("DFT", stops=(1, 2))
def _dft(b: Backward) -> Results:
    x, y, rank = b.x(), b.y(), b.rank(b.x())
    axis = b.attr("axis") if b.node.version < 20 else -2
    if b.node.version >= 20 and b.has(2):
        given = b.constant(2)
        if given is None:
            b.refuse("its axis is computed", "make the axis a constant")
        axis = int(given.reshape(-1)[0])
    axis = int(axis) % rank
    inverse, onesided = bool(b.attr("inverse")), bool(b.attr("onesided"))
    bins = b.sizes(y, axis)
    length = b.Reshape(b.x(1), b.ints(1)) if b.has(1) else b.sizes(x, axis)
    dtype = dtype_of(x)
    if inverse and onesided:
        return [_of_real_inverse(b, axis, rank, bins)]
    d = _resized(b, b.dy(), axis, rank, bins, length) if onesided else b.dy()
    found = Term(b, _transform(b, d, axis, inverse=not inverse), dtype)
    count = _number(b, length)
    made = (found / count if inverse else found * count).value
    made = _resized(b, made, axis, rank, length, b.sizes(x, axis)) if b.has(1) else made
    return [made if b.shape(x)[-1] == 2 else _real(b, made)]


def _of_real_inverse(b: Backward, axis: int, rank: int, length: Value) -> Value:
    """Of a half spectrum: all but the first and, of an even length, the last number stand for two."""
    dtype = dtype_of(b.x())
    spectrum = Term(b, _transform(b, b.dy(), axis, inverse=False, onesided=True), dtype)
    half = b.Add(b.Div(length, np.array(2)), np.array(1))
    at = b.Range(np.array(0), b.Squeeze(half, b.ints(0)), np.array(1))
    single = b.Or(b.Equal(at, np.array(0)), b.Equal(b.Mul(at, np.array(2)), length))
    factors = b.Where(single, np.ones((), dtype.numpy), np.full((), 2, dtype.numpy))
    factors = b.Unsqueeze(factors, b.ints(*range(1, rank - axis)))
    made = spectrum * Term(b, factors, dtype) / _number(b, length)
    return _resized(b, made.value, axis, rank, half, b.sizes(b.x(), axis))


@gradient("STFT", stops=(1, 3))
def _stft(b: Backward) -> Results:
    """The gradients of all frames, added up where they overlap."""
    signal, dtype = b.x(), dtype_of(b.x())
    step, y = b.constant(1), b.shape(b.y())
    given = b.constant(3)
    window_shape = b.shape(b.x(2)) if b.has(2) else ()
    length = int(given.reshape(-1)[0]) if given is not None else (window_shape[0] if window_shape else None)
    if step is None or not isinstance(length, int):
        b.refuse("the length or the distance of its frames is computed", "make frame_step and frame_length constants")
    if len(b.shape(signal)) == 3 and b.shape(signal)[2] == 2:
        b.refuse("its signal is complex")
    every = int(step.reshape(-1)[0])
    size = b.ints(length)
    d = _resized(b, b.dy(), 2, len(y), b.sizes(b.y(), 2), size) if b.attr("onesided") else b.dy()
    framed = Term(b, b.Squeeze(_real(b, _transform(b, d, 2, inverse=True)), b.ints(3)), dtype) * float(length)  # [B, F, L]
    picks = np.eye(length, dtype=dtype.numpy).reshape(length, 1, length)
    samples = b.Concat(b.sizes(signal, 0), b.ints(1), b.sizes(signal, 1), axis=0)
    results: list[Value | None] = [None, None, None]
    if b.wants(0):
        of_frames = framed * b.t(b.x(2)) if b.has(2) else framed
        transposed = b.Transpose(of_frames.value, perm=[0, 2, 1])
        results[0] = b.Reshape(b.own("ConvGradData", transposed, picks, samples, strides=[every]), b.Shape(signal))
    if b.has(2) and b.wants(2):
        frames = b.Transpose(b.g.op("Conv", b.Reshape(signal, samples), picks, strides=[every]), perm=[0, 2, 1])
        results[2] = b.ReduceSum((framed * Term(b, frames, dtype)).value, b.ints(0, 1), keepdims=0)
    return results
