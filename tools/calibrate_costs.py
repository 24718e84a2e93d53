"""Estimated against measured time of every kernel of a model, on one core.

    python tools/calibrate_costs.py MODEL.onnx [N=1 ...] [--repeat 20]            kernels as they are chosen
    python tools/calibrate_costs.py MODEL.onnx [N=1 ...] --candidates             every algorithm that could have been
    python tools/calibrate_costs.py --tiles                                       register tiles of products and convolutions

The estimates are those of `sardonyx.target.cost`. N=1 sets the size of a dimension that the model leaves open (1 by default).
Every step is run alone on made-up numbers, a few times; the best time counts, of the processor, as others may be busy, less that
of a call without work. Steps are listed by kind of kernel, the last line of each kind has their sum. A ratio above 1: the kernel
takes longer than estimated. Of candidates the one thought fastest comes first; one that takes less time is marked.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple
from unittest.mock import patch

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile.assemble import library, plan_graph
from sardonyx.compile.compiler import optimise
from sardonyx.compile.step_choice import run_cold
from sardonyx.compile.step_trial import StepTrial
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.onnx import load
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import Dim, evaluate, symbols_of
from sardonyx.ir.graph import Graph, Model, Node
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.matmul.matmul import MatMulKernel, tallest
from sardonyx.lower.candidates import Chooser, Proposal, SizeOf
from sardonyx.lower.conv import conv_task
from sardonyx.lower.conv.conv_tiles import ConvTile, TileTask, most_pixels
from sardonyx.lower.matmul import product
from sardonyx.passes.assign_layout import assign_layout
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.program.steps import Buffer, KernelStep, Lowered
from sardonyx.runtime.weight_store import WeightStore
from sardonyx.target import cost

_VERSION: Final = 19
_STRIPS, _BLOCKS, _DEPTH = 4, 12, 256  # of what tiles are measured with: tiles along it, across it, and their depth
_CLEARLY: Final = 1.05
_HEADER: Final = f"{'kernel':<18} {'step':<40} {'estimated':>12} {'measured':>12} {'ratio':>7}"


class Measured(NamedTuple):
    """One step: what was thought, and what it took, in nanoseconds."""

    kernel: str
    label: str
    estimate: int
    time: int


def measure(source: str | bytes, sizes: Mapping[str, int], repeat: int) -> list[Measured]:
    """All kernel steps of a model; what runs in Python is left out."""
    kernels = library(None)
    return _steps(_lowered(load(source), kernels, None), kernels, sizes, repeat)


def _lowered(model: Model, kernels: KernelLibrary, chooser: Chooser | None) -> Lowered:
    InlineFunctions().run(model)
    optimise(model, CompileOptions(), kernels.target)
    graph = model.graph
    return plan_graph(graph, graph.outputs, list(graph.nodes), graph.inputs, _in_order, kernels, set(), chooser)[1]


def _in_order(graph: Graph) -> list[Node]:
    return list(graph.nodes)


class _Recorder:
    """Measures everything that is proposed, and takes what estimates would take."""

    within = math.inf

    def __init__(self, kernels: KernelLibrary, repeat: int) -> None:
        self.found: list[list[Measured]] = []
        self._kernels, self._repeat = kernels, repeat

    def __call__(self, proposals: Sequence[Proposal], size_of: SizeOf) -> int:
        trials = [StepTrial(each.steps, self._kernels, size_of) for each in proposals]
        rounds = [[run_cold(trial, self._kernels.target) for trial in trials] for _ in range(self._repeat)]
        times = [max(min(times), 1) for times in zip(*rounds)]
        label = proposals[0].steps[-1].label
        self.found.append([Measured(each.name, label, each.estimate, time) for each, time in zip(proposals, times)])
        return 0


def measure_candidates(source: str | bytes, repeat: int) -> list[list[Measured]]:
    """For each node with several algorithms all of them, the one that is taken first; sizes that are not known are usual ones."""
    kernels = library(None)
    recorder = _Recorder(kernels, repeat)
    _lowered(load(source), kernels, recorder)
    return recorder.found


def report_candidates(choices: Sequence[Sequence[Measured]]) -> list[str]:
    """The lines of a table, node by node."""
    lines = []
    for choice in choices:
        fastest = min(one.time for one in choice)
        for number, one in enumerate(choice):
            slower = number == 0 and one.time > _CLEARLY * fastest
            lines.append(_line(*one) + (f"   the fastest takes {fastest / one.time:.0%} of it" if slower else ""))
    return lines


def measure_tiles(repeat: int) -> list[Measured]:
    """Products and pointwise convolutions that consist of one kind of tile, for every tile there is room for."""
    kernels, found = library(None), []
    target = kernels.target
    for vectors in (1, 2, 3, 4):
        width = vectors * target.lanes * _STRIPS
        for rows in range(1, tallest(target, vectors) + 1):
            estimate = _STRIPS * _BLOCKS * cost.matmul_tile(rows, vectors, _DEPTH, target)
            with (
                patch.object(product, "strip_vectors", return_value=vectors),
                patch.object(product, "tallest", return_value=rows),
            ):
                found.append(_only_step(_product(rows * _BLOCKS, width), kernels, f"{vectors} x {rows}", int(estimate), repeat))
        for pixels in range(1, most_pixels(target, vectors) + 1):
            task = TileTask(target=target, outputs=width, inputs=_DEPTH, taps=1, columns=pixels * _BLOCKS)
            with patch.object(conv_task, "choose_tile", return_value=ConvTile(vectors, pixels)):
                graph = _pointwise(pixels * _BLOCKS, width)
                assign_layout(graph, target)
                infer_shapes(graph)
                estimate = task.time(vectors, pixels)
                found.append(_only_step(graph, kernels, f"{vectors} x {pixels}", int(estimate), repeat))
    return found


def _product(rows: int, columns: int) -> Graph:
    g = GraphBuilder(Graph("product"), _VERSION)
    x = g.input("x", TensorType(dtypes.FLOAT32, (rows, _DEPTH)))
    g.output(g.op("MatMul", x, np.ones((_DEPTH, columns), np.float32)), "y")
    infer_shapes(g.graph)
    return g.graph


def _pointwise(pixels: int, outputs: int) -> Graph:
    """A convolution, and something behind it that keeps it in blocks."""
    g = GraphBuilder(Graph("convolution"), _VERSION)
    x = g.input("x", TensorType(dtypes.FLOAT32, (1, _DEPTH, 1, pixels)))
    y = g.op("Conv", x, np.ones((outputs, _DEPTH, 1, 1), np.float32))
    g.output(g.op("MaxPool", y, kernel_shape=[1, 1]), "y")
    infer_shapes(g.graph)
    return g.graph


def _only_step(graph: Graph, kernels: KernelLibrary, label: str, estimate: int, repeat: int) -> Measured:
    """The time of the product or convolution of a graph."""
    lowered = plan_graph(graph, graph.outputs, list(graph.nodes), graph.inputs, _in_order, kernels, set())[1]
    steps = [
        step for step in lowered.steps if isinstance(step, KernelStep) and isinstance(step.kernel, MatMulKernel | ConvKernel)
    ]
    trial = StepTrial(steps, kernels, lambda dim: evaluate(dim, {}))
    return Measured(type(steps[0].kernel).__name__, label, estimate, max(min(trial.run() for _ in range(repeat + 1)), 1))


def _steps(lowered: Lowered, kernels: KernelLibrary, sizes: Mapping[str, int], repeat: int) -> list[Measured]:
    names = {name for view in lowered.inputs for dim in view.shape for name in symbols_of(dim)}
    if not names >= set(sizes):
        raise SystemExit(f"the model leaves {', '.join(sorted(names)) or 'no size'} open, not {', '.join(set(sizes) - names)}")
    known = {name: sizes.get(name, 1) for name in names}

    def size_of(dim: Dim) -> int:
        return evaluate(dim, known)

    store, random = WeightStore(), np.random.default_rng(0)

    @cache
    def array_of(buffer: Buffer) -> Array:
        dtype, size = buffer.dtype.numpy, size_of(buffer.size)
        if buffer.constant is not None:
            return store.array(buffer.constant)
        return random.standard_normal(size).astype(dtype) if dtype.kind == "f" else np.zeros(size, dtype)

    found: list[Measured] = []
    for step in lowered.steps:
        if not isinstance(step, KernelStep):
            continue
        try:
            trials = [StepTrial([each], kernels, size_of, given=array_of) for each in (step, replace(step, units=0))]
            estimate = size_of(step.work)
        except KeyError:  # a size that only the data tell
            continue
        taken, nothing = (min(trial.run() for _ in range(repeat + 1)) for trial in trials)
        found.append(Measured(type(step.kernel).__name__, step.label, estimate, max(taken - nothing, 1)))
    return found


def report(steps: Sequence[Measured]) -> list[str]:
    """The lines of a table, kernel by kernel."""
    lines = [_HEADER]
    for kernel in sorted({step.kernel for step in steps}):
        mine = [step for step in steps if step.kernel == kernel]
        lines += [_line(*step) for step in mine]
        lines.append(_line(kernel, f"all {len(mine)}", sum(step.estimate for step in mine), sum(step.time for step in mine)))
    return lines


def _line(kernel: str, label: str, estimate: int, taken: int) -> str:
    return f"{kernel:<18} {label[:40]:<40} {estimate / 1000:>9.1f} us {taken / 1000:>9.1f} us {taken / max(estimate, 1):>7.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("sizes", nargs="*", metavar="NAME=SIZE")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--candidates", action="store_true", help="every algorithm of a convolution, not only the one taken")
    parser.add_argument("--tiles", action="store_true", help="register tiles; needs no model")
    given = parser.parse_args(arguments)
    if given.tiles:
        lines = report(measure_tiles(given.repeat))
    elif given.model is None:
        parser.error("which model?")
    elif given.candidates:
        lines = [_HEADER, *report_candidates(measure_candidates(given.model, given.repeat))]
    else:
        sizes = {name: int(size) for name, _, size in (each.partition("=") for each in given.sizes)}
        lines = report(measure(given.model, sizes, given.repeat))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
