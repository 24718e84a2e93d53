"""A deformable convolution is a product of its weights with what a GridSample finds at the deformed positions.

    y = DeformConv(x, w, offset, b, mask)     =>   where   = offset + the positions of the taps, in the coordinates of a grid
                                                   columns = GridSample(x, where) * mask
                                                   y       = MatMul(w, columns) + b

Runs with ExpandFused. An offset group is an image of its own for the GridSample. Refuses: other images than those with two axes,
narrow floats, which the operator rounds once, and sizes that are not known to fit each other: the parts would not look at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import floordiv
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.expand_fused import ExpandingRule, Expansion, inputs_of
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_SHORT_MODES: Final = 20  # the opset version since which GridSample calls its mode linear


@dataclass(frozen=True)
class Deformation:
    """All numbers of a deformable convolution that are known."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    begin: tuple[int, int]
    outputs: int
    channels: int
    group: int
    offset_group: int

    @property
    def taps(self) -> int:
        return prod(self.kernel)


def _check(g: Rewriter, node: Node) -> Any:
    x, w, offset, bias, mask = inputs_of(node, 5)
    shapes = [None if value is None else value.shape for value in (x, w, offset)]
    if any(shape is None or len(shape) != 4 for shape in shapes):
        return Reject("the images have not two axes, or it is not known how many")
    image, kernels, offsets = (shape or () for shape in shapes)
    channels, weights = image[1], [size for size in kernels if isinstance(size, int)]
    if not isinstance(channels, int) or len(weights) != len(kernels):
        return Reject("the number of channels, or the kernel, is not known")
    attrs = attribute_values(node)
    kernel, pads = (weights[2], weights[3]), attrs.get("pads") or (0,) * 4
    strides, dilations = attrs.get("strides") or (1, 1), attrs.get("dilations") or (1, 1)
    group, parts = attrs["group"], attrs["offset_group"]
    if min(group, parts, *strides, *dilations) < 1 or channels % group or channels % parts or weights[0] % group:
        return Reject(f"{channels} channels, kernels {weights}, {group} groups and {parts} offset groups do not fit")
    if weights[1] != channels // group or tuple(attrs.get("kernel_shape") or kernel) != kernel or len(pads) != 4:
        return Reject(f"{channels} channels, kernels {weights} and {group} groups do not fit")
    out = [
        floordiv(image[2 + axis] + pads[axis] + pads[2 + axis] - dilations[axis] * (kernel[axis] - 1) - 1, strides[axis]) + 1
        for axis in (0, 1)
    ]
    taps = prod(kernel)
    if tuple(offsets) != (image[0], parts * taps * 2, *out):
        return Reject(f"the sizes of {x} and {offset} may contradict each other")
    if mask is not None and mask.shape != (image[0], parts * taps, *out):
        return Reject(f"the sizes of {x} and {mask} may contradict each other")
    if bias is not None and bias.shape != (weights[0],):
        return Reject(f"{bias} may broadcast")
    return Deformation(kernel, strides, dilations, (pads[0], pads[1]), weights[0], channels, group, parts)


def _deformed(g: Rewriter, node: Node, found: Deformation) -> Value:
    x, w, offset, bias, mask = inputs_of(node, 5)
    assert x is not None
    assert w is not None
    assert offset is not None
    dtype = dtype_of(x)
    assert dtype is not None
    taps, parts = found.taps, found.offset_group

    def number(value: float) -> Value:
        return g.constant(np.asarray(value, dtype.numpy), "number")

    def size(value: Value, axis: int) -> Value:
        return g.op("Gather", g.op("Shape", value), g.constant(np.array([axis], np.int64), "axis"))

    def reshaped(value: Value, *sizes: int | Value) -> Value:
        dims = [g.constant(np.array([item], np.int64), "size") if isinstance(item, int) else item for item in sizes]
        return g.op("Reshape", value, g.op("Concat", *dims, axis=0), allowzero=1)

    batch, rows, columns = size(x, 0), size(offset, 2), size(offset, 3)
    images = g.op("Mul", batch, g.constant(np.array([parts], np.int64), "groups"))
    positions = g.op("Mul", rows, columns)
    pairs = reshaped(offset, images, taps, 2, rows, columns)
    where = []
    for axis, length in enumerate((rows, columns)):
        moved = g.op("Gather", pairs, g.constant(np.array(axis, np.int64), "axis"), axis=2)
        inner = np.indices(found.kernel)[axis].reshape(taps, 1, 1) * found.dilations[axis] - found.begin[axis]
        scalars = (g.constant(np.array(value, np.int64), "number") for value in (0, 1))
        start, step = scalars
        outer = g.op("Cast", g.op("Range", start, g.op("Squeeze", length), step), to=dtype.onnx)
        outer = g.op("Mul", reshaped(outer, *((length, 1) if axis == 0 else (1, length))), number(found.strides[axis]))
        position = g.op("Add", moved, g.op("Add", outer, g.constant(inner.astype(dtype.numpy), "taps")))
        # In float64, so that the way into the coordinates of a grid and back moves no point.
        exact, extent = (g.op("Cast", value, to=dtypes.FLOAT64.onnx) for value in (position, size(x, 2 + axis)))
        one, two = (g.constant(np.asarray(value, np.float64), "number") for value in (1, 2))
        scaled = g.op("Div", g.op("Add", g.op("Mul", exact, two), one), extent)
        where.append(reshaped(g.op("Sub", scaled, one), images, taps, positions, 1))
    mode = "linear" if g.version >= _SHORT_MODES else "bilinear"
    grid = g.op("Concat", where[1], where[0], axis=3)
    pixels = reshaped(x, images, found.channels // parts, size(x, 2), size(x, 3))
    sampled = g.op("GridSample", pixels, grid, mode=mode, padding_mode="zeros", align_corners=0)
    if mask is not None:
        sampled = g.op("Mul", sampled, reshaped(mask, images, 1, taps, positions))
    depth = found.channels // found.group * taps
    terms = reshaped(sampled, batch, found.group, depth, positions)
    result = g.op("MatMul", reshaped(w, found.group, found.outputs // found.group, depth), terms)
    result = reshaped(result, batch, found.outputs, rows, columns)
    return result if bias is None else g.op("Add", result, reshaped(bias, found.outputs, 1, 1))


_DEFORMED: Final[Mapping[str, Expansion]] = {"DeformConv": Expansion(_deformed, _check)}


@dataclass(frozen=True)
class ExpandDeformed(ExpandingRule):
    """Deformable convolutions become samples of the image and a matrix product."""

    name: ClassVar[str] = "ExpandDeformed"
    roots: ClassVar[frozenset[str]] = frozenset(_DEFORMED)
    expansions: ClassVar[Mapping[str, Expansion]] = _DEFORMED
