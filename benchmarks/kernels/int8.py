"""Products and convolutions of 8-bit integers against onnxruntime on one thread, and their share of the machine's peak.

    python -m benchmarks.kernels.int8 [pattern]

Times are processor time of whole runs, the best of many in turn: others on the machine disturb them least.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

import sardonyx as sx
from benchmarks.kernels._race import session
from benchmarks.kernels.peak import byte_product_peak
from sardonyx.ir.tensor import Array


@dataclass(frozen=True)
class Case:
    """A product (rows, depth, columns), or a convolution (size, channels, kernels, window, stride, groups); u8 or i8 images."""

    sizes: tuple[int, ...]
    type: str = "uint8"

    def __str__(self) -> str:
        if len(self.sizes) == 3:
            return f"{'x'.join(map(str, self.sizes))} ({self.type})"
        size, channels, kernels, window, stride, groups = self.sizes
        return f"conv {size}x{size}, {channels} to {kernels}, {window}x{window}, stride {stride}, groups {groups} ({self.type})"

    @property
    def operations(self) -> float:
        """Multiplications and additions."""
        if len(self.sizes) == 3:
            return 2.0 * float(np.prod(self.sizes))
        size, channels, kernels, window, stride, groups = self.sizes
        return 2.0 * (size // stride) ** 2 * kernels * channels // groups * window**2


CASES = (
    *(Case((128, 768, columns), kind) for columns in (768, 3072) for kind in ("uint8", "int8")),
    Case((128, 3072, 768)),
    Case((512, 512, 512)),
    Case((1, 768, 3072)),
    Case((56, 64, 64, 1, 1, 1)),
    Case((56, 64, 64, 3, 1, 1)),
    Case((28, 128, 128, 3, 1, 1)),
    Case((14, 256, 256, 3, 1, 1)),
    Case((7, 512, 512, 3, 1, 1)),
    Case((14, 1024, 256, 1, 1, 1)),
    Case((56, 64, 64, 3, 1, 1), "int8"),
    Case((56, 144, 144, 3, 1, 144)),
)


def _model(case: Case) -> tuple[bytes, dict[str, Array]]:
    rng = np.random.default_rng(0)
    kind = np.dtype(case.type)
    limits = np.iinfo(kind)
    constants: dict[str, Any] = {"s": np.float32(0.01), "z": np.array(3, kind), "wz": np.int8(0), "ys": np.float32(2.0)}
    attrs: dict[str, Any] = {}
    if len(case.sizes) == 3:
        rows, depth, columns = case.sizes
        shape: tuple[int, ...] = (rows, depth)
        constants["w"] = rng.integers(-127, 128, (depth, columns)).astype(np.int8)
        name = "QLinearMatMul"
    else:
        size, channels, kernels, window, stride, groups = case.sizes
        shape, name = (1, channels, size, size), "QLinearConv"
        constants["w"] = rng.integers(-127, 128, (kernels, channels // groups, window, window)).astype(np.int8)
        attrs = {"pads": [window // 2] * 4, "strides": [stride, stride], "group": groups}
    feeds = {"x": rng.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)}
    node = helper.make_node(name, ["x", "s", "z", "w", "s", "wz", "ys", "z"], ["y"], **attrs)
    element = helper.np_dtype_to_tensor_dtype(kind)
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString(), feeds


def measure(case: Case, seconds: float = 1.0) -> tuple[float, float]:
    """The best processor times of our run and of onnxruntime's."""
    content, feeds = _model(case)
    engines = [session(module, content) for module in (sx, ort)]
    best = [float("inf")] * 2
    for engine in engines:
        engine.run(None, feeds)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, engine in enumerate(engines):
            start = time.process_time()
            engine.run(None, feeds)
            best[number] = min(best[number], time.process_time() - start)
    return best[0], best[1]


def main(arguments: list[str]) -> None:
    """Print a table of all cases whose name contains the pattern."""
    pattern = arguments[0] if arguments else ""
    print(f"peak: {byte_product_peak() / 1e9:.1f} GOP/s")
    print(f"{'':60} {'ours':>10} {'ort':>10} {'ratio':>6} {'peak':>6}")
    for case in CASES:
        if pattern in str(case):
            ours, theirs = measure(case)
            share = case.operations / ours / byte_product_peak()
            print(f"{case!s:60} {ours * 1e6:8.1f}us {theirs * 1e6:8.1f}us {theirs / ours:6.2f} {share:6.1%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
