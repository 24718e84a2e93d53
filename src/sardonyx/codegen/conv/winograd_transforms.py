"""The transforms of Winograd's convolution along one axis, in as few operations as they take.

They are the matrices of `kernel.conv.winograd`, with common terms taken out. Of two axes, first all columns are transformed, then
all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
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


def _inputs_3(e: Arithmetic, x: Sequence[str]) -> list[str]:
    return [e.sub(x[1], x[0]), x[1], e.sub(x[2], x[1])]


def _inputs_4(e: Arithmetic, x: Sequence[str]) -> list[str]:
    return [e.sub(x[2], x[0]), e.add(x[1], x[2]), e.sub(x[2], x[1]), e.sub(x[3], x[1])]


def _outputs_2_of_3(e: Arithmetic, m: Sequence[str]) -> list[str]:
    return [e.add(m[0], m[1]), e.add(m[1], m[2])]


def _outputs_2_of_4(e: Arithmetic, m: Sequence[str]) -> list[str]:
    return [e.add(m[0], e.add(m[1], m[2])), e.add(e.sub(m[1], m[2]), m[3])]


# More points come in pairs, p and -p: what both have of even powers, and of odd ones, is computed once.


def _pair(e: Arithmetic, even: str, odd: str, point: float) -> list[str]:
    """even + point * odd and even - point * odd."""
    return [e.scaled(odd, point, even), e.scaled(odd, -point, even)]


def _roots(e: Arithmetic, low: str, middle: str, high: str, a: float, b: float) -> str:
    """A polynomial whose roots are the points of two pairs; `low`, `middle` and `high` are two powers apart."""
    return e.scaled(low, (a * b) ** 2, e.scaled(middle, -(a**2) - b**2, high))


def _powers(e: Arithmetic, values: Sequence[str], points: Sequence[float], power: int, last: str = "") -> str:
    """The sum of values times powers of their points, and of a last value."""
    total = e.scaled(values[0], points[0] ** power, last) if last else e.times(values[0], points[0] ** power)
    for value, point in zip(values[1:], points[1:]):
        total = e.scaled(value, point**power, total)
    return total


def _pairs(e: Arithmetic, m: Sequence[str]) -> tuple[list[str], list[str]]:
    """Sums and differences of the values of pairs."""
    both = list(zip(m[::2], m[1::2]))
    return [e.add(*each) for each in both], [e.sub(*each) for each in both]


def _inputs_5(e: Arithmetic, x: Sequence[str]) -> list[str]:
    near, far = POINTS[5][::2]
    found = []
    for own, other in ((near, far), (far, near)):
        found += _pair(e, e.scaled(x[1], -(other**2), x[3]), e.scaled(x[0], -(other**2), x[2]), own)
    return [*found, _roots(e, x[0], x[2], x[4], near, far)]


def _inputs_6(e: Arithmetic, x: Sequence[str]) -> list[str]:
    _, near, _, far, _ = POINTS[6]
    near_square, far_square = near * near, far * far
    return [
        _roots(e, x[0], x[2], x[4], near, far),
        *_pair(e, e.scaled(x[2], -far_square, x[4]), e.scaled(x[1], -far_square, x[3]), near),
        *_pair(e, e.scaled(x[2], -near_square, x[4]), e.scaled(x[1], -near_square, x[3]), far),
        _roots(e, x[1], x[3], x[5], near, far),
    ]


def _inputs_7(e: Arithmetic, x: Sequence[str]) -> list[str]:
    first, second, third = POINTS[7][::2]
    found = []
    for own, a, b in ((first, second, third), (second, first, third), (third, first, second)):
        found += _pair(e, _roots(e, x[1], x[3], x[5], a, b), _roots(e, x[0], x[2], x[4], a, b), own)
    squares = [point**2 for point in (first, second, third)]
    products = squares[0] * squares[1] + squares[0] * squares[2] + squares[1] * squares[2]
    ends = e.scaled(x[2], products, e.scaled(x[4], -sum(squares), x[6]))
    return [*found, e.scaled(x[0], -squares[0] * squares[1] * squares[2], ends)]


def _outputs(results: int, size: int) -> Transform1D:
    """The transform to so many results, of elements at pairs of points, behind one at 0 in tiles that have it."""
    points = POINTS[size]
    alone = len(points) % 2
    own = points[alone::2]

    def transform(e: Arithmetic, m: Sequence[str]) -> list[str]:
        sums, apart = _pairs(e, m[alone:-1])
        found = [reduce(e.add, [*m[:alone], *sums])]
        for power in range(1, results):
            last = m[-1] if power == results - 1 else ""
            found.append(_powers(e, apart if power % 2 else sums, own, power, last))
        return found

    return transform


# By elements. The last of them, at infinity, is the only one that depends on the last pixel.
INPUTS: Final[dict[int, Transform1D]] = {3: _inputs_3, 4: _inputs_4, 5: _inputs_5, 6: _inputs_6, 7: _inputs_7}
# By results of a side and elements.
OUTPUTS: Final[dict[tuple[int, int], Transform1D]] = {
    (2, 3): _outputs_2_of_3,
    (2, 4): _outputs_2_of_4,
    (2, 5): _outputs(2, 5),
    (4, 5): _outputs(4, 5),
    (4, 6): _outputs(4, 6),
    (4, 7): _outputs(4, 7),
}


def finite(transform: Transform1D) -> Transform1D:
    """A transform of inputs without the element at infinity, and without the last pixel."""
    return lambda e, x: transform(e, [*x, "zeroinitializer"])[:-1]


def transform_columns(transform: Transform1D, e: Arithmetic, column: Callable[[int], list[str]], count: int) -> list[list[str]]:
    """All columns transformed, where `column` loads one; the result by rows."""
    made = [transform(e, column(number)) for number in range(count)]
    return [list(row) for row in zip(*made)]
