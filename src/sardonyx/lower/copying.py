"""Copies from view to view, by the kernel that fits how both lie in memory."""

from __future__ import annotations

from sardonyx.ir.dims import Dim, dim_min, floordiv, product
from sardonyx.kernel.expr import BITS, load
from sardonyx.kernel.indexing import short_rows
from sardonyx.kernel.indexing.short_rows import MOST_BYTES, ShortRowsKernel
from sardonyx.kernel.indexing.transpose import TransposeKernel, square, units
from sardonyx.kernel.matmul import interleave
from sardonyx.lower.loop_builder import broadcast_strides, loop_step, merge_axes, operand_sizes
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost
from sardonyx.target.target import Target

_TRANSPOSED_FROM = 4096  # elements
_FEW_ROWS = 8  # that do not make up for finding out where the first of them lies
_SMALLEST_SQUARE = 4  # elements a side
OF_WIDTH = {8: "i8", 16: "i16", 32: "i32", 64: "i64"}  # elements are moved as integers: no bit changes


def copy_steps(source: View, target: View, *, machine: Target, label: str, nodes: tuple[str, ...] = ()) -> list[KernelStep]:
    """Steps that write one view into another of the same shape, or of one it broadcasts to.

    Short rows have a kernel of their own. If a size is known only at run time, a transposed copy may be there in two ways: the
    one that does not fit has no units.
    """
    kind = OF_WIDTH[BITS[source.buffer.dtype.name]]
    nodes = nodes or (label,)
    side = square(BITS[kind], machine)
    transposed, share = _transposition(source, target, kind, side, label, nodes)
    if transposed is None:
        transposed = _interleaving(source, target, kind, label, nodes)
        share = 0 if transposed is None else 1
    while transposed is None and side > _SMALLEST_SQUARE:
        side //= 2
        transposed, share = _transposition(source, target, kind, side, label, nodes)
    if transposed is None:
        transposed = _short_rows(source, target, label, nodes)
        share = 0 if transposed is None else 1
    steps = [] if transposed is None else [transposed]
    if share != 1:
        step = loop_step(
            target.shape, [source, target], [kind, kind], [(1, load(0, kind))], target=machine, label=label, nodes=nodes
        )
        step.units, step.work = step.units * (1 - share), step.work * (1 - share)
        steps.append(step)
    for step in steps:
        step.operand_sizes = operand_sizes([source], target.shape)
    return steps


def is_transposed(view: View, machine: Target) -> bool:
    """Whether a view is consecutive along another axis than its last, and so large that a loop would suffer from it."""
    axes = [axis for axis, size in enumerate(view.shape) if size != 1]
    count = product(list(view.shape))
    if not axes or view.strides[axes[-1]] in (0, 1) or (isinstance(count, int) and count < _TRANSPOSED_FROM):
        return False
    least = square(BITS[view.buffer.dtype.name], machine)
    rows = [view.shape[axis] for axis in axes if view.strides[axis] == 1]
    return bool(rows) and all(not isinstance(size, int) or size >= least for size in (rows[0], view.shape[axes[-1]]))


def _transposition(
    source: View, target: View, kind: str, side: int, label: str, nodes: tuple[str, ...]
) -> tuple[KernelStep | None, Dim]:
    """A turning step by squares, and 1 if it does all the work, 0 if none, or what says so at run time."""
    sizes, (reads, writes) = merge_axes(target.shape, [broadcast_strides(source, target.shape), target.strides])
    rows = next((axis for axis, stride in enumerate(reads) if stride == 1), None)
    columns = next((axis for axis, stride in enumerate(writes) if stride == 1), None)
    if rows is None or columns is None or rows == columns or reads[columns] == 0 or writes[rows] == 0:
        return None, 0
    share = dim_min(floordiv(sizes[rows], side), 1) * dim_min(floordiv(sizes[columns], side), 1)
    if share == 0:
        return None, 0
    outer = [axis for axis in range(len(sizes)) if axis not in (rows, columns)]
    width = BITS[kind] // 8
    kernel = TransposeKernel(type=kind, outer=len(outer), side=side)
    arguments = kernel.arguments.entries(
        outer=[sizes[axis] for axis in outer],
        rows=sizes[rows],
        columns=sizes[columns],
        source=(Address(source.buffer, source.offset * width), [reads[axis] for axis in (*outer, columns)]),
        target=(Address(target.buffer, target.offset * width), [writes[axis] for axis in (*outer, rows)]),
    )
    step = KernelStep(
        kernel,
        arguments,
        units([sizes[axis] for axis in outer], sizes[rows], sizes[columns]) * share,
        cost.transposed(product(sizes), width) * share,
        (source.buffer,),
        (target.buffer,),
        label,
        nodes,
    )
    return step, share


def _short_rows(source: View, target: View, label: str, nodes: tuple[str, ...]) -> KernelStep | None:
    """A step for short rows of a known length that lie apart on one side at least."""
    sizes, (reads, writes) = merge_axes(target.shape, [broadcast_strides(source, target.shape), target.strides])
    count, width = sizes[-1], BITS[source.buffer.dtype.name] // 8
    if len(sizes) < 2 or not isinstance(count, int) or not 0 < count * width <= MOST_BYTES or not reads[-1] == 1 == writes[-1]:
        return None
    outer = list(range(len(sizes) - 1))
    numbers = [size if isinstance((size := sizes[axis]), int) else 0 for axis in outer]
    if 0 < numbers[-1] < _FEW_ROWS:
        outer.append(outer.pop(numbers.index(max(numbers))))
    kernel = ShortRowsKernel(width=count * width, outer=len(outer))
    lengths = [sizes[axis] for axis in outer]
    arguments = kernel.arguments.entries(
        outer=lengths,
        source=(Address(source.buffer, source.offset * width), [reads[axis] * width for axis in outer]),
        target=(Address(target.buffer, target.offset * width), [writes[axis] * width for axis in outer]),
    )
    work = cost.short_rows(product(lengths), count * width)
    return KernelStep(kernel, arguments, short_rows.units(lengths), work, (source.buffer,), (target.buffer,), label, nodes)


def _interleaving(source: View, target: View, kind: str, label: str, nodes: tuple[str, ...]) -> KernelStep | None:
    """A step that mixes a few columns, if the target lies row after row."""
    sizes, (reads, writes) = merge_axes(target.shape, [broadcast_strides(source, target.shape), target.strides])
    columns = next((axis for axis, stride in enumerate(writes) if stride == 1), None)
    count = 0 if columns is None else sizes[columns]
    if columns is None or not isinstance(count, int) or not 2 <= count <= interleave.MOST:
        return None
    rows = next((axis for axis, stride in enumerate(reads) if stride == 1 and writes[axis] == count and axis != columns), None)
    if rows is None:
        return None
    outer = [axis for axis in range(len(sizes)) if axis not in (rows, columns)]
    width = BITS[kind] // 8
    kernel = interleave.InterleaveKernel(type=kind, count=count, outer=len(outer))
    arguments = kernel.arguments.entries(
        outer=[sizes[axis] for axis in outer],
        rows=sizes[rows],
        source=(Address(source.buffer, source.offset * width), [reads[axis] for axis in (*outer, columns)]),
        target=(Address(target.buffer, target.offset * width), [writes[axis] for axis in outer]),
    )
    return KernelStep(
        kernel,
        arguments,
        interleave.units([sizes[axis] for axis in outer], sizes[rows]),
        cost.transposed(product(sizes), width),
        (source.buffer,),
        (target.buffer,),
        label,
        nodes,
    )
