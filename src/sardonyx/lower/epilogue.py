"""The elementwise nodes of a template's group as an epilogue: which operands it reads and which values it stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, Union

from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Value
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.expr import BITS, Expr
from sardonyx.kernel.loops import Inner, Operand
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import broadcast_strides
from sardonyx.lower.lowering import LowerContext
from sardonyx.program.steps import Buffer, View
from sardonyx.records import dataclass


@dataclass(frozen=True)
class GroupEpilogue:
    """An epilogue before its kernel is known: views of the operands, in order, and what is stored in the last of them."""

    views: tuple[View, ...]
    stores: tuple[tuple[int, Expr], ...]

    @property
    def written(self) -> tuple[int, ...]:
        """The operands that are stored to."""
        return tuple(number for number, _ in self.stores)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers that are loaded from."""
        return tuple(view.buffer for number, view in enumerate(self.views) if number not in self.written)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers that are stored to."""
        return tuple(self.views[number].buffer for number in self.written)

    def strides(self, shape: Sequence[Dim]) -> list[tuple[Dim, ...]]:
        """How every operand moves over the shape of the result."""
        return [broadcast_strides(view, shape) for view in self.views]

    def for_kernel(self, inner: Sequence[Dim], rows: Sequence[Dim] | None = None) -> Epilogue:
        """The epilogue of a kernel, given the operands' strides along its vector axis and, if it asks, from row to row."""
        written = set(self.written)
        operands = []
        for number, (view, stride) in enumerate(zip(self.views, inner)):
            kind = view.buffer.dtype.name
            if number in written:  # a result of one column moves by 0 as well as by 1; only 1 can be stored to
                operands.append(Operand(kind, "any" if _inner(stride) == "any" else "unit"))
            else:
                operands.append(Operand(kind, _inner(stride), rows is not None and rows[number] == 0))
        return Epilogue(tuple(operands), self.stores)

    def in_place(self, strides: Sequence[Sequence[Dim]], elsewhere: Sequence[Buffer]) -> tuple[tuple[Buffer, Buffer], ...]:
        """Operands that may be overwritten by a result: those read exactly where it is stored, and by nobody `elsewhere`."""
        pairs = []
        for target in self.written:
            for source, view in enumerate(self.views):
                result = self.views[target]
                if (
                    source not in self.written
                    and all(view.buffer is not buffer for buffer in elsewhere)
                    and list(strides[source]) == list(strides[target])
                    and view.offset == 0 == result.offset
                    and view.buffer.size == result.buffer.size
                    and BITS[view.buffer.dtype.name] == BITS[result.buffer.dtype.name]
                ):
                    pairs.append((view.buffer, result.buffer))
        return tuple(pairs)


def _inner(stride: Dim) -> Inner:
    return "unit" if stride == 1 else "zero" if stride == 0 else "any"


OperandNumber: TypeAlias = Callable[[Union[Value, View]], int]  # of a value, or of memory that broadcasts to the result


def group_epilogue(ctx: LowerContext, group: Group, root: Callable[[OperandNumber], dict[Value, Expr]]) -> GroupEpilogue:
    """The epilogue of a group. `root` gives the expressions of the root node's outputs; it may ask for operands itself."""
    views: list[View] = []
    numbers: dict[View, int] = {}

    def operand(value: Value | View) -> int:
        view = value if isinstance(value, View) else ctx.view(value)
        if set(view.shape) <= {1}:  # a number is one operand, whoever reads it
            view = View(view.buffer, (), (), view.offset)
        if view not in numbers:
            numbers[view] = len(views)
            views.append(view)
        return numbers[view]

    made = ctx.expressions(group, root(operand), operand, shared=True)
    stores = []
    for value in ctx.escaping(group):
        stores.append((len(views), made[value].cast(ctx.dtype(value).name)))
        views.append(ctx.output(value))
    return GroupEpilogue(tuple(views), tuple(stores))
