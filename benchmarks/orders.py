"""Planned memory by execution order: `python -m benchmarks.orders [MODEL ...]`.

Over the benchmark models and three graphs shaped like a training step, made in code: a forward part whose activations are kept, a
loss, and a backward part that reads them in reverse. Printed is the planned peak of each order in MB, and the geometric means.
`--late` also measures a graph in which the Shape of a 256 MB tensor is read at the end: the tensor must not live until then.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import sardonyx

from .models.catalog import CASES, Unavailable

ORDERS: Final = ("DEFAULT", "PRIORITY_BASED", "MEMORY_EFFICIENT")
F32 = TensorProto.FLOAT


class _Builder:
    """Nodes and weights of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{sum(weight.name.startswith('w') for weight in self.weights)}"
        self.weights.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
        return name

    def integers(self, *numbers: int) -> str:
        name = f"i{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def model(self, inputs: dict[str, list[int]], outputs: list[str]) -> bytes:
        described = [helper.make_tensor_value_info(name, F32, shape) for name, shape in inputs.items()]
        results = [helper.make_tensor_value_info(name, F32, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "training", described, results, self.weights)
        content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
        return content


def _dense(b: _Builder, x: str, width: int, wide: int) -> tuple[str, Callable[[str], tuple[str, list[str]]]]:
    """A layer with its backward part: (result, gradient of it -> gradient of x, gradients of the weights)."""
    w, v = b.weight(width, wide), b.weight(wide, width)
    hidden = b.node("MatMul", x, w)
    active = b.node("Softmax", hidden, axis=-1)
    y = b.node("Add", x, b.node("MatMul", active, v))

    def backward(dy: str) -> tuple[str, list[str]]:
        d_active = b.node("MatMul", dy, b.node("Transpose", v, perm=[1, 0]))
        dv = b.node("MatMul", b.node("Transpose", active, perm=[1, 0]), dy)
        inner = b.node("Mul", active, d_active)
        d_hidden = b.node("Sub", inner, b.node("Mul", active, b.node("ReduceSum", inner, b.integers(-1), keepdims=1)))
        dw = b.node("MatMul", b.node("Transpose", x, perm=[1, 0]), d_hidden)
        return b.node("Add", dy, b.node("MatMul", d_hidden, b.node("Transpose", w, perm=[1, 0]))), [dw, dv]

    return y, backward


def chain_training(rows: int = 512, width: int = 256, layers: int = 6) -> bytes:
    """Layers one after the other, each with a residual connection; gradients of all weights are outputs."""
    b = _Builder()
    x, backward = "x", []
    for _ in range(layers):
        x, back = _dense(b, x, width, 4 * width)
        backward.append(back)
    loss = b.node("ReduceMean", b.node("Mul", x, x), keepdims=0)
    dy, grads = x, []
    for back in reversed(backward):
        dy, found = back(dy)
        grads += found
    return b.model({"x": [rows, width]}, [loss, *grads])


def branched_training(rows: int = 512, width: int = 256, branches: int = 5) -> bytes:
    """Branches side by side, joined by a sum: in which order they run decides how many are alive together."""
    b = _Builder()
    ends, backward = [], []
    for _ in range(branches):
        first, back_first = _dense(b, "x", width, 4 * width)
        second, back_second = _dense(b, first, width, 4 * width)
        ends.append(b.node("ReduceSum", second, b.integers(-1), keepdims=1))
        backward.append((second, back_first, back_second))
    total = b.node("Sum", *ends)
    loss = b.node("ReduceMean", total, keepdims=0)
    grads = []
    for last, back_first, back_second in backward:
        dy, found = back_second(b.node("Mul", last, total))
        _, more = back_first(dy)
        grads += [*found, *more]
    return b.model({"x": [rows, width]}, [loss, *grads])


def statistics_training(rows: int = 512, width: int = 1024, layers: int = 6) -> bytes:
    """A forward part whose activations are also measured, in large intermediate values, for sums that are outputs."""
    b = _Builder()
    x, kept, measured = "x", [], []
    for _ in range(layers):
        x = b.node("Tanh", b.node("MatMul", x, b.weight(width, width)))
        kept.append(x)
        outer = b.node("MatMul", b.node("Transpose", x, perm=[1, 0]), x)
        measured.append(b.node("ReduceSum", b.node("Exp", outer), keepdims=0))
    loss = b.node("ReduceMean", x, keepdims=0)
    dy, grads = x, []
    for number in reversed(range(layers)):
        square = b.node("Mul", kept[number], kept[number])
        inner = b.node("Mul", dy, b.node("Sub", b.node("Mul", dy, loss), square))
        grads.append(b.node("MatMul", b.node("Transpose", kept[number - 1] if number else "x", perm=[1, 0]), inner))
        dy = b.node("MatMul", inner, b.node("Transpose", f"w{number}", perm=[1, 0]))
    return b.model({"x": [rows, width]}, [loss, *measured, *grads])


TRAINING: Final[dict[str, Callable[[], bytes]]] = {
    "training: chain": chain_training,
    "training: branches": branched_training,
    "training: statistics": statistics_training,
}


def late_shape(side: int = 8192) -> bytes:
    """A product of 256 MB whose Shape is read at the very end, after two more of that size."""
    b = _Builder()
    small, large = "x", ""
    for _ in range(3):
        product = b.node("MatMul", b.node("Transpose", small, perm=[1, 0]), "x")
        large = large or product
        small = b.node("ReduceMax", b.node("Softmax", product, axis=-1), axes=[0], keepdims=1)
    count = b.node("ReduceProd", b.node("Cast", b.node("Shape", large), to=F32), keepdims=0)
    return b.model({"x": [1, side]}, [b.node("Mul", small, count)])


_RUN: Final = """
import sys, numpy, sardonyx
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
session = sardonyx.InferenceSession(sys.argv[1])
before = peak()
session.run(None, {"x": numpy.zeros((1, 8192), numpy.float32)})
print(peak() - before)
"""


def _late() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "late.onnx"
        path.write_bytes(late_shape())
        for each in sardonyx.explain_memory(path):
            print(f"late Shape of 256 MB, {each.order}: planned {each.arena_bytes / 1e6:.1f} MB")
        done = subprocess.run([sys.executable, "-c", _RUN, str(path)], capture_output=True, text=True, check=True)
        print(f"late Shape of 256 MB: a run adds {float(done.stdout):.1f} MB to the process")


def main() -> None:
    """Plan and print."""
    parser = argparse.ArgumentParser(description="planned memory by execution order")
    parser.add_argument("models", nargs="*", help="names of benchmark models; default: all, and the graphs made here")
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"))
    parser.add_argument("--late", action="store_true", help="also the graph with a late Shape of a large tensor")
    args = parser.parse_args()
    logs: dict[str, list[float]] = {name: [] for name in ORDERS}
    print(f"{'model':24s}" + "".join(f"{name:>18s}" for name in ORDERS) + "     MB")
    for name in args.models or [*CASES, *TRAINING]:
        shapes = None
        if name in TRAINING:
            source: object = TRAINING[name]()
        else:
            try:
                source, feeds = CASES[name].prepare(args.cache)
            except Unavailable as error:
                print(f"{name:24s} {error}")
                continue
            shapes = {key: np.shape(value) for key, value in feeds.items()}
        found = {each.order: each.arena_bytes for each in sardonyx.explain_memory(source, shapes)}
        print(f"{name:24s}" + "".join(f"{found[order] / 1e6:18.3f}" for order in ORDERS), flush=True)
        for order in ORDERS:
            logs[order].append(log(max(found[order], 1)))
    print(f"{'geometric mean':24s}" + "".join(f"{exp(sum(each) / len(each)) / 1e6:18.3f}" for each in logs.values()))
    if args.late:
        _late()


if __name__ == "__main__":
    main()
