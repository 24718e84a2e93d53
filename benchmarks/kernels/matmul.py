"""Matrix products: our kernels against onnxruntime on one thread, and their share of the machine's peak.

    python -m benchmarks.kernels.matmul [pattern]

`kernel` is the time inside our native steps, `run` that of the whole call from Python; onnxruntime's is a whole call.
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
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.tensor import Array
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.runs import RunControl

_TYPES = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE}


@dataclass(frozen=True)
class Case:
    """A product of A and B; a constant B is packed beforehand. `transposed` means that B comes as its transpose."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    constant: bool = True
    epilogue: str = ""
    transposed: bool = False
    type: str = "f32"

    def __str__(self) -> str:
        parts = ["x".join(map(str, self.a)), "*", "x".join(map(str, self.b))]
        marks = ["constant" if self.constant else "computed", self.epilogue, "transposed" if self.transposed else ""]
        marks.append(self.type if self.type != "f32" else "")
        return " ".join(parts) + f" ({', '.join(filter(None, marks))})"

    @property
    def operations(self) -> float:
        """Floating point operations of the product."""
        batch = np.broadcast_shapes(self.a[:-2], self.b[:-2])
        return 2.0 * float(np.prod(batch)) * self.a[-2] * self.a[-1] * self.b[-1]


CASES = (
    Case((512, 512), (512, 512)),
    Case((128, 768), (768, 768)),
    Case((128, 768), (768, 3072)),
    Case((128, 3072), (3072, 768)),
    Case((128, 768), (768, 768), epilogue="bias+residual"),
    Case((128, 768), (768, 3072), epilogue="bias+relu"),
    Case((197, 768), (768, 768)),
    Case((384, 384), (384, 1536)),
    Case((128, 1024), (1024, 4096)),
    Case((1, 64), (64, 128)),
    Case((1, 768), (768, 3072)),
    Case((4, 768), (768, 3072)),
    Case((1, 768), (768, 50257)),
    Case((1, 2048), (2048, 1000)),
    Case((256, 100), (100, 10)),
    Case((12, 128, 64), (12, 64, 128), constant=False),
    Case((12, 128, 128), (12, 128, 64), constant=False),
    Case((12, 128, 64), (12, 64, 128), constant=False, transposed=True),
    Case((12, 1, 64), (12, 64, 512), constant=False, transposed=True),
    Case((12, 1, 512), (12, 512, 64), constant=False),
    Case((512, 512), (512, 512), constant=False),
    Case((1, 768), (768, 3072), constant=False),
    Case((512, 512), (512, 512), type="f64"),
)


def _model(case: Case) -> tuple[bytes, dict[str, Array]]:
    rng = np.random.default_rng(0)
    dtype = np.dtype(case.type.replace("f", "float"))
    element = _TYPES[case.type]
    a = rng.standard_normal(case.a).astype(dtype)
    b = rng.standard_normal(case.b).astype(dtype)
    feeds: dict[str, Array] = {"a": a}
    constants: dict[str, Array] = {}
    nodes = []
    if case.transposed:
        b = np.ascontiguousarray(np.swapaxes(b, -1, -2))
    (constants if case.constant else feeds)["b"] = b
    value = "product"
    if case.transposed:
        nodes.append(helper.make_node("FusedMatMul", ["a", "b"], [value], domain="com.microsoft", transB=1))
    else:
        nodes.append(helper.make_node("MatMul", ["a", "b"], [value]))
    for number, name in enumerate(filter(None, case.epilogue.split("+"))):
        following = f"v{number}"
        if name == "relu":
            nodes.append(helper.make_node("Relu", [value], [following]))
        else:
            shape = (case.b[-1],) if name == "bias" else (*case.a[:-1], case.b[-1])
            operand = rng.standard_normal(shape).astype(dtype)
            (constants if name == "bias" else feeds)[name] = operand
            nodes.append(helper.make_node("Add", [value, name], [following]))
        value = following
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info(name, element, array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info(value, element, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString(), feeds


def _in_order(graph: Graph) -> list[Node]:
    return list(graph.nodes)


def measure(case: Case, seconds: float = 2.0, workers: int = 1) -> tuple[float, float, float]:
    """Best times of our kernels, of our run and of onnxruntime's, interleaved."""
    content, feeds = _model(case)
    model = load(content)
    infer_shapes(model)
    graph = model.graph
    program = compile_graph(graph, graph.outputs, _in_order(graph), _in_order, NativeSettings(workers=workers))
    by_value = {value: feeds[value.name] for value in model.graph.inputs}
    options = ort.SessionOptions()
    options.intra_op_num_threads = workers
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    spent: list[int] = []

    def on_node(timing: NodeTiming) -> None:
        spent.append(timing.end_ns - timing.start_ns)

    watched, plain = RunControl(on_node=on_node), RunControl()
    (output,) = model.graph.outputs
    ours = program.run_values(by_value, plain)[output]
    (theirs,) = session.run(None, feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    best = {"kernel": float("inf"), "run": float("inf"), "onnxruntime": float("inf")}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        spent.clear()
        program.run_values(by_value, watched)
        best["kernel"] = min(best["kernel"], sum(spent) / 1e9)
        best["run"] = min(best["run"], timed(lambda: program.run_values(by_value, plain)))
        best["onnxruntime"] = min(best["onnxruntime"], timed(lambda: session.run(None, feeds)))
    return best["kernel"], best["run"], best["onnxruntime"]


def main(arguments: list[str]) -> None:
    """Print a table of all cases whose name contains the pattern."""
    pattern = arguments[0] if arguments else ""
    print(f"peak: {multiply_add_peak('f32') / 1e9:.1f} GFLOP/s (f32), {multiply_add_peak('f64') / 1e9:.1f} GFLOP/s (f64)")
    print(f"{'product':56} {'kernel':>10} {'run':>10} {'ort':>10} {'ratio':>6} {'peak':>6} {'GB/s':>6}")
    for case in CASES:
        if pattern not in str(case):
            continue
        kernel, run, theirs = measure(case)
        share = case.operations / kernel / multiply_add_peak(case.type)
        rate = float(np.prod(case.b)) * (8 if case.type == "f64" else 4) / kernel / 1e9
        times = f"{kernel * 1e6:8.1f}us {run * 1e6:8.1f}us {theirs * 1e6:8.1f}us"
        print(f"{case!s:56} {times} {theirs / run:6.2f} {share:6.1%} {rate:6.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
