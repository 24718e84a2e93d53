"""GatherBlockQuantized and GatherBlocks: rows of a packed table are looked up with their scales, and dequantized."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.kernel.expr import Expr, const, load
from sardonyx.lower.derived import numbers
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given, out_of_range, take
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.infer import normalize_axis
from sardonyx.ops.quant.contrib_quant_matmul import unpack_bits
from sardonyx.program.constants import transform
from sardonyx.program.steps import View


def _accepts(node: Node) -> str:
    attrs = attribute_values(node)
    data, _, scales, *rest = node.inputs
    if data is None or scales is None or not isinstance(data.type, TensorType) or data.type.dtype is not dtypes.UINT8:
        return "a table that is not packed in bytes"
    points = rest[0] if rest else None
    if any(value is not None and (value.constant is None or value.shape is None) for value in (data, scales, points)):
        return "a table that is computed"
    shape, blocks = data.shape or (), scales.shape or ()
    if len(shape) != 2 or len(blocks) != 2:
        return f"a table of {len(shape)} dimensions"
    bits, block = int(attrs["bits"]), int(attrs["block_size"])
    axes = [normalize_axis(int(attrs[name] or 0), 2) for name in ("gather_axis", "quantize_axis")]
    if axes != [0, 1] or bits not in (2, 4, 8) or block <= 0 or block * bits % 8:
        return f"{bits} bits in blocks of {block}, looked up along axis {axes[0]} and quantized along {axes[1]}"
    per_row = _known(shape[1]) * (8 // bits)
    if blocks != (shape[0], per_row // block) or per_row % block:
        return "scales of another size, or a last block that is not full"
    if points is not None and points.shape != (shape[0], -(-_known(blocks[1]) * bits // 8)):
        return "zero points of another size"
    return ""


def _known(size: Dim) -> int:
    return size if isinstance(size, int) else 0


@transform("unpack_block_zero_points", 1)
def _zero_points(packed: Array, bits: int, blocks: int) -> Array:
    """Zero points of rows, one a byte."""
    return np.ascontiguousarray(unpack_bits(packed, bits)[:, :blocks])


@template("GatherBlockQuantized", domain="com.microsoft", accepts=_accepts)
def gather_block_quantized(ctx: LowerContext, group: Group) -> None:
    """Zero points are packed as the table is, and in the middle of the range if there are none."""
    node = root_of(group)
    bits = int(attribute_values(node)["bits"])
    points = None
    if len(node.inputs) > 3:
        shape = numbers(ctx.shape(given(node, 2)))
        points = ctx.packed(_zero_points, (ctx.view(given(node, 3)),), bits, shape[1], dtype=dtypes.UINT8, shape=shape)
    _lookup(ctx, group, bits, points, 1 << (bits - 1), flipped=0)


def _accepts_blocks(node: Node) -> str:
    data, _, scales, points = (*node.inputs, None)[:4]
    shape, blocks = (() if value is None else value.shape or () for value in (data, scales))
    if len(shape) != 2 or len(blocks) != 2 or not all(isinstance(size, int) and size for size in (*shape, *blocks)):
        return "sizes that are not known"
    bits = int(attribute_values(node)["bits"])
    if bits not in (2, 4, 8) or shape[0] != blocks[0] or _known(shape[1]) % _known(blocks[1]):
        return "scales of another size, or a last block that is not full"
    return "" if points is None or points.shape == blocks else "zero points of another size"


@template("GatherBlocks", domain="sardonyx", accepts=_accepts_blocks)
def gather_blocks(ctx: LowerContext, group: Group) -> None:
    """A table whose numbers may be signed, with a zero point in each byte."""
    node = root_of(group)
    attrs = attribute_values(node)
    bits = int(attrs["bits"])
    points = ctx.contiguous(given(node, 3)) if len(node.inputs) > 3 else None
    _lookup(ctx, group, bits, points, int(attrs["zero_point"]), flipped=int(attrs["signed"]) << (bits - 1))


def _lookup(ctx: LowerContext, group: Group, bits: int, points: View | None, default: int, *, flipped: int) -> None:
    """Bytes and scales of rows, then one loop that makes floats of them."""
    node = root_of(group)
    data, indices, scales, output = given(node, 0), given(node, 1), given(node, 2), node.outputs[0]
    tables = [ctx.view(data), ctx.view(scales), *([] if points is None else [points])]
    (_, blocks), (_, width) = numbers(tables[1].shape), numbers(tables[0].shape)
    per_byte = 8 // bits
    block = width * per_byte // max(blocks, 1)  # a table without rows may have none
    where = ctx.view(indices)
    fault = out_of_range(ctx, node, 0)
    found = []
    for table in tables:
        row = ctx.scratch(table.buffer.dtype, (*where.shape, table.shape[1]), "rows of a table")
        take(ctx, table, 0, where, row, fault, group.label)
        found.append(row)

    count = len(where.shape)
    shape = (*where.shape, blocks, block // per_byte)
    target = ctx.output(output)
    data_row = found[0]
    operands = [View(data_row.buffer, shape, (*data_row.strides[:count], block // per_byte, 1), data_row.offset)]
    operands += [View(row.buffer, (*row.shape, 1), (*row.strides, 0), row.offset) for row in found[1:]]
    stores: list[tuple[int, Expr]] = []
    zero = load(2, "u8").cast("f32") if len(found) > 2 else const(float(default), "f32")
    name = ctx.dtype(scales).name
    for part in range(per_byte):
        level = (load(0, "u8") >> (part * bits)) & ((1 << bits) - 1)
        level = level ^ flipped if flipped else level
        value = (level.cast("f32") - zero) * load(1, name).cast("f32")
        stores.append((len(operands), value.cast(name)))
        strides = (*target.strides[:count], block, per_byte)
        operands.append(View(target.buffer, shape, strides, target.offset + part))
    types = [view.buffer.dtype.name for view in operands]
    ctx.step(loop_step(shape, operands, types, stores, target=ctx.target, label=group.label, nodes=(node.label,)))
