"""Losses and layers of sequences of several lengths, where torch's exporter has none: `decompositions.py` has what this is for.

ctc_loss     of a batch, its labels padded, without a reduction, is an operator of ours (`symbolics_of_layers.py`)
lstm         with projections: one without, whose recurrence has the projection in it

    h[t] = P u[t]      u[t] = the state of an LSTM that reads  W x[t] + R h[t - 1]  =  W x[t] + (R P) u[t - 1]

The first state h[0] is no projection of any u: it comes with the first input, [x[1], h[0]], of which R takes the second part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Labels may stand in rows or one after the other; a single sequence may have no axis for the batch."""
    steps, labels = log_probs, targets
    lengths, counts = (
        each if isinstance(each, Tensor) else torch.tensor([int(one) for one in each]) for each in (input_lengths, target_lengths)
    )
    is_single = log_probs.ndim == 2
    if is_single:
        steps, lengths, counts = log_probs.unsqueeze(1), lengths.reshape(1), counts.reshape(1)
        labels = targets.reshape(1, -1)
    elif targets.ndim == 1:
        starts = counts.cumsum(0) - counts
        positions = starts.unsqueeze(1) + torch.arange(targets.shape[0]).unsqueeze(0)
        labels = targets[positions.clamp(max=targets.shape[0] - 1)]
    loss = torch.ctc_loss(steps, labels, lengths, counts, blank, 0, zero_infinity)
    if reduction == "mean":
        return (loss / counts.clamp(min=1).to(loss.dtype)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss.squeeze(0) if is_single else loss


def lstm(
    input: Tensor,
    hx: Any,
    params: Any,
    has_biases: Any,
    num_layers: Any,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> Any:
    """Layers with projections, each direction of each by itself; others are the exporter's."""
    directions = 2 if bidirectional else 1
    if isinstance(hx, Tensor) or len(params) != num_layers * directions * (5 if has_biases else 3):
        return NotImplemented
    rows = input.transpose(0, 1) if batch_first else input
    weights = [params[start : start + (5 if has_biases else 3)] for start in range(0, len(params), 5 if has_biases else 3)]
    hidden, cells = [], []
    for layer in range(num_layers):
        made = []
        for direction in range(directions):
            at = layer * directions + direction
            ran, end, cell = _projected(rows, hx[0][at], hx[1][at], weights[at], direction == 1)
            made.append(ran)
            hidden.append(end)
            cells.append(cell)
        rows = torch.cat(made, -1) if directions == 2 else made[0]
        if dropout and train and layer < num_layers - 1:
            rows = torch.nn.functional.dropout(rows, dropout, True)
    return (rows.transpose(0, 1) if batch_first else rows), torch.stack(hidden), torch.stack(cells)


def _projected(x: Tensor, hidden: Tensor, cell: Tensor, weights: Any, backwards: bool) -> tuple[Tensor, Tensor, Tensor]:
    """One direction of one layer: projected states of all steps, the last one, and the last cell; [T, B, features]."""
    of_input, across, *biases, projection = weights
    rows = x.flip(0) if backwards else x
    first = torch.cat((hidden.unsqueeze(0), torch.zeros_like(rows[1:, :, :1]).expand(-1, -1, hidden.shape[-1])), 0)
    own = [torch.cat((of_input, across), 1), across @ projection, *biases]
    start = (torch.zeros_like(cell).unsqueeze(0), cell.unsqueeze(0))
    states, _, last = torch.lstm(torch.cat((rows, first), -1), start, own, bool(biases), 1, 0.0, False, False, False)
    ran = states @ projection.t()
    return (ran.flip(0) if backwards else ran), ran[-1], last.squeeze(0)


SEQUENCES: Final[dict[Any, Callable[..., Any]]] = {torch.nn.functional.ctc_loss: ctc_loss, torch.lstm: lstm}
