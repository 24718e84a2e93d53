"""Winograd's convolution as a step: which convolutions it is for, its tiles and its arguments (see `kernel.conv.winograd`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.conv.winograd import TAPS, WinogradKernel, WinogradRowKernel
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.conv.conv_task import ConvTile, Task, ceildiv_int, choose_tile, named, zeros
from sardonyx.lower.conv.winograd_weights import pack_winograd, pack_winograd_rows
from sardonyx.program.steps import Address, Argument, Buffer, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import Target

_FEW_TILES: Final = 28  # from so many tiles of a block on, fetching the weights again for every block takes no time
_AHEAD: Final = 4096  # floats from the weights that are multiplied to those that are fetched from far away meanwhile


def is_winograd(geometry: Geometry) -> bool:
    """Whether windows are those that tiles are made for: 3 x 3 of an image, at every pixel, dilated or not."""
    return (
        geometry.kernel == (1, TAPS, TAPS)
        and geometry.stride == (1, 1, 1)
        and geometry.size[0] == geometry.out[0] == 1
        and geometry.pads_begin[0] == 0
    )


def is_winograd_row(geometry: Geometry) -> bool:
    """Whether windows are one row or one column of an image, at every pixel, of three taps or more."""
    _, rows, columns = geometry.kernel
    across = 1 if columns > 1 else 2  # the axis along which kernels have one tap
    return (
        geometry.kernel[0] == min(rows, columns) == 1
        and max(rows, columns) >= TAPS
        and geometry.stride == (1, 1, 1)
        and geometry.size[0] == geometry.out[0] == 1
        and geometry.size[across] == geometry.out[across]
        and geometry.pads_begin[0] == geometry.pads_begin[across] == 0
    )


def row_tile_count(batch: Dim, geometry: Geometry, tile: int) -> Dim:
    """How many tiles along one axis cover the results."""
    along = 2 if geometry.kernel[2] > 1 else 1
    return product([batch, geometry.out[3 - along], _tiles(geometry, tile, along)])


def _tiles(geometry: Geometry, tile: int, along: int) -> Dim:
    """How many tiles cover the results along an axis: those with neighbouring starts fill what a dilation leaves out."""
    dilation = geometry.dilation[along]
    return ceildiv(geometry.out[along], tile * dilation) * dilation


def tile_count(batch: Dim, geometry: Geometry, tile: int) -> Dim:
    """How many tiles cover the results."""
    return product([batch, _tiles(geometry, tile, 1), _tiles(geometry, tile, 2)])


@dataclass(frozen=True)
class TileBlocks:
    """How tiles are divided: into blocks that a worker transforms at once, and these into the rows of products."""

    vectors: int  # of output channels
    rows: int
    last_rows: int  # what is left of all tiles; if their number is not known, half of the rows
    tiles: int  # of a block


def tile_blocks(tiles: Dim, size: int, blocks: int, target: Target) -> TileBlocks:
    """How to divide transformed tiles of so many floats, for so many blocks of output channels.

    Small blocks keep transformed tiles in the cache and give work to many workers.
    """
    most = max(target.caches.l2 // 4 // (size * 4), _FEW_TILES)
    if not isinstance(tiles, int):
        chosen = choose_tile(target, blocks, tiles)
        return TileBlocks(chosen.vectors, chosen.pixels, chosen.pixels // 2, most // chosen.pixels * chosen.pixels)
    each = ceildiv_int(tiles, ceildiv_int(tiles, most) or 1)
    chosen = choose_tile(target, blocks, each)
    rows = chosen.pixels
    return TileBlocks(chosen.vectors, rows, tiles % rows, max(ceildiv_int(each, rows), 1) * rows)


def lower_winograd(task: Task, tile: int) -> None:
    """Write the step, with tiles of so many results a side."""
    ctx, weights, geometry, block = task.ctx, task.weights, task.geometry, task.block
    x = task.blocked_input()
    blocks, inputs = ceildiv_int(weights.outputs, block), ceildiv_int(weights.inputs, block)
    tiles = tile_count(x.shape[0], geometry, tile)
    elements = (tile + TAPS - 1) ** 2
    divided = tile_blocks(tiles, elements * weights.inputs, blocks, ctx.target)
    columns = ConvTile(divided.vectors, divided.rows)
    sets = task.sets(columns)
    size = elements * weights.inputs * sets.width
    out, dilations = geometry.out[1:], geometry.dilation[1:]
    kernel = WinogradKernel(
        tile=tile,
        block=block,
        vectors=divided.vectors,
        last_vectors=blocks % divided.vectors or divided.vectors,
        last_lanes=task.last_lanes(columns),
        rows=divided.rows,
        last_rows=divided.last_rows,
        tail=weights.inputs % block,
        overhangs=any(not isinstance(each, int) or each % (tile * step) != 0 for each, step in zip(out, dilations)),
        dilations=(dilations[0], dilations[1]),
        ahead=_AHEAD if sets.count * size * 4 > ctx.target.caches.l2 else 0,
        epilogue=task.epilogue.for_kernel([own[-1] for own in task.operand_strides]),
    )
    packed = ctx.packed(
        pack_winograd, (weights.kernels,), tile, sets.width, sets.last, dtype=dtypes.FLOAT32, shape=(sets.count, size)
    )
    bias, nothing = task.bias(1, weights.outputs), zeros(ctx, block)
    v = ctx.worker_scratch(dtypes.FLOAT32, divided.tiles * elements * inputs * block, "transformed tiles")
    m = ctx.worker_scratch(dtypes.FLOAT32, divided.tiles * elements * divided.vectors * block, "sums of tiles")
    arguments = kernel.arguments.entries(
        x=Address(x.buffer, x.offset * 4),
        w=Address(packed.buffer),
        bias=Address(bias.buffer),
        zeros=Address(nothing.buffer),
        kernels=weights.kernels.address,
        tiles=tiles,
        **named("tile_rows tile_columns", [_tiles(geometry, tile, axis) for axis in (1, 2)]),
        block_tiles=divided.tiles,
        sets=sets.count,
        outputs=weights.outputs,
        **named("rows columns", out),
        **named("height width", geometry.size[1:]),
        **named("top left", geometry.pads_begin[1:]),
        input_blocks=weights.inputs // block,
        **named("x_batch x_block", x.strides[:2]),
        x_row=x.strides[3],
        w_set=size,
        v=(Address(v), (v.size,)),
        m=(Address(m), (m.size,)),
        operands=task.operands(task.operand_strides),
    )
    work = cost.winograd(tiles, weights.inputs, weights.outputs, tile, ctx.target)
    reads = (x.buffer, packed.buffer, weights.kernels.buffer, bias.buffer, nothing.buffer)
    _step(task, kernel, arguments, ceildiv(tiles, divided.tiles) * sets.count, work, x, reads, (v, m))


def lower_winograd_rows(task: Task, tile: int) -> None:
    """Write the step of a convolution with kernels of one row, or one column."""
    x = task.blocked_input()
    task = replace(task, x=x)
    if task.geometry.kernel[2] == 1:
        task = task.with_axes_exchanged()
        x = task.x
    ctx, weights, geometry, block = task.ctx, task.weights, task.geometry, task.block
    blocks, inputs = ceildiv_int(weights.outputs, block), ceildiv_int(weights.inputs, block)
    line_tiles = _tiles(geometry, tile, 2)
    tiles = product([x.shape[0], geometry.out[1], line_tiles])
    taps = geometry.kernel[2]
    depth = (tile + TAPS - 1) * ceildiv_int(taps, TAPS)
    divided = tile_blocks(tiles, depth * weights.inputs, blocks, ctx.target)
    columns = ConvTile(divided.vectors, divided.rows)
    sets = task.sets(columns)
    size = depth * weights.inputs * sets.width
    kernel = WinogradRowKernel(
        tile=tile,
        block=block,
        vectors=divided.vectors,
        last_vectors=blocks % divided.vectors or divided.vectors,
        last_lanes=task.last_lanes(columns),
        rows=divided.rows,
        last_rows=divided.last_rows,
        tail=weights.inputs % block,
        ahead=_AHEAD if sets.count * size * 4 > ctx.target.caches.l2 else 0,
        taps=taps,
        epilogue=task.epilogue.for_kernel([own[-1] for own in task.operand_strides]),
    )
    packed = ctx.packed(
        pack_winograd_rows, (weights.kernels,), tile, sets.width, sets.last, dtype=dtypes.FLOAT32, shape=(sets.count, size)
    )
    bias, nothing = task.bias(1, weights.outputs), zeros(ctx, block)
    v = ctx.worker_scratch(dtypes.FLOAT32, divided.tiles * depth * inputs * block, "transformed tiles")
    sums = divided.tiles * kernel.elements * divided.vectors * block
    m = ctx.worker_scratch(dtypes.FLOAT32, sums, "sums of tiles")
    arguments = kernel.arguments.entries(
        x=Address(x.buffer, x.offset * 4),
        w=Address(packed.buffer),
        bias=Address(bias.buffer),
        zeros=Address(nothing.buffer),
        kernels=weights.kernels.address,
        tiles=tiles,
        lines=geometry.out[1],
        line_tiles=line_tiles,
        block_tiles=divided.tiles,
        sets=sets.count,
        outputs=weights.outputs,
        columns=geometry.out[2],
        width=geometry.size[2],
        left=geometry.pads_begin[2],
        dilation=geometry.dilation[2],
        input_blocks=weights.inputs // block,
        **named("x_batch x_block", x.strides[:2]),
        **named("x_line x_step", x.strides[3:5]),
        w_set=size,
        v=(Address(v), (v.size,)),
        m=(Address(m), (m.size,)),
        operands=task.operands(task.operand_strides),
    )
    work = cost.winograd_rows(tiles, weights.inputs, weights.outputs, tile, kernel.tap_groups, ctx.target)
    reads = (x.buffer, packed.buffer, weights.kernels.buffer, bias.buffer, nothing.buffer)
    _step(task, kernel, arguments, ceildiv(tiles, divided.tiles) * sets.count, work, x, reads, (v, m))


def _step(
    task: Task,
    kernel: WinogradKernel | WinogradRowKernel,
    arguments: tuple[Argument, ...],
    units: Dim,
    work: Dim,
    x: View,
    reads: tuple[Buffer, ...],
    scratch: tuple[Buffer, ...],
) -> None:
    weights, geometry = task.weights, task.geometry
    lanes = ceildiv_int(weights.outputs, task.block) * task.block
    task.ctx.step(
        KernelStep(
            kernel,
            arguments,
            units,
            work,
            (*reads, *task.epilogue.reads),
            (*task.epilogue.writes, *scratch),
            task.group.label,
            tuple(node.label for node in task.group.nodes),
            task.in_place(x),
            flops=product([x.shape[0], *geometry.out]) * (2 * lanes * weights.inputs * geometry.taps),
        )
    )
