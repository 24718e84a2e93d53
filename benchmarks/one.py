"""Measures one model in a process of its own: prints a JSON object. `python -m benchmarks` starts it for every model."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.memory import varied
from benchmarks.models.catalog import CASES, Case, Unavailable
from sardonyx import InferenceSession, benchmarking
from sardonyx.benchmarking import OURS

PEER: Final = "onnxruntime"
SPEEDUP: Final = ("resnet50", "bert_base")  # two threads over one
CALLERS: Final = ("mobilenet_v2",)  # four threads of Python on one session
START: Final = ("mlp",)  # import, session and first run in a fresh process
SHAPES: Final = ("minilm_l6", "ppocr_det")  # memory after many random shapes
TOP_STEPS: Final = 8
RUNS: Final = 3  # in the processes whose memory is measured


def measure(case: Case, folder: Path, settings: argparse.Namespace) -> dict[str, Any]:
    """Everything about one model that was asked for."""
    try:
        model, feeds = case.prepare(folder)
    except Unavailable as error:
        return {**case.facts(), "error": str(error)}
    peers = tuple(filter(None, settings.peers.split(",")))
    for peer, suffix in (("torch", ".pt"), ("torch.compile", ".pt2")):
        if peer in peers and case.program is not None:  # anew each time: other cases share the model, at other sizes
            _guarded(partial(_save_program, case, folder, model.with_suffix(suffix)))  # if that fails, it is listed with an error
    comparison = benchmarking.compare(model, feeds, peers=peers, threads=settings.threads, seconds=settings.seconds)
    record: dict[str, Any] = {**case.facts(), "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
    record["engines"] = {engine.name: _plain(dataclasses.asdict(engine)) for engine in comparison.engines}
    record["ratio"] = {
        peer: {which: comparison.ratio(peer, which) for which in ("best", "median")}
        for peer in peers
        if comparison.ratio(peer) is not None
    }
    record["exact"] = _guarded(lambda: _unoptimised_difference(case, model, feeds, settings.threads))
    if settings.reference:
        record["reference"] = _guarded(lambda: _reference_difference(case, model, feeds, settings.threads))
    if settings.steps:
        record["steps"] = _steps(model, feeds, settings.threads)
    if settings.fresh:
        record["fresh"] = _fresh(case, model, feeds, settings.threads)
    if settings.scaling:
        record["scaling"] = _scaling(case, model, feeds, settings.seconds)
    return record


def _save_program(case: Case, folder: Path, path: Path) -> None:
    """Write the program that PyTorch itself runs: a trace, or an export for its compiler."""
    assert case.program is not None
    torch = importlib.import_module("torch")
    network, feeds = case.program(folder)
    with torch.no_grad():
        arguments = tuple(torch.from_numpy(value) for value in feeds.values())
        if path.suffix == ".pt":
            torch.jit.trace(network, arguments, check_trace=False).save(str(path))
        else:
            torch.export.save(torch.export.export(network, arguments, strict=False), str(path))


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value not in (None, "") and key != "name"}


def _guarded(work: Callable[[], Any]) -> Any:
    """The result, or what went wrong: one figure that cannot be had must not cost the others."""
    try:
        return work()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}


def _unoptimised_difference(case: Case, model: Path, feeds: Mapping[str, Any], threads: int) -> float | None:
    """How far our answers are from those of onnxruntime without optimisations, as a share of the largest number in each."""
    if not benchmarking.is_installed(PEER):
        return None
    runtime = importlib.import_module(PEER)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]).run(None, dict(feeds))
    return case.difference(benchmarking.open_engine(OURS, model, threads).run(feeds), theirs)


def _reference_difference(case: Case, model: Path, feeds: Mapping[str, Any], threads: int) -> float:
    """How far our answers are from those of the NumPy definitions, as a share of the largest number in each."""
    definitions = InferenceSession(model, providers=["SardonyxReferenceExecutionProvider"])
    ours = benchmarking.open_engine(OURS, model, threads)
    return case.difference(ours.run(feeds), definitions.run(None, feeds))


def _steps(model: Path, feeds: Mapping[str, Any], threads: int) -> Any:
    def work() -> dict[str, Any]:
        times = benchmarking.step_times(model, feeds, threads)
        host = [step for step in times if step.host]
        by_operator: dict[str, list[float]] = {}
        for step in host:
            by_operator.setdefault(step.operator, []).append(step.seconds)
        return {
            "kernels": sum(step.calls for step in times if not step.host),
            "host": sum(step.calls for step in host),
            "native_seconds": sum(step.seconds for step in times if not step.host),
            "host_seconds": sum(step.seconds for step in host),
            "host_operators": sorted(
                ([name, len(each), sum(each)] for name, each in by_operator.items()), key=lambda row: -float(str(row[2]))
            )[:TOP_STEPS],
            "slowest_kernels": [[step.label, step.calls, step.seconds] for step in times if not step.host][:TOP_STEPS],
        }

    return _guarded(work)


def _fresh(case: Case, model: Path, feeds: Mapping[str, Any], threads: int) -> dict[str, Any]:
    engines = (OURS, PEER) if benchmarking.is_installed(PEER) else (OURS,)

    def figures(engine: str) -> dict[str, Any]:
        opening = partial(benchmarking.creation, engine, model, feeds, threads, attempts=2, runs=RUNS, warm_up=False)
        created = _guarded(lambda: dataclasses.asdict(opening()))
        record: dict[str, Any] = {"creation": created, "peak_bytes": created.get("peak")}
        if case.name in START:
            record["start"] = _guarded(lambda: dataclasses.asdict(benchmarking.fresh_start(engine, model, feeds, threads)))
        if case.name in SHAPES:
            record["shapes"] = _guarded(lambda: benchmarking.shapes_memory(engine, model, varied(case.name, feeds), threads))
        return record

    return {engine: figures(engine) for engine in engines}


def _scaling(case: Case, model: Path, feeds: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    record: dict[str, Any] = {}
    engines = [engine for engine in (OURS, PEER) if engine == OURS or benchmarking.is_installed(engine)]
    if case.name in SPEEDUP:
        for engine in engines:
            opened = {str(count): benchmarking.open_engine(engine, model, count) for count in (1, 2)}
            timings = benchmarking.interleave({name: partial(each.run, feeds) for name, each in opened.items()}, seconds)
            record.setdefault("two_threads_over_one", {})[engine] = timings["1"].best / timings["2"].best
    if case.name in CALLERS:
        for engine in engines:
            run = partial(benchmarking.open_engine(engine, model, 2).run, feeds)
            run()
            one, four = (benchmarking.throughput(run, count, seconds) for count in (1, 4))
            record.setdefault("four_callers_over_one", {})[engine] = four / one
    return record


def make_parser() -> argparse.ArgumentParser:
    """The arguments that say what is measured; `python -m benchmarks` has them, too."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"), help="where exported models are kept")
    parser.add_argument("--peers", default=PEER, help="engines to compare with: onnxruntime,openvino,torch,torch.compile")
    parser.add_argument("--threads", type=int, default=2, help="for every engine (default 2)")
    parser.add_argument("--seconds", type=float, default=2.5, help="of timing for each model (default 2.5)")
    parser.add_argument("--reference", action=argparse.BooleanOptionalAction, help="compare with the NumPy definitions, too")
    parser.add_argument("--no-fresh", dest="fresh", action="store_false", help="leave memory and start times out")
    parser.add_argument("--no-scaling", dest="scaling", action="store_false", help="leave thread scaling out")
    parser.add_argument("--no-steps", dest="steps", action="store_false", help="leave the times of single steps out")
    return parser


def main() -> None:
    """Measure the model that is named."""
    parser = argparse.ArgumentParser(parents=[make_parser()])
    parser.add_argument("name", choices=CASES)
    settings = parser.parse_args()
    print(json.dumps(measure(CASES[settings.name], settings.cache, settings)))


if __name__ == "__main__":
    main()
