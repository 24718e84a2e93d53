"""Elementwise chains, functions, reductions and normalisations: our kernels against onnxruntime on one thread.

    python -m benchmarks.kernels.elementwise [pattern]

`kernel` is the time of our native steps on memory that lies as it does inside a model (aligned to cache lines, which NumPy's
arrays are not), `run` that of the whole call from Python; onnxruntime's is a whole call. `copy` is the rate at which the kernel
reads its inputs and writes its result once, as a part of the rate at which this process copies a block as large as the input:
both live in the same cache (but for the first, where each call from Python finds Python's own data). `fma` is the part of the
core's multiply-adds that the multiplications and multiply-adds in the kernel's expressions take: it is what limits functions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, helper, numpy_helper

from benchmarks.kernels._race import timed
from benchmarks.kernels.peak import CALL, copy_peak, multiply_add_peak
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.codegen.host import host
from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.formats.onnx import load
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.tensor import Array
from sardonyx.kernel.loops import LoopKernel, surface, walks
from sardonyx.plan.native import NativePlan
from sardonyx.program.steps import Address, Argument, Buffer, Storage

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
_SUM_AND_NORM = (node("Add", ["x", "z"], ["a"]), node("LayerNormalization", ["a", "s", "b"], ["y"]))

CASES = (
    *(_function(name) for name in ("Exp", "Sigmoid", "Tanh", "Erf", "Gelu", "Log", "Softplus", "Sin", "Relu")),
    Case("bias + Gelu 128x3072", (128, 3072), [node("Add", ["x", "b"], ["a"]), node("Gelu", ["a"], ["y"])], {"b": (3072,)}),
    _chain(4096),
    _chain(64, 1024),
    _chain(1024, 1024),
    Case("bias 128x3072", (128, 3072), [node("Add", ["x", "b"], ["y"])], {"b": (3072,)}),
    Case("bias 2048x64", (2048, 64), [node("Add", ["x", "b"], ["y"])], {"b": (64,)}),
    Case("bias of channels 256x56x56", _IMAGE, [node("Add", ["x", "c"], ["y"])], {"c": (256, 1, 1)}),
    Case("Softmax 12x128x128", (12, 128, 128), [node("Softmax", ["x"], ["y"])]),
    Case("Softmax 84x8400, axis 0", (84, 8400), [node("Softmax", ["x"], ["y"], axis=0)]),
    Case("LayerNormalization 128x768", (128, 768), [node("LayerNormalization", ["x", "s", "b"], ["y"])], _ROW),
    Case("LayerNormalization 4096x32", (4096, 32), [node("LayerNormalization", ["x", "t", "t"], ["y"])], {"t": (32,)}),
    Case("sum + LayerNormalization 64x768", (64, 768), _SUM_AND_NORM, _ROW),
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


def multiplications(kernel: LoopKernel) -> int:
    """Multiplications and multiply-adds for each element."""
    count = 0
    for found in walks(kernel):
        moving = {node for node in surface(found.roots) if node.op == "load" and kernel.operands[node.param].inner != "zero"}
        for node in surface(found.roots):
            if node.op != "reduced" and any(arg in moving for arg in node.args):
                moving.add(node)
                count += node.op in ("mul", "fma", "scaled")
    return count


def _aligned(size: int, dtype: np.dtype[Any]) -> Array:
    memory = np.zeros(size * dtype.itemsize + 64, np.uint8)
    return memory[-memory.ctypes.data % 64 :][: size * dtype.itemsize].view(dtype)


class NativeCalls:
    """The kernels of a program, to be called on memory of their own."""

    def __init__(self, plan: NativePlan, feeds: Mapping[str, Array]) -> None:
        self._memory: dict[Buffer, Array] = {}
        for buffer in plan.buffers:
            assert isinstance(buffer.size, int)
            array = self._memory[buffer] = _aligned(buffer.size, buffer.dtype.numpy)
            array[:] = feeds[buffer.value.name].reshape(-1) if buffer.storage is Storage.INPUT and buffer.value is not None else 1
        self._library = KernelLibrary(host(), None)  # has the code, as long as it lives
        self._calls = []
        for step in plan.steps:
            arguments = np.array([self._entry(entry) for entry in step.arguments], np.int64)
            self._calls.append((CALL(self._library.address(step.kernel)), arguments, arguments.ctypes.data, step.units))

    def _entry(self, argument: Argument) -> Dim:
        if isinstance(argument, Address):
            return self._memory[argument.buffer].ctypes.data + argument.offset
        return argument

    def run(self) -> None:
        """Call every kernel once."""
        for kernel, _, address, units in self._calls:
            kernel(address, 0, units, 0)

    def run_nothing(self) -> None:
        """The same calls, with nothing to do."""
        for kernel, _, address, _ in self._calls:
            kernel(address, 0, 0, 0)


@dataclass(frozen=True)
class Measured:
    """Best times of our kernels, of our run and of onnxruntime's, in seconds; multiplications for each element."""

    kernel: float
    run: float
    onnxruntime: float
    multiplications: int


def measure(case: Case, seconds: float = 1.0, workers: int = 1) -> Measured:
    """Time a case: some runs of ours, then some of onnxruntime's, and again; each finds what its last run left in the cache."""
    content, feeds = _model(case)
    model = load(content)
    infer_shapes(model)
    graph = model.graph
    compiled = compile_graph(graph, graph.outputs, _in_order(graph), _in_order, NativeSettings(workers=workers))
    ours = compiled.program
    assert ours.takes_arrays
    options = ort.SessionOptions()
    options.intra_op_num_threads = workers
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    kernels = NativeCalls(compiled.plan, feeds)
    (theirs,) = session.run(None, feeds)
    np.testing.assert_allclose(ours.run_checked(feeds)[0], theirs, rtol=1e-3, atol=1e-4)
    times: dict[str, list[float]] = {"kernel": [], "nothing": [], "run": [], "onnxruntime": []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not times["kernel"]:
        times["kernel"] += [timed(kernels.run) for _ in range(4)]
        times["nothing"] += [timed(kernels.run_nothing) for _ in range(4)]
        times["run"] += [timed(lambda: ours.run(feeds)) for _ in range(4)]
        times["onnxruntime"] += [timed(lambda: session.run(None, feeds)) for _ in range(4)]
    best = {name: min(found) for name, found in times.items()}
    loops = [step.kernel for step in compiled.plan.steps if isinstance(step.kernel, LoopKernel)]
    return Measured(best["kernel"] - best["nothing"], best["run"], best["onnxruntime"], sum(map(multiplications, loops)))


def main(arguments: list[str]) -> None:
    """Print a table of all cases whose name contains the pattern."""
    pattern = arguments[0] if arguments else ""
    print(f"{'case':36} {'kernel':>10} {'run':>10} {'ort':>10} {'ratio':>6} {'ns/el':>6} {'copy':>6} {'fma':>6}")
    for case in CASES:
        if pattern not in case.name:
            continue
        copied = copy_peak(4 * case.elements)
        found = measure(case)
        times = f"{found.kernel * 1e6:8.1f}us {found.run * 1e6:8.1f}us {found.onnxruntime * 1e6:8.1f}us"
        share = case.traffic * 4 * case.elements / found.kernel / copied
        busy = 2 * found.multiplications * case.elements / found.kernel / multiply_add_peak()
        each = found.kernel / case.elements * 1e9
        print(f"{case.name:36} {times} {found.onnxruntime / found.run:6.2f} {each:6.3f} {share:6.1%} {busy:6.1%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
