"""Constants: bytes to arrays and back, without copies where that can be."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir import tensor
from sardonyx.ir.tensor import Tensor

NUMERIC = [dtype for dtype in dtypes.ALL if dtype is not dtypes.STRING]


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3), (3, 0, 2)])
def test_an_array_comes_back_as_it_went_in(dtype: DType, shape: tuple[int, ...]) -> None:
    array = (np.arange(int(np.prod(shape))).reshape(shape) % 2).astype(dtype.numpy)
    held = tensor.from_numpy(array, "w")
    assert held.dtype is dtype
    assert held.shape == shape
    assert held.nbytes == dtype.nbytes(array.size) == len(held.raw())
    back = held.numpy()
    assert back.dtype == array.dtype
    assert back.shape == shape
    assert back.tobytes() == array.tobytes()


@given(st.sampled_from([dtype for dtype in NUMERIC if dtype.is_packed]), st.binary(max_size=9))
def test_packing_undoes_unpacking_for_all_bit_patterns(dtype: DType, data: bytes) -> None:
    count = len(data) * 8 // dtype.bits
    packed = np.frombuffer(data, np.uint8)[: dtype.nbytes(count)]
    elements = tensor.unpack(packed, dtype, count)
    assert elements.shape == (count,)
    unused = len(packed) * 8 - count * dtype.bits
    again = tensor.pack(elements, dtype)
    if unused:
        packed = packed.copy()
        packed[-1] &= (1 << (8 - unused)) - 1
    assert again.tobytes() == packed.tobytes()


@pytest.mark.parametrize("dtype", [dtypes.INT4, dtypes.UINT4, dtypes.INT2, dtypes.UINT2, dtypes.FLOAT4E2M1], ids=str)
def test_packed_bytes_are_those_of_onnx(dtype: DType) -> None:
    array = np.asarray([0, 1, 1, 0, 1], dtype.numpy)
    proto = onnx.numpy_helper.from_array(array)
    assert bytes(tensor.from_numpy(array).raw()) == proto.raw_data


def test_views_share_memory_and_cannot_be_written() -> None:
    data = np.arange(6, dtype=np.float32).tobytes()
    array = Tensor(dtypes.FLOAT32, (2, 3), lambda: data).numpy()
    assert np.shares_memory(array, np.frombuffer(data, np.float32))
    assert not array.flags.writeable


def test_an_array_that_is_not_contiguous_or_big_endian_is_held_in_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert bytes(tensor.from_numpy(array.T).raw()) == array.T.copy().tobytes()
    assert tensor.from_numpy(array.astype(">i4")).numpy().tolist() == array.tolist()


def test_strings_keep_their_text_and_have_no_raw_bytes() -> None:
    held = tensor.from_numpy(np.asarray([["a", "é"], ["", "\udc80"]], object), "names")
    assert held.numpy().tolist() == [["a", "é"], ["", "\udc80"]]
    assert held.nbytes == 4
    with pytest.raises(TypeError, match="string tensor 'names' has no raw bytes"):
        held.raw()


def test_bytes_become_text_with_escapes_for_what_is_not_utf8() -> None:
    assert tensor.from_numpy(np.asarray([b"ok", b"\xff"])).numpy().tolist() == ["ok", "\udcff"]


def test_a_tensor_shows_its_name_and_type() -> None:
    assert repr(tensor.from_numpy(np.zeros((2, 3), np.float32), "w")) == "Tensor('w', f32[2,3])"
