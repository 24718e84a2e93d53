"""Transposed convolutions as convolutions, where that takes less time.

    y = ConvTranspose(x, w[I, O, K])                     =>   y = Conv(x, w reversed [O, I, K]) {pads = [K - 1, K - 1]}
    y = ConvTranspose(x, w[I, O, K]) {strides = [s]}     =>   z = Conv(x, v[O s, I, ceil(K / s)])
                                                              y = z[N, O, s, Q] with its last two axes exchanged, cut to size
                                                         or   z = Conv(x, w[O K, I, 1])
                                                              y = Col2Im(z)

A stride of s writes s results for every input, each by taps of its own: they are channels of one convolution, and moved into
place afterwards (DepthToSpace for images whose strides are alike). Without strides that is all there is to it. With strides it
pays where a few output channels would leave most lanes of a vector idle, or where there are more phases than steps
(`lower.conv.conv_transpose`); groups are those of the convolution. Where phases have different numbers of taps, or lanes would
still be idle, every product of an input and a tap may be a channel instead, which Col2Im adds up, in images of known size. Runs
right before AssignLayout. Refuses: weights that are not constant, strides together with dilations, results whose borders depend
on the size of the input, pads larger than the kernels, results that may be empty.

Where phases have different numbers of taps and are channels of one convolution, infinities reach as far as those of the longest:
the others have zeros there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.builder import make_attr
from sardonyx.ir.dims import Dim, product
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
_COL2IM: Final = 18  # version of the operator; nobody but the compiler sees the graph from here on
_MOST_TAPS: Final = 25  # that Col2Im adds up: each is a step
_WINOGRAD: Final = 2.2  # times less that three taps take in both directions
_ADDITION: Final = 0.25  # half the nanoseconds that Col2Im takes for a product: operations are multiplied and added in pairs


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

    @property
    def taps(self) -> list[int]:
        """How many taps of an axis a phase has at most."""
        return [-(-size // step) for size, step in zip(self.kernel, self.strides)]


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
        # Groups that fit no lanes leave the blocked layout in any case (`passes.fit_groups`). Phases with fewer taps than others
        # would multiply by zeros, which takes longer than steps of their own.
        if any(size % step for size, step in zip(found.kernel, found.strides)):
            return False
        is_pointwise = found.kernel == found.strides
        return found.phases > 1 and lanes % inputs > 0 and inputs % lanes > 0 and (is_pointwise or inputs < lanes // 2)

    def _columns_pay(self, found: _Transposed, inputs: int) -> bool:
        """Whether products with single taps, and the sum of those, take less time than taps of all phases at once."""
        lanes, window = self.target.lanes, prod(found.kernel)
        if found.groups > 1 or window > _MOST_TAPS:
            return False
        multiplied: float = inputs * _filled(found.outputs * found.phases, lanes) * prod(found.taps)
        if found.taps == [3, 3]:
            multiplied /= _WINOGRAD
        added = _ADDITION * self.target.flops_per_ns * found.outputs * window
        return inputs * _filled(found.outputs * window, lanes) + added < multiplied

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
            if min(_image(found, x.shape[2:], borders)) < 1:
                return Reject("its result may be empty, which that of a convolution may not")
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
        if found.phases > 1 and self._columns_pay(found, data.shape[0]) and _write_columns(g, found, data, bias, facts):
            return
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
        # Results that are wanted of the full ones, from `begin` on; windows that they take.
        begin, end = facts
        taps = found.taps
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


def _filled(channels: int, lanes: int) -> int:
    """Channels with the empty lanes of their last vector."""
    return -(-channels // lanes) * lanes


def _image(found: _Transposed, spatial: Sequence[Dim], borders: Borders) -> list[int]:
    """The size of the result for an input of this size, or of one pixel where that is not known."""
    result = []
    for axis, size in enumerate(spatial):
        known = size if isinstance(size, int) else 1
        full = (known - 1) * found.strides[axis] + extent(found.kernel[axis], found.dilations[axis]) + found.extra[axis]
        result.append(full - borders[0][axis] - borders[1][axis])
    return result


def _write_columns(g: Rewriter, found: _Transposed, data: Array, bias: Array | None, borders: Borders) -> bool:
    """The products of every tap, added up by Col2Im; False if the size of the image is not known, or ends behind its windows."""
    node = found.node
    x, weights = node.inputs[:2]
    shape = None if x is None else x.shape
    begin, end = borders[0], tuple(cut - more for cut, more in zip(borders[1], found.extra))
    if shape is None or not all(isinstance(size, int) and size > 0 for size in shape[2:]) or min(end) < 0:
        return False
    image, pixels = _image(found, shape[2:], borders), product(shape[2:])
    if min(image) < 1:
        return False
    channels = found.outputs * prod(found.kernel)
    rows = np.ascontiguousarray(data.reshape(data.shape[0], channels).T).reshape(channels, data.shape[0], *(1,) * len(image))
    origin = origin_of("form columns", [g.constant_of(weights)], ())
    kernels = g.constant(rows, weights.name if weights is not None else "w", origin)
    columns = g.op("Reshape", g.op("Conv", x, kernels), g.constant(np.array([0, channels, pixels], np.int64), "shape"))
    sizes = [g.constant(np.array(each, np.int64), name) for each, name in ((image, "image"), (found.kernel, "block"))]
    attrs = {"strides": found.strides, "pads": (*begin, *end)}
    made = Value(g.fresh_name("Col2Im"), TensorType(dtypes.FLOAT32, (shape[0], found.outputs, *image)))
    own = [make_attr(key, value) for key, value in attrs.items()]
    g.graph.insert_before(node, Node("Col2Im", [columns, *sizes], [made], own, version=_COL2IM, name=node.name))
    if bias is not None:
        made = g.op("Add", made, g.constant(bias.reshape(-1, *(1,) * len(image)), "bias"))
    g.replace(node.outputs[0], made)
    return True


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
