"""Col2Im as steps: an addition for each tap of the window.

    image = 0
    for tap in window:  image[where the tap lies for each position of the window] += columns[tap]

Positions whose tap lies in the padding are left out, so that there is no padded image.
"""

from __future__ import annotations

from itertools import product as combinations
from math import prod
from typing import Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, dim_min, product, symbols_of
from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import load
from sardonyx.lower.conv.blocks import ceildiv_int, whole_view
from sardonyx.lower.conv.conv import constant_tensor, root_of
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.conv.windows import output_spatial, pad_pairs, per_axis
from sardonyx.program.steps import View
from sardonyx.records import dataclass

_MOST_TAPS: Final = 128  # each is a step


@dataclass(frozen=True)
class _Image:
    """Windows over an image, whose size may be symbolic."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]  # padding
    end: tuple[int, ...]
    size: tuple[Dim, ...]
    out: tuple[Dim, ...]  # number of windows per axis


def _image(node: Node) -> _Image | None:
    """The image; None if it is not known, or its windows are not valid: NumPy says what is wrong with them."""
    block, sizes = constant_tensor(node, 2), _sizes(node)
    if block is None or sizes is None:
        return None
    attrs, kernel = attribute_values(node), [int(size) for size in block.numpy().reshape(-1)]
    strides, dilations, pads = (attrs.get(name) for name in ("strides", "dilations", "pads"))
    rank = len(kernel)
    try:
        out = output_spatial(sizes, kernel, strides=strides, dilations=dilations, pads=pads)
        begin, end = pad_pairs(pads, rank)
        steps, apart = per_axis(strides, rank, "strides"), per_axis(dilations, rank, "dilations")
    except ValueError:
        return None
    return _Image(tuple(kernel), steps, apart, begin, end, sizes, out)


def _sizes(node: Node) -> tuple[Dim, ...] | None:
    """The size of the image: constants, or what its type says in sizes of the columns."""
    image = constant_tensor(node, 1)
    if image is not None:
        return tuple(int(size) for size in image.numpy().reshape(-1))
    columns, shape = node.inputs[0], node.outputs[0].shape
    if columns is None or columns.shape is None or shape is None:
        return None
    known = frozenset().union(*(symbols_of(size) for size in columns.shape))
    return tuple(shape[2:]) if all(symbols_of(size) <= known for size in shape[2:]) else None


def _accepts(node: Node) -> str:
    where = _image(node)
    if where is None:
        return "the sizes of image and block are not known, or not valid"
    if not 0 < prod(where.kernel) <= _MOST_TAPS:
        return f"blocks of {prod(where.kernel)} elements: there are steps for up to {_MOST_TAPS}"
    columns = node.inputs[0]
    shape = None if columns is None else columns.shape
    if shape is None or len(shape) != 3 or not isinstance(shape[1], int) or shape[1] % prod(where.kernel):
        return "columns of unknown shape, or that do not fit the blocks"
    some = all(not isinstance(count, int) or count > 0 for count in where.out)
    return "" if some and min(*where.begin, *where.end) >= 0 else "windows that do not fit the image"


@template("Col2Im", types={"T": ("f32", "f64")}, accepts=_accepts)
def col2im(ctx: LowerContext, group: Group) -> None:
    """The sum of all windows, each where it lies in the image."""
    node, source = root_of(group)
    where = _image(node)
    assert where is not None
    columns, image = ctx.contiguous(source), ctx.output(node.outputs[0])
    ctx.check_equal(columns.shape[2], product(where.out))
    for count in where.out:
        ctx.check_at_most(1, count)
    batch, channels = image.shape[:2]
    given = whole_view(columns, (batch, channels, *where.kernel, *where.out))
    dtype = image.buffer.dtype
    zero = ctx.literal(np.zeros(1, dtype.numpy))
    ctx.copy(View(zero.buffer, image.shape, (0,) * len(image.shape), zero.offset), image, group.label)
    rank = len(where.kernel)
    for tap in combinations(*(range(width) for width in where.kernel)):
        part, target = given, image
        for axis, index in enumerate(tap):
            first, at, count = _inside(where, axis, index)
            part = ctx.part(ctx.part(part, 2 + axis, index, 1), 2 + rank + axis, first, count)
            target = ctx.part(target, 2 + axis, at, count, where.strides[axis])
        if 0 in part.shape:
            continue
        strides = (*part.strides[:2], *part.strides[2 + rank :])
        added = View(part.buffer, target.shape, strides, part.offset)
        stores = [(2, load(1, dtype.name) + load(0, dtype.name))]
        kinds = [dtype.name] * 3
        ctx.step(
            loop_step(
                target.shape, [added, target, target], kinds, stores, target=ctx.target, label=group.label, nodes=(node.label,)
            )
        )


def _inside(where: _Image, axis: int, tap: int) -> tuple[Dim, Dim, Dim]:
    """The first window on an axis whose tap lies in the image, where it lies, and how many such windows there are."""
    offset, stride = tap * where.dilations[axis] - where.begin[axis], where.strides[axis]
    first = max(ceildiv_int(-offset, stride), 0)
    end = dim_min((where.size[axis] - 1 - offset) // stride + 1, where.out[axis])
    count = dim_max(end - first, 0)
    if count == 0:
        return 0, 0, 0
    at = offset + first * stride
    # Where there are none, they begin inside all the same.
    return dim_min(first, where.out[axis] - count), dim_min(at, where.size[axis] - count) if stride == 1 else at, count
