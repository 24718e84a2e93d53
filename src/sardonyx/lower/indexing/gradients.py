"""Gradients of operators that move elements, as steps; they mean what `ops/indexing/gradients.py` says."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.kernel.expr import const, load
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import IndexOperand, index_step, out_of_range
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.indexing.layout import DOMAIN
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View


def fill_zeros(ctx: LowerContext, target: View, label: str) -> None:
    """Write zeros everywhere."""
    kind = target.buffer.dtype.name
    zero = const(0.0, "f32").cast(kind) if kind in ("f16", "bf16") else const(0.0, kind)
    ctx.step(loop_step(target.shape, [target], [kind], [(0, zero)], target=ctx.target, label=label, nodes=(label,)))


@template("GatherGrad", domain=DOMAIN)
def gather_grad(ctx: LowerContext, group: Group) -> None:
    """Rows are added in the order of their indices, by one worker for each piece of a row: the same sum on any number of them."""
    node = root_of(group)
    updates, indices = node.inputs[0], node.inputs[1]
    assert updates is not None
    assert indices is not None
    result = ctx.output(node.outputs[0])
    half = result.buffer.dtype in (dtypes.FLOAT16, dtypes.BFLOAT16)
    far = ctx.scratch(dtypes.FLOAT32, result.shape, "sums") if half else result
    near, positions = ctx.view(updates), ctx.view(indices)
    if half:
        wide = ctx.scratch(dtypes.FLOAT32, near.shape, "updates")
        _convert(ctx, near, wide, group.label)
        near = wide
    axis = normalize_axis(attribute_values(node)["axis"], len(far.shape))
    fill_zeros(ctx, far, group.label)
    lead, count = axis, len(positions.shape)
    rest = len(far.shape) - axis - 1
    for size, other in zip(near.shape, (*far.shape[:axis], *positions.shape, *far.shape[axis + 1 :])):
        ctx.check_equal(size, other)
    operand = IndexOperand(positions, (*(0,) * lead, *positions.strides, *(0,) * rest), far.shape[axis], far.strides[axis])
    strides = (*far.strides[:axis], *(0,) * count, *far.strides[axis + 1 :])
    index_step(
        ctx,
        "scatter",
        near.shape,
        (near, near.strides),
        (far, strides),
        [operand],
        out_of_range(ctx, node, axis),
        label=group.label,
        ordered=range(lead, lead + count),
        combine="add",
    )
    if half:
        _convert(ctx, far, result, group.label)


def _convert(ctx: LowerContext, source: View, target: View, label: str) -> None:
    kinds = [view.buffer.dtype.name for view in (source, target)]
    value = load(0, kinds[0]).cast(kinds[1])
    ctx.step(loop_step(source.shape, [source, target], kinds, [(1, value)], target=ctx.target, label=label, nodes=(label,)))
