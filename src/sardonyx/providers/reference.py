"""Nodes that are computed by their meaning: the NumPy `eval` of the operator, or what a provider has made of its region."""

from __future__ import annotations

from typing import Final

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.region import NodeName, region_of
from sardonyx.matching.definitions import DefinitionTable
from sardonyx.matching.signatures import SignatureResolver
from sardonyx.ops.definition import OpDef
from sardonyx.plan.host_step import required_definition
from sardonyx.program.calls import HostNode
from sardonyx.provider_names import CPU_PROVIDER


class _Opsets(SignatureResolver):
    """Definitions hold from an opset version on, whether or not the standard changed the operator in that version."""

    def since_version(self, node: Node) -> int:
        return node.version


DEFINITIONS: Final = DefinitionTable(_Opsets())


def definition_of(node: Node) -> OpDef | None:
    """The definition of a node's operator; None if it has none."""
    found = DEFINITIONS.find(node)
    definition: OpDef | None = None if found is None else found.kernel
    return definition


def plain_node(node: Node, provider: str = CPU_PROVIDER) -> HostNode:
    """A node as plain data, with the attributes that its definition takes; NotImplemented if there is none.

    It stands for the region of another provider, or for itself.
    """
    definition = required_definition(node.domain, node.op_type, node.version, node.label)
    given = attribute_values(node)
    taken = {name: given.get(name) for name in definition.attr_names}
    graphs = tuple(name for name, value in taken.items() if isinstance(value, Graph))
    attrs = {name: value for name, value in taken.items() if name not in graphs}
    wanted = tuple(bool(output.name) for output in node.outputs)
    region = region_of(node)
    who = provider if region is None else region.provider
    computes = (NodeName.of(node),) if region is None else region.nodes
    return HostNode(node.domain, node.op_type, node.version, node.name, node.label, wanted, attrs, graphs, who, computes)
