"""OrtValue: the same bodies on onnxruntime and on Sardonyx, then what only Sardonyx has."""

from __future__ import annotations

import importlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx import dtypes
from sardonyx.ir.types import OptionalType, SequenceType, TensorType
from sardonyx.runtime.values import OrtValue, OrtValueVector

X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(params=["onnxruntime", "sardonyx"])
def ort(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


def test_a_tensor_shares_the_memory_of_its_array(ort: Any) -> None:
    x = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    assert value.data_ptr() == x.ctypes.data
    assert (value.device_name(), list(value.shape()), value.data_type(), value.element_type()) == (
        "cpu",
        [3, 2],
        "tensor(float)",
        1,
    )
    assert value.tensor_size_in_bytes() == 24
    assert value.has_value()
    assert value.is_tensor()
    assert not value.is_sparse_tensor()
    assert not value.is_tensor_sequence()
    x[0, 0] = 99
    assert value.numpy()[0, 0] == 99


def test_an_array_that_is_not_contiguous_is_copied(ort: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X.T)
    assert value.data_ptr() != X.ctypes.data
    np.testing.assert_array_equal(value.numpy(), X.T)


def test_a_scalar_has_no_dimensions(ort: Any) -> None:
    assert list(ort.OrtValue.ortvalue_from_numpy(np.array(3.0)).shape()) == []


@pytest.mark.parametrize("given", [[1, 2], np.float32(1), np.array(["a"]), np.array(["a"], object)])
def test_only_arrays_of_numbers_become_values(ort: Any, given: Any) -> None:
    with pytest.raises(RuntimeError, match="Creation of OrtValues is currently only supported from non-string numpy arrays"):
        ort.OrtValue.ortvalue_from_numpy(given)


@pytest.mark.parametrize("element", [np.float32, "float32", np.dtype("float32"), 1])
def test_a_tensor_is_made_from_shape_and_type(ort: Any, element: Any) -> None:
    value = ort.OrtValue.ortvalue_from_shape_and_type([3, 2, 1, 2], element)
    assert (list(value.shape()), value.data_type()) == ([3, 2, 1, 2], "tensor(float)")
    assert value.numpy().flags.writeable


@pytest.mark.parametrize(
    ("number", "name"), [(16, "bfloat16"), (17, "float8e4m3fn"), (19, "float8e5m2"), (10, "float16"), (9, "bool")]
)
def test_types_numpy_lacks_are_made_by_their_number(ort: Any, number: int, name: str) -> None:
    value = ort.OrtValue.ortvalue_from_shape_and_type([2], number)
    assert (value.data_type(), value.element_type()) == (f"tensor({name})", number)


@pytest.mark.parametrize("element", [str, np.str_, object, 8, 99, "foo"])
def test_types_that_cannot_be_made(ort: Any, element: Any) -> None:
    with pytest.raises(RuntimeError):
        ort.OrtValue.ortvalue_from_shape_and_type([2], element)


def test_a_negative_size_is_refused(ort: Any) -> None:
    with pytest.raises(RuntimeError):
        ort.OrtValue.ortvalue_from_shape_and_type([-1], np.float32)


def test_an_array_is_taken_for_another_type_of_the_same_width(ort: Any) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)
    assert (value.data_type(), value.element_type(), list(value.shape())) == ("tensor(bfloat16)", 16, [2])
    assert value.data_ptr() == bits.ctypes.data
    for array, number in ((X, 16), (X, 11), (bits, 8), (bits, 99)):
        with pytest.raises(RuntimeError):
            ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, number)


def test_values_are_updated_in_place(ort: Any) -> None:
    x = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    value.update_inplace(np.ones((3, 2), np.float32))
    assert (x == 1).all()
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(2 * X))
    np.testing.assert_array_equal(x, 2 * X)
    value.update_inplace(np.asfortranarray(X))
    np.testing.assert_array_equal(x, X)
    with pytest.raises(RuntimeError, match="The input size of numpy arrays does not match the size of the OrtValue"):
        value.update_inplace(np.ones((3, 3), np.float32))
    with pytest.raises(TypeError, match=r"data must be a numpy\.ndarray or an OrtValue"):
        value.update_inplace([1])
    with pytest.raises(RuntimeError, match="only supported from non-string numpy arrays"):
        value.update_inplace(np.array([["a"] * 2] * 3))


def test_numpy_reads_a_value_without_a_copy(ort: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X.copy())
    assert np.asarray(value).ctypes.data == value.data_ptr()
    assert np.array(value, copy=True).ctypes.data != value.data_ptr()
    assert np.asarray(value, dtype=np.float64).dtype == np.float64
    assert np.asarray(value, dtype=np.float32).ctypes.data == value.data_ptr()


@pytest.mark.parametrize(
    "array", [X, np.array([True, False]), np.zeros((0, 3), np.float32), np.array(3), np.arange(3, dtype=np.uint8)]
)
def test_dlpack_goes_both_ways(ort: Any, array: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert value.__dlpack_device__() == (1, 0)
    back = ort.OrtValue.from_dlpack(value)
    assert back.data_type() == value.data_type()
    assert list(back.shape()) == list(array.shape)
    np.testing.assert_array_equal(back.numpy(), array)
    if array.size:
        assert back.data_ptr() == value.data_ptr()
    if array.dtype != np.bool_:
        np.testing.assert_array_equal(np.from_dlpack(value), array)


def test_an_array_comes_in_by_dlpack_and_is_written_through(ort: Any) -> None:
    x = X.copy()
    value = ort.OrtValue.from_dlpack(x)
    value.update_inplace(np.zeros((3, 2), np.float32))
    assert not x.any()


def test_what_dlpack_cannot_carry(ort: Any) -> None:
    with pytest.raises(RuntimeError, match="contiguous"):
        ort.OrtValue.from_dlpack(X.T)
    with pytest.raises(TypeError, match="from_dlpack expected a valid DLPack capsule named 'dltensor'"):
        ort.OrtValue.from_dlpack(5)
    capsule = ort.OrtValue.ortvalue_from_numpy(X).__dlpack__()
    ort.OrtValue.from_dlpack(capsule)
    with pytest.raises(TypeError, match="from_dlpack expected a valid DLPack capsule"):
        ort.OrtValue.from_dlpack(capsule)


def test_a_value_is_made_by_a_factory(ort: Any) -> None:
    with pytest.raises(ValueError, match="`Provided ortvalue` needs to be"):
        ort.OrtValue(X)
    again = ort.OrtValue(ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
    np.testing.assert_array_equal(again.numpy(), X)


def test_other_devices_are_not_there(ort: Any) -> None:
    with pytest.raises(RuntimeError, match="Can't allocate memory on the device"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    with pytest.raises(Exception, match="Unsupported device type: moon"):
        ort.OrtValue.ortvalue_from_numpy(X, "moon", 0)


def test_a_dense_value_holds_no_sparse_tensor(ort: Any) -> None:
    with pytest.raises(RuntimeError, match="This OrtValue does not contain SparseTensor"):
        ort.OrtValue.ortvalue_from_numpy(X).as_sparse_tensor()


def test_vectors_grow(ort: Any) -> None:
    vector = ort.capi.onnxruntime_pybind11_state.OrtValueVector()
    vector.reserve(3)
    vector.push_back(ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
    vector.push_back(np.array([1, 0], np.uint8).__dlpack__(), True)
    vector.shrink_to_fit()
    assert len(vector) == 2
    assert (vector.element_type_at(0), vector.bool_tensor_indices()) == (1, [1])
    np.testing.assert_array_equal(np.from_dlpack(_Holder(vector.dlpack_at(0))), X)
    assert len(vector.to_dlpacks(None)) == 2
    assert [each.shape() for each in vector] == [[3, 2], [2]]
    with pytest.raises(IndexError):
        vector[5]


class _Holder:
    """NumPy asks an object for its capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_narrow_types_are_arrays_of_their_own_dtype() -> None:
    for number, dtype in ((16, ml_dtypes.bfloat16), (17, ml_dtypes.float8_e4m3fn), (22, ml_dtypes.int4)):
        value = OrtValue.ortvalue_from_shape_and_type([3], number)
        assert value.numpy().dtype == dtype
        assert OrtValue.ortvalue_from_numpy(value.numpy()).element_type() == number
    assert OrtValue.ortvalue_from_shape_and_type([3], 22).tensor_size_in_bytes() == 2
    signed = OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x0F, 0x07], np.uint8), 22)
    assert signed.numpy().astype(int).tolist() == [-1, 7]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz])
def test_dlpack_carries_the_types_numpy_lacks(dtype: Any) -> None:
    value = OrtValue.ortvalue_from_numpy(np.array([1, 2], dtype))
    back = OrtValue.from_dlpack(value.__dlpack__())
    assert back.numpy().dtype == dtype
    assert back.data_ptr() == value.data_ptr()


def test_booleans_keep_their_type_in_a_bare_capsule() -> None:
    capsule = OrtValue.ortvalue_from_numpy(np.array([True, False])).__dlpack__()
    assert OrtValue.from_dlpack(capsule).data_type() == "tensor(bool)"
    assert OrtValue.from_dlpack(np.array([1, 0], np.uint8).__dlpack__(), True).data_type() == "tensor(bool)"


def test_what_cannot_be_exported_through_dlpack() -> None:
    with pytest.raises(BufferError, match=r"tensor\(int4\) cannot be exported"):
        OrtValue.ortvalue_from_shape_and_type([2], 22).__dlpack__()
    with pytest.raises(BufferError, match="strings cannot be exported"):
        OrtValue.of(np.array(["a"], object)).__dlpack__()
    with pytest.raises(BufferError, match="cannot be exported to DLPack device"):
        OrtValue.ortvalue_from_numpy(X).__dlpack__(dl_device=(2, 0))
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(BufferError):
        OrtValue.ortvalue_from_numpy(frozen).__dlpack__()
    assert OrtValue.from_dlpack(frozen).numpy().tolist() == X.tolist()


def test_values_that_are_no_tensors() -> None:
    sequence = OrtValue.of([X, X])
    assert (sequence.data_type(), sequence.element_type(), sequence.is_tensor_sequence()) == ("seq(tensor(float))", 1, True)
    empty = OrtValue.of([], SequenceType(TensorType(dtypes.INT64)))
    assert empty.data_type() == "seq(tensor(int64))"
    mapping = OrtValue.of({"a": 1.0})
    assert mapping.data_type() == "map(string,tensor(float))"
    absent = OrtValue.of(None, OptionalType(TensorType(dtypes.FLOAT32)))
    assert (absent.has_value(), absent.data_type()) == (False, "optional(tensor(float))")
    for value in (sequence, mapping, absent):
        with pytest.raises(RuntimeError, match="Only OrtValues that are Tensors"):
            value.numpy()
        with pytest.raises(RuntimeError, match="Only OrtValues that are Tensors"):
            value.shape()


def test_strings_have_no_address() -> None:
    value = OrtValue.of(np.array(["a"], object))
    with pytest.raises(RuntimeError, match="non-string"):
        value.data_ptr()
    with pytest.raises(RuntimeError, match="non-string"):
        value.tensor_size_in_bytes()


def test_an_update_that_does_not_fit() -> None:
    with pytest.raises(RuntimeError, match="the array is float64, the OrtValue float32"):
        OrtValue.ortvalue_from_numpy(X.copy()).update_inplace(X.astype(np.float64))
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(RuntimeError, match="the memory of this OrtValue is read-only"):
        OrtValue.ortvalue_from_numpy(frozen).update_inplace(X)


def test_tensors_are_copied_into_others() -> None:
    target = OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    sardonyx.copy_tensors([OrtValue.ortvalue_from_numpy(X)], [target])
    np.testing.assert_array_equal(target.numpy(), X)
    with pytest.raises(RuntimeError, match="expected as many destinations as sources, got 0 and 1"):
        sardonyx.copy_tensors([target], [])


def test_a_vector_takes_tensors_by_address() -> None:
    x = X.copy()
    vector = OrtValueVector()
    vector.push_back_batch([x], [x.ctypes.data], [np.float32], [(3, 2)], [sardonyx.OrtDevice.make("cpu", 0)])
    x[0, 0] = 7
    assert vector[0].numpy()[0, 0] == 7
    vector[0] = OrtValue.ortvalue_from_numpy(2 * X)
    assert vector[0].numpy()[2, 1] == 10


def test_memory_information_replaces_the_device() -> None:
    memory = sardonyx.OrtMemoryInfo("Cpu", sardonyx.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, sardonyx.OrtMemType.DEFAULT)
    assert OrtValue.ortvalue_from_shape_and_type([2], np.float32, memory_info=memory).shape() == [2]
    with pytest.warns(UserWarning, match="are ignored when memory_info is provided"):
        OrtValue.ortvalue_from_shape_and_type([2], np.float32, "cuda", memory_info=memory)


def test_a_value_says_what_it_is() -> None:
    assert repr(OrtValue.ortvalue_from_numpy(X)) == "OrtValue(tensor(float), [3, 2])"
    assert repr(OrtValue.of([X])) == "OrtValue(seq(tensor(float)))"
