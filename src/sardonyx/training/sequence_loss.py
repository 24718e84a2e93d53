"""The loss of connectionist temporal classification, taken apart into two Scans over time.

    alpha[t, s]   log of the probability of all ways that are in state s after step t          forwards
    beta[t, s]    the same of all ways from state s at step t to the end of the sequence       backwards
    loss          minus the log of alpha in the last two states, at the end of each sequence
    gradient      exp(x) - exp(alpha + beta - x + loss), added up where states have the same class

States are labels with blanks around (`ops/rows/sequence_loss.py` says what they mean). A Scan carries two more states, which no
way comes from: before the first forwards, behind the last backwards, so that all neighbours are slices of one array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.dtypes import BOOL
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Value
from sardonyx.ir.types import TensorType
from sardonyx.training.gradients.rules import Backward, Term, dtype_of

_SCAN_VERSION = 16


def ways_of_sequences(b: Backward) -> list[Value | None]:
    """What a CTCLoss gives: the loss of each sequence, and its gradient if anything reads it."""
    loss = _Sequences(b)
    found = loss.loss()
    result = found
    if b.attr("zero_infinity"):
        result = found.select(b.Not(b.IsInf(found.value, detect_negative=0)))
    if len(b.node.outputs) < 2:
        return [result.value]
    return [result.value, loss.gradient(found).value]


class _Sequences:
    """One CTCLoss: N sequences of T steps, each with L = 2 S + 1 states."""

    def __init__(self, b: Backward) -> None:
        self.b = b
        self.blank = int(b.attr("blank"))
        self.dtype = dtype_of(b.x())
        self.x = b.t(b.x())
        self.input_lengths, self.label_lengths = b.x(2), b.x(3)
        self.batch, self.count = b.shape(b.x(1))
        self.states = self._states()
        self.never = b.Expand(b.number(-np.inf, b.x()), b.Concat(b.sizes(b.x(1), 0), b.ints(2), axis=0))  # [N, 2]
        self.skips = self._skips()
        steps = b.Range(np.array(0), b.Squeeze(b.sizes(b.x(), 0), b.ints(0)), np.array(1))
        ends = b.Unsqueeze(self.input_lengths, b.ints(0))
        self.valid = b.Less(b.Unsqueeze(steps, b.ints(1)), ends)  # [T, N]: whether a sequence has not ended
        everywhere = b.Expand(b.Unsqueeze(self.states, b.ints(0)), b.Concat(b.sizes(b.x(), 0), b.Shape(self.states), axis=0))
        self.classes = everywhere  # [T, N, L]
        self.seen = self.t(b.GatherElements(b.x(), everywhere, axis=2))  # refuses labels that are out of range
        self.alpha, self.last = self._forwards()

    def t(self, value: Value) -> Term:
        return Term(self.b, value, self.dtype)

    def _states(self) -> Value:
        """[N, L]: the class of each state; labels behind the end of a sequence are blanks, whatever they were."""
        b, labels = self.b, self.b.x(1)
        numbers = b.Range(np.array(0), b.Squeeze(b.sizes(labels, 1), b.ints(0)), np.array(1))
        within = b.Less(numbers, b.Unsqueeze(self.label_lengths, b.ints(1)))
        blank = np.array(self.blank, np.int64)
        own = b.Unsqueeze(b.Where(within, labels, blank), b.ints(2))
        pairs = b.Concat(b.Expand(blank, b.Shape(own)), own, axis=2)
        line = b.Reshape(pairs, b.Mul(b.Shape(labels), b.ints(1, 2)), allowzero=1)
        return b.Concat(line, b.Expand(blank, b.Concat(b.sizes(labels, 0), b.ints(1), axis=0)), axis=1)

    def _skips(self) -> Value:
        """[N, L]: 0 for states that the state two before leads to, minus infinity for others."""
        b = self.b
        blank = np.array(self.blank, np.int64)
        blanks = b.Expand(blank, b.Concat(b.sizes(b.x(1), 0), b.ints(2), axis=0))
        before = b.Slice(b.Concat(blanks, self.states, axis=1), b.ints(0), b.ints(-2), b.ints(1))
        is_led_to = b.And(b.Not(b.Equal(self.states, blank)), b.Not(b.Equal(self.states, before)))
        return b.Where(is_led_to, b.number(0.0, b.x()), b.number(-np.inf, b.x()))

    def _one_state(self, index: Value) -> Term:
        """[N, L]: 0 for one state of each sequence, whose number `index` [N, 1] has, minus infinity for others."""
        b = self.b
        numbers = b.Range(np.array(0), b.Squeeze(b.sizes(self.states, 1), b.ints(0)), np.array(1))
        return self.t(b.Where(b.Equal(numbers, index), b.number(0.0, b.x()), b.number(-np.inf, b.x())))

    def _forwards(self) -> tuple[Term, Term]:
        """alpha of all steps, [T, N, L], and at the end of each sequence, [N, L]."""
        b = self.b
        first = self._one_state(b.Mul(b.Unsqueeze(self.label_lengths, b.ints(1)), b.ints(0)))

        def step(g: GraphBuilder, state: Value, seen: Value) -> Value:
            return g.Add(seen, self._log_sum(g, _part(g, state, 2), _part(g, state, 1), g.Add(_part(g, state, 0), self.skips)))

        made = self._scan(b.Concat(self.never, first.value, axis=1), step, backwards=False)
        all_steps = b.Concat(b.Unsqueeze(first.value, b.ints(0)), made, axis=0)
        wide = b.Expand(b.Unsqueeze(self.input_lengths, b.ints(0, 2)), b.Shape(b.Unsqueeze(self.states, b.ints(0))))
        last = b.GatherElements(all_steps, wide, axis=0)  # refuses lengths that are out of range
        return self.t(made), self.t(b.Squeeze(last, b.ints(0)))

    def _backwards(self) -> Term:
        """beta of all steps, [T, N, L]: each sequence begins at its own end."""
        b = self.b
        last = b.Mul(b.Unsqueeze(self.label_lengths, b.ints(1)), b.ints(2))
        leads = b.Slice(b.Concat(self.skips, self.never, axis=1), b.ints(2), b.ints(np.iinfo(np.int64).max), b.ints(1))

        def step(g: GraphBuilder, state: Value, seen: Value) -> Value:
            return g.Add(seen, self._log_sum(g, _part(g, state, 0), _part(g, state, 1), g.Add(_part(g, state, 2), leads)))

        return self.t(self._scan(b.Concat(self._one_state(last).value, self.never, axis=1), step, backwards=True))

    def _scan(self, first: Value, step: Any, *, backwards: bool) -> Value:
        """The states after each step, without those that no way comes from."""
        b = self.b
        graph = Graph(b.g.fresh_name("CTC_step"))
        g = GraphBuilder(graph, b.g.version, prefix=f"{graph.name}_")
        length = self.count * 2 + 1
        state = g.input(f"{graph.name}_state", TensorType(self.dtype, (self.batch, length + 2)))
        seen = g.input(f"{graph.name}_seen", TensorType(self.dtype, (self.batch, length)))
        new = step(g, state, seen)
        inputs = [self.seen.value]
        if backwards:
            goes_on = g.input(f"{graph.name}_goes_on", TensorType(BOOL, (self.batch,)))
            new = g.Where(g.Unsqueeze(goes_on, b.ints(1)), new, _part(g, state, 0))
            inputs.append(self.valid)
        parts = [new, self.never] if backwards else [self.never, new]
        graph.outputs.extend([g.Concat(*parts, axis=1), g.Identity(new)])
        attrs: dict[str, Any] = {"body": graph, "num_scan_inputs": len(inputs)}
        if backwards:
            attrs |= {"scan_input_directions": [1] * len(inputs), "scan_output_directions": [1]}
        version = max(b.g.version, _SCAN_VERSION)
        return b.g.node("Scan", [first, *inputs], 2, version=version, attrs=attrs)[1]

    def _log_sum(self, g: GraphBuilder, *parts: Value) -> Value:
        """log(sum of exp), where minus infinity may be all there is."""
        largest = g.Max(*parts)
        lowest = np.array(np.finfo(self.dtype.numpy).min, self.dtype.numpy)
        safe = g.Max(largest, lowest)  # nothing less nothing would be no number
        powers = [g.Exp(g.Sub(each, safe)) for each in parts]
        total = powers[0]
        for power in powers[1:]:
            total = g.Add(total, power)
        return g.Add(g.Log(total), safe)

    def loss(self) -> Term:
        """Minus the log of all ways that end in the last label or the blank behind it."""
        b = self.b
        end = b.Mul(b.Unsqueeze(self.label_lengths, b.ints(1)), b.ints(2))
        blank = b.GatherElements(self.last.value, end, axis=1)  # refuses lengths that are out of range
        label = b.GatherElements(self.last.value, b.Max(b.Sub(end, b.ints(1)), b.ints(0)), axis=1)
        label = b.Where(b.Greater(end, b.ints(0)), label, b.number(-np.inf, b.x()))
        return -self.t(b.Squeeze(self._log_sum(b.g, blank, label), b.ints(1)))

    def gradient(self, loss: Term) -> Term:
        """[T, N, C]; of a sequence that has no way at all it is no number, or 0."""
        b, lowest = self.b, -np.inf
        beta = self._backwards()
        wide = loss.apply("Unsqueeze", b.ints(0, 2))
        shares = (self.alpha + beta - self.seen + wide).apply("Exp")
        has_way = b.And(self.alpha.compare("Greater", lowest), beta.compare("Greater", lowest))
        added = b.ScatterElements(b.zeros_like(b.x()), self.classes, shares.select(has_way).value, axis=2, reduction="add")
        found = self.x.apply("Exp") - self.t(added)
        instead = 0.0 if b.attr("zero_infinity") else np.nan
        found = found.select(b.Not(b.IsInf(wide.value, detect_negative=0)), instead)
        return found.select(b.Unsqueeze(self.valid, b.ints(2)))


def _part(g: GraphBuilder, state: Value, start: int) -> Value:
    """All but two of the states, from one on."""
    stop = np.array([start - 2 if start < 2 else np.iinfo(np.int64).max])
    return g.Slice(state, np.array([start]), stop, np.array([1]))
