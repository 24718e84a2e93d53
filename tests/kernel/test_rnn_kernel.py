"""What tells recurrent kernels apart, and how large their tiles are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sardonyx.kernel.math import tanh
from sardonyx.kernel.rnn.rnn import (
    MOST_ROWS,
    RecurrentKernel,
    RecurrentPass,
    projected,
    running,
    state,
    tile_sizes,
    total,
    vector,
)
from targets import described

SUM = projected(0, "f32") + total(0, "f32")
KERNEL = RecurrentKernel(
    type="f32",
    outside="f32",
    gates=1,
    vectors=0,
    slots=1,
    passes=(RecurrentPass(0, 1, ((0, tanh(SUM)),), tanh(SUM)),),
    initial=(True,),
    final=(True,),
    output=True,
    ragged=False,
    rows=4,
)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("gates", [1, 2, 3, 4])
def test_sums_of_a_tile_fit_the_registers(gates: int, lanes: int) -> None:
    alone, together, rows = tile_sizes(gates, described(lanes))
    assert alone * gates < described(lanes).registers
    assert (rows + 1) * together * gates < described(lanes).registers
    assert 1 < rows <= MOST_ROWS


def test_kernels_with_other_code_have_other_keys() -> None:
    others = [
        replace(KERNEL, outside="f16"),
        replace(KERNEL, initial=(False,)),
        replace(KERNEL, final=(False,)),
        replace(KERNEL, output=False),
        replace(KERNEL, ragged=True),
        replace(KERNEL, rows=1),
        replace(KERNEL, rows=1, ahead=1),
        replace(KERNEL, rows=1, ahead=8),
        replace(KERNEL, rows=1, ahead=1, has_bias=True),
        replace(KERNEL, passes=(RecurrentPass(0, 1, ((0, SUM),), SUM),)),
        replace(KERNEL, passes=(RecurrentPass(0, 1, ((0, tanh(SUM)),)),)),
    ]
    assert len({one.key for one in (KERNEL, *others)}) == len(others) + 1
    assert replace(KERNEL).key == KERNEL.key


def test_leaves_of_expressions_are_told_apart() -> None:
    leaves = {total(0, "f32"), total(1, "f32"), projected(0, "f32"), state(0, "f32"), vector(0, "f32"), running()}
    assert len(leaves) == 6


def test_arguments_follow_what_a_kernel_has() -> None:
    assert KERNEL.arguments.count == 4 + 4 + 2 + 1 + 4 + 3 + 3
    assert replace(KERNEL, ragged=True).arguments.count == KERNEL.arguments.count + 3
    assert replace(KERNEL, ahead=1).arguments.count == KERNEL.arguments.count - 4 + 2 + 2 + 1 + 1
    assert replace(KERNEL, output=False).arguments.count == KERNEL.arguments.count - 4
