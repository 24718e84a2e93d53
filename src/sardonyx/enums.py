"""ONNX Runtime's enumerations of what options can be.

They are made when somebody names one: making them takes longer than running a small model.
"""

from __future__ import annotations

import enum


class OrtEnum(enum.IntEnum):
    """An enumeration that prints as ONNX Runtime's do: with its class and member name."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class GraphOptimizationLevel(OrtEnum):
    """How much a graph is rewritten before it runs."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(OrtEnum):
    """Whether branches of a graph may run at the same time."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(OrtEnum):
    """The rule by which nodes are put in order."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtExecutionProviderDevicePolicy(OrtEnum):
    """Which kind of device to prefer when providers are chosen automatically."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6
