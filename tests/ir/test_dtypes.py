"""The table of element types."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import onnx
import pytest

from sardonyx import dtypes
from sardonyx.dtypes import DType


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_name_of_a_type_leads_back_to_it(dtype: DType) -> None:
    assert dtypes.from_onnx(dtype.onnx) is dtype
    assert dtypes.from_name(dtype.name) is dtype
    assert dtypes.from_ort(dtype.ort) is dtype
    assert dtypes.from_numpy(dtype.numpy) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype


def test_the_numbers_are_those_of_onnx() -> None:
    known = {name: number for name, number in onnx.TensorProto.DataType.items() if name != "UNDEFINED"}
    assert set(known.values()) == {dtype.onnx for dtype in dtypes.ALL}
    assert known["FLOAT"] == dtypes.FLOAT32.onnx
    assert known["BFLOAT16"] == dtypes.BFLOAT16.onnx


def test_packed_types_say_how_many_bytes_they_take() -> None:
    assert dtypes.INT4.nbytes(5) == 3
    assert dtypes.UINT2.nbytes(5) == 2
    assert dtypes.FLOAT6E2M3.nbytes(4) == 3
    assert dtypes.FLOAT32.nbytes(5) == 20
    assert [dtype.name for dtype in dtypes.ALL if dtype.is_packed] == ["u4", "i4", "f4e2m1", "u2", "i2", "f6e2m3", "f6e3m2"]


def test_every_type_is_a_float_an_integer_or_something_else() -> None:
    neither = [dtype.name for dtype in dtypes.ALL if not dtype.is_float and not dtype.is_integer]
    assert neither == ["str", "bool", "c64", "c128"]
    assert not any(dtype.is_float and dtype.is_integer for dtype in dtypes.ALL)


def test_numpy_text_of_every_kind_is_string() -> None:
    for kind in ("<U5", "S3", object):
        assert dtypes.from_numpy(np.dtype(kind)) is dtypes.STRING


def test_other_byte_orders_are_the_same_type() -> None:
    assert dtypes.from_numpy(np.dtype(">f4")) is dtypes.FLOAT32
    assert dtypes.from_numpy(np.dtype(ml_dtypes.bfloat16)) is dtypes.BFLOAT16


def test_unknown_types_are_refused_with_what_was_found() -> None:
    with pytest.raises(ValueError, match="99 is not a tensor element type; ONNX defines 1 to 28"):
        dtypes.from_onnx(99)
    with pytest.raises(ValueError, match="'f33' is not an element type; known: f32"):
        dtypes.from_name("f33")
    with pytest.raises(ValueError, match="'floot' is not an element type"):
        dtypes.from_ort("floot")
    with pytest.raises(ValueError, match="timedelta64 has no ONNX element type"):
        dtypes.from_numpy(np.dtype("timedelta64"))
