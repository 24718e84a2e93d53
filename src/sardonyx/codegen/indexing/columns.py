"""Selections of columns -> LLVM: a row is a vector, and what is selected a shuffle of it."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.indexing.columns import CHUNK, ColumnsKernel
from sardonyx.target.target import Target


def emit_columns_kernel(kernel: ColumnsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a selection.

    for r in rows: target[r] = shuffle(source[r], columns)
    """
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    source, (source_stride,) = a.tensor("source")
    written, (target_stride,) = a.tensor("target")
    element = memory_type(kernel.type)
    row, selected = f"<{kernel.width} x {element}>", f"<{len(kernel.columns)} x {element}>"
    order = ", ".join(f"i32 {column}" for column in kernel.columns)
    unit = f.loop("%begin", "%end")
    first = f.mul(unit.index, CHUNK)
    each = f.loop(first, f.min(f.add(first, CHUNK), a["rows"]))
    given = f.let(f"load {row}, ptr {f.element(source, element, f.mul(each.index, source_stride))}, align 1")
    made = f.let(f"shufflevector {row} {given}, {row} poison, <{len(kernel.columns)} x i32> <{order}>")
    f.line(f"store {selected} {made}, ptr {f.element(written, element, f.mul(each.index, target_stride))}, align 1")
    f.end(each)
    f.end(unit)
    return f
