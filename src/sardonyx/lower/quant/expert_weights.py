"""Packed weights of all experts of a layer in the order kernels read them: what `block_weights` makes of one, for each of them.

A scale or zero point of a whole row, or of a block longer than the kernel's, is repeated for every block it serves.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.lower.quant.block_weights import pack_block_points, pack_block_scales, pack_block_weights
from sardonyx.ops.quant.contrib_quant_matmul import unpack_bits
from sardonyx.program.constants import Cut, transform


def _expert_cuts(experts: Array, *parameters: object) -> list[Cut]:
    return [Cut(0, 0)]


@transform("pack_expert_weights", 1, _expert_cuts, is_numbers=True)
def pack_expert_weights(weights: Array, bits: int, lanes: int) -> Array:
    """[experts, rows, blocks, bytes] as words [experts, strips, blocks, words, lanes]."""
    return np.stack([pack_block_weights(each, bits, lanes) for each in weights])


@transform("pack_expert_scales", 1, _expert_cuts, is_numbers=True)
def pack_expert_scales(scales: Array, blocks: int, lanes: int) -> Array:
    """[experts, rows, scales of a row] as float32 [experts, strips, blocks, lanes]."""
    return np.stack([pack_block_scales(np.repeat(each, blocks // each.shape[1], 1), lanes) for each in scales])


@transform("pack_expert_points", 1, _expert_cuts, is_numbers=True)
def pack_expert_points(points: Array, bits: int, own: int, blocks: int, lanes: int) -> Array:
    """[experts, rows, bytes] with `own` zero points of a row, packed, as bytes [experts, strips, blocks, lanes]."""
    made = [np.repeat(unpack_bits(each, bits)[:, :own], blocks // own, 1) for each in points]
    return np.stack([pack_block_points(each, 8, blocks, lanes) for each in made])


@transform("pack_expert_row_points", 1, _expert_cuts, is_numbers=True)
def pack_expert_row_points(points: Array, bits: int, rows: int, blocks: int, lanes: int) -> Array:
    """[experts, bytes] with one zero point of a row, packed along the rows, as bytes [experts, strips, blocks, lanes]."""
    made = [np.repeat(unpack_bits(each[None], bits)[0, :rows, None], blocks, 1) for each in points]
    return np.stack([pack_block_points(each, 8, blocks, lanes) for each in made])
