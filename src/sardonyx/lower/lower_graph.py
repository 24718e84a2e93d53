"""A graph becomes steps: every group a kernel or a host step, in the order of the groups.

groups:  0 template MatMul, Add    1 host NonZero    2 loop Mul, Exp
steps:   matmul kernel             host step         loop kernel          what the groups' rules write (see `lowering`)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sardonyx import errors
from sardonyx.ir.dims import Expectation
from sardonyx.ir.graph import Graph, Node, Value, captured_values
from sardonyx.lower import registry
from sardonyx.lower.branches import sides
from sardonyx.lower.candidates import Chooser
from sardonyx.lower.destinations import place_results
from sardonyx.lower.fetching import fetch_ahead
from sardonyx.lower.groups import Group, Grouping, is_native
from sardonyx.lower.lowering import LowerContext, lower_loop
from sardonyx.lower.shape_values import KnownValues
from sardonyx.lower.switches import insert_switches
from sardonyx.program.steps import (
    Buffer,
    HostNodeStep,
    Lowered,
    Storage,
    View,
    element_count,
    whole,
)
from sardonyx.target.target import Target


class LoweringFailed(errors.EngineError):
    """The rule of an operator failed: a bug, but the host can compute the nodes."""

    def __init__(self, message: str, nodes: Sequence[Node] = ()) -> None:
        super().__init__(message)
        self.nodes = tuple(nodes)


def lower_graph(
    graph: Graph,
    outputs: Sequence[Value],
    grouping: Grouping,
    target: Target,
    known: KnownValues | None = None,
    inputs: Sequence[Value] | None = None,
    expected: Iterable[Expectation] = (),
    chooser: Chooser | None = None,
) -> Lowered:
    """The steps that compute some values of a graph whose nodes were grouped; `expected` must hold besides what they state."""
    ctx = LowerContext(graph, outputs, target, known, grouping.group_of, inputs, chooser)
    ctx.check_expectations(expected)
    for value in ctx.inputs:
        if is_native(value):
            ctx.lowered.inputs.append(ctx.view(value))
    for group in grouping.groups:
        if group.kind == "merge":
            ctx.keep(group.nodes[0], grouping)
    place_results(ctx, grouping)
    for group in grouping.groups:
        ctx.group = group
        for node in group.nodes:
            ctx.check_expectations(grouping.expectations.get(node, ()))
        try:
            _lower_group(ctx, group)
        except Exception as error:
            if group.kind == "host":
                raise
            raise LoweringFailed(f"{type(error).__name__}: {error}", group.nodes) from error
        if group.kind != "host":
            ctx.check_sizes(dim for value in group.produced if is_native(value) for dim in ctx.shape(value))
    ctx.group = None
    insert_switches(ctx.lowered, ctx.switches)
    for value in outputs:
        if not is_native(value):
            continue
        view = ctx.view(value)
        if view.buffer.value is value and view.buffer.storage is Storage.HOST:
            continue  # a host step hands its result over as it is
        if view.buffer.value is not value or view.buffer.storage is not Storage.OUTPUT:
            buffer = Buffer(Storage.OUTPUT, ctx.dtype(value), element_count(ctx.shape(value)), value.name, None, value)
            view = ctx.copy(view, whole(buffer, ctx.shape(value)), "copy to output")
        ctx.lowered.outputs.append(view)
    fetch_ahead(ctx.lowered, target)
    return ctx.lowered


def _lower_group(ctx: LowerContext, group: Group) -> None:
    if group.kind == "loop":
        lower_loop(ctx, group)
    elif group.kind == "template":
        assert group.template is not None
        before = {} if group.template.reads_broadcasts else ctx.materialise_broadcasts(group)
        group.template.rule(ctx, group)
        for value, view in before.items():
            ctx.set_view(value, view)
    elif group.kind == "merge":
        _lower_merge(ctx, group)
    elif group.kind == "view":
        (node,) = group.nodes
        rule = registry.view_rule(node)
        assert rule is not None
        if not rule(ctx, node):
            _host_step(ctx, node)
    else:
        _host_step(ctx, group.nodes[0])


def _lower_merge(ctx: LowerContext, group: Group) -> None:
    """The results of an If whose sides are in the program: what a side did not write where it belongs is copied."""
    (node,) = group.nodes
    for side, graph in sides(node):
        with ctx.on_side(node, side):
            for result, value in zip(node.outputs, graph.outputs):
                source, target = ctx.view(value), ctx.output(result)
                if source != target:
                    ctx.copy(source, target, "copy")
    condition = node.inputs[0]
    assert condition is not None
    if not ctx.has_view(condition):  # nothing has written it before the sides: it is known beforehand
        ctx.lowered.whole_ifs.add(group.region[0][0] if group.region else node)
    ctx.switches.append((group, ctx.view(condition)))


def _host_step(ctx: LowerContext, node: Node) -> None:
    ctx.only_here()
    inputs = tuple(ctx.view(value) if value is not None and is_native(value) else None for value in node.inputs)
    outputs: list[View | None] = []
    for value in node.outputs:
        if is_native(value):
            buffer = Buffer(Storage.HOST, ctx.dtype(value), element_count(ctx.shape(value)), value.name, None, value)
            ctx.set_view(value, whole(buffer, ctx.shape(value)))
            outputs.append(ctx.view(value))
        else:
            outputs.append(None)
    captured = tuple(
        (value, ctx.view(value))
        for value in dict.fromkeys(value for graph in node.subgraphs() for value in captured_values(graph))
        if is_native(value)
    )
    reads = (*(view.buffer for view in inputs if view is not None), *(view.buffer for _, view in captured))
    writes = tuple(view.buffer for view in outputs if view is not None)
    ctx.step(HostNodeStep(node, inputs, tuple(outputs), reads, writes, captured))
