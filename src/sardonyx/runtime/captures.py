"""What a branch reads and captures, made when the side that is taken asks for it.

An array that looks into the memory of a context is made once: later runs have it again, as long as sizes and memory stay. Only
programs see these arrays; definitions of operators, which may remember what they were given, get new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from sardonyx.program.segments import BoundView, SegmentOperand
from sardonyx.runtime.executable import RunContext
from sardonyx.runtime.native_core import Array


class Captures(Sequence[Any]):
    """The values of some operands; `array` makes what a view shows, `read` finds all others. `lent` is told of views."""

    __slots__ = ("_array", "_context", "_lent", "_operands", "_read")

    def __init__(
        self,
        context: RunContext,
        operands: Sequence[SegmentOperand],
        array: Callable[[RunContext, BoundView], Array],
        read: Callable[[SegmentOperand], Any],
        lent: list[Array],
    ) -> None:
        self._context = context
        self._operands = operands
        self._array = array
        self._read = read
        self._lent = lent

    def __len__(self) -> int:
        return len(self._operands)

    @overload
    def __getitem__(self, position: int) -> Any: ...

    @overload
    def __getitem__(self, position: slice) -> list[Any]: ...

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[number] for number in range(len(self))[position]]
        operand = self._operands[position]
        view, context = operand.view, self._context
        if view is None:
            return self._read(operand)
        base, sizes = 0 if view.is_constant else context.bases.item(view.buffer), context.sizes
        known = context.lasting.get(view)
        if known is not None and known[0] is sizes and known[1] == base:
            array: Array = known[2]
        else:
            array = self._array(context, view)
            context.lasting[view] = sizes, base, array
        if not view.is_constant:
            self._lent.append(array)
        return array
