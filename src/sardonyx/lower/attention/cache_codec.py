"""How a cache holds keys or values: as they are, in narrow floats, or in 8 or 4 bits with scales (`ops/attention`).

New rows are encoded by a loop before they are appended; the filled rows of a cache become numbers by a kernel that looks at no
others.
"""

from __future__ import annotations

from typing import Literal

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, floordiv, product
from sardonyx.kernel.attention.cache_rows import CacheRowsKernel, units
from sardonyx.kernel.expr import Expr, clamp, const, load, select, unary
from sardonyx.lower.attention.operands import consecutive
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.program.steps import KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost

STORED_AS = {8: "i8", 4: "u8"}  # element types by bits
_ZERO_OF_PAIRS = 8


@dataclass(frozen=True)
class CacheCodec:
    """Rows of `size` columns; `bits` is 0 for floats. `scales` [1] or [heads * size]."""

    dtype: dtypes.DType
    bits: int
    size: Dim
    scales: View | None
    per_column: bool

    @property
    def width(self) -> Dim:
        """Elements of a stored row."""
        return floordiv(self.size, 2) if self.bits == 4 else self.size

    def encoded(self, ctx: LowerContext, group: Group, rows: View) -> View:
        """Rows [batch, heads, time, size] as they are stored."""
        if not self.bits:
            return consecutive(ctx, rows, self.dtype.name, group)
        assert self.scales is not None
        shape = (*rows.shape[:3], self.width)
        target = ctx.scratch(self.dtype, shape, "encoded")
        kind = rows.buffer.dtype.name
        scales = View(self.scales.buffer, (1, rows.shape[1], 1, self.size), self._steps(), self.scales.offset)
        parts = [rows, scales] if self.bits == 8 else [_every_other(view, half) for half in (0, 1) for view in (rows, scales)]
        views = [*parts, target]
        types = [view.buffer.dtype.name for view in views]
        numbers = [
            self._whole(load(position, kind).cast("f32"), load(position + 1, "f32")) for position in range(0, len(parts), 2)
        ]
        value = numbers[0].cast("i8")
        if self.bits == 4:
            lower, upper = ((number + float(_ZERO_OF_PAIRS)).cast("i32") for number in numbers)
            value = (lower | (upper << const(4, "i32"))).cast("u8")
        nodes = tuple(node.label for node in group.nodes)
        stores = [(len(views) - 1, value)]
        ctx.step(loop_step(shape, views, types, stores, target=ctx.target, label="encode", nodes=nodes))
        return target

    def _steps(self) -> tuple[Dim, Dim, Dim, Dim]:
        return (0, self.size, 0, 1) if self.per_column else (0, 0, 0, 0)

    def _whole(self, number: Expr, scale: Expr) -> Expr:
        """A number in steps of its scale."""
        inverse = const(1.0, "f32") / select(scale.eq(0.0), const(1.0, "f32"), scale)
        limit = float(1 << (self.bits - 1))
        return clamp(unary("round", number * inverse), -limit, limit - 1)

    def filled(self, ctx: LowerContext, group: Group, stored: View, kind: str, lengths: View, more: int) -> View:
        """Stored rows [batch, heads, room, width] as numbers, as many as each batch entry has; nothing is behind them."""
        batch, heads, room, _ = stored.shape
        wide = ctx.scratch(dtypes.from_name(kind), (batch, heads, room, self.size), "cache")
        scales: Literal["", "one", "columns"] = "" if not self.bits else "columns" if self.per_column else "one"
        kernel = CacheRowsKernel(
            stored="u4" if self.bits == 4 else stored.buffer.dtype.name,
            type=kind,
            scales=scales,
            lengths=lengths.buffer.dtype.name,
            more=more,
        )
        arguments = kernel.arguments.entries(
            heads=heads,
            room=room,
            columns=self.size,
            stored=(stored.address, stored.strides[:3]),
            wide=(wide.address, wide.strides[:3]),
            lengths=lengths.address,
            **({} if self.scales is None or not self.bits else {"scales": self.scales.address}),
        )
        read = [stored.buffer, lengths.buffer, *([self.scales.buffer] if self.bits and self.scales is not None else [])]
        ctx.step(
            KernelStep(
                kernel,
                arguments,
                units(batch, heads, room),
                cost.loop(product([batch, heads, room, self.size]), 1, 2),
                tuple(dict.fromkeys(read)),
                (wide.buffer,),
                "rows of the cache",
                tuple(node.label for node in group.nodes),
            )
        )
        return wide

    def is_wide(self, kind: str) -> bool:
        """Whether rows are computed with as they are stored."""
        return not self.bits and self.dtype.name == kind


def _every_other(view: View, first: int) -> View:
    """The columns with even or with odd numbers."""
    *outer, size = view.shape
    return View(
        view.buffer,
        (*outer, floordiv(size, 2)),
        (*view.strides[:-1], view.strides[-1] * 2),
        view.offset + first * view.strides[-1],
    )
