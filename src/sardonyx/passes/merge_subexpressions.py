"""Common subexpressions: equal nodes are computed once.

    a = Relu(x); b = Relu(x)      =>   readers of b read a

Two nodes are equal if they are the same operator and version on the same inputs with the same attributes. Operands of
commutative operators may be swapped. Refuses: random operators, nodes with subgraphs, and nodes whose outputs the graph
gives out.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.graph import Attr, Model, Node
from sardonyx.ir.tensor import Tensor
from sardonyx.ops import registry
from sardonyx.ops.registry import Trait
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass

_LARGEST: Final = 1 << 12  # bytes of a tensor attribute that is compared
_LONGEST: Final = 4096  # numbers of an attribute that are compared: a forest has millions


@dataclass(frozen=True)
class MergeSubexpressions:
    """Common subexpressions of each graph; a subgraph may read what the graph around it has computed already."""

    name: ClassVar[str] = "MergeSubexpressions"
    ort_names: ClassVar[tuple[str, ...]] = ("CommonSubexpressionElimination",)

    def run(self, model: Model) -> PassResult:
        """One walk: merging two nodes makes their readers equal before the walk comes to them."""
        g = Rewriter(model)
        changes = 0
        for graph in g.graphs():
            seen: dict[tuple[Any, ...], Node] = {}
            for node in graph.nodes:
                key = _key(node)
                if key is None:
                    continue
                first = seen.setdefault(key, node)
                if first is node or not all(g.can_replace(a, b) for a, b in zip(node.outputs, first.outputs, strict=True)):
                    continue
                for ours, theirs in zip(node.outputs, first.outputs, strict=True):
                    g.replace(ours, theirs)
                g.at(first).discard(node)
                changes += 1
        return PassResult(changes > 0, (), changes)


def _key(node: Node) -> tuple[Any, ...] | None:
    definition = registry.lookup(node.domain, node.op_type, node.version)
    if definition is None or definition.traits & (Trait.RANDOM | Trait.CONTROL_FLOW) or node.subgraphs():
        return None
    attrs = []
    for attr in sorted(node.attrs.values(), key=lambda each: each.name):
        value = _attr_key(attr)
        if value is None:
            return None
        attrs.append((attr.name, attr.kind, value))
    inputs: tuple[Any, ...] = node.inputs
    if definition.traits & Trait.COMMUTATIVE and len(inputs) == 2:
        inputs = tuple(sorted(inputs, key=id))
    outputs = tuple(bool(value.name) for value in node.outputs)
    return (node.domain, node.op_type, node.version, node.overload, inputs, tuple(attrs), outputs)


def _attr_key(attr: Attr) -> Any:
    """Something equal for equal attributes; None if they cannot be compared cheaply."""
    value = attr.value
    if isinstance(value, float):
        return value.hex()  # tells -0.0 from 0.0 and finds nan equal to itself
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, Tensor):
        if value.dtype is dtypes.STRING or value.nbytes > _LARGEST:
            return None
        return (value.dtype, value.shape, bytes(value.raw()))
    if isinstance(value, tuple) and len(value) > _LONGEST:
        return None
    if isinstance(value, tuple) and all(isinstance(item, (int, float, str)) for item in value):
        return tuple(item.hex() if isinstance(item, float) else item for item in value)
    return None
