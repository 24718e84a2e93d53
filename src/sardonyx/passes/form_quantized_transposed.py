"""Transposed convolutions of bytes as convolutions of bytes, whose results are moved into place.

    QuantizeLinear(ConvTranspose(DequantizeLinear(x), DequantizeLinear(w[I, O, K]), bias)) {strides = [s]}
        =>   z = QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(v[s O, I, ceil(K / s)]), bias, s times))
             y = z with its channels last, [N, Q, s, O] read as [N, Q s, O], cut to size, its channels in front again

A stride of s writes s results for every input, each by taps of its own (`form_convs`); where a phase has fewer, its kernel is
filled with zero points, which stand for zeros. The channels of one result lie side by side, so that moving copies whole pixels
of what AssignChannelsLast makes of the convolution. Runs before FormQLinearConv. Refuses: groups, strides with dilations, results
of a given shape, kernels whose scales belong to inputs.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.form_convs import phases
from sardonyx.passes.form_integer_convs import before_quantize
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.quantized_values import Quantization, dequantized
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass

_END: Final = int(np.iinfo(np.int64).max)
_AXIS_SINCE: Final = 13  # of DequantizeLinear


@dataclass(frozen=True)
class _Layer:
    own: Quantization
    node: Node
    kernels: Quantization


@dataclass(frozen=True)
class _Sizes:
    """What cuts and places the results, an entry for each spatial axis."""

    steps: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]  # in front, then behind
    more: tuple[int, ...]  # windows behind the last that a tap reaches, where output_padding wants what is there
    cut: tuple[int, ...]  # results behind those that are wanted


@dataclass(frozen=True)
class FormQuantizedTransposed(Rule[_Layer]):
    """ConvTranspose of dequantized bytes that is quantized again."""

    name: ClassVar[str] = "FormQuantizedTransposed"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("QuantizeLinear",))

    def match(self, g: Rewriter, node: Node) -> _Layer | Reject | None:
        found = before_quantize(g, node)
        if found is None or found.maker.op_type != "ConvTranspose":
            return None
        image, kernels = dequantized(found.maker.inputs[0]), dequantized(found.maker.inputs[1])
        if image is None or kernels is None or not image.is_bytes or not kernels.is_bytes or image.axis is not None:
            return None
        return _Layer(found.own, found.maker, kernels)

    def check(self, g: Rewriter, found: _Layer) -> Any:
        node, held = found.node, g.constant_of(found.kernels.tensor)
        attrs = attribute_values(node)
        if held is None or len(held.shape) < 3 or 0 in held.shape:
            return Reject("the kernels are not constant")
        if found.kernels.axis not in (None, 1) or found.kernels.node.version < _AXIS_SINCE:
            return Reject("the scales of the kernels do not belong to outputs")
        if any(g.array(each) is None for each in (found.kernels.scale, found.kernels.zero_point) if each is not None):
            return Reject("the scales of the kernels are not constant")
        if attrs.get("group", 1) != 1:
            return Reject(f"it has {attrs['group']} groups")
        if attrs.get("auto_pad") not in (None, "NOTSET", "VALID") or attrs.get("output_shape"):
            return Reject("what is cut off follows from the shape of its result")
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and any(g.array(each) is None for each in _parts(bias)):
            return Reject("its bias is not constant")
        return _sizes(attrs, held.shape[2:])

    def rewrite(self, g: Rewriter, found: _Layer, facts: _Sizes) -> None:
        node, kernels = found.node, found.kernels
        copies = prod(facts.steps)
        data, scale = g.array(kernels.tensor), g.array(kernels.scale)
        zero = None if kernels.zero_point is None else g.array(kernels.zero_point)
        assert data is not None
        assert scale is not None
        outputs, rank = data.shape[1], data.ndim - 2
        fill = np.zeros(1, data.dtype) if zero is None else np.asarray(zero, data.dtype).reshape(-1)
        parts = phases(data, facts.steps, np.broadcast_to(fill, (outputs,)))  # [O, s..., I, taps...]
        moved = np.moveaxis(parts, 0, rank).reshape(copies * outputs, *parts.shape[rank + 1 :])
        name = kernels.tensor.name
        weights = [g.constant(np.ascontiguousarray(moved), name)]
        for array in (scale, zero):
            if array is not None:
                weights.append(g.constant(np.tile(array, copies) if kernels.axis is not None else array.reshape(()), "parameter"))
        inputs: list[Value | None] = [node.inputs[0], g.op("DequantizeLinear", *weights, axis=0)]
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            inputs.append(_repeated(g, node.inputs[2], copies))
        taps = parts.shape[rank + 2 :]
        pads = facts.pads
        if copies > 1:
            pads = (*(tap - 1 for tap in taps), *(tap - 1 + more for tap, more in zip(taps, facts.more)))
        (full,) = g.node("Conv", inputs, 1, pads=list(pads), dilations=list(facts.dilations))
        result = g.clone(g.anchor, [full, *g.anchor.inputs[1:]])[0]
        if copies > 1:
            result = _placed(g, result, outputs, facts)
        g.replace(g.anchor.outputs[0], result)


def _sizes(attrs: dict[str, Any], kernel: tuple[int, ...]) -> _Sizes | Reject:
    rank = len(kernel)
    steps, dilations = (tuple(attrs.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    pads, extra = tuple(attrs.get("pads") or (0,) * (2 * rank)), tuple(attrs.get("output_padding") or (0,) * rank)
    if prod(steps) == 1:
        reach = [dilation * (size - 1) for dilation, size in zip(dilations, kernel)]
        around = [*reach, *(each + more for each, more in zip(reach, extra))]
        left = tuple(every - cut for every, cut in zip(around, pads))
        return _Sizes(steps, dilations, left, (), ()) if min(left) >= 0 else Reject("its pads are larger than its kernels reach")
    if max(dilations) > 1 or min(pads) < 0:
        return Reject("it has strides and dilations, or negative pads")
    # Of the full results, ceil(K / s) * s - K lie behind the last that a tap reaches, and output_padding wants some of them.
    cut = [-(-size // step) * step - size - more + after for size, step, more, after in zip(kernel, steps, extra, pads[rank:])]
    behind = tuple(max(-(each // step), 0) for each, step in zip(cut, steps))
    return _Sizes(steps, dilations, pads, behind, tuple(each + step * more for each, step, more in zip(cut, steps, behind)))


def _parts(bias: Value) -> list[Value]:
    """A bias, or what it is dequantized from: integers, scale, zero point."""
    source = dequantized(bias)
    if source is None:
        return [bias]
    return [source.tensor, source.scale, *(() if source.zero_point is None else (source.zero_point,))]


def _repeated(g: Rewriter, bias: Value, copies: int) -> Value:
    """A bias of constants so many times."""
    numbers, *parameters = (np.asarray(g.array(each)) for each in _parts(bias))
    repeated = [np.tile(each, copies) if each.size > 1 else each.reshape(()) for each in parameters]
    made = [g.constant(each, "bias") for each in (np.tile(numbers, copies), *repeated)]
    return made[0] if len(made) == 1 else g.op("DequantizeLinear", *made, axis=0)


def _placed(g: Rewriter, full: Value, outputs: int, facts: _Sizes) -> Value:
    """[N, s... O, Q...] as [N, O, Q s...], cut to size."""
    rank = len(facts.steps)
    shape = full.shape
    assert shape is not None
    last = g.op("Transpose", full, perm=[0, *range(2, rank + 2), 1])
    if all(isinstance(size, int) for size in (shape[0], *shape[2:])):
        lengths = [int(str(size)) for size in shape[2:]]
        split = _integers(g, [int(str(shape[0])), *lengths, *facts.steps, outputs])
        joined = _integers(g, [int(str(shape[0])), *(size * step for size, step in zip(lengths, facts.steps)), outputs])
    else:
        sizes = g.op("Shape", last)
        batch, spatial = (g.op("Gather", sizes, _integers(g, at)) for at in ([0], list(range(1, rank + 1))))
        channels = _integers(g, [outputs])
        split = g.op("Concat", batch, spatial, _integers(g, list(facts.steps)), channels, axis=0)
        joined = g.op("Concat", batch, g.op("Mul", spatial, _integers(g, list(facts.steps))), channels, axis=0)
    apart = g.op("Reshape", last, split)
    order = [0, *(each for axis in range(1, rank + 1) for each in (axis, axis + rank)), 2 * rank + 1]
    whole = g.op("Reshape", g.op("Transpose", apart, perm=order), joined)
    begin, cut = facts.pads[:rank], facts.cut
    if any(begin) or any(cut):
        ends = [-each if each else _END for each in cut]
        whole = g.op("Slice", whole, *(_integers(g, list(each)) for each in (begin, ends, range(1, rank + 1))))
    return g.op("Transpose", whole, perm=[0, rank + 1, *range(1, rank + 1)])


def _integers(g: Rewriter, numbers: list[int]) -> Value:
    return g.constant(np.array(numbers, np.int64), "sizes")
