"""Appends to caches -> LLVM: rows are moved as bytes, the kept ones in one piece where they lie so."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.attention.cache import CacheKernel
from sardonyx.kernel.expr import BITS
from sardonyx.target.target import Target


def emit_cache(kernel: CacheKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of an append."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    element, width = memory_type(kernel.type), BITS[kernel.type] // 8
    a = Loaded(f, kernel.arguments)
    heads, added, held, room, row = (a[each] for each in ("heads", "added", "held", "room", "row"))
    past, past_strides = a.tensor("past")
    new, new_strides = a.tensor("new")
    present, present_strides = a.tensor("present")
    apart = "true" if kernel.drops else f.let(f"icmp ne ptr {past}, {present}", "c")
    size = f.mul(row, width)
    same_rows = f.let(f"icmp eq i64 {past_strides[2]}, {present_strides[2]}", "c")
    is_whole = f.let(f"and i1 {same_rows}, {f.let(f'icmp eq i64 {row}, {past_strides[2]}', 'c')}", "c")

    unit = f.loop("%begin", "%end")
    head = f.let(f"urem i64 {unit.index}, {heads}", "i")
    batch = f.let(f"udiv i64 {unit.index}, {heads}", "i")
    source, fresh, result = (
        f.element(base, element, f.add(f.mul(batch, strides[0]), f.mul(head, strides[1])))
        for base, strides in ((past, past_strides), (new, new_strides), (present, present_strides))
    )
    first = a["first"]
    if kernel.is_ragged:
        first = f.let(f"load i64, ptr {f.element(first, 'i64', batch)}, align 8", "i")
    if kernel.drops:
        dropped = f.let(f"load i64, ptr {f.element(a['dropped'], 'i64', batch)}, align 8", "i")
        inside = f.let(f"icmp ule i64 {dropped}, {held}", "c")  # unsigned: a negative number is too large
        dropped = f.let(f"select i1 {inside}, i64 {dropped}, i64 {held}", "i")
        source, held = f.element(source, element, f.mul(dropped, past_strides[2])), f.sub(held, dropped)
    good, skip = f.fresh("good"), f.fresh("skip")
    fits = f.let(f"icmp ule i64 {first}, {f.sub(room, added)}", "c")  # unsigned: a negative position is too large
    has_room = f.let(f"icmp sge i64 {room}, {added}", "c")
    f.branch_if(f.let(f"and i1 {fits}, {has_room}", "c"), good, skip)

    f.label(good)
    end = f.add(first, added)
    copied, appended = f.fresh("copied"), f.fresh("appended")
    f.branch_if(apart, copied, appended)
    f.label(copied)
    kept = f.min(held, room if kernel.keeps else first)
    whole, rows, zeros = f.fresh("whole"), f.fresh("rows"), f.fresh("zeros")
    f.branch_if(is_whole, whole, rows)
    f.label(whole)
    _copy(f, source, result, f.mul(kept, size))
    f.branch(zeros)
    f.label(rows)
    each = f.loop(0, kept)
    at, into = (
        f.element(base, element, f.mul(each.index, strides[2]))
        for base, strides in ((source, past_strides), (result, present_strides))
    )
    _copy(f, at, into, size)
    f.end(each)
    f.branch(zeros)
    f.label(zeros)
    for start, stop in ((kept, room),) if kernel.keeps else ((kept, first), (end, room)):
        each = f.loop(start, stop)
        into = f.element(result, element, f.mul(each.index, present_strides[2]))
        f.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        f.line(f"call void @llvm.memset.p0.i64(ptr {into}, i8 0, i64 {size}, i1 false)")
        f.end(each)
    f.branch(appended)

    f.label(appended)
    each = f.loop(0, added)
    at = f.element(fresh, element, f.mul(each.index, new_strides[2]))
    into = f.element(result, element, f.mul(f.add(first, each.index), present_strides[2]))
    _copy(f, at, into, size)
    f.end(each)
    f.branch(skip)
    f.label(skip)
    f.end(unit)
    return f


def _copy(f: FunctionBuilder, source: str, target: str, size: str) -> None:
    f.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")
