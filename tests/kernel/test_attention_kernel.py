"""How attention is cut into blocks of queries and tiles of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.ir.dims import evaluate, symbol
from sardonyx.kernel.attention.attention import (
    KEYS,
    QUERIES,
    AttentionKernel,
    is_masked_product,
    key,
    query,
    strip_vectors,
    units,
)
from sardonyx.kernel.attention.transposed import BLOCK, TransposedAttentionKernel, block_vectors
from sardonyx.kernel.attention.transposed import units as transposed_units
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import const, load, select
from sardonyx.kernel.loops import Operand
from targets import described

KERNEL = AttentionKernel(
    type="f32",
    packed=True,
    score=accumulator("f32"),
    operands=(),
    banded=False,
    lengths="",
    more=0,
    has_first_positions=False,
    queries=None,
    columns=None,
    keys=None,
)


@given(st.integers(1, 500))
def test_tiles_of_every_height_that_occurs_exist(queries: int) -> None:
    heights = replace(KERNEL, queries=queries).heights
    blocks = -(-queries // QUERIES)
    for rows in {queries // blocks, -(-queries // blocks)}:
        tiles = -(-rows // 6)
        assert {rows // tiles, -(-rows // tiles)} <= set(heights)
    assert set(heights) <= set(KERNEL.heights)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_parts_of_the_keys_are_whole_strips(lanes: int) -> None:
    assert KEYS % (strip_vectors(described(lanes)) * lanes) == 0


def test_units_count_blocks_of_queries() -> None:
    assert units(2, 3, QUERIES) == 6
    assert units(2, 3, QUERIES + 1) == 12
    assert evaluate(units(1, symbol("h"), symbol("q")), {"h": 4, "q": 0}) == 0


def test_kernels_with_other_code_have_other_keys() -> None:
    masked = accumulator("f32") + load(0, "f32")
    others = [
        replace(KERNEL, packed=False),
        replace(KERNEL, banded=True),
        replace(KERNEL, lengths="i64"),
        replace(KERNEL, lengths="i64", more=1),
        replace(KERNEL, lengths="i64", has_first_positions=True),
        replace(KERNEL, columns=64),
        replace(KERNEL, queries=1),
        replace(KERNEL, clears_nan=True),
        replace(KERNEL, packed_values=True),
        replace(KERNEL, captured=accumulator("f32")),
        replace(KERNEL, captured=accumulator("f32").cast("f16")),
        replace(KERNEL, captured=accumulator("f32"), hidden=1.0),
        replace(KERNEL, score=masked, operands=(Operand("f32", "unit"),)),
        replace(KERNEL, score=masked, operands=(Operand("f32", "zero"),)),
    ]
    assert len({one.key for one in (KERNEL, *others)}) == len(others) + 1


def test_a_score_with_a_mask_is_not_plain() -> None:
    assert KERNEL.plain
    assert not replace(KERNEL, banded=True).plain
    assert not replace(KERNEL, score=accumulator("f32") + (key() + query()).cast("f32")).plain


def test_strips_are_hidden_where_masks_are_added_once_or_choose() -> None:
    product, mask, allowed = accumulator("f32"), load(0, "f32"), load(0, "bool")
    low = const(-10000.0, "f32")
    for score in (
        product + mask,
        mask + product,
        product + (mask + low),
        select(allowed, product, low),
        select(allowed, product + low, low),
    ):
        assert is_masked_product(score)
    for score in (product * mask, (product + mask) + low, product + product, select(product < 0, product, low), -product + mask):
        assert not is_masked_product(score)
    masked = replace(KERNEL, score=product + mask, operands=(Operand("f32", "unit"),))
    assert masked.hides_strips
    assert not replace(masked, packed=False).hides_strips
    assert not KERNEL.hides_strips


TRANSPOSED = TransposedAttentionKernel(type="f32", score=accumulator("f32"), operands=(), queries=64, depth=64, columns=None)


@given(st.integers(1, 500), st.sampled_from([4, 8, 16]))
def test_blocks_of_transposed_scores_hold_all_queries(queries: int, lanes: int) -> None:
    vectors, blocks = block_vectors(queries, lanes)
    assert vectors * lanes >= queries > (vectors - 1) * lanes
    assert -(-vectors // blocks) * lanes <= BLOCK
    assert transposed_units(2, 3, queries, lanes) == 6 * blocks


def test_transposed_kernels_with_other_code_have_other_keys() -> None:
    masked = accumulator("f32") + load(0, "f32")
    others = [
        replace(TRANSPOSED, queries=48),
        replace(TRANSPOSED, depth=32),
        replace(TRANSPOSED, columns=64),
        replace(TRANSPOSED, columns=64, copies_values=True),
        replace(TRANSPOSED, nan_rows=True),
        replace(TRANSPOSED, score=masked, operands=("f32",)),
    ]
    assert len({one.key for one in (TRANSPOSED, *others)}) == len(others) + 1
    assert TRANSPOSED.plain
    assert not others[-1].plain
