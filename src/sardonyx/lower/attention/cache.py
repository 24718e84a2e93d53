"""Caches of keys and values: new rows behind those of the past, in memory that past and present may share.

A program that appends to an input and returns the result as an output says so (`Lowered.shared`): whoever runs it may give both
the same memory, and then nothing but the new rows is written.
"""

from __future__ import annotations

from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Value
from sardonyx.kernel.attention.cache import CacheKernel, units
from sardonyx.lower.attention.attention import consecutive
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import KernelStep, Storage, View
from sardonyx.target import cost


def append(ctx: LowerContext, group: Group, past: Value, new: View, present: View, first: View | Dim) -> None:
    """present := past with new rows from `first` on: a size, or a view with a position (i64) for each batch entry."""
    before = ctx.view(past)
    new = consecutive(ctx, new, before.buffer.dtype.name, group)
    for axis in (0, 1, 3):
        ctx.check_equal(before.shape[axis], new.shape[axis])
        ctx.check_equal(present.shape[axis], new.shape[axis])
    batch, heads, added, row = new.shape
    is_ragged = isinstance(first, View)
    kernel = CacheKernel(type=new.buffer.dtype.name, is_ragged=is_ragged)
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
    )
    reads = [before.buffer, new.buffer, *([first.buffer] if isinstance(first, View) else [])]
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
    ends = (before.buffer, present.buffer)
    if (ends[0].storage, ends[1].storage) == (Storage.INPUT, Storage.OUTPUT) and len(past.uses) == 1 and not ctx.is_output(past):
        ctx.lowered.shared.append(ends)


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
