"""Windows over blocks whose lanes stay apart, as steps: depthwise convolutions, groups that fit a block, pools; few outputs."""

from __future__ import annotations

from typing import Any, Final

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.conv.window import LONGEST_WRITTEN, NarrowKernel, Row, WindowKernel, WindowKind
from sardonyx.lower.conv.blocks import Blocks, bands_of, ceildiv_int, named, zeros
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.conv.conv_tiles import ANY_WIDTH_PIXELS
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost
from sardonyx.target.tiles import rows_in_registers

_WINDOW_PIXELS: Final = 14  # of a depthwise tile or one of a pool, at most
_WINDOW_REGISTERS: Final = 8  # that its sums leave to other things
_LOOPED_TAPS: Final = 16  # of a long kernel row that are written out, times lanes of a group
_LANE_COLUMNS: Final = 17  # of the input that a tile meets lane by lane, at most: they stay in registers, or near
_BESIDE_WEIGHTS: Final = 11  # registers: so many sums that they do not wait for each other, a column, a lane of it, their order
_NARROW_SUMS: Final = 12  # vectors a convolution to few channels adds up at once
_LANE_TAPS: Final = 160  # multiplications of a depthwise tile and kernel row, at most: they are written out


def row_tile(geometry: Geometry, most: int) -> tuple[int, Row | None]:
    """How many pixels a tile has whose taps are written out, and the row if its sizes are known."""
    columns, most = geometry.out[2], max(most, 1)
    if not geometry.known_row:
        return min(ANY_WIDTH_PIXELS, most), None
    width, out, left, right = (int(str(dim)) for dim in (geometry.size[2], columns, geometry.pads_begin[2], geometry.pads_end[2]))
    tiles = ceildiv_int(out, most) or 1
    return max(ceildiv_int(out, tiles), 1), Row(width, out, left, left + width + right)


def window_kernel(result: Blocks, kind: WindowKind, group: int, *, padded: bool = False) -> WindowKernel:
    """The kernel of a depthwise convolution or a pool."""
    geometry = result.geometry
    most = min(rows_in_registers(result.ctx.target, 1, _WINDOW_REGISTERS), _WINDOW_PIXELS)
    written, lane_by_lane = geometry.kernel[2], False
    if written * group > LONGEST_WRITTEN:
        written = max(_LOOPED_TAPS // group, 1)
        pixels, row = most, None
    else:
        target = result.ctx.target
        lane_by_lane = target.has_whole_vectors and geometry.stride[2] == 1 and group > 1
        lane_by_lane = lane_by_lane and written * group + _BESIDE_WEIGHTS > target.registers
        of_columns = _LANE_COLUMNS - (written - 1) * geometry.dilation[2]
        pixels, row = row_tile(geometry, min(most, of_columns if lane_by_lane else _LANE_TAPS // max(written * group, 1)))
    return WindowKernel(
        kind=kind,
        group=group,
        padded=padded,
        dense=result.is_dense(result.operand_strides),
        written=written,
        lane_by_lane=lane_by_lane,
        **_fields(result, pixels, row),
    )


def narrow_kernel(result: Blocks, outputs: int, tail: int) -> NarrowKernel:
    """The kernel of a convolution to few channels."""
    pixels, row = row_tile(result.geometry, min(_NARROW_SUMS, _LANE_TAPS // result.geometry.kernel[2]) // outputs)
    return NarrowKernel(outputs=outputs, tail=tail, **_fields(result, pixels, row))


def _fields(result: Blocks, pixels: int, row: Row | None) -> dict[str, Any]:
    """What both kernels are told of their windows and of the result."""
    geometry = result.geometry
    return {
        "block": result.block,
        "pixels": pixels,
        "taps": geometry.kernel[2],
        "stride": geometry.stride[2],
        "dilation": geometry.dilation[2],
        "row_dilation": geometry.dilation[1],
        "deep": geometry.is_deep,
        "row": row,
        "epilogue": result.epilogue.for_kernel([own[-1] for own in result.operand_strides]),
    }


def window_step(
    result: Blocks,
    kernel: WindowKernel | NarrowKernel,
    x: View,
    packed: View,
    bias: View,
    blocks: Dim,
    output_blocks: Dim | None = None,
    sums: View | None = None,
) -> None:
    """The step of a window kernel over blocks of input, which are those of the output if nothing else is said."""
    made = blocks if output_blocks is None else output_blocks
    geometry, ctx, batch = result.geometry, result.ctx, x.shape[0]
    nothing = zeros(ctx, result.block)
    _, rows, columns = geometry.out
    bands = min(bands_of(rows * columns), rows) if isinstance(rows, int) and isinstance(columns, int) and rows else 1
    band = ceildiv(rows, bands)
    padded = [begin + size + end for begin, size, end in zip(geometry.pads_begin, geometry.size, geometry.pads_end)]
    arguments = kernel.arguments.entries(
        x=Address(x.buffer, x.offset * 4),
        w=Address(packed.buffer),
        bias=Address(bias.buffer),
        zeros=Address(nothing.buffer),
        batch=batch,
        blocks=blocks,
        made=made,
        band=band,
        bands=bands,
        **named("planes rows columns", geometry.out),
        **named("depth height width", geometry.size),
        **named("front top left", geometry.pads_begin),
        **named("plane_stride row_stride", geometry.stride[:2]),
        plane_dilation=geometry.dilation[0],
        **named("kernel_planes kernel_rows", geometry.kernel[:2]),
        **named("padded_depth padded_height padded_width", padded),
        **named("x_batch x_block x_plane x_row", x.strides[:4]),
        **({} if sums is None else {"sums": Address(sums.buffer)}),
        operands=result.operands(result.operand_strides),
    )
    vectors = product([batch, blocks, *geometry.out])
    reach = kernel.group if isinstance(kernel, WindowKernel) else kernel.outputs  # terms of each element, for each tap
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            product([made, batch, geometry.out[0], band, bands]),
            cost.window(vectors, geometry.taps * reach),
            (x.buffer, packed.buffer, bias.buffer, nothing.buffer, *result.epilogue.reads),
            (*result.epilogue.writes, *(() if sums is None else (sums.buffer,))),
            result.group.label,
            tuple(node.label for node in result.group.nodes),
            result.in_place(x),
            flops=vectors * (2 * geometry.taps * reach * ctx.target.lanes),
        )
    )
