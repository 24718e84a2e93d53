"""Nodes as steps that their operators' definitions compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx import errors
from sardonyx.ops import definition as definitions
from sardonyx.ops.definition import EvalContext, OpDef
from sardonyx.plan.plan import ExecutionPlan, HostFunction, HostStep, SubgraphRunner
from sardonyx.program.calls import HostNode


def required_definition(domain: str, op_type: str, version: int, label: str) -> OpDef:
    """The definition of a node's operator; an error if there is none."""
    found = definitions.lookup(domain, op_type, version)
    if found is None:
        raise errors.NotImplemented(f"{label}: operator {op_type} is not defined in version {version} of {domain or 'ai.onnx'}")
    return found


def host_step(
    node: HostNode,
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (),
    bodies: Mapping[str, ExecutionPlan] | None = None,
    definition: OpDef | None = None,
) -> HostStep:
    """The step that evaluates a node; `definition` is what it is evaluated by, if that has been found already."""
    call = _evaluation(node, definition or required_definition(node.domain, node.op_type, node.version, node.label))
    label, kind, name = node.label, node.op_type, node.name
    return HostStep(label, kind, name, node.provider, tuple(inputs), tuple(outputs), call, bodies or {}, node.computes)


def _evaluation(node: HostNode, definition: OpDef) -> HostFunction:
    """A callable that evaluates a node for given inputs and, where attributes are graphs, their runners."""
    attrs = {name: node.attrs.get(name) for name in definition.attr_names}
    graphs = tuple(name for name in node.bodies if name in attrs)
    ctx = EvalContext(node.version, node.wanted, node.label)

    def call(inputs: Sequence[Any], bodies: Mapping[str, SubgraphRunner]) -> tuple[Any, ...]:
        return definitions.call(definition, inputs, attrs, ctx)

    def call_with_bodies(inputs: Sequence[Any], bodies: Mapping[str, SubgraphRunner]) -> tuple[Any, ...]:
        return definitions.call(definition, inputs, {**attrs, **{name: bodies[name] for name in graphs}}, ctx)

    return call_with_bodies if graphs else call
