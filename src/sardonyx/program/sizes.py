"""All sizes of a program as one table of operations: plain numbers that a file can hold, and that compute what they state.

    rows       (operation, a, b): on the results of two rows before it; of a number or a symbol, `a` is the number or which symbol
    results    for each size of the program, the row that gives it

The first evaluations walk the rows. Python code that does the same takes a third of the time, but as long to be made as a
hundred walks: it is made when the walks have cost as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Row = tuple[int, int, int]

OPERATIONS: Final = ("number", "symbol", "add", "mul", "floordiv", "mod", "broadcast", "max", "min")  # by code; files hold it
NUMBER, SYMBOL, ADD, MUL, FLOORDIV, MOD, BROADCAST, MAX, MIN = range(len(OPERATIONS))

# A divisor is 0 for an empty tensor: what the size must be then is checked elsewhere.
_LINES: Final = {
    ADD: "{a} + {b}",
    MUL: "{a} * {b}",
    FLOORDIV: "{a} // {b} if {b} else 0",
    MOD: "{a} % {b} if {b} else 0",
    BROADCAST: "{b} if {a} == 1 else {a}",
    MAX: "{a} if {a} >= {b} else {b}",
    MIN: "{a} if {a} <= {b} else {b}",
}
_WALKS: Final = 100  # before code is made


class SizeTable:
    """A function from the symbols' values to the values of all sizes."""

    def __init__(self, rows: Sequence[Row], results: Sequence[int], symbol_count: int) -> None:
        self.rows = rows
        self.results = results
        self.symbol_count = symbol_count
        self._walks = 0
        self._work: list[tuple[int, int, int, int]] | None = None  # the rows that compute something, with their numbers
        self._begin: list[int] = []  # the numbers, and room for all other rows
        self._given: list[tuple[int, int]] = []  # (row, symbol)
        self._function: Any = None  # the same as Python code

    def __call__(self, *symbols: int) -> tuple[int, ...]:
        if self._function is not None:
            found: tuple[int, ...] = self._function(*symbols)
            return found
        self._walks += 1
        if self._walks > _WALKS:
            self._function = self.compiled()
        return self._walk(symbols)

    def _prepare(self) -> list[tuple[int, int, int, int]]:
        work: list[tuple[int, int, int, int]] = []
        begin = [0] * len(self.rows)
        given = []
        for number, (op, a, b) in enumerate(self.rows):
            if op == NUMBER:
                begin[number] = a
            elif op == SYMBOL:
                given.append((number, a))
            else:
                work.append((number, op, a, b))
        self._begin, self._given = begin, given
        self._work = work  # last: who finds it may use all of them
        return work

    def _walk(self, symbols: Sequence[int]) -> tuple[int, ...]:
        """The sizes, row by row."""
        work = self._work
        if work is None:
            work = self._prepare()
        values = self._begin.copy()
        for number, symbol in self._given:
            values[number] = symbols[symbol]
        for number, op, first, second in work:
            a, b = values[first], values[second]
            if op == MUL:
                values[number] = a * b
            elif op == ADD:
                values[number] = a + b
            elif op == FLOORDIV:
                values[number] = a // b if b else 0
            elif op == MOD:
                values[number] = a % b if b else 0
            elif op == BROADCAST:
                values[number] = b if a == 1 else a
            elif op == MAX:
                values[number] = a if a >= b else b
            else:
                values[number] = a if a <= b else b
        return tuple([values[row] for row in self.results])

    def source(self) -> str:
        """The text of the function: Python without loops, a line for every row that computes something."""
        names: list[str] = []
        lines: list[str] = []
        for op, a, b in self.rows:
            if op == NUMBER:
                names.append(str(a) if a >= 0 else f"({a})")
            elif op == SYMBOL:
                names.append(f"s{a}")
            else:
                name = f"t{len(lines)}"
                lines.append(f"    {name} = {_LINES[op].format(a=names[a], b=names[b])}\n")
                names.append(name)
        given = ", ".join(f"s{symbol}" for symbol in range(self.symbol_count))
        results = "".join(f"{names[row]}, " for row in self.results)
        return f"def sizes({given}):\n{''.join(lines)}    return ({results})\n"

    def compiled(self) -> Any:
        """The table as a Python function. Its text is made of numbers and of names this module chose, whoever wrote the table."""
        scope: dict[str, Any] = {}
        exec(compile(self.source(), "<sizes>", "exec"), {"__builtins__": {}}, scope)
        return scope["sizes"]
