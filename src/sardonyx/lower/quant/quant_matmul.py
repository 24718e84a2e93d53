"""Products of 8-bit integers, added up in 32 bits: MatMulInteger, QLinearMatMul, QGemm, MatMulIntegerToFloat.

They mean what `ops/quant` says. Scales, rounding and whatever elementwise nodes follow are the epilogue of one kernel.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.expr import Expr, const, load
from sardonyx.lower.derived import numbers
from sardonyx.lower.epilogue import OperandNumber
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.quant.integer_product import Quantized, integer_product
from sardonyx.lower.quant.quant import dynamic_steps, saturated
from sardonyx.lower.registry import template
from sardonyx.lower.views import transposed
from sardonyx.program.constants import transform
from sardonyx.program.steps import View, element_count

BYTES: Final = frozenset(("u8", "i8"))


def _rank(value: Value | None) -> int:
    return len(value.shape or ()) if value is not None else 0


def _fits(zero_point: Value | None, matrix: Value | None, axis: int) -> bool:
    """Whether a zero point is one number or has one for each row (axis -2) or column (axis -1) of a matrix."""
    if zero_point is None or set(zero_point.shape or ()) <= {1}:
        return True
    shape = (matrix.shape or ()) if matrix is not None else ()
    return len(shape) >= 2 and len(zero_point.shape or ()) == 1 and (zero_point.shape or ())[0] == shape[axis]


def _is_single(value: Value | None) -> bool:
    return value is None or set(value.shape or ()) <= {1}


def _accepts_integers(node: Node) -> str:
    a, b = node.inputs[:2]
    zero_points = [*node.inputs[2:], None, None]
    if not _rank(a) or not _rank(b):
        return "an operand has no dimensions"
    return "" if _fits(zero_points[0], a, -2) and _fits(zero_points[1], b, -1) else "zero points of another form"


@template("MatMulInteger", types={"T1": BYTES, "T2": BYTES}, accepts=_accepts_integers, fuses=True, writes_anywhere=True)
def matmul_integer(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    a_zero, b_zero = [*node.inputs[2:], None, None][:2]
    a, b = (Quantized(ctx.view(given(node, position)), zero) for position, zero in ((0, a_zero), (1, b_zero)))
    integer_product(ctx, group, a, b, lambda operand, total: {node.outputs[0]: total})


def _accepts_quantized(node: Node) -> str:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs
    if _rank(a) < 2 or _rank(b) < 2:
        return "an operand that is no matrix"
    if not (_fits(a_zero, a, -2) and _fits(b_zero, b, -1) and _fits(b_scale, b, -1)):
        return "zero points or scales of another form"
    return "" if all(map(_is_single, (a_scale, y_scale, y_zero))) else "a scale for every row"


@template(
    "QLinearMatMul", types={"T1": BYTES, "T2": BYTES, "T3": BYTES}, accepts=_accepts_quantized, fuses=True, writes_anywhere=True
)
def qlinear_matmul(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    output = node.outputs[0]
    a, b = (Quantized(ctx.view(given(node, position)), node.inputs[position + 2]) for position in (0, 3))

    def rule(operand: OperandNumber, total: Expr) -> dict[Value, Expr]:
        value = total.cast("f32") * factor(ctx, operand, given(node, 1), given(node, 4), given(node, 6))
        return {output: saturated(value, zero_point(ctx, operand, given(node, 7)), ctx.dtype(output).name)}

    integer_product(ctx, group, a, b, rule)


def _accepts_gemm(node: Node) -> str:
    _, a_scale, a_zero, b, b_scale, b_zero, _, y_scale, y_zero = [*node.inputs, None, None, None][:9]
    attrs = attribute_values(node)
    columns = -2 if attrs.get("transB") else -1
    if not (_fits(b_zero, b, columns) and _fits(b_scale, b, columns)):
        return "zero points or scales of another form"
    if (y_scale is None) is not (y_zero is None):
        return "a scale without a zero point, or the other way round"
    return "" if all(map(_is_single, (a_scale, a_zero, y_scale, y_zero))) else "a scale for every row"


@template(
    "QGemm", domain="com.microsoft", types={"TA": BYTES, "TB": BYTES}, accepts=_accepts_gemm, fuses=True, writes_anywhere=True
)
def qgemm(ctx: LowerContext, group: Group) -> None:
    """alpha * A * B + C, quantized or as floats; C has the scale of the product."""
    node = root_of(group)
    attrs = attribute_values(node)
    a, a_scale, _, b, b_scale, _, c, y_scale, y_zero = [*node.inputs, None, None, None][:9]
    assert a is not None
    assert b is not None
    views = [transposed(ctx.view(value), [1, 0] if attrs.get(name) else [0, 1]) for value, name in ((a, "transA"), (b, "transB"))]
    left, right = (Quantized(view, zero) for view, zero in zip(views, (node.inputs[2], node.inputs[5])))
    alpha = 1.0 if attrs.get("alpha") is None else float(attrs["alpha"])
    output = node.outputs[0]

    def rule(operand: OperandNumber, total: Expr) -> dict[Value, Expr]:
        assert a_scale is not None
        assert b_scale is not None
        if c is not None:
            ctx.check_broadcast(ctx.shape(c), ctx.shape(output))
            total = total + load(operand(c), "i32")
        value = total.cast("f32") * factor(ctx, operand, a_scale, b_scale, y_scale, alpha)
        if y_zero is not None:
            value = saturated(value, zero_point(ctx, operand, y_zero), ctx.dtype(output).name)
        return {output: value}

    integer_product(ctx, group, left, right, rule)


def _accepts_to_float(node: Node) -> str:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = [*node.inputs, None, None, None][:7]
    if _rank(a) < 2 or _rank(b) < 2:
        return "an operand that is no matrix"
    if not (_fits(a_zero, a, -2) and _fits(b_zero, b, -1) and _fits(b_scale, b, -1) and _is_single(a_scale)):
        return "zero points or scales of another form"
    return "" if bias is None or _rank(bias) == 1 else "a bias of another form"


@template(
    "MatMulIntegerToFloat",
    domain="com.microsoft",
    types={"T1": BYTES, "T2": BYTES},
    accepts=_accepts_to_float,
    fuses=True,
    writes_anywhere=True,
)
def matmul_integer_to_float(ctx: LowerContext, group: Group) -> None:
    """The product in floats: times both scales, plus a bias."""
    node = root_of(group)
    _, _, a_scale, b_scale, a_zero, b_zero, bias = [*node.inputs, None, None, None][:7]
    a, b = (Quantized(ctx.view(given(node, position)), zero) for position, zero in ((0, a_zero), (1, b_zero)))

    def rule(operand: OperandNumber, total: Expr) -> dict[Value, Expr]:
        assert a_scale is not None
        assert b_scale is not None
        value = total.cast("f32") * factor(ctx, operand, a_scale, b_scale)
        if bias is not None:
            ctx.check_broadcast(ctx.shape(bias), ctx.shape(node.outputs[0]))
            value = value + number(ctx, operand, bias)
        return {node.outputs[0]: value}

    integer_product(ctx, group, a, b, rule)


def _accepts_dynamic(node: Node) -> str:
    a, b, b_scale, b_zero, bias = [*node.inputs, None, None][:5]
    if _rank(a) < 2 or _rank(b) < 2:
        return "an operand that is no matrix"
    if not (_fits(b_zero, b, -1) and _fits(b_scale, b, -1)):
        return "zero points or scales of another form"
    return "" if bias is None or _rank(bias) == 1 else "a bias of another form"


@template(
    "DynamicQuantizeMatMul",
    domain="com.microsoft",
    types={"T1": {"f32"}, "T2": BYTES},
    accepts=_accepts_dynamic,
    fuses=True,
    writes_anywhere=True,
)
def dynamic_quantize_matmul(ctx: LowerContext, group: Group) -> None:
    """A is quantized by its range first."""
    node = root_of(group)
    a, b, b_scale, b_zero, bias = [*node.inputs, None, None][:5]
    assert a is not None
    assert b is not None
    assert b_scale is not None
    values = ctx.scratch(dtypes.UINT8, ctx.shape(a), "quantized")
    scale, zero_point = ctx.scratch(dtypes.FLOAT32, (), "scale"), ctx.scratch(dtypes.UINT8, (), "zero point")
    dynamic_steps(ctx, group, ctx.untransposed(a), values, scale, zero_point)

    def rule(operand: OperandNumber, total: Expr) -> dict[Value, Expr]:
        value = total.cast("f32") * (number(ctx, operand, scale) * number(ctx, operand, b_scale))
        if bias is not None:
            ctx.check_broadcast(ctx.shape(bias), ctx.shape(node.outputs[0]))
            value = value + number(ctx, operand, bias)
        return {node.outputs[0]: value}

    integer_product(ctx, group, Quantized(values, zero_point), Quantized(ctx.view(b), b_zero), rule)


# Scales


@transform("product_of_scales", 1, is_numbers=True)
def product_of_scales(first: Array, second: Array, divisor: Array | None, alpha: float) -> Array:
    """alpha * first * second / divisor in float32: what makes a quantized product of sums."""
    made = np.float32(alpha) * first.reshape(-1).astype(np.float32) * second.reshape(-1).astype(np.float32)
    with np.errstate(all="ignore"):
        return made if divisor is None else made / divisor.reshape(-1).astype(np.float32)


def zero_point(ctx: LowerContext, operand: OperandNumber, value: Value) -> Expr | None:
    """The zero point of a tensor; None if it is known to be 0."""
    data = ctx.constant_data(value)
    if data is not None and data.size and not data.numpy().any():
        return None
    view = ctx.view(value)
    return load(operand(View(view.buffer, (), (), view.offset)), view.buffer.dtype.name)


def number(ctx: LowerContext, operand: OperandNumber, value: Value | View) -> Expr:
    """A scale, a zero point or a bias as a float: of the tensor, or for each column."""
    view = value if isinstance(value, View) else ctx.view(value)
    if set(view.shape) <= {1}:
        view = View(view.buffer, (), (), view.offset)
    return load(operand(view), view.buffer.dtype.name).cast("f32")


def factor(
    ctx: LowerContext, operand: OperandNumber, first: Value, second: Value, divisor: Value | None = None, alpha: float = 1.0
) -> Expr:
    """alpha * first * second / divisor: computed when the program is made, if all of it is constant."""
    values = [value for value in (first, second, divisor) if value is not None]
    if all(ctx.constant_data(value) is not None for value in values):
        sizes = numbers([element_count(ctx.shape(value)) for value in values])
        size = next((each for each in sizes if each != 1), 1)
        sources = [None if value is None else ctx.view(value) for value in (first, second, divisor)]
        made = ctx.packed(product_of_scales, sources, alpha, dtype=dtypes.FLOAT32, shape=(size,))
        return load(operand(made if size != 1 else View(made.buffer, (), ())), "f32")
    scale = number(ctx, operand, first)
    if alpha != 1.0:
        scale = const(alpha, "f32") * scale
    scale = scale * number(ctx, operand, second)
    return scale if divisor is None else scale / number(ctx, operand, divisor)
