"""Symbolic sizes -> one table of operations (see `program.sizes`).

Equal rows are one row, so the table grows with the graph, not with how deep sizes are nested in each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.ir.dims import Dim, atoms_of
from sardonyx.program.sizes import ADD, MUL, NUMBER, OPERATIONS, SYMBOL, Row, SizeTable

_CODES: Final = {name: code for code, name in enumerate(OPERATIONS)}


def size_table(dims: Sequence[Dim], symbols: Sequence[str]) -> SizeTable:
    """The table for some sizes over some symbols."""
    rows = _Rows()
    positions = {name: position for position, name in enumerate(symbols)}
    made: dict[object, int] = {}
    for atom in atoms_of(dims):
        if atom.function:
            made[atom] = rows.row(_CODES[atom.function], *(rows.polynomial(arg, made) for arg in atom.args))
        else:
            made[atom] = rows.row(SYMBOL, positions[atom.text], 0)
    results = [rows.polynomial(dim, made) for dim in dims]
    return SizeTable(list(rows.numbers), results, len(symbols))


class _Rows:
    """Rows under construction."""

    def __init__(self) -> None:
        self.numbers: dict[Row, int] = {}  # in the order of the table

    def row(self, op: int, a: int, b: int) -> int:
        """The number of a row, which is added unless it is there."""
        return self.numbers.setdefault((op, a, b), len(self.numbers))

    def polynomial(self, dim: Dim, made: dict[object, int]) -> int:
        """The row of a sum of products of atoms."""
        if isinstance(dim, int):
            return self.row(NUMBER, dim, 0)
        total = -1
        for monomial, factor in dim.terms:
            term = -1
            for atom in monomial:
                term = made[atom] if term < 0 else self.row(MUL, term, made[atom])
            if term < 0:
                term = self.row(NUMBER, factor, 0)
            elif factor != 1:
                term = self.row(MUL, term, self.row(NUMBER, factor, 0))
            total = term if total < 0 else self.row(ADD, total, term)
        return total
