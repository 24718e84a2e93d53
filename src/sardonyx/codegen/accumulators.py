"""The running state of a reduction in vector registers: how a vector is taken in, how states are joined, what comes out.

Every order of joining is fixed by the code, so a reduction gives the same bits however rows are divided between threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.codegen.element_types import constant, intrinsic_suffix, scalar_type
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import FLOATS, SIGNED, Expr

_LARGEST: Final = {"i8": 2**7 - 1, "i16": 2**15 - 1, "i32": 2**31 - 1, "i64": 2**63 - 1}


class Accumulator:
    """The running state of one reduction, in vectors."""

    def __init__(self, emitter: VectorEmitter, node: Expr) -> None:
        self.e = emitter
        self.node = node
        self.kind: str = node.param[0]
        self.source = node.args[0].type
        self.types = [emitter.type(self.source)]
        self.initial = [constant(self.source, _identity(self.kind, self.source), emitter.lanes)]
        if self.kind.startswith("arg"):
            self.types.append(emitter.type("i64"))
            self.initial.append(constant("i64", 2**63 - 1, emitter.lanes))

    def step(self, value: str, state: list[str], mask: str | None, i: str) -> list[str]:
        """Take in the vector at positions i, i + 1, ...; lanes outside the mask change nothing."""
        if self.kind.startswith("arg"):
            return self._take_extreme(value, self.e.iota(i), state, mask)
        if mask is not None:
            value = self.e.choose(mask, value, self.initial[0], self.source)
        return [self._join(state[0], value)]

    @property
    def rounds(self) -> bool:
        """Whether every step may lose bits, so that the result is the better the fewer steps follow each other."""
        return self.kind == "sum" and self.source == "f32"

    @property
    def adds_products(self) -> bool:
        """Whether it is a sum of floats: what it adds may be a product, multiplied and added at once."""
        return self.kind == "sum" and self.source in FLOATS

    def step_product(self, a: str, b: str, state: list[str], mask: str | None) -> list[str]:
        """Take in a product of two vectors."""
        kind = self.e.type(self.source)
        name = f"llvm.fmuladd.{intrinsic_suffix(self.source, self.e.lanes)}"
        total = self.e.f.call(kind, name, (kind, a), (kind, b), (kind, state[0]))
        return [total if mask is None else self.e.choose(mask, total, state[0], self.source)]

    def step_uniform(self, value: str, state: list[str], position: str) -> list[str]:
        """Take in a vector whose lanes all stand at one position of the reduced axis."""
        if self.kind.startswith("arg"):
            return self._take_extreme(value, self.e.splat(position, "i64"), state, None)
        return [self._join(state[0], value)]

    def result(self, state: list[str]) -> str:
        """The reduction of each lane on its own."""
        return state[-1]

    def finish(self, parts: list[list[str]]) -> str:
        """The reduction of all lanes of all parts: a scalar."""
        total = parts[0]
        for part in parts[1:]:
            total = self.join(total, part)
        if self.kind.startswith("arg"):
            return self._horizontal_extreme(total)
        return self._horizontal(total[0])

    def join(self, a: list[str], b: list[str]) -> list[str]:
        """Two states into one, lane by lane."""
        return self._merge_extreme(a, b) if self.kind.startswith("arg") else [self._join(a[0], b[0])]

    def _join(self, a: str, b: str) -> str:
        f, kind = self.e.f, self.e.type(self.source)
        floating = self.source in FLOATS
        if self.kind in ("sum", "prod"):
            operation = {"sum": "add", "prod": "mul"}[self.kind]
            return f.let(f"{'f' if floating else ''}{operation} {kind} {a}, {b}")
        if self.source == "bool":
            return f.let(f"{'or' if self.kind == 'max' else 'and'} {kind} {a}, {b}")
        largest = self.kind.startswith("max")
        if not floating:
            order = ("s" if self.source in SIGNED else "u") + ("gt" if largest else "lt")
            return self.e.choose(f.let(f"icmp {order} {kind} {a}, {b}"), a, b, self.source)
        order = "ogt" if largest else "olt"
        if self.kind.endswith("num"):  # a NaN changes nothing
            return self.e.choose(f.let(f"fcmp {order} {kind} {b}, {a}"), b, a, self.source)
        chosen = self.e.choose(f.let(f"fcmp {order} {kind} {a}, {b}"), a, b, self.source)  # b, if either is NaN
        return self.e.choose(f.let(f"fcmp uno {kind} {a}, {a}"), a, chosen, self.source)

    def _horizontal(self, vector: str) -> str:
        f, kind, suffix = self.e.f, self.e.type(self.source), intrinsic_suffix(self.source, self.e.lanes)
        element, floating = scalar_type(self.source), self.source in FLOATS
        if floating and self.kind in ("sum", "prod"):
            name = f"llvm.vector.reduce.{'fadd' if self.kind == 'sum' else 'fmul'}.{suffix}"
            start = constant(self.source, -0.0 if self.kind == "sum" else 1.0, 1)
            f.declarations.add(f"declare {element} @{name}({element}, {kind})")
            return f.let(f"call reassoc {element} @{name}({element} {start}, {kind} {vector})")
        if floating or self.source == "bool":
            return self._fold(vector)
        sign = "s" if self.source in SIGNED else "u"
        name = "llvm.vector.reduce." + {"sum": "add", "prod": "mul"}.get(self.kind, sign + self.kind) + f".{suffix}"
        return f.call(element, name, (kind, vector))

    def _fold(self, vector: str) -> str:
        """Join the upper half with the lower, in ever narrower vectors."""
        f, kind, half = self.e.f, self.e.type(self.source), self.e.lanes // 2
        low, high = (
            f.let(f"shufflevector {kind} {vector}, {kind} poison, <{half} x i32> <{_lanes(start, half)}>") for start in (0, half)
        )
        if half == 1:
            one = [f.let(f"extractelement <1 x {scalar_type(self.source)}> {part}, i32 0") for part in (low, high)]
            return Accumulator(VectorEmitter(f, 1), self.node)._join(*one)
        narrow = Accumulator(VectorEmitter(f, half), self.node)
        return narrow._fold(narrow._join(low, high))

    # argmax and argmin: the first extreme wins, or the last with the suffix _last; NaN counts as more extreme than all

    def _beats(self, a: str, b: str) -> str:
        f, kind = self.e.f, self.e.type(self.source)
        largest = self.kind.startswith("argmax")
        if self.source not in FLOATS:
            sign = "s" if self.source in SIGNED else "u"
            return f.let(f"icmp {sign}{'gt' if largest else 'lt'} {kind} {a}, {b}")
        more = f.let(f"fcmp {'ogt' if largest else 'olt'} {kind} {a}, {b}")
        a_nan, b_number = f.let(f"fcmp uno {kind} {a}, {a}"), f.let(f"fcmp ord {kind} {b}, {b}")
        masks = self.e.type("bool")
        only_a = f.let(f"and {masks} {a_nan}, {b_number}")
        return f.let(f"or {masks} {more}, {only_a}")

    def _take_extreme(self, value: str, position: str, state: list[str], mask: str | None) -> list[str]:
        f, masks = self.e.f, self.e.type("bool")
        empty = f.let(f"icmp eq {self.e.type('i64')} {state[1]}, {self.initial[1]}")
        if self.kind.endswith("_last"):
            worse = self._beats(state[0], value)
            wins = f.let(f"xor {masks} {worse}, {constant('bool', True, self.e.lanes)}")
        else:
            wins = self._beats(value, state[0])
        wins = f.let(f"or {masks} {wins}, {empty}")
        if mask is not None:
            wins = f.let(f"and {masks} {wins}, {mask}")
        return [self.e.choose(wins, value, state[0], self.source), self.e.choose(wins, position, state[1], "i64")]

    def _merge_extreme(self, a: list[str], b: list[str]) -> list[str]:
        """Two states into one: the more extreme value; of equal ones the first (or last) position."""
        f, masks, index_type = self.e.f, self.e.type("bool"), self.e.type("i64")
        b_better, a_better = self._beats(b[0], a[0]), self._beats(a[0], b[0])
        tie = f.let(f"xor {masks} {f.let(f'or {masks} {b_better}, {a_better}')}, {constant('bool', True, self.e.lanes)}")
        a_empty = f.let(f"icmp eq {index_type} {a[1]}, {self.initial[1]}")
        b_full = f.let(f"icmp ne {index_type} {b[1]}, {self.initial[1]}")
        order = f.let(f"icmp {'sgt' if self.kind.endswith('_last') else 'slt'} {index_type} {b[1]}, {a[1]}")
        by_order = f.let(f"and {masks} {tie}, {order}")
        wins = f.let(f"or {masks} {f.let(f'or {masks} {b_better}, {by_order}')}, {a_empty}")
        wins = f.let(f"and {masks} {wins}, {b_full}")
        return [self.e.choose(wins, b[0], a[0], self.source), self.e.choose(wins, b[1], a[1], "i64")]

    def _horizontal_extreme(self, state: list[str]) -> str:
        f, lanes = self.e.f, self.e.lanes
        width = lanes
        while width > 1:
            half = width // 2
            order = ", ".join(f"i32 {(lane + half) % lanes}" for lane in range(lanes))
            moved = [
                f.let(f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{order}>")
                for kind, value in zip(self.types, state)
            ]
            state = self._merge_extreme(state, moved)
            width = half
        return f.let(f"extractelement {self.types[1]} {state[1]}, i32 0")


def states_of(accumulators: Sequence[Accumulator]) -> list[tuple[str, str]]:
    """The types and first values of what a loop carries for some accumulators."""
    return [state for acc in accumulators for state in zip(acc.types, acc.initial)]


def joined(accumulators: Sequence[Accumulator], some: Sequence[str], others: Sequence[str]) -> list[str]:
    """The states of accumulators over two stretches in one."""
    result: list[str] = []
    for acc in accumulators:
        one, other = ([*states[len(result) : len(result) + len(acc.types)]] for states in (some, others))
        result += acc.join(one, other)
    return result


def _lanes(start: int, count: int) -> str:
    return ", ".join(f"i32 {start + lane}" for lane in range(count))


def _identity(kind: str, source: str) -> float:
    """What changes nothing when it is joined in; for arguments of extremes any value, their position tells."""
    if kind == "sum" or kind.startswith("arg"):
        return 0
    if kind == "prod":
        return 1
    if source in FLOATS:
        return float("-inf") if kind.startswith("max") else float("inf")
    if source == "bool":
        return kind == "min"
    top = _LARGEST.get(source, 2 ** int(source[1:]) - 1)
    bottom = -top - 1 if source in SIGNED else 0
    return bottom if kind == "max" else top
