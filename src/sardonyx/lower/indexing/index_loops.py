"""Loops whose expressions use the position they are at (`kernel.expr.index`): axes stay as they are given."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, product
from sardonyx.kernel.expr import BITS, Expr
from sardonyx.kernel.loops import Inner, LoopKernel, Operand, units
from sardonyx.lower.loop_builder import broadcast_strides, estimated_work, operand_sizes
from sardonyx.lower.lowering import LowerContext
from sardonyx.program.steps import Address, KernelStep, View


def inner_stride(stride: Dim) -> Inner:
    """What a kernel may know of a stride."""
    return "unit" if stride == 1 else "zero" if stride == 0 else "any"


def indexed_loop(ctx: LowerContext, shape: Sequence[Dim], views: Sequence[View], target: View, value: Expr, label: str) -> None:
    """target := value over a shape; operand k is `views[k]`, which broadcasts to the shape; `index(axis)` counts its axes."""
    operands = [*views, target]
    strides = [list(broadcast_strides(view, shape)) for view in operands]
    sizes = list(shape)
    if not sizes:
        sizes, strides = [1], [[0] for _ in strides]
    if sizes[-1] == 1:
        strides[-1][-1] = 1  # one element: the result can be stored as a vector of it
    types = [view.buffer.dtype.name for view in operands]
    kernel = LoopKernel(
        axes=len(sizes),
        operands=tuple(Operand(kind, inner_stride(own[-1])) for kind, own in zip(types, strides)),
        stores=((len(views), value.cast(types[-1])),),
    )
    arguments = kernel.arguments.entries(
        sizes=sizes,
        operands=[
            (Address(view.buffer, view.offset * (BITS[kind] // 8)), own) for view, kind, own in zip(operands, types, strides)
        ],
    )
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            units(kernel, sizes, ctx.target),
            estimated_work(kernel, product(sizes)),
            tuple(view.buffer for view in views),
            (target.buffer,),
            label,
            (label,),
            operand_sizes=operand_sizes(operands, shape),
        )
    )


def index_tensor(ctx: LowerContext, shape: Sequence[Dim], views: Sequence[View], value: Expr, label: str) -> View:
    """Indices computed by an expression."""
    target = ctx.scratch(dtypes.INT64, shape, label)
    indexed_loop(ctx, shape, views, target, value, label)
    return target
