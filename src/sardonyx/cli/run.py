"""`sardonyx run`: run a model and say what came out."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sardonyx
from sardonyx.cli.demo import answer, demo_files, picture_lines
from sardonyx.cli.feeds import gather_feeds
from sardonyx.cli.progress import CountingRunOptions, Progress, is_watched
from sardonyx.cli.results import class_lines, describe, save
from sardonyx.cli.tables import columns, counted, duration
from sardonyx.cli.usage import UsageError


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "run",
        parents=[shared],
        help="run a model",
        description="Run a model once or several times and describe its outputs. Inputs that are not given are made up.",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "--demo", action="store_true", help="run the model that ships with Sardonyx on the picture that ships with it"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a .npy, .npz or .pb file, or a JSON literal (repeatable)",
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1x3x8x8",
        help="shape of a made-up input, or size of a named dimension",
    )
    parser.add_argument("--output", metavar="DIR", help="write each output into this folder, as .npy")
    parser.add_argument(
        "--fetch", action="append", default=[], metavar="NAME", help="an output or intermediate value (default: all outputs)"
    )
    parser.add_argument("--repeat", type=_positive, default=1, metavar="N", help="run N times and say how long it takes")
    parser.add_argument("--seed", type=int, default=0, help="of made-up inputs (default 0)")
    parser.add_argument(
        "--labels", metavar="FILE", help="class names, one a line or a JSON list; default: the model's metadata entry 'labels'"
    )
    parser.add_argument("--top", type=_positive, default=5, metavar="K", help="how many classes to show (default 5)")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Load, feed, run, report."""
    if args.demo == bool(args.model):
        raise UsageError("give either a MODEL or --demo", "`sardonyx run --demo` runs the model that ships with Sardonyx")
    model, picture = demo_files() if args.demo else (Path(args.model), None)
    inputs = [f"image={picture}", *args.input] if picture else args.input

    start = time.perf_counter()
    session = sardonyx.InferenceSession(model)
    loaded = time.perf_counter() - start
    given, made_up = gather_feeds(session, inputs, args.shape, args.seed)
    feeds = {**given, **made_up}
    names = args.fetch or [output.name for output in session.get_outputs()]
    labels = _labels(args.labels, session)

    try:
        results, seconds = _repeat(session, model, names, feeds, args.repeat)
    except sardonyx.SardonyxError as error:
        if made_up and not error.hint:
            error.hint = f"{_made_up_text(made_up)}; --shape or --input may give something that fits"
        raise
    if picture:
        print("\n".join(["The picture:", *picture_lines(feeds["image"]), ""]))
    print(f"{model.name}: loaded in {duration(loaded)}, {_timing(seconds)}")
    if made_up:
        print(_made_up_text(made_up))
    rows = [describe(name, value) for name, value in zip(names, results)]
    print("\n".join(columns(rows)))
    for name, value in zip(names, results):
        lines = list(class_lines(value, labels, args.top))
        if lines:
            print("\n".join([f"most likely by {name}:", *lines]))
    if args.output:
        _save_all(Path(args.output), names, results)
    if picture:
        print(f"\n{answer(results[0], labels)}")
    return 0


def _made_up_text(made_up: dict[str, Any]) -> str:
    described = (describe(name, value) for name, value in made_up.items())
    return f"made-up input: {', '.join(' '.join(row[:3]) for row in described)}"


def _repeat(
    session: sardonyx.InferenceSession, model: Path, names: Sequence[str], feeds: dict[str, Any], times: int
) -> tuple[list[Any], list[float]]:
    """The results of the last run, and how long each run took."""
    if times == 1 and is_watched():
        return _run_watched(session, sardonyx.summarize_model(model).nodes, names, feeds)
    seconds = []
    with Progress(times, "runs") as progress:
        for _ in range(times):
            start = time.perf_counter()
            results = session.run(names, feeds)
            seconds.append(time.perf_counter() - start)
            progress.advance()
    return results, seconds


def _run_watched(
    session: sardonyx.InferenceSession, nodes: int, names: Sequence[str], feeds: dict[str, Any]
) -> tuple[list[Any], list[float]]:
    """One run, its nodes counted."""
    with Progress(nodes, "nodes") as progress:
        start = time.perf_counter()
        results = session.run(names, feeds, CountingRunOptions(progress))
        return results, [time.perf_counter() - start]


def _timing(seconds: Sequence[float]) -> str:
    if len(seconds) == 1:
        return f"ran in {duration(seconds[0])}"
    middle = duration(statistics.median(seconds))
    return f"{counted(len(seconds), 'run')}: median {middle}, fastest {duration(min(seconds))}, slowest {duration(max(seconds))}"


def _labels(path: str | None, session: sardonyx.InferenceSession) -> list[str]:
    if path is None:
        text = session.get_modelmeta().custom_metadata_map.get("labels", "")
    else:
        text = Path(path).read_text("utf-8")
    try:
        listed = json.loads(text)
    except json.JSONDecodeError:
        listed = text.splitlines()
    if isinstance(listed, dict):
        listed = list(listed.values())
    return [str(label) for label in listed] if isinstance(listed, list) else []


def _save_all(folder: Path, names: Sequence[str], results: Sequence[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for name, value in zip(names, results) for file in save(folder, name, value)]
    print(f"wrote {', '.join(map(str, files))}")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)
