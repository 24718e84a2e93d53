"""Memory of loading large weights: `python -m benchmarks.weights [--megabytes 1024]`.

A model of three matrix products with external data is made in a temporary folder; a fresh process opens it twice. Printed are the
peak and what stays, in MB beyond a process that has opened a small model, and the time of the first and of the second session.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from onnx import TensorProto, helper, save

_SIDE: Final = 4096
_PROGRAM: Final = """
import sys, time, sardonyx
def status(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) / 1024
kept = [sardonyx.InferenceSession(sys.argv[1])]
before = status("VmRSS")
for _ in range(2):
    start = time.perf_counter()
    kept.append(sardonyx.InferenceSession(sys.argv[2]))
    print(status("VmHWM") - before, status("VmRSS") - before, time.perf_counter() - start)
"""


def write_model(path: Path, columns: list[int]) -> None:
    """Products with weights of _SIDE rows, the one in the middle transposed; their data lies beside the model."""
    random = np.random.default_rng(0)
    tensors, nodes = [], []
    with path.with_suffix(".data").open("wb") as file:
        for number, count in enumerate(columns):
            transposed = number == 1
            shape = [count, _SIDE] if transposed else [_SIDE, count]
            tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
            facts = {"location": path.with_suffix(".data").name, "offset": str(file.tell()), "length": str(4 * _SIDE * count)}
            for key, value in facts.items():
                tensor.external_data.add(key=key, value=value)
            for _ in range(shape[0]):
                file.write(random.random(shape[1], np.float32).tobytes())
            tensors.append(tensor)
            nodes.append(helper.make_node("Gemm", ["x", tensor.name], [f"y{number}"], transB=int(transposed)))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", _SIDE])]
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="memory of loading large weights")
    parser.add_argument("--megabytes", type=int, default=1024)
    args = parser.parse_args()
    total = args.megabytes * 2**20 // (4 * _SIDE)
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.onnx", Path(folder) / "large.onnx"
        write_model(small, [16, 16, 16])
        write_model(large, [total // 4, total // 4, total // 2])
        command = [sys.executable, "-c", _PROGRAM, str(small), str(large)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(f"{args.megabytes} MB of weights    peak    stays   seconds")
    for name, line in zip(("one session", "two sessions"), done.stdout.splitlines()):
        peak, stays, seconds = map(float, line.split())
        print(f"{name:20s}{peak:8.0f}{stays:9.0f}{seconds:10.2f}")


if __name__ == "__main__":
    main()
