"""Sessions on models in the ORT format: which files are taken for one, options, and what is put right when one is written."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from ort_files import by_hand
from sardonyx import errors
from sardonyx.formats import ort

FEEDS = {"x": np.array([-5, 1], np.float32)}


def options_with(**entries: str) -> sardonyx.SessionOptions:
    options = sardonyx.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    return options


def result(*arguments: Any) -> Any:
    return sardonyx.InferenceSession(*arguments).run(None, FEEDS)[0].tolist()


def onnx_model() -> bytes:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_the_name_the_bytes_or_the_option_tell_the_format(tmp_path: Path) -> None:
    for name in ("m.ort", "M.ORT", "m.onnx", "m"):
        (tmp_path / name).write_bytes(by_hand())
        assert result(str(tmp_path / name)) == [0, 3]
    assert result(by_hand()) == [0, 3]
    assert result(by_hand(), options_with(load_model_format="ORT")) == [0, 3]
    with pytest.raises(errors.InvalidProtobuf, match="ORT format"):
        result(by_hand(), options_with(load_model_format="ONNX"))
    (tmp_path / "n.ort").write_bytes(onnx_model())
    with pytest.raises(errors.Fail, match="identifier ORTM"):
        result(str(tmp_path / "n.ort"))
    assert result(str(tmp_path / "n.ort"), options_with(load_model_format="ONNX")) == [0, 3]
    with pytest.raises(errors.NoSuchFile):
        result(str(tmp_path / "missing.ort"))


def test_the_option_tells_the_format_that_is_written(tmp_path: Path) -> None:
    for name, entries, is_ort in (("a.ort", {}, True), ("b.ORT", {}, True), ("c.onnx", {"save_model_format": "ORT"}, True),
                                  ("d.ort", {"save_model_format": "ONNX"}, False)):  # fmt: skip
        options = options_with(**entries)
        options.optimized_model_filepath = str(tmp_path / name)
        sardonyx.InferenceSession(onnx_model(), options)
        content = (tmp_path / name).read_bytes()
        assert (content[4:8] == b"ORTM") is is_ort
        assert onnxruntime.InferenceSession(content).run(None, FEEDS)[0].tolist() == [0, 3]
    options = options_with(save_model_format="TEXT")
    options.optimized_model_filepath = str(tmp_path / "e.ort")
    with pytest.raises(errors.InvalidArgument, match="expected 'ORT' or 'ONNX'"):
        sardonyx.InferenceSession(onnx_model(), options)


def test_a_model_is_converted_back_to_onnx(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "back.onnx")
    sardonyx.InferenceSession(by_hand(), options)
    assert onnxruntime.InferenceSession(str(tmp_path / "back.onnx")).run(None, FEEDS)[0].tolist() == [0, 3]


def test_a_buffer_is_used_where_it_is_if_that_is_wanted() -> None:
    for entries in ({}, {"use_ort_model_bytes_directly": "1"},
                    {"use_ort_model_bytes_directly": "1", "use_ort_model_bytes_for_initializers": "1"}):  # fmt: skip
        options = options_with(**entries)
        buffer = bytearray(by_hand())
        session = sardonyx.InferenceSession(memoryview(buffer), options)
        assert isinstance(session._opening.source, memoryview) is bool(entries)
        assert session.run(None, FEEDS)[0].tolist() == [0, 3]
        assert pickle.loads(pickle.dumps(session)).run(None, FEEDS)[0].tolist() == [0, 3]


def test_a_mapped_model_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "m.ort").write_bytes(by_hand())
    both = options_with(use_memory_mapped_ort_model="1", use_ort_model_bytes_for_initializers="1")
    assert result(str(tmp_path / "m.ort"), both) == [0, 3]


def test_another_model_in_the_place_of_one_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.ort"
    path.write_bytes(by_hand())
    assert result(str(path)) == [0, 3]
    assert result(str(path)) == [0, 3]
    (tmp_path / "other.ort").write_bytes(by_hand(raw=np.array([10, 10], np.float32).tobytes()))
    shutil.move(tmp_path / "other.ort", path)
    assert result(str(path)) == [5, 11]


def one_operator(op: str, kind: int, shapes: list[list[int]], opset: int, **attributes: Any) -> bytes:
    names = [f"x{index}" for index in range(len(shapes))]
    info = [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip(names, shapes)]
    node = helper.make_node(op, names, ["m"], **attributes)
    last = helper.make_node("Sqrt", ["a"], ["y"])
    graph = helper.make_graph(
        [node, helper.make_node("Abs", ["m"], ["a"]), last], "g", info, [helper.make_tensor_value_info("y", kind, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize(
    ("op", "shapes", "opset", "attributes"),
    [
        ("HardSwish", [[3, 4]], 14, {}),
        ("Mish", [[3, 4]], 18, {}),
        ("CastLike", [[3, 4], [1]], 19, {}),
        ("GroupNormalization", [[2, 6, 4, 5], [6], [6]], 21, {"num_groups": 3, "epsilon": 1e-3}),
        ("MatMul", [[3, 4], [4, 5]], 17, {}),
        ("Conv", [[1, 2, 6, 6], [3, 2, 3, 3]], 17, {}),
        ("Transpose", [[3, 4]], 17, {}),
    ],
)
def test_what_onnxruntime_has_no_kernel_for_is_written_in_terms_of_others(
    op: str, shapes: list[list[int]], opset: int, attributes: dict[str, Any], kind: int, tmp_path: Path
) -> None:
    content = one_operator(op, kind, shapes, opset, **attributes)
    rng = np.random.default_rng(1)
    dtype = np.float32 if kind == TensorProto.FLOAT else np.float16
    feeds = {f"x{index}": rng.normal(size=shape).astype(dtype) for index, shape in enumerate(shapes)}
    (wanted,) = onnxruntime.InferenceSession(content).run(None, feeds)
    for level in (0, 99):
        options = sardonyx.SessionOptions()
        options.graph_optimization_level = sardonyx.GraphOptimizationLevel(level)
        options.optimized_model_filepath = str(tmp_path / "m.ort")
        (here,) = sardonyx.InferenceSession(content, options).run(None, feeds)
        (there,) = onnxruntime.InferenceSession(str(tmp_path / "m.ort")).run(None, feeds)
        tolerance = 1e-5 if dtype is np.float32 else 4e-3
        np.testing.assert_allclose(here, wanted, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(there, wanted, rtol=tolerance, atol=tolerance)


def test_what_the_format_cannot_hold_is_said(tmp_path: Path) -> None:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    info = helper.make_value_info("y", helper.make_optional_type_proto(element))
    graph = helper.make_graph(
        [helper.make_node("Optional", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [2])], [info]
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.ort")
    with pytest.raises(errors.Fail, match=r"'y' is optional.*holds tensors, sequences and maps only"):
        sardonyx.InferenceSession(content, options)
    assert not (tmp_path / "m.ort").exists()


def test_inspection_and_checks_take_models_in_the_ort_format(tmp_path: Path) -> None:
    path = tmp_path / "m.ort"
    path.write_bytes(by_hand())
    assert len(sardonyx.load_model(str(path)).graph) == 2
    assert not [problem for problem in sardonyx.check_model(str(path)) if problem.severity == "error"]
    assert ort.load(path).path == str(path)
