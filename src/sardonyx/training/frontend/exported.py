"""What the front end makes of a module: a graph, and where each of its inputs comes from."""

from __future__ import annotations

import enum

from sardonyx.ir.graph import Model
from sardonyx.records import dataclass
from sardonyx.training.flatten import Schema
from sardonyx.training.size_guards import SizeGuards


class ExportError(Exception):
    """A module that cannot become a graph; the message says why and where."""


class InputSource(enum.Enum):
    """Where the value of a graph input comes from."""

    USER = "user"
    PARAMETER = "parameter"
    BUFFER = "buffer"


@dataclass(frozen=True, slots=True)
class GraphInput:
    """One graph input: its name in the graph, and the user's leaf (by number), parameter or buffer (by name) it stands for."""

    name: str
    source: InputSource
    origin: str
    leaf: int = -1


@dataclass(frozen=True, slots=True)
class ExportedGraph:
    """A graph whose inputs are all tensors that the module reads: the user's, its parameters and its buffers.

    The outputs are the leaves of `output_schema`, followed by the new values of the buffers in `updated_buffers`;
    `counted_buffers` are counters that each call of the module in training mode increases by the number given.
    """

    model: Model
    inputs: tuple[GraphInput, ...]
    output_schema: Schema
    output_count: int
    updated_buffers: tuple[str, ...] = ()
    counted_buffers: tuple[tuple[str, int], ...] = ()
    fixed_by_sizes: tuple[str, ...] = ()  # lines of code that decided by a size: the decision is part of the graph
    guards: SizeGuards | None = None  # what they decided
