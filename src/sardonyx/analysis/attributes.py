"""The attributes of a node as operators take them: converted to Python and NumPy values, defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sardonyx.ir.attributes import attribute_value
from sardonyx.ir.graph import Attr, Node
from sardonyx.ops.signature import signature


@cache
def _defaults(domain: str, name: str, version: int) -> dict[str, Any]:
    found = signature(domain, name, version)
    if found is None:
        return {}
    return {attribute.name: attribute.default for attribute in found.attributes.values() if attribute.default is not None}


def attribute_values(node: Node, bindings: Mapping[str, Attr] | None = None) -> dict[str, Any]:
    """The values of a node's attributes and, for those it does not carry, the defaults of its signature.

    Tensors become arrays, lists become tuples, graphs stay graphs. In a function body `bindings` holds the attributes of the
    call; a reference to one the call does not give counts as not carried.
    """
    values = dict(_defaults(node.domain, node.op_type, node.version))
    for attr in node.attrs.values():
        source: Attr | None = attr
        if attr.ref:
            source = bindings.get(attr.ref) if bindings is not None else None
        if source is not None and source.value is not None:
            values[attr.name] = attribute_value(source)
    return values
