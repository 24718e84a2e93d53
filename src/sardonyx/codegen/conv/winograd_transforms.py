"""The transforms of Winograd's convolution along one axis, in as few operations as they take.

They are the matrices of `kernel.conv.winograd` with common terms taken out. Of two axes, first all columns are transformed, then
all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sardonyx.codegen.element_types import constant
from sardonyx.codegen.function import FunctionBuilder


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


Transform1D: TypeAlias = Callable[[Arithmetic, Sequence[str]], list[str]]


def _inputs_2(e: Arithmetic, x: Sequence[str]) -> list[str]:
    return [e.sub(x[2], x[0]), e.add(x[1], x[2]), e.sub(x[2], x[1]), e.sub(x[3], x[1])]


def _outputs_2(e: Arithmetic, m: Sequence[str]) -> list[str]:
    return [e.add(m[0], e.add(m[1], m[2])), e.add(e.sub(m[1], m[2]), m[3])]


def _inputs_4(e: Arithmetic, x: Sequence[str]) -> list[str]:
    a, b = e.sub(x[4], x[2]), e.sub(x[3], x[1])
    near, far = e.add(x[3], x[2]), e.sub(x[3], x[2])
    return [
        e.add(e.sub(x[0], x[2]), e.scaled(b, 1.5, a)),
        e.scaled(near, 1.5, e.add(a, b)),
        e.scaled(far, 1.5, e.sub(a, b)),
        e.scaled(b, 2.0, a),
        e.scaled(b, -0.5, a),
        e.sub(e.scaled(a, 1.5, e.sub(x[5], x[3])), b),
    ]


def _outputs_4(e: Arithmetic, m: Sequence[str]) -> list[str]:
    both, apart = e.add(m[1], m[2]), e.sub(m[1], m[2])
    return [
        e.add(e.add(m[0], both), e.add(m[3], m[4])),
        e.scaled(m[4], -2.0, e.scaled(m[3], 0.5, apart)),
        e.scaled(m[4], 4.0, e.scaled(m[3], 0.25, both)),
        e.scaled(m[4], -8.0, e.scaled(m[3], 0.125, e.add(apart, m[5]))),
    ]


INPUTS: Final[dict[int, Transform1D]] = {2: _inputs_2, 4: _inputs_4}
OUTPUTS: Final[dict[int, Transform1D]] = {2: _outputs_2, 4: _outputs_4}


def transform_columns(transform: Transform1D, e: Arithmetic, column: Callable[[int], list[str]], count: int) -> list[list[str]]:
    """All columns transformed, where `column` loads one; the result by rows."""
    made = [transform(e, column(number)) for number in range(count)]
    return [list(row) for row in zip(*made)]
