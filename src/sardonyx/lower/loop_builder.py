"""Loop kernels out of views and expressions: axes are put in order, merged and classified, arguments collected.

y[N,C,H,W] := max(x[N,C,H,W] + b[1,C,1,1], 0)     =>   3 axes (N, C, H*W); x and y move by 1 along the last, b by 0
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.dims import Dim, dim_min, product
from sardonyx.kernel.expr import BITS, Expr, operations
from sardonyx.kernel.loops import Inner, LoopKernel, Operand, Reduce, may_overwrite, units
from sardonyx.program.steps import Address, Buffer, KernelStep, View
from sardonyx.target import cost
from sardonyx.target.target import Target

_ARITHMETIC = dict.fromkeys(("add", "sub", "mul", "div", "sqrt", "neg", "abs", "min", "max"), 1) | {"fma": 2, "one_and_exp": 20}


def broadcast_strides(view: View, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The strides by which a view moves over a larger shape: 0 where it is repeated.

    A size that may turn out to be 1 gets a stride that is then 0; that it is 1 or fits is checked when sizes are known
    (`LowerContext.check_broadcast`).
    """
    missing = len(shape) - len(view.shape)
    own: list[Dim] = []
    for size, stride, target in zip(view.shape, view.strides, shape[missing:]):
        if size == target:
            own.append(stride)
        else:
            own.append(0 if size == 1 else stride * dim_min(size - 1, 1))
    return (0,) * missing + tuple(own)


def operand_sizes(operands: Sequence[View], shape: Sequence[Dim]) -> tuple[tuple[Dim, Dim], ...]:
    """The sizes of operands beside those of the loop over them, where they are not plainly the same or 1."""
    pairs = ((size, wanted) for view in operands for size, wanted in zip(reversed(view.shape), reversed(shape)))
    return tuple(dict.fromkeys((size, wanted) for size, wanted in pairs if size not in (1, wanted)))


def merge_axes(shape: Sequence[Dim], strides: Sequence[Sequence[Dim]], fixed: int = 0) -> tuple[list[Dim], list[list[Dim]]]:
    """Drop axes of size 1 and join neighbours that every operand walks through without a jump.

    The last `fixed` axes stay as they are: they mean something to the kernel.
    """
    free = len(shape) - fixed
    kept = [axis for axis in range(len(shape)) if axis >= free or shape[axis] != 1]
    sizes = [shape[axis] for axis in kept]
    merged = [[operand[axis] for axis in kept] for operand in strides]
    axis = len(sizes) - fixed - 2
    while axis >= 0:
        if all(operand[axis] == operand[axis + 1] * sizes[axis + 1] for operand in merged):
            sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
            for operand in merged:
                operand[axis : axis + 2] = [operand[axis + 1]]
        axis -= 1
    if not sizes:
        sizes, merged = [1], [[0] for _ in merged]
    return sizes, merged


def _inner(stride: Dim) -> Inner:
    return "unit" if stride == 1 else "zero" if stride == 0 else "any"


def loop_step(
    shape: Sequence[Dim],
    operands: Sequence[View],
    types: Sequence[str],
    stores: Sequence[tuple[int, Expr]],
    *,
    target: Target,
    label: str,
    nodes: tuple[str, ...],
    results: Sequence[tuple[int, Expr]] = (),
    reduce: Reduce = "none",
    stash: Sequence[tuple[int, Expr]] = (),
) -> KernelStep:
    """A step that evaluates expressions over a shape; operand k of the expressions is `operands[k]`.

    With a reduction the reduced axis is the last (inner) or the last but one (middle) of `shape`, or both (parts).
    """
    strides = [broadcast_strides(view, shape) for view in operands]
    fitting = operand_sizes(operands, shape)
    written = list(dict.fromkeys(number for number, _ in (*stores, *results, *stash)))
    if reduce == "none":
        order = sorted(range(len(shape)), key=lambda axis: _walk_order(shape, strides, written, axis))
        shape = [shape[axis] for axis in order]
        strides = [tuple(operand[axis] for axis in order) for operand in strides]
    fixed = {"none": 0, "inner": 1, "parts": 2, "middle": 2}[reduce]
    sizes, merged = merge_axes(shape, strides, fixed)
    row_axis = -1 - max(fixed, 1)  # the one from row to row: rows with parts are the last two axes
    kernel = LoopKernel(
        axes=len(sizes),
        operands=tuple(
            Operand(kind, _inner(own[-1]), len(own) >= -row_axis and own[row_axis] == 0) for kind, own in zip(types, merged)
        ),
        stores=tuple(stores),
        results=tuple(results),
        reduce=reduce,
        stash=tuple(stash),
    )
    arguments = kernel.arguments.entries(
        sizes=sizes,
        operands=[
            (Address(view.buffer, view.offset * (BITS[kind] // 8)), own) for view, kind, own in zip(operands, types, merged)
        ],
    )
    elements = product(sizes)
    flops = sum(_ARITHMETIC.get(node.op, 0) for node in kernel.nodes)
    read = [number for number in range(len(operands)) if number not in written]
    return KernelStep(
        kernel,
        arguments,
        units(kernel, sizes, target),
        estimated_work(kernel, elements),
        tuple(operands[number].buffer for number in read),
        tuple(dict.fromkeys(operands[number].buffer for number in written)),
        label,
        nodes,
        tuple(_in_place(kernel, operands, merged, types, read, [number for number, _ in (*stores, *stash)])),
        operand_sizes=fitting,
        flops=elements * flops,
    )


def _walk_order(shape: Sequence[Dim], strides: Sequence[Sequence[Dim]], written: Sequence[int], axis: int) -> tuple[int, int]:
    """Axes along which the result lies consecutively come last; the given order decides otherwise."""
    unit = any(strides[number][axis] == 1 for number in written) and shape[axis] != 1
    return (1 if unit else 0, axis)


def _in_place(
    kernel: LoopKernel,
    operands: Sequence[View],
    merged: Sequence[Sequence[Dim]],
    types: Sequence[str],
    read: Sequence[int],
    written: Sequence[int],
) -> list[tuple[Buffer, Buffer]]:
    """Pairs of operands that walk through memory alike, so that one element is read before it is overwritten."""

    def alike(one: int, other: int) -> bool:
        same_walk = list(merged[one]) == list(merged[other]) and operands[one].offset == operands[other].offset == 0
        return same_walk and BITS[types[one]] == BITS[types[other]] and may_overwrite(kernel, one, other)

    pairs = []
    for target in dict.fromkeys(written):
        for source in read:
            # Every operand in that memory must walk like the result: x + x.T must not overwrite x.
            twins = [number for number in read if operands[number].buffer is operands[source].buffer]
            if all(alike(twin, target) for twin in twins) and operands[source].buffer.size == operands[target].buffer.size:
                pairs.append((operands[source].buffer, operands[target].buffer))
    return pairs


def estimated_work(kernel: LoopKernel, elements: Dim) -> Dim:
    """Nanoseconds on one core, roughly."""
    moved = sum(BITS[operand.type] // 8 for operand in kernel.operands if operand.inner != "zero")
    return cost.loop(elements, operations(kernel.nodes), moved)
