"""Transposed convolutions as convolutions, where that takes less time.

    y = ConvTranspose(x, w[I, O, K])                     =>   y = Conv(x, w reversed [O, I, K]) {pads = [K - 1, K - 1]}
    y = ConvTranspose(x, w[I, O, K]) {strides = [s]}     =>   z = Conv(x, v[O s, I, K / s])
                                                              y = z[N, O, s, Q] with its last two axes exchanged, cut to size
                                                         or   z = Conv(x, w[O K, I, 1])
                                                              y = Col2Im(z)

A stride of s writes s results for every input, each by taps of its own: they are channels of one convolution, and moved into
place afterwards (DepthToSpace for images whose strides are alike). Without strides that is all there is to it. With strides it
pays where a few output channels would leave most lanes of a vector idle, or where there are more phases than steps
(`lower.conv.conv_transpose`); groups are those of the convolution. Phases with different numbers of taps are channels of
convolutions of their own, which are joined: kernels filled with zeros would make NaN of infinities that their taps do not reach.

    K = 3, s = 2:   z = Concat(Conv(x, [c a]), Conv(x, [b]))

Where such convolutions are many, or lanes would still be idle, every product of an input and a tap may be a channel instead,
which Col2Im adds up. Runs right before AssignLayout. Refuses: weights that are not constant, strides
together with dilations, results whose borders depend on the size of the input, pads larger than the kernels, results that may be
empty, phases of too many different numbers of taps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product as combinations
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
_MOST_TAPS: Final = 49  # that Col2Im adds up: each is a step
_WINOGRAD: Final = 2.2  # times less that three taps take in both directions
_JOINED: Final = 0.75  # of the operations of single phases: results that are joined are moved once more
_EXPAND: Final = 8  # first version of the operator
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

    @property
    def alike(self) -> list[list[_Alike]]:
        """The phases of each axis by their number of taps: those with one tap more than the rest come first."""
        found = []
        for size, step in zip(self.kernel, self.strides):
            longer = size % step
            parts = [_Alike(0, longer, size // step + 1), _Alike(longer, step, size // step)]
            found.append([part for part in parts if part.begin < part.end])
        return found

    def operations(self, lanes: int) -> float:
        """Multiplications of an input channel at a pixel, idle lanes included, if phases that are alike are one convolution."""
        total = 0.0
        for parts in combinations(*self.alike):
            taps = [part.taps for part in parts]
            multiplied = _filled(self.outputs * prod(part.end - part.begin for part in parts), lanes) * prod(taps)
            total += multiplied / _WINOGRAD if taps == [3, 3] else multiplied
        return total


@dataclass(frozen=True)
class _Alike:
    """Phases of an axis, from one to before another, with the same number of taps."""

    begin: int
    end: int
    taps: int


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
        added = _ADDITION * self.target.flops_per_ns * found.outputs * window
        return inputs * _filled(found.outputs * window, lanes) + added < inputs * found.operations(lanes)

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
        if any(size < step for size, step in zip(found.kernel, found.strides)) and g.version < _EXPAND:
            return Reject("no tap reaches some of its results, and there is no Expand")
        if found.phases <= MOST_PHASES and not self._joins(found, x.shape[2:]):
            return Reject("its phases have different numbers of taps: convolutions of them would leave as many lanes idle")
        return borders

    def _joins(self, found: _Transposed, spatial: Sequence[Dim]) -> bool:
        """Whether phases that are alike, or columns, leave fewer lanes idle than a convolution for every phase."""
        if all(len(parts) == 1 for parts in found.alike):
            return True
        lanes, weights = self.target.lanes, found.node.inputs[1]
        if 0 not in spatial and weights is not None and self._columns_pay(found, int(str((weights.shape or (0,))[0]))):
            return True
        return found.operations(lanes) < _JOINED * _filled(found.outputs, lanes) * prod(found.kernel)

    def rewrite(self, g: Rewriter, found: _Transposed, facts: Any) -> None:
        node, steps = found.node, found.strides
        weights = node.inputs[1]
        bias = g.array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
        data = g.array(weights)
        assert data is not None
        if found.phases > 1 and self._columns_pay(found, data.shape[0]) and _write_columns(g, found, data, bias, facts):
            return
        if found.phases == 1:
            operands = _operands(g, found, bias, (_Alike(0, 1, size) for size in found.kernel))
            (made,) = g.node("Conv", operands, 1, pads=facts, dilations=found.dilations)
            g.replace(node.outputs[0], made)
            return
        # Results that are wanted of the full ones, from `begin` on; windows that they take.
        begin, end = facts
        taps = found.taps
        missing = [
            max(-(-(size + more - after) // step) - tap, 0)
            for size, more, after, tap, step in zip(found.kernel, found.extra, end, taps, steps)
        ]
        behind = [tap - 1 + more for tap, more in zip(taps, missing)]
        moved = _results(g, found, bias, behind)
        cut = [
            step * (tap + more) - size - wider + behind
            for step, tap, more, size, wider, behind in zip(steps, taps, missing, found.kernel, found.extra, end)
        ]
        if any(begin) or any(cut):
            ends = [-each if each else _END for each in cut]
            moved = _cut(g, moved, begin, ends)
            moved.type = node.outputs[0].type  # the rule of Slice says the same at greater length
        g.replace(node.outputs[0], moved)


def _results(g: Rewriter, found: _Transposed, bias: Array | None, behind: Sequence[int]) -> Value:
    """All results in their places, of windows up to so many pixels behind the image."""
    steps, alike = found.strides, found.alike
    channels = found.groups * found.outputs
    convs: dict[tuple[int, ...], Value] = {}
    for parts in combinations(*alike):
        if all(part.taps for part in parts):
            before = [part.taps - 1 for part in parts]
            (made,) = g.node("Conv", _operands(g, found, bias, parts), 1, pads=[*before, *behind], group=found.groups)
            convs[tuple(part.begin for part in parts)] = made
    full = next(iter(convs.values()))
    if (
        len(convs) == 1
        and len(steps) == 2
        and len(set(steps)) == 1
        and all(len(parts) == 1 for parts in alike)
        and g.version >= 11
    ):
        return g.op("DepthToSpace", full, blocksize=steps[0], mode="CRD")
    joined: dict[tuple[int, ...], Value] = {}
    for parts in combinations(*alike):
        at, counts = tuple(part.begin for part in parts), [part.end - part.begin for part in parts]
        sizes, kind = _sizes(g, full, channels, counts)
        if at in convs:
            joined[at] = g.op("Reshape", convs[at], sizes)
        else:  # what no tap reaches
            level = np.zeros(channels, np.float32) if bias is None else bias
            joined[at] = g.op("Expand", g.constant(level.reshape(-1, *(1,) * 2 * len(steps)), "bias"), sizes)
        joined[at].type = kind
    for axis in reversed(range(len(steps))):
        rows: dict[tuple[int, ...], list[Value]] = {}
        for at, value in joined.items():
            rows.setdefault(at[:axis], []).append(value)
        joined = {at: values[0] if len(values) == 1 else g.op("Concat", *values, axis=2 + axis) for at, values in rows.items()}
    return _moved(g, joined[()], full, channels, steps)


def _operands(g: Rewriter, found: _Transposed, bias: Array | None, parts: Iterable[_Alike]) -> list[Value | None]:
    """The inputs of the convolution whose channels are some phases of each output."""
    x, weights = found.node.inputs[:2]
    data = g.array(weights)
    assert data is not None
    alike = tuple(parts)
    rank = len(alike)
    kernels = np.concatenate([phases(own, found.strides) for own in np.split(data, found.groups)])
    chosen = tuple(slice(part.begin, part.end) for part in alike)
    reached = tuple(slice(most - part.taps, None) for most, part in zip(found.taps, alike))
    own = kernels[(slice(None), *chosen, slice(None), *reached)]
    flat = np.ascontiguousarray(own.reshape(-1, *own.shape[rank + 1 :]))
    origin = origin_of("form conv", [g.constant_of(weights)], (*found.strides, found.groups, *(part.begin for part in alike)))
    made: list[Value | None] = [x, g.constant(flat, weights.name if weights is not None else "w", origin)]
    if bias is not None:
        made.append(g.constant(np.repeat(bias, len(flat) // len(bias)), "bias"))
    return made


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
    """The products of every tap, added up by Col2Im; False if the image may be empty, or ends behind its windows."""
    node = found.node
    x, weights = node.inputs[:2]
    assert x is not None
    shape, rank = x.shape, len(found.kernel)
    begin, end = borders[0], tuple(cut - more for cut, more in zip(borders[1], found.extra))
    if shape is None or 0 in shape[2:] or min(end) < 0 or min(_image(found, shape[2:], borders)) < 1:
        return False
    channels = found.outputs * prod(found.kernel)
    rows = np.ascontiguousarray(data.reshape(data.shape[0], channels).T).reshape(channels, data.shape[0], *(1,) * rank)
    origin = origin_of("form columns", [g.constant_of(weights)], ())
    kernels = g.constant(rows, weights.name if weights is not None else "w", origin)
    cut = [size - step - before - behind for size, step, before, behind in zip(found.kernel, found.strides, begin, end)]
    image = tuple(size * step + more for size, step, more in zip(shape[2:], found.strides, cut))
    if all(isinstance(size, int) for size in shape[2:]):
        wanted = g.constant(np.array([0, channels, product(shape[2:])], np.int64), "shape")
        sizes = g.constant(np.array(image, np.int64), "image")
    else:
        first, last = _first_and_last(g, x)
        pixels = g.op("ReduceProd", last, keepdims=1)
        wanted = g.op("Concat", first, g.constant(np.array([channels], np.int64), "channels"), pixels, axis=0)
        strides, more = (g.constant(np.array(each, np.int64), "sizes") for each in (found.strides, cut))
        sizes = g.op("Add", g.op("Mul", last, strides), more)
    columns = g.op("Reshape", g.op("Conv", x, kernels), wanted)
    columns.type = TensorType(dtypes.FLOAT32, (shape[0], channels, product(shape[2:])))
    made = Value(g.fresh_name("Col2Im"), TensorType(dtypes.FLOAT32, (shape[0], found.outputs, *image)))
    own = [make_attr("strides", found.strides), make_attr("pads", (*begin, *end))]
    block = g.constant(np.array(found.kernel, np.int64), "block")
    g.graph.insert_before(node, Node("Col2Im", [columns, sizes, block], [made], own, version=_COL2IM, name=node.name))
    if bias is not None:
        made = g.op("Add", made, g.constant(bias.reshape(-1, *(1,) * rank), "bias"))
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


def _sizes(g: Rewriter, full: Value, channels: int, counts: Sequence[int]) -> tuple[Value, TensorType]:
    """The shape [N, channels, counts..., Q...] for results [N, ..., Q...], as a value and as a type."""
    assert full.shape is not None
    batch, _, *lengths = full.shape
    kind = TensorType(dtypes.FLOAT32, (batch, channels, *counts, *lengths))
    assert kind.shape is not None
    if all(isinstance(size, int) for size in kind.shape):
        return g.constant(np.array(kind.shape, np.int64), "shape"), kind
    first, last = _first_and_last(g, full)
    return g.op("Concat", first, g.constant(np.array([channels, *counts], np.int64), "sizes"), last, axis=0), kind


def _first_and_last(g: Rewriter, full: Value) -> tuple[Value, Value]:
    """The number of images, and their sizes."""
    assert full.shape is not None
    sizes = g.op("Shape", full)
    axes = ([0], list(range(2, len(full.shape))))
    first, last = (g.op("Gather", sizes, g.constant(np.array(each, np.int64), "axes")) for each in axes)
    return first, last


def _moved(g: Rewriter, split: Value, full: Value, channels: int, steps: Sequence[int]) -> Value:
    """[N, channels, steps..., Q...] as [N, channels, Q * step, ...]."""
    assert full.shape is not None
    batch, _, *lengths = full.shape
    rank = len(steps)
    whole = (batch, channels, *(length * step for length, step in zip(lengths, steps)))
    if all(isinstance(size, int) for size in whole):
        back = g.constant(np.array(whole, np.int64), "shape")
    else:
        first, last = _first_and_last(g, full)
        all_of = g.op("Mul", last, g.constant(np.array(steps, np.int64), "steps"))
        back = g.op("Concat", first, g.constant(np.array([channels], np.int64), "sizes"), all_of, axis=0)
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
