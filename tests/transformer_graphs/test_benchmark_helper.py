"""Helpers of benchmarks and of shapes, by ONNX Runtime's names."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from sardonyx.errors import InvalidArgument
from sardonyx.transformers.benchmark_helper import (
    ConfigModifier,
    OptimizerInfo,
    Precision,
    create_onnxruntime_session,
    get_latency_result,
    get_ort_environment_variables,
    inference_ort,
    measure_memory,
    output_details,
    output_fusion_statistics,
    prepare_environment,
)
from sardonyx.transformers.shape_infer_helper import SymbolicShapeInferenceHelper


def model() -> bytes:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["c"], axis=1),
        helper.make_node("Transpose", ["c"], ["t"], perm=[1, 0]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    content: bytes = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), ir_version=9).SerializeToString()
    return content


def test_a_session_is_run_and_its_latencies_are_told(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model())
    session = create_onnxruntime_session(path, use_gpu=False, num_threads=1, provider_options={})
    assert session is not None
    result = inference_ort(session, {"x": np.ones((2, 3), np.float32)}, {"model_name": "m"}, 4, batch_size=2, warm_up_repeat=1)
    assert (result["test_times"], result["io_binding"], result["model_name"]) == (4, False, "m")
    output_details([result], tmp_path / "details.csv")
    header, row = (tmp_path / "details.csv").read_text().splitlines()
    assert dict(zip(header.split(","), row.split(",")))["average_latency_ms"] == result["average_latency_ms"]


def test_a_session_that_cannot_be_created_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert create_onnxruntime_session(tmp_path / "missing.onnx", use_gpu=False) is None
    assert "missing.onnx" in caplog.text
    with pytest.raises(RuntimeError, match="'abacus' is not known"):
        create_onnxruntime_session(tmp_path / "missing.onnx", use_gpu=True, provider="abacus")


def test_latencies() -> None:
    found = get_latency_result([0.001, 0.003], 4)
    assert (found["average_latency_ms"], found["QPS"], found["latency_90_percentile"]) == ("2.00", "2000.00", "2.80")


def test_memory_of_a_function() -> None:
    block = mmap.mmap(-1, 1 << 25)  # pages that nobody has had before: what was freed may still be counted

    def fill() -> None:
        np.frombuffer(block, np.uint8)[:] = 1

    rise = measure_memory(False, fill)
    assert rise is not None
    assert rise > 30
    now = measure_memory(False, None)
    assert now is not None
    assert now > 10
    assert measure_memory(True, None) is None


def test_names_folders_and_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (str(Precision.INT4), str(OptimizerInfo.BYSCRIPT)) == ("int4", "by_script")
    prepare_environment(str(tmp_path / "cache"), str(tmp_path / "results"), use_gpu=False)
    assert (tmp_path / "cache").is_dir()
    with pytest.raises(AssertionError, match="run on the CPU"):
        prepare_environment(None, None, use_gpu=True)
    output_fusion_statistics({"a.onnx": {"Attention": 3}}, tmp_path / "fused.csv")
    assert (tmp_path / "fused.csv").read_text().startswith("model_filename,datetime,Attention")
    monkeypatch.setenv("ORT_TRANSFORMER_OPTIONS", "1")
    assert get_ort_environment_variables() == "ORT_TRANSFORMER_OPTIONS=1"

    class Config:
        num_hidden_layers = 12

    config = Config()
    ConfigModifier(3).modify(config)
    assert config.num_hidden_layers == 3


def test_shapes_of_a_model_with_sizes_for_its_axes() -> None:
    shapes = SymbolicShapeInferenceHelper(model())
    assert shapes.infer({"batch": 4, "length": 3})
    assert shapes.get_edge_shape("y") == [6, 4]
    assert shapes.compare_shape("t", "y")
    assert not shapes.compare_shape("c", "y")
    assert shapes.get_edge_shape("nobody") is None
    shapes.infer({"batch": 4})
    assert shapes.get_edge_shape("x") == [4, "length"]
    with pytest.raises(InvalidArgument, match="the shape of 'nobody' is not known"):
        shapes.compare_shape("nobody", "y")
