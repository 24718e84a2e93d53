"""Gradients of convolutions: of the input, of the kernels, and of the bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rules import Backward, dtype_of, gradient

Results = Sequence[Value | None]

_WINDOW: Final = ("auto_pad", "dilations", "group", "pads", "strides")


def _attrs(b: Backward) -> dict[str, Any]:
    """The attributes that say where windows lie, of those the node carries."""
    return {name: b.node.attrs[name].value for name in _WINDOW if name in b.node.attrs}


def _bias(b: Backward) -> Value | None:
    rank = b.rank(b.x())
    return b.ReduceSum(b.dy(), b.ints(0, *range(2, rank)), keepdims=0) if b.has(2) and b.wants(2) else None


def _kernel(b: Backward) -> list[int]:
    sizes = b.shape(b.x(1))[2:]
    given = b.attr("kernel_shape") or sizes
    if any(not isinstance(size, int) for size in given):
        b.refuse("the size of its kernels is not known", "declare the shape of the weights")
    return [int(str(size)) for size in given]


@gradient("Conv")
def _conv(b: Backward) -> Results:
    attrs = _attrs(b)
    of_x = b.own("ConvGradData", b.dy(), b.x(1), b.Shape(b.x()), **attrs) if b.wants(0) else None
    of_w = b.own("ConvGradWeights", b.x(), b.dy(), kernel_shape=_kernel(b), **attrs) if b.wants(1) else None
    return [of_x, of_w, _bias(b)]


@gradient("ConvTranspose")
def _conv_transpose(b: Backward) -> Results:
    """A transposed convolution is the gradient of a convolution, so its own is that convolution."""
    if b.attr("output_shape") or (b.attr("auto_pad") or "NOTSET") not in ("NOTSET", "VALID"):
        b.refuse("its pads follow from its output_shape or auto_pad")
    attrs = _attrs(b)
    extra = b.attr("output_padding")
    if extra and any(extra):  # the last elements lie past all windows
        pads = list(attrs.get("pads") or [0] * (2 * len(extra)))
        strides = b.attr("strides") or [1] * len(extra)
        if any(more >= step for more, step in zip(extra, strides)):
            b.refuse(f"its output_padding {list(extra)} is not smaller than its strides {list(strides)}")
        attrs["pads"] = pads
    of_x = b.g.op("Conv", b.dy(), b.x(1), **attrs) if b.wants(0) else None
    of_w = b.own("ConvGradWeights", b.dy(), b.x(), kernel_shape=_kernel(b), **attrs) if b.wants(1) else None
    return [of_x, of_w, _bias(b)]


@gradient("Col2Im", stops=(1, 2))
def _col2im(b: Backward) -> Results:
    """The columns of the image's gradient: a convolution whose kernels each pick one element of a window."""
    block = b.constant(2)
    if block is None:
        b.refuse("the size of its blocks is computed", "make block_shape a constant")
    window = [int(size) for size in block.reshape(-1)]
    count = int(np.prod(window))
    picks = np.eye(count, dtype=dtype_of(b.x()).numpy).reshape(count, 1, *window)
    attrs = {name: b.node.attrs[name].value for name in ("dilations", "pads", "strides") if name in b.node.attrs}
    rank = len(window) + 2
    single = b.Reshape(b.dy(), b.Concat(b.ints(-1, 1), b.sizes(b.y(), *range(2, rank)), axis=0))
    return [b.Reshape(b.g.op("Conv", single, picks, **attrs), b.Shape(b.x()))]
