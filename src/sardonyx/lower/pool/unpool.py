"""MaxUnpool as steps: zeros, and the elements scattered over them; it means what `ops/pool/pool.py` says."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import product
from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import const, load, select
from sardonyx.lower.conv.blocks import whole_view
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import IndexOperand, index_step
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import View


def _accepts(node: Node) -> str:
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        return "the size of the result is an input"
    shapes = [None if value is None else value.shape for value in node.inputs[:2]]
    known = [len(shape) for shape in shapes if shape is not None]
    return "" if len(known) == 2 and known[0] == known[1] >= 3 else "inputs of unknown or different rank"


@template("MaxUnpool", accepts=_accepts)
def max_unpool(ctx: LowerContext, group: Group) -> None:
    """Indices count the elements of the whole result; of several with one index the last stays."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    assert node.inputs[1] is not None
    x, indices, final = ctx.contiguous(node.inputs[0]), ctx.contiguous(node.inputs[1]), ctx.output(node.outputs[0])
    result = final if final.is_contiguous else ctx.scratch(final.buffer.dtype, final.shape, "unpooled")
    for size, other in zip(x.shape, indices.shape):
        ctx.check_equal(size, other)
    for size in result.shape:
        ctx.check_at_most(0, size)
    count, total = product(x.shape), product(result.shape)
    zero = ctx.literal(np.zeros(1, result.buffer.dtype.numpy))
    ctx.copy(View(zero.buffer, result.shape, (0,) * len(result.shape), zero.offset), result, group.label)
    # Scattering takes negative indices to count from the end: here they are errors.
    beyond = np.iinfo(np.int64).max
    flat, positions = whole_view(indices, (count,)), ctx.scratch(dtypes.INT64, (count,), "indices")
    kinds, given = ["i64", "i64"], load(0, "i64")
    stores = [(1, select(given < 0, const(beyond, "i64"), given))]
    ctx.step(loop_step((count,), [flat, positions], kinds, stores, target=ctx.target, label=group.label, nodes=(node.label,)))
    fault = ctx.fault(node, "I has a value that is no position in the unpooled tensor of {limit} elements")
    index_step(
        ctx,
        "scatter",
        (count,),
        (whole_view(x, (count,)), (1,)),
        (whole_view(result, (total,)), (0,)),
        [IndexOperand(positions, (1,), total, 1)],
        fault,
        label=group.label,
        ordered=[0],
    )
    if result is not final:
        ctx.copy(result, final, group.label)
