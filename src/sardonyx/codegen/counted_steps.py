"""Floats in steps of a scale -> LLVM: quotients within bounds, and bytes by an instruction that narrows to the nearest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sardonyx.codegen.element_types import constant, intrinsic_suffix
from sardonyx.kernel.expr import Expr
from sardonyx.kernel.saturation import CountedSteps

if TYPE_CHECKING:
    from sardonyx.codegen.vector import VectorEmitter

Bounds: TypeAlias = Sequence[tuple[str, str]]  # comparisons with a value that is inside, and what it is compared with


def byte_of_steps(e: VectorEmitter, counted: CountedSteps, known: Mapping[Expr, str]) -> str:
    """An unsigned byte, on machines that narrow to the nearest one (`kernel.saturation`)."""
    f, kind = e.f, e.type("i32")
    bounds = [("ogt", known[counted.least])]
    value = known[counted.value]
    if counted.divisor is None:
        value = bounded(e, value, bounds, "f32")
    else:
        value = divided_within(e, value, known[counted.divisor], bounds, "f32")
    whole = _nearest(e, value)
    if counted.origin is not None:
        whole = f.let(f"add {kind} {whole}, {known[counted.origin]}")
    least = f.call(kind, f"llvm.umin.v{e.lanes}i32", (kind, whole), (kind, constant("i32", 255, e.lanes)))
    return f.let(f"trunc {kind} {least} to {e.type('u8')}")


def _nearest(e: VectorEmitter, value: str) -> str:
    """f32 rounded to i32 as AVX-512 does it: the smallest number for all that does not fit."""
    kind = e.type("i32")
    operands = ((e.type("f32"), value), (kind, "zeroinitializer"), (f"i{e.lanes}", "-1"), ("i32", "4"))  # 4: as everywhere
    return e.f.call(kind, f"llvm.x86.avx512.mask.cvtps2dq.{32 * e.lanes}", *operands)


def divided_within(e: VectorEmitter, x: str, scale: str, bounds: Bounds, kind: str) -> str:
    """By the inverse of the divisor, which is the same for many, and the remainder: as exact as a division, and much faster."""
    f, kinds = e.f, e.type(kind)
    if e.target is None or not e.target.has_fma:
        return bounded(e, f.let(f"fdiv {kinds} {x}, {scale}"), bounds, kind)
    value = bounded(e, x, [(comparison, f.let(f"fmul {kinds} {bound}, {scale}")) for comparison, bound in bounds], kind)
    name = f"llvm.fma.{intrinsic_suffix(kind, e.lanes)}"
    inverse = f.let(f"fdiv {kinds} {constant(kind, 1.0, e.lanes)}, {scale}")
    near = f.let(f"fmul {kinds} {value}, {inverse}")
    left = f.call(kinds, name, (kinds, f.let(f"fneg {kinds} {near}")), (kinds, scale), (kinds, value))
    return f.call(kinds, name, (kinds, left), (kinds, inverse), (kinds, near))


def bounded(e: VectorEmitter, value: str, bounds: Bounds, kind: str) -> str:
    """A value, or the bound that it is on the wrong side of; NaN becomes the first one."""
    for comparison, bound in bounds:
        inside = e.f.let(f"fcmp {comparison} {e.type(kind)} {value}, {bound}")
        value = e.choose(inside, value, bound, kind)
    return value
