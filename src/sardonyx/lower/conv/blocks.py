"""Results in the blocked layout that a step shall compute, and what such steps share: operands, zeros, views, bands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.kernel.expr import BITS
from sardonyx.lower.conv.conv_geometry import Geometry, blocked_view
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.program.steps import Address, Buffer, View, whole
from sardonyx.records import dataclass

_BAND_PIXELS: Final = 80  # of an image, at least

Operands: TypeAlias = list[tuple[Address, Sequence[Dim]]]


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A result in the blocked layout that a step shall compute: the geometry of its windows, its epilogue and their operands."""

    ctx: LowerContext
    group: Group
    geometry: Geometry
    block: int
    epilogue: GroupEpilogue
    operand_strides: list[tuple[Dim, ...]]  # of the epilogue's operands: batch, block, plane, row, column, lane
    shift: tuple[Dim, ...] = (0, 0, 0)  # where the first pixel lies, in strides of the whole result
    whole_strides: list[tuple[Dim, ...]] | None = None  # those strides, if `operand_strides` are others

    def operands(self, operand_strides: list[tuple[Dim, ...]]) -> Operands:
        """The operands of the epilogue, as arguments of the kernel."""
        offsets = [
            sum_of(at * stride for at, stride in zip(self.shift, own[2:5])) for own in self.whole_strides or self.operand_strides
        ]
        return operand_arguments(self.epilogue, operand_strides, offsets)

    def is_dense(self, operand_strides: list[tuple[Dim, ...]]) -> bool:
        """Whether results are written without gaps between pixels."""
        return all(operand_strides[number][4] == self.block for number in self.epilogue.written)

    def in_place(self, elsewhere: View) -> tuple[tuple[Buffer, Buffer], ...]:
        """Buffers that may share memory. Of a result that is written in several steps none may."""
        return () if self.whole_strides is not None else self.epilogue.in_place(self.operand_strides, [elsewhere.buffer])


def operand_arguments(epilogue: GroupEpilogue, operand_strides: Sequence[Sequence[Dim]], offsets: Sequence[Dim]) -> Operands:
    """The operands of an epilogue over a blocked result, as arguments of its kernel."""
    arguments: Operands = []
    for view, own, offset in zip(epilogue.views, operand_strides, offsets):
        size = BITS[view.buffer.dtype.name] // 8
        arguments.append((Address(view.buffer, (view.offset + offset) * size), own[:-1]))
    return arguments


def named(names: str, values: Sequence[Dim]) -> dict[str, Dim]:
    """Arguments of a kernel, several at once: names with spaces between them."""
    return dict(zip(names.split(), values, strict=True))


def zeros(ctx: LowerContext, block: int) -> View:
    """A block of zeros: what lies outside of an image."""
    return ctx.literal(np.zeros(block, np.float32))


def bands_of(pixels: int) -> int:
    """Bands of an image that are computed one after another, or by different workers: an even number, of not too few pixels."""
    return 4 if pixels >= 4 * _BAND_PIXELS else 2 if pixels >= 2 * _BAND_PIXELS else 1


def whole_view(view: View, shape: Sequence[Dim]) -> View:
    """A contiguous view in another shape."""
    return replace(whole(view.buffer, shape), offset=view.offset)


def dense_blocks(ctx: LowerContext, x: View) -> View:
    """A blocked view with three spatial axes, whose columns and lanes lie without gaps."""
    view = blocked_view(x)
    block = view.shape[-1]
    if view.strides[-1] == 1 and (view.strides[-2] == block or view.shape[-2] == 1):
        return replace(view, strides=(*view.strides[:-2], block, 1))
    return blocked_view(ctx.copy(x, ctx.scratch(x.buffer.dtype, x.shape), "copy"))


def ceildiv_int(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def sum_of(values: Iterable[Dim]) -> Dim:
    """The sum of dimensions."""
    total: Dim = 0
    for value in values:
        total = total + value
    return total
