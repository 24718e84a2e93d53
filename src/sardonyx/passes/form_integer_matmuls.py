"""Products of quantized matrices in integers.

    MatMul(DequantizeLinear(a: u8), DequantizeLinear(b: i8))   =>   com.microsoft::MatMulIntegerToFloat(a, b, scales, zero points)
    Gemm(DequantizeLinear(a), DequantizeLinear(b), bias)       =>   com.microsoft::QGemm(a, ..., b, ..., bias as i32)
    Mul(Cast(MatMulInteger(a, b)), Mul(a_scale, b_scale))      =>   com.microsoft::MatMulIntegerToFloat(a, b, scales, zero points)

The sums are exact, where those of the floats are rounded: results differ by their rounding. Scales of weights may be one for each
column. A bias that was quantized with the product of both scales stays in integers; any other is added to the result. A
QuantizeLinear behind the product, as all elementwise nodes, is part of its kernel. Refuses: 16-bit integers, scales for rows,
Gemm with a factor.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.quantized_values import Quantization, dequantized
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass


@dataclass(frozen=True)
class _Operands:
    a: Quantization
    b: Quantization


@dataclass(frozen=True)
class FormIntegerMatMul(Rule[_Operands]):
    """A product of two dequantized matrices is one of integers."""

    name: ClassVar[str] = "FormIntegerMatMul"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("MatMul", "Gemm"))
    needs: ClassVar[frozenset[str]] = frozenset(("DequantizeLinear",))

    def match(self, g: Rewriter, node: Node) -> _Operands | Reject | None:
        a, b = dequantized(node.inputs[0]), dequantized(node.inputs[1])
        return None if a is None or b is None else _Operands(a, b)

    def check(self, g: Rewriter, found: _Operands) -> Any:
        node, a, b = g.anchor, found.a, found.b
        if not a.is_bytes or not b.is_bytes:
            return Reject(f"integers of {a.tensor.type} and {b.tensor.type}: there are products of 8 bits only")
        rank = len(b.tensor.shape or ())
        if min(len(a.tensor.shape or ()), rank) < 2:
            return Reject("an operand is a vector")
        if a.axis is not None:
            return Reject("the first operand has several scales")
        columns = rank - 2 if node.attr("transB", 0) else rank - 1
        if b.axis is not None and (b.axis != columns or rank != 2):
            return Reject("the scales of the second operand do not belong to columns")
        if node.op_type == "Gemm" and (node.attr("alpha", 1.0) != 1.0 or node.attr("beta", 1.0) != 1.0):
            return Reject("a Gemm with a factor")
        return None

    def rewrite(self, g: Rewriter, found: _Operands, facts: Any) -> None:
        node, a, b = g.anchor, found.a, found.b
        if node.op_type == "MatMul":
            inputs = (a.tensor, b.tensor, a.scale, b.scale, a.zero_point, b.zero_point)
            g.replace(node.outputs[0], g.op("MatMulIntegerToFloat", *inputs, domain=MICROSOFT))
            return
        addend = node.inputs[2] if len(node.inputs) > 2 else None
        bias = integer_bias(g, addend, a, b)
        given = (a.tensor, a.scale, a.zero_or_constant(g), b.tensor, b.scale, b.zero_or_constant(g), bias)
        attrs = {name: node.attr(name, 0) for name in ("transA", "transB")}
        result = g.op("QGemm", *(given if bias is not None else given[:-1]), domain=MICROSOFT, **attrs)
        if addend is not None and bias is None:
            result = g.op("Add", result, addend)
        g.replace(node.outputs[0], result)


def integer_bias(g: Rewriter, bias: Value | None, a: Quantization, b: Quantization) -> Value | None:
    """A vector as integers whose scale is the product of two others; None if it is not quantized so."""
    found = dequantized(bias)
    if found is None or dtype_of(found.tensor) is not dtypes.INT32 or len(found.tensor.shape or ()) != 1:
        return None
    scales = [g.array(each.scale) for each in (a, b, found)]
    if found.zero_point is not None:
        zero = g.array(found.zero_point)
        if zero is None or zero.any():
            return None
    first, second, own = scales
    if first is None or second is None or own is None:
        return None
    expected = first.reshape(-1) * second.reshape(-1)
    fits = own.size in (1, expected.size) and np.allclose(own.reshape(-1), expected, rtol=1e-5, atol=0)
    return found.tensor if fits else None


@dataclass(frozen=True)
class _Scaled:
    product: Node
    a_scale: Value
    b_scale: Value


@dataclass(frozen=True)
class FormMatMulIntegerToFloat(Rule[_Scaled]):
    """A product of integers times both scales, as dynamic quantization writes it."""

    name: ClassVar[str] = "FormMatMulIntegerToFloat"
    ort_names: ClassVar[tuple[str, ...]] = ("MatMulIntegerToFloatFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Mul",))
    needs: ClassVar[frozenset[str]] = frozenset(("MatMulInteger",))

    def match(self, g: Rewriter, node: Node) -> _Scaled | Reject | None:
        for converted, factor in (node.inputs, node.inputs[::-1]):
            cast, scaling = (None if value is None else value.producer for value in (converted, factor))
            if cast is None or cast.op_type != "Cast" or scaling is None or scaling.op_type != "Mul":
                continue
            product = cast.inputs[0].producer if cast.inputs[0] is not None else None
            first, second = scaling.inputs
            if product is None or product.op_type != "MatMulInteger" or first is None or second is None:
                continue
            if not (is_standard(cast) and is_standard(product) and is_standard(scaling)):
                continue
            if not _is_single(first):
                first, second = second, first
            return _Scaled(product, first, second)
        return None

    def check(self, g: Rewriter, found: _Scaled) -> Any:
        product = found.product
        result = g.anchor.outputs[0]
        if any(dtype_of(value) is not dtypes.FLOAT32 for value in (result, found.a_scale, found.b_scale)):
            return Reject("a product that is not scaled in float32")
        if not g.is_private(product.outputs[0]) or not g.is_private(next(iter(product.outputs[0].uses))[0].outputs[0]):
            return Reject(f"the result of {product.label} is used elsewhere too")
        b = product.inputs[1]
        if min(len(value.shape or ()) if value is not None else 0 for value in product.inputs[:2]) < 2 or b is None:
            return Reject("an operand is a vector")
        columns = (b.shape or ())[-1:]
        if not _is_single(found.a_scale) or not (_is_single(found.b_scale) or found.b_scale.shape == columns):
            return Reject("scales that are neither one number nor one for each column")
        return None

    def rewrite(self, g: Rewriter, found: _Scaled, facts: Any) -> None:
        a, b, *zero_points = found.product.inputs
        inputs = (a, b, found.a_scale, found.b_scale, *zero_points)
        g.replace(g.anchor.outputs[0], g.op("MatMulIntegerToFloat", *inputs, domain=MICROSOFT))


def _is_single(value: Value) -> bool:
    return value.shape in ((), (1,))
