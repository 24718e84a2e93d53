"""What the sizes of a call decided in Python while a module was traced, and whether they would decide the same again.

    if x.shape[0] > 2: ...          True      a graph of the trace is right for all calls of which this is true
    x.reshape(int(x.shape[0]), -1)  4         or, here, for all calls with four rows

The values that were asked for are computed by a program of their own from the sizes of a call, once for each combination of
sizes. A call that a graph is not right for gets a graph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.errors import SardonyxError
from sardonyx.ir.graph import Model
from sardonyx.training.arrays import Array
from sardonyx.training.step_program import InferenceProgram

Sizes = tuple[tuple[int, ...], ...]

_REMEMBERED: Final = 4096  # combinations of sizes whose answers are kept


class SizeGuards:
    """The decisions of one graph: a model that computes them, and what they were."""

    def __init__(self, model: Model, expected: Sequence[Any]) -> None:
        self.model = model
        self.expected = tuple(expected)
        self._program: InferenceProgram | None = None
        self._answers: dict[Sizes, bool] = {}

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs of the model: a part of the graph's."""
        return tuple(value.name for value in self.model.graph.inputs)

    def note(self, sizes: Sizes) -> None:
        """The graph was made for these sizes."""
        self._answers[sizes] = True

    def hold(self, sizes: Sizes, inputs: Callable[[], Sequence[Array]]) -> bool:
        """Whether the decisions are the same for these sizes; `inputs` gives the arrays of the model's inputs, if need be."""
        answer = self._answers.get(sizes)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            answer = self._answers[sizes] = self._decide(inputs())
        return answer

    def _decide(self, inputs: Sequence[Array]) -> bool:
        try:
            if self._program is None:
                self._program = InferenceProgram(self.model)
            found = self._program.run(inputs)
        except SardonyxError:  # sizes that the module does not take: its own graph says why
            return False
        return all(np.array_equal(value, expected) for value, expected in zip(found, self.expected, strict=True))
