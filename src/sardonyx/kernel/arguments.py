"""What a kernel is called with: the entries of its argument array, by name.

    @property
    def arguments(self) -> Arguments:
        return Arguments(numbers("outer", self.outer), number("rows"), tensor("source", self.outer + 1), address("indices"))

A specification declares its record once. Lowering makes the array of it by name, emitters load it by name
(`codegen.arguments`); where an entry stands, nobody else knows. Entries are 64-bit numbers (sizes, strides in elements) and
addresses.

    number, address     one entry
    numbers, addresses  several of a kind
    tensor              an address and strides; given as a pair (address, strides)
    tensors             several tensors with equally many strides each
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from sardonyx.records import dataclass

Kind: TypeAlias = Literal["number", "address", "tensor"]


@dataclass(frozen=True, slots=True)
class Field:
    """A named part of the record. `count` is None for one of its kind, else there is a sequence of so many."""

    name: str
    kind: Kind
    count: int | None = None
    strides: int = 0  # of each tensor

    @property
    def entries(self) -> int:
        """How many entries it takes."""
        each = 1 + self.strides if self.kind == "tensor" else 1
        return each if self.count is None else each * self.count


def number(name: str) -> Field:
    """A size or a stride."""
    return Field(name, "number")


def numbers(name: str, count: int) -> Field:
    """Sizes or strides."""
    return Field(name, "number", count)


def address(name: str) -> Field:
    """Where something lies."""
    return Field(name, "address")


def addresses(name: str, count: int) -> Field:
    """Where several things lie."""
    return Field(name, "address", count)


def tensor(name: str, strides: int) -> Field:
    """Where a tensor lies, and so many of its strides."""
    return Field(name, "tensor", None, strides)


def tensors(name: str, count: int, strides: int) -> Field:
    """Several tensors."""
    return Field(name, "tensor", count, strides)


class Arguments:
    """The record of a kernel: fields in the order in which their entries lie."""

    __slots__ = ("fields",)

    def __init__(self, *fields: Field) -> None:
        names = [field.name for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"two arguments of a kernel have one name: {', '.join(names)}")
        self.fields = fields

    @property
    def count(self) -> int:
        """How many entries the array has."""
        return sum(field.entries for field in self.fields)

    def position(self, name: str) -> int:
        """Where the entries of a field begin."""
        at = 0
        for field in self.fields:
            if field.name == name:
                return at
            at += field.entries
        raise KeyError(name)

    def entries(self, **given: Any) -> tuple[Any, ...]:
        """The array, out of a value for every field; one that is missing, unknown or of another form is an error."""
        names = {field.name for field in self.fields}
        if given.keys() != names:
            missing, surplus = sorted(names - given.keys()), sorted(given.keys() - names)
            raise TypeError(f"arguments of a kernel: missing {missing}, unknown {surplus}")
        found: list[Any] = []
        for field in self.fields:
            value = given[field.name]
            if field.count is None:
                found += _entries(field, value)
                continue
            if len(value) != field.count:
                raise TypeError(f"argument {field.name!r} of a kernel: expected {field.count} of it, found {len(value)}")
            for each in value:
                found += _entries(field, each)
        return tuple(found)


def _entries(field: Field, value: Any) -> Sequence[Any]:
    if field.kind == "tensor":
        where, strides = value
        if len(strides) != field.strides:
            raise TypeError(f"argument {field.name!r} of a kernel: expected {field.strides} strides, found {len(strides)}")
        return [_checked(field, where, True), *(_checked(field, stride, False) for stride in strides)]
    return [_checked(field, value, field.kind == "address")]


def _checked(field: Field, value: Any, wants_address: bool) -> Any:
    """An address says which buffer it lies in; anything else is a number or an expression of sizes."""
    if hasattr(value, "buffer") is not wants_address:
        raise TypeError(
            f"argument {field.name!r} of a kernel: expected {'an address' if wants_address else 'a number'}, found {value!r}"
        )
    return value
