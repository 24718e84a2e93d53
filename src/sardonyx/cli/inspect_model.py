"""`sardonyx inspect`: what a model is made of."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import sardonyx
from sardonyx.cli.progress import Progress
from sardonyx.cli.tables import byte_size, columns, counted

PROBLEMS_SHOWN = 10
DOC_SHOWN = 300  # characters of descriptions and metadata values; --json has them whole


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "inspect",
        parents=[shared],
        help="show what a model is made of",
        description="Show a model's inputs, outputs, opsets, weights and operators, without running it.",
    )
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("--json", action="store_true", help="the same as one JSON object")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Print the summary of one model."""
    with Progress(None, f"reading {Path(args.model).name}"):
        summary = sardonyx.summarize_model(args.model)
    if args.json:
        print(json.dumps(dataclasses.asdict(summary), indent=2))
    else:
        print("\n".join(_lines(summary)))
    return 0


def _lines(summary: sardonyx.ModelSummary) -> Iterator[str]:
    size = "" if summary.file_bytes is None else f"  ({byte_size(summary.file_bytes)})"
    yield f"{summary.path or summary.name}{size}"
    if summary.doc:
        yield f"  {_short(summary.doc)}"
    yield ""
    opsets = ", ".join(f"{domain} {version}" for domain, version in summary.opsets.items())
    facts = [
        ("graph", summary.name),
        ("producer", summary.producer),
        ("domain", summary.domain),
        ("version", str(summary.model_version) if summary.model_version else ""),
        ("IR version", str(summary.ir_version)),
        ("opsets", opsets),
        *((f"[{key}]", _short(value)) for key, value in summary.metadata.items()),
    ]
    yield from columns([fact for fact in facts if fact[1]], fit=True)
    for title, ports in (("inputs", summary.inputs), ("overridable inputs", summary.overridable), ("outputs", summary.outputs)):
        if ports:
            yield from ("", f"{title}:")
            yield from columns([(port.name, port.type, _short(port.doc)) for port in ports], fit=True)
    yield from _weight_lines(summary)
    yield from _operator_lines(summary)
    if summary.problems:
        yield from (
            "",
            f"the graph is broken ({counted(len(summary.problems), 'problem')}; `sardonyx check` lists all there are):",
        )
        yield from (f"  {problem}" for problem in summary.problems[:PROBLEMS_SHOWN])
        if len(summary.problems) > PROBLEMS_SHOWN:
            yield f"  ... and {counted(len(summary.problems) - PROBLEMS_SHOWN, 'more problem')}"


def _weight_lines(summary: sardonyx.ModelSummary) -> Iterator[str]:
    by_type = ", ".join(f"{elements:,} {name}" for name, elements in summary.weights_by_type.items())
    kinds = f" ({by_type})" if by_type else ""
    yield from ("", f"weights: {counted(summary.parameters, 'parameter')}{kinds}, {byte_size(summary.weight_bytes)}")
    if summary.largest_weights:
        yield from columns([(weight.name, weight.type, byte_size(weight.bytes)) for weight in summary.largest_weights], fit=True)


def _operator_lines(summary: sardonyx.ModelSummary) -> Iterator[str]:
    parts = [counted(summary.nodes, "node")]
    if summary.subgraphs:
        parts.append(counted(summary.subgraphs, "subgraph"))
    if summary.functions:
        parts.append(counted(len(summary.functions), "function"))
    yield from ("", f"operators: {', '.join(parts)}")
    yield from columns(
        [
            (
                use.count,
                use.name if use.domain == "ai.onnx" else f"{use.domain}::{use.name}",
                use.version or "?",
                use.execution,
            )
            for use in summary.operators
        ],
        header=("count", "operator", "opset", "runs as"),
        fit=True,
    )
    if any(use.execution == "host" for use in summary.operators):
        yield "  host: in Python, by its NumPy definition; `sardonyx explain` says it of each node"
    missing = [use.name for use in summary.operators if use.execution == "missing"]
    if missing:
        yield f"  not available: {', '.join(missing)}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= DOC_SHOWN else f"{flat[:DOC_SHOWN]}... ({len(flat):,} characters)"
