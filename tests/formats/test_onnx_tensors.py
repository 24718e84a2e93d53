"""TensorProto to arrays and back, for every element type and every place the data can be in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.errors import InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile
from sardonyx.formats.onnx import load, load_tensor, load_value, tensor_to_bytes, value_to_bytes
from sardonyx.ir.graph import SparseConstant
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType

NUMBERS = [dtype for dtype in dtypes.ALL if dtype is not dtypes.STRING]
F32 = TensorType(dtypes.FLOAT32)


def elements(dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
    """Every bit pattern of the small types, random ones of the others."""
    count = int(np.prod(shape))
    if dtype is dtypes.BOOL:
        return np.equal(np.arange(count) % 3, 0).reshape(shape)
    if dtype.bits < 8:
        codes = (np.arange(count) % (1 << dtype.bits)).astype(np.uint8)
        if dtype in dtypes.SIGNED:
            shift = 8 - dtype.bits
            codes = ((codes << shift).view(np.int8) >> shift).view(np.uint8)
        return codes.view(dtype.numpy).reshape(shape)
    raw = np.random.default_rng(dtype.onnx).integers(0, 256, dtype.nbytes(count), np.uint8)
    return raw.view(dtype.numpy).reshape(shape)


def bits(array: NDArray[Any]) -> bytes:
    """The bit patterns of the elements; onnx leaves the upper bits of sub-byte elements as they come."""
    dtype = dtypes.from_numpy(array.dtype)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (raw & ((1 << dtype.bits) - 1) if dtype.is_packed else raw).tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 4), (7, 9, 3)], ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_raw_data_of_every_type_agrees_with_onnx(dtype: DType, shape: tuple[int, ...]) -> None:
    array = elements(dtype, shape)
    proto = numpy_helper.from_array(array, "x")
    assert proto.data_type == dtype.onnx
    loaded = load_tensor(proto)
    assert (loaded.dtype, loaded.shape, bits(loaded)) == (array.dtype, shape, bits(array))


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (70,)], ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_what_is_written_agrees_with_onnx(dtype: DType, shape: tuple[int, ...]) -> None:
    array = elements(dtype, shape)
    proto = TensorProto.FromString(tensor_to_bytes(array, "name"))
    assert (proto.name, proto.data_type, tuple(proto.dims)) == ("name", dtype.onnx, shape)
    back = numpy_helper.to_array(proto)
    assert (back.dtype, back.shape, bits(back)) == (array.dtype, shape, bits(array))


def typed_proto(dtype: DType, array: NDArray[Any]) -> TensorProto:
    """The tensor in the typed field that ONNX prescribes for its type."""
    proto = TensorProto(data_type=dtype.onnx, dims=array.shape)
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype in (dtypes.FLOAT32, dtypes.COMPLEX64):
        proto.float_data.extend(flat.view(np.float32).tolist())
    elif dtype in (dtypes.FLOAT64, dtypes.COMPLEX128):
        proto.double_data.extend(flat.view(np.float64).tolist())
    elif dtype is dtypes.INT64:
        proto.int64_data.extend(flat.tolist())
    elif dtype in (dtypes.UINT32, dtypes.UINT64):
        proto.uint64_data.extend(flat.tolist())
    elif dtype in dtypes.INTEGERS and dtype.bits >= 8:
        proto.int32_data.extend(flat.tolist())
    elif dtype.is_packed and dtype.bits != 6:
        proto.int32_data.extend(numpy_helper.from_array(array).raw_data)
    else:
        proto.int32_data.extend(flat.view(f"<u{flat.itemsize}").tolist())
    return proto


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (200,)], ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_typed_fields_of_every_type_agree_with_onnx(dtype: DType, shape: tuple[int, ...]) -> None:
    array = elements(dtype, shape)
    proto = typed_proto(dtype, array)
    expected = numpy_helper.to_array(proto)
    loaded = load_tensor(proto)
    assert (loaded.dtype, loaded.shape) == (expected.dtype, expected.shape)
    if (dtype.is_float and dtype.bits >= 32) or "complex" in dtype.ort:
        np.testing.assert_array_equal(loaded, expected)  # going through Python floats may change the bits of a NaN
    else:
        assert bits(loaded) == bits(expected)


def unpacked(field: int, wire_type: int, values: list[bytes]) -> bytes:
    return b"".join(bytes((field << 3 | wire_type,)) + value for value in values)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 1000])
def test_typed_fields_may_come_unpacked_and_mixed(count: int) -> None:
    floats = np.arange(count, dtype=np.float32)
    integers = np.arange(count, dtype=np.int64) * 1000 - 500
    head = TensorProto(data_type=1, dims=[count + 2])
    packed = TensorProto(float_data=[7.0, 8.0]).SerializeToString()
    data = head.SerializeToString() + unpacked(4, 5, [value.tobytes() for value in floats]) + packed
    np.testing.assert_array_equal(load_tensor(data), [*floats, 7, 8])
    head = TensorProto(data_type=7, dims=[count + 4])
    tail = TensorProto(int64_data=[3, 4])
    encoded = [TensorProto(int64_data=[value]).SerializeToString()[2:] for value in integers.tolist()]
    data = head.SerializeToString() + tail.SerializeToString() + unpacked(7, 0, encoded) + tail.SerializeToString()
    np.testing.assert_array_equal(load_tensor(data), [3, 4, *integers, 3, 4])


def test_strings_keep_their_text_and_bytes_that_are_no_text() -> None:
    proto = helper.make_tensor("s", TensorProto.STRING, [2, 2], [b"plain", "grün".encode(), b"", b"\xff\x00bad"])
    array = load_tensor(proto)
    assert array.dtype == object
    assert array.tolist() == [["plain", "grün"], ["", "\udcff\x00bad"]]
    assert TensorProto.FromString(tensor_to_bytes(array, "s")) == proto


def test_values_are_views_of_the_bytes_handed_over() -> None:
    data = bytearray(numpy_helper.from_array(np.zeros(1000, np.float32)).SerializeToString())
    array = load_tensor(memoryview(data))
    assert not array.flags.writeable
    data[-4:] = np.float32(3).tobytes()
    assert array[-1] == 3


def test_bools_that_are_neither_zero_nor_one_become_one() -> None:
    proto = TensorProto(data_type=TensorProto.BOOL, dims=[4], raw_data=bytes((0, 1, 2, 255)))
    assert load_tensor(proto).view(np.uint8).tolist() == [0, 1, 1, 1]
    assert load_tensor(TensorProto(data_type=TensorProto.BOOL, dims=[3], int32_data=[0, 7, 1])).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (TensorProto(dims=[1], raw_data=b"1234"), "its element type is missing"),
        (TensorProto(data_type=77, dims=[1]), "77 is not a tensor element type"),
        (TensorProto(data_type=1, dims=[2, 3], raw_data=bytes(20)), r"f32\[2,3\] needs 24 bytes, raw_data has 20"),
        (TensorProto(data_type=22, dims=[3], raw_data=bytes(3)), r"i4\[3\] needs 2 bytes, raw_data has 3"),
        (TensorProto(data_type=1, dims=[2]), r"f32\[2\] needs 2 numbers in float_data, which has 0"),
        (TensorProto(data_type=1), r"f32\[\] needs 1 numbers in float_data, which has 0"),
        (TensorProto(data_type=1, dims=[1], int64_data=[5]), r"which has 0 \(there is data in int64_data\)"),
        (TensorProto(data_type=7, dims=[3], int64_data=[5]), "needs 3 numbers in int64_data, which has 1"),
        (TensorProto(data_type=1, dims=[-1]), r"its shape \[-1\] has a negative dimension"),
        (TensorProto(data_type=1, dims=[1 << 40, 1 << 40]), "larger than any memory"),
        (TensorProto(data_type=1, dims=[0, 1 << 40, 1 << 40]), "larger than any memory"),
        (TensorProto(data_type=8, dims=[1], raw_data=b"a"), "strings must be in string_data"),
        (TensorProto(data_type=8, dims=[2], string_data=[b"a"]), r"str\[2\] needs 2 strings, string_data has 1"),
        (TensorProto(data_type=1, segment=TensorProto.Segment(begin=0, end=1)), "one segment of a tensor"),
    ],
)
def test_a_tensor_that_makes_no_sense_is_refused(proto: TensorProto, text: str) -> None:
    proto.name = "w"
    with pytest.raises(InvalidGraph, match=text) as caught:
        load_tensor(proto)
    assert "tensor 'w'" in str(caught.value)


def test_more_dimensions_than_numpy_has_are_refused() -> None:
    with pytest.raises(InvalidProtobuf, match="dimensions"):
        load_tensor(TensorProto(data_type=1, dims=[1] * 65, float_data=[1.0]))


def test_tensor_files_are_read_from_paths(tmp_path: Path) -> None:
    path = tmp_path / "input_0.pb"
    path.write_bytes(tensor_to_bytes(np.arange(6).reshape(2, 3)))
    np.testing.assert_array_equal(load_tensor(path), [[0, 1, 2], [3, 4, 5]])
    with pytest.raises(NoSuchFile, match="there is no tensor file"):
        load_tensor(tmp_path / "input_1.pb")
    with pytest.raises(InvalidProtobuf, match=r"it is empty \(0 bytes\)"):
        load_tensor(b"")


def test_the_data_files_of_the_onnx_suite_are_read() -> None:
    count = 0
    for path in sorted((Path(onnx.__file__).parent / "backend" / "test" / "data").glob("*/*/model.onnx")):
        model = load(path)
        for kind, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
            for index, value in enumerate(value for value in values if value.constant is None):
                file = path.parent / "test_data_set_0" / f"{kind}_{index}.pb"
                found = load_value(file, value.type)
                if isinstance(value.type, SequenceType):
                    expected = numpy_helper.to_list(onnx.SequenceProto.FromString(file.read_bytes()))
                else:
                    found, expected = [found], [numpy_helper.to_array(TensorProto.FromString(file.read_bytes()))]
                assert [(item.dtype, item.shape) for item in found] == [(item.dtype, item.shape) for item in expected]
                for ours, theirs in zip(found, expected):
                    np.testing.assert_array_equal(ours, theirs)
                count += 1
    assert count > 200


def test_sequences_maps_and_optionals_are_read_as_onnx_writes_them() -> None:
    arrays = [np.arange(3, dtype=np.float32), np.ones((2, 2), np.float32)]
    sequence = load_value(numpy_helper.from_list(arrays, "s"), SequenceType(F32))
    assert [item.tolist() for item in sequence] == [item.tolist() for item in arrays]
    assert load_value(numpy_helper.from_list([], "s"), SequenceType(F32)) == []
    mapping = numpy_helper.from_dict({3: np.array([1], np.float32), 5: np.array([2], np.float32)})
    assert load_value(mapping, MapType(dtypes.INT64, F32)) == {3: [1], 5: [2]}
    assert load_value(numpy_helper.from_optional(None), OptionalType(F32)) is None
    present = load_value(numpy_helper.from_optional(arrays[0]), OptionalType(F32))
    assert present.tolist() == [0, 1, 2]


def test_values_are_written_as_onnx_reads_them() -> None:
    array = np.arange(3, dtype=np.float32)
    sequence = onnx.SequenceProto.FromString(value_to_bytes([array, array + 1], name="s"))
    assert [item.tolist() for item in numpy_helper.to_list(sequence)] == [[0, 1, 2], [1, 2, 3]]
    mapping = onnx.MapProto.FromString(value_to_bytes({"a": np.array([1], np.int64), "b": np.array([2], np.int64)}))
    assert (mapping.key_type, list(mapping.string_keys)) == (TensorProto.STRING, [b"a", b"b"])
    assert load_value(value_to_bytes({1: 2.0}), MapType(dtypes.INT64, F32)) == {1: 2.0}
    nested = value_to_bytes([[array], []])
    assert [len(item) for item in load_value(nested, SequenceType(SequenceType(F32)))] == [1, 0]
    optional = OptionalType(F32)
    assert load_value(value_to_bytes(array, optional), optional).tolist() == [0, 1, 2]
    assert load_value(value_to_bytes(None, optional), optional) is None
    with pytest.raises(InvalidArgument, match="its elements are of different kinds"):
        value_to_bytes([array, []])
    with pytest.raises(InvalidArgument, match="a set cannot be written"):
        value_to_bytes([set()])


def test_broken_values_are_refused() -> None:
    mapping = numpy_helper.from_dict({3: np.array([1], np.float32), 5: np.array([2], np.float32)})
    del mapping.keys[0]
    with pytest.raises(InvalidGraph, match="has 1 keys and 2 values"):
        load_value(mapping, MapType(dtypes.INT64, F32))
    deep = b""
    for _ in range(200):
        deep = b"\x2a" + onnx.TensorProto(raw_data=deep).SerializeToString()[1:]
    with pytest.raises(InvalidProtobuf, match="nested more than 100 deep"):
        load_value(deep, SequenceType(F32))
    mixed = onnx.SequenceProto(tensor_values=[TensorProto(data_type=1)], sequence_values=[onnx.SequenceProto()])
    mixed.tensor_values[0].float_data.append(1)
    with pytest.raises(InvalidProtobuf, match="elements of different kinds"):
        load_value(mixed, SequenceType(F32))


def sparse_proto(indices: list[Any], shape: list[int]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "v")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices, np.int64), "i"), shape)


def test_sparse_tensors_survive() -> None:
    sparse = load_value(sparse_proto([[0, 1], [2, 3]], [3, 4]), SparseTensorType(dtypes.FLOAT32))
    assert isinstance(sparse, SparseConstant)
    assert (sparse.shape, sparse.indices.shape) == ((3, 4), (2, 2))
    assert onnx.SparseTensorProto.FromString(value_to_bytes(sparse, name="v")) == sparse_proto([[0, 1], [2, 3]], [3, 4])


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (sparse_proto([1, 12], [3, 4]), "its indices lie outside of its shape"),
        (sparse_proto([-1, 1], [3, 4]), "its indices lie outside of its shape"),
        (sparse_proto([[0, 1], [3, 0]], [3, 4]), "its indices lie outside of its shape"),
        (sparse_proto([0], [3, 4]), r"its indices have shape \(1,\), expected \(2,\) or \(2, 2\)"),
        (sparse_proto([0, 1], [-3]), "negative dimension"),
        (onnx.SparseTensorProto(dims=[3]), "its values are missing"),
    ],
)
def test_a_sparse_tensor_that_makes_no_sense_is_refused(proto: onnx.SparseTensorProto, text: str) -> None:
    with pytest.raises(InvalidGraph, match=text):
        load_value(proto, SparseTensorType(dtypes.FLOAT32))
