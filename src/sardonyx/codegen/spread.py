"""Sum and spread (sum of squared distances from the mean) of rows in one walk.

    chunk by chunk, in each lane: the chunk's own mean, squared distances from that, and the distance of the chunk's mean
    from the mean so far, which stands for all that lies between the two
    at the end: lanes are put together in the same way

Squares are only ever taken of distances from means nearby, so nothing cancels: the result is as good as that of a second walk
with the mean known, which would read the row again. What is left of a row behind its chunks makes chunks of one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sardonyx.codegen.accumulators import Accumulator
from sardonyx.codegen.vector import VectorEmitter, constant, intrinsic_suffix, scalar_type
from sardonyx.kernel.expr import load, reduced

# The vectors of one row at some positions; with a mask (and a count), of which some lanes do not exist.
Read = Callable[[int, "list[str]", "str | None", "str | None"], "list[str]"]

_STATES = 4  # for each row: the sum, two sums of squared distances inside chunks, one of those between them


@dataclass(frozen=True, slots=True)
class Walked:
    """What is known of some rows after their walk: their states, the elements in each lane, the lanes that have one more."""

    states: list[str]
    count: str
    mask: str
    length: str


class SpreadWalk:
    """Walks along rows."""

    def __init__(self, emitter: VectorEmitter, kind: str, chunk: int, read: Read) -> None:
        self.e, self.f = emitter, emitter.f
        self.kind, self.chunk, self.read = kind, chunk, read
        self.vector, self.scalar = emitter.type(kind), scalar_type(kind)
        self._sum = Accumulator(emitter, reduced("sum", load(0, kind), 1))

    def walk(self, rows: Sequence[int], start: str, stop: str) -> Walked:
        """Walk along some rows at once."""
        f, lanes = self.f, self.e.lanes
        length = f.sub(stop, start)
        whole = f.add(start, f.let(f"and i64 {length}, {-lanes * self.chunk}", "i"))
        edge = f.add(start, f.let(f"and i64 {length}, {-lanes}", "i"))
        # Elements so far in each lane, the reciprocal of that, and the states of the rows
        zero, one = constant(self.kind, 0, 1), constant(self.kind, 1, 1)
        state = [zero, one, *[constant(self.kind, 0, lanes)] * (_STATES * len(rows))]
        kinds = [self.scalar, self.scalar, *[self.vector] * (_STATES * len(rows))]
        for begin, end, chunk in ((start, whole, self.chunk), (whole, edge, 1)):
            loop = f.loop(begin, end, lanes * chunk, list(zip(kinds, state)))
            positions = [f.add(loop.index, number * lanes) for number in range(chunk)]
            state = f.end(loop, self._step(rows, positions, loop.carry, None, None))
        rest = f.sub(stop, edge)
        mask = self.e.mask_below(rest)
        tail, after, before = f.fresh("tail"), f.fresh("after"), f.block
        f.branch_if(f.let(f"icmp sgt i64 {rest}, 0", "c"), tail, after)
        f.label(tail)
        last = self._step(rows, [edge], state, mask, rest)
        reached = f.block
        f.branch(after)
        f.label(after)
        joined = [
            f.let(f"phi {kind} [ {old}, %{before} ], [ {new}, %{reached} ]", "r")
            for kind, old, new in zip(kinds[2:], state[2:], last[2:])
        ]
        return Walked(joined, state[0], mask, length)

    def _step(
        self, rows: Sequence[int], positions: list[str], state: list[str], mask: str | None, count: str | None
    ) -> list[str]:
        """Take in one chunk of every row."""
        f, e = self.f, self.e
        before, reciprocal = state[:2]
        more = constant(self.kind, len(positions), 1)
        now = f.let(f"fadd {self.scalar} {before}, {more}")
        following = f.let(f"fdiv {self.scalar} {constant(self.kind, 1, 1)}, {now}")
        # Two stretches of a and b elements whose means differ by d: a b / (a + b) d**2 is what the spread of both has beyond theirs.
        weight = f.let(f"fmul {self.scalar} {f.let(f'fmul {self.scalar} {before}, {more}')}, {following}")
        weights = e.splat(weight, self.scalar)
        shrink = e.splat(f.let(f"fneg {self.scalar} {reciprocal}"), self.scalar)
        result = [now, following]
        for number, row in enumerate(rows):
            total, first, second, between = state[2 + number * _STATES : 2 + (number + 1) * _STATES]
            values = self.read(row, positions, mask, count)
            own = self._tree(values)
            mean = own if len(values) == 1 else f.let(f"fmul {self.vector} {own}, {self._constant(1 / len(values))}")
            if len(values) > 1:
                for place, value in enumerate(values):
                    distance = f.let(f"fsub {self.vector} {value}, {mean}")
                    if place % 2:
                        second = self._multiply_add(distance, distance, second)
                    else:
                        first = self._multiply_add(distance, distance, first)
            distance = self._multiply_add(total, shrink, mean)
            weighted = f.let(f"fmul {self.vector} {distance}, {weights}")
            made = [f.let(f"fadd {self.vector} {total}, {own}"), self._multiply_add(weighted, distance, between)]
            if mask is not None:
                made = [e.choose(mask, new, old, self.kind) for new, old in zip(made, (total, between))]
            result += [made[0], first, second, made[1]]
        return result

    def finish(self, walked: Walked) -> list[tuple[str, str]]:
        """Put the lanes together: sum and spread of each row, as scalars."""
        f, e, one = self.f, self.e, constant(self.kind, 1, 1)
        more = e.splat(f.let(f"fadd {self.scalar} {walked.count}, {one}"), self.scalar)
        counts = e.choose(walked.mask, more, e.splat(walked.count, self.scalar), self.kind)
        some = f.let(f"fcmp ogt {self.vector} {counts}, {self._constant(1)}")
        at_least_one = e.choose(some, counts, self._constant(1), self.kind)
        elements = f.let(f"sitofp i64 {walked.length} to {self.scalar}")
        share = f.let(f"fdiv {self.scalar} {one}, {elements}")
        results = []
        for start in range(0, len(walked.states), _STATES):
            total, first, second, between = walked.states[start : start + _STATES]
            whole = self._sum.finish([[total]])
            mean = e.splat(f.let(f"fmul {self.scalar} {whole}, {share}"), self.scalar)
            own = f.let(f"fdiv {self.vector} {total}, {at_least_one}")
            distance = f.let(f"fsub {self.vector} {own}, {mean}")
            inside = f.let(f"fadd {self.vector} {f.let(f'fadd {self.vector} {first}, {second}')}, {between}")
            weighted = f.let(f"fmul {self.vector} {counts}, {distance}")
            results.append((whole, self._sum.finish([[self._multiply_add(weighted, distance, inside)]])))
        return results

    def join(self, one: tuple[str, str, str], sum_: str, spread: str, count: str) -> tuple[str, str, str]:
        """(elements, sum, spread) of a stretch and those of another, whose elements are counted by an integer."""
        f, kind = self.f, self.scalar
        elements, total, squares = one
        more = f.let(f"sitofp i64 {count} to {kind}")
        now = f.let(f"fadd {kind} {elements}, {more}")
        some = f.let(f"fcmp ogt {kind} {elements}, {constant(self.kind, 0, 1)}")
        before = f.let(f"select i1 {some}, {kind} {elements}, {kind} {constant(self.kind, 1, 1)}")
        distance = f.let(f"fsub {kind} {f.let(f'fdiv {kind} {sum_}, {more}')}, {f.let(f'fdiv {kind} {total}, {before}')}")
        weight = f.let(f"fdiv {kind} {f.let(f'fmul {kind} {elements}, {more}')}, {now}")
        weighted = f.let(f"fmul {kind} {distance}, {weight}")
        joined = f.let(f"fadd {kind} {squares}, {spread}")
        name = f"llvm.fmuladd.{intrinsic_suffix(self.kind, 1)}"
        beyond = f.call(kind, name, (kind, weighted), (kind, distance), (kind, joined))
        return now, f.let(f"fadd {kind} {total}, {sum_}"), beyond

    def _tree(self, values: list[str]) -> str:
        while len(values) > 1:
            values = [self.f.let(f"fadd {self.vector} {a}, {b}") for a, b in zip(values[::2], values[1::2])]
        return values[0]

    def _multiply_add(self, a: str, b: str, c: str) -> str:
        name = f"llvm.fmuladd.{intrinsic_suffix(self.kind, self.e.lanes)}"
        return self.f.call(self.vector, name, (self.vector, a), (self.vector, b), (self.vector, c))

    def _constant(self, value: float) -> str:
        return constant(self.kind, value, self.e.lanes)
