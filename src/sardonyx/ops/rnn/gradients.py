"""LSTMs that are trained; the gradient rule of LSTM makes these, models do not hold them.

LSTMTrace(X, W, R, B, initial_h, initial_c)      an LSTM that hands out what its gradient needs: of every time the input, output
                                                 and forget gate, the new content and the cell before, [time, directions, batch,
                                                 5 * hidden]
LSTMTraceGrad(trace, R, dY, dY_h, dY_c)          the gradient of what the gates were taken of, [time, directions, batch,
                                                 4 * hidden], and of the first cell, [directions, batch, hidden]
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape
from sardonyx.ops.definition import op
from sardonyx.ops.indexing.gradients import DOMAIN
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.rnn.rnn import DIRECTIONS, Step, prepare, run, sigmoid

TRACED: Final = 5  # parts of a trace
GATES: Final = 4


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
    data = prepare(x, w, r, b, None, (initial_h, initial_c), direction=direction, gates=GATES, hidden_size=None, layout=0)
    steps, batch = data.x.shape[:2]
    trace = np.zeros((steps, len(data.backwards), batch, TRACED * data.hidden), data.x.dtype)

    def make_step(number: int) -> Step:
        recurrence, times = data.r[number].T.copy(), iter(range(steps))

        def step(projected: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            h, c = states
            enter, leave, keep, new = np.split(projected + h @ recurrence, GATES, axis=1)
            enter, leave, keep, new = sigmoid(enter), sigmoid(leave), sigmoid(keep), np.tanh(new)
            time = next(times)
            at = steps - 1 - time if data.backwards[number] else time
            trace[at, number] = np.concatenate([enter, leave, keep, new, c], axis=1)
            cell = keep * c + enter * new
            return leave * np.tanh(cell), cell

        return step

    split = GATES * data.hidden
    with np.errstate(all="ignore"):
        outputs, finals = run(data, data.b[:, :split] + data.b[:, split:], make_step)
    return tuple(narrow(array, x.dtype) for array in (outputs, *finals, trace))


def _lstm_trace_grad(
    trace: Array,
    r: Array,
    dy: Array | None = None,
    dy_h: Array | None = None,
    dy_c: Array | None = None,
    *,
    direction: str,
) -> tuple[Array, Array]:
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}, expected forward, reverse or bidirectional")
    backwards = DIRECTIONS[direction]
    if r.ndim != 3 or r.shape[1] != GATES * r.shape[2] or len(r) != len(backwards):
        raise ValueError(f"R has shape {r.shape}, expected {len(backwards)} x 4 * hidden x hidden elements")
    hidden = r.shape[2]
    if trace.ndim != 4 or trace.shape[1] != len(backwards) or trace.shape[3] != TRACED * hidden:
        raise ValueError(f"a trace of shape {trace.shape} does not fit R of shape {r.shape}")
    steps, directions, batch, _ = trace.shape
    state = (directions, batch, hidden)
    for name, array, expected in (("dY", dy, (steps, *state)), ("dY_h", dy_h, state), ("dY_c", dy_c, state)):
        if array is not None and array.shape != expected:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    kept, weights = widen(trace), widen(r)
    found = np.zeros((steps, directions, batch, GATES * hidden), kept.dtype)
    cells = np.zeros(state, kept.dtype)
    with np.errstate(all="ignore"):
        for number, is_reverse in enumerate(backwards):
            dh = np.zeros(state[1:], kept.dtype) if dy_h is None else widen(dy_h)[number]
            dc = np.zeros(state[1:], kept.dtype) if dy_c is None else widen(dy_c)[number]
            for time in range(steps) if is_reverse else reversed(range(steps)):
                stop_if_asked()
                if dy is not None:
                    dh = dh + widen(dy[time, number])
                enter, leave, keep, new, old = np.split(kept[time, number], TRACED, axis=1)
                squashed = np.tanh(keep * old + enter * new)
                dc = dc + dh * leave * (1 - squashed * squashed)
                of_leave = dh * squashed * leave * (1 - leave)
                of_enter, of_keep = dc * new * enter * (1 - enter), dc * old * keep * (1 - keep)
                gates = np.concatenate([of_enter, of_leave, of_keep, dc * enter * (1 - new * new)], axis=1)
                found[time, number] = gates
                dh, dc = gates @ weights[number], dc * keep
            cells[number] = dc
    return narrow(found, trace.dtype), narrow(cells, trace.dtype)


def _infer_lstm_trace(ctx: InferContext) -> InferResult:
    x, r = ctx.shape(0), ctx.shape(2)
    if x is None or r is None or len(x) != 3 or len(r) != 3:
        return [None, None, None, None]
    (steps, batch, inputs), (directions, _, hidden) = x, r
    ctx.expect_shape(1, directions, GATES * hidden, inputs)
    ctx.expect_shape(2, directions, GATES * hidden, hidden)
    ctx.expect_shape(3, directions, 2 * GATES * hidden)
    state: Shape = (directions, batch, hidden)
    ctx.expect_shape(4, *state)
    ctx.expect_shape(5, *state)
    return [(steps, *state), state, state, (steps, directions, batch, TRACED * hidden)]


def _infer_lstm_trace_grad(ctx: InferContext) -> InferResult:
    trace, r = ctx.shape(0), ctx.shape(1)
    if trace is None or r is None or len(trace) != 4 or len(r) != 3:
        return [None, None]
    (steps, directions, batch, width), (_, _, hidden) = trace, r
    ctx.expect_equal(width, TRACED * hidden)
    ctx.expect_shape(1, directions, GATES * hidden, hidden)
    state: Shape = (directions, batch, hidden)
    ctx.expect_shape(2, steps, *state)
    ctx.expect_shape(3, *state)
    ctx.expect_shape(4, *state)
    return [(steps, directions, batch, GATES * hidden), state]


op("LSTMTrace", eval=_lstm_trace, infer=_infer_lstm_trace, domain=DOMAIN)
op("LSTMTraceGrad", eval=_lstm_trace_grad, infer=_infer_lstm_trace_grad, domain=DOMAIN)
