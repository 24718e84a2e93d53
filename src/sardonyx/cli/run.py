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
from sardonyx.cli.feeds import COMPILED, fit, given_feeds, given_shapes, is_open, shape_options
from sardonyx.cli.progress import CountingRunOptions, Progress, is_watched
from sardonyx.cli.results import class_lines, describe, has_columns, save
from sardonyx.cli.tables import columns, counted, cut, duration, terminal_width
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
    with Progress(None, f"opening {model.name}"):
        session = sardonyx.InferenceSession(model)
    loaded = time.perf_counter() - start
    given = given_feeds(session, inputs)
    shapes = given_shapes(args.shape, given)
    names = args.fetch or [output.name for output in session.get_outputs()]
    labels = _labels(args.labels, session)

    fitted = fit(session, model, lambda feeds: _run_once(session, model, names, feeds), given, shapes, args.seed)
    (results, seconds), feeds = fitted.result, {**given, **fitted.feeds}
    if args.repeat > 1:  # what was run above has warmed up the threads, the memory and the processor
        results, seconds = _repeat(session, names, feeds, args.repeat)
    if args.labels and not any(has_columns(value, len(labels)) for value in results):
        shown = ", ".join(" ".join(describe(name, value)[:3]) for name, value in zip(names, results))
        raise UsageError(f"{args.labels} has {counted(len(labels), 'label')}, but no output has as many classes: {shown}")
    if picture:
        print("\n".join(["The picture:", *picture_lines(feeds["image"]), ""]))
    print(f"{model.name}: loaded in {duration(loaded)}, {_timing(seconds)}")
    if fitted.feeds:
        print(_made_up_text(fitted.feeds))
        if not shapes and is_open(session):
            print(cut(f"for other sizes: {shape_options(fitted.shapes)}", terminal_width()))
    print("\n".join(columns([describe(name, value) for name, value in zip(names, results)])))
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
    return cut(f"made-up input: {', '.join(' '.join(row[:3]) for row in described)}", terminal_width())


def _run_once(
    session: sardonyx.InferenceSession, model: Path, names: Sequence[str], feeds: dict[str, Any]
) -> tuple[list[Any], list[float]]:
    """The results of one run, and how long it took; a long one shows how far it is."""
    if not is_watched() or model.suffix == COMPILED:
        start = time.perf_counter()
        return session.run(names, feeds), [time.perf_counter() - start]
    with Progress(sardonyx.summarize_model(model).nodes, "nodes") as progress:
        start = time.perf_counter()
        results = session.run(names, feeds, CountingRunOptions(progress))
        return results, [time.perf_counter() - start]


def _repeat(
    session: sardonyx.InferenceSession, names: Sequence[str], feeds: dict[str, Any], times: int
) -> tuple[list[Any], list[float]]:
    """The results of the last run, and how long each run took."""
    seconds = []
    with Progress(times, "runs") as progress:
        for _ in range(times):
            start = time.perf_counter()
            results = session.run(names, feeds)
            seconds.append(time.perf_counter() - start)
            progress.advance()
    return results, seconds


def _timing(seconds: Sequence[float]) -> str:
    if len(seconds) == 1:
        return f"ran in {duration(seconds[0])}"
    middle = duration(statistics.median(seconds))
    return f"{counted(len(seconds), 'run')}: median {middle}, fastest {duration(min(seconds))}, slowest {duration(max(seconds))}"


def _labels(path: str | None, session: sardonyx.InferenceSession) -> list[str]:
    if path is None:
        text = session.get_modelmeta().custom_metadata_map.get("labels", "")
    else:
        try:
            text = Path(path).read_text("utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not a text file", "labels stand one a line, or in a JSON list") from None
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
