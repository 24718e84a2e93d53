"""The memory of runs: growing, cutting, going back to the system; places for any sizes; processes that see many shapes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.ir.dims import symbol
from sardonyx.plan.native import NativePlan, image_of
from sardonyx.program.image import ProgramImage
from sardonyx.program.steps import Buffer, Storage
from sardonyx.runtime.arena import Arena, ArenaLayout, rounded_up

PAGE = 4096
MEGABYTE = 1 << 20


# The arena


def test_an_arena_has_room_for_what_was_asked() -> None:
    arena = Arena()
    for size in (0, 1, 100, PAGE, PAGE + 1, 5 * MEGABYTE, 3, 0):
        address = arena.fit(size)
        assert address % PAGE == 0
        assert arena.nbytes >= max(size, 1)
        ctypes.memset(address, 7, size)


def test_an_arena_that_grows_step_by_step_is_rarely_mapped_anew() -> None:
    arena = Arena()
    addresses = {arena.fit(MEGABYTE + 1000 * step) for step in range(200)}
    assert len(addresses) == 1


def test_an_arena_is_cut_when_many_runs_needed_far_less() -> None:
    arena = Arena()
    arena.fit(64 * MEGABYTE)
    for size in (MEGABYTE, 2 * MEGABYTE) * 7:
        arena.fit(size)
    assert arena.nbytes >= 64 * MEGABYTE  # not at once: the next run may need all of it again
    arena.fit(64 * MEGABYTE)
    for size in (MEGABYTE, 2 * MEGABYTE) * 8:
        arena.fit(size)
    assert arena.nbytes == 2 * MEGABYTE


def test_an_arena_that_cannot_be_had_leaves_nothing_behind() -> None:
    arena = Arena()
    arena.fit(PAGE)
    with pytest.raises((MemoryError, OverflowError)):
        arena.fit(1 << 62)
    assert arena.nbytes == 0
    ctypes.memset(arena.fit(PAGE), 7, PAGE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_write_into_its_parents_arena() -> None:
    arena = Arena()
    ctypes.memset(arena.fit(PAGE), 1, PAGE)
    child = os.fork()
    if child == 0:
        ctypes.memset(arena.fit(PAGE), 2, PAGE)
        os._exit(0)
    os.waitpid(child, 0)
    assert ctypes.string_at(arena.fit(PAGE), PAGE) == b"\1" * PAGE


# Places


def image(
    sizes: Sequence[Any], lifetimes: Sequence[tuple[int, int]], symbols: tuple[str, ...], shared: dict[int, int] | None = None
) -> ProgramImage:
    """A program that has buffers and nothing else."""
    buffers = [Buffer(Storage.ARENA, dtypes.UINT8, size) for size in sizes]
    numbers = list(range(len(sizes)))
    plan = NativePlan([], [], buffers, symbols, list(sizes), 0, [], [], [], [], list(lifetimes), numbers, shared or {})
    return image_of(plan)


@st.composite
def buffers(draw: st.DrawFn) -> tuple[list[Any], list[tuple[int, int]]]:
    h, w = symbol("h"), symbol("w")
    kinds: list[Any] = [h * w * 12, h * 64, w * 100 + 5, (h - w) * 32, 700, h * h, 0]
    count = draw(st.integers(1, 25))
    sizes = [draw(st.sampled_from(kinds)) for _ in range(count)]
    firsts = [draw(st.integers(0, 20)) for _ in range(count)]
    return sizes, [(first, first + draw(st.integers(0, 6))) for first in firsts]


@given(buffers(), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=5))
def test_buffers_never_overlap_whatever_sizes_come(
    made: tuple[list[Any], list[tuple[int, int]]], shapes: list[tuple[int, int]]
) -> None:
    sizes, lifetimes = made
    program = image(sizes, lifetimes, ("h", "w"))
    evaluate = program.sizes
    layout = ArenaLayout(program, range(len(sizes)))
    for shape in shapes:
        actual = [max(size, 0) for size in evaluate(*shape)]
        offsets, total = layout.place(shape, np.array(evaluate(*shape), np.int64))
        for i in range(len(sizes)):
            assert offsets[i] + actual[i] <= total
            for j in range(i):
                together = lifetimes[i][0] <= lifetimes[j][1] and lifetimes[j][0] <= lifetimes[i][1]
                apart = offsets[i] + actual[i] <= offsets[j] or offsets[j] + actual[j] <= offsets[i]
                assert apart or not together


def test_sizes_that_are_rounded_up_for_the_plan_take_no_more_memory() -> None:
    side = symbol("s")
    program = image([side * side * 64] * 6, [(step, step + 1) for step in range(6)], ("s",))
    evaluate = program.sizes
    layout = ArenaLayout(program, range(6))
    for size in (100, 109, 130, 384):
        assert rounded_up(size) >= size
        assert layout.place((size,), np.array(evaluate(size), np.int64))[1] == 2 * size * size * 64


def test_small_buffers_stay_where_they_are_while_sizes_grow() -> None:
    side = symbol("s")
    program = image([side * 64] * 12, [(step, step + 1) for step in range(12)], ("s",))
    layout = ArenaLayout(program, range(12))
    found = [layout.place((size,), np.array(program.sizes(size), np.int64)) for size in (25, 26)]
    assert rounded_up(25) == rounded_up(26)
    assert found[0][0].tolist() == found[1][0].tolist()


def test_a_buffer_that_takes_over_anothers_memory_keeps_it_alive() -> None:
    size = 1 << 16
    layout = ArenaLayout(image([size, size, size], [(0, 1), (1, 5), (2, 3)], (), {1: 0}), [0, 1, 2])
    bases = np.zeros(3, np.int64)
    offsets, total = layout.place((), np.array([size, size, size], np.int64))
    layout.assign(bases, 4096, offsets)
    assert bases[0] == bases[1] != bases[2]
    assert total == 2 * size


def test_a_few_small_buffers_lie_side_by_side() -> None:
    layout = ArenaLayout(image([100, 0, 64, 1], [(0, 1), (1, 2), (2, 3), (3, 4)], ()), range(4))
    offsets, total = layout.place((), np.array([100, -5, 64, 1], np.int64))
    assert offsets.tolist() == [0, 128, 128, 192]
    assert total == 256


def test_no_buffers_take_no_memory() -> None:
    offsets, total = ArenaLayout(image([], [], ()), []).place((), np.zeros(0, np.int64))
    assert (offsets.size, total) == (0, 0)


def test_a_buffer_whose_source_lies_elsewhere_has_a_place_of_its_own() -> None:
    layout = ArenaLayout(image([64, 64], [(0, 1), (1, 2)], (), {1: 0}), [1])
    assert layout.buffers.tolist() == [1]
    assert layout.shared.size == 0


# Pieces that are shared whatever the sizes


@given(buffers())
def test_buffers_that_live_at_once_share_no_piece(made: tuple[list[Any], list[tuple[int, int]]]) -> None:
    sizes, lifetimes = made
    pieces = ArenaLayout(image(sizes, lifetimes, ("h", "w")), range(len(sizes))).pieces()
    assert sorted(buffer for piece in pieces for buffer, _, _ in piece) == list(range(len(sizes)))
    for piece in pieces:
        spans = sorted(lifetimes[buffer] for buffer, _, _ in piece)
        assert all(end < first for (_, end), (first, _) in pairwise(spans))
