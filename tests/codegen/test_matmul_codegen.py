"""The code of products: every shape and stride against NumPy, on memory that ends at a page nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.codegen.library import KernelLibrary
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import Expr, load, maximum
from sardonyx.kernel.loops import Operand
from sardonyx.kernel.matmul import dot, gemv, matmul, pack
from sardonyx.kernel.matmul.matmul import MatMulKernel, vector_lanes
from sardonyx.kernel.matmul.pack import pack_strips
from targets import here, library_for

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "f16": np.float16}
BIAS = Epilogue(
    (Operand("f32", "unit"), Operand("f32", "zero"), Operand("f32", "unit")),
    ((2, maximum(accumulator("f32") + load(0, "f32"), 0.0) * load(1, "f32")),),
)


@cache
def library(lanes: int = 0) -> KernelLibrary:
    return library_for(here(lanes))


def guarded(array: Array) -> Array:
    """A copy that ends where the process may not read or write."""
    page = mmap.PAGESIZE
    size = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, size + page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + size), page, 0) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy


def run(kernel: Any, arguments: Sequence[int], units: int, parts: Sequence[int] = (), lanes: int = 0) -> None:
    function = SIGNATURE(library(lanes).address(kernel))
    table = np.array(arguments, np.int64)
    assert len(arguments) == kernel.arguments.count
    edges = sorted({0, units, *(part % (units + 1) for part in parts)})
    for begin, end in pairwise(edges):
        function(table.ctypes.data, begin, end, 0)


def count(units: Dim) -> int:
    assert isinstance(units, int)
    return units


def plain(type: str) -> Epilogue:
    return Epilogue((Operand(type, "unit"),), ((0, accumulator(type)),))


def numbers(seed: int, shape: tuple[int, ...], type: str) -> Array:
    rng = np.random.default_rng(seed)
    if type.startswith("i"):
        return rng.integers(-1000, 1000, shape).astype(NUMPY[type])
    return rng.standard_normal(shape).astype(NUMPY[type])


def close(actual: Array, expected: Array, depth: int) -> None:
    if actual.dtype.kind == "i":
        np.testing.assert_array_equal(actual, expected)
        return
    unit = np.finfo(actual.dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=0, atol=float(unit) * (4 + 4 * depth**0.5) * 4)


@pytest.mark.parametrize("lanes", [0, 8, 4])
@pytest.mark.parametrize(
    ("type", "ahead"), [("f32", ""), ("f32", "fetches"), ("f32", "streams"), ("f64", ""), ("f64", "streams"), ("i32", "")]
)
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_packed_products_of_every_height_and_width(type: str, ahead: str, vectors: int, lanes: int) -> None:
    wide = vector_lanes(type, library(lanes).target)
    strip = vectors * wide
    rows = matmul.tallest(library(lanes).target, vectors)
    kernel = MatMulKernel(
        type=type,
        b_type=type,
        b="packed",
        batch=0,
        vectors=vectors,
        rows=rows,
        heights=tuple(range(1, rows + 1)),
        unit_depth=True,
        whole=False,
        epilogue=plain(type),
        fetches=ahead == "fetches",
        streams=ahead == "streams",
    )
    for case in range(2 * rows + 2):
        m, n, k = case, 1 + (case * 7) % (2 * strip + 3), (0, 1, 3, 4, 9, 16)[case % 6]
        a, b = guarded(numbers(case, (m, k), type)), numbers(case + 1, (k, n), type)
        packed = guarded(pack_strips(b, strip))
        c = guarded(np.full((m, n), 77, NUMPY[type]))
        arguments = [m, n, k, 2, a.ctypes.data, k, 1, packed.ctypes.data, k * strip, c.ctypes.data, n, 1]
        run(kernel, arguments, count(matmul.units(kernel, [], m, n, library(lanes).target)), lanes=lanes)
        close(c, a @ b, k)


SIZES = st.integers(0, 40)


@settings(max_examples=80, deadline=None)
@given(
    rows=SIZES,
    columns=st.integers(0, 150),
    depth=st.integers(0, 70),
    group=st.integers(1, 4),
    transposed=st.booleans(),
    parts=st.lists(st.integers(0, 1000), max_size=4),
    seed=st.integers(0, 100),
)
def test_products_of_a_matrix_as_it_lies(
    rows: int, columns: int, depth: int, group: int, transposed: bool, parts: list[int], seed: int
) -> None:
    most = matmul.tallest(library().target, 2)
    kernel = MatMulKernel(
        type="f32",
        b_type="f32",
        b="rows",
        batch=0,
        vectors=2,
        rows=most,
        heights=tuple(range(1, most + 1)),
        unit_depth=not transposed,
        whole=False,
        epilogue=BIAS,
    )
    stored = numbers(seed, (depth, rows) if transposed else (rows, depth), "f32")
    a, b = guarded(stored), guarded(numbers(seed + 1, (depth, columns), "f32"))
    bias, scale = guarded(numbers(seed + 2, (columns,), "f32")), guarded(numbers(seed + 3, (rows,), "f32"))
    strides = (1, rows) if transposed else (depth, 1)
    units = count(matmul.units(kernel, [], rows, columns, library().target))
    results = []
    for split in ((), parts):
        c = guarded(np.full((rows, columns), 77, np.float32))
        arguments = [rows, columns, depth, group, a.ctypes.data, *strides, b.ctypes.data, columns]
        arguments += [bias.ctypes.data, 0, 1, scale.ctypes.data, 1, 0, c.ctypes.data, columns, 1]
        run(kernel, arguments, units, split)
        results.append(c)
    np.testing.assert_array_equal(results[0], results[1])
    matrix = (stored.T if transposed else stored).astype(np.float64)
    exact = np.maximum(matrix @ b + bias, 0) * scale[:, None]
    size = (np.abs(matrix) @ np.abs(b) + np.abs(bias)) * np.abs(scale)[:, None]  # of the terms: rounding is a share of it
    assert (np.abs(results[0] - exact) <= np.finfo(np.float32).eps * (4 + depth**0.5) * size).all()


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(0, 3),
    columns=st.integers(0, 80),
    depth=st.integers(0, 300),
    order=st.sampled_from(["columns", "depth", "any"]),
    type=st.sampled_from(["f32", "f16", "f64"]),
    parts=st.lists(st.integers(0, 1000), max_size=3),
)
def test_a_matrix_is_packed_from_any_order(batch: int, columns: int, depth: int, order: str, type: str, parts: list[int]) -> None:
    target = "f64" if type == "f64" else "f32"
    kernel = pack.PackKernel(source=type, type=target, batch=1, vectors=2, order=order)  # type: ignore[arg-type]
    strip = 2 * vector_lanes(target, library().target)
    gap = 3 if order == "any" else 1
    shape = (batch, columns, depth * gap) if order != "columns" else (batch, depth, columns)
    source = guarded(numbers(depth, shape, type))
    column_stride, depth_stride = (1, columns) if order == "columns" else (depth * gap, gap)
    matrix = source if order == "columns" else np.swapaxes(source[:, :, ::gap], 1, 2)
    strips = -(-columns // strip)
    packed = guarded(np.full((batch, strips, depth, strip), 77, NUMPY[target]))
    arguments = [
        batch,
        columns,
        depth,
        source.ctypes.data,
        depth * columns * gap,
        column_stride,
        depth_stride,
        packed.ctypes.data,
    ]
    run(kernel, arguments, count(pack.units(kernel, [batch], columns, depth, library().target)), parts)
    expected = pack_strips(matrix.astype(NUMPY[target]), strip)
    inside = np.arange(strips * strip).reshape(strips, strip)[:, None, :] < columns
    np.testing.assert_array_equal(np.where(inside, packed, 0), np.where(inside, expected, 0))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 4),
    columns=st.integers(0, 90),
    depth=st.integers(0, 70),
    parts=st.lists(st.integers(0, 1000), max_size=3),
    lanes=st.sampled_from([0, 8]),
)
def test_products_of_rows_with_rows(rows: int, columns: int, depth: int, parts: list[int], lanes: int) -> None:
    kernel = dot.DotKernel(type="f32", a_type="f32", b_type="f32", batch=1, epilogue=BIAS)
    a, b = guarded(numbers(1, (2, rows, depth), "f32")), guarded(numbers(2, (2, columns, depth), "f32"))
    bias, scale = guarded(numbers(3, (columns,), "f32")), guarded(numbers(4, (2, rows), "f32"))
    c = guarded(np.full((2, rows, columns), 77, np.float32))
    arguments = [2, rows, columns, depth, a.ctypes.data, rows * depth, depth, b.ctypes.data, columns * depth, depth]
    arguments += [bias.ctypes.data, 0, 0, 1, scale.ctypes.data, rows, 1, 0, c.ctypes.data, rows * columns, columns, 1]
    run(kernel, arguments, count(dot.units(kernel, [2], rows, columns, library(lanes).target)), parts, lanes)
    close(c, np.maximum(a @ np.swapaxes(b, 1, 2) + bias, 0) * scale[:, :, None], depth)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.one_of(st.integers(0, 150), st.sampled_from([1088, 1100, 4097, 4200])),
    depth=st.one_of(st.integers(0, 40), st.sampled_from([511, 512, 513, 1100])),
    transposed=st.booleans(),
    gap=st.integers(0, 5),
    deep=st.booleans(),
    fetches=st.booleans(),
    parts=st.lists(st.integers(0, 1000), max_size=3),
    lanes=st.sampled_from([0, 8]),
)
def test_products_of_a_few_rows_with_a_matrix_that_lies_row_by_row(
    rows: int, columns: int, depth: int, transposed: bool, gap: int, deep: bool, fetches: bool, parts: list[int], lanes: int
) -> None:
    kernel = gemv.GemvKernel(type="f32", b_type="f32", batch=1, rows=rows, epilogue=BIAS, deep=deep, fetches=fetches)
    stored = guarded(numbers(1, (2, depth, rows) if transposed else (2, rows, depth), "f32"))
    a = np.swapaxes(stored, 1, 2) if transposed else stored
    wide = guarded(numbers(2, (2, depth, columns + gap), "f32"))
    b = wide[:, :, gap:]
    bias, scale = guarded(numbers(3, (columns,), "f32")), guarded(numbers(4, (2, rows), "f32"))
    steps = (1, rows) if transposed else (depth, 1)
    results = []
    for split in ((), parts):
        c = guarded(np.full((2, rows, columns), 77, np.float32))
        arguments = [2, columns, depth, stored.ctypes.data, rows * depth, *steps]
        arguments += [wide.ctypes.data + 4 * gap, depth * (columns + gap), columns + gap]
        arguments += [bias.ctypes.data, 0, 0, 1, scale.ctypes.data, rows, 1, 0, c.ctypes.data, rows * columns, columns, 1]
        run(kernel, arguments, count(gemv.units([2], columns)), split, lanes)
        results.append(c)
    np.testing.assert_array_equal(results[0], results[1])
    exact = np.maximum(a.astype(np.float64) @ b + bias, 0) * scale[:, :, None]
    size = (np.abs(a) @ np.abs(b) + np.abs(bias)) * np.abs(scale)[:, :, None]
    assert (np.abs(results[0] - exact) <= np.finfo(np.float32).eps * (4 + depth**0.5) * size).all()


@pytest.mark.parametrize("type", ["f64", "i32", "f16"])
def test_a_row_times_a_matrix_of_any_type(type: str) -> None:
    kind = "f32" if type == "f16" else type
    kernel = gemv.GemvKernel(type=kind, b_type=type, batch=0, rows=1, epilogue=plain(kind))
    a, b = guarded(numbers(1, (1, 21), kind)), guarded(numbers(2, (21, 203), type))
    c = guarded(np.zeros((1, 203), NUMPY[kind]))
    arguments = [203, 21, a.ctypes.data, 21, 1, b.ctypes.data, 203, c.ctypes.data, 203, 1]
    run(kernel, arguments, count(gemv.units([], 203)))
    close(c, a @ b.astype(NUMPY[kind]), 21)


def test_heights_without_a_tile_of_their_own_use_the_next_one() -> None:
    kernel = MatMulKernel(
        type="f32",
        b_type="f32",
        b="packed",
        batch=0,
        vectors=1,
        rows=6,
        heights=(1, 2, 4, 6),
        unit_depth=True,
        whole=False,
        epilogue=plain("f32"),
    )
    lanes = library().target.lanes
    for m in range(1, 20):
        a, b = guarded(numbers(m, (m, 9), "f32")), numbers(m + 1, (9, 20), "f32")
        packed, c = guarded(pack_strips(b, lanes)), guarded(np.zeros((m, 20), np.float32))
        arguments = [m, 20, 9, 3, a.ctypes.data, 9, 1, packed.ctypes.data, 9 * lanes, c.ctypes.data, 20, 1]
        run(kernel, arguments, count(matmul.units(kernel, [], m, 20, library().target)))
        close(c, a @ b, 9)


def test_a_long_epilogue_stores_several_results_with_any_stride() -> None:
    value: Expr = accumulator("f32")
    for number in range(10):
        value = value * 1.5 - float(number)
    operands = (Operand("f32", "any"), Operand("f16", "unit"))
    epilogue = Epilogue(operands, ((0, value), (1, accumulator("f32").cast("f16"))))
    kernel = MatMulKernel(
        type="f32",
        b_type="f32",
        b="packed",
        batch=0,
        vectors=1,
        rows=6,
        heights=(1, 2, 3, 4, 5, 6),
        unit_depth=True,
        whole=False,
        epilogue=epilogue,
    )
    lanes = library().target.lanes
    a, b = numbers(1, (13, 5), "f32"), numbers(2, (5, 37), "f32")
    packed = guarded(pack_strips(b, lanes))
    first, second = guarded(np.zeros((37, 13), np.float32)), guarded(np.zeros((13, 37), np.float16))
    arguments = [13, 37, 5, 1, a.ctypes.data, 5, 1, packed.ctypes.data, 5 * lanes]
    arguments += [first.ctypes.data, 1, 13, second.ctypes.data, 37, 1]
    run(kernel, arguments, count(matmul.units(kernel, [], 13, 37, library().target)))
    expected = a @ b
    np.testing.assert_allclose(second, expected, rtol=2e-3, atol=2e-3)
    for number in range(10):
        expected = expected * np.float32(1.5) - np.float32(number)
    np.testing.assert_allclose(first.T, expected, rtol=1e-4, atol=1e-4)
