"""Lookups in tables of 256 bytes: permutations of registers, or loads one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sardonyx.codegen.element_types import wide_type

if TYPE_CHECKING:
    from sardonyx.codegen.function import FunctionBuilder
    from sardonyx.codegen.vector import VectorEmitter

_TABLE_PART: Final = 64  # entries of a table that a register holds


def look_up(e: VectorEmitter, table: bytes, values: Sequence[str]) -> list[str]:
    """The entries of a table for several vectors of bytes.

    Where bytes can be permuted, as many vectors as fit share the registers, and with them the instructions.
    """
    if not 1 < e.lanes <= _TABLE_PART or e.target is None or not e.target.has_byte_permute:
        return [_looked_up_one_by_one(e, table, value) for value in values]
    f, lanes, part = e.f, e.lanes, f"<{_TABLE_PART} x i8>"
    most, results = max(_TABLE_PART // lanes, 1), []
    for start in range(0, len(values), most):
        joined, width = list(values[start : start + most]), lanes
        count = len(joined)
        joined += ["poison"] * (-count % (1 << (count - 1).bit_length()))
        while width < _TABLE_PART:
            kind, order = wide_type("i8", width), ", ".join(f"i32 {lane}" for lane in range(2 * width))
            pairs = zip(joined[::2], joined[1::2] or ["poison"])
            joined = [f.let(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{order}>") for a, b in pairs]
            width *= 2
        found = _permuted(f, table, joined[0])
        for number in range(count):
            order = ", ".join(f"i32 {lane}" for lane in range(number * lanes, (number + 1) * lanes))
            results.append(f.let(f"shufflevector {part} {found}, {part} poison, <{lanes} x i32> <{order}>"))
    return results


def _permuted(f: FunctionBuilder, table: bytes, byte: str) -> str:
    """The entries of a table for a register of bytes."""
    part, halves = f"<{_TABLE_PART} x i8>", []
    for start in (0, 2 * _TABLE_PART):
        both = [_bytes(table[first : first + _TABLE_PART]) for first in (start, start + _TABLE_PART)]
        halves.append(f.call(part, "llvm.x86.avx512.vpermi2var.qi.512", (part, both[0]), (part, byte), (part, both[1])))
    high = f.let(f"icmp slt {part} {byte}, zeroinitializer")
    return f.let(f"select <{_TABLE_PART} x i1> {high}, {part} {halves[1]}, {part} {halves[0]}")


def _looked_up_one_by_one(e: VectorEmitter, table: bytes, value: str) -> str:
    """Loads from a constant of the module, which functions with the same table share."""
    f, result, name = e.f, "poison", f"@bytes_{hashlib.sha256(table).hexdigest()[:16]}"
    entries = ", ".join(f"i8 {each}" for each in table)
    f.declarations.add(f"{name} = private unnamed_addr constant [{len(table)} x i8] [{entries}], align 64")
    for lane in range(e.lanes):
        one = value if e.lanes == 1 else f.let(f"extractelement {e.type('u8')} {value}, i32 {lane}")
        at = f.element(name, "i8", f.let(f"zext i8 {one} to i64", "i"))
        found = f.let(f"load i8, ptr {at}, align 1")
        if e.lanes == 1:
            return found
        result = f.let(f"insertelement {e.type('u8')} {result}, i8 {found}, i32 {lane}")
    return result


def _bytes(values: bytes) -> str:
    return f"<{', '.join(f'i8 {each}' for each in values)}>"
