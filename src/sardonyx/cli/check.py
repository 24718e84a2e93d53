"""`sardonyx check`: every problem of a model at once, by node."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import sardonyx
from sardonyx.cli.progress import Progress
from sardonyx.cli.tables import counted

COUNTED = ("error", "warning")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "check",
        parents=[shared],
        help="list all problems of models",
        description="List all problems of models; exit code 1 if one has errors.",
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="an .onnx file")
    parser.add_argument("--json", action="store_true", help="one JSON object per model")
    parser.add_argument("--quiet", action="store_true", help="errors only: no warnings, no remarks")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Check each model; a file that cannot be read counts as an error and does not stop the others."""
    failed = False
    for path in args.models:
        try:
            with Progress(None, f"checking {Path(path).name}"):
                problems = list(sardonyx.check_model(path))
        except sardonyx.SardonyxError as error:
            if args.debug:
                raise
            found = [{"severity": "error", "where": "", "text": error.message, "hint": error.hint}]
        else:
            found = [{"severity": each.severity, "where": each.where, "text": each.text, "hint": each.hint} for each in problems]
        if args.quiet:
            found = [problem for problem in found if problem["severity"] == "error"]
        counts = Counter(problem["severity"] for problem in found)
        failed = failed or counts["error"] > 0
        if args.json:
            print(json.dumps({"model": path, "problems": found}))
        else:
            _show(path, found, counts)
    return int(failed)


def _show(path: str, found: list[dict[str, str]], counts: Counter[str]) -> None:
    verdict = ", ".join(counted(counts[severity], severity) for severity in COUNTED if counts[severity])
    print(f"{path}: {verdict or 'no problems'}")
    for problem in found:
        where = f"{problem['where']}: " if problem["where"] else ""
        print(f"  {problem['severity']}: {where}{problem['text']}")
        if problem["hint"]:
            print(f"    hint: {problem['hint']}")
