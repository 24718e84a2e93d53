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
from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import load
from sardonyx.lower.conv.conv import constant_tensor, root_of
from sardonyx.lower.conv.conv_task import ceildiv_int, whole_view
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.conv.windows import Windows, windows
from sardonyx.program.steps import View

_MOST_TAPS: Final = 128  # each is a step


def _windows(node: Node) -> Windows | None:
    """The windows; None if they are not known, or not valid: NumPy says what is wrong with them."""
    image, block = constant_tensor(node, 1), constant_tensor(node, 2)
    if image is None or block is None:
        return None
    attrs = attribute_values(node)
    sizes, kernel = ([int(size) for size in each.numpy().reshape(-1)] for each in (image, block))
    try:
        return windows(sizes, kernel, **{name: attrs.get(name) for name in ("strides", "dilations", "pads")})
    except ValueError:
        return None


def _accepts(node: Node) -> str:
    where = _windows(node)
    if where is None:
        return "the sizes of image and block are not known, or not valid"
    if not 0 < prod(where.kernel) <= _MOST_TAPS:
        return f"blocks of {prod(where.kernel)} elements: there are steps for up to {_MOST_TAPS}"
    columns = node.inputs[0]
    shape = None if columns is None else columns.shape
    if shape is None or len(shape) != 3 or not isinstance(shape[1], int) or shape[1] % prod(where.kernel):
        return "columns of unknown shape, or that do not fit the blocks"
    return "" if min(where.out) > 0 and min(*where.begin, *where.end) >= 0 else "windows that do not fit the image"


@template("Col2Im", types={"T": ("f32", "f64")}, accepts=_accepts)
def col2im(ctx: LowerContext, group: Group) -> None:
    """The sum of all windows, each where it lies in the image."""
    node, source = root_of(group)
    where = _windows(node)
    assert where is not None
    columns, image = ctx.contiguous(source), ctx.output(node.outputs[0])
    ctx.check_equal(columns.shape[2], prod(where.out))
    batch, channels = image.shape[:2]
    given = whole_view(columns, (batch, channels, *where.kernel, *where.out))
    dtype = image.buffer.dtype
    zero = ctx.literal(np.zeros(1, dtype.numpy))
    ctx.copy(View(zero.buffer, image.shape, (0,) * len(image.shape), zero.offset), image, group.label)
    rank = len(where.kernel)
    for tap in combinations(*(range(width) for width in where.kernel)):
        part, target = given, image
        for axis, index in enumerate(tap):
            first, count = _inside(where, axis, index)
            at = index * where.dilations[axis] - where.begin[axis] + first * where.strides[axis]
            part = ctx.part(ctx.part(part, 2 + axis, index, 1), 2 + rank + axis, first, count)
            target = ctx.part(target, 2 + axis, at if count else 0, count, where.strides[axis])
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


def _inside(where: Windows, axis: int, tap: int) -> tuple[int, int]:
    """The first position of the windows on an axis whose tap lies in the image, and how many such positions there are."""
    offset, stride = tap * where.dilations[axis] - where.begin[axis], where.strides[axis]
    first = max(ceildiv_int(-offset, stride), 0)
    last = min((where.spatial[axis] - 1 - offset) // stride, where.out[axis] - 1)
    return (first, last - first + 1) if last >= first else (0, 0)
