"""Matrix products: MatMul, Gemm, FusedMatMul, FusedGemm, with the elementwise nodes that follow in their epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import FLOATS, Expr, clamp, const, load
from sardonyx.kernel.matmul.pairs import multiplies_pairs
from sardonyx.lower.derived import is_fixed
from sardonyx.lower.epilogue import GroupEpilogue, OperandNumber, group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.matmul.depth_parts import DepthPart, depth_parts
from sardonyx.lower.matmul.pairs import PairProduct
from sardonyx.lower.matmul.product import Product, as_matrices, with_known_rows
from sardonyx.lower.matmul.strassen import StrassenProduct, in_entries
from sardonyx.lower.registry import template
from sardonyx.lower.views import transposed
from sardonyx.program.steps import View

SUMMED: Final = frozenset(("f32", "f64", "f16", "bf16", "i32", "i64", "u32", "u64"))


def _accepts(node: Node) -> str:
    kinds = {value.type.dtype.name for value in node.inputs if value is not None and isinstance(value.type, TensorType)}
    integer = not kinds <= set(FLOATS)
    attrs = attribute_values(node)
    if integer and any(attrs.get(name, 1.0) not in (None, 1.0) for name in ("alpha", "beta")):
        return "integers with a factor"
    shapes = [value.shape for value in node.inputs[:2] if value is not None]
    if any(not shape for shape in shapes):
        return "an operand has no dimensions"
    return ""


def _accepts_fused_gemm(node: Node) -> str:
    activation = attribute_values(node).get("activation")
    if activation not in (None, "", "Relu"):
        return f"no kernel for the activation {activation!r}"
    return _accepts(node)


@template("MatMul", types={"T": SUMMED}, accepts=_accepts, fuses=True, writes_anywhere=True)
def matmul(ctx: LowerContext, group: Group) -> None:
    """NumPy's product: the last two axes are matrices, the others are broadcast; a vector is a row or a column."""
    node = group.root
    assert node is not None
    a, b = _input(node, 0), _input(node, 1)
    lower_product(ctx, group, ctx.view(a), ctx.view(b), 1.0)


@template(
    "FusedMatMul",
    "TransposeMatMul",
    domain="com.microsoft",
    types={"T": SUMMED},
    accepts=_accepts,
    fuses=True,
    writes_anywhere=True,
)
def fused_matmul(ctx: LowerContext, group: Group) -> None:
    """A product of transposed operands, times a factor."""
    node = group.root
    assert node is not None
    a, b = _input(node, 0), _input(node, 1)
    attrs = attribute_values(node)
    views = []
    for value, letter in ((a, "A"), (b, "B")):
        view = ctx.view(value)
        rank = len(view.shape)
        axes = list(range(rank))
        if attrs.get(f"transBatch{letter}") and rank > 2:  # the axis before the matrix was moved to the front
            axes = [*axes[1:-1], 0, axes[-1]]
        if attrs.get(f"trans{letter}") and rank > 1:
            axes[-2:] = axes[:-3:-1]
        views.append(transposed(view, axes))
    alpha = attrs.get("alpha")
    lower_product(ctx, group, views[0], views[1], 1.0 if alpha is None else float(alpha))


@template("Gemm", types={"T": SUMMED}, accepts=_accepts, fuses=True, writes_anywhere=True)
def gemm(ctx: LowerContext, group: Group) -> None:
    """alpha * A * B + beta * C."""
    _gemm(ctx, group, None)


@template("FusedGemm", domain="com.microsoft", types={"T": SUMMED}, accepts=_accepts_fused_gemm, fuses=True)
def fused_gemm(ctx: LowerContext, group: Group) -> None:
    """Gemm and an activation."""
    assert group.root is not None
    _gemm(ctx, group, attribute_values(group.root).get("activation"))


def _gemm(ctx: LowerContext, group: Group, activation: str | None) -> None:
    node = group.root
    assert node is not None
    attrs = attribute_values(node)
    a, b = _input(node, 0), _input(node, 1)
    c = node.inputs[2] if len(node.inputs) > 2 else None
    views = [transposed(ctx.view(value), [1, 0] if attrs.get(name) else [0, 1]) for value, name in ((a, "transA"), (b, "transB"))]
    alpha, beta = (1.0 if attrs.get(name) is None else float(attrs[name]) for name in ("alpha", "beta"))
    lower_product(ctx, group, views[0], views[1], alpha, c if beta != 0.0 else None, beta, relu=activation == "Relu")


def _input(node: Node, position: int) -> Value:
    value = node.inputs[position]
    assert value is not None, node
    return value


def lower_product(
    ctx: LowerContext,
    group: Group,
    a: View,
    b: View,
    alpha: float,
    c: Value | None = None,
    beta: float = 1.0,
    *,
    relu: bool = False,
) -> None:
    """The steps of a product of views whose last two axes are matrices."""
    node = group.root
    assert node is not None
    assert group.shape is not None
    kind = compute_type(a.buffer.dtype.name)
    *parts, last = depth_parts(a, b, product(group.shape[:-1]), kind, ctx.target, halves=_takes_halves(node))
    before = _sums_of_parts(ctx, group, parts, kind) if parts and ctx.escaping(group) else None

    def root(operand: OperandNumber) -> dict[Value, Expr]:
        value = accumulator(kind)
        if before is not None:
            value = value + load(operand(before), kind)
        value = value * const(alpha, kind)
        if c is not None:
            ctx.check_broadcast(ctx.shape(c), ctx.shape(node.outputs[0]))
            value = value + load(operand(c), ctx.dtype(c).name).cast(kind) * const(beta, kind)
        if relu:
            value = clamp(value, 0, None)
        return {node.outputs[0]: value}

    epilogue = group_epilogue(ctx, group, root)
    if epilogue.stores:
        _lower_part(ctx, group, last, epilogue)


def _takes_halves(node: Node) -> bool:
    """Whether the product may be computed by Strassen's algorithm."""
    return bool(attribute_values(node).get("_halves"))


def _sums_of_parts(ctx: LowerContext, group: Group, parts: Sequence[DepthPart], kind: str) -> View:
    """The steps of all parts of the depth but the last; their sum."""
    assert group.shape is not None
    before: View | None = None
    for part in parts:
        total = ctx.scratch(dtypes.from_name(kind), group.shape, "sums of a part of the depth")
        value = accumulator(kind)
        views = (total,) if before is None else (before, total)
        if before is not None:
            value = value + load(0, kind)
        _lower_part(ctx, group, part, GroupEpilogue(views, ((len(views) - 1, value),)))
        before = total
    assert before is not None
    return before


def _lower_part(ctx: LowerContext, group: Group, part: DepthPart, epilogue: GroupEpilogue) -> None:
    """The steps of a product, or of a part of its depth."""
    node = group.root
    assert node is not None
    assert group.shape is not None
    kind = compute_type(part.a.buffer.dtype.name)
    a, b, shape, operand_strides = as_matrices(part.a, part.b, epilogue, group.shape)
    a, shape, operand_strides = with_known_rows(a, b, shape, operand_strides)
    if _takes_halves(node):
        a, shape, operand_strides = in_entries(ctx, _input(node, 0), a, shape, operand_strides)
        StrassenProduct(ctx, group, a, b, epilogue, shape, operand_strides, kind).lower()
        return
    _product_of(ctx, a, b)(ctx, group, a, b, epilogue, shape, operand_strides, kind).lower()


def product_into(ctx: LowerContext, group: Group, a: View, b: View, epilogue: GroupEpilogue, shape: Sequence[Dim]) -> None:
    """The steps of a product of views with an epilogue of its own; `shape` is [*batch, rows, columns]."""
    operand_strides = [list(strides) for strides in epilogue.strides(shape)]
    kind = compute_type(a.buffer.dtype.name)
    _product_of(ctx, a, b)(ctx, group, a, b, epilogue, list(shape), operand_strides, kind).lower()


def _product_of(ctx: LowerContext, a: View, b: View) -> type[Product]:
    """How the product of two operands is computed."""
    narrow = all(view.buffer.dtype is dtypes.BFLOAT16 for view in (a, b))
    return PairProduct if narrow and is_fixed(b) and multiplies_pairs(ctx.target) else Product
