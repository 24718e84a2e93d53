"""The memory planner: buffers that live at the same time never overlap, and the arena is no larger than it must be for chains."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sardonyx.plan.image import ALIGNMENT
from sardonyx.plan.memory import Lifetime, Stack, lower_bound, plan_offsets


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    made = []
    for _ in range(draw(st.integers(0, 40))):
        first = draw(st.integers(0, 30))
        made.append(Lifetime(draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 10))))
    return made


@given(lifetimes())
def test_buffers_that_live_together_never_overlap(buffers: list[Lifetime]) -> None:
    offsets, total = plan_offsets(buffers)
    for i, one in enumerate(buffers):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] + one.size <= total
        for j, other in enumerate(buffers[:i]):
            together = one.first <= other.last and other.first <= one.last
            apart = offsets[i] + one.size <= offsets[j] or offsets[j] + other.size <= offsets[i]
            assert apart or not together


@given(lifetimes())
def test_the_arena_is_at_least_what_lives_at_once_and_at_most_everything(buffers: list[Lifetime]) -> None:
    _, total = plan_offsets(buffers)
    everything = sum(-(-one.size // ALIGNMENT) * ALIGNMENT for one in buffers)
    assert lower_bound(buffers) <= total <= everything


def test_a_chain_needs_two_buffers() -> None:
    chain = [Lifetime(1000, step, step + 1) for step in range(50)]
    assert plan_offsets(chain)[1] == 2 * 1024


@given(lifetimes(), st.data())
def test_a_stack_of_smaller_buffers_sinks_and_never_overlaps(buffers: list[Lifetime], data: st.DataObject) -> None:
    planned, most = plan_offsets(buffers)
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


@given(lifetimes())
def test_a_stack_of_the_same_sizes_is_no_higher_than_its_plan(buffers: list[Lifetime]) -> None:
    planned, most = plan_offsets(buffers)
    offsets, total = Stack.of(buffers, planned).offsets([one.size for one in buffers])
    assert total <= most
    assert all(offset <= before for offset, before in zip(offsets, planned))
