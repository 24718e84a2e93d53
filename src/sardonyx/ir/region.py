"""A region: nodes that an execution provider computes together, seen from outside as one node.

    y, z = sardonyx::ProviderRegion(x) {region = <region of ...>}

The node's attribute holds what the provider made of the nodes, and the nodes themselves as a function of the region's inputs:
types and shapes of the results follow from it like those of a call. No pass looks inside, and none computes it ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sardonyx.ir.graph import Attr, AttrKind, Function, Node, Value
from sardonyx.records import dataclass

DOMAIN: Final = "sardonyx"
REGION: Final = "ProviderRegion"
FROM_HOST: Final = "MemcpyFromHost"
TO_HOST: Final = "MemcpyToHost"
_ATTRIBUTE: Final = "region"


class NodeName(NamedTuple):
    """How a node of a model is listed."""

    name: str
    domain: str
    op_type: str
    label: str

    @classmethod
    def of(cls, node: Node) -> NodeName:
        """The names of a node."""
        return cls(node.name, node.domain, node.op_type, node.label)


@dataclass(frozen=True, eq=False)
class ProviderRegion:
    """What a provider has made of a set of nodes; of none, if it copies values between devices."""

    provider: str
    nodes: tuple[NodeName, ...]
    run: Callable[[Sequence[Any]], tuple[Any, ...]]
    function: Function | None = None  # what it computes

    def __repr__(self) -> str:
        return f"<region of {self.provider}: {len(self.nodes)} nodes>"


def region_node(op_type: str, name: str, inputs: Sequence[Value], outputs: Sequence[Value], region: ProviderRegion) -> Node:
    """A node that stands for a region, or for a copy at the border of one."""
    attrs = [Attr(_ATTRIBUTE, AttrKind.OPAQUE, region)]
    return Node(op_type, inputs, outputs, attrs, domain=DOMAIN, version=1, name=name)


def region_of(node: Node) -> ProviderRegion | None:
    """The region that a node stands for; None for nodes of other kinds."""
    if node.domain != DOMAIN:
        return None
    found = node.attr(_ATTRIBUTE)
    return found if isinstance(found, ProviderRegion) else None
