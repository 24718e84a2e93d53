"""onnxruntime.transformers.io_binding_helper as Sardonyx offers it, without torch; tests/models compares it with the original."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import model_text
import sardonyx
from sardonyx import dtypes
from sardonyx.transformers.io_binding_helper import IOBindingHelper, TypeHelper

DECODER = """(int64[B,S] input_ids, float[B,P,2] past_0) => (float[B,S,2] logits, float[B,T,2] present_0) {
  x = Cast<to=1>(input_ids)
  axes = Constant<value_ints=[2]>()
  wide = Unsqueeze(x, axes)
  logits = Concat<axis=2>(wide, wide)
  present_0 = Concat<axis=1>(past_0, logits)
}"""


class Tensor:
    """As much of a torch tensor as the helper uses, over an array."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, array: Any) -> None:
        self.array = array

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def data_ptr(self) -> int:
        return self.array.ctypes.data if self.array.size else 0

    def size(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self.array[index])

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(self.array.reshape(shape))

    def clone(self) -> Tensor:
        return Tensor(self.array.copy())

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.array


@pytest.fixture
def session() -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(model_text.model(DECODER))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in with torch's names of types."""
    names = ["float32", "float16", "float64", "bfloat16", "int64", "int32", "bool", "uint8", "float8_e4m3fn"]
    made = SimpleNamespace(**{name: f"torch.{name}" for name in names}, string="no type")
    made.empty = lambda size, dtype, device: Tensor(np.empty(size, dtype.removeprefix("torch.")))
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.mark.parametrize("dtype", [dtype for dtype in dtypes.ALL if dtype is not dtypes.STRING], ids=str)
def test_names_of_types(dtype: dtypes.DType) -> None:
    name = f"tensor({dtype.ort})"
    assert TypeHelper.ort_type_to_onnx_type(name) == dtype.onnx
    assert np.dtype(TypeHelper.ort_type_to_numpy_type(name)) == dtype.numpy


def test_strings_have_a_number_only(torch: SimpleNamespace) -> None:
    assert TypeHelper.ort_type_to_onnx_type("tensor(string)") == 8
    with pytest.raises(ValueError, match=r"tensor\(string\) not found in map"):
        TypeHelper.ort_type_to_numpy_type("tensor(string)")
    with pytest.raises(ValueError, match=r"tensor\(string\) not found in map"):
        TypeHelper.ort_type_to_torch_type("tensor(string)")


@pytest.mark.parametrize("name", ["float", "tensor(floats)", "seq(tensor(float))", ""])
def test_what_is_no_tensor_type_is_not_found(name: str) -> None:
    with pytest.raises(ValueError, match="not found in map"):
        TypeHelper.ort_type_to_numpy_type(name)


def test_torch_types(torch: SimpleNamespace) -> None:
    assert TypeHelper.ort_type_to_torch_type("tensor(float8e4m3fn)") == torch.float8_e4m3fn
    assert TypeHelper.numpy_type_to_torch_type(bool) == TypeHelper.numpy_type_to_torch_type(np.bool_) == torch.bool
    assert TypeHelper.torch_type_to_numpy_type(torch.bool) is bool
    assert TypeHelper.torch_type_to_numpy_type(torch.float64) is np.float64
    with pytest.raises(ValueError, match="torch has no such type"):
        TypeHelper.ort_type_to_torch_type("tensor(uint64)")  # the stand-in lacks it
    with pytest.raises(ValueError, match="NumPy has no such type"):
        TypeHelper.torch_type_to_numpy_type("torch.quint8")


def test_without_torch_only_what_needs_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert TypeHelper.ort_type_to_numpy_type("tensor(bool)") is bool
    with pytest.raises(ImportError, match="pip install torch"):
        TypeHelper.ort_type_to_torch_type("tensor(bool)")


def test_types_of_a_session(session: sardonyx.InferenceSession, torch: SimpleNamespace) -> None:
    assert TypeHelper.get_input_type(session, "input_ids") == "tensor(int64)"
    assert TypeHelper.get_output_type(session, "logits") == "tensor(float)"
    assert TypeHelper.get_io_onnx_type_map(session) == {"input_ids": 7, "past_0": 1, "logits": 1, "present_0": 1}
    assert TypeHelper.get_io_numpy_type_map(session)["input_ids"] is np.int64
    assert TypeHelper.get_io_torch_type_map(session)["logits"] == torch.float32
    with pytest.raises(ValueError, match="input name logits not found; the model has input_ids, past_0"):
        TypeHelper.get_input_type(session, "logits")


@pytest.mark.parametrize("past", [0, 3])
def test_a_decoder_reads_and_writes_bound_tensors(session: sardonyx.InferenceSession, torch: SimpleNamespace, past: int) -> None:
    ids = np.arange(4, dtype=np.int64).reshape(2, 2)
    before = np.ones((2, past, 2), np.float32)
    shapes = {"logits": [2, 2, 2], "present_0": [2, past + 2, 2]}
    buffers = IOBindingHelper.get_output_buffers(session, shapes, "cpu")
    binding = IOBindingHelper.prepare_io_binding(session, Tensor(ids), None, None, [Tensor(before)], buffers, shapes)
    session.run_with_iobinding(binding)
    found = IOBindingHelper.get_outputs_from_io_binding_buffer(session, buffers, shapes)
    expected = session.run(None, {"input_ids": ids, "past_0": before})
    for actual, wanted in zip(found, expected):
        np.testing.assert_array_equal(actual, wanted)
    kept = IOBindingHelper.get_outputs_from_io_binding_buffer(session, buffers, shapes, return_numpy=False)
    assert [type(tensor) for tensor in kept] == [Tensor, Tensor]


def test_memory_that_is_not_contiguous_is_refused(session: sardonyx.InferenceSession, torch: SimpleNamespace) -> None:
    ids = Tensor(np.zeros((2, 3), np.int64).T)
    with pytest.raises(ValueError, match=r"input_ids: .* not contiguous"):
        IOBindingHelper.prepare_io_binding(session, ids, None, None, None, {}, {})
