"""A short Fourier transform is a product with a constant matrix.

    y = DFT(x: f32[N,64,1])                =>   Reshape(MatMul(Reshape(x): f32[N,64], matrix: f32[64,128])): f32[N,64,2]
    y = STFT(x: f32[B,L,1], step, window)  =>   Reshape(Transpose(Conv(Transpose(x): f32[B,1,L], kernels: f32[2*bins,1,length])))

Columns of the matrix are the real and the imaginary parts of a frequency, one beside the other; a window is in the kernels. A
short transform at the host takes 20 to 80 us for what is some microseconds of products, and cuts the program in two; from some
hundred samples on an algorithm with fewer operations is faster. Runs when operands are literal, before kernels are laid out.
Refuses: transforms along an axis that is not the one before the last, of another length than that, of many samples, to real
signals; steps and windows that are no constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_MOST_PRODUCTS: Final = 70_000  # of a row; 256 real samples to 129 frequencies
# Few rows cost less than the way to the host: how many of them may have more products.
_FEW: Final = ((16, 2 * _MOST_PRODUCTS), (4, 4 * _MOST_PRODUCTS))
_AXIS_IS_INPUT: Final = 20


class _Transform(NamedTuple):
    """What is multiplied: [samples, frequencies, 2], of complex samples [samples, 2, frequencies, 2]."""

    matrix: Array
    step: int  # from frame to frame; 0: not of frames


@dataclass(frozen=True)
class MultiplyShortTransforms(Rule[_Transform]):
    """Ensures: Fourier transforms along a few samples are products."""

    name: ClassVar[str] = "MultiplyShortTransforms"
    roots: ClassVar[frozenset[str]] = frozenset(("DFT", "STFT"))
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> _Transform | Reject | None:
        x = node.inputs[0]
        if x is None or x.shape is None or dtype_of(x) not in (dtypes.FLOAT32, dtypes.FLOAT64):
            return None
        return _of_rows(g, node, x) if node.op_type == "DFT" else _of_frames(g, node, x)

    def rewrite(self, g: Rewriter, found: _Transform, facts: Any) -> None:
        node = g.anchor
        x, result = node.inputs[0], node.outputs[0]
        assert x is not None
        dtype = dtype_of(x)
        assert dtype is not None
        frequencies = found.matrix.shape[-2]
        weights = found.matrix.astype(dtype.numpy)
        if not found.step:
            depth = math.prod(found.matrix.shape[:-2])
            assert x.shape is not None
            rank = len(x.shape)
            rows = g.op("Reshape", x, _numbers(g, *(0,) * (rank - 2), depth))
            product = g.op("MatMul", rows, g.constant(weights.reshape(depth, 2 * frequencies), "frequencies"))
            g.replace(result, g.op("Reshape", product, _numbers(g, *(0,) * (rank - 2), frequencies, 2)))
            return
        kernels = np.ascontiguousarray(weights.reshape(len(weights), 1, 2 * frequencies).T)
        assert x.shape is not None
        is_flat = len(x.shape) == 2
        signal = g.op("Unsqueeze", x, _numbers(g, 1)) if is_flat else g.op("Transpose", x, perm=[0, 2, 1])
        product = g.op("Conv", signal, g.constant(kernels, "frequencies"), strides=[found.step])
        frames = g.op("Transpose", product, perm=[0, 2, 1])
        g.replace(result, g.op("Reshape", frames, _numbers(g, 0, 0, frequencies, 2)))


def _numbers(g: Rewriter, *values: int) -> Value:
    return g.constant(np.array(values, np.int64), "numbers")


def _of_rows(g: Rewriter, node: Node, x: Value) -> _Transform | Reject | None:
    """The transform of a DFT."""
    shape = x.shape
    assert shape is not None
    length, parts = shape[-2:] if len(shape) >= 3 else (0, 0)
    if not isinstance(length, int) or not isinstance(parts, int) or not length or parts not in (1, 2):
        return None
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if onesided and (inverse or parts == 2):
        return Reject("a transform to a real signal, or half of one that is not real")
    along: int | None = node.attr("axis", 1)
    if node.version >= _AXIS_IS_INPUT:
        along = _number(g, node, 2, -2)
    if along not in (-2, len(shape) - 2):
        return Reject("an axis that is not the one before the last")
    if _number(g, node, 1, length) != length:
        return Reject("another length than that of the axis")
    frequencies = length // 2 + 1 if onesided else length
    if not _is_short(length * parts * frequencies * 2, shape[:-2]):
        return Reject(f"{length} samples are many")
    return _Transform(_matrix(length, frequencies, parts, inverse), 0)


def _of_frames(g: Rewriter, node: Node, x: Value) -> _Transform | Reject | None:
    """The transform of an STFT of real samples."""
    shape = x.shape
    assert shape is not None
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 1):
        return None
    step = _number(g, node, 1, None)
    given = node.inputs[2] if len(node.inputs) > 2 else None
    window = None if given is None else g.array(given)
    if step is None or step < 1 or (given is not None and (window is None or window.ndim != 1)):
        return Reject("a step or a window that is no constant")
    length = _number(g, node, 3, None if window is None else len(window))
    if length is None or length < 1 or (window is not None and len(window) != length):
        return Reject("frames of unknown length")
    if isinstance(shape[1], int) and shape[1] < length:
        return Reject("frames longer than the signal")
    frequencies = length // 2 + 1 if node.attr("onesided", 1) else length
    if not _is_short(length * frequencies * 2, (shape[0], (shape[1] - length) // step + 1)):
        return Reject(f"{length} samples are many")
    matrix = _matrix(length, frequencies, 1, inverse=False)
    return _Transform(matrix if window is None else matrix * window.astype(np.float64)[:, None, None], step)


def _is_short(products: int, rows: Sequence[Dim]) -> bool:
    known = [size for size in rows if isinstance(size, int)]
    count = math.prod(known) if len(known) == len(rows) else math.inf
    return products <= _MOST_PRODUCTS or any(count <= few and products <= most for few, most in _FEW)


def _number(g: Rewriter, node: Node, position: int, default: int | None) -> int | None:
    """A number that is an input; None if it is no constant."""
    value = node.inputs[position] if len(node.inputs) > position else None
    if value is None:
        return default
    known = g.array(value)
    return int(known.reshape(-1)[0]) if known is not None and known.size == 1 else None


def _matrix(length: int, frequencies: int, parts: int, inverse: bool) -> Array:
    """e**(-2 pi i k n / length), and for complex samples also i times that: what their imaginary parts are multiplied with."""
    positions = np.arange(length)[:, None] * np.arange(frequencies) % length
    angles = positions * ((2 if inverse else -2) * np.pi / length)
    is_quarter = positions * 4 % length == 0  # of a turn: then both are whole numbers
    cosine, sine = (np.where(is_quarter, np.rint(wave) + 0.0, wave) for wave in (np.cos(angles), np.sin(angles)))
    real = np.stack([cosine, sine], axis=-1)
    if parts == 2:
        real = np.stack([real, np.stack([-sine, cosine], axis=-1)], axis=1)
    return real / length if inverse else real
