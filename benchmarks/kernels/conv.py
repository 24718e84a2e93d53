"""Convolutions: our kernels against onnxruntime on one thread, and their share of the machine's peak.

    python -m benchmarks.kernels.conv [pattern]

Layers run in a chain, each followed by a ReLU, so that changes of layout at both ends count little; times are per layer.
`kernel` is the time inside our convolution steps, `run` that of the whole call from Python; onnxruntime's is a whole call.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks.kernels._race import timed
from benchmarks.kernels.peak import multiply_add_peak
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.compile.assemble import NativeSettings, compile_graph, library
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.tensor import Array
from sardonyx.passes.assign_layout import assign_layout
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.runs import RunControl


@dataclass(frozen=True)
class Case:
    """Layers from `inputs` to `outputs` channels over `pixels` a side; where they differ, every other layer goes back."""

    inputs: int
    outputs: int
    pixels: int
    kernel: int
    stride: int = 1
    groups: int = 1
    layers: int = 4
    dilation: int = 1
    rank: int = 2  # spatial axes

    def __str__(self) -> str:
        kind = "depthwise " if self.groups == self.inputs else f"{self.groups} groups " if self.groups > 1 else ""
        channels = str(self.inputs) if self.inputs == self.outputs else f"{self.inputs}->{self.outputs}"
        marks = f" stride {self.stride}" if self.stride > 1 else ""
        marks += f" dilation {self.dilation}" if self.dilation > 1 else ""
        return f"{kind}{'x'.join([str(self.kernel)] * self.rank)}{marks} {channels}ch {self.pixels}px"

    @property
    def operations(self) -> float:
        """Floating point operations of one layer."""
        out = self.pixels // self.stride
        return 2.0 * self.inputs * self.outputs // self.groups * float((self.kernel * out) ** self.rank)


CASES = (
    Case(64, 64, 56, 3),
    Case(128, 128, 28, 3),
    Case(256, 256, 14, 3),
    Case(512, 512, 7, 3),
    Case(256, 64, 56, 1),
    Case(512, 512, 28, 1),
    Case(1024, 1024, 14, 1),
    Case(96, 96, 56, 1),
    Case(144, 144, 56, 3, groups=144),
    Case(384, 384, 14, 3, groups=384),
    Case(480, 480, 14, 5, groups=480),
    Case(960, 960, 7, 3, groups=960),
    Case(3, 64, 224, 7, stride=2, layers=1),
    Case(3, 32, 224, 3, stride=2, layers=1),
    Case(128, 128, 56, 3, stride=2, layers=1),
    Case(256, 512, 56, 1, stride=2, layers=1),
    Case(128, 128, 28, 3, groups=32),
    Case(64, 64, 56, 3, dilation=2),
    Case(24, 24, 56, 3),
    Case(40, 40, 28, 1),
    Case(512, 512, 14, 3),
    Case(64, 64, 1000, 3, rank=1),
    Case(512, 512, 400, 3, dilation=4, rank=1),
    Case(128, 128, 2000, 11, dilation=5, rank=1),
    Case(512, 512, 3200, 3, stride=2, layers=1, rank=1),
    Case(256, 256, 500, 31, groups=256, rank=1),
    Case(64, 1, 56, 3, layers=1),
    Case(32, 3, 112, 3, layers=1),
)


def _model(case: Case) -> tuple[bytes, dict[str, Array]]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, case.inputs, *[case.pixels] * case.rank)).astype(np.float32)
    pad = case.kernel // 2 * case.dilation
    value, nodes, constants = "x", [], {}
    for layer in range(case.layers):
        there = layer % 2 == 0
        inputs, outputs = (case.inputs, case.outputs) if there else (case.outputs, case.inputs)
        taps = [case.kernel] * case.rank
        scale = np.sqrt(2 * case.groups / (inputs * np.prod(taps)))
        weights = rng.standard_normal((outputs, inputs // case.groups, *taps)) * scale
        constants[f"w{layer}"] = weights.astype(np.float32)
        constants[f"b{layer}"] = rng.standard_normal(outputs).astype(np.float32)
        attrs = {
            "pads": [pad] * (2 * case.rank),
            "strides": [case.stride] * case.rank,
            "group": case.groups,
            "dilations": [case.dilation] * case.rank,
        }
        nodes.append(helper.make_node("Conv", [value, f"w{layer}", f"b{layer}"], [f"c{layer}"], **attrs))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        value = f"r{layer}"
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString(), {"x": x}


def _in_order(graph: Graph) -> list[Node]:
    return list(graph.nodes)


def measure(case: Case, seconds: float = 1.5, workers: int = 1) -> tuple[float, float, float]:
    """Best times per layer of our kernels, of our run and of onnxruntime's, interleaved."""
    content, feeds = _model(case)
    model = load(content)
    infer_shapes(model)
    graph = model.graph
    assign_layout(graph, library(None).target)
    program = compile_graph(graph, graph.outputs, _in_order(graph), _in_order, NativeSettings(workers=workers))
    by_value = {value: feeds[value.name] for value in graph.inputs}
    options = ort.SessionOptions()
    options.intra_op_num_threads = workers
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    spent: list[int] = []

    def on_node(timing: NodeTiming) -> None:
        if "Conv" in timing.name:
            spent.append(timing.end_ns - timing.start_ns)

    watched, plain = RunControl(on_node=on_node), RunControl()
    (output,) = graph.outputs
    ours = program.run_values(by_value, plain)[output]
    (theirs,) = session.run(None, feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    best_layers = [float("inf")] * case.layers
    best_run = best_theirs = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        spent.clear()
        program.run_values(by_value, watched)
        best_layers = [min(best, one / 1e9) for best, one in zip(best_layers, spent)]
        best_run = min(best_run, timed(lambda: program.run_values(by_value, plain)))
        best_theirs = min(best_theirs, timed(lambda: session.run(None, feeds)))
    return sum(best_layers) / case.layers, best_run / case.layers, best_theirs / case.layers


def main(arguments: list[str]) -> None:
    """Print a table of all cases whose name contains the pattern."""
    pattern = arguments[0] if arguments else ""
    peak = multiply_add_peak("f32")
    print(f"peak: {peak / 1e9:.1f} GFLOP/s")
    print(f"{'layer':36} {'kernel':>10} {'run':>10} {'ort':>10} {'ratio':>6} {'peak':>6}")
    for case in CASES:
        if pattern not in str(case):
            continue
        kernel, run, theirs = measure(case)
        times = f"{kernel * 1e6:8.1f}us {run * 1e6:8.1f}us {theirs * 1e6:8.1f}us"
        print(f"{case!s:36} {times} {theirs / run:6.2f} {case.operations / kernel / peak:6.1%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
