"""`sardonyx explain`: how a model is compiled, node by node."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import sardonyx
from sardonyx.cli.feeds import parse_shape
from sardonyx.cli.memory_chart import memory_chart
from sardonyx.cli.progress import Progress
from sardonyx.cli.tables import byte_size, columns, counted, cut, duration, terminal_width
from sardonyx.cli.usage import UsageError

PLACEMENTS = {"kernel": "in kernels", "host": "in Python", "view": "as views of their inputs", "known": "known before a run"}
SHOWN_BUFFERS = 12
TIMELINE = 64  # characters
HEIGHT = 6  # lines of the picture of live memory
MARKS = " .:-=+*#"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "explain",
        parents=[shared],
        help="show how a model is compiled",
        description="Compile a model and show which kernel holds which node, what runs in Python and why, which nodes could not "
        "be fused, and how memory is planned.",
    )
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1x3x8x8",
        help="shape of an input, or size of a named dimension, for work and memory (default: what fits the model)",
    )
    parser.add_argument(
        "--memory", action="store_true", help="show the memory in use from step to step, for each execution order, and the peaks"
    )
    parser.add_argument("--picture", metavar="FILE.svg", help="with --memory: draw it to a file")
    parser.add_argument("--json", action="store_true", help="the same as one JSON object")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation of one model."""
    if args.picture and not args.memory:
        raise UsageError("--picture is for --memory")
    if args.memory:
        return _run_memory(args)
    with Progress(None, f"compiling {Path(args.model).name}"):
        explanation = sardonyx.explain_model(args.model, dict(map(parse_shape, args.shape)))
    if args.json:
        print(json.dumps({**dataclasses.asdict(explanation), "host_steps": explanation.host_steps}, indent=2))
    else:
        print("\n".join(_lines(explanation)))
    return 0


def _run_memory(args: argparse.Namespace) -> int:
    """Print, and draw, the memory of each execution order."""
    name = Path(args.model).name
    with Progress(None, f"planning {name}"):
        found = sardonyx.explain_memory(args.model, dict(map(parse_shape, args.shape)))
    if args.picture:
        Path(args.picture).write_text(memory_chart(name, found), "utf-8")
    if args.json:
        print(json.dumps([dataclasses.asdict(each) for each in found], indent=2))
        return 0
    print(f"{name}: planned memory by execution order")
    least = min(each.arena_bytes for each in found)
    share = (f"{100 * each.arena_bytes / max(least, 1):.0f}%" for each in found)
    rows = [(each.order, byte_size(each.arena_bytes), part, len(each.live)) for each, part in zip(found, share)]
    print("\n".join(columns(rows, header=("order", "peak", "of the least", "steps"), fit=True)))
    top = max((max(each.live, default=0) for each in found), default=0)
    for each in found:
        width = min(TIMELINE, len(each.live))
        if not width:
            continue
        print(f"\n  {each.order}, step 0 to {len(each.live) - 1}; full height: {byte_size(top)}")
        print("\n".join(f"  |{line}|" for line in live_lines(each.live, width, top)))
    if args.picture:
        print(f"\ndrawn to {args.picture}")
    return 0


def _lines(explanation: sardonyx.Explanation) -> Iterator[str]:
    yield from _summary_lines(explanation)
    yield from _pass_lines(explanation)
    yield from ("", "nodes:")
    rows = [
        (node.label, _placement_text(node.placement, node.steps), node.kernel, ", ".join(node.passes), node.reason)
        for node in explanation.nodes
    ]
    yield from columns(rows, header=("node", "step", "kernel", "made or changed by", "note"), fit=True) if rows else ("  none",)
    yield from ("", "steps (work is estimated, on one core):")
    yield from (
        columns(
            [
                (
                    step.number,
                    step.kind,
                    step.label,
                    "?" if step.work_ns is None else duration(step.work_ns / 1e9),
                    "?" if step.units is None else step.units,
                    "threads" if step.parallel else "",
                    _bytes(step.read_bytes),
                    _bytes(step.written_bytes),
                )
                if step.kind != "host"
                else (step.number, "host", step.nodes[0], "", "", "", _bytes(step.read_bytes), _bytes(step.written_bytes))
                for step in explanation.steps
            ],
            header=("step", "kind", "label", "work", "units", "", "reads", "writes"),
            fit=True,
        )
        if explanation.steps
        else ("  none",)
    )
    yield from _memory_lines(explanation)


def _summary_lines(explanation: sardonyx.Explanation) -> Iterator[str]:
    placed: Counter[str] = Counter(node.placement for node in explanation.nodes)
    where = ", ".join(f"{placed[placement]} {text}" for placement, text in PLACEMENTS.items() if placed[placement])
    kernels = len(explanation.steps) - explanation.host_steps
    yield f"{explanation.name}: {counted(len(explanation.nodes), 'node')}{f' ({where})' if where else ''}"
    yield f"{counted(kernels, 'kernel step')}, {counted(explanation.host_steps, 'host step')}"
    if len(explanation.segments) > 1:
        yield f"segments: {', '.join(explanation.segments)}"
    if explanation.sizes:
        yield f"sizes: {', '.join(f'{name} = {size}' for name, size in explanation.sizes.items())}"
    reasons = Counter((node.operator, node.reason) for node in explanation.nodes if node.placement == "host")
    if reasons:
        yield from ("", "in Python:")
        yield from columns([(count, operator, reason) for (operator, reason), count in reasons.most_common()], fit=True)


def _pass_lines(explanation: sardonyx.Explanation) -> Iterator[str]:
    described = [each for each in explanation.passes if each.changes or each.reasons]
    if described:
        yield from ("", "passes:")
        for each in described:
            gone = f", {counted(len(each.removed), 'node')} gone" if each.removed else ""
            yield f"  {each.name}: {counted(each.changes, 'change')}{gone}"
            yield from (cut(f"    left as it is: {reason}", terminal_width()) for reason in each.reasons)


def _placement_text(placement: str, steps: Sequence[int]) -> str:
    if not steps:
        return {"view": "view", "known": "known"}.get(placement, "")
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"


def _bytes(count: int | None) -> str:
    return "?" if count is None else byte_size(count)


def _memory_lines(explanation: sardonyx.Explanation) -> Iterator[str]:
    memory = explanation.memory
    yield from ("", "memory:")
    yield from columns(
        [
            ("arena", f"{byte_size(memory.arena_bytes)} (no plan needs less than {byte_size(memory.lower_bound_bytes)})"),
            ("without sharing", byte_size(memory.unshared_bytes)),
            ("constants", byte_size(memory.constant_bytes)),
            ("in place", counted(memory.in_place, "result")),
            *([("sized at run time", counted(memory.unplanned, "buffer"))] if memory.unplanned else []),
        ],
        fit=True,
    )
    if not memory.buffers or not explanation.steps:
        return
    width = min(TIMELINE, len(explanation.steps))
    yield from ("", f"  live memory, step 0 to {len(explanation.steps) - 1}:")
    yield from (f"  |{line}|" for line in live_picture(explanation, width))
    yield from ("", "  largest buffers, and when they live:")
    shown = memory.buffers[:SHOWN_BUFFERS]
    yield from columns(
        [
            (f"|{_bar(each.first, each.last, len(explanation.steps), width)}|", byte_size(each.bytes), each.label)
            for each in shown
        ],
        fit=True,
    )
    if len(memory.buffers) > len(shown):
        yield f"  ... and {counted(len(memory.buffers) - len(shown), 'more buffer')}"


def live_picture(explanation: sardonyx.Explanation, width: int) -> list[str]:
    """How much of the arena is in use, from the first step to the last, as lines of text."""
    count = len(explanation.steps)
    live = [0] * count
    for buffer in explanation.memory.buffers:
        for step in range(buffer.first, min(buffer.last, count - 1) + 1):
            live[step] += buffer.bytes
    return live_lines(live, width, max(live))


def live_lines(live: Sequence[int], width: int, top: int) -> list[str]:
    """Numbers, one a step, as lines of text of some width, whose full height is `top`."""
    count, top = len(live), top or 1
    most = [max(live[at * count // width : max((at + 1) * count // width, at * count // width + 1)]) for at in range(width)]
    levels = [round(value / top * HEIGHT * (len(MARKS) - 1)) for value in most]
    full = len(MARKS) - 1
    return ["".join(MARKS[max(0, min(full, level - line * full))] for level in levels) for line in reversed(range(HEIGHT))]


def _bar(first: int, last: int, count: int, width: int) -> str:
    start, end = first * width // count, last * width // count
    return "".join("#" if start <= at <= end else " " for at in range(width))
