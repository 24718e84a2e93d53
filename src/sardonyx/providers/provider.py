"""What an execution provider is: something that claims nodes and turns them into steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sardonyx.ir.graph import Node
from sardonyx.plan.plan import ExecutionPlan, HostStep


class Provider(Protocol):
    """One way to compute nodes. The first provider in a session's list that claims a node gets it."""

    @property
    def name(self) -> str:
        """The public name, as in `InferenceSession(providers=[name])`."""
        ...

    def claims(self, node: Node) -> bool:
        """Whether it can compute this node."""
        ...

    def step(self, node: Node, inputs: Sequence[int], outputs: Sequence[int], bodies: Mapping[str, ExecutionPlan]) -> HostStep:
        """The step that computes a claimed node; slots and compiled bodies of graph attributes are given."""
        ...
