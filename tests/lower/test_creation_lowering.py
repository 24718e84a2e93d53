"""Ranges, diagonals and one-hot rows against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from model_text import model
from native_support import assert_native_agrees

TYPES: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "uint16": np.uint16,
    "int32": np.int32,
    "int64": np.int64,
    "bool": np.bool_,
}


def agrees(graph: str, opset: int = 24, **feeds: Any) -> None:
    assert_native_agrees(model(graph, opset), feeds, rtol=0, atol=0)


@pytest.mark.parametrize("kind", list(TYPES))
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-2, 0, 3])
def test_triangles(kind: str, upper: int, diagonal: int) -> None:
    x = np.arange(1, 71).reshape(2, 5, 7).astype(TYPES[kind])
    k = f"Constant<value = int64 {{{diagonal}}}>()"
    agrees(f"({kind}[N,A,B] x) => ({kind}[z] y) {{ k = {k} y = Trilu<upper={upper}>(x, k) }}", x=x)
    agrees(f"({kind}[N,A,B] x, int64 k) => ({kind}[z] y) {{ y = Trilu<upper={upper}>(x, k) }}", x=x, k=np.array(diagonal))


@pytest.mark.parametrize("kind", list(TYPES))
def test_diagonals(kind: str) -> None:
    x = np.zeros((4, 19), TYPES[kind])
    agrees(f"({kind}[A,B] x) => ({kind}[z] y) {{ y = EyeLike<k=2>(x) }}", x=x)
    agrees(f"({kind}[A,B] x) => (float[z] y) {{ y = EyeLike<k=-1, dtype=1>(x) }}", x=x)
    agrees(f"({kind}[A,B] x) => ({kind}[z] y) {{ y = EyeLike(x) }}", x=x[:0])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [np.int64, np.int32, np.float32, np.uint8])
@pytest.mark.parametrize("kind", ["float", "bool", "int8"])
def test_one_hot(axis: int, indices: Any, kind: str) -> None:
    named = {np.int64: "int64", np.int32: "int32", np.float32: "float", np.uint8: "uint8"}[indices]
    x = np.array([[0, 6, 7], [3, 200, 5]]).astype(indices)
    if indices is not np.uint8:
        x[0, 0], x[1, 1] = -1, -8
    depth = "Constant<value = int64 {7}>()"
    graph = f"({named}[A,B] x, {kind}[2] v) => ({kind}[z] y) {{ d = {depth} y = OneHot<axis={axis}>(x, d, v) }}"
    agrees(graph, x=x, v=np.array([0, 1]).astype(TYPES[kind]))


def test_ranges_whose_length_is_a_size() -> None:
    graph = """(float[N,3] x) => (int64[a] y, int64[b] z) {
        s = Shape(x)
        zero = Constant<value_int=0>()
        two = Constant<value_int=2>()
        back = Constant<value_int=-1>()
        n = Gather(s, zero)
        y = Range(zero, n, two)
        z = Range(n, zero, back)
    }"""
    for count in (0, 1, 7, 40):
        agrees(graph, x=np.zeros((count, 3), np.float32))


def test_constants_of_a_shape() -> None:
    for value, kind in (("", "float"), ("<value = int64[1] {7}>", "int64"), ("<value = bool[1] {1}>", "bool")):
        agrees(
            f"(float[N,3] x) => ({kind}[a] y) {{ s = Shape(x) y = ConstantOfShape{value}(s) }}", x=np.zeros((4, 3), np.float32)
        )
    graph = "(float[N,3] x) => (float[a] y) { s = Shape(x) c = ConstantOfShape<value = float[1] {2.5}>(s) y = Add(x, c) }"
    agrees(graph, x=np.ones((4, 3), np.float32))
