"""Training steps against eager PyTorch and torch.compile, interleaved in one process.

python -m benchmarks.training [--threads 2] [--rounds 7] [--compile] [names ...]

A step is a forward and a backward pass of a wrapped module. Each engine runs after the threads of the others have stopped
spinning; the figures are the best of the rounds, in milliseconds of wall time and of processor time.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from benchmarks.training_models import WORKLOADS, Workload, seeded

_QUIET: Final = 0.01  # seconds in which idle workers stop spinning
_SPAN: Final = 0.15  # seconds of steps in a round


@dataclass
class Timing:
    """The best of the rounds, in milliseconds."""

    wall: float = math.inf
    processor: float = math.inf

    def note(self, step: Callable[[], None]) -> None:
        """One round of steps."""
        step()
        count = max(1, int(_SPAN / max(self.wall / 1e3, 1e-4))) if self.wall < math.inf else 1
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(count):
            step()
        self.wall = min(self.wall, (time.perf_counter() - wall) / count * 1e3)
        self.processor = min(self.processor, (time.process_time() - processor) / count * 1e3)


def _step(module: Any, batch: tuple[Any, ...], gradient: Any) -> Callable[[], None]:
    def step() -> None:
        module.zero_grad(set_to_none=True)
        module(*batch).backward(gradient)

    return step


def measure(workload: Workload, rounds: int, *, compiled: bool) -> dict[str, Timing]:
    """Time the engines on one workload."""
    from sardonyx.training import TrainingModule  # after torch has been told how many threads there are

    batch = seeded(workload.batch)
    engines: dict[str, Any] = {"eager": seeded(workload.model).train()}
    engines["sardonyx"] = TrainingModule(seeded(workload.model).train())
    if compiled:
        engines["torch.compile"] = torch.compile(seeded(workload.model).train())
    gradient = torch.randn_like(engines["eager"](*batch))
    steps = {name: _step(module, batch, gradient) for name, module in engines.items()}
    timings = {name: Timing() for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            time.sleep(_QUIET)
            timings[name].note(step)
    return timings


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each workload, and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="workloads; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compile", action="store_true", help="measure torch.compile, too")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    ratios = []
    for workload in WORKLOADS:
        if options.names and workload.name not in options.names:
            continue
        timings = measure(workload, options.rounds, compiled=options.compile)
        ours, eager = timings["sardonyx"], timings["eager"]
        ratios.append(eager.wall / ours.wall)
        others = "".join(f"   {name} {found.wall:8.2f} ({found.processor:8.2f})" for name, found in timings.items())
        print(f"{workload.name:12} ratio {ratios[-1]:5.2f}{others}", flush=True)
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
