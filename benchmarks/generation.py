"""Speed of decoders: `python -m benchmarks.generation [--threads 2] [--model int4|int4-exact|float32] [--tokens 32]`.

A decoder made in code generates token by token, and reads a prompt, on Sardonyx and on onnxruntime in turns, in one process, each
after the other's threads have come to rest. Both keep keys and values in one shared buffer. Printed are the best times, the rate
at which weights are read, and how much of what the machine's memory gives that is: a long array is read in the same rounds, by as
many threads. On a machine that others use as well, `--processor-time` with `--threads 1`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.decoders import FLOAT_SMALL, QWEN_HALF_BILLION, DecoderShape, write_decoder
from sardonyx import SessionOptions
from sardonyx.benchmarking.timing import settle
from sardonyx.generation import Decoder

Array = np.ndarray[Any, Any]
MODELS: dict[str, tuple[DecoderShape, dict[str, Any]]] = {
    "int4": (QWEN_HALF_BILLION, {"bits": 4, "level": 4}),
    "int4-exact": (QWEN_HALF_BILLION, {"bits": 4, "level": 0}),
    "float32": (FLOAT_SMALL, {"bits": 0}),
}


class OrtDecoder:
    """The same on onnxruntime, with past and present bound to one buffer."""

    def __init__(self, path: Path, shape: DecoderShape, threads: int, room: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [each.name for each in self._session.get_inputs() if each.name.startswith("past")]
        empty = np.zeros((1, shape.key_heads, room, shape.head), np.float32)
        self._caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(empty.copy()) for name in names}
        self._binding = self._session.io_binding()
        self._length = 0

    def _run(self, ids: Array) -> Array:
        self._length += ids.shape[1]
        binding = self._binding
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", np.ones((1, self._length), np.int64))
        binding.bind_output("logits")
        for name, value in self._caches.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
        self._session.run_with_iobinding(binding)
        logits: Array = binding.get_outputs()[0].numpy()
        return logits[:, -1]

    def begin(self, prompts: list[list[int]]) -> Array:
        """Read a prompt."""
        self._length = 0
        return self._run(np.array(prompts))

    def extend(self, tokens: list[int]) -> Array:
        """Read a token."""
        return self._run(np.array([tokens]))


Clock = Callable[[], float]


def _best(work: Callable[[], Any], times: int, clock: Clock) -> float:
    found = []
    for _ in range(times):
        start = clock()
        work()
        found.append(clock() - start)
    return min(found)


def weight_bytes(path: Path, shape: DecoderShape) -> int:
    """What one token reads: all weights but the table of tokens."""
    return path.with_name(f"{path.name}.data").stat().st_size - shape.vocabulary * shape.width * 4


def read_rate(array: Array, threads: int, clock: Clock) -> float:
    """Bytes a second that some threads read from memory: the largest byte of each one's part of a long array."""
    parts = np.array_split(array, threads)
    with ThreadPoolExecutor(threads) as pool:
        return array.nbytes / _best(lambda: list(pool.map(np.max, parts)), 4, clock)


def compare(
    path: Path, shape: DecoderShape, *, threads: int, tokens: int, prompt: int, rounds: int, clock: Clock
) -> dict[str, dict[str, float]]:
    """Seconds a token and a prompt take each engine."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    room = prompt + tokens + 64
    engines: dict[str, Any] = {
        "sardonyx": Decoder(path, options, room=room),
        "onnxruntime": OrtDecoder(path, shape, threads, room),
    }
    ids = np.random.default_rng(0).integers(0, shape.vocabulary, prompt).tolist()
    results: dict[str, dict[str, float]] = {name: {"token": np.inf, "prompt": np.inf} for name in engines}
    results["memory"] = {"rate": 0.0}
    long = np.random.default_rng(0).integers(0, 256, 1 << 28, np.uint8)
    for _ in range(rounds):
        settle()
        results["memory"]["rate"] = max(results["memory"]["rate"], read_rate(long, threads, clock))
        for name, engine in engines.items():
            found = results[name]
            settle()
            if prompt:
                found["prompt"] = min(found["prompt"], _best(partial(engine.begin, [ids]), 1, clock))
            engine.begin([ids[:16] or [1]])
            engine.extend([1])
            if tokens:
                found["token"] = min(found["token"], _best(partial(engine.extend, [7]), tokens, clock))
    return results


def main() -> None:
    """Make the model, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="int4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor-time", action="store_true", help="instead of the clock's")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where models are kept; default: a temporary folder")
    args = parser.parse_args()
    shape, options = MODELS[args.model]
    with tempfile.TemporaryDirectory() as temporary:
        path = (args.folder or Path(temporary)) / f"{args.model}.onnx"
        if not path.exists():
            write_decoder(path, shape, **options)
        clock = time.process_time if args.processor_time else time.perf_counter
        results = compare(
            path, shape, threads=args.threads, tokens=args.tokens, prompt=args.prompt, rounds=args.rounds, clock=clock
        )
        size = weight_bytes(path, shape)
    for kind in ("token", "prompt"):
        ours, theirs = (results[name][kind] for name in ("sardonyx", "onnxruntime"))
        if not np.isfinite(ours):
            continue
        memory = results["memory"]["rate"]
        share = f"{size / ours / memory:.0%} of what is read at most ({memory / 1e9:.1f} GB/s)"
        rate = f", {size / ours / 1e9:.1f} and {size / theirs / 1e9:.1f} GB/s of weights, {share}" if kind == "token" else ""
        print(f"{kind}: {ours * 1e3:.2f} ms, onnxruntime {theirs * 1e3:.2f} ms, {theirs / ours:.2f} times{rate}")


if __name__ == "__main__":
    main()
