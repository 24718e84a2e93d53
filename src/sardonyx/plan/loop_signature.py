"""Loops in the words of a program, which knows positions instead of values."""

from __future__ import annotations

from sardonyx.analysis.loop_body import LoopBody
from sardonyx.program.calls import LoopSignature, SlicedPort


def loop_signature(loop: LoopBody) -> LoopSignature:
    """What a loop takes and gives, by positions among its body's inputs and among what an iteration makes."""
    taken = {value: position for position, value in enumerate(loop.body.inputs)}
    given = {value: position for position, value in enumerate(loop.made)}
    return LoopSignature(
        loop.counter is not None,
        -1 if loop.condition is None else given[loop.condition],
        tuple((taken[each.taken], -1 if each.is_fixed else given[each.given]) for each in loop.carried),
        tuple(SlicedPort(taken[each.value], each.axis, each.backwards) for each in loop.sliced),
        tuple(None if each is None else SlicedPort(given[each.value], each.axis, each.backwards) for each in loop.stacked),
    )
