"""Resizing rows to the nearest element: a step that takes the points of a table out of every row, or of some rows."""

from __future__ import annotations

from sardonyx.ir.dims import product
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.sampling import nearest
from sardonyx.kernel.sampling.nearest import NearestKernel
from sardonyx.lower.copying import OF_WIDTH
from sardonyx.lower.loop_builder import merge_axes
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.sampling.resize_tables import Table
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost


def is_row(source: View, axis: int, target: View) -> bool:
    """Whether the elements of an axis follow each other in memory on both sides, and it is the last one."""
    return axis == len(source.shape) - 1 and source.strides[axis] == 1 == target.strides[axis]


def take_points(ctx: LowerContext, source: View, target: View, points: Table, lines: Table | None, label: str, node: str) -> None:
    """target := the points of each row of the source, which lies as the target's does; of the lines that a table says."""
    apart = {points.axis} if lines is None else {points.axis, lines.axis}
    others = [axis for axis in range(len(source.shape)) if axis not in apart]
    sizes, strides = merge_axes(
        [target.shape[axis] for axis in others], [[one.strides[axis] for axis in others] for one in (source, target)]
    )
    if lines is not None:
        sizes.append(lines.out)
        for own, one in zip(strides, (source, target)):
            own.append(one.strides[lines.axis])
    kernel = NearestKernel(type=OF_WIDTH[BITS[source.buffer.dtype.name]], outer=len(sizes), lines=lines is not None)
    tables = {"indices": points.indices} | ({} if lines is None else {"lines": lines.indices})
    arguments = kernel.arguments.entries(
        outer=sizes,
        points=points.out,
        source=(source.address, strides[0]),
        target=(target.address, strides[1]),
        **{name: Address(table.buffer, table.offset * 8) for name, table in tables.items()},
    )
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            nearest.units(sizes, points.out),
            cost.nearest(product([*sizes, points.out])),
            (source.buffer, *(table.buffer for table in tables.values())),
            (target.buffer,),
            label,
            (node,),
        )
    )
