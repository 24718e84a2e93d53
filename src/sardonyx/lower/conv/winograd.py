"""Winograd's convolution as a step: which convolutions it is for, its tiles and its arguments (see `kernel.conv.winograd`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, dim_max, product
from sardonyx.kernel.conv.winograd import (
    TAPS,
    TILES,
    TapGroups,
    WinogradKernel,
    WinogradRowKernel,
    row_products,
    row_taps,
    tap_groups,
)
from sardonyx.lower.conv.blocks import ceildiv_int, named, zeros
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.conv.conv_task import Task, Weights
from sardonyx.lower.conv.conv_tiles import ANY_WIDTH_PIXELS, ConvTile, most_pixels
from sardonyx.lower.conv.winograd_computed import transform_computed
from sardonyx.lower.conv.winograd_weights import pack_winograd, pack_winograd_rows
from sardonyx.lower.derived import is_fixed
from sardonyx.program.constants import Transform
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import LINE_NUMBERS, Target
from sardonyx.target.tiles import rows_in_registers

_FEW_TILES: Final = 28  # from so many tiles of a block on, fetching the weights again for every block takes no time
_MOST_GROUPS: Final = 27  # of taps that a kernel is taken apart into, at most: a worker's memory holds tiles for each
_SPARE: Final = 3  # registers: an element, loaded once for several vectors, and those without which sums go to the stack


def is_winograd(geometry: Geometry) -> bool:
    """Whether windows are those that tiles are made for: at every pixel, or with strides undilated, several taps of a phase."""
    axes = list(zip(geometry.kernel[1:], geometry.stride[1:], geometry.dilation[1:]))
    several = all(taps > stride and 1 in (stride, dilation) for taps, stride, dilation in axes)
    return several and geometry_groups(geometry, min(TILES)).in_all <= _MOST_GROUPS


def geometry_groups(geometry: Geometry, tile: int) -> TapGroups:
    """How a kernel is taken apart for tiles of so many results a side."""
    return tap_groups(geometry.kernel, geometry.stride[1:], tile)


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
    return product([batch, geometry.out[0], _tiles(geometry, tile, 1), _tiles(geometry, tile, 2)])


@dataclass(frozen=True)
class TileBlocks:
    """How tiles are divided: into blocks that a worker transforms at once, and these into the rows of products."""

    vectors: int  # of output channels
    rows: int
    last_rows: int  # what is left of all tiles; if their number is not known, half of the rows
    tiles: int  # of a block


def tile_blocks(tiles: Dim, elements: int, weights: Weights, target: Target) -> TileBlocks:
    """How to divide transformed tiles of so many elements for each input channel.

    Small blocks keep transformed tiles in the cache and give work to many workers.
    """
    most = max(target.caches.l2 // 4 // (elements * weights.inputs * 4), _FEW_TILES)
    count = ceildiv_int(tiles, most) or 1 if isinstance(tiles, int) else 1
    each = ceildiv_int(tiles, count) if isinstance(tiles, int) else tiles
    # Where elements in memory are operands, wide tiles wait for weights, which are many; unless loads take as long as products.
    # The sets of groups follow each other: none may be left half empty.
    one = (target.has_broadcast_operands and not target.has_whole_vectors) or weights.outputs <= target.lanes
    vectors = 1 if one or (weights.groups > 1 and weights.outputs % (2 * target.lanes)) else 2
    tallest = _tallest(target, vectors)
    if not isinstance(tiles, int) or not isinstance(each, int):
        rows = min(ANY_WIDTH_PIXELS, tallest)
        return TileBlocks(vectors, rows, rows // 2, most // rows * rows)

    def time(rows: int) -> float:
        whole, rest = divmod(each, rows)
        last = cost.winograd_tile(rest, vectors, weights.inputs, target, last=True) if rest else 0.0
        return whole * cost.winograd_tile(rows, vectors, weights.inputs, target) + last

    rows = min(range(min(tallest, max(each, 1)), 0, -1), key=time)
    return TileBlocks(vectors, rows, tiles % rows, max(ceildiv_int(each, rows), 1) * rows)


def _tallest(target: Target, vectors: int) -> int:
    """How many rows a register tile may have."""
    if vectors > 1 and target.has_broadcast_operands:
        return rows_in_registers(target, vectors, vectors + _SPARE)
    return most_pixels(target, vectors)


def apart(size: int) -> int:
    """How far parts of so many floats lie apart: an odd number of cache lines.

    A transform writes one vector to every part. Lines that are a power of two apart would share a few sets of the first cache.
    """
    return (ceildiv_int(size, LINE_NUMBERS) | 1) * LINE_NUMBERS


def fetched_lines(tiles: int, rows: int, width: int, target: Target) -> int:
    """Cache lines of the next element's weights that a group of tiles fetches beside each block of input channels.

    Each group of a block of tiles takes its share: else the first would wait for memory, which the others leave idle.
    """
    return ceildiv_int(target.lanes * width, LINE_NUMBERS * max(ceildiv_int(tiles, rows), 1))


class _Layer:
    """What both kinds of tiles have in common: how tiles and channels are divided, weights, memory and the step itself.

    `depth` is how many transformed elements a tile has for each input channel, of `groups` of taps. The input of the task is
    blocked.
    """

    def __init__(self, task: Task, tile: int, tiles: Dim, depth: int, groups: int) -> None:
        weights, block, target = task.weights, task.block, task.ctx.target
        self.task, self.tile, self.tiles, self.groups = task, tile, tiles, groups
        self.divided = divided = tile_blocks(tiles, depth, weights, target)
        columns = ConvTile(divided.vectors, divided.rows)
        self.sets = task.sets(columns)
        self.size = depth * weights.inputs * self.sets.width  # of the weights of a set
        self.fields: dict[str, Any] = {
            "tile": tile,
            "block": block,
            "vectors": divided.vectors,
            "last_vectors": ceildiv_int(weights.outputs, block) % divided.vectors or divided.vectors,
            "last_lanes": task.last_lanes(columns),
            "rows": divided.rows,
            "last_rows": divided.last_rows,
            "tail": weights.inputs % block,
            "fetched": fetched_lines(min(task.usual(tiles), divided.tiles), divided.rows, self.sets.width, target),
            "epilogue": task.epilogue.for_kernel([own[-1] for own in task.operand_strides]),
        }

    def packed(self, transform: Transform, *parameters: Any) -> View:
        """Constant weights, as a transform makes them."""
        weights, sets = self.task.weights, self.sets
        shape = (weights.groups * sets.count, self.size)
        parameters = (self.tile, sets.width, sets.last, *parameters)
        return self.task.ctx.packed(transform, (weights.kernels,), *parameters, dtype=dtypes.FLOAT32, shape=shape)

    def write(self, kernel: WinogradKernel | WinogradRowKernel, packed: View, work: Dim, **arguments: Dim) -> None:
        """Write the step; `arguments` are those that only this kernel has."""
        task, sets, divided = self.task, self.sets, self.divided
        ctx, weights, block, x = task.ctx, task.weights, task.block, task.x
        bias, nothing = task.bias(weights.groups, weights.outputs), zeros(ctx, block)
        lanes = ceildiv_int(weights.inputs, block) * block
        v_element = apart(self.groups * divided.rows * lanes)
        v = ctx.worker_scratch(dtypes.FLOAT32, divided.tiles // divided.rows * kernel.elements * v_element, "transformed tiles")
        m = ctx.worker_scratch(dtypes.FLOAT32, divided.tiles * kernel.elements * divided.vectors * block, "sums of tiles")
        tile_blocks = ceildiv(self.tiles, divided.tiles)
        entries = kernel.arguments.entries(
            x=Address(x.buffer, x.offset * 4),
            w=Address(packed.buffer),
            bias=Address(bias.buffer),
            zeros=Address(nothing.buffer),
            kernels=weights.kernels.address,
            tiles=self.tiles,
            block_tiles=divided.tiles,
            tile_blocks=dim_max(tile_blocks, 1),
            sets=sets.count,
            outputs=weights.groups * weights.outputs,
            blocks=ceildiv_int(weights.outputs, block),
            input_blocks=weights.inputs // block,
            **named("x_batch x_block", x.strides[:2]),
            x_group=x.strides[1] * ceildiv_int(weights.inputs, block),
            v_element=v_element,
            w_set=self.size,
            v=(Address(v), (v.size,)),
            m=(Address(m), (m.size,)),
            operands=task.operands(task.operand_strides),
            **arguments,
        )
        reads = (x.buffer, packed.buffer, weights.kernels.buffer, bias.buffer, nothing.buffer)
        products = weights.groups * ceildiv_int(weights.outputs, block) * block * weights.inputs * task.geometry.taps
        ctx.step(
            KernelStep(
                kernel,
                entries,
                tile_blocks * (weights.groups * sets.count),
                work * weights.groups,
                (*reads, *task.epilogue.reads),
                (*task.epilogue.writes, v, m),
                task.group.label,
                tuple(node.label for node in task.group.nodes),
                task.in_place(x),
                flops=product([x.shape[0], *task.geometry.out]) * (2 * products),
            )
        )


def lower_winograd(task: Task, tile: int) -> None:
    """Write the step, with tiles of so many results a side."""
    task = replace(task, x=task.blocked_input())
    weights, geometry, x = task.weights, task.geometry, task.x
    out, dilations = geometry.out[1:], geometry.dilation[1:]
    tiles, groups = tile_count(x.shape[0], geometry, tile), geometry_groups(geometry, tile)
    layer = _Layer(task, tile, tiles, groups.products, groups.in_all)
    planes, rows, columns = geometry.kernel
    kernel = WinogradKernel(
        overhangs=any(not isinstance(each, int) or each % (tile * step) != 0 for each, step in zip(out, dilations)),
        strides=(geometry.stride[1], geometry.stride[2]),
        dilations=(dilations[0], dilations[1]),
        taps=(planes, rows, columns),
        deep=geometry.is_deep,
        **layer.fields,
    )
    if is_fixed(weights.kernels):
        packed = layer.packed(pack_winograd, kernel.strides)
    else:
        packed = transform_computed(task.ctx, weights.kernels, weights.groups, layer.sets, tile)
    layer.write(
        kernel,
        packed,
        cost.winograd(tiles, weights.inputs, weights.outputs, tile, groups.sizes, groups.products, task.ctx.target),
        **named("tile_rows tile_columns", [_tiles(geometry, tile, axis) for axis in (1, 2)]),
        **named("planes rows columns", geometry.out),
        **named("depth height width", geometry.size),
        **named("front top left", geometry.pads_begin),
        **named("plane_stride plane_dilation", (geometry.stride[0], geometry.dilation[0])),
        **named("x_plane x_row", x.strides[2:4]),
        **named("kernel_output kernel_input kernel_plane kernel_row kernel_column", weights.kernels.strides[-5:]),
    )


def lower_winograd_rows(task: Task, tile: int) -> None:
    """Write the step of a convolution with kernels of one row, or one column."""
    task = replace(task, x=task.blocked_input())
    if task.geometry.kernel[2] == 1:
        task = task.with_axes_exchanged()
    weights, geometry, x = task.weights, task.geometry, task.x
    line_tiles, taps = _tiles(geometry, tile, 2), geometry.kernel[2]
    tiles = product([x.shape[0], geometry.out[1], line_tiles])
    own = row_taps(taps)
    groups = ceildiv_int(taps, own)
    products = row_products(taps, own)
    layer = _Layer(task, tile, tiles, products, groups)
    kernel = WinogradRowKernel(taps=own, lacks_tap=taps % own > 0, **layer.fields)
    layer.write(
        kernel,
        layer.packed(pack_winograd_rows, own),
        cost.winograd_rows(tiles, weights.inputs, weights.outputs, own, products, task.ctx.target),
        lines=geometry.out[1],
        line_tiles=line_tiles,
        columns=geometry.out[2],
        width=geometry.size[2],
        left=geometry.pads_begin[2],
        dilation=geometry.dilation[2],
        taps=taps,
        tap_groups=groups,
        **named("x_line x_step", x.strides[3:5]),
    )
