"""Close candidates of lowering, raced: their steps are compiled and run on made-up numbers (see `target.timed_choice`).

The configuration entry `session.time_candidates` = `1` asks for it. It stays off without a cache folder to remember winners in,
for a machine that is not this one, and with `use_deterministic_compute`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Final

import numpy as np

from sardonyx import errors
from sardonyx.codegen.library import KernelLibrary, source_version
from sardonyx.compile.step_trial import StepTrial, bytes_of
from sardonyx.ir.tensor import Array
from sardonyx.lower.candidates import Proposal, SizeOf
from sardonyx.program.steps import Address, Buffer
from sardonyx.target.machine import machine_fingerprint
from sardonyx.target.target import Target
from sardonyx.target.timed_choice import CLOSE, ROUNDS, Candidate, Run, TimedChoices

_BYTES_PER_NS: Final = 4  # of memory that is written for the first time, or read to fill the cache
_LONGEST: Final = 1_000_000  # nanoseconds of one run: of longer ones a part is run


def machine_of(target: Target) -> str:
    """Names all that the time of a kernel depends on besides its specification and sizes."""
    caches = target.caches
    return f"{source_version()}|{target.key}|{machine_fingerprint()}|{caches.l1d},{caches.l2},{caches.l3}"


def chooser_in(folder: str, trusted: bool, kernels: KernelLibrary) -> StepChooser:
    """Who chooses, with winners remembered in a folder."""
    return StepChooser(TimedChoices(machine_of(kernels.target), folder, trusted), kernels)


class StepChooser:
    """Chooses among the steps that a rule proposes."""

    within: Final = CLOSE

    def __init__(self, choices: TimedChoices, kernels: KernelLibrary) -> None:
        self._choices = choices
        self._kernels = kernels

    def __call__(self, proposals: Sequence[Proposal], size_of: SizeOf) -> int:
        """The position of the proposal to take."""
        by_name = {each.name: position for position, each in enumerate(proposals)}

        def runs(candidates: Sequence[Candidate]) -> list[Run]:
            return [self._run(proposals[by_name[each.name]], size_of) for each in candidates]

        candidates = [
            Candidate(each.name, each.estimate, identity_of(each, size_of), self._effort(each, size_of)) for each in proposals
        ]
        try:
            return by_name[self._choices.winner(candidates, runs).name]
        except errors.EngineError:  # a kernel that cannot be compiled: whoever wants it for good learns why
            return 0

    def _effort(self, proposal: Proposal, size_of: SizeOf) -> int:
        fetched = ROUNDS * self._kernels.target.caches.l2 + bytes_of(proposal.steps, size_of)
        return ROUNDS * min(proposal.estimate, _LONGEST) + fetched // _BYTES_PER_NS

    def _run(self, proposal: Proposal, size_of: SizeOf) -> Run:
        return partial(run_cold, StepTrial(proposal.steps, self._kernels, size_of, longest=_LONGEST), self._kernels.target)


def run_cold(trial: StepTrial, target: Target) -> int:
    """The time of a run for which weights have to be fetched, as in a net that has more of them than the cache holds."""
    _other_data(target.caches.l2).max()
    trial.touch()
    return trial.run()


@cache
def _other_data(size: int) -> Array:
    """What fills a cache of so many bytes."""
    return np.ones(size, np.uint8)


def identity_of(proposal: Proposal, size_of: SizeOf) -> str:
    """The kernels of a proposal and all numbers they are called with; addresses only tell which buffers are the same."""
    buffers: dict[Buffer, int] = {}
    parts: list[str] = []
    for step in proposal.steps:
        parts += [step.kernel.key, str(size_of(step.units))]
        for one in step.arguments:
            if isinstance(one, Address):
                number = buffers.setdefault(one.buffer, len(buffers))
                parts.append(f"b{number}[{size_of(one.buffer.size)}]+{size_of(one.offset)}")
            else:
                parts.append(str(size_of(one)))
    return " ".join(parts)
