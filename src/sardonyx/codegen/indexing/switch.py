"""The kernel that decides which steps run -> LLVM."""

from __future__ import annotations

from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.indexing.switch import SwitchKernel
from sardonyx.target.target import Target


def emit_switch_kernel(kernel: SwitchKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that writes the unit counts of both sides."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    record = kernel.arguments
    byte = f.let(f"load i8, ptr {f.argument('%args', record.position('condition'), 'ptr')}, align 1")
    holds = f.let(f"icmp ne i8 {byte}, 0")
    first, second = (f.argument("%args", record.position(name)) for name in ("first", "second"))
    steps = f.element("%args", "i64", record.count)
    loop = f.loop(0, f.add(first, second))
    at = f.mul(loop.index, 2)
    distance = f.let(f"load i64, ptr {f.element(steps, 'i64', at)}, align 8")
    count = f.let(f"load i64, ptr {f.element(steps, 'i64', f.add(at, 1))}, align 8")
    in_first = f.let(f"icmp slt i64 {loop.index}, {first}")
    taken = f.let(f"icmp eq i1 {in_first}, {holds}")
    f.line(f"store i64 {f.let(f'select i1 {taken}, i64 {count}, i64 0')}, ptr {f.element('%args', 'i64', distance)}, align 8")
    f.end(loop)
    return f
