"""Reverse-mode differentiation: adds nodes to a graph that compute gradients.

    y = Mul(x, w)                    y = Mul(x, w)
    loss = ReduceSum(y)      =>      loss = ReduceSum(y)
                                     dy = Expand(seed, Shape(y))
                                     dx = Mul(dy, w);  dw = Mul(dy, x)

The nodes are walked backwards, each once. A node that an output depends on, and that depends on an input, both through floats
and not through inputs where nothing flows (indices, shapes, conditions), hands the gradients of its outputs to the rule of its
operator (`gradients/`). Gradients that arrive at one value by several ways are added up. Refused, naming the node: operators
without a rule, and nodes with subgraphs, if something would have to flow through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sardonyx import errors
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Node, Value, captured_values, max_version
from sardonyx.ir.types import OptionalType, SequenceType, TensorType, Type
from sardonyx.records import dataclass
from sardonyx.training.gradients.rules import Backward, rule_of, stops_all

LEAST_VERSION = 13  # of the operators that gradients are written in


@dataclass(frozen=True)
class Gradients:
    """What was added to a graph."""

    seeds: tuple[Value | None, ...]  # for each output what its gradient was taken from; None: nothing flows from it
    inputs: tuple[Value | None, ...]  # the gradients of the inputs asked for; None: no output depends on it
    of: Mapping[Value, Value]  # the gradients of all values that have one

    def __getitem__(self, value: Value) -> Value | None:
        return self.of.get(value)


def differentiate(
    graph: Graph,
    outputs: Sequence[Value],
    inputs: Sequence[Value],
    seeds: Sequence[Value | None] | None = None,
    *,
    version: int | None = None,
) -> Gradients:
    """Add nodes that compute the gradients of `inputs`, given those of `outputs`.

    `seeds` are the gradients of the outputs: values of the graph, of the outputs' shapes; None for an output whose gradient is
    zero. Left out altogether, every output is a loss, of one element, whose gradient is 1. Types must be inferable: they are
    set. `version` is the opset new nodes are written against, by default the graph's.
    """
    infer_shapes(graph)
    nodes = list(graph.nodes)
    g = GraphBuilder(graph, max(version or max_version(graph), LEAST_VERSION))
    walk = _Walk(g, nodes, outputs, inputs)
    given: list[Value | None] = list(seeds) if seeds is not None else [_one(g, output) for output in outputs]
    if len(given) != len(outputs):
        raise errors.InvalidArgument(f"{len(given)} seeds for {len(outputs)} outputs: expected one for each, or None")
    used: list[Value | None] = []
    for output, seed in zip(outputs, given):
        if seed is None or output not in walk.path:
            used.append(None)
            continue
        used.append(seed)
        walk.arrive(output, seed)
    for node in reversed(nodes):
        walk.through(node)
    found = {value: walk.sum_of(value) for value in list(walk.arrived)}
    return Gradients(tuple(used), tuple(found.get(value) for value in inputs), MappingProxyType(found))


def _one(g: GraphBuilder, output: Value) -> Value:
    """The gradient of a loss with respect to itself."""
    type_ = output.type
    if not isinstance(type_, TensorType) or not _is_float(output):
        raise errors.InvalidArgument(f"the loss {output.name!r} is {type_}, expected one floating-point number")
    if type_.shape is None or any(size != 1 for size in type_.shape):
        raise errors.InvalidArgument(
            f"the loss {output.name!r} is {type_}, expected a single element", hint="reduce it, or give the seeds of the outputs"
        )
    return g.constant(np.ones([int(str(size)) for size in type_.shape], type_.dtype.numpy), f"{output.name}_grad")


def _is_float(value: Value) -> bool:
    """Whether a value is a tensor that gradients flow through, or holds such tensors."""
    type_: Type | None = value.type
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return isinstance(type_, TensorType) and type_.dtype.is_float


class _Walk:
    """The gradients found so far, and the values between inputs and outputs that have one."""

    def __init__(self, g: GraphBuilder, nodes: Sequence[Node], outputs: Sequence[Value], inputs: Sequence[Value]) -> None:
        self.g = g
        self.arrived: dict[Value, list[Value]] = {}
        self.path = _between(nodes, outputs, inputs)

    def arrive(self, value: Value, gradient: Value) -> None:
        """Note one more summand of a value's gradient."""
        self.arrived.setdefault(value, []).append(gradient)

    def sum_of(self, value: Value) -> Value:
        """The gradient of a value: all that has arrived, added up."""
        parts = self.arrived[value]
        if len(parts) > 1:
            total = parts[0]
            for part in parts[1:]:
                total = self.g.Add(total, part)
            total.type = value.type
            self.arrived[value] = parts = [total]
        return parts[0]

    def through(self, node: Node) -> None:
        """From the gradients of a node's outputs to those of its inputs."""
        if not any(value in self.arrived for value in node.outputs):
            return
        rule = rule_of(node)
        stops = rule.stops if rule is not None else frozenset()
        wanted = [value in self.path and index not in stops for index, value in enumerate(node.inputs)]
        if not any(wanted) or stops_all(node):
            return
        if rule is None:
            raise errors.NotImplemented(
                f"{node.label}: there is no gradient rule for {node.domain or 'ai.onnx'}::{node.op_type}",
                hint="leave its inputs out of those that want gradients, or write the model without it",
            )
        gradients = [self.sum_of(value) if value in self.arrived else None for value in node.outputs]
        results = rule.rule(Backward(self.g, node, gradients, wanted))
        for value, gradient, is_wanted in zip(node.inputs, results, wanted):
            if gradient is not None and value is not None and is_wanted:
                self.arrive(value, gradient)


def _between(nodes: Sequence[Node], outputs: Sequence[Value], inputs: Sequence[Value]) -> set[Value]:
    """The values that depend on an input and that an output depends on, by ways on which a gradient flows."""
    reached: set[Value] = {value for value in inputs if _is_float(value)}
    for node in nodes:
        if node.subgraphs():
            captured = {value for graph in node.subgraphs() for value in captured_values(graph)}
            if reached & {*captured, *node.inputs}:
                reached.update(value for value in node.outputs if _is_float(value))
        elif any(value in reached for value in _flowing(node)):
            reached.update(value for value in node.outputs if _is_float(value))
    needed: set[Value] = set(outputs)
    for node in reversed(nodes):
        if not any(value in needed and value in reached for value in node.outputs):
            continue
        if node.subgraphs():
            raise errors.NotImplemented(
                f"{node.label}: gradients do not flow through nodes with subgraphs",
                hint="unroll the loop or take the branch when the model is exported",
            )
        needed.update(_flowing(node))
    return reached & needed


def _flowing(node: Node) -> list[Value]:
    """The inputs of a node through which a gradient may flow."""
    if stops_all(node):
        return []
    rule = rule_of(node)
    stops = rule.stops if rule is not None else frozenset()
    return [value for index, value in enumerate(node.inputs) if value is not None and index not in stops and _is_float(value)]
