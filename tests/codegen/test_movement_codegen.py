"""Kernels that move data, on memory that ends at an inaccessible page and for machines of several vector widths."""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded import guarded
from sardonyx.codegen.indexing.short_rows import parts_of
from sardonyx.codegen.library import KernelLibrary
from sardonyx.ir.dims import Dim, evaluate
from sardonyx.ir.tensor import Array
from sardonyx.kernel.indexing import compact, indexing, short_rows, transpose
from sardonyx.kernel.indexing.compact import CountKernel, NonzeroIndicesKernel, StartsKernel
from sardonyx.kernel.indexing.indexing import IndexKernel
from sardonyx.kernel.indexing.short_rows import ShortRowsKernel
from sardonyx.kernel.indexing.transpose import TransposeKernel
from sardonyx.kernel.indexing.write import WriteKernel
from sardonyx.kernel.matmul import interleave
from sardonyx.kernel.matmul.interleave import InterleaveKernel
from sardonyx.kernel.rows import scan, sort, topk
from sardonyx.kernel.rows.scan import ScanKernel
from sardonyx.kernel.rows.sort import SortKernel
from sardonyx.kernel.rows.topk import TopKKernel
from sardonyx.kernel.sampling import nearest, resample
from sardonyx.kernel.sampling.nearest import NearestKernel
from sardonyx.kernel.sampling.resample import ResampleKernel
from targets import here, library_for

WIDTHS = [0, 4, 8]  # 0: as wide as they are here
_call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@cache
def library(lanes: int) -> KernelLibrary:
    return library_for(here(lanes))


def run(kernel: Any, arguments: list[Any], units: Dim, lanes: int, pieces: int = 1) -> None:
    """Run a kernel; arrays among the arguments stand for their addresses."""
    assert isinstance(units, int)
    numbers = [argument.ctypes.data if isinstance(argument, np.ndarray) else int(argument) for argument in arguments]
    table = guarded(np.array(numbers, np.int64))
    bounds = [units * piece // pieces for piece in range(pieces + 1)]
    for begin, end in pairwise(bounds):
        _call(library(lanes).address(kernel))(table.ctypes.data, begin, end, 0)


def numbered(shape: tuple[int, ...], kind: str) -> Array:
    return guarded(
        (np.arange(np.prod(shape)) % 125).astype({"i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}[kind]).reshape(shape)
    )


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("width", [*range(1, 70), 127, 128, 129, 200, 511, 512])
def test_short_rows_of_any_width_stay_inside(lanes: int, width: int) -> None:
    shape = (2, short_rows.PIECE + 3)
    source, target = guarded(np.zeros((*shape, width + 1), np.uint8)), guarded(np.zeros((*shape, width), np.uint8))
    source[...] = np.random.default_rng(width).integers(0, 256, source.shape)
    kernel = ShortRowsKernel(width=width, outer=2)
    arguments = [*shape, source[..., 1:], *source.strides[:2], target, *target.strides[:2]]
    run(kernel, arguments, short_rows.units(shape), lanes, pieces=3)
    np.testing.assert_array_equal(target, source[..., 1:])


@given(st.integers(1, 512), st.sampled_from([16, 32, 64]))
def test_parts_of_a_row_cover_it_and_nothing_else(width: int, most: int) -> None:
    parts = parts_of(width, most)
    assert {byte for at, size in parts for byte in range(at, at + size)} == set(range(width))
    assert all(size <= most and size & (size - 1) == 0 for _, size in parts)


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("points", [1, 7, 8, 100, nearest.PIECE + 9])
def test_points_of_rows_stay_inside(kind: str, points: int, lines: bool) -> None:
    random, source = np.random.default_rng(points), numbered((2, 5, 37), kind)
    indices, chosen = guarded(random.integers(0, 37, points)), guarded(random.integers(0, 5, 3))
    expected = source[:, chosen][..., indices] if lines else source[..., indices]
    target = guarded(np.zeros(expected.shape, expected.dtype))
    kernel = NearestKernel(type=kind, outer=2, lines=lines)
    strides = [[step // one.itemsize for step in one.strides[:2]] for one in (source, target)]
    arguments = [*expected.shape, source, *strides[0], target, *strides[1], indices, *([chosen] if lines else [])]
    run(kernel, arguments, nearest.units(expected.shape[:2], points), 0, pieces=3)
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("size", [(16, 16), (17, 31), (64, 130), (129, 16), (12, 70), (131, 5), (16, 2048), (2048, 70)])
def test_transpositions_stay_inside(lanes: int, kind: str, size: tuple[int, int]) -> None:
    rows, columns = size
    side = min(transpose.square(int(kind[1:]), library(lanes).target), 1 << (min(size).bit_length() - 1))
    source = numbered((2, columns, rows), kind)
    target = guarded(np.zeros((2, rows, columns), source.dtype))
    kernel = TransposeKernel(type=kind, outer=1, side=side)
    arguments = [2, rows, columns, source, columns * rows, rows, target, columns * rows, columns]
    assert len(arguments) == kernel.arguments.count
    run(kernel, arguments, transpose.units([2], rows, columns), lanes, pieces=3)
    np.testing.assert_array_equal(target, source.transpose(0, 2, 1))


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("count", range(2, interleave.MOST + 1))
def test_interleavings_stay_inside(lanes: int, kind: str, count: int) -> None:
    for rows in (1, 16, 37):
        source = numbered((3, count, rows), kind)
        target = guarded(np.zeros((3, rows, count), source.dtype))
        kernel = InterleaveKernel(type=kind, count=count, outer=1)
        arguments = [3, rows, source, count * rows, rows, target, count * rows]
        assert len(arguments) == kernel.arguments.count
        run(kernel, arguments, interleave.units([3], rows), lanes)
        np.testing.assert_array_equal(target, source.transpose(0, 2, 1))


@pytest.mark.parametrize("combine", ["", "add"])
@pytest.mark.parametrize("direction", ["gather", "scatter"])
@pytest.mark.parametrize("places", [[2, -1, 0, 1, 2], [0, 3, -4, 1, 2**40]])
def test_indexed_rows_stay_inside_and_report_the_first_bad_index(direction: Any, combine: Any, places: list[int]) -> None:
    if direction == "gather" and combine:
        pytest.skip("a gather combines nothing")
    near, far = guarded(np.ones((5, 7), np.float32)), guarded(np.arange(21, dtype=np.float32).reshape(3, 7))
    index, record = guarded(np.array(places)), guarded(np.zeros(5, np.int64))
    before = far.copy()
    ordered = direction == "scatter"
    kernel = IndexKernel(
        direction=direction,
        type="f32",
        index="i64",
        indices=1,
        parallel=0 if ordered else 1,
        ordered=1 if ordered else 0,
        rows=True,
        combine=combine,
    )
    arguments = [5, 7, near, 7, far, 0, 3, 7, index, 1, record, 9]
    assert len(arguments) == kernel.arguments.count
    run(kernel, arguments, indexing.units(kernel, [5, 7]), 0)
    good = [(row, place) for row, place in enumerate(places) if -3 <= place < 3]
    if direction == "gather":
        for row, place in good:
            np.testing.assert_array_equal(near[row], before[place])
    else:
        for _, place in good:
            before[place] = before[place] + 1 if combine else 1
        np.testing.assert_array_equal(far, before)
    assert record.tolist() == ([0, 0, 0, 0, 0] if len(good) == 5 else [0, 9, 1, 3, 3])


def test_single_elements_are_checked_together_and_one_by_one() -> None:
    for count in (1, 4, 9, 1030):
        places = np.random.default_rng(0).integers(-6, 6, count)
        data = guarded(np.arange(6, dtype=np.int16))
        result, record = guarded(np.full(count, -1, np.int16)), guarded(np.zeros(5, np.int64))
        kernel = IndexKernel(
            direction="gather",
            type="i16",
            index="i64",
            indices=1,
            parallel=1,
            ordered=0,
            rows=False,
            combine="",
            inner=("unit", "zero", "unit"),
            unit_strides=(True,),
        )
        arguments = [count, result, 1, data, 0, 6, 1, guarded(places), 1, record, 1]
        run(kernel, arguments, indexing.units(kernel, [count]), 0)
        np.testing.assert_array_equal(result, data[places])
        places[count // 2] = 6
        arguments[7] = guarded(places)
        run(kernel, arguments, indexing.units(kernel, [count]), 0)
        assert record.tolist() == [0, 1, count // 2, 6, 6]


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("inner", [1, 5, 16, 33, 150])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("vectors", [1, 4])
def test_scans_stay_inside(lanes: int, inner: int, exclusive: bool, vectors: int) -> None:
    source = guarded(np.random.default_rng(0).integers(-9, 9, (2, 6, inner)).astype(np.float32))
    target = guarded(np.zeros_like(source))
    kernel = ScanKernel(type="f32", compute="f32", operation="add", exclusive=exclusive, outer=1, vectors=vectors, by_rows=False)
    arguments = [2, 6, inner, source, 6 * inner, inner, 1, target, 6 * inner, inner, 1]
    assert len(arguments) == kernel.arguments.count
    run(kernel, arguments, scan.units(kernel, [2], inner, library(lanes).target), lanes)
    np.testing.assert_array_equal(target, np.cumsum(source, axis=1) - (source if exclusive else 0))


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("inner", [1, 70, 1024, 1100])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_scans_by_rows_stay_inside(lanes: int, inner: int, steps: int) -> None:
    source = guarded(np.random.default_rng(0).integers(-9, 9, (2, steps, inner)))
    target = guarded(np.zeros_like(source))
    kernel = ScanKernel(type="i64", compute="i64", operation="add", exclusive=False, outer=1, vectors=4, by_rows=True)
    arguments = [2, steps, inner, source, steps * inner, inner, 1, target, steps * inner, inner, 1]
    run(kernel, arguments, scan.units(kernel, [2], inner, library(lanes).target), lanes, pieces=2)
    np.testing.assert_array_equal(target, np.cumsum(source, axis=1))


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("length", [7, 30, 300])
def test_selections_stay_inside(lanes: int, length: int) -> None:
    rows = guarded(np.random.default_rng(0).integers(0, 50, (4, length)).astype(np.float32))
    values, places = guarded(np.zeros((4, 7), np.float32)), guarded(np.zeros((4, 7), np.int64))
    kernel = TopKKernel(type="f32", largest=True, outer=1)
    arguments = [4, length, 7, rows, length, 1, values, 7, 1, places, 7, 1]
    assert len(arguments) == kernel.arguments.count
    run(kernel, arguments, topk.units([4]), lanes, pieces=2)
    order = np.argsort(-rows, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(rows, order, axis=1))


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("length", "wanted"), [(30, 0), (30, 3), (30, 30), (700, 1), (700, 100), (731, 290), (1900, 70)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("order", ["random", "ascending", "descending"])
def test_sorts_stay_inside(length: int, wanted: int, dtype: Any, order: str, lanes: int, few: bool) -> None:
    drawn = np.random.default_rng(0).integers(0, 200, (5, length)).astype(dtype)
    if order != "random":
        drawn.sort(axis=1)
    rows = guarded(drawn[:, ::-1] if order == "descending" else drawn)
    values, places = guarded(np.zeros((5, wanted), dtype)), guarded(np.zeros((5, wanted), np.int64))
    kernel = SortKernel(type={"f": "f32", "i": "i64", "u": "u8"}[rows.dtype.kind], largest=False, outer=1, few=few)
    room = evaluate(sort.room(length, wanted), {})
    scratch = guarded(np.zeros(evaluate(kernel.scratch(room), {}), np.int64))
    arguments = [5, length, wanted, room, rows, length, 1, values, wanted, 1, places, wanted, 1, scratch, scratch.size]
    assert len(arguments) == kernel.arguments.count
    run(kernel, arguments, sort.units([5]), lanes, pieces=2)
    expected = np.argsort(rows, axis=1, kind="stable")[:, :wanted]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(rows, expected, axis=1))


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("shape", [(1,), (1500,), (3, 700), (700, 3), (2, 3, 400)])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_places_stay_inside(lanes: int, shape: tuple[int, ...], share: float) -> None:
    source = guarded((np.random.default_rng(0).random(shape) < share).astype(np.float32))
    chunks = compact.chunks(source.size)
    counts, starts, total = (guarded(np.zeros(size, np.int64)) for size in (chunks, chunks + 1, 1))
    run(CountKernel(type="f32"), [source.size, source, counts], chunks, lanes)
    run(StartsKernel(), [chunks, counts, starts, total], 1, lanes)
    expected = np.stack(np.nonzero(source))
    assert total[0] == expected.shape[1]
    target = guarded(np.zeros_like(expected))
    arguments = [*shape, source.size, source, starts, target, expected.shape[1], 1]
    run(NonzeroIndicesKernel(type="f32", axes=len(shape)), arguments, chunks, lanes, pieces=2)
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("inner", [1, 15, 16, 35])
def test_resamplings_stay_inside(lanes: int, inner: int) -> None:
    source = guarded(np.random.default_rng(0).standard_normal((2, 4, inner)).astype(np.float32))
    places, weights = (
        guarded(np.array([[0, 1], [3, 3], [2, 0]])),
        guarded(np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]], np.float32)),
    )
    target = guarded(np.zeros((2, 3, inner), np.float32))
    kernel = ResampleKernel(source="f32", target="f32", compute="f32", taps=2, outer=1, rows=True)
    arguments = [2, 3, inner, source, 4 * inner, inner, target, 3 * inner, inner, places, weights]
    assert len(arguments) == kernel.arguments.count
    run(kernel, arguments, resample.units(kernel, [2], 3), lanes)
    expected = np.einsum("njti,jt->nji", source[:, places], weights)
    np.testing.assert_allclose(target, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["i64", "i32", "f32", "bool"])
def test_arguments_are_written(kind: str) -> None:
    target = guarded(np.zeros(3, {"i64": "i8", "i32": "i4", "f32": "f4", "bool": "?"}[kind]))
    run(WriteKernel(type=kind, count=3), [target, 5, 0, -7], 1, 0)
    np.testing.assert_array_equal(target, np.array([5, 0, -7]).astype(target.dtype))
