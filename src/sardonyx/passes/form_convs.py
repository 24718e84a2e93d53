"""Transposed convolutions as convolutions, where that takes less time.

    y = ConvTranspose(x, w[I, O, K])                     =>   y = Conv(x, w reversed [O, I, K]) {pads = [K - 1, K - 1]}
    y = ConvTranspose(x, w[I, O, K]) {strides = [s]}     =>   z = Conv(x, v[O s, I, ceil(K / s)])
                                                              y = z[N, O, s, Q] with its last two axes exchanged, cut to size

A stride of s writes s results for every input, each by taps of its own: they are channels of one convolution, and moved into
place afterwards (DepthToSpace for images). Without strides that is all there is to it. With strides it pays where a few output
channels would leave most lanes of a vector idle, or where there are more phases than steps (`lower.conv.conv_transpose`).
Runs right before AssignLayout. Refuses: weights that are not constant, groups, results of a given shape, pads larger than the
kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array, origin_of
from sardonyx.ir.types import TensorType
from sardonyx.passes.assign_layout import MOST_PHASES
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass
from sardonyx.target.levels import generic
from sardonyx.target.target import Target

_END: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class _Transposed:
    """A transposed convolution of so many spatial axes."""

    node: Node
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    extra: tuple[int, ...]  # output_padding
    kernel: tuple[int, ...]
    inputs: int
    outputs: int


@dataclass(frozen=True)
class FormConv(Rule[_Transposed]):
    """ConvTranspose to Conv."""

    target: Target = generic("x86-64-v3")  # the pipeline sets it to what code is made for
    name: ClassVar[str] = "FormConv"
    roots: ClassVar[frozenset[str]] = frozenset(("ConvTranspose",))

    def match(self, g: Rewriter, node: Node) -> _Transposed | Reject | None:
        weights = g.constant_of(node.inputs[1])
        if weights is None or weights.dtype is not dtypes.FLOAT32 or len(weights.shape) < 3 or 0 in weights.shape:
            return None
        attrs, rank = attribute_values(node), len(weights.shape) - 2
        one, none = (1,) * rank, (0,) * rank
        found = _Transposed(
            node,
            tuple(attrs.get("strides") or one),
            tuple(attrs.get("dilations") or one),
            tuple(attrs.get("pads") or none * 2),
            tuple(attrs.get("output_padding") or none),
            tuple(weights.shape[2:]),
            *weights.shape[:2],
        )
        if prod(found.strides) == 1 or found.outputs <= self.target.lanes // 4 or prod(found.strides) > MOST_PHASES:
            return found
        return None

    def check(self, g: Rewriter, found: _Transposed) -> Any:
        node, rank = found.node, len(found.kernel)
        attrs = attribute_values(node)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        x = node.inputs[0]
        if x is None or x.shape is None or len(x.shape) != rank + 2:
            return Reject("the rank of its input is not known")
        if attrs.get("group", 1) != 1:
            return Reject(f"it has {attrs['group']} groups")
        if attrs.get("auto_pad") not in (None, "NOTSET", "VALID") or attrs.get("output_shape"):
            return Reject("what is cut off follows from the shape of its result")
        if bias is not None and g.constant_of(bias) is None:
            return Reject("its bias is not constant")
        if prod(found.strides) == 1:
            reach = [dilation * (size - 1) for dilation, size in zip(found.dilations, found.kernel)]
            around = [*reach, *(each + more for each, more in zip(reach, found.extra))]
            pads = tuple(all_of - cut for all_of, cut in zip(around, found.pads))
            return pads if min(pads) >= 0 else Reject(f"its pads {list(found.pads)} are larger than its kernels reach")
        if max(found.dilations) > 1 or min(found.pads) < 0:
            return Reject("it has strides and dilations, or negative pads")
        if rank > 2 or len(set(found.strides)) > 1 or (rank == 2 and g.version < 11):
            return Reject(f"strides {list(found.strides)}: results are not squares, or there is no operator to move them")
        return ()

    def rewrite(self, g: Rewriter, found: _Transposed, facts: Any) -> None:
        node, step = found.node, found.strides[0]
        x, weights = node.inputs[:2]
        bias = g.array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
        data = g.array(weights)
        assert data is not None
        origin = origin_of("form conv", [g.constant_of(weights)], (step,))
        parts = phases(data, [step] * len(found.kernel))
        flat = parts.reshape(-1, *parts.shape[len(found.kernel) + 1 :])
        kernels = g.constant(flat, weights.name if weights is not None else "w", origin)
        summands = None if bias is None else g.constant(np.repeat(bias, step ** len(found.kernel)), "bias")
        inputs = [x, kernels] if summands is None else [x, kernels, summands]
        if step == 1:
            (made,) = g.node("Conv", inputs, 1, pads=facts, dilations=found.dilations)
            g.replace(node.outputs[0], made)
            return
        # Taps that a phase has at most; results that are wanted of the full ones, from `begin` on; windows that they take.
        taps = [-(-size // step) for size in found.kernel]
        rank = len(taps)
        begin, end = found.pads[:rank], found.pads[rank:]
        missing = [
            max(-(-(size + more - after) // step) - tap, 0)
            for size, more, after, tap in zip(found.kernel, found.extra, end, taps)
        ]
        before = [tap - 1 for tap in taps]
        after = [tap - 1 + more for tap, more in zip(taps, missing)]
        (full,) = g.node("Conv", inputs, 1, pads=[*before, *after])
        moved = _moved(g, full, found.outputs, step) if rank == 1 else g.op("DepthToSpace", full, blocksize=step, mode="CRD")
        cut = [
            step * (tap + more) - size - wider + behind
            for tap, more, size, wider, behind in zip(taps, missing, found.kernel, found.extra, end)
        ]
        if any(begin) or any(cut):
            ends = [-each if each else _END for each in cut]
            moved = _cut(g, moved, begin, ends)
            moved.type = node.outputs[0].type  # the rule of Slice says the same at greater length
        g.replace(node.outputs[0], moved)


def phases(w: Array, steps: Sequence[int], fill: Array | float = 0.0) -> Array:
    """[I, O, K...] as [O, steps..., I, ceil(K / step)...]: result r of every `step` by the taps that reach it, last first.

    `fill` stands where a phase has fewer taps than others: a number, or one for each output.
    """
    inputs, outputs, *kernel = w.shape
    taps = [-(-size // step) for size, step in zip(kernel, steps)]
    rank = len(taps)
    padded = np.empty((inputs, outputs, *(tap * step for tap, step in zip(taps, steps))), w.dtype)
    padded[:] = np.reshape(fill, (-1, *(1,) * rank))
    padded[(slice(None), slice(None), *(slice(size) for size in kernel))] = w
    split = padded.reshape(inputs, outputs, *(part for tap, step in zip(taps, steps) for part in (tap, step)))
    order = (1, *range(3, 3 + 2 * rank, 2), 0, *range(2, 2 + 2 * rank, 2))
    return np.ascontiguousarray(np.flip(split.transpose(order), tuple(range(rank + 2, 2 * rank + 2))))


def _moved(g: Rewriter, full: Value, outputs: int, step: int) -> Value:
    """[N, outputs * step, Q] as [N, outputs, Q * step]."""
    assert full.shape is not None
    batch, _, length = full.shape
    parts, whole = (batch, outputs, step, length), (batch, outputs, length * step)
    if isinstance(batch, int) and isinstance(length, int):
        into, back = (g.constant(np.array(each, np.int64), "shape") for each in (parts, whole))
    else:
        sizes = g.op("Shape", full)
        first, last = (g.op("Gather", sizes, g.constant(np.array([axis], np.int64), "axis")) for axis in (0, 2))
        into = g.op("Concat", first, g.constant(np.array([outputs, step], np.int64), "sizes"), last, axis=0)
        all_of = g.op("Mul", last, g.constant(np.array([step], np.int64), "step"))
        back = g.op("Concat", first, g.constant(np.array([outputs], np.int64), "sizes"), all_of, axis=0)
    split = g.op("Reshape", full, into)
    split.type = TensorType(dtypes.FLOAT32, parts)
    made = g.op("Reshape", g.op("Transpose", split, perm=[0, 1, 3, 2]), back)
    made.type = TensorType(dtypes.FLOAT32, whole)
    return made


def _cut(g: Rewriter, value: Value, begin: tuple[int, ...], ends: list[int]) -> Value:
    axes = list(range(2, 2 + len(ends)))
    if g.version < 10:
        return g.op("Slice", value, starts=list(begin), ends=ends, axes=axes)
    parts = [g.constant(np.array(each, np.int64), name) for each, name in ((begin, "starts"), (ends, "ends"), (axes, "axes"))]
    return g.op("Slice", value, *parts)
