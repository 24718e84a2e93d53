"""Tiles: small products as functions, alone, against NumPy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from sardonyx.codegen import llvm
from sardonyx.codegen.function import FunctionBuilder, module
from sardonyx.codegen.host import host
from sardonyx.codegen.loader import LoadedCode, load
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.tile import MatmulTile, TileArguments, Tiles
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.matmul import vector_lanes

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
LANES = {"f32": vector_lanes("f32", host()), "f64": vector_lanes("f64", host())}
NUMPY = {"f32": np.float32, "f64": np.float64}
_compiled: dict[MatmulTile, LoadedCode] = {}


def kernel(tile: MatmulTile) -> LoadedCode:
    """A kernel that is one tile. Arguments: TileArguments in the order of the tile's parameters, then the further ones."""
    if tile not in _compiled:
        f = FunctionBuilder("one", KERNEL_PARAMETERS)
        a = [f.argument("%args", number, "ptr" if number in (0, 2, 4) else "i64") for number in range(8)]
        more = [("i64", f.argument("%args", 8))] if tile.ragged else []
        if tile.joined:
            more.append(("i1", f.let(f"icmp ne i64 {f.argument('%args', 9)}, 0")))
            more += [("ptr", f.argument("%args", number, "ptr")) for number in (10, 11)]
        if tile.difference:
            more += [("ptr", f.argument("%args", number, "ptr")) for number in (8, 9)]
        if tile.fetches:
            more.append(("ptr", f.argument("%args", 10, "ptr")))
        Tiles(f).call(tile, TileArguments(a[0], a[1], a[2], a[3], a[4], a[7], a[5], a[6]), *more)
        _compiled[tile] = load(llvm.compile_to_object(module(f), host()), host().runtime)
    return _compiled[tile]


def run(tile: MatmulTile, arguments: list[int | Array]) -> None:
    numbers = [one.ctypes.data if isinstance(one, np.ndarray) else one for one in arguments]
    table = np.array(numbers + [0] * (12 - len(numbers)), np.int64)
    SIGNATURE(kernel(tile).functions["one"])(table.ctypes.data, 0, 1, 0)


def numbers(*shape: int, kind: str, seed: int) -> Array:
    return guarded(np.random.default_rng(seed).standard_normal(shape).astype(NUMPY[kind]))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("rows", [1, 2, 5, 6])
@pytest.mark.parametrize(("vectors", "strips"), [(1, 1), (4, 1), (3, 2)])
def test_strips_are_multiplied(kind: str, rows: int, vectors: int, strips: int) -> None:
    width = vectors * LANES[kind]
    tile = MatmulTile(kind, LANES[kind], rows, vectors, strips, width)
    size = np.dtype(NUMPY[kind]).itemsize
    for depth in (0, 1, 4, 7, 33):
        a, b = numbers(rows, depth, kind=kind, seed=1), numbers(strips, depth, width, kind=kind, seed=2)
        c = numbers(rows, strips * width, kind=kind, seed=3)
        run(tile, [c, strips * width * size, a, depth * size, b, 0, depth * width * size, depth])
        expected = np.concatenate([a @ strip for strip in b], axis=1)
        np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, LANES["f32"]), st.integers(0, 20), st.booleans())
def test_ragged_columns_are_added_to_what_is_there(count: int, depth: int, first: bool) -> None:
    tile = MatmulTile("f32", LANES["f32"], 3, 2, ragged=True, joined=True)
    columns = LANES["f32"] + count
    a, b = numbers(3, depth, kind="f32", seed=1), numbers(depth, columns, kind="f32", seed=2)
    c = numbers(3, columns, kind="f32", seed=3)
    if first:
        c[:] = np.nan
    before = np.zeros_like(c) if first else c.copy()
    old, new = numbers(3, kind="f32", seed=4), numbers(3, kind="f32", seed=5)
    run(tile, [c, 4 * columns, a, 4 * depth, b, 4 * columns, 0, depth, count, int(first), old, new])
    expected = (before * old[:, None] + a @ b) * new[:, None]
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("place", ["apart", "first", "second"])
def test_a_difference_of_strips_is_multiplied_and_left_behind(rows: int, compact: bool, place: str) -> None:
    width = 2 * LANES["f32"]
    tile = MatmulTile("f32", LANES["f32"], rows, 2, 1, width, difference=True, fetches=True, compact=compact)
    for depth in (0, 1, 4, 33):
        a = numbers(rows, depth, kind="f32", seed=1)
        x, y = (numbers(depth, width, kind="f32", seed=seed) for seed in (2, 3))
        c, made = numbers(rows, width, kind="f32", seed=4), numbers(depth, width, kind="f32", seed=5)
        made = {"apart": made, "first": x, "second": y}[place]
        expected = x - y
        run(tile, [c, 4 * width, a, 4 * depth, x, 0, 0, depth, y, made, 12345])  # what is fetched may lie anywhere
        np.testing.assert_array_equal(made, expected)
        np.testing.assert_allclose(c, a @ expected, rtol=1e-4, atol=1e-4)


def test_the_order_of_summation_does_not_depend_on_the_height() -> None:
    width = LANES["f32"]
    a, b = numbers(6, 40, kind="f32", seed=1), numbers(1, 40, width, kind="f32", seed=2)
    results = []
    for rows in (1, 3, 6):
        c = numbers(6, width, kind="f32", seed=3)
        for row in range(0, 6, rows):
            tile = MatmulTile("f32", width, rows, 1, 1, width)
            run(tile, [c[row:], 4 * width, a[row:], 160, b, 0, 0, 40])
        results.append(c)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
