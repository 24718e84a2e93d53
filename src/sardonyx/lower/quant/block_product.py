"""MatMulNBits: activations are quantized by a step of their own, and multiplied by packed weights.

Products that read the same activations share that step.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_min, floordiv, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, load
from sardonyx.kernel.quant.block_product import (
    MOST_ROWS,
    WORD,
    BlockProductKernel,
    QuantizeRowsKernel,
    has_planes,
    heights,
    level_bits_of,
    level_stride,
    strips_of_tile,
    tallest,
    tiles_of_panel,
    units,
)
from sardonyx.lower.epilogue import group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import broadcast_strides, merge_axes
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.quant.block_weights import pack_block_offsets, pack_block_points, pack_block_scales, pack_block_weights
from sardonyx.lower.registry import template
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost
from sardonyx.target.target import LINE_NUMBERS

BYTE_LEVEL = 4  # the accuracy level that allows activations of 8 bits
_LARGEST = 256  # weights of a block: sums of more products with 16-bit activations would not fit into 32 bits


def _accepts(node: Node) -> str:
    attrs = attribute_values(node)
    rows, columns, bits, block = (int(attrs[name] or 0) for name in ("N", "K", "bits", "block_size"))
    inputs = [*node.inputs, None, None, None, None][:6]
    if attrs.get("weight_prepacked"):
        return "weights laid out for another device"
    if bits not in (2, 4, 8) or block % 16 or not 16 <= block <= _LARGEST or rows <= 0 or columns <= 0:
        return f"weights of {bits} bits in blocks of {block}"
    if inputs[4] is not None:
        return "columns assigned to blocks by an index"
    if any(value is not None and value.constant is None for value in inputs[1:4]):
        return "weights that are computed"
    blocks = -(-columns // block)
    expected = [(rows, blocks, block * bits // 8), (rows, blocks)]
    for value, shape in zip(inputs[1:3], expected):
        if value is None or value.shape is None or product(value.shape) != product(shape):
            return "weights or scales of another size"
    points = inputs[3]
    if points is not None:
        is_packed = isinstance(points.type, TensorType) and points.type.dtype is dtypes.UINT8
        if product(points.shape or ()) != rows * (-(-blocks * bits // 8) if is_packed else blocks):
            return "zero points of another size"
    bias = inputs[5]
    return "" if bias is None or bias.shape == (rows,) else "a bias of another size"


@template("MatMulNBits", domain="com.microsoft", accepts=_accepts, fuses=True, writes_anywhere=True)
def matmul_nbits(ctx: LowerContext, group: Group) -> None:
    """The product of activations with weights that have a scale for each block."""
    node = root_of(group)
    output = node.outputs[0]
    bias = node.inputs[5] if len(node.inputs) > 5 else None

    def root(operand: Callable[[Value], int]) -> dict[Value, Expr]:
        value = accumulator("f32")
        if bias is not None:
            value = value + load(operand(bias), ctx.dtype(bias).name).cast("f32")
        return {output: value}

    epilogue = group_epilogue(ctx, group, root)
    if not epilogue.stores:
        return
    assert group.shape is not None
    attrs = attribute_values(node)
    bits, block = int(attrs["bits"]), int(attrs["block_size"])
    blocks = -(-int(attrs["K"]) // block)
    ctx.check_equal(ctx.shape(given(node, 0))[-1], int(attrs["K"]))
    has_points = len(node.inputs) > 3 and node.inputs[3] is not None
    level_bits = level_bits_of(bits, ctx.target, wants_bytes=attrs.get("accuracy_level") == BYTE_LEVEL)
    quantize = QuantizeRowsKernel(
        type=ctx.dtype(given(node, 0)).name,
        level_bits=level_bits,
        block=block,
        middle=0 if has_points else 1 << (bits - 1),
        planes=has_planes(bits, level_bits, ctx.target),
    )
    levels, scales, corrections = _quantized(ctx, group, given(node, 0), quantize, blocks)
    weights, weight_scales, offsets = _packed(ctx, node, bits, block, blocks)

    shape = list(group.shape)
    operand_strides = [list(strides) for strides in epilogue.strides(shape)]
    if len(shape) == 1:  # a vector of activations
        shape.insert(0, 1)
        for strides in operand_strides:
            strides.insert(0, 0)
    rows_of = [(*broadcast_strides(View(v.buffer, v.shape[:-1], v.strides[:-1]), shape[:-1]), 0) for v in (levels, scales)]
    sizes, merged = merge_axes(shape, [*rows_of, *operand_strides], 1)
    if len(sizes) < 2:
        sizes.insert(0, 1)
        for own in merged:
            own.insert(0, 0)
    *batch, rows, columns = sizes
    strips = strips_of_tile(bits, product([*batch, rows]), int(attrs["N"]), ctx.target)
    most = tallest(bits, level_bits, ctx.target, strips)
    kernel = BlockProductKernel(
        bits=bits,
        block=block,
        level_bits=level_bits,
        offsets="" if offsets is None else "u8" if offsets.buffer.dtype is dtypes.UINT8 else "f32",
        batch=len(batch),
        rows=most,
        heights=heights(rows, most),
        epilogue=epilogue.for_kernel([own[-1] for own in merged[2:]]),
        strips=strips,
    )
    arguments = kernel.arguments.entries(
        batch=batch,
        rows=rows,
        columns=columns,
        blocks=blocks,
        levels=(Address(levels.buffer), merged[0][:-1]),
        scales=(Address(scales.buffer), merged[1][:-1]),
        corrections=(Address(corrections.buffer), merged[1][:-1]),
        between=scales.strides[-1],
        panel=tiles_of_panel(most, blocks * block * level_bits // 8, ctx.target),
        weights=Address(weights.buffer),
        weight_scales=Address(weight_scales.buffer),
        offsets=Address((offsets or weight_scales).buffer),
        operands=[(view.address, own) for view, own in zip(epilogue.views, merged[2:])],
    )
    read = tuple(view.buffer for view in (levels, scales, corrections, weights, weight_scales, *([offsets] if offsets else [])))
    work = cost.block_product(product([*batch, rows]), columns * blocks * block, bits)
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            units(kernel, batch, rows, columns, ctx.target),
            work,
            (*read, *epilogue.reads),
            epilogue.writes,
            group.label,
            tuple(each.label for each in group.nodes),
            epilogue.in_place(operand_strides, read),
            flops=2 * product([*batch, rows, columns, blocks * block]),
        )
    )


def _quantized(ctx: LowerContext, group: Group, value: Value, kernel: QuantizeRowsKernel, blocks: int) -> list[View]:
    """Levels, scales and corrections of the rows of a value."""
    return ctx.once((value, kernel.key), lambda: quantized_rows(ctx, group, ctx.contiguous(value), kernel, blocks))


def quantized_rows(ctx: LowerContext, group: Group, a: View, kernel: QuantizeRowsKernel, blocks: int) -> list[View]:
    """Levels, scales and corrections of the rows of a view without gaps, by a step."""
    rows: list[Dim] = list(a.shape[:-1])
    kind = dtypes.INT8 if kernel.level_bits == 8 else dtypes.INT16
    correction = dtypes.INT32 if kernel.middle else dtypes.FLOAT32
    stride = level_stride(blocks * kernel.block, kernel.level_bits)
    levels = ctx.scratch(kind, (*rows, stride), "levels")
    # A row writes to every block: those of many rows share few sets of the caches if they lie a power of two apart.
    between = product(rows) + LINE_NUMBERS * dim_min(floordiv(product(rows), 4 * LINE_NUMBERS), 1)
    scales, corrections = (
        View(flat.buffer, (*rows, blocks), (*_contiguous(rows), between), flat.offset)
        for flat in (
            ctx.scratch(dtypes.FLOAT32, (between * blocks + MOST_ROWS,), "scales of levels"),
            ctx.scratch(correction, (between * blocks + MOST_ROWS,), "corrections of levels"),
        )
    )
    arguments = kernel.arguments.entries(
        columns=a.shape[-1],
        blocks=blocks,
        source=(a.address, (a.shape[-1],)),
        levels=(Address(levels.buffer), (stride,)),
        scales=Address(scales.buffer),
        corrections=Address(corrections.buffer),
        between=between,
    )
    made = [levels, scales, corrections]
    elements = product([*rows, blocks * kernel.block])
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            product([*rows, blocks]),
            cost.quantized_rows(elements),
            (a.buffer,),
            tuple(view.buffer for view in made),
            f"quantize for {group.label}",
            tuple(node.label for node in group.nodes),
        )
    )
    return made


def _packed(ctx: LowerContext, node: Node, bits: int, block: int, blocks: int) -> tuple[View, View, View | None]:
    """Weights, scales and offsets in strips."""
    lanes = ctx.target.lanes
    rows = int(attribute_values(node)["N"])
    strips = -(-rows // lanes)
    weights = shaped(ctx.view(given(node, 1)), (rows, blocks, block * bits // 8))
    scales = shaped(ctx.view(given(node, 2)), (rows, blocks))
    words = (strips, blocks, block * bits // WORD, lanes)
    packed = ctx.packed(pack_block_weights, (weights,), bits, lanes, dtype=dtypes.UINT32, shape=words)
    small = (strips, blocks, lanes)
    packed_scales = ctx.packed(pack_block_scales, (scales,), lanes, dtype=dtypes.FLOAT32, shape=small)
    if len(node.inputs) <= 3 or node.inputs[3] is None:
        return packed, packed_scales, None
    points = ctx.view(given(node, 3))
    if points.buffer.dtype is dtypes.UINT8:
        points = shaped(points, (rows, -(-blocks * bits // 8)))
        return (
            packed,
            packed_scales,
            ctx.packed(pack_block_points, (points,), bits, blocks, lanes, dtype=dtypes.UINT8, shape=small),
        )
    points = shaped(points, (rows, blocks))
    offsets = ctx.packed(pack_block_offsets, (points, scales), lanes, dtype=dtypes.FLOAT32, shape=small)
    return packed, packed_scales, offsets


def shaped(view: View, shape: tuple[Dim, ...]) -> View:
    """A view without gaps, as a constant is, in another shape."""
    return View(view.buffer, shape, _contiguous(shape), view.offset)


def _contiguous(shape: tuple[Dim, ...] | list[Dim]) -> tuple[Dim, ...]:
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))
