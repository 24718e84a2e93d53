"""Matrices in blocks of few bits, as MatMulNBits reads them: each column is cut into blocks that have a scale and a zero point.

weight [K, N]  ->  codes [N, blocks, block size], scales [N, blocks], zero points [N, blocks]

round      to the nearest code; the range holds zero, or is symmetric around it
k_quant    scale and offset that make a weighted squared error least, found among twenty candidates
hqq        zero points that are no integers, moved until few weights have large errors (half-quadratic quantization)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.ir import tensor
from sardonyx.quantization.arithmetic import block_count
from sardonyx.records import dataclass

Array = NDArray[Any]
BITS: Final = (2, 4, 8)
_AT_ONCE: Final = 1 << 20  # elements that are looked at together
_CANDIDATES: Final = 20
_ROUNDS: Final = 20


@dataclass(frozen=True)
class BlockMatrix:
    """A matrix in blocks; `zeros` is None where the middle code stands for zero."""

    codes: Array  # uint8 [N, blocks, block size]
    scales: Array  # [N, blocks]
    zeros: Array | None  # uint8, or real numbers, [N, blocks]


def check_block_size(bits: int, block_size: int, context: str) -> None:
    """InvalidArgument for bits or a block size that no operator takes."""
    if bits not in BITS:
        raise InvalidArgument(f"{context}bits is {bits}, expected one of {', '.join(map(str, BITS))}")
    if block_size < 16 or block_size & (block_size - 1):
        raise InvalidArgument(f"{context}block_size is {block_size}, expected a power of two that is 16 or more")


def quantize_blocks(
    weight: Array, bits: int, block_size: int, symmetric: bool = False, method: str = "round", ratio: float = 1.0
) -> BlockMatrix:
    """A matrix [K, N] in blocks along its columns; `ratio` narrows their ranges, if numbers are rounded."""
    rows, columns = weight.shape
    count = block_count(rows, block_size)
    codes = np.zeros((columns, count, block_size), np.uint8)
    scales = np.zeros((columns, count), np.float32)
    has_zeros = not symmetric or method != "round"
    zeros = np.zeros((columns, count), np.float32 if method == "hqq" else np.uint8) if has_zeros else None
    for part in _parts(columns, count * block_size):
        cut = np.zeros((part.stop - part.start, count * block_size), np.float32)
        cut[:, :rows] = weight[:, part].T
        found = _METHODS[method](cut.reshape(-1, count, block_size), bits, symmetric, ratio)
        codes[part], scales[part] = found.codes, found.scales
        if zeros is not None:
            zeros[part] = found.zeros
    codes.reshape(columns, -1)[:, rows:] = 0
    return BlockMatrix(codes, scales, zeros)


def _parts(columns: int, height: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // max(height, 1))
    for start in range(0, columns, step):
        yield slice(start, min(start + step, columns))


def _encoded(data: Array, scales: Array, zeros: Any, greatest: int) -> Array:
    with np.errstate(divide="ignore"):
        inverse = np.where(scales == 0, np.float32(0), 1 / scales).astype(np.float32)
    exact = data * inverse[..., None] + np.asarray(zeros, np.float32)[..., None]
    codes: Array = np.clip(np.floor(exact + np.float32(0.5)), 0, greatest).astype(np.uint8)
    return codes


def _round(data: Array, bits: int, symmetric: bool, ratio: float) -> BlockMatrix:
    greatest, middle = (1 << bits) - 1, 1 << (bits - 1)
    low, high = data.min(axis=2) * np.float32(ratio), data.max(axis=2) * np.float32(ratio)
    if symmetric:
        scales = (np.where(np.abs(high) > np.abs(low), high, low) / np.float32(-middle)).astype(np.float32)
        zeros = np.full(scales.shape, middle, np.uint8)
        return BlockMatrix(_encoded(data, scales, zeros, greatest), scales, zeros)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scales = ((high - low) / np.float32(greatest)).astype(np.float32)
    exact = np.divide(-low, scales, out=np.zeros_like(scales), where=scales != 0)
    zeros = np.clip(np.floor(exact + np.float32(0.5)), 0, greatest).astype(np.uint8)
    return BlockMatrix(_encoded(data, scales, zeros, greatest), scales, zeros)


def _k_quant(data: Array, bits: int, symmetric: bool, ratio: float) -> BlockMatrix:
    """Scale and least value by weighted least squares, for several roundings; large weights count more.

    What counts is the error that is left when the zero point has been rounded: so it is never larger than that of `_round`.
    """
    greatest = (1 << bits) - 1
    weights = np.sqrt(np.mean(data**2, axis=2, keepdims=True)) + np.abs(data)
    low, high = data.min(axis=2, keepdims=True), data.max(axis=2, keepdims=True)
    width = np.where(high == low, np.float32(1), high - low)
    total, moment = weights.sum(axis=2, keepdims=True), (weights * data).sum(axis=2, keepdims=True)
    best = _round(data, bits, False, 1.0)
    least_error = _weighted_error(data, weights, best)
    for step in range(_CANDIDATES):
        factor = np.float32(greatest - 1 + 0.1 * step)
        codes = np.clip(np.round((data - low) * (factor / width)), 0, greatest).astype(np.float32)
        weighted = weights * codes
        first, second = weighted.sum(axis=2, keepdims=True), (weighted * codes).sum(axis=2, keepdims=True)
        mixed = (weighted * data).sum(axis=2, keepdims=True)
        determinant = total * second - first**2
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = ((total * mixed - moment * first) / determinant)[..., 0]
            least = ((second * moment - first * mixed) / determinant)[..., 0]
            usable = np.isfinite(scales) & np.isfinite(least) & (scales > 0)
            scales = np.where(usable, scales, best.scales).astype(np.float32)
            zeros = np.clip(np.round(np.where(usable, -least / np.where(scales == 0, 1, scales), 0)), 0, greatest).astype(
                np.uint8
            )
        found = BlockMatrix(_encoded(data, scales, zeros, greatest), scales, zeros)
        error = _weighted_error(data, weights, found)
        better = usable & (error < least_error)
        least_error = np.where(better, error, least_error)
        assert best.zeros is not None
        best = BlockMatrix(
            np.where(better[..., None], found.codes, best.codes),
            np.where(better, found.scales, best.scales),
            np.where(better, zeros, best.zeros),
        )
    return best


def _weighted_error(data: Array, weights: Array, blocks: BlockMatrix) -> Array:
    assert blocks.zeros is not None
    real = (blocks.codes.astype(np.float32) - blocks.zeros.astype(np.float32)[..., None]) * blocks.scales[..., None]
    error: Array = (weights * (real - data) ** 2).sum(axis=2)
    return error


def _hqq(data: Array, bits: int, symmetric: bool, ratio: float) -> BlockMatrix:
    """Zero points by a proximal method: errors are shrunk, then the zero point that explains the rest is their mean."""
    greatest = (1 << bits) - 1
    low, high = data.min(axis=2, keepdims=True), data.max(axis=2, keepdims=True)
    width = high - low
    inverse = np.minimum(np.float32(greatest) / np.where(width == 0, np.float32(greatest), width), np.float32(2e4))
    zeros = np.round(-low * inverse)
    beta, power, best = 10.0, 0.7, np.inf
    for _ in range(_ROUNDS):
        codes = np.clip(np.round(data * inverse + zeros), 0, greatest)
        real = (codes - zeros) / inverse
        error = data - real
        size = np.abs(error)
        shrunk = np.sign(error) * np.maximum(size - (size + 1e-8) ** (power - 1) / beta, 0)
        current = float(size.mean())
        zeros = (codes - (data - shrunk) * inverse).mean(axis=2, keepdims=True).astype(np.float32)
        beta *= 1.01
        if current >= best:
            break
        best = current
    codes = np.clip(np.round(data * inverse + zeros), 0, greatest).astype(np.uint8)
    return BlockMatrix(codes, (1 / inverse)[..., 0].astype(np.float32), zeros[..., 0].astype(np.float32))


_METHODS: Final[dict[str, Callable[[Array, int, bool, float], BlockMatrix]]] = {"round": _round, "k_quant": _k_quant, "hqq": _hqq}


def dequantize_blocks(blocks: BlockMatrix, bits: int, rows: int) -> Array:
    """The matrix [K, N] that blocks stand for."""
    zeros = np.float32(1 << (bits - 1)) if blocks.zeros is None else blocks.zeros.astype(np.float32)[..., None]
    real = (blocks.codes.astype(np.float32) - zeros) * blocks.scales.astype(np.float32)[..., None]
    return np.ascontiguousarray(real.reshape(real.shape[0], -1)[:, :rows].T)


def packed_codes(blocks: BlockMatrix, bits: int) -> Array:
    """The codes as bytes [N, blocks, bytes of a block], low bits first."""
    columns, count, _ = blocks.codes.shape
    return _packed(blocks.codes, bits).reshape(columns, count, -1)


def packed_zeros(zeros: Array, bits: int, filling: int = 0) -> Array:
    """Zero points as bytes [N, bytes of a column], low bits first; real ones stay as they are, in one row."""
    if zeros.dtype != np.uint8:
        return zeros.reshape(-1)
    columns, count = zeros.shape
    per_byte = 8 // bits
    padded = np.full((columns, block_count(count, per_byte) * per_byte), filling, np.uint8)
    padded[:, :count] = zeros
    return _packed(padded, bits).reshape(columns, -1)


def _packed(codes: Array, bits: int) -> Array:
    if bits == 8:
        return codes
    return tensor.pack(codes, dtypes.UINT4 if bits == 4 else dtypes.UINT2)


def quantize_into(
    bits: int,
    packed: Array,
    weight: Array,
    scales: Array,
    zeros: Array,
    block_size: int,
    columns: int,
    rows: int,
    symmetric: bool,
) -> None:
    """Fill the arrays of a MatMulNBits node, as ONNX Runtime's `quantize_matmul_4bits` and its like do."""
    found = quantize_blocks(weight.reshape(-1, columns)[:rows].astype(np.float32), bits, block_size, symmetric)
    packed[...] = packed_codes(found, bits).reshape(packed.shape)
    scales[...] = found.scales.reshape(scales.shape).astype(scales.dtype)
    middle = 1 << (bits - 1)
    kept = np.full(found.scales.shape, middle, np.uint8) if found.zeros is None else found.zeros
    zeros[...] = packed_zeros(kept, bits, middle).reshape(zeros.shape)


def quantize_rows_into(
    packed: Array, weight: Array, scales: Array, zeros: Array, block_size: int, columns: int, rows: int, symmetric: bool
) -> None:
    """Fill the arrays of a DequantizeLinear by blocks along axis 0: 4-bit elements [K, N], row by row."""
    found = quantize_blocks(weight.reshape(rows, columns).astype(np.float32), 4, block_size, symmetric)
    codes, signed = row_codes(found, rows, symmetric)
    packed[...] = tensor.pack(codes, dtypes.INT4 if signed else dtypes.UINT4).reshape(packed.shape)
    scales[...] = found.scales.T.reshape(scales.shape).astype(scales.dtype)
    if found.zeros is not None:
        zeros[...] = tensor.pack(np.ascontiguousarray(found.zeros.T), dtypes.UINT4).reshape(zeros.shape)


def row_codes(blocks: BlockMatrix, rows: int, symmetric: bool) -> tuple[Array, bool]:
    """The codes as a matrix [K, N]: with sign, zero being zero, if they are symmetric."""
    codes = np.ascontiguousarray(blocks.codes.reshape(blocks.codes.shape[0], -1)[:, :rows].T)
    return ((codes.astype(np.int8) - np.int8(8)).view(np.uint8), True) if symmetric else (codes, False)


_FP4: Final = (
    (0.00260417, 0), (0.0859375, 1), (0.20833333, 6), (0.29166667, 7), (0.4166667, 4), (0.583333, 5), (0.8333333, 2), (1, 3),
)  # fmt: skip
_NF4: Final = (
    -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
    -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668,
    0.2920137718319893, 0.3893125355243683, 0.5016634166240692, 0.6427869200706482, 0.8614784181118011, 1.0,
)  # fmt: skip


def quantize_bnb4_into(packed: Array, weight: Array, greatest: Array, block_size: int, quant_type: int, n: int, k: int) -> None:
    """Fill the arrays of a MatMulBnb4 node: 4-bit floats (0) or normal floats (1) of blocks of the flat matrix [N, K]."""
    flat = weight.reshape(-1).astype(np.float32)
    count = block_count(flat.size, block_size)
    padded = np.zeros(count * block_size, np.float32)
    padded[: flat.size] = flat
    cut = padded.reshape(count, block_size)
    limits = np.abs(cut).max(axis=1)
    inverse = np.divide(np.float32(1), limits, out=np.zeros_like(limits), where=limits != 0)
    unit = (cut * inverse[:, None]).reshape(-1)
    if quant_type == 0:
        positions = np.searchsorted(np.array([pivot for pivot, _ in _FP4], np.float32), np.abs(unit)).clip(0, 7)
        codes = np.array([code for _, code in _FP4], np.uint8)[positions] + (unit < 0).astype(np.uint8) * np.uint8(8)
    else:
        codes = np.searchsorted(np.array(_NF4, np.float32), unit).clip(0, 15).astype(np.uint8)
    pairs = np.zeros((packed.size * 2,), np.uint8)
    pairs[: min(codes.size, pairs.size)] = codes[: pairs.size]
    packed[...] = (pairs[::2] << 4 | pairs[1::2]).reshape(packed.shape)
    greatest[...] = limits.astype(greatest.dtype).reshape(greatest.shape)
