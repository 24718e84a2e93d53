"""Matrix products: MatMul, Gemm, FusedMatMul, FusedGemm, with the elementwise nodes that follow in their epilogue.

A constant B is packed into strips when the program is made. A computed one is packed by a step of its own if enough rows use it,
or used as it lies. Products that are only a few rows or columns wide and lie along their depth are sums over it: loop kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim, ceildiv, dim_max, dim_min, floordiv, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel import matmul as matmul_kernel
from sardonyx.kernel import pack as pack_kernel
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import BITS, FLOATS, Expr, const, load, reduced, replace, walk
from sardonyx.kernel.matmul import MatMulKernel, heights, strip_vectors, tallest, vector_lanes
from sardonyx.kernel.pack import PackKernel
from sardonyx.lower.epilogue import GroupEpilogue, group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import broadcast_strides, loop_step, merge_axes
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template
from sardonyx.lower.steps import Address, Argument, Buffer, KernelStep, View, row_major

_SUMMED: Final = frozenset(("f32", "f64", "f16", "bf16", "i32", "i64", "u32", "u64"))
_PACK_FROM: Final = 24  # rows of A from which on it pays to pack a computed B that could be used as it lies
_GROUP_BYTES: Final = 512 << 10  # of A that stay in the cache while all strips pass by
_FEW: Final = 2  # rows or columns up to which a product is a sum along the depth
_ALIAS: Final = 4096  # bytes: rows this far apart meet in the same place of the first cache
_NANOSECONDS: Final = {"f32": 0.0176, "f64": 0.035}  # of one multiply-add in a full tile


def _accepts(node: Node) -> str:
    kinds = {value.type.dtype.name for value in node.inputs if value is not None and isinstance(value.type, TensorType)}
    if len(kinds) != 1 or not kinds <= _SUMMED:
        return f"no kernel for products of {', '.join(sorted(kinds))}"
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


@template("MatMul", accepts=_accepts, fuses=True)
def matmul(ctx: LowerContext, group: Group) -> None:
    """NumPy's product: the last two axes are matrices, the others are broadcast; a vector is a row or a column."""
    node = group.root
    assert node is not None
    a, b = _input(node, 0), _input(node, 1)
    _product(ctx, group, ctx.view(a), ctx.view(b), b, 1.0)


@template("FusedMatMul", "TransposeMatMul", domain="com.microsoft", accepts=_accepts, fuses=True)
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
        views.append(_permuted(view, axes))
    alpha = attrs.get("alpha")
    _product(ctx, group, views[0], views[1], b, 1.0 if alpha is None else float(alpha))


@template("Gemm", accepts=_accepts, fuses=True)
def gemm(ctx: LowerContext, group: Group) -> None:
    """alpha * A * B + beta * C."""
    _gemm(ctx, group, None)


@template("FusedGemm", domain="com.microsoft", accepts=_accepts_fused_gemm, fuses=True)
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
    views = [
        _permuted(ctx.view(value), [1, 0] if attrs.get(name) else [0, 1]) for value, name in ((a, "transA"), (b, "transB"))
    ]
    alpha, beta = (1.0 if attrs.get(name) is None else float(attrs[name]) for name in ("alpha", "beta"))
    _product(ctx, group, views[0], views[1], b, alpha, c if beta != 0.0 else None, beta, relu=activation == "Relu")


def _input(node: Node, position: int) -> Value:
    value = node.inputs[position]
    assert value is not None, node
    return value


def _permuted(view: View, axes: Sequence[int]) -> View:
    return View(view.buffer, tuple(view.shape[a] for a in axes), tuple(view.strides[a] for a in axes), view.offset)


def _inserted(view: View, axis: int) -> View:
    """The view with one more axis, of size 1."""
    at = len(view.shape) + 1 + axis
    return View(view.buffer, (*view.shape[:at], 1, *view.shape[at:]), (*view.strides[:at], 0, *view.strides[at:]), view.offset)


def _product(
    ctx: LowerContext,
    group: Group,
    a: View,
    b: View,
    b_value: Value,
    alpha: float,
    c: Value | None = None,
    beta: float = 1.0,
    *,
    relu: bool = False,
) -> None:
    """The steps of a product of views whose last two axes are matrices."""
    node = group.root
    assert node is not None and group.shape is not None
    kind = compute_type(a.buffer.dtype.name)

    def root(operand: Any) -> dict[Value, Expr]:
        value = accumulator(kind) * const(alpha, kind)
        if c is not None:
            value = value + load(operand(c), ctx.dtype(c).name).cast(kind) * const(beta, kind)
        if relu:
            value = Expr("maxr", kind, (const(0, kind), value))
        return {node.outputs[0]: value}

    epilogue = group_epilogue(ctx, group, root)
    if not epilogue.stores:
        return
    shape = list(group.shape)
    moves = [list(strides) for strides in epilogue.strides(shape)]
    if len(a.shape) == 1:
        a = _inserted(a, -2)
        at = len(shape) - (1 if len(b.shape) > 1 else 0)
        shape.insert(at, 1)
        for strides in moves:
            strides.insert(at, 0)
    if len(b.shape) == 1:
        b = _inserted(b, -1)
        shape.append(1)
        for strides in moves:
            strides.append(0)
    _Product(ctx, group, a, b, b_value, epilogue, shape, moves, kind).lower()


class _Product:
    """One product on its way to steps: shape is [*batch, rows, columns], `moves` are the epilogue's strides over it."""

    def __init__(
        self,
        ctx: LowerContext,
        group: Group,
        a: View,
        b: View,
        b_value: Value,
        epilogue: GroupEpilogue,
        shape: list[Dim],
        moves: list[list[Dim]],
        kind: str,
    ) -> None:
        self.ctx, self.group, self.a, self.b, self.b_value = ctx, group, a, b, b_value
        self.epilogue, self.shape, self.moves, self.kind = epilogue, shape, moves, kind
        self.rows, self.columns, self.depth = shape[-2], shape[-1], a.shape[-1]
        self.constant = b.buffer.kind == "constant" and b.buffer.load is not None and _is_static(b.shape)
        self.names = tuple(node.label for node in group.nodes)

    def lower(self) -> None:
        if self._is_sum():
            self._sum()
            return
        if self.a.buffer.dtype.name != self.kind:
            self.a = self._converted(self.a)
        if self.constant:
            self._tiles(self.rows_step_packed_constant())
        elif self.b.strides[-1] != 1 and self.columns != 1:
            self._packed_at_run_time(1)
        elif isinstance(self.rows, int):
            if self._flat_rows() >= _PACK_FROM and self._worth_packing():
                self._packed_at_run_time(1)
            else:
                self._as_it_lies(1)
        else:
            # Both ways are in the program; the one that does not fit the number of rows has no units.
            many = dim_min(floordiv(self.rows, _PACK_FROM), 1)
            self._packed_at_run_time(many)
            self._as_it_lies(1 - many)
