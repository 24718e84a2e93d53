"""io_binding_helper with torch: names of types as in onnxruntime.transformers.io_binding_helper, tensors bound by address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import model_text
import sardonyx
from sardonyx import dtypes
from sardonyx.transformers import io_binding_helper as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("onnxruntime.transformers.io_binding_helper")

pytestmark = pytest.mark.slow


def answer(helper: Any, function: str, value: Any) -> Any:
    try:
        return getattr(helper.TypeHelper, function)(value)
    except ValueError as error:
        return str(error).partition(" not found in map")[0]


@pytest.mark.parametrize("function", ["ort_type_to_numpy_type", "ort_type_to_torch_type", "ort_type_to_onnx_type"])
@pytest.mark.parametrize("name", [*(dtype.ort for dtype in dtypes.ALL), "nothing"])
def test_types_by_their_name(function: str, name: str) -> None:
    expected = answer(theirs, function, f"tensor({name})")
    actual = answer(ours, function, f"tensor({name})")
    if isinstance(expected, str) and not isinstance(actual, str):  # more types have a form here
        assert dtypes.from_ort(name).numpy.name in str(actual) or actual == dtypes.from_ort(name).onnx
    else:
        assert actual == expected


@pytest.mark.parametrize(
    "name", ["int64", "float32", "float16", "bool", "uint8", "int8", "float64", "int16", "uint16", "complex64"]
)
def test_types_between_numpy_and_torch(name: str) -> None:
    numpy_type = bool if name == "bool" else getattr(np, name)
    torch_type = getattr(torch, name)
    for helper in (ours, theirs):
        assert helper.TypeHelper.numpy_type_to_torch_type(numpy_type) is torch_type
        assert helper.TypeHelper.torch_type_to_numpy_type(torch_type) is numpy_type


DECODER = """(float[B,S] x, float[B,P] past) => (float[B,S] y, float[B,P] present) {
  y = Mul(x, x)
  present = Add(past, past)
}"""


def session() -> Any:
    return sardonyx.InferenceSession(model_text.model(DECODER))


def test_tensors_are_bound_by_address() -> None:
    bound = ours.CudaSession(session(), torch.device("cpu"))
    x, past = torch.arange(6.0).reshape(2, 3), torch.ones(2, 4)
    bound.allocate_buffers({"y": (2, 3), "present": (2, 4)})
    kept = bound.output_tensors["y"]
    found = bound.infer({"x": x, "past": past, "unknown": x})
    assert found["y"] is kept
    assert torch.equal(found["y"], x * x)
    assert torch.equal(found["present"], past * 2)
    bound.allocate_buffers({"y": (2, 3), "present": (3, 4)})
    assert bound.output_tensors["y"] is kept
    with pytest.raises(TypeError, match="expected a tensor of torch"):
        bound.infer({"x": x.numpy()})
    with pytest.raises(ValueError, match="not contiguous"):
        bound.infer({"x": x.T})
    with pytest.raises(ValueError, match="no CUDA graphs"):
        ours.CudaSession(session(), torch.device("cpu"), enable_cuda_graph=True)


def test_an_output_in_the_memory_of_an_input() -> None:
    binding = ours.GpuBinding(session(), torch.device("cpu"), {"y": (1, 2)}, buffer_sharing={"past": "present"})
    past = torch.tensor([[1.0, 2.0]])
    for _ in range(3):
        found = binding.infer({"x": torch.ones(1, 2), "past": past})
    assert found["present"] is past
    assert past.tolist() == [[8.0, 16.0]]
    with pytest.raises(ValueError, match="output name nothing not found"):
        binding.set_buffer_sharing("past", "nothing")


def test_one_binding_for_all_shapes() -> None:
    manager = ours.GpuBindingManager(session(), torch.device("cpu"))
    for rows in (1, 3, 1):
        shapes = {"y": (rows, 2), "present": (rows, 2)}
        x = torch.full((rows, 2), 3.0)
        binding = manager.get_binding(shapes)
        assert binding.infer({"x": x, "past": x})["y"].tolist() == [[9.0, 9.0]] * rows
    assert manager.get_binding(shapes) is binding
    with pytest.raises(ValueError, match="no CUDA graphs"):
        manager.get_binding(shapes, use_cuda_graph=True)


def test_options_of_the_provider_are_those_of_onnxruntime() -> None:
    for arguments in ((0, False), (1, True, 7)):
        assert ours.CudaSession.get_cuda_provider_options(*arguments) == theirs.CudaSession.get_cuda_provider_options(*arguments)
