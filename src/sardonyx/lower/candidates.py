"""Alternatives of lowering the same nodes: the steps of the one that takes the least time are written.

A rule states its candidates with estimated times. Where estimates are close, and the compilation was told to measure, each is
lowered as an attempt, and the steps are handed to the context's `chooser`, which runs them (`compile.step_choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sardonyx.ir.dims import Dim
from sardonyx.program.steps import KernelStep
from sardonyx.target.timed_choice import close_ones

if TYPE_CHECKING:
    from sardonyx.lower.lowering import LowerContext


class Alternative(NamedTuple):
    """One way to lower some nodes."""

    name: str
    estimate: int  # nanoseconds
    write: Callable[[], None]  # writes its steps


class Proposal(NamedTuple):
    """The steps that one alternative would lead to."""

    name: str
    estimate: int
    steps: tuple[KernelStep, ...]


SizeOf = Callable[[Dim], int]  # a number for a size; for one that is not known yet, the usual one


class Chooser(Protocol):
    """Measures proposals."""

    @property
    def within(self) -> float:
        """Those whose estimates lie within this factor of the best are proposed."""

    def __call__(self, proposals: Sequence[Proposal], size_of: SizeOf) -> int:
        """The position of the one to take."""


def write_fastest(ctx: LowerContext, alternatives: Sequence[Alternative], size_of: SizeOf) -> None:
    """Write the steps of the alternative that is estimated, or was measured, to take the least time."""
    within = 1.0 if ctx.chooser is None else ctx.chooser.within
    near = [alternatives[position] for position in close_ones([each.estimate for each in alternatives], within)]
    proposals = [] if ctx.chooser is None or len(near) == 1 else [_proposal(ctx, each) for each in near]
    if ctx.chooser is None or any(proposal is None for proposal in proposals) or not proposals:
        near[0].write()
    else:
        near[ctx.chooser([proposal for proposal in proposals if proposal is not None], size_of)].write()


def _proposal(ctx: LowerContext, each: Alternative) -> Proposal | None:
    """What an alternative leads to; None if not only to kernels."""
    mark = ctx.mark()
    first = len(ctx.lowered.steps)
    try:
        each.write()
        steps = [step for step in ctx.lowered.steps[first:] if isinstance(step, KernelStep)]
        return Proposal(each.name, each.estimate, tuple(steps)) if len(steps) == len(ctx.lowered.steps) - first else None
    finally:
        ctx.back_to(mark)
