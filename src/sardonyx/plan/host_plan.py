"""Plans without a native step: every node is computed by Python.

    y = Neg(x); z = Exp(y)   =>   segments: call Neg (value 0 -> 1), call Exp (value 1 -> 2)

They have the form of every plan (see `program.segments`), so the same `Executable` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.mapped_file import aligned_array
from sardonyx.plan.native import NativePlan, plan_native
from sardonyx.program.steps import HostNodeStep, Lowered

Order = Callable[[Graph], Sequence[Node]]


def host_plan(nodes: Sequence[Node]) -> NativePlan:
    """A plan in which Python computes these nodes, in this order."""
    steps = [HostNodeStep(node, (None,) * len(node.inputs), (None,) * len(node.outputs), (), ()) for node in nodes]
    return plan_native(Lowered(steps=[*steps]))


class HostConstants:
    """The constants that only Python reads, by number; an array is made when it is first needed, then kept."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = values
        self._arrays: list[Any] = [None] * len(values)

    def __call__(self, number: int) -> Any:
        found = self._arrays[number]
        if found is None:
            found = self._arrays[number] = constant_array(self._values[number])
        return found


def constant_array(value: Value) -> np.ndarray[Any, Any]:
    """The data of a constant, read-only: a result that shares its memory is copied before it leaves a program."""
    if value.constant is None:
        raise KeyError(f"{value.name!r} is not a constant")
    return aligned_array(value.constant.numpy())
