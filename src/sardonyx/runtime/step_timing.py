"""What a profile tells of the kernels of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sardonyx.ir.dims import evaluate
from sardonyx.program.steps import Buffer, KernelStep
from sardonyx.provider_names import CPU_PROVIDER
from sardonyx.runtime.node_timing import NodeTiming


def step_timing(steps: Sequence[KernelStep]) -> Callable[[int, Mapping[str, int], int, int], NodeTiming]:
    """A function from a step's number, the sizes, and when it began and ended to what is told of it."""

    def timing(number: int, sizes: Mapping[str, int], start: int, end: int) -> NodeTiming:
        step = steps[number]
        facts = _facts(step, sizes, end - start)
        return NodeTiming(step.label, step.label, step.label, CPU_PROVIDER, start, end, (), (), facts)

    return timing


def _facts(step: KernelStep, known: Mapping[str, int], nanoseconds: int) -> dict[str, str]:
    """What a trace tells about a kernel: everything it reads and writes is counted once, and as a whole."""

    def size(buffers: Sequence[Buffer]) -> str:
        return str(sum(evaluate(each.size, known) * each.dtype.bits // 8 for each in buffers))

    facts = {
        "kernel": type(step.kernel).__name__,
        "nodes": "; ".join(step.nodes),
        "bytes_read": size(step.reads),
        "bytes_written": size(step.writes),
    }
    flops = evaluate(step.flops, known)
    if flops:
        facts["gflops_per_second"] = f"{flops / max(nanoseconds, 1):.3g}"
    return facts
