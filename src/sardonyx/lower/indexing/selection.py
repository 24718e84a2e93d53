"""TopK, and running sums and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_min, product
from sardonyx.ir.graph import Node
from sardonyx.kernel.rows import scan, sort, topk
from sardonyx.kernel.rows.scan import Operation, ScanKernel
from sardonyx.kernel.rows.sort import SortKernel
from sardonyx.kernel.rows.topk import TopKKernel
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import first_input, root_of
from sardonyx.lower.loop_builder import merge_axes
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template, view
from sardonyx.lower.views import transposed
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import Address, Argument, Kernel, KernelStep, View, element_count, whole
from sardonyx.target import cost


@template(
    "TopK",
    accepts=lambda node: "" if node.outputs[0].shape else "the input has no axes",
    data_dependent_sizes=True,
    writes_anywhere=True,
)
def top_k(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    source = ctx.view(first_input(node))
    attrs = attribute_values(node)
    axis = normalize_axis(attrs.get("axis", -1), len(source.shape))
    values, indices = (ctx.output(value) if value.name else None for value in node.outputs[:2])
    shape = ctx.shape(node.outputs[0])
    if node.version >= 10 and ctx.elements(node.inputs[1]) is None:
        asked = ctx.view(given(node, 1))
        ctx.check_equal(element_count(asked.shape), 1)
        ctx.bind_sizes(asked, (shape[axis],), node)
    # Both results are worked with, also if only one is asked for.
    if values is None:
        values = ctx.scratch(source.buffer.dtype, shape, "values")
    if indices is None:
        indices = ctx.scratch(ctx.dtype(node.outputs[1]), shape, "indices")
    length, wanted = source.shape[axis], shape[axis]
    ctx.check_equal(dim_min(length, wanted), wanted)
    others = [other for other in range(len(shape)) if other != axis]
    last = (*others, axis)
    rows, found, where = (transposed(one, last) for one in (source, values, indices))
    if rows.strides[-1] == 1:
        _select(ctx, group, rows, found, where)
        return
    # Elements of a row that lie apart are brought together first: every one of them would be in a cache line of its own.
    rows = ctx.copy(rows, ctx.scratch(rows.buffer.dtype, rows.shape, "rows"), "rows")
    made = [ctx.scratch(one.buffer.dtype, one.shape, "selected") for one in (found, where)]
    _select(ctx, group, rows, *made)
    for one, target in zip(made, (found, where)):
        ctx.copy(one, target, "selected")


def _select(ctx: LowerContext, group: Group, rows: View, values: View, indices: View) -> None:
    """The first elements of rows, which are the last axis, in sorted order."""
    node = root_of(group)
    length, wanted = rows.shape[-1], values.shape[-1]
    sides = (rows, values, indices)
    sizes, strides = merge_axes(rows.shape[:-1], [one.strides[:-1] for one in sides])
    rows_, values_, indices_ = ((one.address, (*own, one.strides[-1])) for one, own in zip(sides, strides))
    shared = {"outer": sizes, "length": length, "wanted": wanted, "rows": rows_, "values": values_, "indices": indices_}
    largest = node.version < 11 or attribute_values(node).get("largest", 1) != 0
    kind = rows.buffer.dtype.name
    if isinstance(wanted, int) and wanted <= topk.MOST:
        selection = TopKKernel(type=kind, largest=largest, outer=len(sizes))
        units, work = topk.units(sizes), cost.topk(product([*sizes, length]), product([*sizes, wanted, wanted]))
        ctx.step(_row_step(group, node, selection, selection.arguments.entries(**shared), units, work, sides))
        return
    ctx.check_equal(dim_min(length, sort.LONGEST), length)
    sorting = SortKernel(type=kind, largest=largest, outer=len(sizes), few=not isinstance(wanted, int))
    room = sort.room(length, wanted)
    words = ctx.worker_scratch(dtypes.INT64, sorting.scratch(room), "words")
    work = cost.topk(product([*sizes, length]), 0) + cost.sort(product([*sizes, room]), sorting.bits)
    arguments = sorting.arguments.entries(**shared, room=room, scratch=(Address(words), (words.size,)))
    step = _row_step(group, node, sorting, arguments, sort.units(sizes), work, (*sides, whole(words, (words.size,))))
    ctx.step(step)


def _row_step(
    group: Group, node: Node, kernel: Kernel, arguments: Sequence[Argument], units: Dim, work: Dim, sides: Sequence[View]
) -> KernelStep:
    """A step that reads the first view and writes the others."""
    reads, *writes = (one.buffer for one in sides)
    return KernelStep(kernel, tuple(arguments), units, work, (reads,), tuple(writes), group.label, (node.label,))


_RUNNING: Final[dict[str, Operation]] = {"CumSum": "add", "CumProd": "mul"}


@view("CumSum", "CumProd")
def cumulative(ctx: LowerContext, node: Node) -> bool:
    """Backwards is forwards on views that run backwards. An axis that is data is left to the host."""
    axes, value = ctx.integers(node.inputs[1]), first_input(node)
    if not axes or len(axes) != 1 or not ctx.shape(value):
        return False
    attrs = attribute_values(node)
    source, target = ctx.view(value), ctx.output(node.outputs[0])
    axis = normalize_axis(axes[0], len(source.shape))
    steps = source.shape[axis]
    if attrs.get("reverse"):
        source, target = (ctx.part(one, axis, steps - 1, steps, -1) for one in (source, target))
    others = [other for other in range(len(source.shape)) if other != axis]
    sides = (source, target)
    sizes, strides = merge_axes(
        [source.shape[other] for other in others], [[one.strides[other] for other in others] for one in sides]
    )
    inner: Dim = sizes.pop()
    inner_strides = [own.pop() for own in strides]
    kind, exclusive, together = source.buffer.dtype.name, bool(attrs.get("exclusive")), all(own == 1 for own in inner_strides)
    compute = compute_type(kind)
    kernel = ScanKernel(
        type=kind,
        compute=compute,
        operation=_RUNNING[node.op_type],
        exclusive=exclusive,
        outer=len(sizes),
        vectors=scan.vectors_of(inner, compute, ctx.target) if together else 0,
        by_rows=together and scan.is_by_rows(inner, kind, compute, exclusive, ctx.target),
    )
    read, written = ((one.address, (*own, one.strides[axis], last)) for one, own, last in zip(sides, strides, inner_strides))
    arguments = kernel.arguments.entries(outer=sizes, steps=steps, inner=inner, source=read, target=written)
    elements = product([*sizes, steps, inner])
    units, work = scan.units(kernel, sizes, inner, ctx.target), cost.scan(elements, vector=kernel.vectors > 0)
    reads, writes = (source.buffer,), (target.buffer,)
    ctx.step(KernelStep(kernel, arguments, units, work, reads, writes, node.op_type, (node.label,)))
    return True
