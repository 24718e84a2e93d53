"""Sums of products of small integers in lanes of 32 bits: the machine's instructions for them, or what does the same."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.element_types import constant
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.quant.block_product import has_byte_dots
from sardonyx.target.target import Target

_EIGHT: Final = "splat (i16 8)"
_PAIRS_OF_BYTES: Final = {
    512: "llvm.x86.avx512.pmaddubs.w.512",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
}


def dot_bytes(e: VectorEmitter, total: str, unsigned: str, signed: str) -> str:
    """total + the four products of the bytes of each lane, where the machine has it (`has_byte_dots`). All are vectors of i32."""
    width = e.lanes * 32
    kind, bytes_ = e.type("i32"), f"<{4 * e.lanes} x i8>"
    operands = [(bytes_, e.f.let(f"bitcast {kind} {value} to {bytes_}")) for value in (unsigned, signed)]
    return e.f.call(kind, f"llvm.x86.avx512.vpdpbusd.{width}", (kind, total), *operands)


def dot_unsigned_bytes(e: VectorEmitter, total: str, unsigned: str, signed: str, target: Target) -> str:
    """The same on any machine: exact products of bytes with 16 bits where it has no dot products of bytes."""
    if has_byte_dots(target):
        return dot_bytes(e, total, unsigned, signed)
    for a, b in zip(unsigned_halfwords(e, unsigned), signed_halfwords(e, signed)):
        total = dot_halfwords(e, total, a, b, target)
    return total


def dot_pairs(e: VectorEmitter, total: str, unsigned: str, signed: str) -> str:
    """total, a vector of twice as many halfwords, + the two products of the bytes of each of them, where the machine has it.

    Nothing may saturate: the caller sees to that (`PAIRS`).
    """
    f, width, kind = e.f, e.lanes * 32, e.type("i32")
    bytes_, halves = f"<{4 * e.lanes} x i8>", f"<{2 * e.lanes} x i16>"
    operands = [(bytes_, f.let(f"bitcast {kind} {value} to {bytes_}")) for value in (unsigned, signed)]
    return f.let(f"add {halves} {total}, {f.call(halves, _PAIRS_OF_BYTES[width], *operands)}")


def sum_halfwords(e: VectorEmitter, total: str, halves: str, factor: int, target: Target) -> str:
    """total + the two halfwords of each lane, times a factor."""
    kind, type_ = e.type("i32"), f"<{2 * e.lanes} x i16>"
    factors = constant("i32", factor << 16 | factor, e.lanes)
    return dot_halfwords(e, total, e.f.let(f"bitcast {type_} {halves} to {kind}"), factors, target)


def unsigned_halfwords(e: VectorEmitter, quads: str) -> tuple[str, str]:
    """The even and the odd bytes of every lane, widened to 16 bits; all are vectors of i32."""
    kind, halves = e.type("i32"), f"<{2 * e.lanes} x i16>"
    even = e.f.let(f"and {kind} {quads}, {constant('i32', 0x00FF00FF, e.lanes)}")
    odd = e.f.let(f"lshr {halves} {e.f.let(f'bitcast {kind} {quads} to {halves}')}, {_EIGHT}")
    return even, e.f.let(f"bitcast {halves} {odd} to {kind}")


def signed_halfwords(e: VectorEmitter, quads: str) -> tuple[str, str]:
    """The same for bytes with a sign."""
    kind, halves = e.type("i32"), f"<{2 * e.lanes} x i16>"
    pairs = e.f.let(f"bitcast {kind} {quads} to {halves}")
    high = e.f.let(f"shl {halves} {pairs}, {_EIGHT}")
    even, odd = (e.f.let(f"ashr {halves} {value}, {_EIGHT}") for value in (high, pairs))
    return e.f.let(f"bitcast {halves} {even} to {kind}"), e.f.let(f"bitcast {halves} {odd} to {kind}")


def dot_halfwords(e: VectorEmitter, total: str, a: str, b: str, target: Target) -> str:
    """total + the two products of the signed halfwords of each lane. All are vectors of i32."""
    f, width, kind, halves = e.f, e.lanes * 32, e.type("i32"), f"<{2 * e.lanes} x i16>"
    if target.architecture != "x86_64":
        return _dot_halfwords_by_shifts(e, total, a, b)
    operands = [(halves, f.let(f"bitcast {kind} {value} to {halves}")) for value in (a, b)]
    if target.has_int8_dot:
        return f.call(kind, f"llvm.x86.avx512.vpdpwssd.{width}", (kind, total), *operands)
    name = {512: "llvm.x86.avx512.pmaddw.d.512", 256: "llvm.x86.avx2.pmadd.wd", 128: "llvm.x86.sse2.pmadd.wd"}[width]
    return f.let(f"add {kind} {total}, {f.call(kind, name, *operands)}")


def _dot_halfwords_by_shifts(e: VectorEmitter, total: str, a: str, b: str) -> str:
    f, kind, sixteen = e.f, e.type("i32"), constant("i32", 16, e.lanes)
    for shift in (True, False):
        low_or_high = []
        for value in (a, b):
            moved = f.let(f"shl {kind} {value}, {sixteen}") if shift else value
            low_or_high.append(f.let(f"ashr {kind} {moved}, {sixteen}"))
        total = f.let(f"add {kind} {total}, {f.let(f'mul {kind} {low_or_high[0]}, {low_or_high[1]}')}")
    return total
