"""Nodes as functions of arrays: what their operators' definitions compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sardonyx import errors
from sardonyx.ops import definition as definitions
from sardonyx.ops.definition import EvalContext, OpDef
from sardonyx.program.calls import HostNode

SubgraphRunner: TypeAlias = Callable[..., list[Any]]
HostFunction: TypeAlias = Callable[[Sequence[Any], Mapping[str, SubgraphRunner]], tuple[Any, ...]]


def required_definition(domain: str, op_type: str, version: int, label: str) -> OpDef:
    """The definition of a node's operator; an error if there is none."""
    found = definitions.lookup(domain, op_type, version)
    if found is None:
        raise errors.NotImplemented(f"{label}: operator {op_type} is not defined in version {version} of {domain or 'ai.onnx'}")
    return found


def host_function(node: HostNode, definition: OpDef | None = None) -> HostFunction:
    """What evaluates a node for given inputs and, where attributes are graphs, their runners.

    `definition` is what it is evaluated by, if that has been found already.
    """
    evaluates = definition or required_definition(node.domain, node.op_type, node.version, node.label)
    attrs = {name: node.attrs.get(name) for name in evaluates.attr_names}
    graphs = tuple(name for name in node.bodies if name in attrs)
    ctx = EvalContext(node.version, node.wanted, node.label)

    def call(inputs: Sequence[Any], bodies: Mapping[str, SubgraphRunner]) -> tuple[Any, ...]:
        return definitions.call(evaluates, inputs, attrs, ctx)

    def call_with_bodies(inputs: Sequence[Any], bodies: Mapping[str, SubgraphRunner]) -> tuple[Any, ...]:
        return definitions.call(evaluates, inputs, {**attrs, **{name: bodies[name] for name in graphs}}, ctx)

    return call_with_bodies if graphs else call
