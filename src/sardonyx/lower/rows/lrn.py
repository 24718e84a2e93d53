"""LRN: every element divided by a power of the sum of squares of its channel's neighbours; it means what `ops/rows/norm.py` says.

Channels are seen as the planes of one image, whose windows are one row and one column wide: the sums are a pool.
"""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import FLOATS, const, load
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.elementwise.elementwise import pow_
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.pool.pool import pool_step, too_large
from sardonyx.lower.registry import template
from sardonyx.lower.views import reshaped
from sardonyx.program.steps import View, element_count


def _accepts(node: Node) -> str:
    value = node.inputs[0]
    if value is None or len(value.shape or ()) < 3:
        return "an input without spatial axes"
    size = attribute_values(node)["size"]
    if size < 1:
        return "no neighbours"
    return too_large({"kernel_shape": (size, 1, 1)}, 3)


@template("LRN", types={"T": FLOATS}, accepts=_accepts)
def local_response_normalization(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    attrs = attribute_values(node)
    images, channels, *spatial = ctx.shape(given(node, 0))
    shape = (images, 1, channels, 1, element_count(spatial))
    x, target = (_seen(view, shape) for view in (ctx.contiguous(given(node, 0)), ctx.output(node.outputs[0])))
    kind = x.buffer.dtype.name
    wide = compute_type(kind)
    squares = ctx.scratch(dtypes.from_name(wide), shape, "squares")
    element = load(0, kind).cast(wide)
    types, stores = [kind, wide], [(1, element * element)]
    ctx.step(loop_step(shape, [x, squares], types, stores, target=ctx.target, label=group.label, nodes=(group.label,)))
    size = attrs["size"]
    before = (size - 1) // 2
    geometry = Geometry(shape[2:], shape[2:], (size, 1, 1), (1, 1, 1), (1, 1, 1), (before, 0, 0), (size - 1 - before, 0, 0))
    base = accumulator(wide) * (attrs["alpha"] / size) + attrs["bias"]
    result = element / pow_(base, const(attrs["beta"], wide))
    epilogue = GroupEpilogue((x, target), ((1, result.cast(kind)),))
    pool_step(ctx, group, "sum", squares, geometry, epilogue, shape)


def _seen(view: View, shape: tuple[Dim, ...]) -> View:
    found = reshaped(view, shape)
    assert found is not None
    return found
