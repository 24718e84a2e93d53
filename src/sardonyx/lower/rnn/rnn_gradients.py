"""Recurrent layers that are trained: those that keep a trace, and their gradients, whose loop over time is one kernel, too.

Backwards in time a step multiplies the gradients of all gates with R, so the kernel's state is as wide as all of them:

    dh := dY[t] + d[t + 1] R + what flows past products       d[t] := the gradients of the gates, of dh and the trace
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel import math
from sardonyx.kernel.expr import BITS, Expr, const, load
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.rnn.rnn import MOST_ROWS, RecurrentKernel, RecurrentPass, given, state, total
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.movement import first_input, root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.lower.rnn.rnn import Layer, accepts_cell, address_in, in_rows, traced
from sardonyx.ops.rnn.gradients import MADE, TRACED, WHOLE_VECTORS
from sardonyx.ops.rnn.rnn import DIRECTIONS
from sardonyx.program.steps import Address, KernelStep, View, distinct
from sardonyx.records import dataclass
from sardonyx.target import cost

_TYPES: Final = {"T": ("f32", "f64")}
_TRACE: Final = {"LSTM": 3, "GRU": 2}  # output


@template("LSTMTrace", "GRUTrace", domain="sardonyx", types=_TYPES, accepts=accepts_cell)
def recurrent_trace(ctx: LowerContext, group: Group) -> None:
    """A recurrent layer that keeps what its gradient needs."""
    _TracedLayer(ctx, group, root_of(group)).lower()


class _TracedLayer(Layer):
    def traces(self) -> list[View]:
        """The parts of the trace, if anybody wants it."""
        position = _TRACE[self.op]
        value = self.outputs[position] if position < len(self.outputs) else None
        return [] if value is None else _parts(self.ctx.output(value), TRACED, self.hidden)


def _parts(view: View, count: int, hidden: int) -> list[View]:
    """[time, direction, row, count * hidden] in parts of the hidden size."""
    shape = (*view.shape[:3], hidden)
    return [View(view.buffer, shape, view.strides, view.offset + number * hidden) for number in range(count)]


def _accepts_gradient(node: Node) -> str:
    r = node.inputs[1]
    shape = r.shape if r is not None else None
    if shape is None or len(shape) != 3 or not isinstance(shape[2], int) or shape[2] % WHOLE_VECTORS or not shape[2]:
        return f"a hidden size that is no multiple of {WHOLE_VECTORS}, or not known"
    if attribute_values(node).get("direction") not in DIRECTIONS:
        return "a direction that is not known"
    return ""


@template("LSTMTraceGrad", domain="sardonyx", types=_TYPES, accepts=_accepts_gradient)
def lstm_trace_grad(ctx: LowerContext, group: Group) -> None:
    """The gradient of an LSTM."""
    _LstmGradient.of(ctx, group).lower()


@template("GRUTraceGrad", domain="sardonyx", types=_TYPES, accepts=_accepts_gradient)
def gru_trace_grad(ctx: LowerContext, group: Group) -> None:
    """The gradient of a GRU."""
    _GruGradient.of(ctx, group).lower()


def _weights_of(node: Node) -> Value:
    value = node.inputs[1]
    assert value is not None
    return value


@dataclass(frozen=True)
class _Gradient:
    """A layer's way back through time. Slot 0 of the kernel's state is what is multiplied with R."""

    ctx: LowerContext
    group: Group
    node: Node
    trace: View
    r: View

    multiplied: ClassVar[int]  # parts of slot 0
    ends: ClassVar[tuple[int, ...]]  # of slots from 1 on, the input that has their first value; the last may be left out

    @classmethod
    def of(cls, ctx: LowerContext, group: Group) -> _Gradient:
        """That of a group with such a node."""
        node = root_of(group)
        return cls(ctx, group, node, in_rows(ctx, first_input(node)), ctx.view(_weights_of(node)))

    def step_back(self, dh: Expr, trace: list[Expr], has_end: bool) -> RecurrentPass:
        """A step, from the gradient of the hidden state as far as it comes from products and results."""
        raise NotImplementedError

    @property
    def type(self) -> str:
        return self.trace.buffer.dtype.name

    @property
    def hidden(self) -> int:
        hidden = self.r.shape[2]
        assert isinstance(hidden, int)
        return hidden

    @property
    def _nodes(self) -> tuple[str, ...]:
        return tuple(node.label for node in self.group.nodes)

    def lower(self) -> None:
        """The weights in the order of the kernel, then each direction by itself."""
        weights = self._weights()
        for direction, is_reverse in enumerate(DIRECTIONS[attribute_values(self.node)["direction"]]):
            self._loop(direction, is_reverse, weights)

    def _weights(self) -> View:
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

    def _input(self, position: int) -> View | None:
        """An input as the kernel reads it, if it is given."""
        value = self.node.inputs[position] if position < len(self.node.inputs) else None
        return None if value is None else in_rows(self.ctx, value)

    def _loop(self, direction: int, is_reverse: bool, weights: View) -> None:
        """The step that walks back through time."""
        ctx, hidden, kind = self.ctx, self.hidden, self.type
        steps, directions, batch, _ = self.trace.shape
        results, ends = self._input(2), [self._input(position) for position in self.ends]
        escaping = ctx.escaping(self.group)
        made, left = ([ctx.output(value) if value in escaping else None for value in self.node.outputs] + [None])[:2]
        if made is None:  # whoever asks for what is left alone
            made = ctx.scratch(dtypes.from_name(kind), (steps, directions, batch, MADE * hidden), "gates")
        dh = total(0, kind)
        if results is not None:
            dh = dh + given(TRACED, kind)
        one = self.step_back(dh, [given(number, kind) for number in range(TRACED)], ends[-1] is not None)
        slots = 1 + max(slot for slot, _ in one.stores)
        kernel = RecurrentKernel(
            type=kind,
            outside=kind,
            gates=0,
            vectors=0,
            slots=slots,
            passes=(one,),
            initial=(False, *(view is not None for view in ends))[:slots],
            final=(False, left is not None, *[False] * slots)[:slots],
            output=False,
            ragged=False,
            rows=min(max(batch, 1), MOST_ROWS) if isinstance(batch, int) else MOST_ROWS,
            wide=self.multiplied,
            given=TRACED + (results is not None),
        )
        row = self.multiplied * hidden + vector_lanes(kind, ctx.target)
        memory = ctx.scratch(dtypes.from_name(kind), (slots + 1, batch, row), "states")
        inputs = [*_parts(self.trace, TRACED, hidden), *([] if results is None else [results])]
        initial, final = [view for view in ends if view is not None], [] if left is None else [left]
        size = BITS[kind] // 8
        arguments: dict[str, Any] = {
            "steps": steps,
            "rows": batch,
            "hidden": hidden,
            "backwards": 0 if is_reverse else 1,
            "state": (Address(memory.buffer, 0), (memory.strides[0],)),
            "weights": [Address(weights.buffer, (weights.offset + direction * weights.strides[0]) * size)],
            "vectors": [],
            "columns": [],
            "given": [traced(view, direction) for view in inputs],
            "traces": [traced(view, direction) for view in _parts(made, MADE, hidden)],
            "initial": [_of_direction(view, direction) for view in initial],
            "final": [_of_direction(view, direction) for view in final],
        }
        operations = self.multiplied * hidden * hidden
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


def _of_direction(view: View, direction: int) -> tuple[Address, tuple[Dim, ...]]:
    """[direction, row, hidden] as a kernel takes it, from one direction on."""
    return address_in(view, direction * view.strides[0]), tuple(view.strides[:2])


class _LstmGradient(_Gradient):
    """Slot 1 is the cell's gradient, slot 2 that of the last hidden state, until the first step."""

    multiplied: ClassVar[int] = 4
    ends: ClassVar[tuple[int, ...]] = (4, 3)

    def step_back(self, dh: Expr, trace: list[Expr], has_end: bool) -> RecurrentPass:
        one = const(1.0, self.type)
        enter, leave, keep, new, old = trace
        if has_end:
            dh = dh + state(2, self.type)
        squashed = math.tanh(keep * old + enter * new)
        dc = state(1, self.type) + dh * leave * (one - squashed * squashed)
        gates = (
            dc * new * enter * (one - enter),
            dh * squashed * leave * (one - leave),
            dc * old * keep * (one - keep),
            dc * enter * (one - new * new),
        )
        ends = [(2, const(0.0, self.type))] if has_end else []
        return RecurrentPass(0, 1, (*((0, gate) for gate in gates), (1, dc * keep), *ends), None, gates)


class _GruGradient(_Gradient):
    """Slot 1 is what flows past all products."""

    multiplied: ClassVar[int] = 3
    ends: ClassVar[tuple[int, ...]] = (3,)

    def step_back(self, dh: Expr, trace: list[Expr], has_end: bool) -> RecurrentPass:
        one = const(1.0, self.type)
        update, reset, new, inner, old = trace
        dh = dh + state(1, self.type)
        of_new = dh * (one - update) * (one - new * new)
        of_update, of_reset = dh * (old - new) * update * (one - update), of_new * inner * reset * (one - reset)
        through = of_new * reset
        stores = ((0, of_update), (0, of_reset), (0, through), (1, dh * update))
        return RecurrentPass(0, 1, stores, None, (of_update, of_reset, of_new, through))
