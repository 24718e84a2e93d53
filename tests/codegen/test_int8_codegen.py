"""The code of products of bytes: every height, width, depth and segment, on memory that ends at a page nobody may touch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from sardonyx.ir.tensor import Array
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import load, looked_up
from sardonyx.kernel.loops import Operand
from sardonyx.kernel.matmul import matmul
from sardonyx.kernel.matmul.int8 import (
    Int8MatMulKernel,
    QuadPackKernel,
    element_depth,
    offset_of_a,
    offset_of_b,
    pack_units,
    takes_pairs,
    tallest_tile,
)
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.lower.quant.integer_product import pack_quads
from sardonyx.target.target import Target
from targets import here_and_less, library_for

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
PLAIN = Epilogue((Operand("i32", "unit"),), ((0, accumulator("i32")),))
NUMPY = {"u8": np.uint8, "i8": np.int8}
TARGETS = here_and_less()


def run(kernel: Any, arguments: Sequence[int], units: Any, target: Target, parts: Sequence[int] = ()) -> None:
    function = SIGNATURE(library_for(target).address(kernel))
    table = np.array(arguments, np.int64)
    assert len(arguments) == kernel.arguments.count
    for begin, end in pairwise(sorted({0, units, *(part % (units + 1) for part in parts)})):
        function(table.ctypes.data, begin, end, 0)


def integers(seed: int, shape: tuple[int, ...], kind: str) -> Array:
    limits = np.iinfo(NUMPY[kind])
    found = np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True).astype(NUMPY[kind])
    found.reshape(-1)[::3] = limits.max if seed % 2 else limits.min
    return found


def types(kind: str, target: Target) -> dict[str, Any]:
    """Of A and of B's elements, as a kernel for bytes of a kind has them."""
    return {"a_type": "i16", "b_type": "i16"} if takes_pairs(target) else {"a_type": kind, "b_type": "i32"}


def operand(bytes_: Array, target: Target) -> Array:
    """A as a kernel reads it."""
    return bytes_.astype(np.int16) if takes_pairs(target) else bytes_


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize(("kind", "fetches"), [("u8", False), ("u8", True), ("i8", False)])
def test_products_of_every_height_and_width(kind: Any, fetches: bool, vectors: int, target: Target) -> None:
    strip = vectors * vector_lanes("i32", target)
    rows = tallest_tile(target, vectors)
    kernel = Int8MatMulKernel(
        **types(kind, target), batch=0, vectors=vectors, rows=rows, heights=tuple(range(1, rows + 1)), whole=False,
        epilogue=PLAIN, fetches=fetches,
    )  # fmt: skip
    each = element_depth(target)
    for case in range(2 * rows + 4):
        m, n, k = case, 1 + (case * 7) % (2 * strip + 3), (0, 1, 2, 3, 4, 9, 16, 21, 38, 75)[case % 10]
        a, b = guarded(operand(integers(case, (m, k), kind), target)), integers(case + 1, (k, n), "i8")
        packed = guarded(np.ascontiguousarray(pack_quads(b[None], strip, each)))
        c = guarded(np.full((m, n), 77, np.int32))
        elements = -(-k // each)
        arguments = [m, n, k, 2, a.ctypes.data, k, packed.ctypes.data, elements * strip, c.ctypes.data, n, 1]
        run(kernel, arguments, matmul.units(kernel, [], m, n, target), target)
        np.testing.assert_array_equal(c, (a.astype(np.int32) + offset_of_a(kind, target)) @ b.astype(np.int32))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize("operations", [0, 30])
def test_results_are_looked_up_in_tables(operations: int, vectors: int, whole: bool, target: Target) -> None:
    """Vectors share registers of a table, in short epilogues and in those that are functions of their own."""
    strip, rows = vectors * vector_lanes("i32", target), tallest_tile(target, vectors)
    table = np.random.default_rng(0).permutation(256).astype(np.uint8)
    value = accumulator("i32")
    for number in range(operations):
        value = (value ^ load(0, "i32")) + number
    epilogue = Epilogue(
        (Operand("i32", "unit"), Operand("u8", "unit")), ((1, looked_up(value.cast("u8"), table.tolist(), "u8")),)
    )
    kernel = Int8MatMulKernel(
        **types("u8", target), batch=0, vectors=vectors, rows=rows, heights=tuple(range(1, rows + 1)), whole=whole,
        epilogue=epilogue,
    )  # fmt: skip
    each, k = element_depth(target), 8
    for m, n in (
        (1, strip),
        (rows, 2 * strip),
        (2 * rows - 1, 3 * strip),
        *([] if whole else [(rows, strip + 3), (3, strip - 1)]),
    ):
        a, b = operand(integers(m, (m, k), "u8"), target), integers(n, (k, n), "i8")
        packed, flipped = guarded(np.ascontiguousarray(pack_quads(b[None], strip, each))), guarded(np.arange(n, dtype=np.int32))
        c = guarded(np.full((m, n), 77, np.uint8))
        arguments = [
            m, n, k, 2, a.ctypes.data, k, packed.ctypes.data, k // each * strip, flipped.ctypes.data, 0, 1, c.ctypes.data, n, 1,
        ]  # fmt: skip
        run(kernel, arguments, matmul.units(kernel, [], m, n, target), target)
        expected = (a.astype(np.int32) + offset_of_a("u8", target)) @ b.astype(np.int32)
        for number in range(operations):
            expected = (expected ^ flipped) + number
        np.testing.assert_array_equal(c, table[expected & 255])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 20), st.integers(0, 90), st.integers(0, 40), st.tuples(st.integers(0, 4), st.integers(1, 3)),
    st.lists(st.integers(0, 1000), max_size=3), st.sampled_from(TARGETS), st.booleans(),
)  # fmt: skip
def test_segments_of_the_depth_lie_apart(
    rows: int, columns: int, depth: int, segments: tuple[int, int], parts: list[int], target: Target, fetches: bool
) -> None:
    """[row, first, second, depth] of an A with gaps on every axis, and an epilogue with a number for each column."""
    vectors = 2
    strip, most = vectors * vector_lanes("i32", target), tallest_tile(target, vectors)
    epilogue = Epilogue((Operand("i32", "unit"), Operand("i32", "unit")), ((1, accumulator("i32") - load(0, "i32")),))
    kernel = Int8MatMulKernel(
        **types("u8", target), batch=0, vectors=vectors, rows=most, heights=tuple(range(1, most + 1)), whole=False, segments=2,
        epilogue=epilogue, fetches=fetches,
    )  # fmt: skip
    memory = guarded(operand(integers(depth, (rows, segments[0], segments[1], depth + 3), "u8"), target))
    a = memory[..., 3:]  # the last byte is the last of the memory
    b = integers(depth + 1, (segments[0] * segments[1], depth, columns), "i8")
    element = element_depth(target)
    packed, terms = guarded(np.ascontiguousarray(pack_quads(b, strip, element))), guarded(np.arange(columns, dtype=np.int32))
    c = guarded(np.full((rows, columns), 77, np.int32))
    each = segments[0] * segments[1] * -(-depth // element) * strip
    strides = [stride // memory.itemsize for stride in memory.strides[:3]]
    arguments = [
        rows, columns, depth, 1, *segments, a.ctypes.data, *strides, packed.ctypes.data, each,
        terms.ctypes.data, 0, 1, c.ctypes.data, columns, 1,
    ]  # fmt: skip
    run(kernel, arguments, matmul.units(kernel, [], rows, columns, target), target, parts)
    whole = segments[0] * segments[1] * depth
    flat = a.reshape(rows, whole).astype(np.int32) + offset_of_a("u8", target)
    np.testing.assert_array_equal(c, flat @ b.reshape(whole, columns).astype(np.int32) - terms)


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(0, 2),
    columns=st.integers(0, 70),
    depth=st.integers(0, 40),
    order=st.sampled_from(["columns", "depth", "any"]),
    kind=st.sampled_from(["u8", "i8"]),
    target=st.sampled_from(TARGETS),
    parts=st.lists(st.integers(0, 1000), max_size=2),
)
def test_a_matrix_is_packed_from_any_order_and_its_columns_are_summed(
    batch: int, columns: int, depth: int, order: Any, kind: Any, target: Target, parts: list[int]
) -> None:
    kernel = QuadPackKernel(source=kind, batch=1, vectors=2, order=order)
    strip, gap = 2 * vector_lanes("i32", target), 3 if order == "any" else 1
    shape = (batch, depth, columns) if order == "columns" else (batch, columns, depth * gap)
    source = guarded(integers(depth, shape, kind))
    strides = (1, columns) if order == "columns" else (depth * gap, gap)
    matrix = source if order == "columns" else np.swapaxes(source[:, :, ::gap], 1, 2)
    expected = pack_quads(matrix[:, None], strip, element_depth(target))
    packed = guarded(np.full(expected.shape, 77, np.int8))
    sums = guarded(np.full((batch, expected.shape[1] * strip), 77, np.int32))
    arguments = [batch, columns, depth, source.ctypes.data, depth * columns * gap, *strides, packed.ctypes.data, sums.ctypes.data]
    run(kernel, arguments, pack_units(kernel, [batch], columns, target), target, parts)
    np.testing.assert_array_equal(packed, expected)
    totals = matrix.sum(axis=1, dtype=np.int64) + depth * offset_of_b(kind)
    np.testing.assert_array_equal(sums[:, :columns], totals)
