"""Weights of 2, 4 or 8 bits in the order kernels read them (see `kernel.quant.block_product`). Packed in blocks of rows."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.quant.contrib_quant_matmul import unpack_bits
from sardonyx.program.constants import Cut, transform


def _row_cuts(rows: Array, *parameters: object) -> list[Cut]:
    """A strip of rows makes a strip of lanes."""
    lanes = parameters[-1]
    assert isinstance(lanes, int)
    return [Cut(0, 0, lanes)]


def _strips(rows: Array, lanes: int) -> Array:
    """[rows, ...] as [strips, lanes, ...], zeros beyond the rows."""
    missing = -len(rows) % lanes
    if missing:
        rows = np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])
    return rows.reshape(-1, lanes, *rows.shape[1:])


@transform("pack_block_weights", 1, _row_cuts, is_numbers=True)
def pack_block_weights(weights: Array, bits: int, lanes: int) -> Array:
    """[rows, blocks, bytes] as words [strips, blocks, words, lanes]."""
    rows, blocks, width = weights.shape
    words = _in_order_of_bytes(np.ascontiguousarray(weights).reshape(rows, -1, 4), bits)
    made = words.view("<u4").reshape(rows, blocks, width // 4)
    return _strips(made, lanes).transpose(0, 2, 3, 1)


def _in_order_of_bytes(words: Array, bits: int) -> Array:
    """Words of four bytes whose weights follow each other -> whose byte j holds the weights j, 4 + j, ..."""
    if bits == 8:
        return words
    made = np.empty_like(words)
    if bits == 4:
        low, high, four = np.uint8(0x0F), np.uint8(0xF0), np.uint8(4)
        for half in range(2):  # two bytes of the result take the low nibbles of two bytes, and their high nibbles
            first, second = words[..., half], words[..., half + 2]
            made[..., 2 * half] = (first & low) | (second << four)
            made[..., 2 * half + 1] = (first >> four) | (second & high)
        return made
    mask = np.uint8(3)
    for field in range(4):
        shift = np.uint8(2 * field)
        made[..., field] = (words[..., 0] >> shift) & mask
        for number in range(1, 4):
            made[..., field] |= ((words[..., number] >> shift) & mask) << np.uint8(2 * number)
    return made


@transform("pack_block_scales", 1, _row_cuts, is_numbers=True)
def pack_block_scales(scales: Array, lanes: int) -> Array:
    """[rows, blocks] as float32 [strips, blocks, lanes]."""
    return np.ascontiguousarray(_strips(scales.astype(np.float32), lanes).transpose(0, 2, 1))


@transform("pack_block_offsets", 1, is_numbers=True)
def pack_block_offsets(points: Array, scales: Array, bits: int, lanes: int) -> Array:
    """Zero points times scales as float32 [strips, blocks, lanes]; the points are packed like weights if they are bytes."""
    blocks = scales.shape[1]
    levels = unpack_bits(points, bits)[:, :blocks] if points.dtype == np.uint8 else points
    return np.ascontiguousarray(_strips(levels.astype(np.float32) * scales.astype(np.float32), lanes).transpose(0, 2, 1))
