"""KeyLookup: one kernel over the elements."""

from __future__ import annotations

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.ml.key_lookup import KeyLookupKernel
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import KernelStep
from sardonyx.target import cost


def _length(value: Value | None) -> int | None:
    shape = None if value is None or value.constant is None else value.shape
    return shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else None


def _refusal(node: Node) -> str:
    size = _length(node.inputs[1])
    if size is None or size < 2 or size & (size - 1) or _length(node.inputs[2]) != size:
        return "slots that are no constant table of a power of two, with a value for each"
    return ""


@template("KeyLookup", domain="sardonyx", accepts=_refusal)
def key_lookup(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    x, slots, values = (ctx.contiguous(given(node, number)) for number in range(3))
    target = ctx.output(node.outputs[0])
    size = _length(node.inputs[1])
    assert size is not None
    kernel = KeyLookupKernel(type=ctx.dtype(given(node, 0)).name, values=ctx.dtype(given(node, 2)).name)
    arguments = kernel.arguments.entries(
        bits=size.bit_length() - 1,
        empty=attribute_values(node)["empty"],
        source=x.address,
        slots=slots.address,
        values=values.address,
        target=target.address,
    )
    reads = x.buffer, slots.buffer, values.buffer
    count = product(x.shape)
    ctx.step(KernelStep(kernel, arguments, count, cost.looked_up(count), reads, (target.buffer,), group.label, (node.label,)))
