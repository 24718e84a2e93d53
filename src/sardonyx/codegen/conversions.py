"""Values in registers in another type: as NumPy and ONNX convert them, and by vector operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sardonyx.codegen.element_types import constant, intrinsic_suffix, scalar_type, wide_type
from sardonyx.kernel.expr import BITS, FLOATS, SIGNED
from sardonyx.kernel.intervals import limits

if TYPE_CHECKING:
    from sardonyx.codegen.function import FunctionBuilder
    from sardonyx.codegen.vector import VectorEmitter
    from sardonyx.target.target import Target

SHORT: Final = ("i8", "u8", "i16", "u16")  # integers that all floats and i32 hold


def truncated(e: VectorEmitter, value: str, source: str, target: str) -> str:
    """A float within the bounds of an integer type as one."""
    wide = e.f.let(f"fptosi {e.type(source)} {value} to {e.type('i32')}")
    return convert(e, wide, "i32", target)


def rounded_integers(e: VectorEmitter, value: str, source: str, target: str) -> str:
    """A float that lies, rounded to the nearest even, within the bounds of an integer type as that."""
    name = f"llvm.lrint.{intrinsic_suffix('i32', e.lanes)}.{intrinsic_suffix(source, e.lanes)}"
    wide = e.f.call(e.type("i32"), name, (e.type(source), value))
    return convert(e, wide, "i32", target)


def truncated_to_smallest(e: VectorEmitter, value: str, source: str, target: Target) -> str:
    """A float as an i32 by x86's own instruction, which gives the smallest number for all that does not fit."""
    f = e.f
    width = min(max(e.lanes, 128 // BITS[source]), target.lanes_of(BITS[source]))  # of the instruction
    letters, made = "ps" if source == "f32" else "pd", max(width, 4)
    given, result = wide_type(scalar_type(source), width), wide_type("i32", made)
    parts = []
    for start in range(0, e.lanes, width):
        part = (given, _lanes(f, e.type(source), value, start, width, e.lanes))
        if width * BITS[source] == 512:
            operands = (part, (result, "zeroinitializer"), (f"i{width}", "-1"), ("i32", "4"))  # 4: rounding as everywhere
            found = f.call(result, f"llvm.x86.avx512.mask.cvtt{letters}2dq.512", *operands)
        else:
            name = f"sse2.cvtt{letters}2dq" if width * BITS[source] == 128 else f"avx.cvtt.{letters}2dq.256"
            found = f.call(result, f"llvm.x86.{name}", part)
        parts.append(_lanes(f, result, found, 0, min(width, e.lanes), made))
    while len(parts) > 1:
        kind, order = wide_type("i32", width), ", ".join(f"i32 {lane}" for lane in range(2 * width))
        pairs = zip(parts[::2], parts[1::2])
        parts = [f.let(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{order}>") for a, b in pairs]
        width *= 2
    return parts[0]


def _lanes(f: FunctionBuilder, kind: str, value: str, start: int, count: int, lanes: int) -> str:
    """Some of a vector's lanes; those it does not have are anything."""
    if count == lanes:
        return value
    order = ", ".join(f"i32 {lane}" if lane < lanes else "i32 poison" for lane in range(start, start + count))
    return f.let(f"shufflevector {kind} {value}, {kind} poison, <{count} x i32> <{order}>")


def _saturated(e: VectorEmitter, value: str, source: str, target: str) -> str:
    """A float as a short integer, by vector operations: LLVM's own way takes one lane after the other."""
    kind, (low, high) = e.type(source), limits(target)
    for comparison, limit in (("ogt", low), ("olt", high)):
        bound = constant(source, float(limit), e.lanes)
        inside = e.f.let(f"fcmp {comparison} {kind} {value}, {bound}")
        # NaN is on neither side: it takes the lower bound here, and 0 below.
        value, original = e.choose(inside, value, bound, source), value
        if comparison == "ogt":
            nan = e.f.let(f"fcmp uno {kind} {original}, {original}")
    found = truncated(e, value, source, target)
    return e.choose(nan, constant(target, 0, e.lanes), found, target)


def _saturated_wide(e: VectorEmitter, value: str, source: str, target: str) -> str:
    """The same for integers of which not every float type holds the limits: the powers of two beyond them are floats."""
    kind, (low, high) = e.type(source), limits(target)
    above = e.f.let(f"fcmp oge {kind} {value}, {constant(source, float(high + 1), e.lanes)}")
    below = e.f.let(f"fcmp olt {kind} {value}, {constant(source, float(low), e.lanes)}")
    masks = e.type("bool")
    number = e.f.let(f"fcmp ord {kind} {value}, {value}")
    outside = e.f.let(f"or {masks} {above}, {below}")
    within = e.f.let(f"xor {masks} {outside}, {constant('bool', True, e.lanes)}")
    inside = e.f.let(f"and {masks} {number}, {within}")
    safe = e.choose(inside, value, constant(source, 0.0, e.lanes), source)
    found = e.f.let(f"fpto{'s' if target in SIGNED else 'u'}i {kind} {safe} to {e.type(target)}")
    found = e.choose(above, constant(target, high, e.lanes), found, target)
    return e.choose(below, constant(target, low, e.lanes), found, target)


def convert(e: VectorEmitter, value: str, source: str, target: str) -> str:
    """A value in another type."""
    if source == target:
        return value
    if source == "bf16":
        wide = e.f.let(f"zext {wide_type('i16', e.lanes)} {value} to {wide_type('i32', e.lanes)}")
        high = e.f.let(f"shl {wide_type('i32', e.lanes)} {wide}, {constant('i32', 16, e.lanes)}")
        return convert(e, e.f.let(f"bitcast {wide_type('i32', e.lanes)} {high} to {e.type('f32')}"), "f32", target)
    if target == "bf16":
        return _to_bf16(e, convert(e, value, source, "f32"))
    if source == "f16" and target != "f32":
        return convert(e, convert(e, value, source, "f32"), "f32", target)
    if target == "f16" and source != "f32":
        narrow = _to_odd_f32(e, value) if source == "f64" else convert(e, value, source, "f32")
        return convert(e, narrow, "f32", target)
    from_, to = e.type(source), e.type(target)
    if target == "bool":
        if source in FLOATS:
            return e.f.let(f"fcmp une {from_} {value}, {constant(source, 0.0, e.lanes)}")
        return e.f.let(f"icmp ne {from_} {value}, {constant(source, 0, e.lanes)}")
    if source in FLOATS and target in FLOATS:
        return e.f.let(f"{'fpext' if BITS[source] < BITS[target] else 'fptrunc'} {from_} {value} to {to}")
    if source in FLOATS and target in SHORT and e.lanes > 1:
        return _saturated(e, value, source, target)
    if source in FLOATS and e.lanes > 1:
        return _saturated_wide(e, value, source, target)
    if source in FLOATS:
        sign = "s" if target in SIGNED else "u"
        name = f"llvm.fpto{sign}i.sat.{intrinsic_suffix(target, e.lanes)}.{intrinsic_suffix(source, e.lanes)}"
        return e.f.call(to, name, (from_, value))
    if target in FLOATS:
        return e.f.let(f"{'sitofp' if source in SIGNED else 'uitofp'} {from_} {value} to {to}")
    if source == "bool" or BITS[source] < BITS[target]:
        return e.f.let(f"{'sext' if source in SIGNED else 'zext'} {from_} {value} to {to}")
    if BITS[source] > BITS[target]:
        return e.f.let(f"trunc {from_} {value} to {to}")
    return value  # the same width with another sign


def _to_odd_f32(e: VectorEmitter, value: str) -> str:
    """An f64 as the f32 on its way to f16: cut off, with the last bit set if that lost anything, so that it is rounded once."""
    kind, one = wide_type("i32", e.lanes), constant("i32", 1, e.lanes)
    nearest = convert(e, value, "f64", "f32")
    back = convert(e, nearest, "f32", "f64")
    bits = e.f.let(f"bitcast {e.type('f32')} {nearest} to {kind}")
    double, absolute = e.type("f64"), f"llvm.fabs.{intrinsic_suffix('f64', e.lanes)}"
    rounded, exact = (e.f.call(double, absolute, (double, each)) for each in (back, value))
    above = e.f.let(f"fcmp ogt {double} {rounded}, {exact}")
    below = e.f.let(f"sub {kind} {bits}, {one}")
    truncated = e.f.let(f"select {e.type('bool')} {above}, {kind} {below}, {kind} {bits}")
    odd = e.f.let(f"or {kind} {truncated}, {one}")
    inexact = e.f.let(f"fcmp one {double} {back}, {value}")
    chosen = e.f.let(f"select {e.type('bool')} {inexact}, {kind} {odd}, {kind} {bits}")
    return e.f.let(f"bitcast {kind} {chosen} to {e.type('f32')}")


def _to_bf16(e: VectorEmitter, value: str) -> str:
    """Round to nearest even; NaN stays NaN (its low bits must not round it to infinity)."""
    kind, half = wide_type("i32", e.lanes), constant("i32", 16, e.lanes)
    bits = e.f.let(f"bitcast {e.type('f32')} {value} to {kind}")
    high = e.f.let(f"lshr {kind} {bits}, {half}")
    last = e.f.let(f"and {kind} {high}, {constant('i32', 1, e.lanes)}")
    biased = e.f.let(f"add {kind} {bits}, {last}")
    rounded = e.f.let(f"add {kind} {biased}, {constant('i32', 0x7FFF, e.lanes)}")
    quiet = e.f.let(f"or {kind} {bits}, {constant('i32', 0x400000, e.lanes)}")
    nan = e.f.let(f"fcmp uno {e.type('f32')} {value}, {value}")
    chosen = e.f.let(f"select {e.type('bool')} {nan}, {kind} {quiet}, {kind} {rounded}")
    upper = e.f.let(f"lshr {kind} {chosen}, {half}")
    return e.f.let(f"trunc {kind} {upper} to {wide_type('i16', e.lanes)}")
