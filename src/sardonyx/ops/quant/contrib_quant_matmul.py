"""Matrix products of com.microsoft with quantized operands.

Weights packed to 2, 4 or 8 bits (MatMulNBits, MatMulBnb4), block-quantized lookups (GatherBlockQuantized), and products of
8- and 16-bit integers (MatMulIntegerToFloat, DynamicQuantizeMatMul, QGemm, MatMulInteger16). Attributes that choose how a
kernel may round inside, such as accuracy_level, do not change what the operator means.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.indexing.indexing import checked_indices
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.matmul.matmul import integer_matmul, matmul_core, matmul_shape
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.quant.quant import dynamic_parameters, matmul_integer, quantize, saturate_to
from sardonyx.records import dataclass

_LEAST_BLOCK: Final = 16
UNPACKED_BYTES: Final = 8 << 20  # of weights held as float32 at once


def _per_byte(bits: int) -> int:
    """How many numbers of 2, 4 or 8 bits a byte holds."""
    if bits not in (2, 4, 8):
        raise ValueError(f"bits is {bits}; expected 2, 4 or 8")
    return 8 // bits


def _check_block(size: int) -> None:
    if size < _LEAST_BLOCK or size & (size - 1):
        raise ValueError(f"block_size is {size}; expected a power of two, {_LEAST_BLOCK} or more")


def unpack_bits(packed: Array, bits: int, dtype: Any = np.uint8) -> Array:
    """Unsigned numbers of 2, 4 or 8 bits out of the bytes of the last axis, the lowest bits of a byte first."""
    per_byte, mask = _per_byte(bits), np.uint8((1 << bits) - 1)
    result = np.empty((*packed.shape, per_byte), dtype)
    for number in range(per_byte):
        result[..., number] = (packed >> np.uint8(bits * number)) & mask
    return result.reshape(*packed.shape[:-1], packed.shape[-1] * per_byte)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [N, K] of 2, 4 or 8 bits, in blocks along K that have a scale and a zero point each."""

    packed: Array  # [N, bytes]
    scales: Array  # [N, blocks]
    zero_points: Array | None  # [N, blocks], packed like the weight if they are uint8
    group_index: Array | None  # [K]: the block of each column, where blocks are not runs of equal length
    columns: int
    bits: int

    def rows(self, start: int, stop: int) -> Array:
        """Some rows as float32."""
        weight = unpack_bits(self.packed[start:stop], self.bits, np.float32)
        scales = widen(self.scales[start:stop])
        points: Array = np.full((1, 1), 1 << (self.bits - 1), np.float32)
        if self.zero_points is not None:
            points = self.zero_points[start:stop]
            if points.dtype == np.uint8:
                points = unpack_bits(points, self.bits)[:, : scales.shape[1]]
            points = points.astype(np.float32)
        if self.group_index is None:
            blocks = weight.reshape(*scales.shape, -1)
            blocks -= points[..., None]
            blocks *= scales[..., None]
            return weight[:, : self.columns]
        weight = weight[:, : self.columns]
        weight -= points[:, self.group_index] if points.size > 1 else points
        weight *= scales[:, self.group_index]
        return weight


def packed_weight(
    b: Array,
    scales: Array,
    zero_points: Array | None,
    group_index: Array | None,
    *,
    shape: tuple[int, int],
    bits: int,
    block_size: int,
) -> PackedWeight:
    """The weight of MatMulNBits, checked; parameters may be flat, as old models have them."""
    rows, columns = shape
    blocks = -(-columns // block_size)
    if b.size != rows * blocks * block_size * bits // 8:
        expected = (rows, blocks, block_size * bits // 8)
        raise ValueError(f"B is {b.shape}, expected {expected}: {rows} rows of {columns} weights of {bits} bits")
    if scales.size != rows * blocks:
        raise ValueError(f"scales is {scales.shape}, expected ({rows}, {blocks})")
    if zero_points is not None:
        per_row = -(-blocks * bits // 8) if zero_points.dtype == np.uint8 else blocks
        if zero_points.size != rows * per_row:
            raise ValueError(f"zero_points is {zero_points.shape}, expected ({rows}, {per_row})")
        zero_points = zero_points.reshape(rows, per_row)
    if group_index is not None:
        if group_index.size < columns:
            raise ValueError(f"g_idx is {group_index.shape}, expected the block of each of the {columns} columns")
        group_index = checked_indices(group_index.reshape(-1)[:columns], blocks, 1)
    return PackedWeight(
        b.reshape(rows, blocks * block_size * bits // 8), scales.reshape(rows, blocks), zero_points, group_index, columns, bits
    )


def _matmul_nbits(
    a: Array,
    b: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    bits: int,
    block_size: int,
    weight_prepacked: int,
) -> Array:
    if weight_prepacked:
        raise ValueError("weight_prepacked is set: the weight is laid out for another device and cannot be read")
    weight = packed_weight(b, scales, zero_points, g_idx, shape=(N, K), bits=bits, block_size=block_size)
    if bias is not None and bias.shape != (N,):
        raise ValueError(f"bias is {bias.shape}, expected ({N},)")
    wide = widen(a)
    result = np.empty((*a.shape[:-1], N), wide.dtype)
    rows = max(1, UNPACKED_BYTES // (4 * max(K, 1)))
    for start in range(0, N, rows):
        stop_if_asked()
        stop = min(start + rows, N)
        result[..., start:stop] = matmul_core(wide, weight.rows(start, stop).T)
    return narrow(result if bias is None else result + widen(bias), a.dtype)


def _packed_product_shape(shape: Shape | None, inner: int, outer: int) -> Shape | None:
    if shape is None:
        return None
    if not shape or (isinstance(shape[-1], int) and shape[-1] != inner):
        raise ValueError(f"the last axis of A is {shape[-1] if shape else 'missing'}, expected K = {inner}")
    return (*shape[:-1], outer)


def _infer_matmul_nbits(ctx: InferContext) -> InferResult:
    _per_byte(int(ctx.attr("bits")))
    _check_block(int(ctx.attr("block_size")))
    return _packed_product_shape(ctx.shape(0), int(ctx.attr("K")), int(ctx.attr("N")))


MATMUL_NBITS = op("MatMulNBits", domain=MICROSOFT, eval=_matmul_nbits, infer=_infer_matmul_nbits)

# The sixteen values of bitsandbytes' 4-bit types, as published with them.
_FP4: Final = (0.0, 0.005208333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4: Final = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def _matmul_bnb4(
    a: Array, b: Array, absmax: Array, *, K: int, N: int, block_size: int, quant_type: int, transB: int | None
) -> Array:
    if quant_type not in (0, 1):
        raise ValueError(f"quant_type is {quant_type}; expected 0 (FP4) or 1 (NF4)")
    if b.size != (N * K + 1) // 2 or absmax.size != -(-N * K // block_size):
        raise ValueError(
            f"B is {b.shape} and absmax {absmax.shape}; expected {(N * K + 1) // 2} bytes and {-(-N * K // block_size)} blocks"
        )
    values = np.array(_FP4 + tuple(-value for value in _FP4) if quant_type == 0 else _NF4, np.float32)
    flat = b.reshape(-1)
    codes = np.stack([flat >> 4, flat & 15], axis=-1).reshape(-1)[: N * K]  # the first of two in the high bits
    weight = values[codes] * np.repeat(widen(absmax).reshape(-1), min(block_size, N * K))[: N * K]
    # The weight is stored transposed, [N, K]; a gradient multiplies by it as it lies.
    operand = weight.reshape(N, K)
    return narrow(matmul_core(widen(a), operand.T if transB is None or transB else operand), a.dtype)


def _infer_matmul_bnb4(ctx: InferContext) -> InferResult:
    inner, outer = int(ctx.attr("K")), int(ctx.attr("N"))
    transposed = ctx.attr("transB")
    if transposed is None or transposed:
        return _packed_product_shape(ctx.shape(0), inner, outer)
    return _packed_product_shape(ctx.shape(0), outer, inner)


MATMUL_BNB4 = op("MatMulBnb4", domain=MICROSOFT, eval=_matmul_bnb4, infer=_infer_matmul_bnb4)


def _block_axes(rank: int, gather_axis: int, quantize_axis: int) -> tuple[int, int]:
    return normalize_axis(gather_axis, rank), normalize_axis(quantize_axis, rank)


def _gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int,
    block_size: int,
    gather_axis: int,
    quantize_axis: int,
) -> Array:
    gather, along = _block_axes(data.ndim, gather_axis, quantize_axis)
    packed = data.dtype == np.uint8
    if packed and along != data.ndim - 1:
        raise ValueError(f"uint8 data is packed along its last axis, but quantize_axis is {quantize_axis}")
    if scales.ndim != data.ndim:
        raise ValueError(f"data has {data.ndim} axes, scales {scales.ndim}: the ranks must agree")
    others = [axis for axis in range(data.ndim) if axis != along]
    for name, given in (("scales", scales), ("zero_points", zero_points)):
        if given is not None and [given.shape[axis] for axis in others if axis < given.ndim] != [
            data.shape[axis] for axis in others
        ]:
            raise ValueError(f"{name} is {given.shape}, data {data.shape}: they may differ along axis {along} only")
    positions = checked_indices(indices, data.shape[gather], gather)

    def looked_up(values: Array) -> Array:
        # Blocks lie along another axis than the lookup, so data and its parameters are looked up alike.
        return np.take(values, positions, axis=gather) if gather != along else values

    rows = looked_up(data)
    if packed:
        rows = unpack_bits(rows, bits)
    factors = looked_up(widen(scales))
    axis = along if gather == along or along < gather else along + positions.ndim - 1
    points: Array | None = None
    if zero_points is not None:
        points = looked_up(zero_points)
        if packed:
            points = unpack_bits(points, bits)[..., : scales.shape[-1]]
        if points.shape != factors.shape:
            raise ValueError(f"zero_points is {zero_points.shape}: not one for each of the scales {scales.shape}")
    size = rows.shape[axis]
    if factors.shape[axis] != -(-size // block_size):
        raise ValueError(
            f"scales has {scales.shape[along]} blocks along axis {along}, expected {-(-size // block_size)} of {block_size}"
        )
    block_of = np.arange(size) // block_size
    result = rows.astype(np.float32)
    if points is not None:
        result = result - np.take(points.astype(np.float32), block_of, axis=axis)
    elif packed:
        result = result - np.float32(1 << (bits - 1))
    result = result * np.take(factors, block_of, axis=axis)
    if gather == along:
        result = np.take(result, positions, axis=gather)
    return narrow(result, scales.dtype)


def _infer_gather_block_quantized(ctx: InferContext) -> InferResult:
    dtype = ctx.dtype(0)
    if dtype is not None and dtype.is_integer:  # floats of 8 and 4 bits may have one scale for all of it
        _check_block(int(ctx.attr("block_size")))
    data, indices = ctx.shape(0), ctx.shape(1)
    if data is None or indices is None:
        return None
    gather, along = _block_axes(len(data), ctx.attr("gather_axis"), ctx.attr("quantize_axis"))
    dims: list[Dim] = list(data)
    if ctx.dtype(0) is dtypes.UINT8:
        dims[along] = dims[along] * _per_byte(ctx.attr("bits"))
    return (*dims[:gather], *indices, *dims[gather + 1 :])


GATHER_BLOCK_QUANTIZED = op(
    "GatherBlockQuantized",
    domain=MICROSOFT,
    eval=_gather_block_quantized,
    infer=_infer_gather_block_quantized,
    traits=Trait.REFUSES,
)


def scaled_product(
    a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero_point: Array | None, b_zero_point: Array | None, bias: Array | None
) -> Array:
    """The product of quantized matrices as float32; scales are scalars or broadcast against the product."""
    product = matmul_integer(a, b, a_zero_point, b_zero_point).astype(np.float32)
    factor = np.squeeze(a_scale) if a_scale.size == 1 else a_scale
    factor = factor * (np.squeeze(b_scale) if b_scale.size == 1 else b_scale)
    result = product * factor
    return np.asarray(result if bias is None else result + bias)


def _matmul_integer_to_float(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    wide = scaled_product(a, b, widen(a_scale), widen(b_scale), a_zero_point, b_zero_point, None if bias is None else widen(bias))
    return narrow(wide, a_scale.dtype)


def _dynamic_quantize_matmul(
    a: Array, b: Array, b_scale: Array, b_zero_point: Array | None = None, bias: Array | None = None
) -> Array:
    scale, zero_point = dynamic_parameters(a)
    return scaled_product(quantize(a, scale, zero_point), b, scale, b_scale, zero_point, b_zero_point, bias)


def _infer_two_matrices(ctx: InferContext) -> InferResult:
    return matmul_shape(ctx.shape(0), ctx.shape(1))


MATMUL_INTEGER_TO_FLOAT = op("MatMulIntegerToFloat", domain=MICROSOFT, eval=_matmul_integer_to_float, infer=_infer_two_matrices)
DYNAMIC_QUANTIZE_MATMUL = op("DynamicQuantizeMatMul", domain=MICROSOFT, eval=_dynamic_quantize_matmul, infer=_infer_two_matrices)
MATMUL_INTEGER16 = op("MatMulInteger16", domain=MICROSOFT, eval=integer_matmul, infer=_infer_two_matrices)


def _qgemm(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    c: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    alpha: float,
    transA: int,
    transB: int,
) -> Array:
    left, right = (a.T if transA else a), (b.T if transB else b)
    product = matmul_integer(left, right, a_zero_point, b_zero_point)
    if c is not None:
        product = product + c
    factor = np.float32(alpha) * a_scale.reshape(()) * (b_scale.reshape(()) if b_scale.size == 1 else b_scale)
    if y_scale is None or y_zero_point is None:
        return np.asarray(product.astype(np.float32) * factor)
    values = np.rint(product.astype(np.float32) * (factor / y_scale.reshape(()))) + y_zero_point.reshape(()).astype(np.float32)
    return saturate_to(values, dtypes.from_numpy(y_zero_point.dtype))


def _infer_qgemm(ctx: InferContext) -> InferResult:
    a, b = ctx.shape(0), ctx.shape(3)
    shape: Shape | None = None
    if a is not None and b is not None:
        if len(a) != 2 or len(b) != 2:
            raise ValueError(f"A and B have ranks {len(a)} and {len(b)}, expected matrices")
        shape = (a[1 if ctx.attr("transA") else 0], b[0 if ctx.attr("transB") else 1])
    dtype = ctx.dtype(8) if ctx.has(8) else dtypes.FLOAT32
    return shape if dtype is None else TensorType(dtype, shape)


QGEMM = op("QGemm", domain=MICROSOFT, eval=_qgemm, infer=_infer_qgemm)
