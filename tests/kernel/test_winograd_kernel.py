"""Winograd's kernel: the matrices are those of a convolution, and keys tell kernels apart."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from sardonyx.kernel.conv.winograd import (
    POINTS,
    TILES,
    WinogradKernel,
    WinogradRowKernel,
    axis_taps,
    matrices,
    row_products,
    row_taps,
)
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import clamp
from sardonyx.kernel.loops import Operand

STORE = Epilogue((Operand("f32", "unit"),), ((0, accumulator("f32")),))
RELU = Epilogue((Operand("f32", "unit"),), ((0, clamp(accumulator("f32"), 0.0, None)),))


ALL = [(tile, taps) for tile in TILES for taps in (2, 3, 4)]


@pytest.mark.parametrize(("tile", "taps"), ALL)
def test_the_matrices_compute_a_correlation(tile: int, taps: int) -> None:
    outputs, weights, inputs = (np.array(each) for each in matrices(tile, taps))
    random = np.random.default_rng(0)
    x, w = random.integers(-9, 9, tile + taps - 1), random.integers(-9, 9, taps)
    np.testing.assert_allclose(outputs @ ((weights @ w) * (inputs @ x)), np.correlate(x, w), atol=1e-12)


def test_groups_of_taps_are_those_with_the_fewest_products() -> None:
    assert [row_taps(taps) for taps in (3, 4, 5, 6, 7, 8, 9, 11, 16)] == [3, 4, 3, 3, 4, 4, 3, 4, 4]
    assert [row_products(taps, row_taps(taps)) for taps in (3, 4, 5, 6, 7, 11)] == [6, 7, 11, 12, 13, 20]
    assert [axis_taps(taps, 1, 4).products(4) for taps in (2, 3, 4, 5, 6, 7, 8, 10)] == [5, 6, 7, 11, 12, 13, 14, 19]
    assert [axis_taps(taps, 2, 4).products(4) for taps in (3, 4, 5, 7)] == [9, 10, 11, 13]
    assert axis_taps(5, 1, 4) == (3, (0,), (3,))
    assert axis_taps(3, 2, 4) == (2, (0,), (1,))
    assert axis_taps(10, 1, 4) == (4, (0,), (4, 7))


def test_all_tiles_have_points() -> None:
    assert {tile + taps - 1 for tile, taps in ALL} == set(POINTS)


@pytest.mark.parametrize(("tile", "taps"), ALL)
def test_inputs_and_outputs_are_multiplied_by_numbers_that_float32_has(tile: int, taps: int) -> None:
    made = matrices(tile, taps)
    for matrix in (np.array(made.inputs), np.array(made.outputs)):
        np.testing.assert_array_equal(matrix, matrix.astype(np.float32))


def test_every_field_is_part_of_the_key() -> None:
    sizes = {"tile": 4, "block": 16, "vectors": 1, "last_vectors": 1, "last_lanes": 16, "rows": 14}
    alike: dict[str, Any] = {**sizes, "last_rows": 0, "tail": 0, "fetched": 0, "epilogue": STORE}
    tiles = WinogradKernel(overhangs=False, strides=(1, 1), dilations=(1, 1), taps=(1, 3, 3), deep=False, **alike)
    lines = WinogradRowKernel(taps=3, lacks_tap=False, **alike)
    for kernel in (tiles, lines):
        for field in fields(kernel):
            value = getattr(kernel, field.name)
            others: dict[str, Any] = {"epilogue": RELU, "strides": (2, 1), "dilations": (2, 1)}
            if kernel is tiles:
                others["taps"] = (1, 5, 3)
            other: Any = others.get(field.name)
            if other is None:
                other = (not value) if isinstance(value, bool) else value + 1
            assert replace(kernel, **{field.name: other}).key != kernel.key, field.name
        assert replace(kernel).key == kernel.key
    assert tiles.key != lines.key
