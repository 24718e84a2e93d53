"""Where a compiled model keeps its weights, as a function of the caller decides; and callers whose functions fail. On both."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx

LARGE = np.arange(64, dtype=np.float32)
SMALL = np.array([2], np.float32)
X = np.ones(64, np.float32)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model with one weight in a file beside it, and one inside."""
    nodes = [helper.make_node("Add", ["x", "large"], ["t"]), helper.make_node("Mul", ["t", "small"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])],
        [numpy_helper.from_array(LARGE, "large"), numpy_helper.from_array(SMALL, "small")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=100)
    return path


def places(path: Path) -> dict[str, dict[str, str]]:
    """The external data of each initializer."""
    graph = onnx.load(path, load_external_data=False).graph
    return {each.name: {entry.key: entry.value for entry in each.external_data} for each in graph.initializer}


def failure(ort: Any) -> type[Exception]:
    return importlib.import_module(f"{ort.__name__}.capi._pybind_state").Fail  # type: ignore[no-any-return]


def test_data_stays_in_the_file_where_it_was(ort: Any, source: Path) -> None:
    reported: dict[str, Any] = {}

    def reuse(name: str, value: Any, info: Any) -> Any:
        reported[name] = (value.shape(), value.numpy().tolist(), info and (info.filepath, info.file_offset, info.byte_size))
        return info

    target = source.with_name("compiled.onnx")
    ort.ModelCompiler(ort.SessionOptions(), str(source), get_initializer_location_func=reuse).compile_to_file(str(target))
    assert reported == {"large": ([64], LARGE.tolist(), ("weights.bin", 0, 256)), "small": ([1], [2.0], None)}
    assert places(target) == {"large": {"location": "weights.bin", "offset": "0", "length": "256"}, "small": {}}


def test_the_caller_writes_the_data(ort: Any, source: Path) -> None:
    target, data = source.with_name("compiled.onnx"), source.with_name("other.bin")
    with data.open("wb") as file:

        def write(name: str, value: Any, info: Any) -> Any:
            if value.tensor_size_in_bytes() < 100:
                return None
            file.write(b"head")
            file.write(value.numpy().tobytes())
            return ort.OrtExternalInitializerInfo("other.bin", 4, value.tensor_size_in_bytes())

        ort.ModelCompiler(ort.SessionOptions(), str(source), get_initializer_location_func=write).compile_to_file(str(target))
    source.with_name("weights.bin").unlink()
    for runtime in ("onnxruntime", "sardonyx"):
        session = importlib.import_module(runtime).InferenceSession(str(target))
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], (X + LARGE) * 2)


def test_a_full_path_in_the_models_folder_is_written_as_a_relative_one(source: Path) -> None:
    target = source.with_name("compiled.onnx")

    def reuse(name: str, value: Any, info: Any) -> Any:
        return info and sardonyx.OrtExternalInitializerInfo(
            str(source.with_name(info.filepath)), info.file_offset, info.byte_size
        )

    sardonyx.ModelCompiler(sardonyx.SessionOptions(), source, get_initializer_location_func=reuse).compile_to_file(target)
    assert places(target)["large"]["location"] == "weights.bin"
    np.testing.assert_array_equal(sardonyx.InferenceSession(target).run(None, {"x": X})[0], (X + LARGE) * 2)


@pytest.mark.parametrize(("function", "text"), [(lambda *_: 1 // 0, "division"), (lambda *_: 5, "int")])
def test_a_function_that_fails_is_a_failure_that_says_so(ort: Any, source: Path, function: Callable[..., Any], text: str) -> None:
    compiler = ort.ModelCompiler(ort.SessionOptions(), str(source), get_initializer_location_func=function)
    with pytest.raises(failure(ort), match=text if ort is not sardonyx or text != "int" else "returned 5"):
        compiler.compile_to_file(str(source.with_name("compiled.onnx")))
    assert not source.with_name("compiled.onnx").exists()


def test_a_stream_that_fails_is_a_failure_that_says_so(ort: Any, source: Path) -> None:
    def write(content: bytes) -> None:
        raise ValueError("the disk is full")

    with pytest.raises(failure(ort), match="ValueError: the disk is full"):
        ort.ModelCompiler(ort.SessionOptions(), str(source)).compile_to_stream(write)
    with pytest.raises(TypeError):
        ort.ModelCompiler(ort.SessionOptions(), str(source)).compile_to_stream(3)


def test_the_path_to_write_to_must_be_one_that_can_be(ort: Any, source: Path) -> None:
    wrong = importlib.import_module(f"{ort.__name__}.capi._pybind_state").InvalidArgument
    for path in (source.parent, source.parent / "nowhere" / "out.onnx"):
        with pytest.raises(wrong):
            ort.ModelCompiler(ort.SessionOptions(), str(source)).compile_to_file(str(path))
    with pytest.raises(wrong, match="Input model path does not exist"):
        ort.ModelCompiler(ort.SessionOptions(), "nowhere.onnx").compile_to_file(str(source.with_name("compiled.onnx")))
