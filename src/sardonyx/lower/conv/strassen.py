"""Convolutions of single pixels by Strassen's algorithm (`kernel.conv.strassen`): where they can be, and their steps."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.strassen import BUFFERS, LARGEST, MOST_BLOCKS, StrassenConvKernel, tile_heights
from sardonyx.kernel.matmul.strassen import SUMS
from sardonyx.lower.conv.conv_geometry import blocked_view
from sardonyx.lower.conv.conv_task import Task, ceildiv_int
from sardonyx.lower.conv.conv_tiles import ConvTile
from sardonyx.lower.derived import data_of, is_fixed, part_of
from sardonyx.program.steps import Address, KernelStep
from sardonyx.target import cost
from sardonyx.target.target import Target

_TALLEST: Final = {1: 14, 2: 14, 3: 9}  # pixels of a tile, by vectors
_BAND_PIXELS: Final = 200  # about
_MORE_CODE: Final = 0.01  # of the time of an image that a band of one height of tiles may take longer than of two
_OTHER_SIZE: Final = 0.02  # that one of the usual size may take longer than of no pixels, or twice as many
_MANY_REGISTERS: Final = 32  # with fewer tiles are low, and weights must be at hand
# The error of a channel is about that of the larger one of two that go together, 1e-6 of what that has.
_MOST_UNLIKE: Final = 32.0


def set_vectors(task: Task) -> int:
    """Vectors of a set of output channels, of which there is an even number; 0 if there is no such set."""
    weights, block = task.weights, task.block
    if weights.outputs % (2 * block):
        return 0
    pairs = weights.outputs // (2 * block)
    return next((vectors for vectors in (2, 3, 1) if pairs % vectors == 0), 0)


def can_be_halved(task: Task) -> bool:
    """Whether a convolution has what the algorithm needs: known numbers of pixels and whole, even blocks of channels."""
    weights, geometry = task.weights, task.geometry
    if not geometry.pointwise or weights.groups != 1 or task.whole_strides is not None or not is_fixed(weights.kernels):
        return False
    if not all(isinstance(size, int) for size in geometry.out) or weights.inputs % (2 * task.block) or not set_vectors(task):
        return False
    if not task.one_row(geometry, [blocked_view(task.x).strides, *task.operand_strides]):
        return False
    caches, half_strip = task.ctx.target.caches, weights.inputs // 2 * set_vectors(task) * task.block * 4
    most = caches.l2 // 2 if task.ctx.target.registers >= _MANY_REGISTERS else caches.l1d // 2
    return half_strip <= most and _pixels(task) >= 2 * _TALLEST[2]


def tallest(target: Target, vectors: int) -> int:
    """Pixels of a tile."""
    return min(_TALLEST[vectors], (target.registers - vectors - 1) // vectors)


@lru_cache(maxsize=256)  # nets repeat their layers
def bands_of(pixels: int, most: int) -> int:
    """How many bands an image is cut into: as even as possible, with high tiles."""
    found: dict[float, int] = {}
    fewest = ceildiv_int(pixels, 2 * most * MOST_BLOCKS)
    for bands in range(fewest, max(fewest, ceildiv_int(pixels, _BAND_PIXELS // 2)) + 1):
        halves = [ceildiv_int(size, 2) for size in (pixels // bands, ceildiv_int(pixels, bands))]
        time = 0.0
        for half, count in zip(halves, (bands - pixels % bands, pixels % bands)):
            time += count * (2 * half + 2 * ceildiv_int(half, most))
        codes, size = len(tile_heights(pixels, bands, most)), pixels / bands / _BAND_PIXELS
        time *= 1 + _MORE_CODE * codes + _OTHER_SIZE * abs(size - 1)
        found.setdefault(time, bands)
    return found[min(found)]


def share_of_time(task: Task) -> float:
    """How long it takes, as a share of direct sums."""
    pixels, vectors = _pixels(task), set_vectors(task)
    bands = bands_of(pixels, tallest(task.ctx.target, vectors))
    return cost.strassen_conv(pixels, bands, task.weights.inputs, task.weights.outputs)


def _pixels(task: Task) -> int:
    return int(str(product(list(task.geometry.out))))


def parts_of(blocks: int) -> int:
    """Into how many parts weights are divided that the blocks of a product fetch ahead, all but the first."""
    return next(parts for parts in (4, 2, 1) if blocks > parts or parts == 1)


def unlike_pairs(task: Task) -> Array:
    """For every pair of sets whether weights of two paired channels are too different; NaN are unlike anything."""
    kernels = data_of(part_of(task.weights.kernels)).reshape(task.weights.outputs, task.weights.inputs)
    largest = np.maximum(kernels.max(axis=1), -kernels.min(axis=1)).reshape(-1, 2, set_vectors(task) * task.block)
    high, low = largest.max(axis=1), largest.min(axis=1)
    alike: Array = (high <= _MOST_UNLIKE * low) & (high <= LARGEST)
    return np.logical_not(alike.all(axis=1))


def lower_strassen(task: Task) -> None:
    """Write the steps."""
    ctx, weights, block = task.ctx, task.weights, task.block
    x = task.blocked_input()
    vectors = set_vectors(task)
    most = tallest(ctx.target, vectors)
    pixels = _pixels(task)
    bands = bands_of(pixels, most)
    tile = ConvTile(vectors, most)
    sets = task.sets(tile)
    packed = task.packed(sets, block)
    bias = task.bias(1, weights.outputs)
    unlike = ctx.literal(unlike_pairs(task).astype(np.uint8))
    operand_strides = [(*own[:2], 0, 0, *own[4:]) for own in task.operand_strides]
    kernel = StrassenConvKernel(
        block=block,
        vectors=vectors,
        heights=tile_heights(pixels, bands, most),
        parts=parts_of(ceildiv_int(ceildiv_int(pixels // bands, 2), most)),
        dense=task.is_dense(operand_strides),
        epilogue=task.epilogue.for_kernel([own[-1] for own in operand_strides]),
    )
    half_depth = weights.inputs // (2 * block)
    width = vectors * block
    half = ceildiv_int(ceildiv_int(pixels, bands), 2)
    sizes = {
        "sums": SUMS * half_depth * half * block,
        "differences": half_depth * block * width,
        "products": BUFFERS * MOST_BLOCKS * kernel.heights[-1] * width,
    }
    scratch = {name: ctx.worker_scratch(dtypes.FLOAT32, size, f"{name} of halves") for name, size in sizes.items()}
    batch: Dim = x.shape[0]
    pairs = sets.count // 2
    arguments = kernel.arguments.entries(
        x=Address(x.buffer, x.offset * 4),
        w=Address(packed.buffer),
        bias=Address(bias.buffer),
        unlike=Address(unlike.buffer),
        batch=batch,
        pixels=pixels,
        bands=bands,
        pairs=pairs,
        half_depth=half_depth,
        x_batch=x.strides[0],
        x_block=x.strides[1],
        w_set=packed.shape[1],
        **{name: (Address(buffer), (buffer.size,)) for name, buffer in scratch.items()},
        operands=task.operands(operand_strides),
    )
    flops = batch * (2 * pixels * weights.outputs * weights.inputs)
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            batch * (bands * pairs),
            cost.conv(flops, ctx.target),
            (x.buffer, packed.buffer, bias.buffer, unlike.buffer, *task.epilogue.reads),
            (*task.epilogue.writes, *scratch.values()),
            task.group.label,
            tuple(node.label for node in task.group.nodes),
            task.in_place(x),
            flops=flops,
        )
    )
