"""What ONNX Runtime's native module has for quantizing weights by blocks; results go to arrays of the caller."""

from __future__ import annotations

from typing import Any


def quantize_matmul_2bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, symmetric: bool
) -> None:
    """A matrix [K, N] in blocks of 2-bit numbers."""
    _quantize(2, dst, src, scale, zero_points, block_size, n, k, symmetric)


def quantize_matmul_4bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, symmetric: bool
) -> None:
    """A matrix [K, N] in blocks of 4-bit numbers."""
    _quantize(4, dst, src, scale, zero_points, block_size, n, k, symmetric)


def quantize_matmul_8bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, symmetric: bool
) -> None:
    """A matrix [K, N] in blocks of 8-bit numbers."""
    _quantize(8, dst, src, scale, zero_points, block_size, n, k, symmetric)


def _quantize(
    bits: int, dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, symmetric: bool
) -> None:
    from sardonyx.quantization.blocks import quantize_into  # lazy: few programs quantize

    quantize_into(bits, dst, src, scale, zero_points, block_size, n, k, symmetric)


def quantize_qdq_matmul_4bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, symmetric: bool
) -> bool:
    """A matrix [K, N] as 4-bit elements in the same order, with blocks along K, as DequantizeLinear reads it."""
    from sardonyx.quantization.blocks import quantize_rows_into  # lazy: few programs quantize

    quantize_rows_into(dst, src, scale, zero_points, block_size, n, k, symmetric)
    return symmetric


def quantize_matmul_bnb4(dst: Any, src: Any, absmax: Any, block_size: int, quant_type: int, n: int, k: int) -> None:
    """A matrix [N, K] as 4-bit floats (0) or normal floats (1)."""
    from sardonyx.quantization.blocks import quantize_bnb4_into  # lazy: few programs quantize

    quantize_bnb4_into(dst, src, absmax, block_size, quant_type, n, k)
