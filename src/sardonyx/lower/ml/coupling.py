"""CoupledProbabilities: one kernel."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.kernel.ml.coupling import CouplingKernel, units
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import Address, KernelStep
from sardonyx.target import cost


@template("CoupledProbabilities", domain="sardonyx")
def coupled_probabilities(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    classes: int = attribute_values(node)["classes"]
    pairs, probabilities = ctx.view(given(node, 0)), ctx.output(node.outputs[0])
    rows = pairs.shape[0]
    kernel = CouplingKernel()
    scratch = ctx.worker_scratch(dtypes.FLOAT32, kernel.scratch(classes, ctx.target), "coupling")
    arguments = kernel.arguments.entries(
        rows=rows,
        classes=classes,
        pairs=(pairs.address, pairs.strides),
        probabilities=probabilities.address,
        scratch=(Address(scratch), (scratch.size,)),
    )
    work, count = cost.coupling(rows, classes), units(rows, ctx.target)
    ctx.step(
        KernelStep(kernel, arguments, count, work, (pairs.buffer,), (probabilities.buffer, scratch), group.label, (node.label,))
    )
