"""Gradients of recurrent layers.

A layer that is differentiated is taken apart first: its inputs times W are one product over all steps, and a Scan over time has
the product of the hidden state with R and the gates, which it hands out. Backwards, what is left for a loop over time is
elementwise, and one product with R a step:

    dh = dy[t] + d[t + 1] R       d[t] = the gradient of what the gates were taken of

The gradients of X, W, R and B are products and sums over all steps at once. The loops of a plain LSTM or GRU are kernels of their
own, one each way (`LSTMTrace` and `LSTMTraceGrad`). Where sequences end early (`sequence_lens`), steps behind the end leave
the states as they are, and nothing flows into them; backwards in time each sequence begins at its own end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.dtypes import FLOAT32, FLOAT64, INT64
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Value
from sardonyx.ir.types import TensorType
from sardonyx.ops.rnn.gradients import WHOLE_VECTORS
from sardonyx.records import dataclass
from sardonyx.training.gradients.rules import DOMAIN, Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]

_SCAN_VERSION = 16
_DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


Step = Callable[[GraphBuilder, list[Value], list[Value]], tuple[list[Value], list[Value]]]


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer before its steps, its time running forwards."""

    x: Value  # [T, B, I]
    w: Value  # [gates * H, I]
    r: Value  # [gates * H, H]
    across: Value  # R transposed
    bias: tuple[Value, Value] | None  # of the inputs, of the recurrence: [gates * H]
    peepholes: tuple[Value, ...]  # of an LSTM that has any: from the cell to the input, output and forget gate, [H]
    states: tuple[Value, ...]  # initial, [B, H]


@dataclass(frozen=True)
class _Ran:
    """What the steps of a direction gave: final states, hidden states [T, B, H] and whatever else their gradient needs."""

    ends: tuple[Value, ...]
    hidden: Value
    kept: tuple[Value, ...]


@dataclass(frozen=True)
class _Found:
    """Gradients of both products, [T, B, gates * H], and of the initial states."""

    of_inputs: Value
    of_recurrence: Value
    states: tuple[Value, ...]
    of_r: Value | None = None  # if it is not the recurrence's times the hidden states
    of_peepholes: Value | None = None  # [3 * H]


class _Layer:
    """A recurrent node as its rule sees it: `f` puts nodes where it stands, `b` where gradients are computed."""

    def __init__(self, b: Backward) -> None:
        self.b = b
        self.f = Backward(b.g.inserting_before(b.node), b.node, (), ())
        kind = b.node.op_type
        names = tuple(name.lower() for name in b.attr("activations") or ())
        found = _DIRECTIONS.get(b.attr("direction") or "forward")
        if found is None:
            b.refuse(f"its direction is {b.attr('direction')!r}")
        self.backwards = found
        usual = _DEFAULTS[kind] * len(self.backwards)
        self.is_relu = kind == "RNN" and bool(names) and set(names) == {"relu"}
        if names and names[: len(usual)] != usual and not self.is_relu:
            b.refuse(f"its activations are {', '.join(names)}")
        if b.attr("layout") or b.attr("input_forget"):
            b.refuse("it has the batch first, or coupled gates")
        self.clip = float(b.attr("clip") or 0.0)
        if self.clip and kind != "LSTM":
            b.refuse(f"it clips at {self.clip:g}")
        hidden = b.shape(b.x(2))[2]
        if not isinstance(hidden, int):
            b.refuse("its hidden size is not known", "declare the shape of R")
        self.hidden = hidden
        self.count = 2 if kind == "LSTM" else 1  # states
        self.gates = _GATES[kind]
        self.dtype = dtype_of(b.x())
        self.lengths = b.x(4) if b.has(4) else None
        self.valid: Value | None = None  # [T, B, 1]: whether a sequence has not ended
        self.alive: Value | None = None  # the same as numbers, [T, B, H]
        if self.lengths is not None:
            f = self.f
            steps = f.Range(np.array(0), f.Squeeze(f.sizes(f.x(), 0), f.ints(0)), np.array(1))
            ends = f.Unsqueeze(f.Cast(self.lengths, to=INT64.onnx), f.ints(0, 2))
            self.valid = f.Less(f.Unsqueeze(steps, f.ints(1, 2)), ends)
            sizes = f.Concat(f.sizes(f.x(), 0, 1), f.ints(hidden), axis=0)
            self.alive = f.Expand(f.Cast(self.valid, to=self.dtype.onnx), sizes)

    @property
    def is_plain(self) -> bool:
        """Whether there are kernels for both ways of such an LSTM or GRU."""
        is_odd = self.lengths is not None or self.clip or self.b.has(7)
        return not is_odd and self.hidden % WHOLE_VECTORS == 0 and self.dtype in (FLOAT32, FLOAT64)

    def reversed_time(self, b: Backward, value: Value) -> Value:
        """Another order of time, of each sequence as far as it goes."""
        if self.lengths is None:
            return b.Slice(value, b.ints(-1), b.ints(np.iinfo(np.int64).min), b.ints(0), b.ints(-1))
        return b.ReverseSequence(value, b.Cast(self.lengths, to=INT64.onnx), time_axis=0, batch_axis=1)

    def within(self, b: Backward, value: Value) -> Value:
        """What lies behind the end of a sequence is zero, whatever it was."""
        return value if self.valid is None else b.Where(self.valid, value, np.zeros((), self.dtype.numpy))

    def t(self, value: Value, *, early: bool = False) -> Term:
        """A value of the layer's element type, for formulas."""
        return Term(self.f if early else self.b, value, self.dtype)

    def results(
        self, run: Callable[[_Direction], _Ran], back: Callable[[_Direction, _Ran, Value, tuple[Value, ...]], _Found]
    ) -> Results:
        """Take the node apart with `run`, and put the gradients of all directions together, which `back` finds."""
        b = self.b
        parts = [self._direction(number) for number in range(len(self.backwards))]
        ran = [run(part) for part in parts]
        self._replace(ran)
        of_x: Value | None = None
        of_w, of_r, of_b, of_p, states = [], [], [], [], []
        for number, (part, own, is_reverse) in enumerate(zip(parts, ran, self.backwards)):
            dy, ends = self._gradients(number, is_reverse, own)
            found = back(part, own, dy, ends)
            d = b.MatMul(found.of_inputs, part.w)
            d = self.reversed_time(b, d) if is_reverse else d
            of_x = d if of_x is None else b.Add(of_x, d)
            of_w.append(self.weights(found.of_inputs, part.x, part.w))
            before = self.before(part.states[0], own.hidden)
            of_r.append(found.of_r if found.of_r is not None else self.weights(found.of_recurrence, before, part.r))
            sums = [b.ReduceSum(value, b.ints(0, 1), keepdims=0) for value in (found.of_inputs, found.of_recurrence)]
            of_b.append(b.Concat(*sums, axis=0))
            states.append(found.states)
            of_p += [] if found.of_peepholes is None else [found.of_peepholes]
        of_states = [_together(b, [own[index] for own in states]) for index in range(self.count)]
        of_bias = _together(b, of_b) if b.has(3) else None
        return [of_x, _together(b, of_w), _together(b, of_r), of_bias, None, *of_states, *([_together(b, of_p)] if of_p else [])]

    def _direction(self, number: int) -> _Direction:
        f, is_reverse = self.f, self.backwards[number]
        x, w, r = f.x(), _only(f, f.x(1), number), _only(f, f.x(2), number)
        batch, hidden = f.sizes(x, 1), f.sizes(f.x(2), 2)
        bias = None
        if f.has(3):
            size = self.gates * self.hidden
            halves = f.g.node("Split", [_only(f, f.x(3), number), f.ints(size, size)], 2, attrs={"axis": 0})
            bias = (halves[0], halves[1])
        states = tuple(
            self._of_batch(_only(f, f.x(5 + index), number), f.x(5 + index))
            if f.has(5 + index)
            else self._zeros(f, batch, hidden)
            for index in range(self.count)
        )
        peepholes: tuple[Value, ...] = ()
        if self.count == 2 and f.has(7):
            sizes = f.ints(*(self.hidden,) * 3)
            peepholes = tuple(f.g.node("Split", [_only(f, f.x(7), number), sizes], 3, attrs={"axis": 0}))
        x = self.within(f, x)
        across = f.Transpose(r, perm=[1, 0])
        return _Direction(self.reversed_time(f, x) if is_reverse else x, w, r, across, bias, peepholes, states)

    def _of_batch(self, state: Value, given: Value) -> Value:
        """A state with the sizes of the layer, if it is declared with others: a Scan must know that it keeps them."""
        f = self.f
        if f.shape(given)[1:] == (f.shape(f.x())[1], self.hidden):
            return state
        return f.Reshape(state, f.Concat(f.sizes(f.x(), 1), f.ints(self.hidden), axis=0))

    def _replace(self, ran: Sequence[_Ran]) -> None:
        """The outputs of the node are what its steps gave."""
        f, node = self.f, self.b.node
        hidden = [self.within(f, own.hidden) for own in ran]
        lines = [self.reversed_time(f, each) if back else each for each, back in zip(hidden, self.backwards)]
        found = [_together(f, lines, 1), *(_together(f, [own.ends[index] for own in ran]) for index in range(self.count))]
        for old, new in zip(list(node.outputs), found):
            new.type = old.type
            f.g.graph.replace_uses(old, new)

    def _gradients(self, number: int, is_reverse: bool, own: _Ran) -> tuple[Value, tuple[Value, ...]]:
        """Those of the hidden states and of the final states of a direction."""
        b = self.b
        batch, hidden = b.sizes(b.x(), 1), b.sizes(b.x(2), 2)
        given = [*b.gradients, *(None,) * 3]
        dy = _only(b, given[0], number, 1) if given[0] is not None else self._zeros(b, b.sizes(b.x(), 0), batch, hidden)
        ends = tuple(
            _only(b, end, number) if end is not None else self._zeros(b, batch, hidden) for end in given[1 : 1 + self.count]
        )
        dy = self.within(b, dy)
        return (self.reversed_time(b, dy) if is_reverse else dy), ends

    def _zeros(self, b: Backward, *sizes: Value) -> Value:
        return b.ConstantOfShape(b.Concat(*sizes, axis=0), value=np.zeros(1, self.dtype.numpy))

    def before(self, first: Value, rest: Value) -> Value:
        """The state before each step, from the first one and those after each."""
        b = self.b
        return b.Slice(b.Concat(b.Unsqueeze(first, b.ints(0)), rest, axis=0), b.ints(0), b.ints(-1), b.ints(0))

    def projected(self, part: _Direction, *, both: bool) -> Value:
        """The inputs times W with the bias, or `both` biases, of all steps."""
        f = self.f
        made = self.t(f.MatMul(part.x, f.Transpose(part.w, perm=[1, 0])), early=True)
        for bias in (part.bias or ())[: 2 if both else 1]:
            made = made + self.t(bias, early=True)
        return made.value

    def split(self, g: GraphBuilder, value: Value) -> list[Value]:
        """The gates of a step, from the last axis."""
        sizes = np.full(self.gates, self.hidden, np.int64)
        return g.node("Split", [value, sizes], self.gates, attrs={"axis": -1})

    def scan(
        self, b: Backward, states: Sequence[Value], inputs: Sequence[tuple[Value, int]], body: Step, *, backwards: bool
    ) -> tuple[list[Value], list[Value]]:
        """A Scan node over the first axis: final states and stacked results.

        `inputs` come with the size of their last axis, in hidden sizes; `body` makes new states and results of a step.
        """
        if self.alive is not None:
            inputs, body = [*inputs, (self.alive, 1)], _until_the_end(body, backwards)
        graph = Graph(b.g.fresh_name(f"{b.node.op_type}_step"))
        inner = GraphBuilder(graph, b.g.version, prefix=f"{graph.name}_")
        batch = b.shape(b.x())[1]
        sizes = [*(1 for _ in states), *(size for _, size in inputs)]
        given = [
            inner.input(f"{graph.name}_in{at}", TensorType(self.dtype, (batch, size * self.hidden)))
            for at, size in enumerate(sizes)
        ]
        made, results = body(inner, given[: len(states)], given[len(states) :])
        graph.outputs.extend([*made, *results])
        attrs: dict[str, Any] = {"body": graph, "num_scan_inputs": len(inputs)}
        if backwards:
            attrs["scan_input_directions"] = [1] * len(inputs)
            attrs["scan_output_directions"] = [1] * len(results)
        operands = [*states, *(value for value, _ in inputs)]
        version = max(b.g.version, _SCAN_VERSION)
        found = b.g.node("Scan", operands, len(states) + len(results), version=version, attrs=attrs)
        return found[: len(states)], found[len(states) :]

    def parts(self, value: Value, first: int, end: int) -> Value:
        """Some parts, of the hidden size each, of the last axis of a gradient."""
        return self.b.Slice(value, self.b.ints(first * self.hidden), self.b.ints(end * self.hidden), self.b.ints(-1))

    def weights(self, d: Value, x: Value, like: Value) -> Value:
        """[T, B, m] and [T, B, n] summed over time and batch: [m, n]."""
        b = self.b
        flat = b.Reshape(d, b.Concat(b.ints(-1), b.sizes(like, 0), axis=0))
        columns = b.Reshape(x, b.Concat(b.ints(-1), b.sizes(like, 1), axis=0))
        return b.g.op("Gemm", flat, columns, transA=1)


def _until_the_end(body: Step, backwards: bool) -> Step:
    """A step whose last input is 1 while a sequence goes on, then 0: states stay, gradients of states pass through."""

    def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
        *own, alive = inputs
        if not backwards:
            made, results = body(g, states, own)
            return [g.Add(old, g.Mul(alive, g.Sub(new, old))) for old, new in zip(states, made)], results
        entering = [g.Mul(state, alive) for state in states]
        made, results = body(g, entering, own)
        return [g.Add(new, g.Sub(state, part)) for new, state, part in zip(made, states, entering)], results

    return step


def _only(b: Backward, value: Value, number: int, axis: int = 0) -> Value:
    """The part of one direction, without that axis."""
    return b.Gather(value, np.array(number, np.int64), axis=axis)


def _together(b: Backward, values: Sequence[Value], axis: int = 0) -> Value:
    """The parts of all directions."""
    wide = [b.Unsqueeze(value, b.ints(axis)) for value in values]
    return wide[0] if len(wide) == 1 else b.Concat(*wide, axis=axis)


def _traced(layer: _Layer) -> Results:
    """An LSTM or GRU as one kernel over time each way."""
    b, f, is_lstm = layer.b, layer.f, layer.count == 2
    name, attrs = f"{b.node.op_type}Trace", {"direction": b.attr("direction") or "forward"}
    inputs = _trimmed(
        [f.node.inputs[position] if f.has(position) else None for position in (0, 1, 2, 3, 5, 6)[: 4 + layer.count]]
    )
    *made, trace = f.g.node(name, inputs, layer.count + 2, domain=DOMAIN, version=1, attrs=attrs)
    for old, new in zip(list(b.node.outputs), made):
        new.type = old.type
        f.g.graph.replace_uses(old, new)
    given = _trimmed([trace, b.x(2), *b.gradients])
    all_parts, left = b.g.node(f"{name}Grad", given, 2, domain=DOMAIN, version=1, attrs=attrs)
    of_x: Value | None = None
    of_w, of_r, of_b, of_hidden = [], [], [], []
    for number, is_reverse in enumerate(layer.backwards):
        parts, w, r = _only(b, all_parts, number, 1), _only(b, b.x(1), number), _only(b, b.x(2), number)
        states = _all_but_the_first(b, _only(b, made[0], number, 1), not is_reverse)
        first = _only(b, b.x(5), number) if b.has(5) else None
        gates = parts if is_lstm else layer.parts(parts, 0, 3)
        d = b.MatMul(gates, w)
        of_x = d if of_x is None else b.Add(of_x, d)
        of_w.append(layer.weights(gates, b.x(), w))
        # What is multiplied with R: all parts, or those of both gates and of the recurrent part of the new content.
        multiplied = [parts] if is_lstm else [layer.parts(parts, 0, 2), layer.parts(parts, 3, 4)]
        of_r.append(_joined(b, [_of_recurrence(layer, each, states, first, is_reverse) for each in multiplied], 0))
        sums = b.ReduceSum(parts, b.ints(0, 1), keepdims=0)
        both = [sums, sums] if is_lstm else [layer.parts(sums, *ends) for ends in ((0, 3), (0, 2), (3, 4))]
        of_b.append(_joined(b, both, 0))
        if first is not None:
            at = np.array(-1 if is_reverse else 0, np.int64)
            of_hidden.append(b.MatMul(_joined(b, [b.Gather(each, at, axis=0) for each in multiplied], -1), r))
    of_states: list[Value | None] = [_together(b, of_hidden) if of_hidden else None, left if b.has(6) else None]
    if not is_lstm and of_states[0] is not None:
        of_states = [b.Add(of_states[0], left)]
    return [of_x, _together(b, of_w), _together(b, of_r), _together(b, of_b) if b.has(3) else None, None, *of_states]


def _of_recurrence(layer: _Layer, d: Value, states: Value, first: Value | None, is_reverse: bool) -> Value:
    """The gradient of rows of R: `states` are those before all times but the first; before that it is zero, or given."""
    b = layer.b
    rows = b.sizes(d, 2)
    flat = b.Reshape(_all_but_the_first(b, d, is_reverse), b.Concat(b.ints(-1), rows, axis=0))
    found = b.g.op("Gemm", flat, b.Reshape(states, b.ints(-1, layer.hidden)), transA=1)
    if first is None:
        return found
    at = np.array(-1 if is_reverse else 0, np.int64)
    return b.Add(found, b.g.op("Gemm", b.Gather(d, at, axis=0), first, transA=1))


def _joined(b: Backward, values: list[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else b.Concat(*values, axis=axis)


def _trimmed(values: list[Value | None]) -> list[Value | None]:
    """Inputs without those at the end that are not given."""
    while values[-1] is None:
        values.pop()
    return values


def _all_but_the_first(b: Backward, value: Value, is_reverse: bool) -> Value:
    """What lies behind the first time, or before the last one, which is the first in the other direction."""
    bounds = (0, -1) if is_reverse else (1, np.iinfo(np.int64).max)
    return b.Slice(value, *map(b.ints, bounds), b.ints(0))


@gradient("LSTM", stops=(4,))
def _lstm(b: Backward) -> Results:
    layer = _Layer(b)
    if layer.is_plain:
        return _traced(layer)

    def bounded(g: GraphBuilder, value: Value) -> Value:
        limit = np.array(layer.clip, layer.dtype.numpy)
        return g.Min(g.Max(value, -limit), limit) if layer.clip else value

    def run(part: _Direction) -> _Ran:
        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            old = states[1]
            enter, leave, keep, new = layer.split(g, g.Add(inputs[0], g.MatMul(states[0], part.across)))
            if part.peepholes:
                to_enter, to_leave, to_keep = part.peepholes
                enter, keep = g.Add(enter, g.Mul(old, to_enter)), g.Add(keep, g.Mul(old, to_keep))
            sums = [enter, leave, keep, new]
            enter, keep, new = g.Sigmoid(bounded(g, enter)), g.Sigmoid(bounded(g, keep)), g.Tanh(bounded(g, new))
            cell = g.Add(g.Mul(keep, old), g.Mul(enter, new))
            if part.peepholes:
                sums[1] = leave = g.Add(leave, g.Mul(cell, to_leave))
            leave = g.Sigmoid(bounded(g, leave))
            hidden = g.Mul(leave, g.Tanh(cell))
            kept = [hidden, cell, enter, leave, keep, new, *(sums if layer.clip else [])]
            return [hidden, cell], [g.Identity(value) for value in kept]

        given = [(layer.projected(part, both=True), 4)]
        ends, (hidden, *kept) = layer.scan(layer.f, part.states, given, step, backwards=False)
        return _Ran(tuple(ends), hidden, tuple(kept))

    def back(part: _Direction, ran: _Ran, dy: Value, ends: tuple[Value, ...]) -> _Found:
        one, zero = np.ones((), layer.dtype.numpy), np.zeros((), layer.dtype.numpy)
        limit = np.array(layer.clip, layer.dtype.numpy)
        cells = ran.kept[0]
        old_cells = layer.before(part.states[1], cells)

        def sigmoid_slope(g: GraphBuilder, gate: Value) -> Value:
            return g.Mul(gate, g.Sub(one, gate))

        def tanh_slope(g: GraphBuilder, value: Value) -> Value:
            return g.Sub(one, g.Mul(value, value))

        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            dy, old, cell, enter, leave, keep, new, *sums = inputs

            def unbounded(gradient: Value, number: int) -> Value:
                """Nothing flows through a sum that was clipped."""
                return g.Where(g.LessOrEqual(g.Abs(sums[number]), limit), gradient, zero) if sums else gradient

            dh, squashed = g.Add(states[0], dy), g.Tanh(cell)
            of_leave = unbounded(g.Mul(g.Mul(dh, squashed), sigmoid_slope(g, leave)), 1)
            dc = g.Add(states[1], g.Mul(g.Mul(dh, leave), tanh_slope(g, squashed)))
            if part.peepholes:
                dc = g.Add(dc, g.Mul(of_leave, part.peepholes[1]))
            of_enter = unbounded(g.Mul(g.Mul(dc, new), sigmoid_slope(g, enter)), 0)
            of_keep = unbounded(g.Mul(g.Mul(dc, old), sigmoid_slope(g, keep)), 2)
            of_new = unbounded(g.Mul(g.Mul(dc, enter), tanh_slope(g, new)), 3)
            before = g.Mul(dc, keep)
            if part.peepholes:
                before = g.Add(before, g.Add(g.Mul(of_enter, part.peepholes[0]), g.Mul(of_keep, part.peepholes[2])))
            gates = g.Concat(of_enter, of_leave, of_keep, of_new, axis=-1)
            return [g.MatMul(gates, part.r), before], [g.Identity(gates)]

        inputs = [(value, 1) for value in (dy, old_cells, *ran.kept)]
        states, (gates,) = layer.scan(b, ends, inputs, step, backwards=True)
        of_peepholes = None
        if part.peepholes and b.wants(7):
            parts = b.g.node("Split", [gates, b.ints(*(layer.hidden,) * 4)], 4, attrs={"axis": -1})
            seen = zip(parts[:3], (old_cells, cells, old_cells))
            of_peepholes = b.Concat(*(b.ReduceSum(b.Mul(*pair), b.ints(0, 1), keepdims=0) for pair in seen), axis=0)
        return _Found(gates, gates, tuple(states), of_peepholes=of_peepholes)

    return layer.results(run, back)


@gradient("GRU", stops=(4,))
def _gru(b: Backward) -> Results:
    layer = _Layer(b)
    if not b.attr("linear_before_reset"):
        return _reset_before_product(layer)
    if layer.is_plain:
        return _traced(layer)

    def run(part: _Direction) -> _Ran:
        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            product = g.MatMul(states[0], part.across)
            if part.bias is not None:
                product = g.Add(product, part.bias[1])
            (update, reset, new), (u, r, inner) = layer.split(g, inputs[0]), layer.split(g, product)
            update, reset = g.Sigmoid(g.Add(update, u)), g.Sigmoid(g.Add(reset, r))
            new = g.Tanh(g.Add(new, g.Mul(reset, inner)))
            hidden = g.Add(new, g.Mul(update, g.Sub(states[0], new)))
            return [hidden], [g.Identity(value) for value in (hidden, update, reset, new, inner)]

        given = [(layer.projected(part, both=False), 3)]
        ends, (hidden, *kept) = layer.scan(layer.f, part.states, given, step, backwards=False)
        return _Ran(tuple(ends), hidden, tuple(kept))

    def back(part: _Direction, ran: _Ran, dy: Value, ends: tuple[Value, ...]) -> _Found:
        update, reset, new, inner = map(layer.t, ran.kept)
        old = layer.t(layer.before(part.states[0], ran.hidden))
        of_new = (1 - update) * (1 - new * new)  # multiples of the hidden state's gradient
        factors = [(old - new) * update * (1 - update), of_new * inner * reset * (1 - reset), of_new, of_new * reset]

        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            dy, kept, *own = inputs
            dh = g.Add(states[0], dy)
            d = [g.Mul(dh, factor) for factor in own]
            through = g.Concat(d[0], d[1], d[3], axis=-1)
            before = g.Add(g.Mul(dh, kept), g.MatMul(through, part.r))
            return [before], [g.Concat(*d[:3], axis=-1), g.Identity(through)]

        inputs = [(value, 1) for value in (dy, update.value, *(factor.value for factor in factors))]
        states, (gates, through) = layer.scan(b, ends, inputs, step, backwards=True)
        return _Found(gates, through, tuple(states))

    return layer.results(run, back)


def _reset_before_product(layer: _Layer) -> Results:
    """A GRU whose new state sees (reset * state) R: the product for it waits for that of the gates."""
    b, size = layer.b, layer.hidden

    def parts(at: Backward, r: Value) -> tuple[Value, Value]:
        """R of both gates, and of the new state."""
        found = at.g.node("Split", [r, at.ints(2 * size, size)], 2, attrs={"axis": 0})
        return found[0], found[1]

    def run(part: _Direction) -> _Ran:
        f = layer.f
        of_gates, of_new = (f.Transpose(each, perm=[1, 0]) for each in parts(f, part.r))

        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            gates, new = g.node("Split", [inputs[0], np.array([2 * size, size])], 2, attrs={"axis": -1})
            both = g.Sigmoid(g.Add(gates, g.MatMul(states[0], of_gates)))
            update, reset = g.node("Split", [both, np.array([size, size])], 2, attrs={"axis": -1})
            new = g.Tanh(g.Add(new, g.MatMul(g.Mul(reset, states[0]), of_new)))
            hidden = g.Add(new, g.Mul(update, g.Sub(states[0], new)))
            return [hidden], [g.Identity(value) for value in (hidden, update, reset, new)]

        given = [(layer.projected(part, both=True), 3)]
        ends, (hidden, *kept) = layer.scan(f, part.states, given, step, backwards=False)
        return _Ran(tuple(ends), hidden, tuple(kept))

    def back(part: _Direction, ran: _Ran, dy: Value, ends: tuple[Value, ...]) -> _Found:
        update, reset, new = map(layer.t, ran.kept)
        old = layer.t(layer.before(part.states[0], ran.hidden))
        of_update, of_new = (old - new) * update * (1 - update), (1 - update) * (1 - new * new)
        of_reset = old * reset * (1 - reset)  # a multiple of what comes back through the product
        gates_r, new_r = parts(b, part.r)

        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            dy, kept, reset, to_update, to_new, to_reset = inputs
            dh = g.Add(states[0], dy)
            inner = g.Mul(dh, to_new)
            through = g.MatMul(inner, new_r)
            gates = g.Concat(g.Mul(dh, to_update), g.Mul(through, to_reset), axis=-1)
            before = g.Add(g.Add(g.Mul(dh, kept), g.Mul(through, reset)), g.MatMul(gates, gates_r))
            return [before], [g.Concat(gates, inner, axis=-1)]

        values = (dy, update.value, reset.value, of_update.value, of_new.value, of_reset.value)
        states, (all_gates,) = layer.scan(b, ends, [(value, 1) for value in values], step, backwards=True)
        gates, inner = b.g.node("Split", [all_gates, b.ints(2 * size, size)], 2, attrs={"axis": -1})
        of_r = (layer.weights(gates, old.value, gates_r), layer.weights(inner, (reset * old).value, new_r))
        return _Found(all_gates, all_gates, tuple(states), b.Concat(*of_r, axis=0))

    return layer.results(run, back)


@gradient("RNN", stops=(4,))
def _rnn(b: Backward) -> Results:
    layer = _Layer(b)

    def run(part: _Direction) -> _Ran:
        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            total = g.Add(inputs[0], g.MatMul(states[0], part.across))
            hidden = g.Relu(total) if layer.is_relu else g.Tanh(total)
            return [hidden], [g.Identity(hidden)]

        ends, (hidden,) = layer.scan(layer.f, part.states, [(layer.projected(part, both=True), 1)], step, backwards=False)
        return _Ran(tuple(ends), hidden, ())

    def back(part: _Direction, ran: _Ran, dy: Value, ends: tuple[Value, ...]) -> _Found:
        after = layer.t(ran.hidden)

        def step(g: GraphBuilder, states: list[Value], inputs: list[Value]) -> tuple[list[Value], list[Value]]:
            d = g.Mul(g.Add(states[0], inputs[0]), inputs[1])
            return [g.MatMul(d, part.r)], [g.Identity(d)]

        zero = np.zeros((), layer.dtype.numpy)
        slope = b.Cast(b.Greater(after.value, zero), to=layer.dtype.onnx) if layer.is_relu else (1 - after * after).value
        inputs = [(dy, 1), (slope, 1)]
        states, (d,) = layer.scan(b, ends, inputs, step, backwards=True)
        return _Found(d, d, tuple(states))

    return layer.results(run, back)
