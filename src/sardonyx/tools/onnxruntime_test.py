"""Run a model on random inputs and say how long it takes: `onnxruntime.tools.onnxruntime_test`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.options import SessionOptions
from sardonyx.sample_inputs import random_inputs
from sardonyx.session.inference_session import InferenceSession


def generate_feeds(sess: InferenceSession, symbolic_dims: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Random inputs for a session; dimensions that have no size here are 1."""
    return random_inputs(sess.get_inputs(), {name: (size,) for name, size in (symbolic_dims or {}).items()})


def run_model(
    model_path: str,
    num_iters: int = 1,
    debug: bool = False,
    profile: bool = False,
    symbolic_dims: Mapping[str, int] | None = None,
    feeds: Mapping[str, Any] | None = None,
    override_initializers: bool = True,
) -> tuple[int, Mapping[str, Any], list[Any]]:
    """Run a model several times; 0, what it was fed, and its results."""
    options = SessionOptions()
    options.enable_profiling = profile
    session = InferenceSession(model_path, options, providers=["CPUExecutionProvider"])
    given = feeds or generate_feeds(session, symbolic_dims)
    outputs: list[Any] = []
    times = []
    for _ in range(num_iters):
        started = time.perf_counter()
        outputs = session.run(None, dict(given))
        times.append(time.perf_counter() - started)
    print(f"model: {model_path}")
    print(f"min={min(times) * 1e3:.3f}ms, mean={float(np.mean(times)) * 1e3:.3f}ms over {num_iters} runs")
    return 0, given, outputs


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Run a model on random inputs.")
    parser.add_argument("model_path", help="the model")
    parser.add_argument("num_iters", nargs="?", type=int, default=1000, help="how often it runs")
    parser.add_argument("--debug", action="store_true", help="accepted, and changes nothing")
    parser.add_argument("--profile", action="store_true", help="write a trace")
    parser.add_argument(
        "--symbolic_dims",
        default={},
        type=lambda text: {name: int(size) for name, size in (part.split("=") for part in text.split(",") if part)},
        help="sizes of named dimensions, as batch=1,seq=128",
    )
    args = parser.parse_args()
    code, _, _ = run_model(args.model_path, args.num_iters, args.debug, args.profile, args.symbolic_dims)
    return code


if __name__ == "__main__":
    sys.exit(main())
