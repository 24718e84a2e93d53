"""Lookups of keys -> LLVM. No search takes more steps than there are slots, whatever is in them."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.ml.key_lookup import KeyLookupKernel
from sardonyx.target.target import Target

_FACTOR: Final = 0x9E3779B97F4A7C15 - (1 << 64)  # of the hash, as a signed number
_FLOATS: Final = {"f32": ("float", "i32", 0x7FC00000), "f64": ("double", "i64", 0x7FF8000000000000)}  # and the bits of their NaN


def emit_key_lookup(kernel: KeyLookupKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of the lookups."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    bits, empty, slots, values = a["bits"], a["empty"], a["slots"], a["values"]
    shift = f.sub(64, bits)
    size = f.let(f"shl i64 1, {bits}", "i")
    mask = f.sub(size, 1)
    value = f"i{BITS[kernel.values] if kernel.values != 'bool' else 8}"
    each = f.loop("%begin", "%end")
    key = _bits(f, kernel.type, f.element(a["source"], memory_type(kernel.type), each.index))
    first = f.let(f"lshr i64 {f.let(f'mul i64 {key}, {_FACTOR}')}, {shift}", "i")
    head, move, here = f.fresh("head"), f.fresh("move"), f.fresh("here")
    at, steps, later, more = f.fresh("at"), f.fresh("steps"), f.fresh("later"), f.fresh("more")
    before = f.block
    f.branch(head)
    f.label(head)
    f.line(f"{at} = phi i64 [ {first}, %{before} ], [ {later}, {move} ]")
    f.line(f"{steps} = phi i64 [ 0, %{before} ], [ {more}, {move} ]")
    found = f.let(f"load i64, ptr {f.element(slots, 'i64', at)}, align 8")
    is_key, is_empty = f.let(f"icmp eq i64 {found}, {key}", "c"), f.let(f"icmp eq i64 {found}, {empty}", "c")
    is_last = f.let(f"icmp eq i64 {steps}, {mask}", "c")
    ends = f.let(f"or i1 {f.let(f'or i1 {is_key}, {is_empty}')}, {is_last}", "c")
    f.branch_if(ends, here, move)
    f.label(move)
    f.line(f"{later} = and i64 {f.add(at, 1)}, {mask}")
    f.line(f"{more} = add i64 {steps}, 1")
    f.branch(head)
    f.label(here)
    result = f.let(f"load {value}, ptr {f.element(values, value, at)}, align {int(value[1:]) // 8}")
    f.line(f"store {value} {result}, ptr {f.element(a['target'], value, each.index)}, align {int(value[1:]) // 8}")
    f.end(each)
    return f


def _bits(f: FunctionBuilder, kind: str, pointer: str) -> str:
    """The bits an element is compared by."""
    if kind not in _FLOATS:
        width = BITS[kind]
        loaded = f.let(f"load i{width}, ptr {pointer}, align {width // 8}")
        return loaded if width == 64 else f.let(f"sext i{width} {loaded} to i64")
    real, whole, nan = _FLOATS[kind]
    loaded = f.let(f"load {real}, ptr {pointer}, align {BITS[kind] // 8}")
    as_integer = f.let(f"bitcast {real} {f.let(f'fadd {real} {loaded}, 0.0')} to {whole}")  # of both zeros that of +0
    chosen = f.let(f"select i1 {f.let(f'fcmp uno {real} {loaded}, 0.0', 'c')}, {whole} {nan}, {whole} {as_integer}")
    return chosen if whole == "i64" else f.let(f"zext i32 {chosen} to i64")
