"""Recurrent layers: RNN, GRU and LSTM.

The products of the inputs with the weights are one matrix product over all time steps; the loop over time has only the product
with the hidden state and the gates. A direction that runs backwards sees every sequence reversed within its own length, and
its results are put back in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, format_shape
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult, merge_shapes
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul
from sardonyx.records import dataclass

Activation = Callable[[Array], Array]
Step = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]  # projected inputs, states -> states; the first is the hidden one


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-x)))


# name -> function of (x, alpha, beta), default alpha, default beta (None: the function takes none)
_ACTIVATIONS: Final[dict[str, tuple[Callable[[Any, Any, Any], Any], float | None, float | None]]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: sigmoid(x), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x >= a, x, 0), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)), 1.0, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, a, b: np.logaddexp(x, 0), None, None),
}


def _activations(
    names: Sequence[str] | None,
    defaults: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    directions: int,
) -> list[list[Activation]]:
    """The activation functions of each direction; alphas and betas go, in order, to the functions that take them."""
    chosen = list(names or tuple(defaults) * directions)
    if len(chosen) < len(defaults) * directions:
        raise ValueError(f"activations {chosen} are too few: expected {len(defaults)} for each of {directions} directions")
    next_alpha, next_beta = iter(alphas or ()), iter(betas or ())
    functions: list[Activation] = []
    for name in chosen:
        if name.lower() not in _ACTIVATIONS:
            raise ValueError(f"activation {name!r} is not known")
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        if alpha is not None:
            alpha = next(next_alpha, alpha)
        if beta is not None:
            beta = next(next_beta, beta)
        functions.append(_bound(function, alpha, beta))
    return [functions[start : start + len(defaults)] for start in range(0, len(defaults) * directions, len(defaults))]


def _bound(function: Callable[[Any, Any, Any], Any], alpha: float | None, beta: float | None) -> Activation:
    return lambda x: np.asarray(function(x, alpha, beta)).astype(x.dtype, copy=False)


def _clipped(limit: float | None) -> Activation:
    if limit is None or limit <= 0:
        return lambda x: x
    return lambda x: np.clip(x, -limit, limit)


@dataclass(frozen=True, slots=True)
class Sequences:
    """The inputs all recurrent layers share, in their computing type, with time as the first axis."""

    x: Array  # [time, batch, inputs]
    w: Array  # [directions, gates * hidden, inputs]
    r: Array  # [directions, gates * hidden, hidden]
    b: Array  # [directions, 2 * gates * hidden]: of the inputs, then of the recurrence
    lengths: Array | None
    backwards: tuple[bool, ...]  # for each direction
    states: tuple[Array, ...]  # initial, each [directions, batch, hidden]

    @property
    def hidden(self) -> int:
        return int(self.r.shape[2])


DIRECTIONS: Final = {"forward": (False,), "foward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _backwards(direction: str) -> tuple[bool, ...]:
    """For each direction, whether it runs backwards."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}, expected forward, reverse or bidirectional")
    return DIRECTIONS[direction]


def prepare(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    states: Sequence[Array | None],
    *,
    direction: str,
    gates: int,
    hidden_size: int | None,
    layout: int | None,
) -> Sequences:
    """Check the inputs against each other, fill in what is left out, and put time first."""
    backwards = _backwards(direction)
    if x.ndim != 3 or w.ndim != 3 or r.ndim != 3:
        raise ValueError(f"X, W and R need three axes each, their shapes are {x.shape}, {w.shape} and {r.shape}")
    wide = widen(x).swapaxes(0, 1) if layout else widen(x)
    hidden, batch = r.shape[2], wide.shape[1]
    if hidden_size and hidden_size != hidden:
        raise ValueError(f"hidden_size is {hidden_size}, but R of shape {r.shape} is made for {hidden}")
    expected = {"W": (len(backwards), gates * hidden, x.shape[2]), "R": (len(backwards), gates * hidden, hidden)}
    for name, array in (("W", w), ("R", r)):
        if array.shape != expected[name]:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected[name]}")
    bias = np.zeros((len(backwards), 2 * gates * hidden), wide.dtype) if b is None else widen(b)
    if bias.shape != (len(backwards), 2 * gates * hidden):
        raise ValueError(f"B has shape {bias.shape}, expected {(len(backwards), 2 * gates * hidden)}")
    initial = []
    for state in states:
        if state is None:
            initial.append(np.zeros((len(backwards), batch, hidden), wide.dtype))
            continue
        moved = widen(state).swapaxes(0, 1) if layout else widen(state)
        if moved.shape != (len(backwards), batch, hidden):
            raise ValueError(f"an initial state has shape {state.shape}, expected {len(backwards)} x {batch} x {hidden} elements")
        initial.append(moved)
    if lengths is not None and (lengths.shape != (batch,) or np.any(lengths < 0) or np.any(lengths > wide.shape[0])):
        raise ValueError(f"sequence_lens {lengths.tolist()} must hold {batch} lengths from 0 to {wide.shape[0]}")
    if lengths is not None and np.all(lengths == wide.shape[0]):
        lengths = None
    return Sequences(wide, widen(w), widen(r), bias, lengths, backwards, tuple(initial))


def _reversal(steps: int, lengths: Array | None, batch: int) -> Array:
    """For each time and sequence, the time that stands there when the sequence runs backwards; it is its own inverse."""
    times = np.arange(steps)[:, None]
    ends = np.full(batch, steps) if lengths is None else lengths.astype(np.int64)
    return np.where(times < ends, ends - 1 - times, times)[:, :, None]


def run(data: Sequences, projection_bias: Array, make_step: Callable[[int], Step]) -> tuple[Array, tuple[Array, ...]]:
    """All hidden states [time, directions, batch, hidden] and the final states [directions, batch, hidden]."""
    steps, batch, width = data.x.shape
    outputs = np.zeros((steps, len(data.backwards), batch, data.hidden), data.x.dtype)
    finals = tuple(state.copy() for state in data.states)
    for number, backwards in enumerate(data.backwards):
        projected = (matmul(data.x.reshape(steps * batch, width), data.w[number].T) + projection_bias[number]).reshape(
            steps, batch, data.w.shape[1]
        )
        order = _reversal(steps, data.lengths, batch) if backwards else None
        if order is not None:
            projected = np.take_along_axis(projected, order, axis=0)
        step, states = make_step(number), tuple(state[number] for state in data.states)
        result = outputs[:, number]
        for time in range(steps):
            stop_if_asked()
            following = step(projected[time], states)
            if data.lengths is None:
                result[time] = following[0]
                states = following
            else:
                running = (time < data.lengths)[:, None]
                result[time] = np.where(running, following[0], 0)
                states = tuple(np.where(running, new, old) for new, old in zip(following, states, strict=True))
        if order is not None:
            outputs[:, number] = np.take_along_axis(result, order, axis=0)
        for final, state in zip(finals, states, strict=True):
            final[number] = state
    return outputs, finals


def _results(outputs: Array, finals: tuple[Array, ...], layout: int | None, dtype: np.dtype[Any]) -> tuple[Array, ...]:
    if layout:
        outputs = outputs.transpose(2, 0, 1, 3)
        finals = tuple(final.swapaxes(0, 1) for final in finals)
    return tuple(narrow(np.ascontiguousarray(array), dtype) for array in (outputs, *finals))


def _rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: tuple[float, ...] | None,
    activation_beta: tuple[float, ...] | None,
    activations: tuple[str, ...] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    layout: int | None,
) -> tuple[Array, ...]:
    data = prepare(x, w, r, b, sequence_lens, (initial_h,), direction=direction, gates=1, hidden_size=hidden_size, layout=layout)
    functions = _activations(activations, ("Tanh",), activation_alpha, activation_beta, len(data.backwards))
    bounded, hidden = _clipped(clip), data.hidden

    def make_step(number: int) -> Step:
        recurrence, (activate,) = data.r[number].T.copy(), functions[number]

        def step(projected: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            return (activate(bounded(projected + matmul(states[0], recurrence))),)

        return step

    with np.errstate(all="ignore"):
        return _results(*run(data, data.b[:, :hidden] + data.b[:, hidden:], make_step), layout, x.dtype)


def _gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: tuple[float, ...] | None,
    activation_beta: tuple[float, ...] | None,
    activations: tuple[str, ...] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    layout: int | None,
    linear_before_reset: int | None,
) -> tuple[Array, ...]:
    data = prepare(x, w, r, b, sequence_lens, (initial_h,), direction=direction, gates=3, hidden_size=hidden_size, layout=layout)
    functions = _activations(activations, ("Sigmoid", "Tanh"), activation_alpha, activation_beta, len(data.backwards))
    bounded, hidden = _clipped(clip), data.hidden
    input_bias, recurrent_bias = data.b[:, : 3 * hidden], data.b[:, 3 * hidden :].copy()
    projection_bias = input_bias + recurrent_bias
    if linear_before_reset:  # then the hidden gate's recurrent bias is scaled by the reset gate
        projection_bias[:, 2 * hidden :] = input_bias[:, 2 * hidden :]

    def make_step(number: int) -> Step:
        gate, candidate = functions[number]
        recurrence = data.r[number].T.copy()
        gates, inner = recurrence[:, : 2 * hidden].copy(), recurrence[:, 2 * hidden :].copy()
        bias = recurrent_bias[number, 2 * hidden :]

        def step(projected: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            h = states[0]
            if linear_before_reset:
                product = matmul(h, recurrence)
                update_reset = gate(bounded(projected[:, : 2 * hidden] + product[:, : 2 * hidden]))
                recurrent = update_reset[:, hidden:] * (product[:, 2 * hidden :] + bias)
            else:
                update_reset = gate(bounded(projected[:, : 2 * hidden] + matmul(h, gates)))
                recurrent = matmul(update_reset[:, hidden:] * h, inner)
            update = update_reset[:, :hidden]
            new = candidate(bounded(projected[:, 2 * hidden :] + recurrent))
            return ((1 - update) * new + update * h,)

        return step

    with np.errstate(all="ignore"):
        return _results(*run(data, projection_bias, make_step), layout, x.dtype)


def lstm_core(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
    *,
    activation_alpha: tuple[float, ...] | None,
    activation_beta: tuple[float, ...] | None,
    activations: tuple[str, ...] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    input_forget: int | None,
    layout: int | None,
    recurrent_input: Activation = lambda h: h,
) -> tuple[Array, ...]:
    """LSTM; `recurrent_input` stands between the hidden state of a step and the product with R in the next."""
    data = prepare(
        x, w, r, b, sequence_lens, (initial_h, initial_c), direction=direction, gates=4, hidden_size=hidden_size, layout=layout
    )
    functions = _activations(activations, ("Sigmoid", "Tanh", "Tanh"), activation_alpha, activation_beta, len(data.backwards))
    bounded, hidden = _clipped(clip), data.hidden
    if p is not None and p.shape != (len(data.backwards), 3 * hidden):
        raise ValueError(f"P has shape {p.shape}, expected {(len(data.backwards), 3 * hidden)}")
    peepholes = None if p is None else np.split(widen(p), 3, axis=1)  # of the input, output and forget gates

    def make_step(number: int) -> Step:
        gate, candidate, squash = functions[number]
        recurrence = data.r[number].T.copy()
        peeps = None if peepholes is None else [part[number] for part in peepholes]

        def step(projected: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            h, c = states
            total = projected + matmul(recurrent_input(h), recurrence)
            new = candidate(bounded(total[:, 3 * hidden :]))
            if peeps is None:
                opened = gate(bounded(total[:, : 3 * hidden]))
                enter, leave, keep = opened[:, :hidden], opened[:, hidden : 2 * hidden], opened[:, 2 * hidden :]
                cell = (1 - enter if input_forget else keep) * c + enter * new
            else:
                enter = gate(bounded(total[:, :hidden] + peeps[0] * c))
                keep = 1 - enter if input_forget else gate(bounded(total[:, 2 * hidden : 3 * hidden] + peeps[2] * c))
                cell = keep * c + enter * new
                leave = gate(bounded(total[:, hidden : 2 * hidden] + peeps[1] * cell))
            return leave * squash(cell), cell

        return step

    with np.errstate(all="ignore"):
        return _results(*run(data, data.b[:, : 4 * hidden] + data.b[:, 4 * hidden :], make_step), layout, x.dtype)


_GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}


def infer_recurrent(ctx: InferContext, gates: int = 0) -> InferResult:
    """All hidden states, then one final state after the other; `gates` of an operator that is not one of ONNX."""
    x, r = ctx.shape(0, rank=3), ctx.shape(2, rank=3)
    direction = ctx.attr("direction")
    directions = len(_backwards("forward" if direction is None else direction))
    hidden: Dim = ctx.attr("hidden_size") or (ctx.fresh() if r is None else r[2])
    if isinstance(hidden, int) and r is not None and isinstance(r[2], int) and r[2] != hidden:
        raise ValueError(f"hidden_size is {hidden}, but R of shape {format_shape(r)} is made for {r[2]}")
    layout = ctx.attr("layout")
    first, second = (ctx.fresh(), ctx.fresh()) if x is None else x[:2]
    steps, batch = (second, first) if layout else (first, second)
    rows = (gates or _GATES.get(ctx.node.op_type, 1)) * hidden
    if x is not None:
        ctx.expect_shape(1, directions, rows, x[2])
    ctx.expect_shape(2, directions, rows, hidden)
    ctx.expect_shape(3, directions, 2 * rows)
    ctx.expect_shape(4, batch)
    for index in (5, 6):
        ctx.expect_shape(index, *((batch, directions, hidden) if layout else (directions, batch, hidden)))
    ctx.expect_shape(7, directions, 3 * hidden)
    outputs: Shape = (batch, steps, directions, hidden) if layout else (steps, directions, batch, hidden)
    state: Shape = (batch, directions, hidden) if layout else (directions, batch, hidden)
    if ctx.node.op_type in _GATES:  # others pack their weights differently
        _check_parameters(ctx, x, directions, hidden, state)
    shapes: list[InferOne] = [outputs]
    return shapes + [state] * (ctx.outputs - 1)


def _check_parameters(ctx: InferContext, x: Shape | None, directions: int, hidden: Dim, state: Shape) -> None:
    """Refuse weights and initial states that do not fit the input."""
    gates = _GATES[ctx.node.op_type]
    expected: list[tuple[int, str, Shape]] = [
        (1, "W", (directions, gates * hidden, ctx.fresh() if x is None else x[2])),
        (2, "R", (directions, gates * hidden, hidden)),
        (3, "B", (directions, 2 * gates * hidden)),
        (5, "initial_h", state),
        *([(6, "initial_c", state)] if gates == _GATES["LSTM"] else []),
    ]
    for index, name, wanted in expected:
        try:
            merge_shapes(ctx.shape(index), wanted)
        except ValueError:
            found = format_shape(ctx.shape(index))
            raise ValueError(f"input {index} ({name}) is {found}, expected {format_shape(wanted)}") from None


RNN = op("RNN", eval=_rnn, infer=infer_recurrent, traits=Trait.REFUSES)
GRU = op("GRU", eval=_gru, infer=infer_recurrent, traits=Trait.REFUSES)
LSTM = op(
    "LSTM",
    eval=lstm_core,
    infer=infer_recurrent,
    keywords=(
        "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget", "layout",
    ),
    traits=Trait.REFUSES,
)  # fmt: skip
