"""Kernels that look at indices -> LLVM."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.fault import report_unless
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.indexing.check import IndexCheckKernel
from sardonyx.target.target import Target


def emit_index_check(kernel: IndexCheckKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that reports indices out of range."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    limit, one = a["limit"], VectorEmitter(f, 1)
    each = f.loop("%begin", "%end")
    loaded = one.load(f.element(a["indices"], memory_type(kernel.index), each.index), kernel.index)
    found = convert(one, loaded, kernel.index, "i64")
    negative = f.let(f"icmp slt i64 {found}, 0", "c")
    counted = f.let(f"select i1 {negative}, i64 {f.add(found, limit)}, i64 {found}", "i")
    inside = f.let(f"icmp ult i64 {counted}, {limit}", "c")
    report_unless(f, inside, a["record"], a["code"], each.index, found, limit)
    f.end(each)
    return f
