"""The transforms of Winograd's convolution along one axis, in as few operations as they take.

They are the matrices of `kernel.conv.winograd` with common terms taken out. Of two axes, first all columns are transformed, then
all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sardonyx.codegen.element_types import constant
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.kernel.conv.winograd import POINTS


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


INPUTS: Final[dict[int, Transform1D]] = {2: _inputs_2, 4: _inputs_4}
OUTPUTS: Final[dict[int, Transform1D]] = {2: _outputs_2, 4: _outputs_4}


def transform_columns(transform: Transform1D, e: Arithmetic, column: Callable[[int], list[str]], count: int) -> list[list[str]]:
    """All columns transformed, where `column` loads one; the result by rows."""
    made = [transform(e, column(number)) for number in range(count)]
    return [list(row) for row in zip(*made)]
