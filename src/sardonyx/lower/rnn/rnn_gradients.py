"""LSTMs that are trained: the layer that keeps a trace, and its gradient, whose loop over time is one kernel, too.

Backwards in time a step multiplies the gradients of all gates with R, so the kernel's state is as wide as all of them:

    dh := dY[t] + d[t + 1] R       d[t] := the gradients of the gates, of dh, the cell's gradient and the trace
"""

from __future__ import annotations

from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel import math
from sardonyx.kernel.expr import BITS, Expr, const, load
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.rnn.rnn import MOST_ROWS, RecurrentKernel, RecurrentPass, given, state, total
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.lower.rnn.rnn import Layer, accepts_cell, address_in, distinct, traced
from sardonyx.ops.rnn.gradients import GATES, TRACED
from sardonyx.ops.rnn.rnn import DIRECTIONS
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost

_WHOLE_VECTORS: Final = 16  # lanes of the longest vector: hidden sizes are multiples of it


@template("LSTMTrace", domain="sardonyx", types={"T": ("f32", "f64")}, accepts=accepts_cell)
def lstm_trace(ctx: LowerContext, group: Group) -> None:
    """An LSTM that keeps what its gradient needs."""
    assert group.root is not None
    _TracedLayer(ctx, group, group.root).lower()


class _TracedLayer(Layer):
    def traces(self) -> list[View]:
        """The parts of the trace, if anybody wants it."""
        value = self.outputs[3] if len(self.outputs) > 3 else None
        return [] if value is None else _parts(self.ctx.output(value), TRACED, self.hidden)


def _parts(view: View, count: int, hidden: int) -> list[View]:
    """[time, direction, row, count * hidden] in parts of the hidden size."""
    shape = (*view.shape[:3], hidden)
    return [View(view.buffer, shape, view.strides, view.offset + number * hidden) for number in range(count)]


def _accepts_gradient(node: Node) -> str:
    r = node.inputs[1]
    shape = r.shape if r is not None else None
    if shape is None or len(shape) != 3 or not isinstance(shape[2], int) or shape[2] % _WHOLE_VECTORS or not shape[2]:
        return f"a hidden size that is no multiple of {_WHOLE_VECTORS}, or not known"
    if attribute_values(node).get("direction") not in DIRECTIONS:
        return "a direction that is not known"
    return ""


@template("LSTMTraceGrad", domain="sardonyx", types={"T": ("f32", "f64")}, accepts=_accepts_gradient)
def lstm_trace_grad(ctx: LowerContext, group: Group) -> None:
    """The gradient of an LSTM, each direction by itself."""
    assert group.root is not None
    node = group.root
    backwards = DIRECTIONS[attribute_values(node)["direction"]]
    layer = _Gradient(ctx, group, node, ctx.view(_given(node, 0)), ctx.view(_given(node, 1)))
    weights = layer.weights()
    for direction, is_reverse in enumerate(backwards):
        layer.lower(direction, is_reverse, weights)


def _given(node: Node, position: int) -> Value:
    value = node.inputs[position]
    assert value is not None
    return value


@dataclass(frozen=True)
class _Gradient:
    ctx: LowerContext
    group: Group
    node: Node
    trace: View
    r: View

    @property
    def type(self) -> str:
        return self.trace.buffer.dtype.name

    @property
    def hidden(self) -> int:
        hidden = self.r.shape[2]
        assert isinstance(hidden, int)
        return hidden

    def weights(self) -> View:
        """R [direction, depth, hidden] as [direction, block, depth, lane]."""
        ctx, lanes = self.ctx, vector_lanes(self.type, self.ctx.target)
        directions, depth, hidden = self.r.shape
        shape = (directions, hidden // lanes, depth, lanes)
        target = ctx.scratch(dtypes.from_name(self.type), shape, "weights")
        by_direction, by_depth, by_column = self.r.strides
        source = View(self.r.buffer, shape, (by_direction, by_column * lanes, by_depth, by_column), self.r.offset)
        views, types, values = [source, target], [self.type, self.type], [(1, load(0, self.type))]
        ctx.step(loop_step(shape, views, types, values, target=ctx.target, label="weights", nodes=self._nodes))
        return target

    @property
    def _nodes(self) -> tuple[str, ...]:
        return tuple(node.label for node in self.group.nodes)

    def _input(self, position: int) -> View | None:
        """An input whose last axis lies in consecutive elements, if it is given."""
        value = self.node.inputs[position] if position < len(self.node.inputs) else None
        if value is None:
            return None
        view = self.ctx.view(value)
        return view if view.strides[-1] == 1 else self.ctx.contiguous(value)

    def _cell(self, has_results: bool, has_end: bool) -> RecurrentPass:
        """A step back in time: slot 1 is the cell's gradient, slot 2 that of the last hidden state until the first step."""
        kind = self.type
        one = const(1.0, kind)
        enter, leave, keep, new, old = (given(number, kind) for number in range(TRACED))
        squashed = math.tanh(keep * old + enter * new)
        dh = total(0, kind)
        if has_results:
            dh = dh + given(TRACED, kind)
        if has_end:
            dh = dh + state(2, kind)
        dc = state(1, kind) + dh * leave * (one - squashed * squashed)
        gates: tuple[Expr, ...] = (
            dc * new * enter * (one - enter),
            dh * squashed * leave * (one - leave),
            dc * old * keep * (one - keep),
            dc * enter * (one - new * new),
        )
        ends = [(2, const(0.0, kind))] if has_end else []
        return RecurrentPass(0, 1, (*((0, gate) for gate in gates), (1, dc * keep), *ends), None, gates)

    def lower(self, direction: int, is_reverse: bool, weights: View) -> None:
        """The step that walks back through time."""
        ctx, hidden, kind = self.ctx, self.hidden, self.type
        steps, directions, batch, _ = self.trace.shape
        results, end, cell_end = (self._input(position) for position in (2, 3, 4))
        escaping = ctx.escaping(self.group)
        outputs = [ctx.output(value) if value in escaping else None for value in self.node.outputs]
        made = outputs[0]
        if made is None:  # nobody asks for the cell alone, but it may be: then the gates go to memory of their own
            made = ctx.scratch(dtypes.from_name(kind), (steps, directions, batch, GATES * hidden), "gates")
        cells = outputs[1] if len(outputs) > 1 else None
        one = self._cell(results is not None, end is not None)
        slots = 3 if end is not None else 2
        kernel = RecurrentKernel(
            type=kind,
            outside=kind,
            gates=0,
            vectors=0,
            slots=slots,
            passes=(one,),
            initial=(False, cell_end is not None, True)[:slots],
            final=(False, cells is not None, False)[:slots],
            output=False,
            ragged=False,
            rows=min(max(batch, 1), MOST_ROWS) if isinstance(batch, int) else MOST_ROWS,
            wide=GATES,
            given=TRACED + (results is not None),
        )
        row = GATES * hidden + vector_lanes(kind, ctx.target)
        memory = ctx.scratch(dtypes.from_name(kind), (slots + 1, batch, row), "states")
        inputs = [*_parts(self.trace, TRACED, hidden), *([] if results is None else [results])]
        initial = [view for view in (cell_end, end) if view is not None]
        final = [] if cells is None else [cells]
        size = BITS[kind] // 8
        arguments = {
            "steps": steps,
            "rows": batch,
            "hidden": hidden,
            "backwards": 0 if is_reverse else 1,
            "state": (Address(memory.buffer, 0), (memory.strides[0],)),
            "weights": [Address(weights.buffer, (weights.offset + direction * weights.strides[0]) * size)],
            "vectors": [],
            "columns": [],
            "given": [traced(view, direction) for view in inputs],
            "traces": [traced(view, direction) for view in _parts(made, GATES, hidden)],
            "initial": [(address_in(view, direction * view.strides[0]), view.strides[:2]) for view in initial],
            "final": [(address_in(view, direction * view.strides[0]), view.strides[:2]) for view in final],
        }
        operations = GATES * hidden * hidden
        reads = [view.buffer for view in (*inputs, weights, *initial)]
        writes = [memory.buffer, made.buffer, *(view.buffer for view in final)]
        ctx.step(
            KernelStep(
                kernel,
                kernel.arguments.entries(**arguments),
                batch,
                cost.recurrent(product([steps, operations]), batch),
                distinct(reads),
                distinct(writes),
                self.group.label,
                self._nodes,
                flops=2 * product([steps, batch, operations]),
            )
        )
