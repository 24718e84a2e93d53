"""Resizing of blocked activations as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, product
from sardonyx.ir.graph import Node
from sardonyx.kernel.sampling.resize import TABLES, ResizeKernel
from sardonyx.lower.conv.blocks import dense_blocks, operand_arguments, zeros
from sardonyx.lower.conv.conv import result_epilogue, result_strides, root_of
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.lower.sampling.resize_tables import Table, fits_open_sizes, known_table, open_table
from sardonyx.ops.indexing.layout import DOMAIN, repeats, resize_axes
from sardonyx.ops.sampling.resize import AxisPlan, Interpolation
from sardonyx.program.steps import Address, KernelStep
from sardonyx.target import cost


def _accepts(node: Node) -> str:
    value = node.inputs[0]
    if value is None or value.shape is None or len(value.shape) not in (4, 5):
        return "resizing in blocks is there for 1 and 2 spatial axes"
    attrs = attribute_values(node)
    if attrs["mode"] not in ("nearest", "linear"):
        return f"no blocked kernel for {attrs['mode']}"
    known = all(isinstance(dim, int) for each in (value, node.outputs[0]) for dim in (each.shape or ("",))[2:-1])
    if not known and repeats(attrs) is None and not fits_open_sizes(_interpolation(attrs)):
        return "the sizes are not known, and no kernel finds the pixels for them"
    return ""


def _interpolation(attrs: Mapping[str, Any]) -> Interpolation:
    return Interpolation(attrs["mode"], attrs["coordinate_transformation_mode"], attrs["nearest_mode"])


def _tables(
    ctx: LowerContext, group: Group, attrs: Mapping[str, Any], before: Sequence[Dim], after: Sequence[Dim]
) -> list[Table]:
    """What rows are made of, then columns."""
    how, scales = _interpolation(attrs), attrs.get("scales")
    made = []
    if len(before) == 1:  # a row of pixels is an image of one row
        plan = AxisPlan(0, 1, 1, np.float32(1), np.float32(0), np.float32(1))
        made.append(known_table(ctx, plan, how, dtypes.FLOAT32, group.label))
    for axis, (size, out) in enumerate(zip(before, after, strict=True)):
        scale = scales[axis] if scales else None
        if isinstance(size, int) and isinstance(out, int):
            (plan,) = resize_axes([size], None if scale is None else [scale], [out] if scale is None else None)
            made.append(known_table(ctx, plan, how, dtypes.FLOAT32, group.label))
            continue
        ctx.check_equal(dim_max(size, 1), size)
        factor = None if scale is None else float(np.float32(scale))
        made.append(open_table(ctx, axis, size, out, factor, how, dtypes.FLOAT32, group.label))
    return made


@template("BlockedResize", domain=DOMAIN, accepts=_accepts, fuses=True)
def blocked_resize(ctx: LowerContext, group: Group) -> None:
    """Nearest pixels, or a blend of the four around."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    epilogue = result_epilogue(ctx, group)
    if not epilogue.stores:
        return
    assert group.shape is not None
    operand_strides = result_strides(epilogue, group.shape)
    x = dense_blocks(ctx, ctx.view(source))
    block = x.shape[-1]
    assert isinstance(block, int)
    blend = attrs["mode"] == "linear"
    factors = repeats(attrs)
    tables = [zeros(ctx, block)] * 4
    if factors is not None:
        factors = (1, *factors)[-2:]
    else:
        made = _tables(ctx, group, attrs, (source.shape or ())[2:-1], group.shape[2:-1])
        tables = [view for table in made for view in (table.indices, table.weights or tables[0])]
    inner = [own[-1] for own in operand_strides]
    kernel = ResizeKernel(block=block, blend=blend, factors=factors, epilogue=epilogue.for_kernel(inner))  # type: ignore[arg-type]
    batch, blocks = group.shape[:2]
    rows, columns = (1, *group.shape[2:-1])[-2:]
    arguments = kernel.arguments.entries(
        x=Address(x.buffer, x.offset * 4),
        **{name: Address(table.buffer) for name, table in zip(TABLES, tables, strict=True)},
        batch=batch,
        blocks=blocks,
        rows=rows,
        columns=columns,
        x_batch=x.strides[0],
        x_block=x.strides[1],
        x_row=x.strides[3],
        operands=operand_arguments(epilogue, operand_strides, [0] * len(operand_strides)),
    )
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            product([batch, blocks, rows]),
            cost.blocked_resize(product([batch, blocks, rows, columns]), blends=bool(blend)),
            (x.buffer, *(table.buffer for table in tables), *epilogue.reads),
            epilogue.writes,
            group.label,
            tuple(each.label for each in group.nodes),
            epilogue.in_place(operand_strides, [x.buffer]),
        )
    )
