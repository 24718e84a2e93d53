"""tools/compare_test_models.py: what it makes of models that agree, are refused, draw random numbers, or are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compare_test_models as tool


def save(path: Path, nodes: list[Any], inputs: list[Any], initializers: tuple[Any, ...] = (), output: Any = None) -> Path:
    outputs = [output or helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def float_input(*shape: Any) -> Any:
    return helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)


def weights(*shape: int) -> Any:
    return numpy_helper.from_array(np.ones(shape, np.float32), "w")


def test_sizes_that_only_the_weights_tell_are_found(tmp_path: Path) -> None:
    matmul = helper.make_node("MatMul", ["x", "w"], ["y"])
    path = save(tmp_path / "m.onnx", [matmul], [float_input("batch", "width")], (weights(37, 5),))
    assert tool.examine(path, 2, lambda stage: None) == tool.Outcome(str(path), "same")


def test_elements_of_a_sequence_have_the_shape_the_model_declares(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["n", 4])
    length = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    path = save(tmp_path / "s.onnx", [helper.make_node("SequenceLength", ["x"], ["y"])], [sequence], output=length)
    assert tool.examine(path, 1, lambda stage: None).verdict == "same"


def test_a_folder_is_told_apart_by_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "same.onnx", [helper.make_node("Relu", ["x"], ["y"])], [float_input("N", 3)])
    save(tmp_path / "random.onnx", [helper.make_node("RandomNormalLike", ["x"], ["y"])], [float_input(4, 4)])
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    outcomes = tool.examine_all(sorted(tmp_path.glob("*.onnx")), jobs=1, seeds=1)
    assert [outcome.verdict for outcome in outcomes] == ["refused there", "left out", "same"]
    assert tool.print_table(outcomes, tmp_path, all_of_them=True) == 100.0
    printed = capsys.readouterr().out
    assert "1 of 1 models that onnxruntime runs are the same: 100.0 %" in printed
    assert "broken.onnx" in printed


def test_a_model_that_ends_the_process_is_a_crash_and_the_next_one_is_examined(tmp_path: Path) -> None:
    worker = tool.Worker(seeds=1)
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [float_input(2)])
    assert worker.examine(path).verdict == "same"
    worker.process.kill()
    worker.process.join()
    assert worker.examine(path) == tool.Outcome(str(path), "refused there", "exit code -9 in onnxruntime")
    assert worker.examine(path).verdict == "same"
    worker.stop()


def floats(values: list[float]) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("actual", "expected", "text"),
    [
        (floats([1, 2]), floats([1, 2.0001]), ""),
        (floats([1, 2]), floats([1, 2.01]), "1 of 2 differ, first at (1,): 2.0 instead of 2.009999990463257"),
        (floats([1]), np.array([1.0]), "float32[1] instead of float64[1]"),
        (np.array([1], np.int8), np.array([2], np.int8), "1 of 1 differ, first at (0,): 1 instead of 2"),
        (floats([np.nan, np.inf]), floats([np.nan, np.inf]), ""),
        (np.array(["a"], object), np.array(["b"], object), "1 of 1 differ, first at (0,): a instead of b"),
        ([floats([1])], [floats([1]), floats([1])], "another number of elements"),
        ([{1: 2.0}], [{1: 3.0}], "1 of 1 differ, first at (0,): 2.0 instead of 3.0"),
        ([{1: 2.0}], [{2: 2.0}], "other keys"),
        (None, floats([1]), "None on one side"),
    ],
)
def test_differences_are_told(actual: Any, expected: Any, text: str) -> None:
    assert tool.difference(actual, expected) == text
