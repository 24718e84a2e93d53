"""Winograd's transforms in code: what they compute is what the matrices say, in no more operations than they need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sardonyx.codegen.conv.winograd_transforms import INPUTS, OUTPUTS, ROW_INPUTS, ROW_OUTPUTS, Arithmetic
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.winograd import POINTS, ROW_POINTS, ROW_TILE, matrices


class Linear(Arithmetic):
    """Names stand for linear forms of the inputs x0, x1, ..."""

    def __init__(self, inputs: int) -> None:
        super().__init__(FunctionBuilder("f", []), 4)
        self.forms: dict[str, Array] = {f"x{number}": row for number, row in enumerate(np.eye(inputs))}
        self.operations = 0

    def _new(self, form: Array) -> str:
        self.operations += 1
        name = f"v{self.operations}"
        self.forms[name] = form
        return name

    def add(self, a: str, b: str) -> str:
        return self._new(self.forms[a] + self.forms[b])

    def sub(self, a: str, b: str) -> str:
        return self._new(self.forms[a] - self.forms[b])

    def scaled(self, a: str, factor: float, b: str) -> str:
        return self._new(self.forms[a] * factor + self.forms[b])

    def times(self, a: str, factor: float) -> str:
        return self._new(self.forms[a] * factor)

    def matrix(self, names: Sequence[str]) -> Array:
        """The forms of some names, one a row."""
        return np.array([self.forms[name] for name in names])


@pytest.mark.parametrize("tile", POINTS)
def test_transforms_are_the_matrices(tile: int) -> None:
    made = matrices(tile)
    names = [f"x{number}" for number in range(tile + 2)]
    for transform, matrix in ((INPUTS[tile], made.inputs), (OUTPUTS[tile], made.outputs)):
        linear = Linear(tile + 2)
        np.testing.assert_array_equal(linear.matrix(transform(linear, names)), np.array(matrix))
        assert linear.operations <= {2: 4, 4: 12}[tile]


@pytest.mark.parametrize("taps", ROW_POINTS)
def test_transforms_along_one_axis_are_the_matrices(taps: int) -> None:
    made = matrices(ROW_TILE, taps)
    names = [f"x{number}" for number in range(ROW_TILE + taps - 1)]
    for transform, matrix, most in (
        (ROW_INPUTS[taps], made.inputs, {3: 12, 4: 21}),
        (ROW_OUTPUTS[taps], made.outputs, {3: 12, 4: 17}),
    ):
        linear = Linear(len(names))
        np.testing.assert_array_equal(linear.matrix(transform(linear, names)), np.array(matrix))
        assert linear.operations <= most[taps]
