"""The loss of connectionist temporal classification, with its gradient: modules that are trained hold it, models do not.

CTCLoss(log_probabilities [T, N, C], labels [N, S], input_lengths [N], label_lengths [N]) -> loss [N], gradient [T, N, C]

The states of a sequence are its labels with a blank before each and one behind:  _ a _ b _ b _ . From one step to the next a
state stays, goes on by one, or by two to a label that is not the one before. `gradient` is that of the loss with respect to what
a LogSoftmax made the probabilities of: the probability less the share of all ways that have this class at this step.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.indexing.gradients import DOMAIN
from sardonyx.ops.infer import InferContext, InferOne, InferResult
from sardonyx.ops.precision import narrow, widen


def _log_sum(*parts: Array) -> Array:
    """log(sum of exp), where minus infinity may be all there is."""
    largest = np.maximum.reduce(parts)
    safe = np.where(np.isneginf(largest), 0, largest)
    return np.asarray(np.log(sum(np.exp(each - safe) for each in parts)) + safe)


def _shifted(states: Array, count: int) -> Array:
    """States as the state `count` later sees them; a negative count looks the other way."""
    result = np.full_like(states, -np.inf)
    if count > 0:
        result[:, count:] = states[:, :-count]
    else:
        result[:, :count] = states[:, -count:]
    return result


def _ctc_loss(
    x: Array, labels: Array, input_lengths: Array, label_lengths: Array, *, blank: int, zero_infinity: int
) -> tuple[Array, Array]:
    if x.ndim != 3 or labels.ndim != 2 or labels.shape[0] != x.shape[1]:
        raise ValueError(f"log-probabilities have shape {x.shape} and labels {labels.shape}, expected [T, N, C] and [N, S]")
    steps, batch, classes = x.shape
    for name, lengths, most in (("input", input_lengths, steps), ("label", label_lengths, labels.shape[1])):
        if lengths.shape != (batch,) or (batch and not 0 <= int(lengths.min()) <= int(lengths.max()) <= most):
            raise ValueError(f"the {name} lengths are {lengths.tolist()}, expected {batch} numbers from 0 to {most}")
    behind = np.arange(labels.shape[1]) >= label_lengths[:, None]
    states = np.full((batch, 2 * labels.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = np.where(behind, blank, labels)
    if states.size and not 0 <= int(states.min()) <= int(states.max()) < classes:
        raise IndexError(f"labels lie between {states.min()} and {states.max()}, there are {classes} classes")
    logarithms = widen(x)
    with np.errstate(all="ignore"):
        loss, shares = _ways(logarithms, states, input_lengths, label_lengths, blank)
        gradient = np.exp(logarithms) - shares
        gradient[:, np.isposinf(loss)] = 0 if zero_infinity else np.nan
        gradient[np.arange(steps)[:, None] >= input_lengths[None]] = 0
        loss = np.where(np.isposinf(loss), 0, loss) if zero_infinity else loss
    return narrow(loss, x.dtype), narrow(gradient, x.dtype)


def _ways(x: Array, states: Array, input_lengths: Array, label_lengths: Array, blank: int) -> tuple[Array, Array]:
    """The loss of each sequence, and the share of all ways that have a class at a step."""
    steps, batch, _ = x.shape
    before = np.concatenate((np.full((batch, 2), blank), states[:, :-2]), axis=1)[:, : states.shape[1]]
    skips = np.where((states != blank) & (states != before), x.dtype.type(0), -np.inf)
    found = np.take_along_axis(x, np.broadcast_to(states, (steps, *states.shape)), axis=2)
    alpha = np.full((steps + 1, *states.shape), -np.inf, x.dtype)
    alpha[0, :, 0] = 0
    for step in range(steps):
        now = alpha[step]
        alpha[step + 1] = found[step] + _log_sum(now, _shifted(now, 1), _shifted(now, 2) + skips)
    rows = np.arange(batch)
    last = alpha[input_lengths, rows]
    ends = [last[rows, 2 * label_lengths], last[rows, np.maximum(2 * label_lengths - 1, 0)]]
    loss = -_log_sum(ends[0], np.where(label_lengths > 0, ends[1], -np.inf))
    beta = np.full_like(alpha[0], -np.inf)
    beta[rows, 2 * label_lengths] = 0
    shares = np.zeros_like(x)
    for step in reversed(range(steps)):
        new = found[step] + _log_sum(beta, _shifted(beta, -1), _shifted(beta + skips, -2))
        beta = np.where((step < input_lengths)[:, None], new, beta)
        ways = np.exp(alpha[step + 1] + beta - found[step] + loss[:, None])
        ways[np.isneginf(alpha[step + 1]) | np.isneginf(beta)] = 0
        np.add.at(shares[step], (rows[:, None], states), ways)
    return loss, shares


def _infer_ctc_loss(ctx: InferContext) -> InferResult:
    x = ctx.shape(0, rank=3)
    shapes: list[InferOne] = [None if x is None else (x[1],), x]
    return shapes[: ctx.outputs]


CTC_LOSS = op("CTCLoss", domain=DOMAIN, eval=_ctc_loss, infer=_infer_ctc_loss, traits=Trait.REFUSES)
