"""Recurrent layers that are trained; the gradient rules of LSTM and GRU make these, models do not hold them.

LSTMTrace(X, W, R, B, initial_h, initial_c)      an LSTM that hands out what its gradient needs, [time, directions, batch,
                                                 5 * hidden]: of every time the input, output and forget gate, the new content
                                                 and the cell before
LSTMTraceGrad(trace, R, dY, dY_h, dY_c)          the gradient of what the gates were taken of, [time, directions, batch,
                                                 4 * hidden], and of the first cell, [directions, batch, hidden]
GRUTrace(X, W, R, B, initial_h)                  the same for a GRU that is linear before its reset: the update and reset gate,
                                                 the new content, its recurrent part before the reset, and the state before
GRUTraceGrad(trace, R, dY, dY_h)                 the gradients of what both gates and the new content were taken of, and of the
                                                 latter's recurrent part, 4 * hidden; and what comes to the first state past all
                                                 products
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape
from sardonyx.ops.definition import op
from sardonyx.ops.indexing.gradients import DOMAIN
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul
from sardonyx.ops.rnn.rnn import DIRECTIONS, Sequences, Step, prepare, run, sigmoid

TRACED: Final = 5  # parts of a trace
MADE: Final = 4  # parts of the gradient of a time
WHOLE_VECTORS: Final = 16  # lanes of the longest vector: kernels of gradients take hidden sizes that are multiples of it
_LSTM_GATES: Final = 4
_GRU_GATES: Final = 3

# What a cell traces and its new states, of what was projected, the product with R, the states and the bias of that product
_Cell = Callable[[Array, Array, tuple[Array, ...], Array], tuple[list[Array], tuple[Array, ...]]]
# The gradient of a time's parts, what flows on to the states before but for products, and what is multiplied with R; of the
# gradient of the hidden state, those of other states and the trace
_Back = Callable[[Array, tuple[Array, ...], list[Array]], tuple[list[Array], tuple[Array, ...], list[Array]]]


def _lstm_cell(projected: Array, product: Array, states: tuple[Array, ...], bias: Array) -> tuple[list[Array], tuple[Array, ...]]:
    enter, leave, keep, new = np.split(projected + product + bias, _LSTM_GATES, axis=1)
    enter, leave, keep, new, old = sigmoid(enter), sigmoid(leave), sigmoid(keep), np.tanh(new), states[1]
    cell = keep * old + enter * new
    return [enter, leave, keep, new, old], (leave * np.tanh(cell), cell)


def _gru_cell(projected: Array, product: Array, states: tuple[Array, ...], bias: Array) -> tuple[list[Array], tuple[Array, ...]]:
    update, reset, new = np.split(projected, _GRU_GATES, axis=1)
    to_update, to_reset, inner = np.split(product + bias, _GRU_GATES, axis=1)
    update, reset, old = sigmoid(update + to_update), sigmoid(reset + to_reset), states[0]
    new = np.tanh(new + reset * inner)
    return [update, reset, new, inner, old], ((1 - update) * new + update * old,)


def _trace(data: Sequences, cell: _Cell, dtype: np.dtype[np.generic]) -> tuple[Array, ...]:
    """All hidden states, the final states, and the trace."""
    steps, batch, _ = data.x.shape
    trace = np.zeros((steps, len(data.backwards), batch, TRACED * data.hidden), data.x.dtype)
    size = data.w.shape[1]

    def make_step(number: int) -> Step:
        recurrence, times = data.r[number].T.copy(), iter(range(steps))

        def step(projected: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            kept, following = cell(projected, matmul(states[0], recurrence), states, data.b[number, size:])
            time = next(times)
            trace[steps - 1 - time if data.backwards[number] else time, number] = np.concatenate(kept, axis=1)
            return following

        return step

    with np.errstate(all="ignore"):
        outputs, finals = run(data, data.b[:, :size], make_step)
    return tuple(narrow(array, dtype) for array in (outputs, *finals, trace))


def _lstm_trace(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    *,
    direction: str,
) -> tuple[Array, ...]:
    states = (initial_h, initial_c)
    data = prepare(x, w, r, b, None, states, direction=direction, gates=_LSTM_GATES, hidden_size=None, layout=0)
    return _trace(data, _lstm_cell, x.dtype)


def _gru_trace(
    x: Array, w: Array, r: Array, b: Array | None = None, initial_h: Array | None = None, *, direction: str
) -> tuple[Array, ...]:
    data = prepare(x, w, r, b, None, (initial_h,), direction=direction, gates=_GRU_GATES, hidden_size=None, layout=0)
    return _trace(data, _gru_cell, x.dtype)


def _lstm_back(dh: Array, others: tuple[Array, ...], trace: list[Array]) -> tuple[list[Array], tuple[Array, ...], list[Array]]:
    enter, leave, keep, new, old = trace
    squashed = np.tanh(keep * old + enter * new)
    dc = others[0] + dh * leave * (1 - squashed * squashed)
    of_leave = dh * squashed * leave * (1 - leave)
    of_enter, of_keep = dc * new * enter * (1 - enter), dc * old * keep * (1 - keep)
    made = [of_enter, of_leave, of_keep, dc * enter * (1 - new * new)]
    return made, (np.zeros_like(dh), dc * keep), made


def _gru_back(dh: Array, others: tuple[Array, ...], trace: list[Array]) -> tuple[list[Array], tuple[Array, ...], list[Array]]:
    update, reset, new, inner, old = trace
    of_new = dh * (1 - update) * (1 - new * new)
    of_update, of_reset = dh * (old - new) * update * (1 - update), of_new * inner * reset * (1 - reset)
    return [of_update, of_reset, of_new, of_new * reset], (dh * update,), [of_update, of_reset, of_new * reset]


def _gradients(
    trace: Array, r: Array, dy: Array | None, ends: Sequence[tuple[str, Array | None]], direction: str, gates: int, back: _Back
) -> tuple[Array, tuple[Array, ...]]:
    """Gradients of all times, and what is left for each state before the first one."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}, expected forward, reverse or bidirectional")
    backwards = DIRECTIONS[direction]
    if r.ndim != 3 or r.shape[1] != gates * r.shape[2] or len(r) != len(backwards):
        raise ValueError(f"R has shape {r.shape}, expected {len(backwards)} x {gates} * hidden x hidden elements")
    hidden = r.shape[2]
    if trace.ndim != 4 or trace.shape[1] != len(backwards) or trace.shape[3] != TRACED * hidden:
        raise ValueError(f"a trace of shape {trace.shape} does not fit R of shape {r.shape}")
    steps, directions, batch, _ = trace.shape
    state = (directions, batch, hidden)
    for name, array, expected in (("dY", dy, (steps, *state)), *((name, array, state) for name, array in ends)):
        if array is not None and array.shape != expected:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    kept, weights = widen(trace), widen(r)
    found = np.zeros((steps, directions, batch, MADE * hidden), kept.dtype)
    left = tuple(np.zeros(state, kept.dtype) if array is None else widen(array).copy() for _, array in ends)
    with np.errstate(all="ignore"):
        for number, is_reverse in enumerate(backwards):
            through = np.zeros((batch, hidden), kept.dtype)
            for time in range(steps) if is_reverse else reversed(range(steps)):
                stop_if_asked()
                dh = left[0][number] + through
                if dy is not None:
                    dh = dh + widen(dy[time, number])
                parts = np.split(kept[time, number], TRACED, axis=1)
                made, states, multiplied = back(dh, tuple(each[number] for each in left[1:]), parts)
                found[time, number] = np.concatenate(made, axis=1)
                through = matmul(np.concatenate(multiplied, axis=1), weights[number])
                for each, value in zip(left, states, strict=True):
                    each[number] = value
    return narrow(found, trace.dtype), tuple(narrow(each, trace.dtype) for each in left)


def _lstm_trace_grad(
    trace: Array,
    r: Array,
    dy: Array | None = None,
    dy_h: Array | None = None,
    dy_c: Array | None = None,
    *,
    direction: str,
) -> tuple[Array, Array]:
    ends = (("dY_h", dy_h), ("dY_c", dy_c))
    found, (_, cell) = _gradients(trace, r, dy, ends, direction, _LSTM_GATES, _lstm_back)
    return found, cell


def _gru_trace_grad(
    trace: Array, r: Array, dy: Array | None = None, dy_h: Array | None = None, *, direction: str
) -> tuple[Array, Array]:
    found, (past,) = _gradients(trace, r, dy, (("dY_h", dy_h),), direction, _GRU_GATES, _gru_back)
    return found, past


def _infer_trace(gates: int, states: int) -> Callable[[InferContext], InferResult]:
    def infer(ctx: InferContext) -> InferResult:
        x, r = ctx.shape(0), ctx.shape(2)
        if x is None or r is None or len(x) != 3 or len(r) != 3:
            return [None] * (states + 2)
        (steps, batch, inputs), (directions, _, hidden) = x, r
        ctx.expect_shape(1, directions, gates * hidden, inputs)
        ctx.expect_shape(2, directions, gates * hidden, hidden)
        ctx.expect_shape(3, directions, 2 * gates * hidden)
        state: Shape = (directions, batch, hidden)
        for number in range(states):
            ctx.expect_shape(4 + number, *state)
        return [(steps, *state), *[state] * states, (steps, directions, batch, TRACED * hidden)]

    return infer


def _infer_trace_grad(gates: int, states: int) -> Callable[[InferContext], InferResult]:
    def infer(ctx: InferContext) -> InferResult:
        trace, r = ctx.shape(0), ctx.shape(1)
        if trace is None or r is None or len(trace) != 4 or len(r) != 3:
            return [None, None]
        (steps, directions, batch, width), (_, _, hidden) = trace, r
        ctx.expect_equal(width, TRACED * hidden)
        ctx.expect_shape(1, directions, gates * hidden, hidden)
        state: tuple[Dim, ...] = (directions, batch, hidden)
        ctx.expect_shape(2, steps, *state)
        for number in range(states):
            ctx.expect_shape(3 + number, *state)
        return [(steps, directions, batch, MADE * hidden), state]

    return infer


op("LSTMTrace", eval=_lstm_trace, infer=_infer_trace(_LSTM_GATES, 2), domain=DOMAIN)
op("GRUTrace", eval=_gru_trace, infer=_infer_trace(_GRU_GATES, 1), domain=DOMAIN)
op("LSTMTraceGrad", eval=_lstm_trace_grad, infer=_infer_trace_grad(_LSTM_GATES, 2), domain=DOMAIN)
op("GRUTraceGrad", eval=_gru_trace_grad, infer=_infer_trace_grad(_GRU_GATES, 1), domain=DOMAIN)
