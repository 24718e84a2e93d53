"""What a run reports about one node, to a profile or a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True)
class NodeTiming:
    """What a run reports about one node: times are from `time.perf_counter_ns`."""

    label: str
    op_type: str
    name: str
    provider: str
    start_ns: int
    end_ns: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    facts: Mapping[str, str] = field(default_factory=dict)  # of a kernel: its kind, the nodes in it, bytes, operations
