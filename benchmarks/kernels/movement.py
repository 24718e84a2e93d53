"""Moving data: transpositions, joins, gathers, slices and pads against onnxruntime on one thread.

    python -m benchmarks.kernels.movement [pattern]

`kernel` is the time inside our native steps, `run` that of a session's whole call; so is onnxruntime's. The last
column is the share of the bandwidth of a plain copy of as many bytes.
"""

from __future__ import annotations

import ctypes
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import onnxruntime as ort
from onnx import parser

import sardonyx
from benchmarks.kernels._race import timed
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.tensor import Array
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.runs import RunControl


@dataclass(frozen=True)
class Case:
    """A small graph, the sizes of its float inputs, and how many elements its integer inputs may name."""

    name: str
    graph: str
    feeds: dict[str, tuple[int, ...]]
    moved: int  # bytes of the result
    indices: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)


def _transpose(shape: tuple[int, ...], perm: tuple[int, ...], kind: str = "float") -> Case:
    sizes, order = ",".join(map(str, shape)), ",".join(map(str, perm))
    width = {"float": 4, "float16": 2, "uint8": 1, "double": 8}[kind]
    graph = f"({kind}[{sizes}] x) => ({kind}[a] y) {{ y = Transpose<perm=[{order}]>(x) }}"
    return Case(f"transpose {kind}[{sizes}] to {order}", graph, {"x": shape}, int(np.prod(shape)) * width)


_IMAGE = "float[1,64,56,56]"
CASES = (
    _transpose((1, 64, 56, 56), (0, 2, 3, 1)),
    _transpose((1, 56, 56, 64), (0, 3, 1, 2)),
    _transpose((1, 128, 12, 64), (0, 2, 1, 3)),
    _transpose((1, 12, 128, 64), (0, 2, 1, 3)),
    _transpose((1, 12, 128, 64), (0, 1, 3, 2)),
    _transpose((1024, 1024), (1, 0)),
    _transpose((1000, 1000), (1, 0)),
    _transpose((1000, 1000), (1, 0), "double"),
    _transpose((1000, 1000), (1, 0), "float16"),
    _transpose((1000, 1000), (1, 0), "uint8"),
    _transpose((1, 3, 224, 224), (0, 2, 3, 1)),
    _transpose((1, 224, 224, 3), (0, 3, 1, 2)),
    Case(
        "concat of 4 channels blocks",
        f"({_IMAGE} p, {_IMAGE} q, {_IMAGE} r, {_IMAGE} s) => (float[a] y) {{ y = Concat<axis=1>(p, q, r, s) }}",
        dict.fromkeys("pqrs", (1, 64, 56, 56)),
        4 * 64 * 56 * 56 * 4,
    ),
    Case(
        "concat of 4 on the last axis",
        "(float[512,64] p, float[512,64] q, float[512,64] r, float[512,64] s) => (float[a] y) { y = Concat<axis=1>(p, q, r, s) }",
        dict.fromkeys("pqrs", (512, 64)),
        4 * 512 * 64 * 4,
    ),
    Case(
        "embedding of 128 x 768 of 30000",
        "(float[30000,768] w, int64[1,128] i) => (float[a] y) { y = Gather(w, i) }",
        {"w": (30000, 768)},
        128 * 768 * 4,
        {"i": ((1, 128), 30000)},
    ),
    Case(
        "gather on the last axis",
        "(float[1000,256] x, int64[128] i) => (float[a] y) { y = Gather<axis=1>(x, i) }",
        {"x": (1000, 256)},
        1000 * 128 * 4,
        {"i": ((128,), 256)},
    ),
    Case(
        "gather elements",
        "(float[1000,256] x, int64[1000,256] i) => (float[a] y) { y = GatherElements<axis=1>(x, i) }",
        {"x": (1000, 256)},
        1000 * 256 * 4,
        {"i": ((1000, 256), 256)},
    ),
    Case(
        "scatter rows",
        "(float[1000,256] x, int64[128,1] i, float[128,256] u) => (float[a] y) { y = ScatterND(x, i, u) }",
        {"x": (1000, 256), "u": (128, 256)},
        1000 * 256 * 4,
        {"i": ((128, 1), 1000)},
    ),
    Case(
        "slice of height and width",
        f"({_IMAGE} x) => (float[a] y) {{ s = Constant<value_ints=[4,4]>() e = Constant<value_ints=[52,52]>() "
        "d = Constant<value_ints=[2,3]>() y = Slice(x, s, e, d) }",
        {"x": (1, 64, 56, 56)},
        64 * 48 * 48 * 4,
    ),
    Case(
        "slice of every second column",
        f"({_IMAGE} x) => (float[a] y) {{ s = Constant<value_ints=[0]>() e = Constant<value_ints=[56]>() "
        "d = Constant<value_ints=[3]>() t = Constant<value_ints=[2]>() y = Slice(x, s, e, d, t) }",
        {"x": (1, 64, 56, 56)},
        64 * 56 * 28 * 4,
    ),
    Case(
        "pad of height and width",
        f"({_IMAGE} x) => (float[a] y) {{ p = Constant<value_ints=[0,0,1,1,0,0,1,1]>() y = Pad(x, p) }}",
        {"x": (1, 64, 56, 56)},
        64 * 58 * 58 * 4,
    ),
    Case(
        "reflecting pad",
        f'({_IMAGE} x) => (float[a] y) {{ p = Constant<value_ints=[0,0,3,3,0,0,3,3]>() y = Pad<mode="reflect">(x, p) }}',
        {"x": (1, 64, 56, 56)},
        64 * 62 * 62 * 4,
    ),
    Case(
        "depth to space",
        "(float[1,64,56,56] x) => (float[a] y) { y = DepthToSpace<blocksize=2>(x) }",
        {"x": (1, 64, 56, 56)},
        64 * 56 * 56 * 4,
    ),
    Case(
        "tile",
        "(float[64,56,56] x) => (float[a] y) { r = Constant<value_ints=[1,2,2]>() y = Tile(x, r) }",
        {"x": (64, 56, 56)},
        4 * 64 * 56 * 56 * 4,
    ),
)


def _in_order(graph: Graph) -> list[Node]:
    return list(graph.nodes)


def _single_thread() -> sardonyx.SessionOptions:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def _types(case: Case) -> dict[str, np.dtype[np.generic]]:
    names = {"double": np.float64, "float16": np.float16, "uint8": np.uint8}
    kind = case.graph[1 : case.graph.index("[")]
    return {name: np.dtype(names.get(kind, np.float32)) for name in case.feeds}


def measure(case: Case, seconds: float = 0.7) -> tuple[float, float, float, float]:
    """Best times of our kernels, of our run, of onnxruntime's and of a plain copy of the result, interleaved."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> movement {case.graph}')
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    content = proto.SerializeToString()
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {name: (rng.random(case.feeds[name]) * 250).astype(kind) for name, kind in _types(case).items()}
    feeds.update({name: rng.integers(0, limit, shape) for name, (shape, limit) in case.indices.items()})
    model = load(content)
    infer_shapes(model)
    graph = model.graph
    program = compile_graph(graph, graph.outputs, _in_order(graph), _in_order, NativeSettings(workers=1))
    by_value = {value: feeds[value.name] for value in graph.inputs}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    spent: list[int] = []

    def on_node(timing: NodeTiming) -> None:
        spent.append(timing.end_ns - timing.start_ns)

    watched = RunControl(on_node=on_node)
    ours = sardonyx.InferenceSession(content, _single_thread())
    np.testing.assert_array_equal(ours.run(None, feeds)[0], session.run(None, feeds)[0])
    source = np.ones(case.moved, np.uint8)
    best = [float("inf")] * 4
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        spent.clear()
        program.run_values(by_value, watched)
        best[0] = min(best[0], sum(spent) / 1e9)
        best[1] = min(best[1], timed(lambda: ours.run(None, feeds)))
        best[2] = min(best[2], timed(lambda: session.run(None, feeds)))
        target = np.empty(case.moved, np.uint8)
        best[3] = min(best[3], timed(lambda: ctypes.memmove(target.ctypes.data, source.ctypes.data, case.moved)))  # noqa: B023
    return best[0], best[1], best[2], best[3]


def main(arguments: list[str]) -> None:
    """Print a table of all cases whose name contains the pattern."""
    pattern = arguments[0] if arguments else ""
    print(f"{'movement':48} {'kernel':>10} {'run':>10} {'ort':>10} {'ratio':>6} {'copy':>7}")
    for case in CASES:
        if pattern in case.name:
            kernel, run, theirs, copy = measure(case)
            times = f"{kernel * 1e6:8.1f}us {run * 1e6:8.1f}us {theirs * 1e6:8.1f}us"
            print(f"{case.name:48} {times} {theirs / run:6.2f} {copy / kernel:7.1%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
