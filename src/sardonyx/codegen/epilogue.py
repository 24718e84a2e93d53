"""Epilogues -> LLVM: a vector of finished sums becomes what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import Expr, load
from sardonyx.target.target import Target

_LOOKUPS: Final = 4  # vectors whose lookups share a register


class Sums(NamedTuple):
    """A vector of finished sums: where it is stored, and what is known there."""

    value: str
    pointers: Sequence[str]  # of the operands, at the start of the row
    position: str | int
    known: Mapping[Expr, str]


class EpilogueEmitter:
    """Writes an epilogue for one vector at a time.

    `pointers` are where the operands lie at the start of the row (or pixel) being stored; `strides` are their strides along
    the vector axis, used for operands whose `inner` is "any".
    """

    def __init__(self, epilogue: Epilogue, function: FunctionBuilder, lanes: int, target: Target | None = None) -> None:
        self.epilogue = epilogue
        self.f = function
        self.e = VectorEmitter(function, lanes, target)

    def numbers(self, pointers: Sequence[str]) -> dict[Expr, str]:
        """What is the same in all rows and along each: load it once, then pass it to `uniform` for each row."""
        known: dict[Expr, str] = {}
        for number in self.epilogue.read:
            operand = self.epilogue.operands[number]
            if operand.inner == "zero" and operand.same_rows:
                known[load(number, operand.type)] = self.e.load_scalar(pointers[number], operand.type)
        return known

    def uniform(self, pointers: Sequence[str], numbers: Mapping[Expr, str] = MappingProxyType({})) -> dict[Expr, str]:
        """What is the same along the whole row: load it once, then pass it to `vector` for each piece of the row."""
        known = dict(numbers)
        for number in self.epilogue.read:
            operand = self.epilogue.operands[number]
            if operand.inner == "zero" and load(number, operand.type) not in known:
                known[load(number, operand.type)] = self.e.load_scalar(pointers[number], operand.type)
        return known

    def columns(
        self, pointers: Sequence[str], strides: Sequence[str], position: str | int, count: str | None = None
    ) -> dict[Expr, str]:
        """Operands at a position of the vector axis; worth keeping where several rows read the same."""
        mask = None if count is None else self.e.mask_below(count)
        known: dict[Expr, str] = {}
        for number in self.epilogue.read:
            operand = self.epilogue.operands[number]
            if operand.inner != "zero":
                known[load(number, operand.type)] = self._load(number, pointers[number], strides[number], position, mask, count)
        return known

    def same(
        self, pointers: Sequence[str], strides: Sequence[str], position: str | int, count: str | None = None
    ) -> dict[Expr, str]:
        """Operands that are the same in all rows, at a position of the vector axis."""
        mask = None if count is None else self.e.mask_below(count)
        known = self.numbers(pointers)
        for number in self.epilogue.read:
            operand = self.epilogue.operands[number]
            if operand.same_rows and operand.inner != "zero":
                known[load(number, operand.type)] = self._load(number, pointers[number], strides[number], position, mask, count)
        return known

    @property
    def together(self) -> int:
        """How many vectors gain by being made together: lookups share their instructions."""
        return _LOOKUPS if self.epilogue.has_lookups else 1

    def vector(
        self,
        sums: str,
        type: str,
        pointers: Sequence[str],
        strides: Sequence[str],
        position: str | int,
        *,
        known: dict[Expr, str] | None = None,
        count: str | None = None,
    ) -> list[str]:
        """Evaluate and store at `position` along the row; with `count`, only the first lanes exist. Returns what is stored."""
        return self.vectors([Sums(sums, pointers, position, known or {})], type, strides, count=count)[0]

    def vectors(
        self, all_sums: Sequence[Sums], type: str, strides: Sequence[str], *, count: str | None = None
    ) -> list[list[str]]:
        """The same for several vectors, operation by operation."""
        mask = None if count is None else self.e.mask_below(count)
        values = [self._values(sums, type, strides, mask, count) for sums in all_sums]
        made = self.e.emit_together([value for _, value in self.epilogue.stores], values)
        for sums, stored in zip(all_sums, made):
            self._store(sums, stored, strides, mask, count)
        return made

    def _values(self, sums: Sums, type: str, strides: Sequence[str], mask: str | None, count: str | None) -> dict[Expr, str]:
        values = {**sums.known, accumulator(type): sums.value}
        for number in self.epilogue.read:
            operand = self.epilogue.operands[number]
            node = load(number, operand.type)
            if node in values:
                continue
            if operand.inner == "zero":
                values[node] = self.e.load_scalar(sums.pointers[number], operand.type)
            else:
                values[node] = self._load(number, sums.pointers[number], strides[number], sums.position, mask, count)
        return values

    def _store(self, sums: Sums, made: list[str], strides: Sequence[str], mask: str | None, count: str | None) -> None:
        for (number, _), value in zip(self.epilogue.stores, made):
            operand, pointer = self.epilogue.operands[number], sums.pointers[number]
            if operand.inner == "unit":
                at = self.f.element(pointer, memory_type(operand.type), sums.position)
                self.e.store(at, value, operand.type, mask)
            else:
                at = self._strided(pointer, operand.type, strides[number], sums.position)
                self.e.store_strided(at, strides[number], value, operand.type, count)

    def _load(self, number: int, pointer: str, stride: str, position: str | int, mask: str | None, count: str | None) -> str:
        operand = self.epilogue.operands[number]
        if operand.inner == "unit":
            return self.e.load(self.f.element(pointer, memory_type(operand.type), position), operand.type, mask)
        return self.e.load_any(self._strided(pointer, operand.type, stride, position), stride, operand.type, mask, count)

    def _strided(self, pointer: str, kind: str, stride: str, position: str | int) -> str:
        return self.f.element(pointer, memory_type(kind), self.f.mul(position, stride))
