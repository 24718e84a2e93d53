"""Writing the optimised model, with and without external data, and compiling to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx

Model = Callable[[str], str]
X = np.ones((3, 2), np.float32)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A model with one large and one small initializer."""
    info = helper.make_tensor_value_info
    weight = np.arange(40 * 40, dtype=np.float32).reshape(40, 40)
    nodes = [helper.make_node("MatMul", ["X", "W"], ["T"]), helper.make_node("Add", ["T", "b"], ["Y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("X", TensorProto.FLOAT, [2, 40])],
        [info("Y", TensorProto.FLOAT, [2, 40])],
        [numpy_helper.from_array(weight, "W"), numpy_helper.from_array(np.ones(1, np.float32), "b")],
    )
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def _run(ort: Any, path: Path) -> Any:
    return ort.InferenceSession(str(path)).run(None, {"X": np.ones((2, 40), np.float32)})[0]


def test_the_optimised_model_is_written_and_runs(ort: Any, model: Model, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    ort.InferenceSession(model("add_mul"), options)
    onnx.checker.check_model(onnx.load(tmp_path / "optimised.onnx"))
    [y] = ort.InferenceSession(str(tmp_path / "optimised.onnx")).run(None, {"X": X})
    np.testing.assert_array_equal(y, 2 * np.array([[1, 2], [3, 4], [5, 6]], np.float32))


@pytest.mark.parametrize("ending", ["onnx", "ort"])
def test_what_is_written_imports_all_that_it_uses(ending: str, tmp_path: Path) -> None:
    """A model may leave imports off, and ONNX Runtime takes its newest versions; passes make nodes of domains it never had."""
    info, versions = helper.make_tensor_value_info, [helper.make_opsetid("ai.onnx.ml", 3)]
    scaler = helper.make_node("Scaler", ["X"], ["S"], domain="ai.onnx.ml", offset=[1.0, 2.0], scale=[3.0, 4.0])
    nodes = [scaler, helper.make_node("Relu", ["S"], ["R"]), helper.make_node("ReduceMean", ["R", "axes"], ["Y"])]
    axes = numpy_helper.from_array(np.array([1]), "axes")
    graph = helper.make_graph(nodes, "g", [info("X", TensorProto.FLOAT, [3, 2])], [info("Y", TensorProto.FLOAT, None)], [axes])
    content = helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()
    onnxruntime = pytest.importorskip("onnxruntime")
    expected = onnxruntime.InferenceSession(content).run(None, {"X": 2 * X})
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / f"m.{ending}")
    np.testing.assert_array_equal(sardonyx.InferenceSession(content, options).run(None, {"X": 2 * X}), expected)
    if ending == "onnx":
        onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))
    for engine in (sardonyx, onnxruntime):
        np.testing.assert_array_equal(engine.InferenceSession(str(tmp_path / f"m.{ending}")).run(None, {"X": 2 * X}), expected)


def test_initializers_go_to_a_file_of_their_own(ort: Any, large: Path, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "100")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    ort.InferenceSession(str(large), options)
    assert (tmp_path / "weights.bin").stat().st_size >= 40 * 40 * 4
    written = {
        tensor.name: tensor for tensor in onnx.load(tmp_path / "optimised.onnx", load_external_data=False).graph.initializer
    }
    assert written["W"].data_location == TensorProto.EXTERNAL
    assert written["b"].data_location == TensorProto.DEFAULT
    np.testing.assert_array_equal(_run(ort, tmp_path / "optimised.onnx"), _run(ort, large))


def test_a_second_generation_does_not_need_the_first(ort: Any, large: Path, tmp_path: Path) -> None:
    source = large
    for name in ("first", "second"):
        options = ort.SessionOptions()
        (tmp_path / name).mkdir()
        options.optimized_model_filepath = str(tmp_path / name / "m.onnx")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", f"{name}.bin")
        ort.InferenceSession(str(source), options)
        source = tmp_path / name / "m.onnx"
    (tmp_path / "first" / "first.bin").unlink()
    np.testing.assert_array_equal(_run(ort, source), _run(ort, large))


def test_what_sardonyx_writes_onnxruntime_reads(large: Path, tmp_path: Path) -> None:
    import onnxruntime

    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = tmp_path / "optimised.onnx"
    sardonyx.InferenceSession(large, options)
    np.testing.assert_allclose(_run(onnxruntime, tmp_path / "optimised.onnx"), _run(sardonyx, large), rtol=1e-5)


def test_a_folder_that_is_not_there(model: Model, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "none" / "m.onnx")
    with pytest.raises(sardonyx.SardonyxError, match=r"m\.onnx"):
        sardonyx.InferenceSession(model("mul_1"), options)


def test_a_model_is_compiled_to_bytes_a_stream_and_a_file(model: Model, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    content = sardonyx.ModelCompiler(options, model("add_mul")).compile_to_bytes()
    streamed: list[bytes] = []
    source = Path(model("add_mul")).read_bytes()
    sardonyx.ModelCompiler(options, source).compile_to_stream(streamed.append)
    assert b"".join(streamed) == content
    sardonyx.ModelCompiler(options, source).compile_to_file(tmp_path / "out.onnx")
    for compiled in (content, tmp_path / "out.onnx"):
        assert sardonyx.InferenceSession(compiled).run(None, {"X": X})[0].shape == (3, 2)


def test_a_compiled_model_is_named_after_its_source(model: Model, tmp_path: Path) -> None:
    source = tmp_path / "net.onnx"
    source.write_bytes(Path(model("mul_1")).read_bytes())
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), source).compile_to_file()
    assert (tmp_path / "net_ctx.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"input_model_path_or_bytes": ""}, ValueError, "Input model path is empty"),
        ({"input_model_path_or_bytes": b""}, ValueError, "Input model bytes array is empty"),
        ({"input_model_path_or_bytes": 3}, TypeError, "Unable to load from type"),
        (
            {
                "input_model_path_or_bytes": b"x",
                "get_initializer_location_func": print,
                "external_initializers_file_path": "weights.bin",
            },
            ValueError,
            "both `external_initializers_file_path` and `get_initializer_location_func`",
        ),
    ],
)
def test_a_compiler_refuses_what_it_cannot_do(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sardonyx.ModelCompiler(sardonyx.SessionOptions(), **arguments)


def test_the_flags_of_the_compiler(model: Model, tmp_path: Path) -> None:
    flags = sardonyx.OrtCompileApiFlags
    path = tmp_path / "there.onnx"
    path.write_bytes(b"")
    careful = sardonyx.ModelCompiler(sardonyx.SessionOptions(), model("mul_1"), flags=flags.ERROR_IF_OUTPUT_FILE_EXISTS)
    with pytest.raises(sardonyx.Fail, match="exists already"):
        careful.compile_to_file(path)
    strict = sardonyx.ModelCompiler(sardonyx.SessionOptions(), model("mul_1"), flags=flags.ERROR_IF_NO_NODES_COMPILED)
    with pytest.raises(sardonyx.Fail, match="Unable to compile any nodes"):
        strict.compile_to_bytes()
    with pytest.raises(sardonyx.InvalidArgument, match="give an output path"):
        sardonyx.ModelCompiler(sardonyx.SessionOptions(), Path(model("mul_1")).read_bytes()).compile_to_file()
