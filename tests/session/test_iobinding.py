"""IOBinding: inputs and outputs by array, OrtValue and address, on both runtimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.runtime import binding as binding_module
from sardonyx.runtime.runs import RunControl

Model = Callable[[str], str]
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
SQUARES = X * X


def test_an_array_is_bound_and_results_are_copied(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], SQUARES)
    [value] = binding.get_outputs()
    assert isinstance(value, ort.OrtValue)
    np.testing.assert_array_equal(value.numpy(), SQUARES)
    np.testing.assert_array_equal(binding.get_outputs_as_ortvaluevector()[0].numpy(), SQUARES)


def test_a_bound_array_is_read_at_every_run(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    binding = session.io_binding()
    x = X.copy()
    binding.bind_cpu_input("X", x)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    x[:] = 0
    session.run_with_iobinding(binding)
    assert not binding.copy_outputs_to_cpu()[0].any()


@pytest.mark.parametrize("element", [np.float32, 1], ids=["numpy type", "onnx number"])
def test_memory_is_bound_by_address(ort: Any, model: Model, element: Any) -> None:
    session = ort.InferenceSession(model("mul_1"))
    binding = session.io_binding()
    y = np.zeros((3, 2), np.float32)
    binding.bind_input("X", "cpu", 0, element, X.shape, X.ctypes.data)
    binding.bind_output("Y", "cpu", 0, element, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, SQUARES)
    assert binding.get_outputs()[0].data_ptr() == y.ctypes.data


def test_ort_values_are_bound(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    binding = session.io_binding()
    y = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding.bind_ortvalue_input("X", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("Y", y)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(y.numpy(), SQUARES)


def test_bindings_are_cleared(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    binding.clear_binding_outputs()
    with pytest.raises(RuntimeError, match=r"Error in execution: At least one output should be requested\."):
        session.run_with_iobinding(binding)
    binding.bind_output("Y")
    binding.clear_binding_inputs()
    with pytest.raises(RuntimeError, match="X"):
        session.run_with_iobinding(binding)


def test_outputs_keep_the_order_in_which_they_were_bound(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("two_outputs"))
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("T")
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    t, y = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(t, 2 * X)
    np.testing.assert_array_equal(y, 2 * SQUARES)


def test_an_input_that_is_not_there(ort: Any, model: Model) -> None:
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: nope in the def list"):
        ort.InferenceSession(model("mul_1")).io_binding().bind_cpu_input("nope", X)


def test_an_output_that_is_not_there(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("nope")
    with pytest.raises(RuntimeError, match=r"Error in execution: .*nope"):
        session.run_with_iobinding(binding)


def test_memory_of_the_wrong_size_or_type(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    larger, double = np.zeros((4, 2), np.float32), np.zeros((3, 2))
    for memory, text in (
        (larger, "Got invalid dimensions for output: Y for the following indices\n index: 0 Got: 4 Expected: 3"),
        (double, r"Unexpected output data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)"),
    ):
        binding = session.io_binding()
        binding.bind_cpu_input("X", X)
        binding.bind_output("Y", "cpu", 0, memory.dtype.type, memory.shape, memory.ctypes.data)
        with pytest.raises(RuntimeError, match=text):
            session.run_with_iobinding(binding)


def test_an_address_needs_type_and_shape(ort: Any, model: Model) -> None:
    binding = ort.InferenceSession(model("mul_1")).io_binding()
    for element, shape in ((None, [3, 2]), (np.float32, None)):
        with pytest.raises(ValueError, match="`element_type` and `shape` are to be provided"):
            binding.bind_output("Y", "cpu", 0, element, shape, X.ctypes.data)


def test_strings_cannot_be_bound(ort: Any, model: Model) -> None:
    binding = ort.InferenceSession(model("identity_string")).io_binding()
    with pytest.raises(RuntimeError, match="Only binding non-string Tensors is currently supported"):
        binding.bind_cpu_input("input:0", np.array([["a", "b"], ["c", "d"]]))
    for element in (np.str_, object, 8):
        with pytest.raises(RuntimeError, match="Only binding non-string Tensors is currently supported"):
            binding.bind_output("output:0", "cpu", 0, element, [2, 2], X.ctypes.data)
        with pytest.raises(RuntimeError, match="Only binding non-string Tensors is currently supported"):
            binding.bind_input("input:0", "cpu", 0, element, [2, 2], X.ctypes.data)


def test_a_list_cannot_be_bound(ort: Any, model: Model) -> None:
    with pytest.raises(RuntimeError, match="Unable to create OrtValue from the given python object"):
        ort.InferenceSession(model("mul_1")).io_binding().bind_cpu_input("X", X.tolist())


def test_a_binding_belongs_to_its_session(ort: Any, model: Model) -> None:
    binding = ort.InferenceSession(model("mul_1")).io_binding()
    with pytest.raises(ValueError, match=r"IOBinding must be used with the session that created it\."):
        ort.InferenceSession(model("mul_1")).run_with_iobinding(binding)


def test_every_numeric_type_is_bound(ort: Any) -> None:
    from onnx import helper

    for dtype in (
        "float32",
        "float64",
        "float16",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
    ):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])], "g", [info("x", kind, [3])], [info("y", kind, [3])]
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
        session = ort.InferenceSession(proto.SerializeToString())
        binding = session.io_binding()
        x = np.array([0, 1, 1], dtype)
        y = np.zeros(3, dtype)
        binding.bind_input("x", "cpu", 0, x.dtype.type, x.shape, x.ctypes.data)
        binding.bind_output("y", "cpu", 0, x.dtype.type, y.shape, y.ctypes.data)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, x)


def test_memory_on_other_devices_is_refused(model: Model) -> None:
    binding = sardonyx.InferenceSession(model("mul_1")).io_binding()
    with pytest.raises(RuntimeError, match="Can't allocate memory on the device 'cuda': Sardonyx computes on the CPU"):
        binding.bind_output("Y", "cuda", 0)


def test_the_address_zero_is_refused(model: Model) -> None:
    binding = sardonyx.InferenceSession(model("mul_1")).io_binding()
    with pytest.raises(RuntimeError, match="address 0 given for 6 elements of float"):
        binding.bind_output("Y", "cpu", 0, np.float32, [3, 2], 0)


def test_read_only_memory_is_not_written(model: Model) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    binding = session.io_binding()
    frozen = np.zeros((3, 2), np.float32)
    frozen.flags.writeable = False
    binding.bind_cpu_input("X", X)
    binding.bind_ortvalue_output("Y", sardonyx.OrtValue.ortvalue_from_numpy(frozen))
    with pytest.raises(sardonyx.Fail, match="output 'Y': the bound memory is read-only"):
        session.run_with_iobinding(binding)


def refuse_to_copy(*arguments: Any) -> None:
    raise AssertionError("a result was copied")


@pytest.mark.parametrize("saved", [False, True])
def test_bound_memory_is_written_without_a_copy(model: Model, saved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if saved:
        sardonyx.InferenceSession(model("two_outputs"))  # leaves its program for the next one
    session = sardonyx.InferenceSession(model("two_outputs"))
    y, t = np.zeros((3, 2), np.float32), sardonyx.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_ortvalue_output("T", t)
    monkeypatch.setattr(binding_module, "_write", refuse_to_copy)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, 2 * SQUARES)
    np.testing.assert_array_equal(t.numpy(), 2 * X)


def test_a_result_is_what_kernels_have_written(model: Model) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    [value] = session.run_with_ort_values(None, {"X": sardonyx.OrtValue.ortvalue_from_numpy(X)})
    assert value.numpy() is value.numpy()
    target = np.zeros((3, 2), np.float32)
    control = RunControl(targets=[target])
    assert session._opened.program.run({"X": X}, ["Y"], control)[0] is target


@pytest.mark.parametrize("name", ["mul_1", "add_mul", "two_outputs"])
def test_outputs_may_be_bound_to_the_memory_of_inputs(model: Model, name: str) -> None:
    session = sardonyx.InferenceSession(model(name))
    expected = session.run(None, {"X": X})
    shared = X.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("X", shared)
    for each in session.get_outputs():
        binding.bind_output(each.name, "cpu", 0, np.float32, shared.shape, shared.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(shared, expected[-1])


def test_outputs_may_be_bound_to_the_memory_of_weights(model: Model) -> None:
    options, weight = sardonyx.SessionOptions(), X.copy()
    options.add_initializer("W", sardonyx.OrtValue.ortvalue_from_numpy(weight))
    session = sardonyx.InferenceSession(model("mul_1"), options)
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y", "cpu", 0, np.float32, weight.shape, weight.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(weight, SQUARES)


def test_memory_that_does_not_fit_is_refused_and_left_alone(model: Model) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    for memory in (np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float64)):
        binding = session.io_binding()
        binding.bind_cpu_input("X", X)
        binding.bind_output("Y", "cpu", 0, memory.dtype, memory.shape, memory.ctypes.data)
        with pytest.raises(sardonyx.Fail):
            session.run_with_iobinding(binding)
        assert not memory.any()
