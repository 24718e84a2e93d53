"""Register tiles: how tall they may be, and which ones the estimates prefer."""

from __future__ import annotations

import pytest

from sardonyx.ir.dims import symbol
from sardonyx.kernel.matmul.int8 import quad_strip_vectors, tallest_tile
from sardonyx.kernel.matmul.matmul import strip_vectors, tallest
from sardonyx.kernel.quant import block_product
from sardonyx.target import cost
from sardonyx.target.levels import generic
from sardonyx.target.target import Target
from sardonyx.target.tiles import product_rows, rows_in_registers
from targets import NEOVERSE, ZEN5, described

ALL = [described(4), described(8), described(16), NEOVERSE]


@pytest.mark.parametrize("target", [*ALL, ZEN5], ids=lambda target: target.cpu)
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_sums_and_what_else_a_tile_holds_fit_the_registers(target: Target, vectors: int) -> None:
    rows = product_rows(target, vectors)
    element = 0 if target.has_broadcast_operands else 1
    assert rows * vectors + vectors + element <= target.registers < (rows + 1) * vectors + vectors + element
    assert 1 <= tallest_tile(target, vectors) <= tallest(target, vectors) <= rows


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.cpu)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("level_bits", [8, 16])
def test_sums_of_blocks_fit_the_registers(target: Target, bits: int, level_bits: int) -> None:
    planes = 2 if block_product.has_planes(bits, level_bits, target) else 1
    rows = block_product.tallest(bits, level_bits, target)
    assert 1 <= rows <= block_product.MOST_ROWS
    assert rows * (planes + block_product.keeps_sums(target)) < target.registers


def test_there_is_always_a_row() -> None:
    assert rows_in_registers(described(8), 4, 100) == 1


def test_heights_as_they_were_measured() -> None:
    """One more row, and LLVM keeps sums in memory."""
    assert [tallest(described(8), vectors) for vectors in (1, 2, 3, 4)] == [12, 6, 4, 2]
    assert [tallest(described(16), vectors) for vectors in (1, 2, 3, 4)] == [12, 8, 8, 6]
    assert [tallest_tile(generic("x86-64-v3"), vectors) for vectors in (1, 2, 3, 4)] == [12, 6, 3, 2]


def test_strips_are_chosen_by_waste_and_by_rows() -> None:
    avx2, avx512 = described(8), described(16)
    assert [strip_vectors(columns, "f32", avx512) for columns in (16, 64, 48, 40, 1024)] == [1, 4, 3, 1, 4]
    assert [strip_vectors(columns, "f32", avx2) for columns in (16, 24, 768)] == [2, 3, 2]
    assert strip_vectors(768, "f32", avx2, 8) == 3  # two tiles of 4 rows: those of 3 vectors have more to do at once
    assert strip_vectors(768, "f32", avx2, 1) == 2  # memory decides
    assert strip_vectors(768, "f32", avx2, symbol("rows")) == 2
    assert strip_vectors(symbol("columns"), "f32", avx2) == 2
    assert strip_vectors(symbol("columns"), "f32", avx512) == 4
    assert strip_vectors(0, "f32", avx512, 0) in (1, 2, 3, 4)


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.cpu)
def test_strips_of_bytes_have_room(target: Target) -> None:
    for columns in (1, 10, 64, 100, 768):
        for rows in (None, 1, 4, 100):
            vectors = quad_strip_vectors(columns, target, rows, 512)
            assert vectors in (1, 2, 3, 4)
            assert (vectors - 1) * target.lanes < max(columns, 1)


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.cpu)
def test_larger_tiles_take_longer_but_less_for_a_sum(target: Target) -> None:
    for time in (cost.matmul_tile, cost.int8_tile, cost.winograd_tile):
        small, large = time(2, 2, 64, target), time(4, 2, 64, target)
        assert 0 < small < large <= 2 * small
    assert cost.matmul_tile(4, 2, 64, target, ragged=True) > cost.matmul_tile(4, 2, 64, target)
    few, many = (cost.conv_tile(pixels, 1, 9, 8, target, pointwise=False) for pixels in (2, 8))
    assert few < many < 4 * few
