"""What the cells of recurrent layers compute, as expressions of the products of a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sardonyx.kernel import math
from sardonyx.kernel.expr import Expr, clamp, const, select, unary
from sardonyx.kernel.rnn.rnn import RecurrentPass, projected, running, state, total, vector
from sardonyx.records import dataclass

FUNCTIONS: Final = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}

Activation = Callable[[Expr], Expr]

# name -> expression of (x, alpha, beta), default alpha, default beta (None: the function takes none)
ACTIVATIONS: Final[dict[str, tuple[Callable[[Expr, Any, Any], Expr], float | None, float | None]]] = {
    "relu": (lambda x, a, b: clamp(x, 0.0, None), None, None),
    "tanh": (lambda x, a, b: math.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: math.sigmoid(x), None, None),
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: select(x >= 0.0, x, x * a), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: select(x >= a, x, const(0.0, x.type)), 1.0, None),
    "scaledtanh": (lambda x, a, b: math.tanh(x * b) * a, 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: clamp(x * a + b, 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda x, a, b: select(x >= 0.0, x, math.expm1(x) * a), 1.0, None),
    "softsign": (lambda x, a, b: x / (unary("abs", x) + 1.0), None, None),
    "softplus": (lambda x, a, b: math.softplus(x), None, None),
}


@dataclass(frozen=True)
class Cell:
    """What one direction computes."""

    passes: tuple[RecurrentPass, ...]
    gates: tuple[range, ...]  # whose weights each pass needs
    slots: int


@dataclass(frozen=True)
class Cells:
    """The cells of a layer."""

    op: str
    type: str  # of states and sums
    attrs: Mapping[str, Any]
    directions: int
    is_linear: bool  # a GRU that multiplies the product with the state by the reset gate, not the state itself
    is_ragged: bool
    has_bias: bool
    has_peepholes: bool
    has_traces: bool

    def all(self) -> list[Cell]:
        """What each direction computes; alphas and betas go, in order, to the functions that take them."""
        defaults = FUNCTIONS[self.op]
        names = list(self.attrs.get("activations") or defaults * self.directions)
        alphas, betas = iter(self.attrs.get("activation_alpha") or ()), iter(self.attrs.get("activation_beta") or ())
        functions: list[Activation] = []
        for name in names:
            function, alpha, beta = ACTIVATIONS[name.lower()]
            if alpha is not None:
                alpha = next(alphas, alpha)
            if beta is not None:
                beta = next(betas, beta)
            functions.append(_bounded(function, alpha, beta))
        count = len(defaults)
        makers: dict[str, Callable[..., Cell]] = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}
        return [makers[self.op](*functions[start : start + count]) for start in range(0, count * self.directions, count)]

    def _clip(self, x: Expr) -> Expr:
        limit = self.attrs.get("clip")
        return x if limit is None or limit <= 0 else clamp(x, -limit, limit)

    def _sum(self, gate: int, total_gate: int | None = None) -> Expr:
        return projected(gate, self.type) + total(gate if total_gate is None else total_gate, self.type)

    def _kept(self, values: Sequence[tuple[int, Expr]], hidden: Expr) -> tuple[tuple[tuple[int, Expr], ...], Expr]:
        """New states, and what is given out: a sequence that has ended keeps its states and gives 0."""
        if not self.is_ragged:
            return tuple(values), hidden
        kept = tuple((slot, select(running(), value, state(slot, self.type))) for slot, value in values)
        return kept, select(running(), hidden, const(0.0, self.type))

    def _rnn(self, activate: Activation) -> Cell:
        new = activate(self._clip(self._sum(0)))
        stores, output = self._kept([(0, new)], new)
        return Cell((RecurrentPass(0, 1, stores, output),), (range(1),), 1)

    def _gru(self, gate: Activation, candidate: Activation) -> Cell:
        h, one = state(0, self.type), const(1.0, self.type)
        update, reset = gate(self._clip(self._sum(0))), gate(self._clip(self._sum(1)))
        if self.is_linear:
            inner = total(2, self.type)
            if self.has_bias:
                inner = inner + vector(0, self.type)
            new = candidate(self._clip(projected(2, self.type) + reset * inner))
            mixed = (one - update) * new + update * h
            stores, output = self._kept([(0, mixed)], mixed)
            traces = (update, reset, new, inner, h) if self.has_traces else ()
            return Cell((RecurrentPass(0, 3, stores, output, traces),), (range(3),), 1)
        opening = RecurrentPass(0, 2, ((1, update), (2, reset * h)))
        update = state(1, self.type)
        new = candidate(self._clip(self._sum(2, 0)))
        mixed = (one - update) * new + update * h
        stores, output = self._kept([(0, mixed)], mixed)
        return Cell((opening, RecurrentPass(2, 1, stores, output)), (range(2), range(2, 3)), 3)

    def _lstm(self, gate: Activation, candidate: Activation, squash: Activation) -> Cell:
        c, one = state(1, self.type), const(1.0, self.type)
        peeps = [vector(number, self.type) for number in range(3)] if self.has_peepholes else None
        enter = gate(self._clip(self._sum(0) + peeps[0] * c if peeps else self._sum(0)))
        if self.attrs.get("input_forget"):
            keep = one - enter
        else:
            keep = gate(self._clip(self._sum(2) + peeps[2] * c if peeps else self._sum(2)))
        new = candidate(self._clip(self._sum(3)))
        cell = keep * c + enter * new
        leave = gate(self._clip(self._sum(1) + peeps[1] * cell if peeps else self._sum(1)))
        hidden = leave * squash(cell)
        stores, output = self._kept([(0, hidden), (1, cell)], hidden)
        traces = (enter, leave, keep, new, c) if self.has_traces else ()
        return Cell((RecurrentPass(0, 4, stores, output, traces),), (range(4),), 2)


def _bounded(function: Callable[[Expr, Any, Any], Expr], alpha: float | None, beta: float | None) -> Activation:
    return lambda x: function(x, alpha, beta)
