"""Gradients of convolutions: of the input, of the kernels, and of the bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rules import Backward, dtype_of, gradient

Results = Sequence[Value | None]

_VOLUME: Final = 3  # axes besides those of images and channels
_END: Final = np.iinfo(np.int64).max  # of whatever is sliced
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


def _of_kernels(b: Backward, x: Value, dy: Value) -> Value:
    """The gradient of the kernels of a convolution of x whose result has the gradient dy."""
    attrs, kernel = _attrs(b), _kernel(b)
    if len(kernel) != _VOLUME or attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return b.own("ConvGradWeights", x, dy, kernel_shape=kernel, **attrs)
    return _of_kernels_by_planes(b, x, dy, kernel, attrs)


def _of_kernels_by_planes(b: Backward, x: Value, dy: Value, kernel: Sequence[int], attrs: dict[str, Any]) -> Value:
    """The same of volumes: each plane of a kernel meets some planes of x, which are images of their own."""
    pads = list(attrs.pop("pads", None) or [0] * (2 * _VOLUME))
    strides, dilations = (list(attrs.pop(name, None) or [1] * _VOLUME) for name in ("strides", "dilations"))
    attrs.pop("auto_pad", None)
    before, behind = pads[0], pads[_VOLUME]
    if before or behind:
        x = b.Pad(x, b.ints(0, 0, before, 0, 0, 0, 0, behind, 0, 0))
    reach = (kernel[0] - 1) * dilations[0]
    planes = []
    for first in range(0, reach + 1, dilations[0]):
        end = first - reach or _END
        met = b.Slice(x, b.ints(first), b.ints(end), b.ints(2), b.ints(strides[0]))
        found = b.own(
            "ConvGradWeights",
            _as_images(b, met),
            _as_images(b, dy),
            kernel_shape=list(kernel[1:]),
            pads=[*pads[1:_VOLUME], *pads[_VOLUME + 1 :]],
            strides=strides[1:],
            dilations=dilations[1:],
            **attrs,
        )
        planes.append(b.Unsqueeze(found, b.ints(2)))
    return b.Concat(*planes, axis=2) if len(planes) > 1 else planes[0]


def _as_images(b: Backward, volumes: Value) -> Value:
    """The planes of volumes as images of a larger batch."""
    whole = b.Concat(b.ints(-1), b.sizes(volumes, 1, 3, 4), axis=0)
    return b.Reshape(b.Transpose(volumes, perm=[0, 2, 1, 3, 4]), whole)


@gradient("Conv")
def _conv(b: Backward) -> Results:
    attrs = _attrs(b)
    of_x = b.own("ConvGradData", b.dy(), b.x(1), b.Shape(b.x()), **attrs) if b.wants(0) else None
    of_w = _of_kernels(b, b.x(), b.dy()) if b.wants(1) else None
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
    of_w = _of_kernels(b, b.dy(), b.x()) if b.wants(1) else None
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
