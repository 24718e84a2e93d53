"""The table of operators: all definitions there are, and what may be assumed about an operator.

What a definition is, and how those of one operator are found, stands in `definition.py`: its names are offered here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.ops.definition import LOADED, EvalContext, OpDef, Trait, call, definitions_of, lookup, op
from sardonyx.ops.index import load_all

if TYPE_CHECKING:
    from sardonyx.ir.graph import Node

__all__ = ["EvalContext", "OpDef", "Trait", "call", "defined", "definitions", "definitions_of", "lookup", "op", "traits"]


def traits(node: Node) -> Trait:
    """What may be assumed about the operator of a node; nothing, if it is not known."""
    definition = lookup(node.domain, node.op_type, node.version)
    return Trait.NONE if definition is None else definition.traits


def definitions() -> list[OpDef]:
    """All definitions, by domain and name, oldest first."""
    load_all("sardonyx.ops")
    return [definition for key in sorted(LOADED) for definition in LOADED[key]]


def defined() -> set[tuple[str, str, int]]:
    """Domain, name and version of the definitions imported so far."""
    return {(definition.domain, definition.name, definition.since) for known in LOADED.values() for definition in known}
