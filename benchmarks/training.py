"""Training steps against eager PyTorch and torch.compile, interleaved in one process.

python -m benchmarks.training [--threads 2] [--rounds 7] [--compile] [--optimizer] [names ...]

A step is a forward and a backward pass of a wrapped module; with `--optimizer` a second line has steps that end with Adam's:
PyTorch's own with `foreach`, and ours. Each engine runs after the threads of the others have stopped spinning; the figures are
the best of the rounds, in milliseconds of wall time and of processor time. Ratios are eager's time over ours, of both.
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
_RATE: Final = 1e-6  # of learning: weights of a benchmark stay what they are
OURS: Final = "sardonyx"


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


def _step(module: Any, batch: tuple[Any, ...], gradient: Any, optimizer: Any = None) -> Callable[[], None]:
    def step() -> None:
        module.zero_grad(set_to_none=True)
        module(*batch).backward(gradient)
        if optimizer is not None:
            optimizer.step()

    return step


def _adam(name: str, module: Any) -> Any:
    """An engine's own optimizer."""
    from sardonyx.training.optim import FusedAdam

    kind, options = (FusedAdam, {}) if name == OURS else (torch.optim.Adam, {"foreach": True})
    return kind(module.parameters(), lr=_RATE, **options)


def measure(workload: Workload, rounds: int, *, compiled: bool, optimized: bool = False) -> dict[str, Timing]:
    """Time the engines on one workload; `optimized`: steps end with an optimizer's."""
    from sardonyx.training import TrainingModule  # after torch has been told how many threads there are

    batch = seeded(workload.batch)
    engines: dict[str, Any] = {"eager": seeded(workload.model).train()}
    engines[OURS] = TrainingModule(seeded(workload.model).train())
    if compiled:
        engines["torch.compile"] = torch.compile(seeded(workload.model).train())
    gradient = torch.randn_like(engines["eager"](*batch))
    steps = {name: _step(module, batch, gradient, _adam(name, module) if optimized else None) for name, module in engines.items()}
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
    parser.add_argument("--optimizer", action="store_true", help="measure steps that end with Adam's, too")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    found: dict[str, list[tuple[float, float]]] = {}
    for workload in WORKLOADS:
        if options.names and workload.name not in options.names:
            continue
        for kind in ("", "with Adam") if options.optimizer else ("",):
            timings = measure(workload, options.rounds, compiled=options.compile, optimized=bool(kind))
            ours, eager = timings[OURS], timings["eager"]
            ratio = eager.wall / ours.wall, eager.processor / ours.processor
            found.setdefault(kind, []).append(ratio)
            others = "".join(f"   {name} {each.wall:8.2f} ({each.processor:8.2f})" for name, each in timings.items())
            print(f"{f'{workload.name} {kind}':22} ratio {ratio[0]:5.2f} ({ratio[1]:5.2f}){others}", flush=True)
    for kind, ratios in found.items():
        wall, processor = (math.exp(sum(map(math.log, each)) / len(each)) for each in zip(*ratios))
        print(f"geometric mean {kind:7} {wall:.2f} ({processor:.2f})")


if __name__ == "__main__":
    main()
