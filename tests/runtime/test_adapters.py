"""LoRA adapters: files that onnxruntime reads and writes too, and runs that use them."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx

A = np.arange(6, dtype=np.float32).reshape(3, 2)
B = np.array([7], np.int64)


@pytest.mark.parametrize("writer", ["onnxruntime", "sardonyx"])
@pytest.mark.parametrize("reader", ["onnxruntime", "sardonyx"])
def test_one_writes_what_the_other_reads(writer: str, reader: str, tmp_path: Path) -> None:
    there, here = importlib.import_module(writer), importlib.import_module(reader)
    adapter = there.AdapterFormat()
    adapter.set_adapter_version(3)
    adapter.set_model_version(9)
    adapter.set_parameters({"a": there.OrtValue.ortvalue_from_numpy(A), "long name": there.OrtValue.ortvalue_from_numpy(B)})
    path = str(tmp_path / "x.onnx_adapter")
    adapter.export_adapter(path)
    read = here.AdapterFormat.read_adapter(path)
    assert (read.get_format_version(), read.get_adapter_version(), read.get_model_version()) == (1, 3, 9)
    parameters = read.get_parameters()
    assert set(parameters) == {"a", "long name"}
    np.testing.assert_array_equal(parameters["a"].numpy(), A)
    np.testing.assert_array_equal(parameters["long name"].numpy(), B)
    assert parameters["long name"].data_type() == "tensor(int64)"


def test_narrow_types_and_empty_tensors_survive(tmp_path: Path) -> None:
    arrays = {
        "bf16": np.array([1.5, -2], ml_dtypes.bfloat16),
        "int4": np.array([[1, -2, 3]], ml_dtypes.int4),
        "empty": np.zeros((0, 4), np.float16),
        "scalar": np.array(2.5),
    }
    adapter = sardonyx.AdapterFormat()
    adapter.set_parameters({name: sardonyx.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()})
    adapter.export_adapter(tmp_path / "a")
    read = sardonyx.AdapterFormat(sardonyx.AdapterFormat.read_adapter(tmp_path / "a")).get_parameters()
    for name, array in arrays.items():
        found = read[name].numpy()
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        np.testing.assert_array_equal(found.astype(np.float64), array.astype(np.float64))


@pytest.fixture
def lora(tmp_path: Path) -> tuple[Path, Path]:
    """A model with two parameters that default to zero, and an adapter for them."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["base"]),
        helper.make_node("MatMul", ["x", "lora_a"], ["low"]),
        helper.make_node("MatMul", ["low", "lora_b"], ["delta"]),
        helper.make_node("Add", ["base", "delta"], ["y"]),
    ]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "lora",
        [info("x", kind, [1, 4]), info("lora_a", kind, [4, "r"]), info("lora_b", kind, ["r", 4])],
        [info("y", kind, [1, 4])],
        [
            numpy_helper.from_array(np.eye(4, dtype=np.float32), "W"),
            numpy_helper.from_array(np.zeros((4, 0), np.float32), "lora_a"),
            numpy_helper.from_array(np.zeros((0, 4), np.float32), "lora_b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    adapter = sardonyx.AdapterFormat()
    ones = sardonyx.OrtValue.ortvalue_from_numpy
    adapter.set_parameters({"lora_a": ones(np.ones((4, 2), np.float32)), "lora_b": ones(np.ones((2, 4), np.float32))})
    adapter.export_adapter(tmp_path / "m.onnx_adapter")
    return tmp_path / "m.onnx", tmp_path / "m.onnx_adapter"


@pytest.mark.parametrize("runtime", [onnxruntime, sardonyx])
def test_an_active_adapter_changes_the_answer(runtime: Any, lora: tuple[Path, Path]) -> None:
    model, file = lora
    adapter = runtime.LoraAdapter()
    adapter.Load(str(file))
    options = runtime.RunOptions()
    options.add_active_adapter(adapter)
    session = runtime.InferenceSession(str(model))
    x = np.array([[1, 2, 3, 4]], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    np.testing.assert_array_equal(session.run(None, {"x": x}, options)[0], x + 20)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


def test_what_is_no_tensor_is_no_parameter(tmp_path: Path) -> None:
    words = sardonyx.AdapterFormat()
    words.set_parameters({"a": sardonyx.OrtValue.of(np.array(["x"], object))})
    with pytest.raises(sardonyx.InvalidArgument, match="parameter 'a' is of type STRING: an adapter's file holds numbers only"):
        words.export_adapter(tmp_path / "words")
    with pytest.raises(sardonyx.InvalidArgument, match="parameter 'a': expected an OrtValue with a tensor"):
        sardonyx.AdapterFormat().set_parameters({"a": A})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="expected a LoraAdapter"):
        sardonyx.RunOptions().add_active_adapter("file")


def test_files_that_are_no_adapters(tmp_path: Path) -> None:
    with pytest.raises(sardonyx.NoSuchFile, match="cannot be read"):
        sardonyx.AdapterFormat.read_adapter(tmp_path / "none")
    (tmp_path / "text").write_bytes(b"this is no adapter")
    with pytest.raises(sardonyx.InvalidProtobuf, match="is not an adapter file: it lacks the mark b'TORT'"):
        sardonyx.AdapterFormat.read_adapter(tmp_path / "text")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(data=st.data())
def test_a_damaged_adapter_is_refused_or_read_but_never_worse(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a"
    adapter = sardonyx.AdapterFormat()
    adapter.set_parameters({"a": sardonyx.OrtValue.ortvalue_from_numpy(A)})
    adapter.export_adapter(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(sardonyx.SardonyxError):
        sardonyx.AdapterFormat.read_adapter(path)
