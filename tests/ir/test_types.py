"""Types print as people write them and as ONNX Runtime does."""

from __future__ import annotations

import pytest

from sardonyx.dtypes import FLOAT32, INT64, STRING
from sardonyx.ir.dims import symbol
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type, is_tensor


@pytest.mark.parametrize(
    ("type_", "text", "ort"),
    [
        (TensorType(FLOAT32, (symbol("N"), 3)), "f32[N,3]", "tensor(float)"),
        (TensorType(FLOAT32), "f32[...]", "tensor(float)"),
        (TensorType(INT64, ()), "i64[]", "tensor(int64)"),
        (SparseTensorType(FLOAT32, (4,)), "sparse(f32[4])", "sparse_tensor(float)"),
        (SequenceType(TensorType(STRING)), "seq(str[...])", "seq(tensor(string))"),
        (OptionalType(SequenceType(TensorType(INT64))), "optional(seq(i64[...]))", "optional(seq(tensor(int64)))"),
        (MapType(INT64, TensorType(FLOAT32, ())), "map(i64,f32[])", "map(int64,tensor(float))"),
    ],
)
def test_a_type_has_a_short_text_and_the_name_onnx_runtime_gives_it(type_: Type, text: str, ort: str) -> None:
    assert str(type_) == text
    assert type_.ort == ort


def test_rank_is_unknown_without_a_shape() -> None:
    assert TensorType(FLOAT32).rank is None
    assert TensorType(FLOAT32, (1, 2)).rank == 2
    assert is_tensor(TensorType(FLOAT32))
    assert not is_tensor(None)
    assert not is_tensor(SequenceType(TensorType(FLOAT32)))
