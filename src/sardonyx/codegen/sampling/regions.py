"""Samplings of regions -> LLVM.

for bin of a region:
  how many points the bin has along each axis
  for channels, some vectors at a time, then one:
    for y: for x:      sums += the four elements around (y, x), weighted
    target = sums / points

Where points lie is computed as the operator's definition does it, operation by operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant
from sardonyx.codegen.fault import report
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import Expr, clamp, const, load, maximum, minimum, select, unary
from sardonyx.kernel.sampling.regions import MOST_SAMPLES, RegionsKernel
from sardonyx.target.target import Target

_VECTORS: Final = 4  # of channels at once


class _Axis(NamedTuple):
    """One side of a bin: where the region begins, how wide a bin is, and how many points it has."""

    bin: str
    start: str
    width: str
    samples: str
    size: str


class _Around(NamedTuple):
    """The elements before and behind a point, and what each of them weighs."""

    low: str
    high: str
    low_weight: str
    high_weight: str


def emit_regions(kernel: RegionsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a sampling of regions."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _RegionsEmitter(kernel, function, target).emit()
    return function


class _RegionsEmitter:
    def __init__(self, kernel: RegionsKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = function
        self.a = Loaded(function, kernel.arguments)
        self.one = VectorEmitter(function, 1)
        self.e = VectorEmitter(function, target.lanes)
        self.lanes = target.lanes

    def emit(self) -> None:
        f, a = self.f, self.a
        bins = self.k.bins[0] * self.k.bins[1]
        unit = f.loop("%begin", "%end")
        region = f.let(f"udiv i64 {unit.index}, {bins}", "i")
        position = f.sub(unit.index, f.mul(region, bins))
        row = f.let(f"udiv i64 {position}, {self.k.bins[1]}", "i")
        column = f.sub(position, f.mul(row, self.k.bins[1]))
        axes = [self._axis(0, region, row, a["height"]), self._axis(1, region, column, a["width"])]
        number = f.let(f"load i64, ptr {f.element(a['numbers'], 'i64', region)}, align 8")
        elements = f.mul(f.mul(a["height"], a["width"]), a["channels"])
        image = f.element(a["image"], "float", f.mul(number, elements))
        result = f.element(a["target"], "float", f.mul(unit.index, a["channels"]))
        wide = f.mul(f.let(f"udiv i64 {a['channels']}, {_VECTORS * self.lanes}", "i"), _VECTORS * self.lanes)
        for begin, end, vectors in (("0", wide, _VECTORS), (wide, a["channels"], 1)):
            channel = f.loop(begin, end, vectors * self.lanes)
            mask = self.e.mask_below(f.sub(a["channels"], channel.index)) if vectors == 1 else None
            at = [f.add(channel.index, number * self.lanes) for number in range(vectors)]
            for value, offset in zip(self._bin(axes, image, at, mask), at):
                self.e.store(f.element(result, "float", offset), value, "f32", mask)
            f.end(channel)
        f.end(unit)

    def _axis(self, axis: int, region: str, position: str, size: str) -> _Axis:
        f = self.f
        base, strides = self.a.tensor("regions")
        ends = [
            self.one.load(f.element(base, "float", f.add(f.mul(region, strides[0]), f.mul(strides[1], column))), "f32")
            for column in (1 - axis, 3 - axis)
        ]
        known = {load(number, "f32"): value for number, value in enumerate(ends)}
        shift = 0.5 if self.k.half_pixel else 0.0
        start, end = (load(number, "f32") * self.k.scale - shift for number in (0, 1))
        length = end - start if self.k.half_pixel else maximum(end - start, 1.0)
        width = length / float(self.k.bins[axis])
        if self.k.ratio:
            samples: Expr = const(self.k.ratio, "i64")
        else:
            finite = unary("abs", width) < float("inf")
            limited = clamp(unary("ceil", width), -1.0, 2.0 * MOST_SAMPLES)
            samples = select(finite, limited, -1.0).cast("i64")
        made = self.one.emit([start, width, samples], known)
        return _Axis(position, made[0], made[1], self._checked(made[2], region), size)

    def _checked(self, samples: str, region: str) -> str:
        """How many points there are; none if there are too many, which is reported."""
        if self.k.ratio:
            return samples
        f = self.f
        many, after = f.fresh("many"), f.fresh("checked")
        before = f.block
        f.branch_if(f.let(f"icmp sgt i64 {samples}, {MOST_SAMPLES}", "c"), many, after)
        f.label(many)
        report(f, self.a["record"], self.a["code"], region, samples, str(MOST_SAMPLES))
        end = f.block
        f.branch(after)
        f.label(after)
        return f.let(f"phi i64 [ {samples}, %{before} ], [ 0, %{end} ]")

    def _bin(self, axes: Sequence[_Axis], image: str, offsets: list[str], mask: str | None) -> list[str]:
        """The result of a bin for some vectors of channels."""
        f, kind = self.f, self.e.type("f32")
        rows, columns = axes
        nothing = constant("f32", float("-inf") if self.k.largest else 0.0, self.lanes)
        y = f.loop(0, rows.samples, 1, [(kind, nothing)] * len(offsets))
        above = self._around(rows, y.index)
        line = f.mul(self.a["width"], self.a["channels"])
        lines = [f.element(image, "float", f.mul(number, line)) for number in (above.low, above.high)]
        x = f.loop(0, columns.samples, 1, list(zip([kind] * len(offsets), y.carry)))
        beside = self._around(columns, x.index)
        taps = [
            f.element(pointer, "float", f.mul(number, self.a["channels"]))
            for number in (beside.low, beside.high)
            for pointer in lines
        ]
        row_weights = [self.e.splat(weight, "float") for weight in (above.low_weight, above.high_weight)]
        column_weights = [self.e.splat(weight, "float") for weight in (beside.low_weight, beside.high_weight)]
        known = {load(number, "f32"): weight for number, weight in enumerate((*row_weights, *column_weights))}
        following = []
        for before, offset in zip(x.carry, offsets):
            values = [self.e.load(f.element(tap, "float", offset), "f32", mask) for tap in taps]
            all_known = {**known, load(8, "f32"): before}
            all_known.update({load(4 + number, "f32"): value for number, value in enumerate(values)})
            following += self.e.emit([_more(largest=self.k.largest)], all_known)
        sums = f.end(y, f.end(x, following))
        points = f.let(f"icmp sgt i64 {f.min(rows.samples, columns.samples)}, 0", "c")
        count = f.let(f"sitofp i64 {f.mul(rows.samples, columns.samples)} to float")
        divisor = self.e.splat(count, "float")
        zero = constant("f32", 0.0, self.lanes)
        found = sums if self.k.largest else [f.let(f"fdiv {kind} {total}, {divisor}") for total in sums]
        return [f.let(f"select i1 {points}, {kind} {value}, {kind} {zero}") for value in found]

    def _around(self, axis: _Axis, sample: str) -> _Around:
        """The elements around a point."""
        start, width = load(0, "f32"), load(1, "f32")
        position, number, samples, size = (load(entry, "i64") for entry in (2, 3, 4, 5))
        inner = (number.cast("f64") + 0.5) * (width / samples.cast("f32")).cast("f64")
        point = (start.cast("f64") + position.cast("f64") * width.cast("f64") + inner).cast("f32")
        length = size.cast("f32")
        inside = (point >= -1.0) & (point <= length)
        limited = clamp(select(inside, point, 0.0), 0.0, length - 1.0)
        low = limited.cast("i64")
        share = limited - low.cast("f32")
        made = self.one.emit(
            [low, minimum(low + 1, size - 1), select(inside, 1.0 - share, 0.0), select(inside, share, 0.0)],
            {start: axis.start, width: axis.width, position: axis.bin, number: sample, samples: axis.samples, size: axis.size},
        )
        return _Around(*made)


def _more(*, largest: bool) -> Expr:
    """What a bin has with one more point. Loads: weights of rows, of columns; the elements, column by column; what it had."""
    rows, columns = (load(0, "f32"), load(1, "f32")), (load(2, "f32"), load(3, "f32"))
    elements, before = [load(number, "f32") for number in range(4, 8)], load(8, "f32")
    if largest:
        result: Expr = before
        for number, element in enumerate(elements):
            result = maximum(result, element * (rows[number % 2] * columns[number // 2]))
        return result
    sides = [elements[2 * side] * rows[0] + elements[2 * side + 1] * rows[1] for side in (0, 1)]
    return before + (sides[0] * columns[0] + sides[1] * columns[1])
