"""`sardonyx simplify`: the same model with fewer nodes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import sardonyx
from sardonyx.cli.feeds import parse_shape
from sardonyx.cli.progress import Progress
from sardonyx.cli.tables import byte_size, columns, counted
from sardonyx.cli.usage import UsageError

LEVELS = ("disable", "basic", "extended", "layout", "all")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "simplify",
        parents=[shared],
        help="write the same model with fewer nodes",
        description="Fold constants, remove what does nothing, fuse, and write the result as a model again; then say what became "
        "of the nodes. ONNX Runtime and every other engine run what level basic writes; higher levels use operators of "
        "com.microsoft, too.",
    )
    parser.add_argument("model", metavar="MODEL", help="an .onnx or .ort file")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the file to write: .onnx, or .ort")
    parser.add_argument("--level", choices=LEVELS, default="basic", help="how far; default: basic")
    parser.add_argument("--external-data", metavar="NAME", help="put large weights into a file of this name beside the model")
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="fix a named dimension of the inputs; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="the table as one JSON object")
    parser.set_defaults(handler=run)


def session_options(dims: list[str]) -> sardonyx.SessionOptions:
    """Options that fix some dimensions, given as NAME=SIZE."""
    options = sardonyx.SessionOptions()
    for text in dims:
        name, sizes = parse_shape(text)
        if len(sizes) != 1:
            raise UsageError(f"--dim {text}: expected NAME=SIZE, with one size")
        options.add_free_dimension_override_by_name(name, sizes[0])
    return options


def run(args: argparse.Namespace) -> int:
    """Write the model, and print the table."""
    with Progress(None, f"simplifying {Path(args.model).name}"):
        done = sardonyx.simplify_model(
            args.model, args.output, level=args.level, external_data=args.external_data, options=session_options(args.dim)
        )
    if args.json:
        facts = {
            "path": str(done.path),
            "operators": {name: [before, after] for name, before, after in done.operators},
            "passes": dict(done.passes),
            "weight_bytes": list(done.weight_bytes),
        }
        print(json.dumps(facts, indent=2))
        return 0
    before, after = sum(done.before.values()), sum(done.after.values())
    print(f"{args.model}: {counted(before, 'node')} -> {after:,}, {' -> '.join(map(byte_size, done.weight_bytes))} of weights")
    rows = [(name, was, now, now - was or "") for name, was, now in done.operators]
    print("\n".join(columns(rows, header=("operator", "before", "after", "change"), fit=True)))
    if done.passes:
        print("\nwhat the passes did:")
        print("\n".join(columns([(count, name) for name, count in done.passes.items()])))
    print(f"\nwritten to {done.path} ({byte_size(done.path.stat().st_size)})")
    return 0
