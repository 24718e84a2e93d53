"""Conversion between element types, against onnxruntime, ml_dtypes and the rules of ONNX."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, by_reference, f32, known_shape, random_array, run, seeds, shapes, text

from sardonyx import dtypes
from sardonyx.ir.types import TensorType
from sardonyx.ops.elementwise.cast import cast

PLAIN = [
    dtypes.FLOAT32, dtypes.FLOAT64, dtypes.FLOAT16, dtypes.BOOL, dtypes.INT8, dtypes.INT16, dtypes.INT32, dtypes.INT64,
    dtypes.UINT8, dtypes.UINT16, dtypes.UINT32, dtypes.UINT64,
]  # fmt: skip
NUMBERS = [dtype for dtype in dtypes.ALL if dtype not in (dtypes.STRING, dtypes.COMPLEX64, dtypes.COMPLEX128)]


@pytest.mark.parametrize(("source", "target"), list(product(PLAIN, PLAIN)))
def test_plain_types_convert_as_in_onnxruntime(source: dtypes.DType, target: dtypes.DType) -> None:
    data = np.array([0, -0.0, 1, 2.5, -1.5, 100, 127, 128, 255, 256, 300.7, 40000, -200], np.float64)
    if source in dtypes.UNSIGNED:
        data = np.abs(data)
    with np.errstate(all="ignore"):
        x = data.astype(np.int64).astype(source.numpy) if source.is_integer else data.astype(source.numpy)
    if source.is_float and target.is_integer:  # what does not fit is undefined
        limits = np.iinfo(target.numpy)
        wide = x.astype(np.float64)
        x = x[(wide >= limits.min) & (wide <= limits.max) & np.isfinite(wide)]
    expected = by_onnxruntime("Cast", x, like=[np.zeros(1, target.numpy)], to=target.onnx)[0]
    np.testing.assert_array_equal(run("Cast", x, to=target.onnx), expected)


@pytest.mark.parametrize(("source", "target"), list(product(NUMBERS, NUMBERS)))
def test_every_pair_of_types_converts_small_numbers_exactly(source: dtypes.DType, target: dtypes.DType) -> None:
    x = np.array([[1, 1], [1, 1]], np.float32).astype(source.numpy)[:, ::2]
    result = run("Cast", x, to=target.onnx)
    assert result.dtype == target.numpy

    assert result.astype(np.float32).tolist() == [[1], [1]]


@settings(max_examples=25, deadline=None)
@given(shape=shapes, seed=seeds, pair=st.tuples(st.sampled_from(NUMBERS[:16]), st.sampled_from(NUMBERS[:16])))
def test_cast_like_is_cast(shape: tuple[int, ...], seed: int, pair: tuple[dtypes.DType, dtypes.DType]) -> None:
    source, target = pair
    x = random_array(seed, shape, source.numpy, special=False)
    np.testing.assert_array_equal(run("CastLike", x, np.zeros(2, target.numpy)), run("Cast", x, to=target.onnx))


@pytest.mark.parametrize("target", [dtypes.FLOAT8E4M3FN, dtypes.FLOAT8E4M3FNUZ, dtypes.FLOAT8E5M2, dtypes.FLOAT8E5M2FNUZ])
@pytest.mark.parametrize("source", [dtypes.FLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16])
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8_saturates_or_overflows(target: dtypes.DType, source: dtypes.DType, saturate: int) -> None:
    x = np.array([0, 0.1, 1, 239, 241, 447, 449, 500, 57344, 60000, 1e4, np.inf, -np.inf, np.nan, -1e30], np.float32)
    with np.errstate(all="ignore"):
        x = x.astype(source.numpy)
    result = run("Cast", x, to=target.onnx, saturate=saturate).astype(np.float32)
    with np.errstate(all="ignore"):
        plain = x.astype(np.float32).astype(target.numpy).astype(np.float32)
    largest = float(ml_dtypes.finfo(target.numpy).max)  # type: ignore[no-untyped-call]
    expected = np.where(np.isfinite(plain) | np.isnan(x.astype(np.float32)), plain, np.copysign(largest, x.astype(np.float32)))
    np.testing.assert_array_equal(result, expected if saturate else plain)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("up", [2, 1, 2, 2, 2, 4]), ("down", [1, 1, 1, 1, 1, 2]), ("nearest", [1, 1, 2, 2, 2, 4])],
)
def test_powers_of_two_are_rounded_by_mode(mode: str, expected: list[float]) -> None:
    x = np.array([1.1, 1.0, 1.5, 1.6, 1.99, 3.0], np.float32)
    assert run("Cast", x, to=dtypes.FLOAT8E8M0.onnx, round_mode=mode).astype(np.float32).tolist() == expected


def test_powers_of_two_have_an_end() -> None:
    x = np.array([0, np.inf, np.nan, -1, 1e-45], np.float32)
    saturated = run("Cast", x, to=dtypes.FLOAT8E8M0.onnx).view(np.uint8)
    assert saturated.tolist() == [0, 254, 255, 255, 0]
    assert run("Cast", x, to=dtypes.FLOAT8E8M0.onnx, saturate=0).view(np.uint8).tolist() == [255] * 5
    with pytest.raises(ValueError, match="round_mode is 'odd': expected 'up', 'down' or 'nearest'"):
        run("Cast", x, to=dtypes.FLOAT8E8M0.onnx, round_mode="odd")


def test_small_integers_lose_their_high_bits() -> None:
    x = np.array([-9, 7, 8, 200, 3.9], np.float32)
    assert run("Cast", x, to=dtypes.INT4.onnx).astype(int).tolist() == [7, 7, -8, -8, 3]
    assert run("Cast", x, to=dtypes.UINT4.onnx).astype(int).tolist() == [7, 7, 8, 8, 3]
    assert run("Cast", x, to=dtypes.INT2.onnx).astype(int).tolist() == [-1, -1, 0, 0, -1]
    assert run("Cast", np.array([-1], np.int64), to=dtypes.UINT2.onnx).astype(int).tolist() == [3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.bool_, np.int8, np.uint64])
def test_numbers_become_text_as_in_onnxruntime(dtype: Any) -> None:
    with np.errstate(all="ignore"):
        data = np.array([0, 1, 1.5, 0.1, 1 / 3, 1e10, 123456.789, 1e-5, np.nan, np.inf, -np.inf])
        x = data[:8].astype(dtype) if np.dtype(dtype).kind in "biu" else data.astype(dtype)
    expected = by_onnxruntime("Cast", x, like=[text("")], to=dtypes.STRING.onnx)[0]
    assert run("Cast", x, to=dtypes.STRING.onnx).tolist() == expected.tolist()


@pytest.mark.parametrize("target", [dtypes.FLOAT32, dtypes.INT64, dtypes.INT8, dtypes.UINT8, dtypes.BOOL, dtypes.FLOAT64])
def test_text_becomes_numbers_as_in_onnxruntime(target: dtypes.DType) -> None:
    x = text("1", " 1", "2.7", "-3", "1e3", "9223372036854775807", "+5")
    expected = by_onnxruntime("Cast", x, like=[np.zeros(1, target.numpy)], to=target.onnx)[0]
    np.testing.assert_array_equal(run("Cast", x, to=target.onnx), expected)


READ_BY_C = (
    "1_0", "infinity", "-Infinity", "iNf", "infx", "nan(12)", "nanx", "0x10", "0X1.8p1", "0x", "0x.8p-2", "-0x1p3", "0b1", "1abc",
    "1.5.2", "1e", "1e+", "1d5", "1,5", "1.5f", "5.", ".5", "-0", "0e400", "1 ", "\t1", "\x0b-1", "1e39", "1e-46", "1\x00", "0",
)  # fmt: skip
REFUSED_BY_C = (
    "", " ", "+", "abc", "+-1", "\x1c1", "\uff11", "\u0663", "\xa01", "_1", "1e400", "-1e400", "1e-400", "1e-310", "0x1p5000",
)  # fmt: skip


@pytest.mark.parametrize("target", [dtypes.FLOAT32, dtypes.FLOAT64, dtypes.FLOAT16])
def test_floats_are_read_from_text_as_c_reads_them(target: dtypes.DType) -> None:
    x = text(*READ_BY_C)
    like = [np.zeros(0, target.numpy)]
    expected = by_onnxruntime("Cast", x, like=like, to=target.onnx)[0]
    np.testing.assert_array_equal(run("Cast", x, to=target.onnx), expected)
    for word in READ_BY_C:
        np.testing.assert_array_equal(run("Cast", text(word), to=target.onnx), expected[READ_BY_C.index(word)][None])


@pytest.mark.parametrize("word", REFUSED_BY_C)
def test_text_that_c_refuses_is_no_float(word: str) -> None:
    with pytest.raises(Exception, match=r"ast|float|onvert"):
        by_onnxruntime("Cast", text(word), like=[np.zeros(0, np.float32)], to=dtypes.FLOAT32.onnx)
    with pytest.raises(ValueError, match=r"cannot read|does not fit into a float64"):
        run("Cast", text("2.5", word), to=dtypes.FLOAT32.onnx)


@pytest.mark.parametrize("word", ["\uff11", "\u0663", "\xa01", "\x1c1", "_1"])
def test_digits_that_are_not_ascii_are_no_integer(word: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        run("Cast", text("2", word), to=dtypes.INT64.onnx)


def test_text_names_infinity_and_nan() -> None:
    result = run("Cast", text("inf", "+INF", "-Inf", "NaN"), to=dtypes.FLOAT32.onnx)
    np.testing.assert_array_equal(result, np.array([np.inf, np.inf, -np.inf, np.nan], np.float32))


@pytest.mark.parametrize(
    ("words", "target", "message"),
    [
        ("abc", dtypes.INT32, "cannot read 'abc' as an integer"),
        ("abc", dtypes.FLOAT32, "cannot read 'abc' as a number"),
        ("99999999999999999999", dtypes.INT64, "'99999999999999999999' does not fit into 64 bits"),
    ],
)
def test_text_that_is_no_number_is_refused(words: str, target: dtypes.DType, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("Cast", text(words), to=target.onnx)


def test_what_does_not_fit_an_integer_converts_quietly() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e20], np.float32)
    for target in (dtypes.INT8, dtypes.INT32, dtypes.INT64, dtypes.UINT16, dtypes.INT4):
        assert run("Cast", x, to=target.onnx).shape == (4,)


def test_opset_one_names_the_type_in_words() -> None:
    assert run("Cast", np.array([1.5], np.float32), version=1, to="INT32").tolist() == [1]
    assert run("Cast", np.array([1.5], np.float32), version=1, to="DOUBLE").dtype == np.float64
    with pytest.raises(ValueError, match="to is 'NUMBER': expected the name of an element type"):
        run("Cast", np.zeros(1, np.float32), version=1, to="NUMBER")


BIT_PAIRS = [
    (a, b) for a, b in product(NUMBERS, NUMBERS) if a.bits == b.bits and a.bits != 6 and dtypes.BOOL not in (a, b)
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), BIT_PAIRS)
def test_bits_survive_both_ways(source: dtypes.DType, target: dtypes.DType) -> None:
    x: Array = np.array([[0, 1], [1, 1]]).astype(np.float32).astype(source.numpy).T
    there = run("BitCast", x, to=target.onnx)
    assert there.dtype == target.numpy
    assert run("BitCast", there, to=source.onnx).tobytes() == np.ascontiguousarray(x).tobytes()


def test_bits_of_another_width_or_of_text_are_refused() -> None:
    with pytest.raises(ValueError, match="f32 has 32 bits but i64 has 64: the widths must agree"):
        run("BitCast", np.zeros(1, np.float32), to=dtypes.INT64.onnx)
    with pytest.raises(TypeError, match="strings have no bit pattern"):
        run("BitCast", np.zeros(1, np.float32), to=dtypes.STRING.onnx)


def test_the_bits_of_one_are_known() -> None:
    assert run("BitCast", np.array(1, np.float32), to=dtypes.UINT32.onnx).tolist() == 0x3F800000


def test_the_type_follows_from_the_attribute() -> None:
    assert known_shape("Cast", [f32("N", 2)], to=dtypes.INT64.onnx) == TensorType(dtypes.INT64, f32("N", 2).shape)


def test_a_type_converts_to_itself_without_a_copy() -> None:
    x = np.zeros(3, np.float32)
    assert cast(x, dtypes.FLOAT32) is x


def test_the_reference_agrees_about_bfloat16() -> None:
    x = random_array(1, (50,), np.float32)
    got = run("Cast", x, to=dtypes.BFLOAT16.onnx)
    np.testing.assert_array_equal(got.view(np.uint16), by_reference("Cast", x, to=dtypes.BFLOAT16.onnx).view(np.uint16))
