"""Kernels that write their arguments -> LLVM."""

from __future__ import annotations

from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.indexing.write import WriteKernel
from sardonyx.target.target import Target


def emit_write_kernel(kernel: WriteKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a kernel that writes its arguments."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    e = VectorEmitter(f, 1)
    base = f.argument("%args", kernel.arguments.position("target"), "ptr")
    first = kernel.arguments.position("elements")
    for number in range(kernel.count):
        value = convert(e, f.argument("%args", first + number), "i64", kernel.type)
        e.store(f.element(base, memory_type(kernel.type), number), value, kernel.type)
    return f
