"""KnownOneHot: one kernel over the elements."""

from __future__ import annotations

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import product
from sardonyx.kernel.ml.one_hot import OneHotKernel
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.ml.known_one_hot import refusal
from sardonyx.program.steps import KernelStep
from sardonyx.target import cost


@template("KnownOneHot", domain="sardonyx")
def known_one_hot(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    x, categories = (ctx.contiguous(given(node, number)) for number in range(2))
    target = ctx.output(node.outputs[0])
    kernel = OneHotKernel()
    record, code = ctx.fault(node, refusal(bool(attribute_values(node)["texts"])))
    arguments = kernel.arguments.entries(
        count=categories.shape[0],
        source=x.address,
        categories=categories.address,
        target=target.address,
        record=record,
        code=code,
    )
    count = product(x.shape)
    work = cost.looked_up(count + product(target.shape) // 8)
    reads = x.buffer, categories.buffer
    ctx.step(KernelStep(kernel, arguments, count, work, reads, (target.buffer,), group.label, (node.label,)))
