"""The kernel that counts rounds -> LLVM."""

from __future__ import annotations

from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.indexing.rounds import DONE, GOES_ON, RoundsKernel
from sardonyx.target.target import Target


def emit_rounds_kernel(kernel: RoundsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that counts one more round."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    record = kernel.arguments
    counter = f.argument("%args", record.position("counter"), "ptr")
    rounds = f.argument("%args", record.position("rounds"))
    count = f.add(rounds_done(f, counter), 1)
    f.line(f"store i64 {count}, ptr {f.element(counter, 'i64', DONE)}, align 8")
    more = f.let(f"icmp slt i64 {count}, {rounds}", "c")
    f.line(f"store i64 {f.let(f'zext i1 {more} to i64')}, ptr {f.element(counter, 'i64', GOES_ON)}, align 8")
    return f


def rounds_done(f: FunctionBuilder, counter: str) -> str:
    """How many rounds are over."""
    return f.let(f"load i64, ptr {f.element(counter, 'i64', DONE)}, align 8", "i")


def start_rounds(f: FunctionBuilder, counter: str) -> None:
    """Before the first round."""
    f.line(f"store i64 0, ptr {f.element(counter, 'i64', DONE)}, align 8")
