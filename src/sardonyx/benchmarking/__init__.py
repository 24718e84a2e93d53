"""Measures Sardonyx against other engines on one model: `sardonyx bench` and `make bench` rest on this.

    comparison = compare("model.onnx", feeds, peers=("onnxruntime",), threads=2, seconds=5.0)
    comparison.ratio("onnxruntime")     # their best time over ours: above 1 we are faster

All engines live in one process and take turns, so that whatever slows the machine down slows all of them; the best time of many
runs is what the machine can do, the median what it does. Memory and start are measured in fresh processes.
"""

from __future__ import annotations

from sardonyx.benchmarking.callers import CallersResult, compare_callers, throughput
from sardonyx.benchmarking.comparing import Comparison, EngineResult, compare, largest_difference
from sardonyx.benchmarking.engines import OURS, PEERS, Engine, EngineUnavailable, is_installed, open_engine
from sardonyx.benchmarking.fresh import Creation, FreshStart, creation, fresh_start, peak_memory, shapes_memory
from sardonyx.benchmarking.machine import machine_facts
from sardonyx.benchmarking.steps import StepTime, step_times
from sardonyx.benchmarking.timing import Timing, interleave

__all__ = [
    "OURS",
    "PEERS",
    "CallersResult",
    "Comparison",
    "Creation",
    "Engine",
    "EngineResult",
    "EngineUnavailable",
    "FreshStart",
    "StepTime",
    "Timing",
    "compare",
    "compare_callers",
    "creation",
    "fresh_start",
    "interleave",
    "is_installed",
    "largest_difference",
    "machine_facts",
    "open_engine",
    "peak_memory",
    "shapes_memory",
    "step_times",
    "throughput",
]
