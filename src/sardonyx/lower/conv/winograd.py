"""Winograd's convolution as a step: which convolutions it is for, its tiles and its arguments (see `kernel.conv.winograd`)."""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.conv.winograd import TAPS, WinogradKernel
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.conv.conv_task import ConvTile, Task, ceildiv_int, choose_tile, named
from sardonyx.lower.conv.winograd_weights import pack_winograd
from sardonyx.program.steps import Address, KernelStep
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import Target

_FEW_TILES: Final = 28  # from so many tiles of a block on, fetching the weights again for every block takes no time
_AHEAD: Final = 4096  # floats from the weights that are multiplied to those that are fetched from far away meanwhile


def is_winograd(geometry: Geometry) -> bool:
    """Whether windows are those that tiles are made for: 3 x 3 of an image, at every pixel."""
    return (
        geometry.kernel == (1, TAPS, TAPS)
        and geometry.stride == geometry.dilation == (1, 1, 1)
        and geometry.size[0] == geometry.out[0] == 1
        and geometry.pads_begin[0] == 0
    )


def tile_count(batch: Dim, geometry: Geometry, tile: int) -> Dim:
    """How many tiles cover the results."""
    return product([batch, *(ceildiv(size, tile) for size in geometry.out[1:])])


@dataclass(frozen=True)
class TileBlocks:
    """How tiles are divided: into blocks that a worker transforms at once, and these into the rows of products."""

    vectors: int  # of output channels
    rows: int
    last_rows: int  # what is left of all tiles; if their number is not known, half of the rows
    tiles: int  # of a block


def tile_blocks(tiles: Dim, tile: int, inputs: int, blocks: int, target: Target) -> TileBlocks:
    """How to divide tiles with so many input channels, and blocks of output channels.

    Small blocks keep transformed tiles in the cache and give work to many workers.
    """
    bytes_of_tile = (tile + TAPS - 1) ** 2 * inputs * 4
    most = max(target.caches.l2 // 4 // bytes_of_tile, _FEW_TILES)
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
    divided = tile_blocks(tiles, tile, weights.inputs, blocks, ctx.target)
    columns = ConvTile(divided.vectors, divided.rows)
    sets = task.sets(columns)
    elements = (tile + TAPS - 1) ** 2
    size = elements * weights.inputs * sets.width
    out = geometry.out[1:]
    kernel = WinogradKernel(
        tile=tile,
        block=block,
        vectors=divided.vectors,
        last_vectors=blocks % divided.vectors or divided.vectors,
        last_lanes=task.last_lanes(columns),
        rows=divided.rows,
        last_rows=divided.last_rows,
        tail=weights.inputs % block,
        overhangs=any(not isinstance(each, int) or each % tile != 0 for each in out),
        ahead=_AHEAD if sets.count * size * 4 > ctx.target.caches.l2 else 0,
        epilogue=task.epilogue.for_kernel([own[-1] for own in task.operand_strides]),
    )
    packed = ctx.packed(
        pack_winograd, (weights.kernels,), tile, sets.width, sets.last, dtype=dtypes.FLOAT32, shape=(sets.count, size)
    )
    bias = task.bias(1, weights.outputs)
    nothing = ctx.literal(np.zeros((tile + TAPS - 1) * block, np.float32))
    v = ctx.worker_scratch(dtypes.FLOAT32, divided.tiles * elements * inputs * block, "transformed tiles")
    m = ctx.worker_scratch(dtypes.FLOAT32, divided.tiles * elements * divided.vectors * block, "sums of tiles")
    arguments = kernel.arguments.entries(
        x=Address(x.buffer, x.offset * 4),
        w=Address(packed.buffer),
        bias=Address(bias.buffer),
        zeros=Address(nothing.buffer),
        kernels=weights.kernels.address,
        tiles=tiles,
        **named("tile_rows tile_columns", [ceildiv(each, tile) for each in out]),
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
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            ceildiv(tiles, divided.tiles) * sets.count,
            cost.winograd(tiles, weights.inputs, weights.outputs, tile, ctx.target),
            (x.buffer, packed.buffer, weights.kernels.buffer, bias.buffer, nothing.buffer, *task.epilogue.reads),
            (*task.epilogue.writes, v, m),
            task.group.label,
            tuple(node.label for node in task.group.nodes),
            task.in_place(x),
            flops=product([x.shape[0], *geometry.out]) * (2 * blocks * block * weights.inputs * geometry.taps),
        )
    )
