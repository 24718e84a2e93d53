"""EmbeddingBag: one step that reduces all bags; it means what `ops/indexing/embedding_bag.py` says."""

from __future__ import annotations

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import product
from sardonyx.ir.graph import Node
from sardonyx.kernel.indexing.bags import BagKernel
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given, out_of_range
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import KernelStep
from sardonyx.target import cost


def _accepts(node: Node) -> str:
    shapes = [None if value is None else value.shape for value in node.inputs]
    if any(shape is None and value is not None for shape, value in zip(shapes, node.inputs)) or not shapes[0]:
        return "a table without rows, or ranks that are not known"
    if any(shape is not None and len(shape) != 1 for shape in shapes[1:]):
        return "bounds, indices or weights that are no vectors"
    return "" if attribute_values(node)["mode"] in ("sum", "mean", "max") else "a mode that is not known"


@template("EmbeddingBag", domain="sardonyx", types={"T": ("f32",)}, accepts=_accepts)
def embedding_bag(ctx: LowerContext, group: Group) -> None:
    """Rows are read where they lie: what is gathered is never written down."""
    node = root_of(group)
    attrs = attribute_values(node)
    table, starts, ends = (ctx.contiguous(given(node, position)) for position in range(3))
    indices, weights = (None if value is None else ctx.contiguous(value) for value in (*node.inputs[3:], None, None)[:2])
    kernel = BagKernel(
        mode=attrs["mode"],
        index="" if indices is None else indices.buffer.dtype.name,
        weighted=weights is not None,
        equal_is_zero=bool(attrs["equal_is_zero"]),
    )
    target = ctx.output(node.outputs[0])
    width, elements = product(table.shape[1:]), (table if indices is None else indices).shape[0]
    record, code = out_of_range(ctx, node, 0)
    arguments = kernel.arguments.entries(
        width=width,
        rows=table.shape[0],
        elements=elements,
        table=table.address,
        starts=starts.address,
        ends=ends.address,
        target=target.address,
        **({} if indices is None else {"indices": indices.address}),
        **({} if weights is None else {"weights": weights.address}),
        record=record,
        code=code,
    )
    read = [view.buffer for view in (table, starts, ends, indices, weights) if view is not None]
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            starts.shape[0],
            cost.sample_rows(elements * width),
            tuple(read),
            (target.buffer, record.buffer),
            group.label,
            (group.label,),
        )
    )
