"""Weights of 2, 4 or 8 bits in the order kernels read them (see `kernel.quant.block_product`). Packed in blocks of rows.

Those of DequantizeLinear lie the other way round, [K, N]; they are transposed on the way (`shortcut`).
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.quant.contrib_quant_matmul import unpack_bits
from sardonyx.program.constants import Cut, shortcut, transform


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


def _block_cuts(columns: Array, bits: int, block: int, *parameters: object) -> list[Cut]:
    """In the order of memory: some blocks of all columns."""
    return [Cut(0, 1, block)]


@shortcut(pack_block_weights, "block_rows", _block_cuts)
def pack_block_columns(columns: Array, bits: int, block: int, middle: int, _: int, lanes: int) -> Array:
    """Bytes [K, N * bits / 8] as words [strips, blocks, words, lanes]; `middle` is the bit that is flipped."""
    per_byte = 8 // bits
    depth, width = columns.shape
    groups = columns.reshape(depth // (4 * per_byte), per_byte, 4, width)  # the weights of a word, in the order of its bytes
    mask, flipped = np.uint8((1 << bits) - 1), np.uint8(sum(middle << bits * each for each in range(per_byte)))
    strips = -(-width * per_byte // lanes)
    made = np.empty((strips, len(groups), lanes // per_byte, per_byte), np.uint32)
    padded = np.zeros((len(groups), strips * lanes // per_byte), np.uint32)
    for column in range(per_byte):  # of those that share a byte
        shift = np.uint8(bits * column)
        bytes_ = groups[:, 0] >> shift & mask
        for each in range(1, per_byte):
            bytes_ |= (groups[:, each] >> shift & mask) << np.uint8(bits * each)
        bytes_ ^= flipped
        words = padded[:, :width]
        words[...] = bytes_[:, 3]
        for byte in (2, 1, 0):
            words <<= np.uint32(8)
            words |= bytes_[:, byte]
        made[..., column] = padded.reshape(len(groups), strips, -1).transpose(1, 0, 2)
    return made.reshape(strips, depth // block, -1, lanes)


@transform("pack_block_scales", 1, _row_cuts, is_numbers=True)
def pack_block_scales(scales: Array, lanes: int) -> Array:
    """[rows, blocks] as float32 [strips, blocks, lanes]."""
    return np.ascontiguousarray(_strips(scales.astype(np.float32), lanes).transpose(0, 2, 1))


def _scale_cuts(scales: Array, *parameters: object) -> list[Cut]:
    return [Cut(0, 1)]


@shortcut(pack_block_scales, "block_scales", _scale_cuts)
def pack_scale_columns(scales: Array, lanes: int) -> Array:
    """[blocks, rows] as float32 [strips, blocks, lanes]."""
    blocks, rows = scales.shape
    padded = np.zeros((blocks, -(-rows // lanes) * lanes), np.float32)
    padded[:, :rows] = scales
    return padded.reshape(blocks, -1, lanes).transpose(1, 0, 2)


@transform("pack_block_points", 1, _row_cuts, is_numbers=True)
def pack_block_points(points: Array, bits: int, blocks: int, lanes: int) -> Array:
    """Zero points, packed like weights, as bytes [strips, blocks, lanes]."""
    return np.ascontiguousarray(_strips(unpack_bits(points, bits)[:, :blocks], lanes).transpose(0, 2, 1))


@transform("pack_block_offsets", 2, is_numbers=True)
def pack_block_offsets(points: Array, scales: Array, lanes: int) -> Array:
    """Zero points that are real numbers, times scales, as float32 [strips, blocks, lanes]."""
    return np.ascontiguousarray(_strips(points.astype(np.float32) * scales.astype(np.float32), lanes).transpose(0, 2, 1))
