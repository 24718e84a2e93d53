"""Det: a step over the matrices, if they are small."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.ir.dims import product
from sardonyx.ir.graph import Node
from sardonyx.kernel.matmul.determinant import LARGEST, DeterminantKernel, room
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.movement import first_input, root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import Address, KernelStep
from sardonyx.target import cost


def _refusal(node: Node) -> str:
    shape = first_input(node).shape
    if shape is None or len(shape) < 2 or not isinstance(shape[-1], int) or shape[-1] != shape[-2]:
        return "matrices whose size is not known, or that are not square"
    return "" if shape[-1] <= LARGEST else f"matrices of more than {LARGEST} rows, for which a library is faster"


@template("Det", since=11, accepts=_refusal, types={"T": ("f32", "f64")})
def determinant(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    source, target = ctx.contiguous(first_input(node)), ctx.output(node.outputs[0])
    size = source.shape[-1]
    assert isinstance(size, int)
    kernel = DeterminantKernel(type=source.buffer.dtype.name)
    scratch = ctx.worker_scratch(dtypes.FLOAT64, room(size, ctx.target), "matrix")
    arguments = kernel.arguments.entries(
        size=size, source=source.address, target=target.address, scratch=(Address(scratch), (scratch.size,))
    )
    count = product(source.shape[:-2])
    work = cost.scan(product([count, size, size, size]), vector=True)
    writes = target.buffer, scratch
    ctx.step(KernelStep(kernel, arguments, count, work, (source.buffer,), writes, group.label, (node.label,)))
