"""Sum and sum of squared deviations from the mean of rows in one walk.

    centre of each lane: the mean of a few of its elements
    along the row, in each lane: the sum of the distances from the centre, and the sum of their squares
    at the end: the squared deviations of each lane from its sums; then lanes are put together

A second walk, with the mean known, would read the row again. Distances from a number near the mean are as good as those from the
mean itself: what is subtracted from the sum of squares, for the distance between the two, is small beside it. It is largest where
a sample is far from all the rest; but then that sample is most of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sardonyx.codegen.accumulators import Accumulator
from sardonyx.codegen.element_types import constant, intrinsic_suffix, scalar_type
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import load, reduced
from sardonyx.records import dataclass

_SAMPLES = 8  # vectors, evenly along the row, whose mean is the centre; the first one, if there are not as many
_UNROLL = 4  # vectors of a row worked on at once
_CHAINS = 2  # sums that do not wait for each other
_STATES = 2 * _CHAINS  # for each row: sums of distances, then of their squares


class Read(Protocol):
    """Gives the vectors of a row at some positions; with a mask (and a count), of which some lanes do not exist."""

    def __call__(self, row: int, positions: list[str], mask: str | None, count: str | None, *, sample: bool = False) -> list[str]:
        """`sample`: they will be read again, as a part of the walk."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What is known of some rows after their walk; `counts` are the elements in each lane."""

    centres: list[str]
    states: list[str]
    counts: str
    length: str


class SquaredDeviationsWalk:
    """Walks along rows of a float type."""

    def __init__(self, emitter: VectorEmitter, kind: str, read: Read) -> None:
        self.e, self.f = emitter, emitter.f
        self.kind, self.read = kind, read
        self.vector, self.scalar = emitter.type(kind), scalar_type(kind)
        self._sum = Accumulator(emitter, reduced("sum", load(0, kind), 1))

    @property
    def step(self) -> int:
        """Elements of a row that are taken in at once."""
        return self.e.lanes * _UNROLL

    def walk(self, rows: Sequence[int], start: str, stop: str, stretch: int | None = None) -> Walked:
        """Walk along some rows at once; sums begin anew every `stretch` elements, which are whole steps, and are added up."""
        f, lanes = self.f, self.e.lanes
        length = f.sub(stop, start)
        centres = self._centres(rows, start, length)
        whole = f.add(start, f.let(f"and i64 {length}, {-lanes * _UNROLL}", "i"))
        edge = f.add(start, f.let(f"and i64 {length}, {-lanes}", "i"))
        states = [self._constant(0)] * (_STATES * len(rows))
        if stretch is None:
            states = self._take(rows, centres, start, whole, _UNROLL, states)
        else:
            outer = f.loop(start, whole, stretch, [(self.vector, state) for state in states])
            sums = self._take(rows, centres, outer.index, f.min(f.add(outer.index, stretch), whole), _UNROLL, states)
            states = f.end(outer, [f.let(f"fadd {self.vector} {total}, {more}") for total, more in zip(outer.carry, sums)])
        states = self._take(rows, centres, whole, edge, 1, states)
        rest = f.sub(stop, edge)
        mask = self.e.mask_below(rest)
        tail, after, before = f.fresh("tail"), f.fresh("after"), f.block
        f.branch_if(f.let(f"icmp sgt i64 {rest}, 0", "c"), tail, after)
        f.label(tail)
        last = self._step(rows, centres, [edge], states, mask, rest)
        reached = f.block
        f.branch(after)
        f.label(after)
        states = [self._either(old, before, new, reached) for old, new in zip(states, last)]
        full = f.let(f"sitofp i64 {f.let(f'sdiv i64 {f.sub(edge, start)}, {lanes}')} to {self.scalar}")
        more = f.let(f"fadd {self.scalar} {full}, {constant(self.kind, 1, 1)}")
        counts = self.e.choose(mask, self.e.splat(more, self.scalar), self.e.splat(full, self.scalar), self.kind)
        return Walked(centres, states, counts, length)

    def _take(self, rows: Sequence[int], centres: list[str], begin: str, end: str, vectors: int, states: list[str]) -> list[str]:
        """Take in all vectors from `begin` to `end`, some at a time."""
        f, lanes = self.f, self.e.lanes
        loop = f.loop(begin, end, lanes * vectors, [(self.vector, state) for state in states])
        positions = [f.add(loop.index, number * lanes) for number in range(vectors)]
        return f.end(loop, self._step(rows, centres, positions, loop.carry, None, None))

    def _centres(self, rows: Sequence[int], start: str, length: str) -> list[str]:
        """The mean of some elements of each lane; 0 where that is not finite, so that the sum is what it should be."""
        f, lanes = self.f, self.e.lanes
        many, few, after = f.fresh("many"), f.fresh("few"), f.fresh("after")
        f.branch_if(f.let(f"icmp sge i64 {length}, {_SAMPLES * lanes}", "c"), many, few)
        f.label(many)
        apart = f.mul(f.let(f"sdiv i64 {length}, {_SAMPLES * lanes}", "i"), lanes)
        positions = [f.add(start, f.mul(apart, number)) for number in range(_SAMPLES)]
        share = self._constant(1 / _SAMPLES)
        totals = [self._tree(self.read(row, positions, None, None, sample=True)) for row in rows]
        means = [f.let(f"fmul {self.vector} {total}, {share}") for total in totals]
        sampled = f.block  # reading may have branched
        f.branch(after)
        f.label(few)
        mask = self.e.mask_below(length)
        count = f.min(length, lanes)
        some, none, single = f.fresh("some"), f.block, f.fresh("single")
        f.branch_if(f.let(f"icmp sgt i64 {length}, 0", "c"), some, single)  # an empty row has no memory
        f.label(some)
        ones = [self.read(row, [start], mask, count, sample=True)[0] for row in rows]
        reached = f.block
        f.branch(single)
        f.label(single)
        ones = [self._either(self._constant(0), none, one, reached) for one in ones]
        f.branch(after)
        f.label(after)
        found = [self._either(mean, sampled, one, single[1:]) for mean, one in zip(means, ones)]
        size = f"llvm.fabs.{intrinsic_suffix(self.kind, lanes)}"
        result = []
        for centre in found:
            absolute = f.call(self.vector, size, (self.vector, centre))
            finite = f.let(f"fcmp olt {self.vector} {absolute}, {self._constant(float('inf'))}")
            result.append(self.e.choose(finite, centre, self._constant(0), self.kind))
        return result

    def _step(
        self,
        rows: Sequence[int],
        centres: list[str],
        positions: list[str],
        states: list[str],
        mask: str | None,
        count: str | None,
    ) -> list[str]:
        """Take in some vectors of every row."""
        f = self.f
        result: list[str] = []
        for number, (row, centre) in enumerate(zip(rows, centres)):
            state = states[number * _STATES : (number + 1) * _STATES]
            for order, value in enumerate(self.read(row, positions, mask, count)):
                distance = f.let(f"fsub {self.vector} {value}, {centre}")
                if mask is not None:
                    distance = self.e.choose(mask, distance, self._constant(0), self.kind)
                chain = order % _CHAINS
                state[chain] = f.let(f"fadd {self.vector} {state[chain]}, {distance}")
                state[_CHAINS + chain] = self._multiply_add(distance, distance, state[_CHAINS + chain])
            result += state
        return result

    def finish(self, walked: Walked) -> list[tuple[str, str]]:
        """Put the lanes together: sum and squared deviations of each row, as scalars."""
        f, e, one = self.f, self.e, self._constant(1)
        some = f.let(f"fcmp ogt {self.vector} {walked.counts}, {one}")
        reciprocals = f.let(f"fdiv {self.vector} {one}, {e.choose(some, walked.counts, one, self.kind)}")
        elements = f.let(f"sitofp i64 {walked.length} to {self.scalar}")
        share = f.let(f"fdiv {self.scalar} {constant(self.kind, 1, 1)}, {elements}")
        results = []
        for number, centre in enumerate(walked.centres):
            state = walked.states[number * _STATES : (number + 1) * _STATES]
            total, squares = self._tree(state[:_CHAINS]), self._tree(state[_CHAINS:])
            # From the centre of the first lane, so that what is rounded is as small as the distances are
            common = f.let(f"extractelement {self.vector} {centre}, i32 0")
            apart = f.let(f"fsub {self.vector} {centre}, {e.splat(common, self.scalar)}")
            whole = self._sum.finish([[self._multiply_add(walked.counts, apart, total)]])
            own = f.let(f"fmul {self.vector} {total}, {reciprocals}")
            deviations = self._deviations_of_lanes(total, own, squares)
            mean = e.splat(f.let(f"fmul {self.scalar} {whole}, {share}"), self.scalar)
            distance = f.let(f"fsub {self.vector} {f.let(f'fadd {self.vector} {apart}, {own}')}, {mean}")
            weighted = f.let(f"fmul {self.vector} {walked.counts}, {distance}")
            joined = self._sum.finish([[self._multiply_add(weighted, distance, deviations)]])
            name = f"llvm.fmuladd.{intrinsic_suffix(self.kind, 1)}"
            sum_ = f.call(self.scalar, name, (self.scalar, elements), (self.scalar, common), (self.scalar, whole))
            nothing = f.let(f"fsub {self.scalar} {sum_}, {sum_}")  # NaN, if something was not finite
            results.append((sum_, f.let(f"fadd {self.scalar} {joined}, {nothing}")))
        return results

    def _deviations_of_lanes(self, total: str, mean: str, squares: str) -> str:
        """squares - total * mean, which rounding must not make negative; squares that are too large stay infinite."""
        f = self.f
        less = self._multiply_add(f.let(f"fneg {self.vector} {total}"), mean, squares)
        negative = f.let(f"fcmp olt {self.vector} {less}, {self._constant(0)}")
        at_least_0 = self.e.choose(negative, self._constant(0), less, self.kind)
        finite = f.let(f"fcmp olt {self.vector} {squares}, {self._constant(float('inf'))}")
        return self.e.choose(finite, at_least_0, squares, self.kind)

    def join(self, one: tuple[str, str, str], sum_: str, deviations: str, count: str) -> tuple[str, str, str]:
        """(elements, sum, squared deviations) of a stretch and those of another, whose elements are counted by an integer."""
        f, kind = self.f, self.scalar
        elements, total, squares = one
        more = f.let(f"sitofp i64 {count} to {kind}")
        now = f.let(f"fadd {kind} {elements}, {more}")
        some = f.let(f"fcmp ogt {kind} {elements}, {constant(self.kind, 0, 1)}")
        before = f.let(f"select i1 {some}, {kind} {elements}, {kind} {constant(self.kind, 1, 1)}")
        distance = f.let(f"fsub {kind} {f.let(f'fdiv {kind} {sum_}, {more}')}, {f.let(f'fdiv {kind} {total}, {before}')}")
        # The squared deviations of two stretches of a and b elements, whose means differ by d: those of each and
        # a b / (a + b) d**2.
        weight = f.let(f"fdiv {kind} {f.let(f'fmul {kind} {elements}, {more}')}, {now}")
        weighted = f.let(f"fmul {kind} {distance}, {weight}")
        joined = f.let(f"fadd {kind} {squares}, {deviations}")
        name = f"llvm.fmuladd.{intrinsic_suffix(self.kind, 1)}"
        beyond = f.call(kind, name, (kind, weighted), (kind, distance), (kind, joined))
        return now, f.let(f"fadd {kind} {total}, {sum_}"), beyond

    def _either(self, old: str, before: str, new: str, reached: str) -> str:
        return self.f.let(f"phi {self.vector} [ {old}, %{before} ], [ {new}, %{reached} ]", "r")

    def _tree(self, values: list[str]) -> str:
        while len(values) > 1:
            values = [self.f.let(f"fadd {self.vector} {a}, {b}") for a, b in zip(values[::2], values[1::2])]
        return values[0]

    def _multiply_add(self, a: str, b: str, c: str) -> str:
        name = f"llvm.fmuladd.{intrinsic_suffix(self.kind, self.e.lanes)}"
        return self.f.call(self.vector, name, (self.vector, a), (self.vector, b), (self.vector, c))

    def _constant(self, value: float) -> str:
        return constant(self.kind, value, self.e.lanes)
