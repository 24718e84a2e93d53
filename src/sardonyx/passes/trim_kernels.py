"""Leave out what a convolution's kernel multiplies with padding alone.

    y = Conv(x: [1, c, 16, 16], w: [o, c, 3, 3]) {dilations = [24, 24], pads = 24}     =>   y = Conv(x, w[:, :, 1:2, 1:2])

A tap of the kernel that is outside of the image wherever the kernel stands adds nothing: the outer taps of wide dilations (the
pyramids of segmentation nets), and of any kernel on an image of one pixel. Runs after FoldPad. Refuses: images of unknown size,
pads that are computed (auto_pad), weights that are no constants or not finite (their product with padding is NaN).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sardonyx.ir.graph import Node
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, attr_ints
from sardonyx.records import dataclass


@dataclass(frozen=True)
class _Axis:
    first: int  # the taps that reach the image
    end: int
    before: int  # the pads that are left
    after: int


@dataclass(frozen=True)
class TrimKernels(Rule[list[_Axis]]):
    """Outer taps that only see padding are left out of a Conv's kernel."""

    name: ClassVar[str] = "TrimKernels"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Conv",))

    def match(self, g: Rewriter, node: Node) -> list[_Axis] | Reject | None:
        x, w = node.inputs[0], node.inputs[1]
        shape, kernel = (None if value is None or value.shape is None else value.shape[2:] for value in (x, w))
        if not shape or not kernel or len(shape) != len(kernel) or node.attr("auto_pad", "NOTSET") != "NOTSET":
            return None
        count = len(shape)
        dilations, strides, pads = (
            attr_ints(node, name) or (default,) * size
            for name, default, size in (("dilations", 1, count), ("strides", 1, count), ("pads", 0, 2 * count))
        )
        if len(dilations) != count or len(strides) != count or len(pads) != 2 * count:
            return None
        axes = []
        for number in range(count):
            size, taps = shape[number], kernel[number]
            if not isinstance(size, int) or not isinstance(taps, int) or size < 1 or strides[number] < 1:
                return None
            axes.append(_trimmed(size, taps, strides[number], dilations[number], pads[number], pads[count + number]))
        kept = [axis.end - axis.first for axis in axes]
        return axes if kept != list(kernel) else None

    def check(self, g: Rewriter, found: list[_Axis]) -> Any:
        weights = g.array(g.anchor.inputs[1])
        if weights is None:
            return Reject("the weights are no constant")
        if not np.isfinite(weights).all():
            return Reject("weights that are not finite")
        return weights[(slice(None), slice(None), *(slice(axis.first, axis.end) for axis in found))]

    def rewrite(self, g: Rewriter, found: list[_Axis], facts: Any) -> None:
        node = g.anchor
        changes = {
            "kernel_shape": tuple(axis.end - axis.first for axis in found),
            "pads": (*(axis.before for axis in found), *(axis.after for axis in found)),
        }
        weights = g.constant(np.ascontiguousarray(facts), "kernel")
        g.replace(node.outputs[0], g.clone(node, [node.inputs[0], weights, *node.inputs[2:]], **changes)[0])


def _trimmed(size: int, taps: int, stride: int, dilation: int, before: int, after: int) -> _Axis:
    """The taps of one axis that reach the image, as long as no pad becomes negative."""
    last = (size + before + after - dilation * (taps - 1) - 1) // stride  # the kernel's last place; its first tap stands
    first, end = 0, taps  # at place * stride - before
    while end - first > 1 and before >= dilation and 0 <= last * stride < before:
        before -= dilation
        first += 1
    while end - first > 1 and after >= dilation and last >= 0 and (end - first - 1) * dilation - before >= size:
        after -= dilation
        end -= 1
    return _Axis(first, end, before, after)
