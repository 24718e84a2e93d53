"""Caches of keys and values: new rows behind those of the past, in memory that past and present may share.

A program that appends to an input and returns the result as an output says so (`Lowered.shared`): whoever runs it may give both
the same memory, and then nothing but the new rows is written.
"""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Value
from sardonyx.kernel.attention.cache import CacheKernel, units
from sardonyx.kernel.expr import load, select
from sardonyx.lower.attention.operands import consecutive
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor
from sardonyx.lower.indexing.indexing import FAR_AWAY, take
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import Address, KernelStep, Storage, View
from sardonyx.target import cost


def append(
    ctx: LowerContext, group: Group, past: Value, new: View, present: View, first: View | Dim, *, keeps: bool = False
) -> None:
    """present := past with new rows from `first` on: a size, or a view with a position (i64) for each batch entry.

    Zeros follow them, or what the past has there if that is kept.
    """
    before = ctx.view(past)
    append_rows(ctx, group, before, consecutive(ctx, new, before.buffer.dtype.name, group), present, first, keeps=keeps)
    ends = (before.buffer, present.buffer)
    if (ends[0].storage, ends[1].storage) == (Storage.INPUT, Storage.OUTPUT) and len(past.uses) == 1 and not ctx.is_output(past):
        ctx.lowered.shared.append(ends)


def append_rows(
    ctx: LowerContext,
    group: Group,
    before: View,
    new: View,
    present: View,
    first: View | Dim,
    dropped: View | None = None,
    *,
    keeps: bool = False,
) -> None:
    """The step of an append. `dropped`: how many of the first rows before each batch entry leaves out (i64)."""
    for axis in (0, 1, 3):
        ctx.check_equal(before.shape[axis], new.shape[axis])
        ctx.check_equal(present.shape[axis], new.shape[axis])
    batch, heads, added, row = new.shape
    is_ragged = isinstance(first, View)
    kernel = CacheKernel(type=new.buffer.dtype.name, is_ragged=is_ragged, drops=dropped is not None, keeps=keeps)
    arguments = kernel.arguments.entries(
        heads=heads,
        added=added,
        held=before.shape[2],
        room=present.shape[2],
        row=row,
        past=(before.address, before.strides[:3]),
        new=(new.address, new.strides[:3]),
        present=(present.address, present.strides[:3]),
        first=first.address if isinstance(first, View) else first,
        **({} if dropped is None else {"dropped": dropped.address}),
    )
    reads = [before.buffer, new.buffer, *(view.buffer for view in (first, dropped) if isinstance(view, View))]
    elements = product([batch, heads, present.shape[2], row])
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            units(batch, heads),
            cost.loop(elements, 1, 2),
            tuple(dict.fromkeys(reads)),
            (present.buffer,),
            "append",
            tuple(node.label for node in group.nodes),
        )
    )


def check_positions(ctx: LowerContext, positions: View, fault: tuple[Address, int]) -> None:
    """Report positions that are `FAR_AWAY`, also where nothing is appended and nobody else would look at them."""
    nothing = ctx.scratch(dtypes.INT8, positions.shape, "nothing")
    far = select(load(0, "i64").eq(FAR_AWAY), load(0, "i64"), 0)
    looked_at = index_tensor(ctx, positions.shape, [positions], far, "check")
    take(ctx, ctx.literal(np.zeros(1, np.int8)), 0, looked_at, nothing, fault, "check")


@template("AppendToCache", domain="sardonyx")
def append_to_cache(ctx: LowerContext, group: Group) -> None:
    """The cache with the new rows, and the part of it that is filled."""
    node = group.root
    assert node is not None
    cache, new, past = (value for value in node.inputs if value is not None)
    present = ctx.output(node.outputs[0])
    first = ctx.shape(past)[0]
    added = ctx.shape(new)[2]
    filled = ctx.part(present, 2, 0, first + added)
    append(ctx, group, cache, ctx.view(new), present, first)
    ctx.set_view(node.outputs[1], filled)
