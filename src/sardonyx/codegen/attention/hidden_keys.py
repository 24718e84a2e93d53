"""Strips of keys that a mask hides from a whole block of queries -> LLVM.

for strip of a part of the keys:
  for row: are its scores, if products were 0, so low that their exponentials are 0?   (the first one that is not ends the search)
  values finite?  are the largest of these scores and the largest product possible together as low?
the part becomes the keys from the first strip to the last that is not hidden

A product is at most the norm of all queries of the block times the largest norm of a key. Scores are that and something more
(`is_masked_product` of `kernel.attention.attention`), so nothing is left out that would add anything: results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sardonyx.codegen.element_types import constant, intrinsic_suffix, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.records import dataclass

_LOST = {"f32": 104.0, "f64": 746.0}  # below the largest score: exponentials are 0
_SLACK = 1e-3  # of norms and scores, for what rounding takes from them and from their sum
_LARGEST = {"f32": float(np.finfo(np.float32).max), "f64": float(np.finfo(np.float64).max)}
_LARGE = {"f32": 1e30, "f64": 1e300}  # where sums may overflow


@dataclass(frozen=True)
class Strips:
    """The keys of a part in strips of some vectors, for a block of queries."""

    count: str  # of keys
    rows: str
    floor: str  # scores below it have exponentials of 0
    scores: Callable[[str, str, str | None], str]  # of products of 0, by row, first key, number of lanes if not all exist
    bound: Callable[[str], str]  # the largest product of a strip with any query
    is_finite: Callable[[str, str], str]  # the values of keys from one to another


class HiddenKeysEmitter:
    """Finds the keys of a part that queries see."""

    def __init__(self, kind: str, function: FunctionBuilder, emitter: VectorEmitter, vectors: int) -> None:
        self.type, self.f, self.e = kind, function, emitter
        self.strip = vectors * emitter.lanes
        self.scalar, self.vector = memory_type(kind), emitter.type(kind)
        self.lowest = constant(kind, float("-inf"), emitter.lanes)
        self._begin, self._end, self._row = (function.let("alloca i64, align 8") for _ in range(3))
        self._top = function.let(f"alloca {self.vector}, align 64")

    def _intrinsic(self, name: str) -> str:
        return f"llvm.{name}.{intrinsic_suffix(self.type, self.e.lanes)}"

    def floor(self, largest: Callable[[str], str], rows: str, is_first: str) -> str:
        """What scores must be below, given the largest score of each row: none is, before there are any."""
        f, kind, vector = self.f, self.type, self.vector
        top = constant(kind, float("inf"), self.e.lanes)
        row = f.loop(0, rows, self.e.lanes, [(vector, top)])
        own = self.e.choose(self.e.mask_below(f.sub(rows, row.index)), self.e.load(largest(row.index), kind), top, kind)
        (least,) = f.end(row, [f.call(vector, self._intrinsic("minimum"), (vector, row.carry[0]), (vector, own))])
        lowest = f.call(self.scalar, self._intrinsic("vector.reduce.fminimum"), (vector, least))
        floor = f.let(f"fadd {self.scalar} {lowest}, {constant(kind, -_LOST[kind], 1)}")
        return f.let(f"select i1 {is_first}, {self.scalar} {constant(kind, float('-inf'), 1)}, {self.scalar} {floor}")

    def bound(self, queries: str, keys: str, scale: str) -> str:
        """The largest product, of a vector of squares of all queries' elements and one of the keys' squared norms."""
        f, scalar = self.f, self.scalar
        name = self._intrinsic("vector.reduce.fadd")
        f.declarations.add(f"declare {scalar} @{name}({scalar}, {self.vector})")
        total = f.let(f"call reassoc {scalar} @{name}({scalar} {constant(self.type, 0.0, 1)}, {self.vector} {queries})")
        largest = f.call(scalar, self._intrinsic("vector.reduce.fmaximum"), (self.vector, keys))
        norm = f.call(scalar, f"llvm.sqrt.{intrinsic_suffix(self.type, 1)}", (scalar, f.let(f"fmul {scalar} {total}, {largest}")))
        factor = f.let(f"extractelement {self.vector} {scale}, i32 0")
        size = f.call(scalar, f"llvm.fabs.{intrinsic_suffix(self.type, 1)}", (scalar, f.let(f"fmul {scalar} {norm}, {factor}")))
        return f.let(f"fmul {scalar} {size}, {constant(self.type, 1 + _SLACK, 1)}")

    def seen(self, strips: Strips) -> tuple[str, str]:
        """The first key of the part that is not hidden, which begins a strip, and where the last one's strip ends."""
        f = self.f
        f.line(f"store i64 {strips.count}, ptr {self._begin}, align 8")
        f.line(f"store i64 0, ptr {self._end}, align 8")
        strip = f.loop(0, strips.count, self.strip)
        last = f.min(f.add(strip.index, self.strip), strips.count)
        low, finite, hidden, seen = (f.fresh(name) for name in ("low", "finite", "hidden", "seen"))
        self._branch_if_low(strips, strip.index, last, low, seen)
        f.label(low)
        f.branch_if(strips.is_finite(strip.index, last), finite, seen)
        f.label(finite)
        f.branch_if(self._vanish(strips, strip.index), hidden, seen)
        f.label(seen)
        begin = f.let(f"load i64, ptr {self._begin}, align 8", "i")
        f.line(f"store i64 {f.min(begin, strip.index)}, ptr {self._begin}, align 8")
        f.line(f"store i64 {last}, ptr {self._end}, align 8")
        f.branch(hidden)
        f.label(hidden)
        f.end(strip)
        begin, end = (f.let(f"load i64, ptr {cell}, align 8", "i") for cell in (self._begin, self._end))
        return f.min(begin, end), end

    def _vanish(self, strips: Strips, strip: str) -> str:
        """Whether scores as large as those found, with the largest product, have exponentials of 0."""
        f, scalar = self.f, self.scalar
        top = self.e.load(self._top, self.type)
        highest = f.call(scalar, self._intrinsic("vector.reduce.fmax"), (self.vector, top))
        bound = strips.bound(strip)
        none = f.let(f"fcmp oeq {scalar} {highest}, {constant(self.type, float('-inf'), 1)}", "c")
        size = f.call(scalar, f"llvm.fabs.{intrinsic_suffix(self.type, 1)}", (scalar, highest))
        slack = f.let(f"fmul {scalar} {size}, {constant(self.type, _SLACK, 1)}")
        most = f.let(f"fadd {scalar} {f.let(f'fadd {scalar} {highest}, {slack}')}, {bound}")
        below = f.let(f"fcmp olt {scalar} {most}, {strips.floor}", "c")
        sane = f.let(f"fcmp olt {scalar} {bound}, {constant(self.type, _LARGE[self.type], 1)}", "c")
        return f.let(f"and i1 {sane}, {f.let(f'or i1 {none}, {below}', 'c')}", "c")

    def _branch_if_low(self, strips: Strips, first: str, last: str, yes: str, no: str) -> None:
        """Go to `yes` if all scores vanish where products are 0, NaN being none of these; their maxima are at `_top` then."""
        f, vector, masks = self.f, self.vector, self.e.type("bool")
        least = constant(self.type, -_LARGEST[self.type], 1)
        above = f.let(f"fcmp ogt {self.scalar} {strips.floor}, {least}", "c")  # minus infinity is always low
        floor = self.e.splat(f.let(f"select i1 {above}, {self.scalar} {strips.floor}, {self.scalar} {least}"), self.scalar)
        all_lanes = self.e.splat("true", "i1")
        f.line(f"store i64 0, ptr {self._row}, align 8")
        self.e.store(self._top, self.lowest, self.type)
        whole = f.add(first, f.let(f"and i64 {f.sub(last, first)}, {-self.e.lanes}", "i"))
        check, look = (f.fresh(name) for name in ("check", "look"))

        def looked_at(value: str, carried: list[str]) -> list[str]:
            low = f.let(f"fcmp olt {vector} {value}, {floor}")
            larger = f.let(f"fcmp ogt {vector} {value}, {carried[0]}")
            return [self.e.choose(larger, value, carried[0], self.type), f.let(f"and {masks} {carried[1]}, {low}")]

        f.branch(check)
        f.label(check)
        row = f.let(f"load i64, ptr {self._row}, align 8", "i")
        f.branch_if(f.let(f"icmp slt i64 {row}, {strips.rows}", "c"), look, yes)
        f.label(look)
        key = f.loop(first, whole, self.e.lanes, [(vector, self.e.load(self._top, self.type)), (masks, all_lanes)])
        found = f.end(key, looked_at(strips.scores(row, key.index, None), key.carry))
        key = f.loop(whole, last, self.e.lanes, list(zip((vector, masks), found)))
        left = f.sub(last, key.index)
        some = self.e.choose(self.e.mask_below(left), strips.scores(row, key.index, left), self.lowest, self.type)
        top, low = f.end(key, looked_at(some, key.carry))
        self.e.store(self._top, top, self.type)
        f.line(f"store i64 {f.add(row, 1)}, ptr {self._row}, align 8")
        f.branch_if(f.call("i1", f"llvm.vector.reduce.and.v{self.e.lanes}i1", (masks, low)), check, no)
