"""Run every model of a folder on onnxruntime and on Sardonyx, with random feeds, and say where they agree.

    python tools/compare_test_models.py FOLDER [--jobs 2] [--only TEXT] [--seeds 1] [--list] [--least 97]

A model runs in a worker process with limits of time and memory, because it may end either engine. Sizes nobody states are tried
until onnxruntime accepts them: small ones, and those the model's own weights and shapes mention. Verdicts:

    same           all outputs agree: types, shapes, and values within `TOLERANCE`, relative to the largest magnitude of an output
    differs        an output does not
    refused here   onnxruntime runs it, Sardonyx raises
    crash, timeout Sardonyx ended the process, or took longer than the limit
    refused there  onnxruntime neither opens nor runs it with any feed that was tried, or crashes
    left out       draws random numbers (onnxruntime does not repeat itself) or searches beams

The share counts `same` among the first four; the exit code is 1 if it is below `--least` percent.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import logging
import multiprocessing
import multiprocessing.connection
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
SMALLEST = {"float64": 5e-324, "float32": 1.5e-45, "float16": 6e-8, "bfloat16": 1e-40}  # steps between numbers next to zero
SECONDS = 120  # for one model, both engines
MEMORY = 6 << 30
REPEATS = 4  # of a run, to see random numbers even in results of one bit
ATTEMPTS = 800  # of making feeds that onnxruntime accepts
SEARCH_SECONDS = 10.0
SEARCHES = frozenset(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"))
COMPARED = ("same", "differs", "refused here", "crash", "timeout")
VERDICTS = (*COMPARED, "refused there", "left out")
_SMALL = (3, 2, 4, 1, 8, 5, 6, 16, 12, 7, 10, 32, 64)
_LARGEST_FEED = 1 << 24  # elements


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one model."""

    model: str
    verdict: str
    reason: str = ""


def operators(model: onnx.ModelProto) -> set[str]:
    """The operators of all graphs and functions."""
    found: set[str] = set()

    def visit(nodes: Sequence[onnx.NodeProto]) -> None:
        for node in nodes:
            found.add(node.op_type)
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    visit(graph.node)

    visit(model.graph.node)
    for function in model.functions:
        visit(function.node)
    return found


def mentioned_sizes(model: onnx.ModelProto) -> list[int]:
    """Numbers that may be sizes: dimensions of weights and inputs, elements of small integer constants, attributes."""
    counts: collections.Counter[int] = collections.Counter()

    def visit(graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            counts.update(tensor.dims)
            constant(tensor)
        for node in graph.node:
            for attribute in node.attribute:
                counts.update((attribute.i, *attribute.ints))
                if attribute.HasField("t"):
                    constant(attribute.t)
                for inner in (attribute.g, *attribute.graphs):
                    visit(inner)
        for value in (*graph.input, *graph.output, *graph.value_info):
            counts.update(dim.dim_value for dim in value.type.tensor_type.shape.dim)

    def constant(tensor: onnx.TensorProto) -> None:
        is_index = tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) and np.prod(tensor.dims) <= 16
        if is_index and tensor.data_location != onnx.TensorProto.EXTERNAL:
            counts.update(int(number) for number in onnx.numpy_helper.to_array(tensor).ravel())

    visit(model.graph)
    return [size for size, _ in counts.most_common() if 1 <= size <= 4096]


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input as the model declares it; of a sequence or optional: what its elements are like."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]
    has_rank: bool = True


def declared_inputs(model: onnx.ModelProto, session: Any) -> list[Argument]:
    """The inputs with types in onnxruntime's words, and shapes down to the elements of sequences, which it does not tell."""
    types = {value.name: value.type for value in model.graph.input}
    found = []
    for port in session.get_inputs():
        kind = types[port.name]
        while kind.HasField("optional_type") or kind.HasField("sequence_type"):
            kind = (kind.optional_type if kind.HasField("optional_type") else kind.sequence_type).elem_type
        dims = kind.tensor_type.shape.dim
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims)
        found.append(Argument(port.name, port.type, shape, kind.tensor_type.HasField("shape")))
    return found


def sizes_to_try(unknowns: Sequence[Any], mentioned: Sequence[int], generator: np.random.Generator) -> Iterator[dict[Any, int]]:
    """Sizes for what nobody states: all alike, then one of its own for one of them, then anything."""
    for size in _SMALL:
        yield dict.fromkeys(unknowns, size)
    for base in (3, 1) if len(unknowns) > 1 else ():
        for unknown in unknowns:
            for size in mentioned[:20]:
                yield {**dict.fromkeys(unknowns, base), unknown: size}
    likely = list(dict.fromkeys((*mentioned, *_SMALL)))
    while True:
        base = int(generator.choice(likely))
        drawn = generator.choice(likely, size=len(unknowns))
        kept = generator.random(len(unknowns)) < 0.4
        yield {each: base if keep else int(size) for each, keep, size in zip(unknowns, kept, drawn)}


def feeds_to_try(arguments: Sequence[Argument], mentioned: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """Feeds of the declared types with guessed sizes, the likeliest first."""
    from sardonyx.sample_inputs import random_inputs

    generator = np.random.default_rng(seed)
    names = {dim for each in arguments for dim in each.shape if isinstance(dim, str)}
    open_axes = {(each.name, axis) for each in arguments for axis, dim in enumerate(each.shape) if dim is None}
    sizes = sizes_to_try([*sorted(names), *sorted(open_axes)], mentioned, generator)
    for attempt in range(ATTEMPTS):
        chosen = next(sizes)
        shapes = {}
        for each in arguments:
            if not each.has_rank:
                rank = attempt % 5
                shapes[each.name] = tuple(int(size) for size in generator.choice([*_SMALL[:4], *mentioned[:4]], size=rank))
                continue
            shapes[each.name] = tuple(
                dim if isinstance(dim, int) else chosen[dim if isinstance(dim, str) else (each.name, axis)]
                for axis, dim in enumerate(each.shape)
            )
        if sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values()) > _LARGEST_FEED:
            continue
        known = [dataclasses.replace(each, shape=shapes[each.name]) for each in arguments]
        feeds = random_inputs(known, seed=seed + attempt)
        yield {name: _varied(value, int(generator.integers(4)) if attempt else 0) for name, value in feeds.items()}


def _varied(value: Any, kind: int) -> Any:
    """Floats on both sides of zero, but not always: some models take logarithms; and integers that are 0 or 1 throughout."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and kind != 2:
            return np.asarray(value * 4 - 2, value.dtype)
        if value.dtype in (np.int64, np.int32) and kind in (1, 2):
            return np.full_like(value, kind - 1)
    return value


def loosest(model: onnx.ModelProto) -> float:
    """The tolerance of the narrowest float type in the model: what is rounded on the way, and when, is not laid down."""
    text = str(model.graph.input) + str(model.graph.value_info)
    kinds = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
    present = {tensor.data_type for tensor in model.graph.initializer}
    present.update(int(number) for number in re.findall(r"elem_type: (\d+)", text))
    for node in model.graph.node:
        present.update(attribute.i for attribute in node.attribute if attribute.name in ("to", "dtype"))
        present.update(attribute.t.data_type for attribute in node.attribute if attribute.HasField("t"))
    return max((TOLERANCE[name] for kind, name in kinds.items() if kind in present), default=0.0)


def difference(actual: Any, expected: Any, least: float = 0.0) -> str:
    """What differs between two results by more than their type's tolerance, or `least` if that is more; "" if they agree."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            return "another number of elements"
        return next((text for text in (difference(*pair, least) for pair in zip(actual, expected)) if text), "")
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or list(actual) != list(expected):
            return "other keys"
        return difference(np.array(list(actual.values())), np.array(list(expected.values())), least)
    if expected is None or actual is None:
        return "" if actual is expected else "None on one side"
    if hasattr(expected, "to_dense_tensor") or type(expected).__name__ == "SparseTensor":
        return difference(_sparse_parts(actual), _sparse_parts(expected), least)
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    tolerance = TOLERANCE.get(expected.dtype.name)
    if tolerance is None:
        wrong = actual != expected
    else:
        tolerance = max(tolerance, least)
        ours, theirs = actual.astype(np.float64), expected.astype(np.float64)
        scale = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)) or 1.0
        allowed = max(tolerance * scale, 2 * SMALLEST[expected.dtype.name])
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(ours - theirs) <= allowed) | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    if not np.any(wrong):
        return ""
    index = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
    found, wanted = np.atleast_1d(actual)[index], np.atleast_1d(expected)[index]
    return f"{int(np.sum(wrong))} of {np.size(wrong)} differ, first at {index}: {found} instead of {wanted}"


def _sparse_parts(value: Any) -> list[Any]:
    return [np.array(value.dense_shape()), value.values()]


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def examine(path: Path, seeds: int, report: Any) -> Outcome:
    """Both engines, with as many different feeds as asked for; `report` is told which engine is at work."""
    import onnxruntime

    import sardonyx

    onnxruntime.set_default_logger_severity(4)
    logging.disable(logging.WARNING)
    name = str(path)
    report("onnxruntime")
    levels = onnxruntime.GraphOptimizationLevel
    try:
        theirs = _onnxruntime_session(name, levels.ORT_ENABLE_ALL)
        model = onnx.load(name, load_external_data=False)
    except Exception as error:
        return Outcome(name, "refused there", first_line(error))
    try:
        plain = _onnxruntime_session(name, levels.ORT_DISABLE_ALL)
    except Exception:
        plain = None  # some operators have no kernel there, and are removed by a rewriting
    present = operators(model)
    if present & SEARCHES:
        return Outcome(name, "left out", "searches beams: " + ", ".join(sorted(present & SEARCHES)))
    tolerance = loosest(model)
    ours = None
    agreed = ""
    for seed in range(seeds):
        report("onnxruntime")
        found = accepted_feeds(theirs, plain, model, 1000 * seed)
        if isinstance(found, str):
            return Outcome(name, "refused there", found)
        feeds, opinions = found
        for session, opinion in zip((theirs, plain), opinions):
            if opinion is not None and any(difference(session.run(None, feeds), opinion, tolerance) for _ in range(REPEATS)):
                return Outcome(name, "left out", "draws random numbers: onnxruntime does not repeat itself")
        report("sardonyx")
        given = ", ".join(f"{key}{list(getattr(value, 'shape', ['?']))}" for key, value in feeds.items())
        try:
            if ours is None:
                ours = sardonyx.InferenceSession(name, providers=["CPUExecutionProvider"])
            actual = ours.run(None, feeds)
        except Exception as error:
            refused = " (and by onnxruntime without optimization)" if opinions[1] is None else ""
            return Outcome(name, "refused here", f"{first_line(error)}{refused}")
        texts = [_first_difference(theirs, actual, opinion, tolerance) for opinion in opinions if opinion is not None]
        if not texts[0]:
            continue
        if not all(texts):
            agreed = f"as onnxruntime without optimization; with it {texts[0]}"
        elif is_within_tolerance_of_peers(theirs, actual, opinions, feeds):
            agreed = f"no nearer to each other are two answers of onnxruntime: {texts[0]}"
        else:
            return Outcome(name, "differs", f"{texts[0]} (feeds {given})")
    return Outcome(name, "same", agreed)


def is_within_tolerance_of_peers(theirs: Any, actual: Sequence[Any], opinions: Sequence[Any], feeds: Mapping[str, Any]) -> bool:
    """Whether onnxruntime's own answers lie as far apart, in size and number of differences.

    Its answers with and without optimization, and for feeds changed by a part in a million: where a rounding that falls the other
    way is magnified (quantized nets, the softmax of large numbers) nobody's last bits are better than another's.
    """
    expected = opinions[0]
    others = [opinions[1]] if opinions[1] is not None else []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        others.append(theirs.run(None, {name: _shaken(value, generator) for name, value in feeds.items()}))
    for index, (one, base) in enumerate(zip(actual, expected)):
        if not (isinstance(base, np.ndarray) and base.dtype.kind in "fiu" and np.shape(one) == base.shape):
            if difference(one, base):
                return False
            continue
        furthest, count = _distance(one, base)
        distances = [_distance(other[index], base) for other in others if np.shape(other[index]) == base.shape]
        if furthest > max(size for size, _ in distances) or count > 4 * max(number for _, number in distances):
            return False
    return True


def _shaken(value: Any, generator: np.random.Generator) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.asarray(value * (1 + 1e-6 * generator.uniform(-1, 1, value.shape)), value.dtype)
    return value


def _distance(one: Any, other: Any) -> tuple[float, int]:
    """The largest difference, and how many elements differ by more than the tolerance."""
    left, right = np.asarray(one, np.float64), np.asarray(other, np.float64)
    apart = np.abs(left - right)[np.isfinite(left) & np.isfinite(right)]
    scale = float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
    return float(apart.max(initial=0.0)), int((apart > TOLERANCE["float32"] * scale).sum())


def _onnxruntime_session(name: str, level: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(name, options, providers=["CPUExecutionProvider"])


def accepted_feeds(theirs: Any, plain: Any, model: onnx.ModelProto, seed: int) -> tuple[dict[str, Any], list[Any]] | str:
    """Feeds with what onnxruntime answers, with and without optimization; or why it refused the last of them.

    Rewriting makes onnxruntime accept what does not fit the model, so feeds that it also accepts without are looked for first.
    """
    refusal = "no feeds were made"
    second = None
    started = time.monotonic()
    try:
        for feeds in feeds_to_try(declared_inputs(model, theirs), mentioned_sizes(model), seed):
            try:
                expected = theirs.run(None, feeds)
                second = second or (feeds, [expected, None])
                return feeds, [expected, plain.run(None, feeds)] if plain is not None else second[1]
            except Exception as error:
                refusal = first_line(error)
            if time.monotonic() - started > SEARCH_SECONDS:
                break
    except Exception as error:
        refusal = "no feeds: " + first_line(error)
    return second or refusal


def _first_difference(session: Any, actual: Sequence[Any], expected: Sequence[Any], tolerance: float) -> str:
    for port, one, other in zip(session.get_outputs(), actual, expected):
        text = difference(one, other, tolerance)
        if text:
            return f"{port.name}: {text}"
    return ""


def work(pipe: multiprocessing.connection.Connection, seeds: int) -> None:
    """A worker: models in, outcomes out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        path = pipe.recv()
        if path is None:
            return
        try:
            outcome = examine(path, seeds, lambda stage: pipe.send(("stage", stage)))
        except MemoryError:
            outcome = Outcome(str(path), "refused there", "more memory than the limit")
        pipe.send(("done", outcome))


class Worker:
    """A process that examines one model after the other, and is replaced when a model ends it."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self.process: Any = None

    def examine(self, path: Path) -> Outcome:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=work, args=(theirs, self.seeds), daemon=True)
            self.process.start()
            theirs.close()
        stage, deadline, sent = "onnxruntime", time.monotonic() + SECONDS, False
        while True:
            try:
                if not sent:
                    self.pipe.send(path)
                    sent = True
                if not self.pipe.poll(max(0.0, deadline - time.monotonic())):
                    self.stop()
                    return Outcome(str(path), "timeout" if stage == "sardonyx" else "refused there", f"{SECONDS} s in {stage}")
                kind, content = self.pipe.recv()
            except (EOFError, OSError):
                self.process.join()
                code = self.process.exitcode
                self.stop()
                return Outcome(str(path), "crash" if stage == "sardonyx" else "refused there", f"exit code {code} in {stage}")
            if kind == "done":
                return content  # type: ignore[no-any-return]
            stage = content

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def examine_all(paths: Sequence[Path], jobs: int, seeds: int) -> list[Outcome]:
    """All outcomes, in the order of the paths."""
    outcomes: dict[Path, Outcome] = {}
    waiting = collections.deque(paths)

    def walk() -> None:
        worker = Worker(seeds)
        while waiting:
            try:
                path = waiting.popleft()
            except IndexError:
                break
            outcomes[path] = worker.examine(path)
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)} of {len(paths)}", end="", file=sys.stderr, flush=True)
        worker.stop()

    threads = [threading.Thread(target=walk) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcomes[path] for path in paths]


def reason_group(reason: str) -> str:
    """A reason without the names and numbers that belong to one model."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "…", reason)[:110]


def print_table(outcomes: Sequence[Outcome], folder: Path, all_of_them: bool) -> float:
    """The counts, the reasons by frequency, and the share of models that agree."""
    counts = collections.Counter(outcome.verdict for outcome in outcomes)
    for verdict in VERDICTS:
        members = [outcome for outcome in outcomes if outcome.verdict == verdict and outcome.reason]
        if not members or (verdict == "refused there" and not all_of_them):
            continue
        print(f"\n{verdict}: {len(members)}")
        groups: dict[str, list[Outcome]] = {}
        for outcome in members:
            groups.setdefault(reason_group(outcome.reason), []).append(outcome)
        for group in sorted(groups.values(), key=len, reverse=True):
            for outcome in group:
                print(f"  {Path(outcome.model).relative_to(folder)}: {outcome.reason}")
    compared = sum(counts[verdict] for verdict in COMPARED)
    share = 100.0 * counts["same"] / compared if compared else 0.0
    print("\n" + ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS))
    print(f"{counts['same']} of {compared} models that onnxruntime runs are the same: {share:.1f} %")
    return share


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="only models whose path contains this text")
    parser.add_argument("--seeds", type=int, default=1, help="how many different feeds a model gets")
    parser.add_argument("--list", action="store_true", help="list those that onnxruntime refuses, too")
    parser.add_argument("--least", type=float, default=97.0, help="percentage below which the exit code is 1")
    arguments = parser.parse_args()
    paths = sorted(path for path in arguments.folder.rglob("*.onnx") if arguments.only in str(path))
    outcomes = examine_all(paths, arguments.jobs, arguments.seeds)
    return int(print_table(outcomes, arguments.folder, arguments.list) < arguments.least)


if __name__ == "__main__":
    sys.exit(main())
