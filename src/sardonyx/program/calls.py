"""What Python computes in a program, as plain data: nodes with their attributes, bodies, the order of a loop's iterations.

Attributes are the values that operators take (see `ops.registry`): numbers, texts, arrays, types, sparse constants and tuples of
these. Bodies are programs of their own; a node knows them by the names of the attributes that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sardonyx.ir.region import NodeName
    from sardonyx.ir.types import Type
    from sardonyx.program.segments import SegmentPlan


class HostNode:
    """A node that is computed by its operator's definition, or by the provider that has claimed it."""

    __slots__ = ("attrs", "bodies", "computes", "domain", "label", "name", "op_type", "provider", "version", "wanted")

    def __init__(
        self,
        domain: str,
        op_type: str,
        version: int,
        name: str,
        label: str,
        wanted: tuple[bool, ...],
        attrs: dict[str, Any],
        bodies: tuple[str, ...] = (),
        provider: str = "",
        computes: tuple[NodeName, ...] = (),
    ) -> None:
        self.domain = domain
        self.op_type = op_type
        self.version = version  # opset version of the domain
        self.name = name
        self.label = label  # how messages call it
        self.wanted = wanted  # which of its outputs have names
        self.attrs = attrs  # those that its definition takes, but for graphs
        self.bodies = bodies  # the attributes that are graphs
        self.provider = provider
        self.computes = computes  # the nodes of the model it stands for


class BodyNode:
    """A subgraph, seen from its node."""

    __slots__ = ("captures", "input_types", "name", "output_types")

    def __init__(
        self, name: str, input_types: tuple[Type | None, ...], output_types: tuple[Type | None, ...], captures: tuple[int, ...]
    ) -> None:
        self.name = name
        self.input_types = input_types
        self.output_types = output_types
        self.captures = captures  # which of what the node captures it takes behind its own inputs, in order


class SlicedPort:
    """An input or output of a body of which each iteration takes or gives a part along an axis."""

    __slots__ = ("axis", "backwards", "position")

    def __init__(self, position: int, axis: int, backwards: bool) -> None:
        self.position = position
        self.axis = axis
        self.backwards = backwards


class LoopSignature:
    """What the body of a Loop or Scan takes and gives in each iteration, by positions of its program's inputs and outputs."""

    __slots__ = ("carried", "condition", "has_counter", "sliced", "stacked")

    def __init__(
        self,
        has_counter: bool,
        condition: int,
        carried: tuple[tuple[int, int], ...],
        sliced: tuple[SlicedPort, ...],
        stacked: tuple[SlicedPort | None, ...],
    ) -> None:
        self.has_counter = has_counter  # a Loop: its first inputs are the number of the iteration and whether it takes place
        self.condition = condition  # the output that tells whether another iteration follows; -1: always
        self.carried = carried  # input, and the output that the next iteration takes for it; -1: itself
        self.sliced = sliced
        self.stacked = stacked  # None: nobody asks for the result


# What a program file holds of these. A program inside another one is what the writer or reader of files has of it.

NO_LOOP, UNSETTLED_LOOP, SLOW_LOOP, NATIVE_LOOP = range(4)  # what is known of a node's iterations in native code; files hold it


class BodyCode:
    """A body and its program; None if it had not run when the program around it was saved."""

    __slots__ = ("node", "program")

    def __init__(self, node: BodyNode, program: Any) -> None:
        self.node = node
        self.program = program


class LoopCode:
    """Iterations in native code: their signature, which of what the node captures the body takes, and its program."""

    __slots__ = ("captures", "program", "signature")

    def __init__(self, signature: LoopSignature, captures: tuple[int, ...], program: Any) -> None:
        self.signature = signature
        self.captures = captures
        self.program = program


class CallCode:
    """A node that Python computes, with its bodies by the names of attributes."""

    __slots__ = ("bodies", "loop", "loop_state", "node")

    def __init__(
        self, node: HostNode, bodies: Mapping[str, BodyCode], loop_state: int = NO_LOOP, loop: LoopCode | None = None
    ) -> None:
        self.node = node
        self.bodies = bodies
        self.loop_state = loop_state
        self.loop = loop


class SegmentCode:
    """What a program that comes back to Python has beside its image and code."""

    __slots__ = ("calls", "constants", "plan")

    def __init__(self, plan: SegmentPlan, calls: Sequence[CallCode], constants: Sequence[Any]) -> None:
        self.plan = plan
        self.calls = calls
        self.constants = constants  # arrays that only Python reads
