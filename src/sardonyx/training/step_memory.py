"""How much memory a training step needs, by the plans of its two programs.

    report = sardonyx.training.memory_report(model)        after a call of the wrapped module: for the sizes of that call
    print(report)                                           totals, and what each choice of recomputation would save
    report.write_timeline("memory.svg")                     bytes in use from step to step, through both passes

Between the passes lies what the forward pass keeps, in one block that is freed when the backward pass is done. Each pass has an
arena for what is in use only within it. Results and gradients are memory of their own. Parameters are not counted: they are
there with any engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sardonyx import errors
from sardonyx.plan.least_peak import assumed_size
from sardonyx.plan.memory import Lifetime, plan_offsets
from sardonyx.plan.native import NativePlan
from sardonyx.plan.peak import arena_lifetimes, live_bytes
from sardonyx.program.steps import HostNodeStep, SizeStep, Storage
from sardonyx.records import dataclass
from sardonyx.training.memory_picture import TimelinePart, timeline_picture
from sardonyx.training.recompute import Saving, savings_table
from sardonyx.training.step_program import TrainingProgram

if TYPE_CHECKING:
    from sardonyx.training.module import TrainingModule


@dataclass(frozen=True)
class PassMemory:
    """One pass: bytes in use while each of its kernels runs."""

    name: str
    steps: tuple[str, ...]
    arena: tuple[int, ...]  # within the pass
    kept: tuple[int, ...]  # between the passes
    results: tuple[int, ...]  # outputs, or gradients
    arena_bytes: int  # the size of the arena

    @property
    def peak(self) -> int:
        """The most bytes in use, with the whole arena."""
        beside = (kept + results for kept, results in zip(self.kept, self.results))
        return self.arena_bytes + max(beside, default=0)


@dataclass(frozen=True)
class MemoryReport:
    """The planned memory of a training step, for some sizes."""

    sizes: Mapping[str, int]  # of the named dimensions
    kept_bytes: int
    plainly_kept_bytes: int  # if nothing but cheap nodes were computed again
    forward: PassMemory
    backward: PassMemory
    savings: tuple[Saving, ...]

    @property
    def peak(self) -> int:
        """The most bytes in use in either pass."""
        return max(self.forward.peak, self.backward.peak)

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        lines = [f"planned memory of a training step{f' ({sizes})' if sizes else ''}, in MB:"]
        rows = [("kept between the passes", self.kept_bytes)]
        if self.kept_bytes != self.plainly_kept_bytes:
            rows.append(("  without recomputation", self.plainly_kept_bytes))
        for each in (self.forward, self.backward):
            rows += [(f"{each.name}: arena", each.arena_bytes), (f"{each.name}: peak", each.peak)]
        lines += [f"  {label:34}{count / 1e6:12.3f}" for label, count in rows]
        lines += ["", *savings_table(self.savings)]
        return "\n".join(lines)

    def write_timeline(self, path: str | os.PathLike[str]) -> None:
        """Draw the memory in use from step to step as an SVG picture."""
        parts = [TimelinePart(each.name, each.kept, each.arena, each.results) for each in (self.forward, self.backward)]
        Path(path).write_text(timeline_picture(parts), "utf-8")


def memory_report(module: TrainingModule) -> MemoryReport:
    """The planned memory of the module's training step, for the sizes of its last call.

    InvalidArgument if there was no call in training mode yet, or if PyTorch runs the module.
    """
    manager: Any = getattr(module._torch_module, "_training_manager", None)
    program = None if manager is None else manager._execution_agent
    if not isinstance(program, TrainingProgram):
        raise errors.InvalidArgument(
            "there is no compiled training step to report on",
            hint="call the module in training mode with gradients first; if it falls back to PyTorch, a warning said why",
        )
    return report_of(program, program.last_sizes)


def report_of(program: TrainingProgram, sizes: Mapping[str, int]) -> MemoryReport:
    """The planned memory of a training program for sizes of its named dimensions; others are assumed."""
    forward, backward = program.plans
    outputs = {value.name for value in program.halves.forward.outputs[: program.result_count]}
    kept = _output_lifetimes(forward, sizes, lambda name: name not in outputs)
    kept_bytes = sum(each.size for each in kept)
    results = _output_lifetimes(forward, sizes, outputs.__contains__)
    gradients = _output_lifetimes(backward, sizes, lambda name: True)
    count = len(backward.all_steps)
    plan = program.recompute
    return MemoryReport(
        dict(sizes),
        kept_bytes,
        plan.plainly_kept_bytes(sizes),
        _pass("forward", forward, sizes, live_bytes(kept, len(forward.all_steps)), results),
        _pass("backward", backward, sizes, [kept_bytes] * count, gradients),
        tuple(plan.savings(sizes)),
    )


def _pass(name: str, plan: NativePlan, sizes: Mapping[str, int], kept: Sequence[int], results: Sequence[Lifetime]) -> PassMemory:
    steps = plan.all_steps
    arena = list(arena_lifetimes(plan, sizes).values())
    labels = [_label(step) for step in steps]
    live, given = live_bytes(arena, len(steps)), live_bytes(results, len(steps))
    return PassMemory(name, tuple(labels), tuple(live), tuple(kept), tuple(given), plan_offsets(arena)[1])


def _label(step: Any) -> str:
    return step.node.label if isinstance(step, HostNodeStep) else "sizes" if isinstance(step, SizeStep) else step.label


def _output_lifetimes(plan: NativePlan, sizes: Mapping[str, int], wanted: Callable[[str], bool]) -> list[Lifetime]:
    """What is given out of a pass, from the step on in which it is written."""
    known, found = dict(sizes), []
    end = len(plan.all_steps)
    for number, buffer in enumerate(plan.buffers):
        if buffer.storage is Storage.OUTPUT and buffer.value is not None and wanted(buffer.value.name):
            size = assumed_size(plan.dims[plan.sizes[number]], known)
            found.append(Lifetime(size, plan.lifetimes[number][0], end))
    return found
