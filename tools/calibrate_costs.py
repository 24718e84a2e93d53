"""Estimated against measured time of every kernel of a model, on one core.

    python tools/calibrate_costs.py MODEL.onnx [N=1 ...] [--repeat 20]

The estimates are those of `sardonyx.target.cost`. N=1 sets the size of a dimension that the model leaves open (1 by default).
Every step is run alone on made-up numbers, a few times; the best time counts, of the processor, as others may be busy, less that
of a call without work. Steps are listed by kind of kernel, the last line of each kind has their sum. A ratio above 1: the kernel
takes longer than estimated.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile.assemble import NativeSettings, compile_graph, library
from sardonyx.compile.compiler import optimise
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.onnx import load
from sardonyx.ir.dims import evaluate, symbols_of
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.tensor import Array
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.program.steps import Address, Buffer, KernelStep, Lowered
from sardonyx.runtime.weight_store import WeightStore

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Measured(NamedTuple):
    """One step: what was thought, and what it took, in nanoseconds."""

    kernel: str
    label: str
    estimate: int
    time: int


def measure(source: str | bytes, sizes: Mapping[str, int], repeat: int) -> list[Measured]:
    """All kernel steps of a model; what runs in Python is left out."""
    model = load(source)
    InlineFunctions().run(model)
    kernels = library(None)
    optimise(model, CompileOptions(), kernels.target)
    graph = model.graph

    def order(inner: Graph) -> list[Node]:
        return list(inner.nodes)

    compiled = compile_graph(graph, graph.outputs, order(graph), order, NativeSettings(workers=1))
    return _steps(compiled.lowered, kernels, sizes, repeat)


def _steps(lowered: Lowered, kernels: KernelLibrary, sizes: Mapping[str, int], repeat: int) -> list[Measured]:
    arrays: dict[Buffer, Array] = {}
    names = {name for view in lowered.inputs for dim in view.shape for name in symbols_of(dim)}
    if not names >= set(sizes):
        raise SystemExit(f"the model leaves {', '.join(sorted(names)) or 'no size'} open, not {', '.join(set(sizes) - names)}")
    known = {name: sizes.get(name, 1) for name in names}
    random = np.random.default_rng(0)

    def address_of(buffer: Buffer) -> int:
        if buffer not in arrays:
            dtype, size = buffer.dtype.numpy, evaluate(buffer.size, known)
            if buffer.constant is not None:
                arrays[buffer] = WeightStore().array(buffer.constant)
            elif dtype.kind == "f":
                arrays[buffer] = random.standard_normal(size).astype(dtype)
            else:
                arrays[buffer] = np.zeros(size, dtype)
        return int(arrays[buffer].ctypes.data)

    found: list[Measured] = []
    for step in lowered.steps:
        if not isinstance(step, KernelStep):
            continue
        try:
            arguments = [
                address_of(one.buffer) + evaluate(one.offset, known) if isinstance(one, Address) else evaluate(one, known)
                for one in step.arguments
            ]
            units, estimate = evaluate(step.units, known), evaluate(step.work, known)
        except KeyError:  # a size that only the data tell
            continue
        table, function = np.array(arguments, np.int64), _SIGNATURE(kernels.address(step.kernel))

        def best(end: int, function: Any = function, table: int = table.ctypes.data) -> int:
            taken = []
            for _ in range(repeat + 1):
                start = time.thread_time_ns()
                function(table, 0, end, 0)
                taken.append(time.thread_time_ns() - start)
            return min(taken)

        found.append(Measured(type(step.kernel).__name__, step.label, estimate, max(best(units) - best(0), 1)))
    return found


def report(steps: Sequence[Measured]) -> list[str]:
    """The lines of a table, kernel by kernel."""
    lines = [f"{'kernel':<18} {'step':<40} {'estimated':>12} {'measured':>12} {'ratio':>7}"]

    def line(kernel: str, label: str, estimate: int, taken: int) -> str:
        return (
            f"{kernel:<18} {label[:40]:<40} {estimate / 1000:>9.1f} us {taken / 1000:>9.1f} us {taken / max(estimate, 1):>7.2f}"
        )

    for kernel in sorted({step.kernel for step in steps}):
        mine = [step for step in steps if step.kernel == kernel]
        lines += [line(*step) for step in mine]
        lines.append(line(kernel, f"all {len(mine)}", sum(step.estimate for step in mine), sum(step.time for step in mine)))
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("sizes", nargs="*", metavar="NAME=SIZE")
    parser.add_argument("--repeat", type=int, default=20)
    given = parser.parse_args(arguments)
    sizes = {name: int(size) for name, _, size in (each.partition("=") for each in given.sizes)}
    print("\n".join(report(measure(given.model, sizes, given.repeat))))


if __name__ == "__main__":
    main()
