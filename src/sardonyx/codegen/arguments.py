"""The arguments of a kernel, loaded by the names its specification gives them (`kernel.arguments`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from sardonyx.codegen.function import FunctionBuilder
from sardonyx.kernel.arguments import Arguments, Field


class MemRef(NamedTuple):
    """A tensor in memory: its first element and strides, in elements."""

    base: str
    strides: list[str]


class Loaded:
    """All arguments of a kernel in registers. `a["rows"]` is a number or an address; others are asked for by their kind."""

    def __init__(self, function: FunctionBuilder, record: Arguments) -> None:
        self._at = 0
        self._f = function
        self._values = {field.name: self._field(field) for field in record.fields}

    def _field(self, field: Field) -> Any:
        return self._one(field) if field.count is None else [self._one(field) for _ in range(field.count)]

    def _one(self, field: Field) -> str | MemRef:
        if field.kind == "tensor":
            return MemRef(self._entry("ptr"), [self._entry("i64") for _ in range(field.strides)])
        return self._entry("ptr" if field.kind == "address" else "i64")

    def _entry(self, kind: str) -> str:
        self._at += 1
        return self._f.argument("%args", self._at - 1, kind)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> str:
        found = self._values[name]
        assert isinstance(found, str), name
        return found

    def several(self, name: str) -> list[str]:
        """Numbers or addresses."""
        found: list[str] = self._values[name]
        assert isinstance(found, list), name
        return found

    def tensor(self, name: str) -> MemRef:
        """A tensor."""
        found = self._values[name]
        assert isinstance(found, MemRef), name
        return found

    def tensors(self, name: str) -> list[MemRef]:
        """Several tensors."""
        found: list[MemRef] = self._values[name]
        assert isinstance(found, list), name
        return found
