"""Weights are quantized one by one: memory is needed for one of them, not for the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.formats.onnx import load, save
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import TensorType
from sardonyx.quantization import MatMulNBitsQuantizer, quantize_dynamic

MEASURE = """
import sys, threading, time
from pathlib import Path
from sardonyx.quantization import MatMulNBitsQuantizer, quantize_dynamic

def used():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

peak, done, before = [0], [], used()
def watch():
    while not done:
        peak[0] = max(peak[0], used())
        time.sleep(0.005)
watcher = threading.Thread(target=watch)
watcher.start()
kind, source, target = sys.argv[1:]
if kind == "dynamic":
    quantize_dynamic(source, target, use_external_data_format=True)
else:
    quantizer = MatMulNBitsQuantizer(source, 4, 32)
    quantizer.process()
    quantizer.model.save_model_to_file(target, True)
done.append(True)
watcher.join()
print(peak[0] - before)
"""


def _chain(path: Path, layers: int, size: int) -> None:
    """A model of products, whose weights are made as they are written."""
    graph = Graph("chain")
    value = Value("x", TensorType(dtypes.FLOAT32, (1, size)))
    graph.inputs.append(value)
    for index in range(layers):

        def load_bytes(seed: int = index) -> memoryview:
            return np.random.default_rng(seed).standard_normal(size * size, np.float32).data.cast("B")

        weight = graph.add_initializer(f"w{index}", Tensor(dtypes.FLOAT32, (size, size), load_bytes))
        result = Value(f"y{index}")
        graph.append(Node("MatMul", [value, weight], [result], version=21, name=f"matmul{index}"))
        value = result
    value.type = TensorType(dtypes.FLOAT32, (1, size))
    graph.outputs.append(value)
    save(Model(graph, opset_imports={"": 21}, ir_version=10), path, external_data=f"{path.name}.data")


@pytest.mark.parametrize("kind", ["dynamic", "blocks"])
def test_a_quantized_weight_is_computed_when_it_is_written(tmp_path: Path, kind: str) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    _chain(path, 3, 64)
    if kind == "dynamic":
        quantize_dynamic(path, out, use_external_data_format=True)
    else:
        quantizer = MatMulNBitsQuantizer(path, 4, 32)
        quantizer.process()
        quantizer.model.save_model_to_file(out, True)
    constants = {name: value.constant for name, value in load(out).graph.initializers.items()}
    sizes = {name: held.nbytes for name, held in constants.items() if isinstance(held, Tensor)}
    assert sizes["w0_quantized" if kind == "dynamic" else "w0_Q4"] == 64 * 64 // (1 if kind == "dynamic" else 2)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["dynamic", "blocks"])
def test_memory_is_that_of_a_weight(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.onnx"
    _chain(path, 12, 2048)  # 16 MB a weight, 200 MB in all
    command = [sys.executable, "-c", MEASURE, kind, str(path), str(tmp_path / "out.onnx")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert int(result.stdout.split()[-1]) < 120_000  # kB; a handful of weights, with what rounding them needs
