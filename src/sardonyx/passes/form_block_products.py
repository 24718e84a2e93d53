"""Products with dequantized weights of 2, 4 or 8 bits, the weights as they are stored.

    MatMul(a, DequantizeLinear(w: u4[K,N], scale, zero))        =>   com.microsoft::MatMulNBits(a, w', scale', zero')
    Gemm(a, DequantizeLinear(w: i4[K,N], scale), bias: f32[N])  =>   com.microsoft::MatMulNBits(a, w', scale', , , bias)

The weights are transposed to rows [N, blocks, bytes]; with one scale for each column or for all of them, blocks repeat it.
Nothing of that is done here: the new constants say how they are made, and are made when they are packed for a kernel, one by one,
and gone again. A signed weight becomes an unsigned one by its highest bit, and so does its zero point.

Refuses what ONNX Runtime refuses: dequantized activations (products of integers are better), weights or scales that others read,
blocks along another axis or of a size that is no power of two from 16 to 256, Gemm with factors or transposed operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array, Derivation, Tensor, origin_of, pack, release_pages
from sardonyx.passes.block_options import BLOCKS, DEFAULT_BLOCK, DEFAULT_LEVEL, LEAST_WASTE
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_WEIGHTS: Final = frozenset((dtypes.INT2, dtypes.UINT2, dtypes.INT4, dtypes.UINT4, dtypes.INT8, dtypes.UINT8))
_PAIRS_AT_ONCE: Final = 256  # of columns that are transposed: what is read and written stays in the cache
_UNSIGNED: Final = {2: dtypes.UINT2, 4: dtypes.UINT4}
_SCALES: Final = frozenset((dtypes.FLOAT32, dtypes.FLOAT16))


@dataclass(frozen=True)
class _Weights:
    """A dequantized matrix [K, N] of constants."""

    node: Node  # the DequantizeLinear
    tensor: Tensor
    scale: Tensor
    zero_point: Tensor | None
    block: int  # 0: one scale for each column, or for all of it

    @property
    def depth(self) -> int:
        return self.tensor.shape[0]

    @property
    def columns(self) -> int:
        return self.tensor.shape[1]


@dataclass(frozen=True)
class FormBlockProducts(Rule[_Weights]):
    """Products of floats with weights that are dequantized for them. `level` and `block_size` are ONNX Runtime's options."""

    name: ClassVar[str] = "FormBlockProducts"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("MatMul", "Gemm"))
    needs: ClassVar[frozenset[str]] = frozenset(("DequantizeLinear",))
    level: int = DEFAULT_LEVEL
    block_size: int = 0  # for weights without blocks; 0: DEFAULT_BLOCK

    def match(self, g: Rewriter, node: Node) -> _Weights | Reject | None:
        dequantize = _dequantize(node.inputs[1])
        if dequantize is None or _dequantize(node.inputs[0]) is not None:
            return None
        given = [*dequantize.inputs, None][:3]
        if dtype_of(given[0]) not in _WEIGHTS:
            return None
        held = [g.constant_of(value) for value in given]
        if held[0] is None or held[1] is None or (given[2] is not None and held[2] is None):
            return Reject("weights, scales or zero points are computed")
        if len(held[0].shape) != 2:
            return Reject(f"weights of {len(held[0].shape)} dimensions")
        return _Weights(dequantize, held[0], held[1], held[2], int(dequantize.attr("block_size", 0)))

    def check(self, g: Rewriter, found: _Weights) -> int | Reject:
        """The block size of the new weights."""
        node, made = g.anchor, found.node.outputs[0]
        if len(made.uses) != 1 or g.is_output(made):
            return Reject("the dequantized weights have other readers")
        if any(value is not None and len(value.uses) != 1 for value in found.node.inputs[:2]):
            return Reject("the weights or scales have other readers")
        if (
            found.scale.dtype not in _SCALES
            or dtype_of(made) is not found.scale.dtype
            or dtype_of(node.inputs[0]) is not dtype_of(made)
        ):
            return Reject(f"scales of {found.scale.dtype.name}")
        if not found.depth or not found.columns:
            return Reject("weights without elements")
        if node.op_type == "Gemm":
            reason = _gemm_reason(node, found.columns)
            if reason:
                return Reject(reason)
        return self._block(found)

    def _block(self, found: _Weights) -> int | Reject:
        parameters = [found.scale, *([] if found.zero_point is None else [found.zero_point])]
        if found.block:
            if found.node.attr("axis", 1) % 2 or found.block not in BLOCKS:
                return Reject(f"blocks of {found.block} along axis {found.node.attr('axis', 1)}")
            expected: tuple[int, ...] = (-(-found.depth // found.block), found.columns)
            if any(each.shape != expected for each in parameters):
                return Reject(f"scales or zero points are not of shape {list(expected)}")
            return found.block
        if any(each.shape not in ((), (found.columns,)) or each.shape != found.scale.shape for each in parameters):
            return Reject("scales or zero points are neither one nor one for each column")
        if found.scale.shape and found.node.attr("axis", 1) % 2 == 0:
            return Reject("a scale for each row")
        if self.block_size == LEAST_WASTE:
            fitting = [size for size in BLOCKS if size <= max(found.depth, BLOCKS[0])]
            return min(reversed(fitting), key=lambda size: -found.depth % size)
        return self.block_size or DEFAULT_BLOCK

    def rewrite(self, g: Rewriter, found: _Weights, facts: int) -> None:
        node, block = g.anchor, facts
        bits, blocks = found.tensor.dtype.bits, -(-found.depth // block)
        rows = found.columns
        name = found.tensor.name or "weights"
        weights = _derived(
            "block_rows", (found.tensor,), (block,), dtypes.UINT8, (rows, blocks, block * bits // 8),
            lambda: _rows(found.tensor, block), _rows_derivation(found.tensor, block),
        )  # fmt: skip
        scales = _derived(
            "block_scales", (found.scale,), (blocks, rows), found.scale.dtype, (rows * blocks,),
            lambda: np.ascontiguousarray(_for_blocks(found.scale.numpy(), blocks, rows).T),
            Derivation("block_scales" if found.scale.shape == (blocks, rows) else "repeated_scales", (found.scale,), ()),
        )  # fmt: skip
        points: Value | None = None
        if not _is_middle(found.zero_point, found.tensor.dtype):
            packed = -(-blocks * bits // 8)
            zero = found.zero_point
            codes = _derived(
                "block_zero_points", (zero,), (bits, blocks, rows), dtypes.UINT8, (rows * packed,),
                lambda: _points(None if zero is None else _codes(zero), bits, blocks, rows),
            )  # fmt: skip
            points = g.constant(codes, f"{zero.name if zero is not None else 'fused_DQ_MatMul_zero_point'}_T")
        bias = node.inputs[2] if node.op_type == "Gemm" and len(node.inputs) > 2 else None
        inputs = [
            node.inputs[0],
            g.constant(weights, f"{name}_T"),
            g.constant(scales, f"{found.scale.name or 'scales'}_T"),
            points,
        ]
        if bias is not None:
            inputs += [None, bias]
        elif points is None:
            inputs.pop()
        attrs = {"K": found.depth, "N": rows, "bits": bits, "block_size": block, "accuracy_level": self.level}
        g.replace(node.outputs[0], g.op("MatMulNBits", *inputs, domain=MICROSOFT, **attrs))


def _dequantize(value: Value | None) -> Node | None:
    node = None if value is None else value.producer
    return node if node is not None and node.op_type == "DequantizeLinear" and is_standard(node) else None


def _gemm_reason(node: Node, columns: int) -> str:
    if node.attr("alpha", 1.0) != 1.0 or node.attr("transA", 0) or node.attr("transB", 0):
        return "a Gemm with a factor or transposed operands"
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        if node.attr("beta", 1.0) != 1.0:
            return "a Gemm with a factor"
        if node.inputs[2].shape != (columns,):
            return f"a bias of another shape than [{columns}]"
    return ""


def _derived(
    what: str, sources: tuple[Tensor | None, ...], parameters: tuple[int, ...], dtype: DType, shape: tuple[int, ...],
    make: Callable[[], Array], derivation: Derivation | None = None,
) -> Tensor:  # fmt: skip
    """A constant that is made of others each time somebody wants its data; their pages leave memory then."""

    def load() -> memoryview:
        made = make().reshape(-1).view(np.uint8)
        release_pages(source for source in sources if source is not None)
        return made.data

    return Tensor(
        dtype, shape, load, origin=origin_of(what, sources, parameters), derivation=derivation or Derivation("", (), ())
    )


def _middle(dtype: DType) -> int:
    """What is added to a signed number to make it an unsigned one; the bit that is flipped."""
    return 1 << (dtype.bits - 1) if dtype in dtypes.SIGNED else 0


def _is_middle(points: Tensor | None, dtype: DType) -> bool:
    """Whether all zero points are in the middle of the range, where MatMulNBits has them if it is given none."""
    if points is None:
        return dtype in dtypes.SIGNED
    raw, bits = np.frombuffer(points.raw(), np.uint8), dtype.bits
    if points.size * bits % 8:
        return bool(np.all(_codes(points) == 1 << (bits - 1)))
    fields = range(0, 8, bits)
    middle = sum((1 << (bits - 1) ^ _middle(dtype)) << shift for shift in fields)
    is_middle = bool(np.all(raw == np.uint8(middle)))
    release_pages([points])
    return is_middle


def _rows_derivation(weights: Tensor, block: int) -> Derivation | None:
    """How rows are made of the bytes of the weights, if those of a row fill whole bytes and blocks fill the depth."""
    depth, columns = weights.shape
    bits = weights.dtype.bits
    if columns * bits % 8 or depth % block:
        return None
    stored = Tensor(dtypes.UINT8, (depth, columns * bits // 8), weights.raw, name=weights.name)
    return Derivation("block_rows", (stored,), (bits, block, _middle(weights.dtype)))


def _codes(tensor: Tensor) -> Array:
    """The elements as unsigned numbers, one a byte."""
    codes = tensor.numpy().view(np.uint8) & np.uint8((1 << tensor.dtype.bits) - 1)
    return np.asarray(codes ^ np.uint8(_middle(tensor.dtype)))


def _packed(codes: Array, bits: int) -> Array:
    """Codes along the last axis, which fill whole bytes, in bytes."""
    return codes if bits == 8 else pack(codes, _UNSIGNED[bits]).reshape(*codes.shape[:-1], -1)


def _rows(weights: Tensor, block: int) -> Array:
    """[K, N] -> [N, blocks, bytes]; what is beyond K multiplies zeros."""
    depth, columns = weights.shape
    bits, middle = weights.dtype.bits, _middle(weights.dtype)
    length = -(-depth // block) * block
    if bits == 4 and depth == length and columns % 2 == 0:
        return _rows_of_pairs(weights, middle).reshape(columns, -1, block // 2)
    padded = np.full((columns, length), middle, np.uint8)
    padded[:, :depth] = _codes(weights).T
    return _packed(padded, bits).reshape(columns, -1, block * bits // 8)


def _rows_of_pairs(weights: Tensor, middle: int) -> Array:
    """Two rows by two columns at a time: two bytes of [K, N] have what two bytes of the transposed have."""
    depth, columns = weights.shape
    pairs = np.frombuffer(weights.raw(), np.uint8).reshape(depth // 2, 2, columns // 2)
    even, odd = pairs[:, 0], pairs[:, 1]
    rows = np.empty((columns // 2, 2, depth // 2), np.uint8)
    low, high, flipped = np.uint8(0x0F), np.uint8(0xF0), np.uint8(middle * 0x11)
    for start in range(0, columns // 2, _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        above, below = even[:, part], odd[:, part]
        rows[part, 0] = (((above & low) | (below << np.uint8(4))) ^ flipped).T
        rows[part, 1] = (((above >> np.uint8(4)) | (below & high)) ^ flipped).T
    return rows


def _for_blocks(values: Array, blocks: int, columns: int) -> Array:
    return np.broadcast_to(values, (blocks, columns))


def _points(codes: Array | None, bits: int, blocks: int, columns: int) -> Array:
    """Zero points for blocks, packed along them."""
    padded = np.zeros((columns, -(-blocks * bits // 8) * (8 // bits)), np.uint8)
    if codes is not None:
        padded[:, :blocks] = _for_blocks(codes, blocks, columns).T
    return _packed(padded, bits)
