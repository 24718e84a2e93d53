"""All sizes of a plan as one table of operations, and the function that computes them.

    rows       (op, a, b): an operation on the results of two rows before it; on a number or a symbol for those two kinds
    results    for each size of the plan, the row that gives it

Equal rows are one row, so the table grows with the graph, not with how deep sizes are nested in each other. The function is
Python without loops: a line for every row that computes something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sardonyx.ir.dims import Dim, atoms_of

SizeFunction = Callable[..., tuple[int, ...]]

# A divisor is 0 for an empty tensor: what the size must be then is checked elsewhere.
_LINES: Final = {
    "add": "{a} + {b}",
    "mul": "{a} * {b}",
    "floordiv": "{a} // {b} if {b} else 0",
    "mod": "{a} % {b} if {b} else 0",
    "broadcast": "{b} if {a} == 1 else {a}",
    "max": "{a} if {a} >= {b} else {b}",
    "min": "{a} if {a} <= {b} else {b}",
}


class SizeTable:
    """The rows for some sizes over some symbols."""

    def __init__(self, dims: Sequence[Dim], symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self.rows: list[tuple[str, int, int]] = []
        self._numbers: dict[tuple[str, int, int], int] = {}
        places = {name: place for place, name in enumerate(symbols)}
        made: dict[object, int] = {}
        for atom in atoms_of(dims):
            if atom.function:
                made[atom] = self._row(atom.function, *(self._polynomial(arg, made) for arg in atom.args))
            else:
                made[atom] = self._row("symbol", places[atom.text], 0)
        self.results = [self._polynomial(dim, made) for dim in dims]

    def _row(self, op: str, a: int, b: int) -> int:
        row = (op, a, b)
        number = self._numbers.get(row)
        if number is None:
            number = self._numbers[row] = len(self.rows)
            self.rows.append(row)
        return number

    def _polynomial(self, dim: Dim, made: dict[object, int]) -> int:
        """The row of a sum of products of atoms."""
        if isinstance(dim, int):
            return self._row("number", dim, 0)
        total = -1
        for monomial, factor in dim.terms:
            term = -1
            for atom in monomial:
                term = made[atom] if term < 0 else self._row("mul", term, made[atom])
            if term < 0:
                term = self._row("number", factor, 0)
            elif factor != 1:
                term = self._row("mul", term, self._row("number", factor, 0))
            total = term if total < 0 else self._row("add", total, term)
        return total

    def source(self) -> str:
        """The text of the function."""
        names: list[str] = []
        lines: list[str] = []
        for op, a, b in self.rows:
            if op == "number":
                names.append(str(a) if a >= 0 else f"({a})")
            elif op == "symbol":
                names.append(f"s{a}")
            else:
                name = f"t{len(lines)}"
                lines.append(f"    {name} = {_LINES[op].format(a=names[a], b=names[b])}\n")
                names.append(name)
        given = ", ".join(f"s{place}" for place in range(len(self.symbols)))
        results = "".join(f"{names[row]}, " for row in self.results)
        return f"def sizes({given}):\n{''.join(lines)}    return ({results})\n"

    def function(self) -> SizeFunction:
        """From the symbols' values to the values of all sizes."""
        scope: dict[str, SizeFunction] = {}
        exec(compile(self.source(), "<sizes>", "exec"), {"__builtins__": {}}, scope)
        return scope["sizes"]
