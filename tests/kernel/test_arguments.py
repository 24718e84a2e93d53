"""The record of a kernel's arguments: built by name, loaded by name, and wrong ones are refused."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import Any

import pytest

from sardonyx import dtypes
from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.emit import EMITTERS, emitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.kernel.arguments import Arguments, address, addresses, number, numbers, tensor, tensors
from sardonyx.program.steps import Address, Buffer, Storage

RECORD = Arguments(
    numbers("outer", 2), number("rows"), address("table"), tensor("x", 2), tensors("operands", 2, 1), addresses("w", 1)
)
BUFFER = Address(Buffer(Storage.ARENA, dtypes.FLOAT32, 8))
GIVEN: dict[str, Any] = {
    "outer": (2, 3),
    "rows": 4,
    "table": BUFFER,
    "x": (BUFFER, [5, 6]),
    "operands": [(BUFFER, [7]), (BUFFER, [8])],
    "w": [BUFFER],
}


def test_entries_lie_in_the_order_of_the_record_whatever_the_order_they_are_given_in() -> None:
    expected = (2, 3, 4, BUFFER, BUFFER, 5, 6, BUFFER, 7, BUFFER, 8, BUFFER)
    assert RECORD.entries(**GIVEN) == expected
    assert RECORD.entries(**dict(reversed(GIVEN.items()))) == expected
    assert RECORD.count == len(expected)
    assert [RECORD.position(field.name) for field in RECORD.fields] == [0, 2, 3, 4, 7, 11]
    with pytest.raises(KeyError, match="columns"):
        RECORD.position("columns")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"columns": 1}, r"missing \[\], unknown \['columns'\]"),
        ({"rows": None}, "argument 'rows'|missing"),
        ({"outer": (1,)}, "argument 'outer' of a kernel: expected 2 of it, found 1"),
        ({"x": (BUFFER, [1])}, "argument 'x' of a kernel: expected 2 strides, found 1"),
        ({"table": 3}, "argument 'table' of a kernel: expected an address, found 3"),
        ({"rows": BUFFER}, "argument 'rows' of a kernel: expected a number"),
        ({"operands": [(BUFFER, [1])]}, "argument 'operands' of a kernel: expected 2 of it, found 1"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], text: str) -> None:
    given = {key: value for key, value in {**GIVEN, **change}.items() if value is not None}
    with pytest.raises(TypeError, match=text):
        RECORD.entries(**given)


def test_two_arguments_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        Arguments(number("x"), address("x"))


def test_an_emitter_loads_them_by_name() -> None:
    f = FunctionBuilder("k", [("args", "ptr")])
    a = Loaded(f, RECORD)
    text = f.finish()
    assert len(a.several("outer")) == 2
    assert f"{a['rows']} = load i64" in text
    assert f"{a['table']} = load ptr" in text
    assert f"{a.tensor('x').base} = load ptr" in text
    assert len(a.tensor("x").strides) == 2
    assert [len(each.strides) for each in a.tensors("operands")] == [1, 1]
    assert f"{a.several('w')[0]} = load ptr" in text
    assert text.count("load ") == RECORD.count
    assert "rows" in a
    assert "columns" not in a
    assert "i64 11" in text  # the last entry


@pytest.mark.parametrize("name", EMITTERS)
def test_every_specification_is_keyword_only_and_owns_its_record(name: str) -> None:
    place, _, class_name = name.rpartition(".")
    specification = getattr(importlib.import_module(f"sardonyx.kernel.{place}"), class_name)
    assert callable(emitter(specification))
    assert specification.__setattr__ is not object.__setattr__  # frozen
    assert all(field.kw_only for field in dataclasses.fields(specification))
    assert isinstance(inspect.getattr_static(specification, "arguments"), property)
