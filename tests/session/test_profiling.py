"""The trace of a session: a file in ONNX Runtime's layout."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import sardonyx

Model = Callable[[str], str]
X = np.ones((3, 2), np.float32)


def test_the_trace_has_onnxruntimes_layout(ort: Any, model: Model, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Compiled code runs several nodes as one; the reference runs each by itself, as onnxruntime does.
    provider = "SardonyxReferenceExecutionProvider" if ort is sardonyx else "CPUExecutionProvider"
    session = ort.InferenceSession(model("add_mul"), options, providers=[provider])
    session.run(None, {"X": X})
    name = session.end_profiling()
    assert Path(name).parent == tmp_path
    assert Path(name).name.startswith("trace_")
    assert name.endswith(".json")
    lines = Path(name).read_text().splitlines()
    assert lines[0] == "["
    assert lines[-1] == "]"
    for line in lines[1:-1]:
        assert all(tag in line for tag in ('"pid" :', '"dur" :', '"ts" :', '"ph" : "X"', '"name" :', '"args" :'))
    events = json.loads(Path(name).read_text())
    nodes = [event for event in events if event["cat"] == "Node"]
    assert [event["name"] for event in nodes] == ["add_1_kernel_time", "mul_1_kernel_time"]
    assert [event["args"]["op_name"] for event in nodes] == ["Add", "Mul"]
    assert nodes[0]["args"]["provider"] == provider
    assert nodes[0]["args"]["input_type_shape"] == [{"float": [3, 2]}, {"float": [3, 2]}]
    assert nodes[0]["args"]["output_size"] == "24"
    assert {"model_loading_uri", "session_initialization", "model_run"} <= {event["name"] for event in events}
    assert session.end_profiling() == ""


def test_the_times_of_a_recurrent_layer_are_one_event_of_the_trace(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    weights = {"W": rng.standard_normal((1, 400, 8)), "R": rng.standard_normal((1, 400, 100)) / 10}
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[7,2,8] x) => (float[7,1,2,100] y) '
    layer = onnx.parser.parse_model(head + "{ y = LSTM <hidden_size = 100> (x, W, R) }")
    layer.graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items())
    content, x = layer.SerializeToString(), rng.standard_normal((7, 2, 8)).astype(np.float32)
    session = sardonyx.InferenceSession(content, options)
    [watched] = session.run(None, {"x": x})
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event["args"]["kernel"] for event in events if event["cat"] == "Node"]
    assert kernels.count("RecurrentKernel") == 2  # zeros enter the state; all times
    [expected] = sardonyx.InferenceSession(content).run(None, {"x": x})
    np.testing.assert_array_equal(watched, expected)


def test_compiled_code_is_in_the_trace(model: Model, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = sardonyx.InferenceSession(model("add_mul"), options)
    session.run(None, {"X": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event["args"] for event in events if event["cat"] == "Node"]
    assert "Add 'add_1'" in " ".join(kernel["nodes"] for kernel in kernels)
    assert "Mul 'mul_1'" in " ".join(kernel["nodes"] for kernel in kernels)
    assert {kernel["kernel"] for kernel in kernels} == {"LoopKernel"}
    assert kernels[-1]["bytes_written"] == "24"
    assert int(kernels[-1]["bytes_read"]) >= 24
    assert float(kernels[-1]["gflops_per_second"]) > 0


def test_without_profiling_there_is_no_trace(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    assert session.end_profiling() == ""


def test_the_start_can_be_compared_with_the_monotonic_clock(model: Model, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    starts = []
    before = time.monotonic_ns()
    for _ in range(2):
        session = sardonyx.InferenceSession(model("mul_1"), options)
        starts.append(session.get_profiling_start_time_ns())
        session.end_profiling()
    assert before <= starts[0] <= starts[1] <= time.monotonic_ns()
    assert sardonyx.InferenceSession(model("mul_1")).get_profiling_start_time_ns() == 0


def test_a_trace_nobody_ended_is_written_when_the_session_goes(model: Model, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = sardonyx.InferenceSession(Path(model("mul_1")).read_bytes(), options)
    session.run(None, {"X": X})
    del session
    [file] = tmp_path.glob("trace_*.json")
    assert "model_loading_array" in {event["name"] for event in json.loads(file.read_text())}


def test_a_trace_that_cannot_be_written(model: Model, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "none" / "trace")
    session = sardonyx.InferenceSession(model("mul_1"), options)
    with pytest.raises(sardonyx.Fail, match="the profile cannot be written"):
        session.end_profiling()
