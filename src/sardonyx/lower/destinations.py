"""Results that are written where they are needed, so that nothing is copied afterwards.

    a = Relu(x);  b = Add(x, y);  c = Concat(a, b)      the kernels of a and b write into their parts of c
    h = MatMul(x, w);  out = Reshape(h, s)              the kernel of h writes into the memory of the output

Groups are walked backwards: a result that already has a destination (part of another result, memory of an output) hands it on
to what it is made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import symbols_of
from sardonyx.ir.graph import Node, Value
from sardonyx.lower.branches import sides
from sardonyx.lower.groups import Grouping, is_native
from sardonyx.lower.registry import template_rule
from sardonyx.lower.views import reshaped
from sardonyx.ops.infer import normalize_axis
from sardonyx.ops.registry import Trait, traits
from sardonyx.program.steps import View

if TYPE_CHECKING:
    from sardonyx.lower.lowering import LowerContext


def concat_parts(ctx: LowerContext, node: Node, target: View) -> list[View]:
    """Where in the result of a Concat its inputs lie."""
    along = _axis(node, len(target.shape))
    parts = []
    start = target.shape[along] * 0
    for value in node.inputs:
        assert value is not None
        size = ctx.shape(value)[along]
        parts.append(ctx.part(target, along, start, size))
        start = start + size
    return parts


def _axis(node: Node, rank: int) -> int:
    """The axis along which a Concat joins."""
    axis = attribute_values(node).get("axis")
    return normalize_axis(1 if axis is None else axis, rank)


def place_results(ctx: LowerContext, grouping: Grouping) -> None:
    """Give values that are parts of a later result their place in it, before their groups are lowered."""
    _Placement(ctx, grouping).run()


class _Placement:
    def __init__(self, ctx: LowerContext, grouping: Grouping) -> None:
        self._ctx = ctx
        self._grouping = grouping
        self._wishes: dict[Value, View] = {}  # where a value that is itself a view would best lie
        self._fed = {name for value in ctx.inputs for dim in value.shape or () for name in symbols_of(dim)}

    def run(self) -> None:
        """Walk all groups backwards."""
        for group in reversed(self._grouping.groups):
            if group.kind == "template" and group.root is not None and group.root.op_type == "Concat" and not group.root.domain:
                self._concat(group.root)
            elif group.kind == "merge":
                self._merge(group.nodes[0])
            elif group.kind == "view" and Trait.VIEW in traits(group.nodes[0]):
                self._reshape(group.nodes[0])

    def _concat(self, node: Node) -> None:
        result = node.outputs[0]
        if not self._sizes_are_fed(result):
            return
        target = self._ctx.output(result)
        parts = concat_parts(self._ctx, node, target)
        for value, part in zip(node.inputs, parts):
            if value is not None and value.shape == part.shape and self._may_lie(value, part):
                self._place(value, part)
        self._split_parts(node, target)

    def _merge(self, node: Node) -> None:
        """Let both sides of an If write into its results what they compute themselves."""
        for side, graph in sides(node):
            for result, value in zip(node.outputs, graph.outputs):
                producer = value.producer
                group = None if producer is None else self._grouping.group_of.get(producer)
                if group is not None and group.region[-1:] == ((node, side),) and self._sizes_are_fed(result):
                    self._place(value, self._ctx.output(result))

    def _split_parts(self, node: Node, target: View) -> None:
        """What a Split cuts up and the Concat joins again in the same order lies in the result as a whole."""
        start = target.shape[0] * 0
        along = _axis(node, len(target.shape))
        for number, value in enumerate(node.inputs):
            first = start
            start = start + (self._ctx.shape(value)[along] if value is not None else 0)
            split = None if value is None else value.producer
            if split is None or split.op_type != "Split" or split.domain or split.outputs[0] is not value:
                continue
            whole, count = split.inputs[0], len(split.outputs)
            joined = list(node.inputs[number : number + count])
            if whole is None or whole.shape is None or joined != list(split.outputs):
                continue
            if along != normalize_axis(attribute_values(split).get("axis") or 0, len(whole.shape)):
                continue
            destination = self._ctx.part(target, along, first, whole.shape[along])
            if whole.shape == destination.shape and self._may_lie(whole, destination):
                self._place(whole, destination)

    def _may_lie(self, value: Value, destination: View) -> bool:
        """Whether all readers of a value can use it there without a copy."""
        if destination.is_contiguous or len(value.uses) == 1:
            return True
        inner = View(destination.buffer, destination.shape[1:], destination.strides[1:])
        return inner.is_contiguous and all(self._reads_batches(node) for node in value.consumers)

    def _reads_batches(self, node: Node) -> bool:
        """Whether a node reads a tensor whose first axis has gaps as well as one without."""
        group = self._grouping.group_of.get(node)
        if group is None or group.kind == "loop":
            return True
        if group.kind == "template":
            rule = template_rule(node)
            return node is not group.root or (rule is not None and rule.reads_batches)
        return node.op_type == "Split" and not node.domain  # a view with the strides of what it divides

    def _reshape(self, node: Node) -> None:
        result, value = node.outputs[0], node.inputs[0]
        destination = self._wishes.get(result)
        if destination is None and self._ctx.is_output(result) and self._sizes_are_fed(result):
            destination = self._ctx.output(result)
        if destination is None or value is None or not is_native(value):
            return
        found = reshaped(destination, self._ctx.shape(value))
        if found is not None and (found.is_contiguous or len(value.uses) == 1):
            self._place(value, found)

    def _place(self, value: Value, destination: View) -> None:
        """Let a value's kernel write there, if it can; a view passes the place on."""
        ctx, producer = self._ctx, value.producer
        group = None if producer is None else self._grouping.group_of.get(producer)
        if group is None or producer is None or value in self._wishes or ctx.has_view(value) or ctx.is_output(value):
            return
        if group.kind == "view" and Trait.VIEW in traits(producer):
            self._wishes[value] = destination
        elif group.kind == "loop" or (group.kind == "template" and group.root is not None and _writes_anywhere(group.root)):
            ctx.set_view(value, destination)

    def _sizes_are_fed(self, value: Value) -> bool:
        """Whether the memory can be there before the first step: no size depends on what a host step finds."""
        return all(symbols_of(dim) <= self._fed for dim in self._ctx.shape(value))


def _writes_anywhere(node: Node) -> bool:
    rule = template_rule(node)
    return rule is not None and rule.writes_anywhere
