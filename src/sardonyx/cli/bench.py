"""`sardonyx bench`: how fast a model runs, against other engines."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx
from sardonyx.cli.feeds import fit, given_feeds, given_shapes
from sardonyx.cli.progress import Progress
from sardonyx.cli.tables import byte_size, columns, counted, duration
from sardonyx.cli.usage import UsageError

PROBED = ("sardonyx", "onnxruntime")  # engines whose memory and start are measured
MISMATCH = 1e-3
MOST_SHOWN = 200  # characters of the description of inputs


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "bench",
        parents=[shared],
        help="measure a model against other engines",
        description="Time a model on Sardonyx and on other engines, taking turns in one process; memory and session creation are "
        "measured in fresh ones. Inputs that are not given are made up.",
    )
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "--peers",
        metavar="NAMES",
        help="onnxruntime, openvino, torch, separated by commas (default: onnxruntime, if it is installed)",
    )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="for every engine (default: each engine's own choice)"
    )
    parser.add_argument("--batch", metavar="N,M,...", help="batch sizes: the first dimension of inputs where it is free")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1x3x8x8",
        help="shape of a made-up input, or size of a named dimension",
    )
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE", help="as for `sardonyx run` (repeatable)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of timing for each batch size (default 5)")
    parser.add_argument(
        "--callers", type=int, default=0, metavar="N", help="also runs per second of N threads together, against one thread"
    )
    parser.add_argument("--quick", action="store_true", help="times only: no memory, no session creation")
    parser.add_argument("--seed", type=int, default=0, help="of made-up inputs (default 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object, with facts about the machine")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Measure each batch size and report; 1 if Sardonyx cannot run the model, or the engines disagree."""
    peers = _peers(args.peers)
    if args.callers < 0 or args.callers == 1:
        raise UsageError(f"--callers {args.callers}: expected 2 or more", "for example --callers 4")
    with Progress(None, f"opening {Path(args.model).name}"):
        session = sardonyx.InferenceSession(args.model)
    measured = []
    for batch in _batches(args.batch):
        with Progress(None, "making up inputs"):
            feeds = _feeds(session, args, batch)
        with Progress(None, f"timing {', '.join((sardonyx.benchmarking.OURS, *peers))} for {args.seconds:g} s"):
            comparison = sardonyx.benchmarking.compare(args.model, feeds, peers=peers, threads=args.threads, seconds=args.seconds)
        with Progress(None, "measuring memory and session creation in fresh processes"):
            fresh = {} if args.quick else _fresh(args, feeds, peers)
        with Progress(None, f"timing {args.callers} callers for {args.seconds:g} s"):
            callers = _callers(args, feeds, peers)
        measured.append((batch, feeds, comparison, fresh, callers))
        if not args.json:
            print("\n".join(_lines(args.model, batch, feeds, comparison, fresh)), flush=True)
            print("".join(line + "\n" for line in _callers_lines(args.callers, callers)), end="", flush=True)
    facts = {"model": args.model, "threads": args.threads, "machine": sardonyx.benchmarking.machine_facts()}
    if args.json:
        results = [_record(*each) for each in measured]
        print(json.dumps({**facts, "results": results}, indent=2))
    else:
        print("\n".join(_load_lines(facts["machine"])))
    return int(any(_is_wrong(comparison) for _, _, comparison, _, _ in measured))


def _load_lines(machine: dict[str, Any]) -> Iterator[str]:
    """How busy the machine was: times measured beside other work say little."""
    load, cores = machine["load"], machine["cores"]
    if load is not None:
        yield f"load in the last minute: {load:.2f} on {counted(cores, 'core')}, our own work included"


def _peers(text: str | None) -> tuple[str, ...]:
    known = tuple(sardonyx.benchmarking.PEERS)
    if text is None:
        return ("onnxruntime",) if sardonyx.benchmarking.is_installed("onnxruntime") else ()
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"there is no peer {unknown[0]!r}", f"known: {', '.join(known)}")
    return names


def _batches(text: str | None) -> list[int | None]:
    if text is None:
        return [None]
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"--batch {text!r} is not a list of positive numbers", "for example --batch 1,8,32")
    return [int(part) for part in parts]


def _feeds(session: sardonyx.InferenceSession, args: argparse.Namespace, batch: int | None) -> dict[str, Any]:
    given = given_feeds(session, args.input)
    shapes: dict[str, Sequence[int]] = dict(given_shapes(args.shape, given))

    def try_it(feeds: dict[str, Any]) -> None:
        session.run(None, feeds)

    fitted = fit(session, args.model, try_it, given, shapes, args.seed)
    if batch is None:
        return {**given, **fitted.feeds}
    free = [port for port in session.get_inputs() if port.name in fitted.feeds and _has_free_batch(port, fitted.feeds[port.name])]
    if not free:
        raise UsageError("--batch: no input has a free first dimension", "export the model with a dynamic batch dimension")
    shapes = {name: shape for name, shape in fitted.shapes.items() if shape}
    shapes.update({port.name: (batch, *fitted.feeds[port.name].shape[1:]) for port in free})
    return {**given, **fit(session, args.model, try_it, given, shapes, args.seed).feeds}


def _has_free_batch(port: sardonyx.NodeArg, value: Any) -> bool:
    return isinstance(value, np.ndarray) and bool(port.shape) and not isinstance(port.shape[0], int)


def _fresh(args: argparse.Namespace, feeds: dict[str, Any], peers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Memory and session creation of the engines that can be asked in a process of their own."""
    found: dict[str, dict[str, Any]] = {}
    for engine in PROBED:
        if engine == "sardonyx" or engine in peers:
            try:
                created = sardonyx.benchmarking.creation(engine, args.model, feeds, args.threads)
                peak = sardonyx.benchmarking.peak_memory(engine, args.model, feeds, args.threads)
            except sardonyx.SardonyxError as error:
                found[engine] = {"error": error.message}
                continue
            found[engine] = {"create_cold": created.cold, "create_warm": created.warm, "peak_bytes": peak}
    return found


def _lines(
    model: str, batch: int | None, feeds: dict[str, Any], comparison: Any, fresh: dict[str, dict[str, Any]]
) -> Iterator[str]:
    described = ", ".join(f"{name} {_shape(value)}" for name, value in feeds.items())
    cores = sardonyx.benchmarking.machine_facts(())["cores"]
    threads = (
        counted(comparison.threads, "thread") if comparison.threads else f"each engine's own threads ({counted(cores, 'core')})"
    )
    shown = described if len(described) <= MOST_SHOWN else f"{len(feeds)} inputs"
    yield f"{model}{f', batch {batch}' if batch else ''}, {threads}: {shown}"
    rows = []
    for engine in comparison.engines:
        if engine.timing is None:
            continue
        ratio = comparison.ratio(engine.name)
        extra = fresh.get(engine.name, {})
        rows.append(
            (
                engine.name,
                engine.version,
                duration(engine.timing.best),
                duration(engine.timing.median),
                engine.timing.runs,
                "" if engine.name == sardonyx.benchmarking.OURS or ratio is None else f"{ratio:.2f}x",
                "" if engine.difference is None else f"{engine.difference:.0e}",
                *(
                    (duration(extra["create_cold"]), duration(extra["create_warm"]), byte_size(extra["peak_bytes"]))
                    if "peak_bytes" in extra
                    else ("", "", "")
                ),
            )
        )
    header = ("engine", "version", "best", "median", "runs", "we are", "difference", "opens cold", "warm", "peak memory")
    kept = [at for at in range(len(header)) if any(row[at] != "" for row in rows)]
    yield from columns([[row[at] for at in kept] for row in rows], header=[header[at] for at in kept])
    for engine in comparison.engines:
        if engine.error:
            yield f"  {engine.name}: {engine.error}"
        elif engine.difference is not None and engine.difference > MISMATCH:
            yield f"  the answers of {engine.name} differ from ours"


def _callers(args: argparse.Namespace, feeds: dict[str, Any], peers: Sequence[str]) -> list[Any]:
    """Runs per second of one and of several callers, if that was asked for."""
    if not args.callers:
        return []
    return sardonyx.benchmarking.compare_callers(
        args.model, feeds, args.callers, peers=peers, threads=args.threads, seconds=args.seconds
    )


def _callers_lines(callers: int, results: Sequence[Any]) -> Iterator[str]:
    rows = [
        (each.name, f"{each.one:.1f}", f"{each.together:.1f}", f"{each.together / each.one:.2f}x")
        for each in results
        if not each.error
    ]
    if rows:
        yield "runs per second:"
        yield from columns(rows, header=("engine", "one caller", f"{callers} callers", "together"))


def _record(
    batch: int | None, feeds: dict[str, Any], comparison: Any, fresh: dict[str, dict[str, Any]], callers: Sequence[Any]
) -> dict[str, Any]:
    engines = {}
    together = {each.name: {"one_caller": each.one, "callers": each.together} for each in callers if not each.error}
    for engine in comparison.engines:
        record = {**dataclasses.asdict(engine), **fresh.get(engine.name, {}), **together.get(engine.name, {})}
        record["ratio_best"] = comparison.ratio(engine.name)
        record["ratio_median"] = comparison.ratio(engine.name, "median")
        engines[record.pop("name")] = record
    return {"batch": batch, "inputs": {name: _shape(value) for name, value in feeds.items()}, "engines": engines}


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{value.dtype.name} {'x'.join(map(str, shape)) or 'scalar'}"


def _is_wrong(comparison: Any) -> bool:
    ours = comparison.engine(sardonyx.benchmarking.OURS)
    differs = any(each.difference is not None and each.difference > MISMATCH for each in comparison.engines)
    return ours is None or bool(ours.error) or differs
