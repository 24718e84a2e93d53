"""The memory planner: buffers that live at the same time never overlap, and the arena is no larger than it must be for chains."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operation_counts import fastest_growing
from sardonyx.plan import gaps, memory
from sardonyx.plan.memory import Lifetime, Stack, lower_bound, owners, plan_offsets
from sardonyx.program.image import ALIGNMENT

Plan = tuple[list[int], int]
Planner = Callable[[list[Lifetime]], Plan]


def plan_by_step(buffers: list[Lifetime]) -> Plan:
    """What is planned when too many buffers live together."""
    with patch.object(memory, "MOST_PAIRS", -1):
        return plan_offsets(buffers)


both_ways = pytest.mark.parametrize("plan", [plan_offsets, plan_by_step])


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    made = []
    for _ in range(draw(st.integers(0, 40))):
        first = draw(st.integers(0, 30))
        made.append(Lifetime(draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 10))))
    return made


@both_ways
@given(lifetimes())
def test_buffers_that_live_together_never_overlap(plan: Planner, buffers: list[Lifetime]) -> None:
    offsets, total = plan(buffers)
    for i, one in enumerate(buffers):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] + one.size <= total
        for j, other in enumerate(buffers[:i]):
            together = one.first <= other.last and other.first <= one.last
            apart = offsets[i] + one.size <= offsets[j] or offsets[j] + other.size <= offsets[i]
            assert apart or not together


@both_ways
@given(lifetimes())
def test_the_arena_is_at_least_what_lives_at_once_and_at_most_everything(plan: Planner, buffers: list[Lifetime]) -> None:
    _, total = plan(buffers)
    everything = sum(-(-one.size // ALIGNMENT) * ALIGNMENT for one in buffers)
    assert lower_bound(buffers) <= total <= everything


@both_ways
def test_a_chain_needs_two_buffers(plan: Planner) -> None:
    chain = [Lifetime(1000, step, step + 1) for step in range(50)]
    assert plan(chain)[1] == 2 * 1024


@both_ways
@given(lifetimes(), st.data())
def test_a_stack_of_smaller_buffers_sinks_and_never_overlaps(plan: Planner, buffers: list[Lifetime], data: st.DataObject) -> None:
    planned, most = plan(buffers)
    smaller = [Lifetime(data.draw(st.integers(0, one.size)), one.first, one.last) for one in buffers]
    offsets, total = Stack.of(buffers, planned).offsets([one.size for one in smaller])
    assert lower_bound(smaller) <= total <= most
    for i, one in enumerate(smaller):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] + one.size <= total
        for j, other in enumerate(smaller[:i]):
            together = one.first <= other.last and other.first <= one.last
            apart = offsets[i] + one.size <= offsets[j] or offsets[j] + other.size <= offsets[i]
            assert apart or not together


@both_ways
@given(lifetimes())
def test_a_stack_of_the_same_sizes_is_no_higher_than_its_plan(plan: Planner, buffers: list[Lifetime]) -> None:
    planned, most = plan(buffers)
    offsets, total = Stack.of(buffers, planned).offsets([one.size for one in buffers])
    assert total <= most
    assert all(offset <= before for offset, before in zip(offsets, planned))


@given(lifetimes())
def test_in_the_order_of_steps_no_more_is_needed_than_lives_at_once_if_all_are_equal(buffers: list[Lifetime]) -> None:
    equal = [Lifetime(1000, one.first, one.last) for one in buffers]
    assert plan_by_step(equal)[1] == lower_bound(equal)


def chain(count: int) -> list[Lifetime]:
    return [Lifetime(1000 + step % 3, step, step + 1) for step in range(count)]


def fan(count: int) -> list[Lifetime]:
    return [Lifetime(1000 + step % 3, step, count) for step in range(count)]


@pytest.mark.parametrize("buffers", [chain, fan])
def test_work_grows_with_the_number_of_buffers(buffers: Callable[[int], list[Lifetime]]) -> None:
    with patch.object(memory, "MOST_PAIRS", 4000):
        assert fastest_growing(lambda count: lambda: plan_offsets(buffers(count)), 1000)[0] < 2.2

        def stack(count: int) -> Callable[[], object]:
            lives = buffers(count)
            offsets, _ = plan_offsets(lives)
            return lambda: Stack.of(lives, offsets)

        assert fastest_growing(stack, 1000)[0] < 2.2


def test_what_is_large_for_long_goes_first_where_the_largest_first_wastes_memory() -> None:
    buffers = [Lifetime(192, 3, 5), Lifetime(192, 1, 3), Lifetime(256, 0, 1), Lifetime(64, 0, 3), Lifetime(192, 2, 4)]
    assert plan_offsets(buffers)[1] == lower_bound(buffers) == 640  # the largest first: 704


def test_few_buffers_are_planned_by_their_sizes() -> None:
    with patch.object(gaps, "plan_by_step", side_effect=AssertionError):
        plan_offsets(fan(1000))


def test_a_chain_of_buffers_that_take_over_memory_has_one_owner() -> None:
    shared = {number: number - 1 for number in range(1, 2000)}
    assert set(owners(shared).values()) == {0}
    assert owners({1: 2, 2: 3, 5: 3, 7: 6}) == {1: 3, 2: 3, 5: 3, 7: 6}
    assert fastest_growing(lambda count: lambda: owners({number: number - 1 for number in range(1, count)}), 1000)[0] < 2.2
