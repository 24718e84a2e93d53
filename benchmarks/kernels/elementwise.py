"""Elementwise chains, functions, reductions and normalisations: our kernels against onnxruntime on one thread.

    python benchmarks/kernels/elementwise.py [pattern]

`kernel` is the time inside our native steps, `run` that of the whole call from Python; onnxruntime's is a whole call. `share` is
the rate at which the kernel reads its inputs and writes its result once, as a part of the rate of a plain copy of the input.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, helper, numpy_helper
from peak import best_time

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.assemble import NativeSettings, compile_graph
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.tensor import Array
from sardonyx.runtime.executor import NodeTiming, RunControl

node = helper.make_node


@dataclass(frozen=True)
class Case:
    """Some nodes from `x` (and `z`, of the same shape) to `y`; constants are named with their shapes."""

    name: str
    shape: tuple[int, ...]
    nodes: Sequence[NodeProto]
    constants: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    axes: tuple[int, ...] = ()
    integer: bool = False  # the result is one of indices

    @property
    def traffic(self) -> float:
        """Elements read and written, for each element of the input."""
        inputs = len({"x", "z"} & {name for one in self.nodes for name in one.input})
        return inputs + (0 if self.axes or self.integer else 1)

    @property
    def elements(self) -> int:
        """How many elements the input has."""
        return int(np.prod(self.shape))


def _function(name: str) -> Case:
    return Case(f"{name} 393k", (128, 3072), [node(name, ["x"], ["y"])])


def _chain(*shape: int) -> Case:
    nodes = [node("Mul", ["x", "z"], ["a"]), node("Add", ["a", "x"], ["b"]), node("Relu", ["b"], ["c"])]
    nodes += [node("Mul", ["c", "z"], ["d"]), node("Add", ["d", "z"], ["y"])]
    return Case(f"chain of 5, {np.prod(shape)}", shape, nodes)


_ROW = {"s": (768,), "b": (768,)}
_CHANNELS = {"s": (256,), "b": (256,)}
_IMAGE = (1, 256, 56, 56)
_BATCH_NORM = node("BatchNormalization", ["x", "s", "b", "b", "v"], ["y"])

CASES = (
    *(_function(name) for name in ("Exp", "Sigmoid", "Tanh", "Erf", "Gelu", "Log", "Softplus", "Sin", "Relu")),
    Case("bias + Gelu 128x3072", (128, 3072), [node("Add", ["x", "b"], ["a"]), node("Gelu", ["a"], ["y"])], {"b": (3072,)}),
    _chain(4096),
    _chain(64, 1024),
    _chain(1024, 1024),
    Case("Softmax 12x128x128", (12, 128, 128), [node("Softmax", ["x"], ["y"])]),
    Case("Softmax 84x8400, axis 0", (84, 8400), [node("Softmax", ["x"], ["y"], axis=0)]),
    Case("LayerNormalization 128x768", (128, 768), [node("LayerNormalization", ["x", "s", "b"], ["y"])], _ROW),
    Case("RMSNormalization 128x768", (128, 768), [node("SimplifiedLayerNormalization", ["x", "s"], ["y"])], _ROW),
    Case("InstanceNormalization 256x56x56", _IMAGE, [node("InstanceNormalization", ["x", "s", "b"], ["y"])], _CHANNELS),
    Case("GroupNormalization 256x56x56", _IMAGE, [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=32)], _CHANNELS),
    Case("BatchNormalization 256x56x56", _IMAGE, [_BATCH_NORM], {**_CHANNELS, "v": (256,)}),
    Case("ReduceMean 128x768, rows", (128, 768), [node("ReduceMean", ["x", "axes"], ["y"])], axes=(1,)),
    Case("ReduceMean 128x768, columns", (128, 768), [node("ReduceMean", ["x", "axes"], ["y"])], axes=(0,)),
    Case("ReduceMean 256x56x56, space", _IMAGE, [node("ReduceMean", ["x", "axes"], ["y"])], axes=(2, 3)),
    Case("ArgMax 64x1000", (64, 1000), [node("ArgMax", ["x"], ["y"], axis=1)], integer=True),
)


def _model(case: Case) -> tuple[bytes, dict[str, Array]]:
    random = np.random.default_rng(0)
    used = {name for one in case.nodes for name in one.input}
    feeds: dict[str, Array] = {
        name: np.abs(random.standard_normal(case.shape)).astype(np.float32) for name in ("x", "z") if name in used
    }
    constants: dict[str, Array] = {
        name: np.abs(random.standard_normal(shape)).astype(np.float32) for name, shape in case.constants.items() if name in used
    }
    if case.axes:
        constants["axes"] = np.array(case.axes, np.int64)
    graph = helper.make_graph(
        list(case.nodes),
        "case",
        [helper.make_tensor_value_info(name, 1, array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", 7 if case.integer else 1, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), feeds


def _in_order(graph: Graph) -> list[Node]:
    return list(graph.nodes)


@cache
def copy_time(elements: int) -> float:
    """The best time of copying so many float32."""
    source, target = np.ones(elements, np.float32), np.zeros(elements, np.float32)
    return best_time(lambda: np.copyto(target, source))


def measure(case: Case, seconds: float = 1.0, workers: int = 1) -> tuple[float, float, float]:
    """Best times of our kernels, of our run and of onnxruntime's, interleaved."""
    content, feeds = _model(case)
    model = load(content)
    infer_shapes(model)
    graph = model.graph
    program = compile_graph(graph, graph.outputs, _in_order(graph), _in_order, NativeSettings(workers=workers)).program
    by_value = {value: feeds[value.name] for value in graph.inputs}
    options = ort.SessionOptions()
    options.intra_op_num_threads = workers
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    spent: list[int] = []

    def on_node(timing: NodeTiming) -> None:
        spent.append(timing.end_ns - timing.start_ns)

    watched, plain = RunControl(on_node=on_node), RunControl()
    (theirs,) = session.run(None, feeds)
    np.testing.assert_allclose(program.run(by_value, plain)[graph.outputs[0]], theirs, rtol=1e-3, atol=1e-4)
    best = {"kernel": float("inf"), "run": float("inf"), "onnxruntime": float("inf")}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        spent.clear()
        program.run(by_value, watched)
        best["kernel"] = min(best["kernel"], sum(spent) / 1e9)
        best["run"] = min(best["run"], _timed(lambda: program.run(by_value, plain)))
        best["onnxruntime"] = min(best["onnxruntime"], _timed(lambda: session.run(None, feeds)))
    return best["kernel"], best["run"], best["onnxruntime"]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(arguments: list[str]) -> None:
    """Print a table of all cases whose name contains the pattern."""
    pattern = arguments[0] if arguments else ""
    print(f"{'case':36} {'kernel':>10} {'run':>10} {'ort':>10} {'ratio':>6} {'ns/el':>6} {'share':>6}")
    for case in CASES:
        if pattern not in case.name:
            continue
        kernel, run, theirs = measure(case)
        copied = copy_time(case.elements)
        times = f"{kernel * 1e6:8.1f}us {run * 1e6:8.1f}us {theirs * 1e6:8.1f}us"
        share = case.traffic / kernel / (2 / copied)
        print(f"{case.name:36} {times} {theirs / run:6.2f} {kernel / case.elements * 1e9:6.3f} {share:6.1%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
