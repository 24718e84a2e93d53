"""Opening a model cold and warm: `python -m benchmarks.opening MODEL [--attempts 5] [--shape NAME=1,128]`.

Every opening is a fresh process; cold ones begin with an empty cache of compiled code. Printed are the best time and the least
memory of some attempts, and how much more memory the cold opening has.
"""

from __future__ import annotations

import argparse
import os

import sardonyx
from sardonyx import benchmarking
from sardonyx.benchmarking import OURS
from sardonyx.sample_inputs import random_inputs


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    return name, tuple(int(size) for size in sizes.split(","))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="time and memory of opening a model in fresh processes")
    parser.add_argument("model")
    parser.add_argument("--attempts", type=int, default=5)
    parser.add_argument("--shape", type=_shape, action="append", default=[], help="of an input, as NAME=1,128")
    args = parser.parse_args()
    session = sardonyx.InferenceSession(args.model)
    feeds = random_inputs(session.get_inputs(), shapes=dict(args.shape))
    found = benchmarking.creation(OURS, args.model, feeds, attempts=args.attempts, cold_attempts=args.attempts)
    print(f"load {os.getloadavg()[0]:.1f}")
    for name, seconds, peak in (("cold", found.cold, found.cold_peak), ("warm", found.warm, found.warm_peak)):
        print(f"{name:5s}{seconds:8.2f} s {peak / 2**20:8.0f} MB")
    print(f"memory cold / warm: {found.cold_peak / found.warm_peak:.2f}")


if __name__ == "__main__":
    main()
