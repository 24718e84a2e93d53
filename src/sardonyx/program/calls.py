"""What Python computes in a program, as plain data: nodes with their attributes, bodies, the order of a loop's iterations.

Attributes are the values that operators take (see `ops.registry`): numbers, texts, arrays, types, sparse constants and tuples of
these. Bodies are programs of their own; a node knows them by the names of the attributes that hold them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sardonyx.ir.region import NodeName
    from sardonyx.ir.types import Type


class HostNode(NamedTuple):
    """A node that is computed by its operator's definition, or by the provider that has claimed it."""

    domain: str
    op_type: str
    version: int  # opset version of the domain
    name: str
    label: str  # how messages call it
    wanted: tuple[bool, ...]  # which of its outputs have names
    attrs: dict[str, Any]  # those that its definition takes, but for graphs
    bodies: tuple[str, ...] = ()  # the attributes that are graphs
    provider: str = ""
    computes: tuple[NodeName, ...] = ()  # the nodes of the model it stands for


class BodyNode(NamedTuple):
    """A subgraph, seen from its node."""

    name: str
    input_types: tuple[Type | None, ...]
    output_types: tuple[Type | None, ...]
    captures: tuple[int, ...]  # which of what the node captures it takes behind its own inputs, in order


class SlicedPort(NamedTuple):
    """An input or output of a body of which each iteration takes or gives a part along an axis."""

    position: int
    axis: int
    backwards: bool


class LoopSignature(NamedTuple):
    """What the body of a Loop or Scan takes and gives in each iteration, by positions of its program's inputs and outputs."""

    has_counter: bool  # a Loop: its first inputs are the number of the iteration and whether it takes place
    condition: int  # the output that tells whether another iteration follows; -1: always
    carried: tuple[tuple[int, int], ...]  # input, and the output that the next iteration takes for it; -1: itself
    sliced: tuple[SlicedPort, ...]
    stacked: tuple[SlicedPort | None, ...]  # None: nobody asks for the result
