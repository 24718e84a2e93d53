"""Optimizer steps against PyTorch's own, over the parameters of whole networks.

    python -m benchmarks.optimizers [resnet18] [bert-base] [mlp] [--threads 2] [--repeats 20]

Rows: the step of our fused optimizer, of PyTorch's `foreach` and of its `fused` implementation, measured in turn in one process;
the best of each, and the ratios. On one thread CPU time is measured, else elapsed time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """The best time of one step, in seconds, of each implementation."""

    network: str
    optimizer: str
    threads: int
    ours: float
    foreach: float
    fused: float

    def __str__(self) -> str:
        times = "  ".join(f"{1e3 * each:8.2f} ms" for each in (self.ours, self.foreach, self.fused))
        ratios = f"{self.foreach / self.ours:5.2f} x foreach  {self.fused / self.ours:5.2f} x fused"
        return f"{self.network:10} {self.optimizer:6} {self.threads} threads  {times}  {ratios}"


def resnet18() -> list[tuple[int, ...]]:
    """The shapes of the 62 parameters of ResNet-18: 11.7 million elements."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    width = 64
    for planes in (64, 128, 256, 512):
        for block in range(2):
            for inside in (width, planes):
                shapes += [(planes, inside, 3, 3), (planes,), (planes,)]
            if block == 0 and width != planes:
                shapes += [(planes, width, 1, 1), (planes,), (planes,)]
            width = planes
    return [*shapes, (1000, 512), (1000,)]


def bert_base() -> list[tuple[int, ...]]:
    """The shapes of the 199 parameters of BERT-base: 109 million elements."""
    shapes: list[tuple[int, ...]] = [(30522, 768), (512, 768), (2, 768), (768,), (768,)]
    for _ in range(12):
        shapes += [(768, 768), (768,)] * 4 + [(768,), (768,), (3072, 768), (3072,), (768, 3072), (768,), (768,), (768,)]
    return [*shapes, (768, 768), (768,)]


def mlp() -> list[tuple[int, ...]]:
    """A small network: overhead decides."""
    return [(256, 784), (256,), (256, 256), (256,), (10, 256), (10,)]


NETWORKS: dict[str, Callable[[], list[tuple[int, ...]]]] = {"resnet18": resnet18, "bert-base": bert_base, "mlp": mlp}


def measure(network: str, threads: int, repeats: int) -> Iterator[Measured]:
    """Adam, AdamW and momentum SGD on the parameters of a network."""
    import torch

    from sardonyx.training import optim

    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    parameters = [torch.nn.Parameter(torch.randn(shape) * 0.02) for shape in NETWORKS[network]()]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * 1e-3
    kinds: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "Adam": (optim.FusedAdam, torch.optim.Adam, {"lr": 1e-4}),
        "AdamW": (optim.FusedAdamW, torch.optim.AdamW, {"lr": 1e-4, "weight_decay": 0.01}),
        "SGD": (optim.FusedSGD, torch.optim.SGD, {"lr": 1e-4, "momentum": 0.9}),
    }
    for name, (ours, theirs, options) in kinds.items():
        best = []
        for kind, extra in ((ours, {}), (theirs, {"foreach": True}), (theirs, {"fused": True})):
            # One after the other, each alone with its state: three times the moments of BERT would not fit small machines.
            optimizer = kind(parameters, **options, **extra)
            optimizer.step()
            times = []
            for _ in range(repeats):
                time.sleep(0.003)  # threads of the one before stop spinning
                start = clock()
                optimizer.step()
                times.append(clock() - start)
            best.append(min(times))
        yield Measured(network, name, threads, *best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[[], *NETWORKS], help="all by default")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    for network in arguments.networks or NETWORKS:
        for threads in arguments.threads:
            for row in measure(network, threads, arguments.repeats):
                print(row, flush=True)


if __name__ == "__main__":
    main()
