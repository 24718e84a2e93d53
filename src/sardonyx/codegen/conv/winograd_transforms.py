"""The transforms of Winograd's convolution along one axis, in as few operations as they take.

They are the matrices of `kernel.conv.winograd` with common terms taken out. Of two axes, first all columns are transformed, then
all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sardonyx.codegen.element_types import constant
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.kernel.conv.winograd import POINTS, ROW_POINTS


class Arithmetic:
    """Vectors of float32 added and multiplied by constants."""

    def __init__(self, function: FunctionBuilder, lanes: int) -> None:
        self.f = function
        self.lanes = lanes
        self.vector = f"<{lanes} x float>"

    def add(self, a: str, b: str) -> str:
        """a + b."""
        return self.f.let(f"fadd {self.vector} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        """a - b."""
        return self.f.let(f"fsub {self.vector} {a}, {b}")

    def scaled(self, a: str, factor: float, b: str) -> str:
        """a * factor + b."""
        kind = (self.vector, constant("f32", factor, self.lanes))
        return self.f.call(self.vector, f"llvm.fmuladd.v{self.lanes}f32", (self.vector, a), kind, (self.vector, b))

    def times(self, a: str, factor: float) -> str:
        """a * factor."""
        return self.f.let(f"fmul {self.vector} {a}, {constant('f32', factor, self.lanes)}")


Transform1D: TypeAlias = Callable[[Arithmetic, Sequence[str]], list[str]]


def _inputs_2(e: Arithmetic, x: Sequence[str]) -> list[str]:
    return [e.sub(x[2], x[0]), e.add(x[1], x[2]), e.sub(x[2], x[1]), e.sub(x[3], x[1])]


def _outputs_2(e: Arithmetic, m: Sequence[str]) -> list[str]:
    return [e.add(m[0], e.add(m[1], m[2])), e.add(e.sub(m[1], m[2]), m[3])]


# Points of tiles of 4 x 4 come in pairs, p and -p: what both have of even powers, and of odd ones, is computed once.


def _pair(e: Arithmetic, even: str, odd: str, point: float) -> list[str]:
    """even + point * odd and even - point * odd."""
    return [e.scaled(odd, point, even), e.scaled(odd, -point, even)]


def _inputs_4(e: Arithmetic, x: Sequence[str]) -> list[str]:
    _, near, _, far, _ = POINTS[4]
    near_square, far_square = near * near, far * far

    def ends(low: str, middle: str, high: str) -> str:
        """All four points are roots."""
        return e.scaled(low, near_square * far_square, e.scaled(middle, -near_square - far_square, high))

    return [
        ends(x[0], x[2], x[4]),
        *_pair(e, e.scaled(x[2], -far_square, x[4]), e.scaled(x[1], -far_square, x[3]), near),
        *_pair(e, e.scaled(x[2], -near_square, x[4]), e.scaled(x[1], -near_square, x[3]), far),
        ends(x[1], x[3], x[5]),
    ]


def _outputs_4(e: Arithmetic, m: Sequence[str]) -> list[str]:
    _, near, _, far, _ = POINTS[4]
    near_sum, near_apart = e.add(m[1], m[2]), e.sub(m[1], m[2])
    far_sum, far_apart = e.add(m[3], m[4]), e.sub(m[3], m[4])
    return [
        e.add(e.add(m[0], near_sum), far_sum),
        e.scaled(far_apart, far, e.times(near_apart, near)),
        e.scaled(far_sum, far**2, e.times(near_sum, near**2)),
        e.scaled(far_apart, far**3, e.scaled(near_apart, near**3, m[5])),
    ]


# Four taps of a row: three pairs of points.


def _inputs_of_four(e: Arithmetic, x: Sequence[str]) -> list[str]:
    first, second, third = ROW_POINTS[4][::2]

    def others(low: str, middle: str, high: str, a: float, b: float) -> str:
        """The points of two pairs are roots."""
        return e.scaled(low, (a * b) ** 2, e.scaled(middle, -(a**2) - b**2, high))

    found = []
    for own, a, b in ((first, second, third), (second, first, third), (third, first, second)):
        found += _pair(e, others(x[1], x[3], x[5], a, b), others(x[0], x[2], x[4], a, b), own)
    squares = [point**2 for point in (first, second, third)]
    products = squares[0] * squares[1] + squares[0] * squares[2] + squares[1] * squares[2]
    ends = e.scaled(x[2], products, e.scaled(x[4], -sum(squares), x[6]))
    return [*found, e.scaled(x[0], -squares[0] * squares[1] * squares[2], ends)]


def _outputs_of_four(e: Arithmetic, m: Sequence[str]) -> list[str]:
    points = ROW_POINTS[4][::2]
    sums = [e.add(m[number], m[number + 1]) for number in (0, 2, 4)]
    apart = [e.sub(m[number], m[number + 1]) for number in (0, 2, 4)]

    def powers(values: Sequence[str], power: int, last: str = "") -> str:
        total = e.scaled(values[0], points[0] ** power, last) if last else e.times(values[0], points[0] ** power)
        for value, point in zip(values[1:], points[1:]):
            total = e.scaled(value, point**power, total)
        return total

    return [e.add(e.add(sums[0], sums[1]), sums[2]), powers(apart, 1), powers(sums, 2), powers(apart, 3, m[6])]


INPUTS: Final[dict[int, Transform1D]] = {2: _inputs_2, 4: _inputs_4}  # by results of a side
OUTPUTS: Final[dict[int, Transform1D]] = {2: _outputs_2, 4: _outputs_4}
ROW_INPUTS: Final[dict[int, Transform1D]] = {3: _inputs_4, 4: _inputs_of_four}  # by taps of a group
ROW_OUTPUTS: Final[dict[int, Transform1D]] = {3: _outputs_4, 4: _outputs_of_four}


def transform_columns(transform: Transform1D, e: Arithmetic, column: Callable[[int], list[str]], count: int) -> list[list[str]]:
    """All columns transformed, where `column` loads one; the result by rows."""
    made = [transform(e, column(number)) for number in range(count)]
    return [list(row) for row in zip(*made)]
