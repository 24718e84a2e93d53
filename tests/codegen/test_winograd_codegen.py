"""Winograd's transforms in code: what they compute is what the matrices say, in no more operations than they need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sardonyx.codegen.conv.winograd_transforms import INPUTS, OUTPUTS, Arithmetic, finite
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.winograd import TILES, matrices


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


OPERATIONS = {3: 2, 4: 4, 5: 11, 6: 12, 7: 21}  # at most, by elements


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("taps", [2, 3, 4])
def test_transforms_are_the_matrices(tile: int, taps: int) -> None:
    made = matrices(tile, taps)
    size = tile + taps - 1
    names = [f"x{number}" for number in range(size)]
    for transform, matrix in ((INPUTS[size], made.inputs), (OUTPUTS[tile, size], made.outputs)):
        linear = Linear(size)
        np.testing.assert_array_equal(linear.matrix(transform(linear, names)), np.array(matrix))
        assert linear.operations <= OPERATIONS[size]


@pytest.mark.parametrize("size", INPUTS)
def test_without_infinity_no_transform_needs_the_last_pixel(size: int) -> None:
    linear = Linear(size)
    linear.forms["zeroinitializer"] = np.full(size, np.nan)
    found = linear.matrix(finite(INPUTS[size])(linear, [f"x{number}" for number in range(size - 1)]))
    np.testing.assert_array_equal(found, np.array(matrices(2, size - 1).inputs)[:-1])
