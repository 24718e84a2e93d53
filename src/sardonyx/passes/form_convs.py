"""Transposed convolutions as convolutions, where that takes less time.

    y = ConvTranspose(x, w[I, O, K])                     =>   y = Conv(x, w reversed [O, I, K]) {pads = [K - 1, K - 1]}
    y = ConvTranspose(x, w[I, O, K]) {strides = [s]}     =>   z = Conv(x, v[O s, I, ceil(K / s)])
                                                              y = z[N, O, s, Q] with its last two axes exchanged, cut to size

A stride of s writes s results for every input, each by taps of its own: they are channels of one convolution, and moved into
place afterwards (DepthToSpace for images whose strides are alike). Without strides that is all there is to it. With strides it
pays where a few output channels would leave most lanes of a vector idle, or where there are more phases than steps
(`lower.conv.conv_transpose`); groups are those of the convolution. Runs right before AssignLayout. Refuses: weights that are not
constant, strides together with dilations, results whose borders depend on the size of the input, pads larger than the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array, origin_of
from sardonyx.ir.types import TensorType
from sardonyx.ops.conv.conv_transpose import transposed_geometry
from sardonyx.ops.conv.windows import extent
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
    extra: tuple[int, ...]  # output_padding
    kernel: tuple[int, ...]
    groups: int
    outputs: int  # of a group

    @property
    def phases(self) -> int:
        """How many results of a channel an input begins."""
        return prod(self.strides)


Borders: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # how much of the full result is cut off, before and behind


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
        found = _Transposed(
            node,
            tuple(attrs.get("strides") or (1,) * rank),
            tuple(attrs.get("dilations") or (1,) * rank),
            tuple(attrs.get("output_padding") or (0,) * rank),
            tuple(weights.shape[2:]),
            int(attrs.get("group") or 1),
            weights.shape[1],
        )
        return found if found.phases > MOST_PHASES or self._pays(found, weights.shape[0] // found.groups) else None

    def _pays(self, found: _Transposed, inputs: int) -> bool:
        """Whether a convolution takes less time than a step for every phase."""
        lanes = self.target.lanes
        if found.groups == 1:
            return found.phases == 1 or found.outputs <= lanes // 4
        # Groups that fit no lanes leave the blocked layout in any case (`passes.fit_groups`).
        is_pointwise = all(size <= step for size, step in zip(found.kernel, found.strides))
        return found.phases > 1 and lanes % inputs > 0 and inputs % lanes > 0 and (is_pointwise or inputs < lanes // 2)

    def check(self, g: Rewriter, found: _Transposed) -> Any:
        node, rank = found.node, len(found.kernel)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        x = node.inputs[0]
        if x is None or x.shape is None or len(x.shape) != rank + 2:
            return Reject("the rank of its input is not known")
        borders = _borders(found, x.shape[2:])
        if borders is None:
            return Reject("what is cut off depends on the size of its input")
        if bias is not None and g.constant_of(bias) is None:
            return Reject("its bias is not constant")
        if found.phases == 1:
            reach = [dilation * (size - 1) for dilation, size in zip(found.dilations, found.kernel)]
            around = [*reach, *(each + more for each, more in zip(reach, found.extra))]
            pads = tuple(all_of - cut for all_of, cut in zip(around, (*borders[0], *borders[1])))
            return pads if min(pads) >= 0 else Reject("more is cut off than its kernels reach")
        if max(found.dilations) > 1 or min(borders[0]) < 0:
            return Reject("it has strides and dilations, or negative pads")
        return borders

    def rewrite(self, g: Rewriter, found: _Transposed, facts: Any) -> None:
        node, steps = found.node, found.strides
        x, weights = node.inputs[:2]
        bias = g.array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
        data = g.array(weights)
        assert data is not None
        origin = origin_of("form conv", [g.constant_of(weights)], (*steps, found.groups))
        parts = np.concatenate([phases(own, steps) for own in np.split(data, found.groups)])
        flat = parts.reshape(-1, *parts.shape[len(steps) + 1 :])
        kernels = g.constant(flat, weights.name if weights is not None else "w", origin)
        summands = None if bias is None else g.constant(np.repeat(bias, found.phases), "bias")
        inputs = [x, kernels] if summands is None else [x, kernels, summands]
        if found.phases == 1:
            (made,) = g.node("Conv", inputs, 1, pads=facts, dilations=found.dilations)
            g.replace(node.outputs[0], made)
            return
        # Taps that a phase has at most; results that are wanted of the full ones, from `begin` on; windows that they take.
        begin, end = facts
        taps = [-(-size // step) for size, step in zip(found.kernel, steps)]
        missing = [
            max(-(-(size + more - after) // step) - tap, 0)
            for size, more, after, tap, step in zip(found.kernel, found.extra, end, taps, steps)
        ]
        before = [tap - 1 for tap in taps]
        after = [tap - 1 + more for tap, more in zip(taps, missing)]
        (full,) = g.node("Conv", inputs, 1, pads=[*before, *after], group=found.groups)
        if len(steps) == 2 and len(set(steps)) == 1 and g.version >= 11:
            moved = g.op("DepthToSpace", full, blocksize=steps[0], mode="CRD")
        else:
            moved = _moved(g, full, found.groups * found.outputs, steps)
        cut = [
            step * (tap + more) - size - wider + behind
            for step, tap, more, size, wider, behind in zip(steps, taps, missing, found.kernel, found.extra, end)
        ]
        if any(begin) or any(cut):
            ends = [-each if each else _END for each in cut]
            moved = _cut(g, moved, begin, ends)
            moved.type = node.outputs[0].type  # the rule of Slice says the same at greater length
        g.replace(node.outputs[0], moved)


def _borders(found: _Transposed, spatial: Sequence[Dim]) -> Borders | None:
    """What is cut off; None if it is not the same for every size of the input."""
    attrs = attribute_values(found.node)
    names = ("auto_pad", "dilations", "output_padding", "output_shape", "pads", "strides")
    try:
        where = transposed_geometry(spatial, found.kernel, **{name: attrs.get(name) for name in names})
    except ValueError:
        return None  # the operator says what is wrong with it
    begin, end = [], []
    for axis, (size, before, out) in enumerate(zip(spatial, where.begin, where.out)):
        full = (size - 1) * found.strides[axis] + extent(found.kernel[axis], found.dilations[axis]) + found.extra[axis]
        behind = full - before - out
        if not isinstance(before, int) or not isinstance(behind, int):
            return None
        begin.append(before)
        end.append(behind)
    return tuple(begin), tuple(end)


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


def _moved(g: Rewriter, full: Value, outputs: int, steps: Sequence[int]) -> Value:
    """[N, outputs * steps..., Q...] as [N, outputs, Q * step, ...]."""
    assert full.shape is not None
    batch, _, *lengths = full.shape
    rank = len(steps)
    parts, whole = (batch, outputs, *steps, *lengths), (batch, outputs, *(length * step for length, step in zip(lengths, steps)))
    if all(isinstance(size, int) for size in parts):
        into, back = (g.constant(np.array(each, np.int64), "shape") for each in (parts, whole))
    else:
        sizes = g.op("Shape", full)
        first, last = (
            g.op("Gather", sizes, g.constant(np.array(axes, np.int64), "axes")) for axes in ([0], list(range(2, 2 + rank)))
        )
        into = g.op("Concat", first, g.constant(np.array([outputs, *steps], np.int64), "sizes"), last, axis=0)
        all_of = g.op("Mul", last, g.constant(np.array(steps, np.int64), "steps"))
        back = g.op("Concat", first, g.constant(np.array([outputs], np.int64), "sizes"), all_of, axis=0)
    split = g.op("Reshape", full, into)
    split.type = TensorType(dtypes.FLOAT32, parts)
    order = [0, 1, *(axis for each in range(rank) for axis in (2 + rank + each, 2 + each))]
    made = g.op("Reshape", g.op("Transpose", split, perm=order), back)
    made.type = TensorType(dtypes.FLOAT32, whole)
    return made


def _cut(g: Rewriter, value: Value, begin: tuple[int, ...], ends: list[int]) -> Value:
    axes = list(range(2, 2 + len(ends)))
    if g.version < 10:
        return g.op("Slice", value, starts=list(begin), ends=ends, axes=axes)
    parts = [g.constant(np.array(each, np.int64), name) for each, name in ((begin, "starts"), (ends, "ends"), (axes, "axes"))]
    return g.op("Slice", value, *parts)
