"""Rewritings that were found while a model was converted, and left for whoever loads it."""

from __future__ import annotations

from sardonyx.ir.graph import Node
from sardonyx.records import dataclass


@dataclass(frozen=True)
class SavedOptimisation:
    """Nodes that may be replaced by one, and how; the names are ONNX Runtime's.

    `nodes` are those that bring inputs, the one it is about, and those that take its outputs. None stands for an optional one
    that is not there, or for one that no longer exists.
    """

    optimiser: str
    action: str
    nodes: tuple[Node | None, ...]
    num_inputs: int
    num_outputs: int
    num_variadic_inputs: int = 0  # how many the last input stands for, if it takes several
    num_variadic_outputs: int = 0
    has_variadic_input: bool = False
    has_variadic_output: bool = False
    produced: tuple[str, ...] = ()  # identifiers of the operators it makes

    @property
    def input_count(self) -> int:
        """How many nodes stand in front of the one it is about."""
        return self.num_inputs + self.num_variadic_inputs - self.has_variadic_input

    @property
    def output_count(self) -> int:
        """How many nodes stand behind the one it is about."""
        return self.num_outputs + self.num_variadic_outputs - self.has_variadic_output
