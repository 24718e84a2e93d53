"""NonZero and Compress: what is counted by one kernel decides the sizes for the next."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node
from sardonyx.kernel.indexing.compact import CountKernel, NonzeroIndicesKernel, StartsKernel, chunks
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given, take
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.lower.views import reshaped
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import KernelStep, View, element_count
from sardonyx.records import dataclass
from sardonyx.target import cost


@dataclass(frozen=True)
class Counted:
    """A tensor whose elements that are not zero were counted: the tensor, where those of each chunk begin, how many there are."""

    source: View
    starts: View
    total: View


def add_up(ctx: LowerContext, counts: View, label: str) -> tuple[View, View]:
    """For each of some counts the sum of those before it, and the sum of all."""
    starts, total = ctx.scratch(dtypes.INT64, (counts.shape[0] + 1,), "starts"), ctx.scratch(dtypes.INT64, (1,), label)
    kernel = StartsKernel()
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(chunks=counts.shape[0], counts=counts.address, starts=starts.address, total=total.address),
            1,
            cost.starts(counts.shape[0]),
            (counts.buffer,),
            (starts.buffer, total.buffer),
            label,
            (label,),
        )
    )
    return starts, total


def count_nonzero(ctx: LowerContext, source: View, label: str) -> Counted:
    """Count the elements of a tensor without gaps that are not zero."""
    elements = element_count(source.shape)
    counts = ctx.scratch(dtypes.INT64, (chunks(elements),), "counts")
    kernel = CountKernel(type=source.buffer.dtype.name)
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(elements=elements, source=source.address, counts=counts.address),
            chunks(elements),
            cost.count(elements),
            (source.buffer,),
            (counts.buffer,),
            label,
            (label,),
        )
    )
    starts, total = add_up(ctx, counts, label)
    return Counted(source, starts, total)


def write_nonzero_indices(ctx: LowerContext, counted: Counted, target: View, label: str) -> None:
    """target[axis, k] := the coordinate of the k-th element that is not zero; its size was bound before."""
    source = counted.source
    elements = element_count(source.shape)
    kernel = NonzeroIndicesKernel(type=source.buffer.dtype.name, axes=len(source.shape))
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(
                sizes=source.shape,
                elements=elements,
                source=source.address,
                starts=counted.starts.address,
                target=(target.address, target.strides),
            ),
            chunks(elements),
            cost.nonzero_indices(elements),
            (source.buffer, counted.starts.buffer),
            (target.buffer,),
            label,
            (label,),
        )
    )


@template("NonZero", data_dependent_sizes=True)
def non_zero(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    value, output = given(node, 0), node.outputs[0]
    counted = count_nonzero(ctx, ctx.contiguous(value), group.label)
    ctx.bind_sizes(counted.total, ctx.shape(output)[1:], node)
    target = ctx.output(output)
    if ctx.shape(value):  # a scalar has no coordinates
        write_nonzero_indices(ctx, counted, target, group.label)


@template("Compress", data_dependent_sizes=True)
def compress(ctx: LowerContext, group: Group) -> None:
    """The chosen positions, then the elements there."""
    node = root_of(group)
    value, output = given(node, 0), node.outputs[0]
    axis = attribute_values(node).get("axis")
    if axis is None:
        axis, source = 0, reshaped(ctx.contiguous(value), (element_count(ctx.shape(value)),))
        assert source is not None
    else:
        axis, source = normalize_axis(axis, len(ctx.shape(value))), ctx.view(value)
    indices = _chosen(ctx, node, ctx.shape(output)[axis])
    fault = ctx.fault(node, "condition selects element {found}, but there are {limit}")
    take(ctx, source, axis, indices, ctx.output(output), fault, group.label)


def _chosen(ctx: LowerContext, node: Node, count: Dim) -> View:
    """The positions at which the condition of a Compress holds."""
    condition = given(node, 1)
    known = ctx.known.array(condition)
    if known is not None:
        found = np.flatnonzero(known)
        return ctx.literal(found)
    flat = reshaped(ctx.contiguous(condition), (element_count(ctx.shape(condition)),))  # whatever its rank
    assert flat is not None
    counted = count_nonzero(ctx, flat, node.op_type)
    ctx.bind_sizes(counted.total, (count,), node)
    indices = ctx.scratch(dtypes.INT64, (1, count), "chosen")
    write_nonzero_indices(ctx, counted, indices, node.op_type)
    chosen = reshaped(indices, (count,))
    assert chosen is not None
    return chosen
