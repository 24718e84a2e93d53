"""Where a profile's time goes, as tables of text: `onnxruntime.transformers.profile_result_processor`.

python -m sardonyx.transformers.profile_result_processor --input PROFILE.json [--threshold 0.01]

Profiles are those of `SessionOptions.enable_profiling`, of Sardonyx and of ONNX Runtime. Times are microseconds.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

_NODES_TYPE_CONTAINING_SUBGRAPH: Final = frozenset(("Scan", "Loop", "If"))  # their time is that of the nodes inside
_PARTS: Final = ("_kernel_time", "_fence_before", "_fence_after")  # what ends the name of a node's event
_RULE: Final = "-" * 64
Event = dict[str, Any]


class _Times:
    """Durations by key, in the order in which keys came."""

    def __init__(self) -> None:
        self.total: defaultdict[str, int] = defaultdict(int)
        self.calls: defaultdict[str, int] = defaultdict(int)

    def add(self, key: str, duration: int) -> None:
        self.total[key] += duration
        self.calls[key] += 1

    def sum(self) -> int:
        return sum(self.total.values())

    def share(self, key: str) -> float:
        return 100.0 * self.total[key] / max(self.sum(), 1)

    def mean(self, key: str) -> float:
        return self.total[key] / self.calls[key]

    def dearest(self, threshold: float = 0) -> Iterator[str]:
        """Keys by their time, those with at least this part of all."""
        for key in sorted(self.total, key=self.total.__getitem__, reverse=True):
            if self.share(key) >= 100 * threshold:
                yield key


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(description="Where a profile's time goes.")
    parser.add_argument("-i", "--input", help="a profile")
    parser.add_argument("--threshold", type=float, default=0.01, help="least part of the time of what is listed as expensive")
    parser.add_argument("--provider", default="cuda", help="changes nothing: providers stand in the profile")
    parser.add_argument("--kernel_time_only", action="store_true", help="leave out the time between kernels")
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args(argv)


def load_profile_json(profile_file: str) -> list[Event]:
    """The events in a file."""
    with open(profile_file) as opened:
        events = json.load(opened)
    if not isinstance(events, list):
        raise ValueError(f"{profile_file} is no profile: expected a list of events, found {type(events).__name__}")
    return events


def _events(records: Iterable[Event], category: str) -> Iterator[tuple[Event, str]]:
    """Events of a category that took time, and the operator of each."""
    for event in records:
        operator = event.get("args", {}).get("op_name")
        is_known = operator is not None and operator not in _NODES_TYPE_CONTAINING_SUBGRAPH
        if event["cat"] == category and "dur" in event and is_known:
            yield event, operator


def _short(provider: str) -> str:
    return provider.replace("ExecutionProvider", "")


def parse_kernel_results(sess_time: Sequence[Event], threshold: float = 0) -> list[str]:
    """The kernels of a device that took longest, and the time by operator; profiles of CPUs have none."""
    start = next(
        (position for position, event in enumerate(sess_time) if event["name"] == "session_initialization"), len(sess_time)
    )
    kernels, operators = _Times(), _Times()
    for event, operator in _events(sess_time[start:], "Kernel"):
        kernels.add(event["name"], event["dur"])
        operators.add(operator or f"({event['name']})", event["dur"])
    if not kernels.total:
        return ["No kernel record found!"]
    lines = [f"\nTop expensive kernels with Time% >= {threshold * 100:.2f}:", _RULE, "Total(μs)\tTime%\tCalls\tAvg(μs)\tKernel"]
    for name in kernels.dearest(threshold):
        cells = f"{kernels.total[name]:10d}\t{kernels.share(name):5.2f}\t{kernels.calls[name]:5d}\t{kernels.mean(name):8.1f}"
        lines.append(f"{cells}\t{name}")
    lines += ["\nGroup kernel time by operator:", _RULE, "Total(μs)\tTime%\tOperator"]
    lines += [f"{operators.total[name]:10d}\t{operators.share(name):5.2f}\t{name}" for name in operators.dearest()]
    return lines


def parse_node_results(sess_time: Sequence[Event], kernel_time_only: bool = False, threshold: float = 0) -> list[str]:
    """Nodes in the order in which they ran, and those that took longest."""
    nodes, providers = _Times(), {}
    for event, _ in _events(sess_time, "Node"):
        provider = event["args"].get("provider")
        if provider is None and kernel_time_only:
            continue
        name = event["name"]
        for part in _PARTS:
            name = name.replace(part, "")
        nodes.add(name, event["dur"])
        if provider is not None:
            providers[name] = _short(provider)

    def cells(name: str) -> str:
        return f"{nodes.mean(name):8.1f}\t{nodes.calls[name]:5d}\t{providers.get(name, ''):8s}\t{name}"

    lines = ["\nNodes in the original order:", _RULE, "Total(μs)\tTime%\tAcc %\tAvg(μs)\tCalls\tProvider\tNode"]
    so_far = 0.0
    for name, total in nodes.total.items():
        so_far += nodes.share(name)
        lines.append(f"{total:10d}\t{nodes.share(name):5.2f}\t{so_far:5.2f}\t{cells(name)}")
    lines += [f"\nTop expensive nodes with Time% >= {threshold * 100:.2f}:", _RULE]
    lines.append("Total(μs)\tTime%\tAvg(μs)\tCalls\tProvider\tNode")
    lines += [f"{nodes.total[name]:10d}\t{nodes.share(name):5.2f}\t{cells(name)}" for name in nodes.dearest(threshold)]
    return lines


def group_node_results(sess_time: Sequence[Event]) -> list[str]:
    """The time by operator, and by provider and operator."""
    operators, fences = _Times(), _Times()
    by_provider: dict[str, _Times] = {}
    for event, operator in _events(sess_time, "Node"):
        provider = event["args"].get("provider")
        if provider is not None:
            operators.add(operator, event["dur"])
            by_provider.setdefault(provider, _Times()).add(operator, event["dur"])
        elif "fence" in event["name"]:
            fences.add(operator, event["dur"])
    whole = max(operators.sum() + fences.sum(), 1)
    lines = ["", "Grouped by operator", _RULE]
    lines.append("Total(μs)\tTime%\tKernel(μs)\tKernel%\tCalls\tAvgKernel(μs)\tFence(μs)\tOperator")
    for name in operators.dearest():
        kernel, fence = operators.total[name], fences.total.get(name, 0)
        lines.append(
            f"{kernel + fence:10d}\t{100.0 * (kernel + fence) / whole:5.2f}\t{kernel:11d}\t{operators.share(name):5.2f}\t"
            f"{operators.calls[name]:5d}\t{operators.mean(name):14.1f}\t{fence:10d}\t{name}"
        )
    lines += ["", "Grouped by provider + operator", _RULE, "Kernel(μs)\tProvider%\tCalls\tAvgKernel(μs)\tProvider\tOperator"]
    rows = [(times.total[name], provider, name) for provider, times in by_provider.items() for name in times.total]
    for total, provider, name in sorted(rows, key=lambda row: -row[0]):
        times = by_provider[provider]
        cells = f"{total:10d}\t{times.share(name):9.2f}\t{times.calls[name]:5d}\t{times.mean(name):14.1f}"
        lines.append(f"{cells}\t{_short(provider):8s}\t{name}")
    return lines


def process_results(profile_file: str, args: argparse.Namespace) -> list[str]:
    """All tables of a profile."""
    records = load_profile_json(profile_file)
    return [
        *parse_kernel_results(records, args.threshold),
        *parse_node_results(records, args.kernel_time_only, args.threshold),
        *group_node_results(records),
    ]


if __name__ == "__main__":
    arguments = parse_arguments()
    print(*process_results(arguments.input, arguments), sep="\n")
