"""Maxima of windows and where they are -> LLVM.

for unit in begin .. end:                      (batch entry, channel, plane, row)
  for column of results:
    for plane, row, column of the window inside the image, in order:
      keep the value and its index if it is the first one, greater, or NaN where none was before
"""

from __future__ import annotations

from itertools import product
from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, inside
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS, FLOATS, SIGNED, Expr, load, unary
from sardonyx.kernel.pool.pool import MaxIndicesKernel
from sardonyx.target.target import Target

_UNROLLED: Final = 27  # taps of a window up to which they are written one by one


def emit_max_indices(kernel: MaxIndicesKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of maxima with their indices."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _MaxIndicesEmitter(kernel, function).emit()
    return function


def _better(kind: str) -> Expr:
    value, best = load(0, kind), load(1, kind)
    if kind not in FLOATS:
        return value > best
    return (value > best) | (unary("isnan", value) & ~unary("isnan", best))


class _MaxIndicesEmitter:
    def __init__(self, kernel: MaxIndicesKernel, function: FunctionBuilder) -> None:
        self.k = kernel
        self.f = f = function
        self.e = VectorEmitter(f, 1)
        self.a = Loaded(f, kernel.arguments)
        self.numbering = self.a.several("numbering")
        self.x, self.strides = self.a.tensor("x")
        self.values, self.indices = self.a["values"], self.a["indices"]
        kind = kernel.type
        lowest = -float("inf") if kind in FLOATS else -(2 ** (BITS[kind] - 1)) if kind in SIGNED else 0
        self.nothing = constant(kind, lowest, 1)

    def emit(self) -> None:
        f, a, k = self.f, self.a, self.k
        size = f.mul(f.mul(a["depth"], a["height"]), a["width"])
        taps = self._taps()
        units = Counter(f, [a["rows"], a["planes"], a["channels"]])
        row, plane, channel, image = units.indices
        picture = f.add(f.mul(image, a["channels"]), channel)
        result = f.mul(f.add(f.mul(f.add(f.mul(picture, a["planes"]), plane), a["rows"]), row), a["columns"])
        first = [f.sub(f.mul(index, stride), a[pad]) for index, stride, pad in zip((plane, row), k.stride, ("front", "top"))]
        limits = [
            inside(f, begin, str(dilation), a[name], count)
            for begin, dilation, name, count in zip(first, k.dilation, ("depth", "height"), k.kernel)
        ]
        column = f.loop(0, a["columns"])
        left = f.sub(f.mul(column.index, k.stride[2]), a["left"])
        starts = [*first, left]
        ranges = [*limits, inside(f, left, str(k.dilation[2]), a["width"], k.kernel[2])]
        x = f.element(self.x, memory_type(k.source), f.add(f.mul(image, self.strides[0]), f.mul(channel, self.strides[1])))
        best, index = self._either(x, starts, ranges, taps)
        at = f.add(result, column.index)
        self.e.store(f.element(self.values, memory_type(k.source), at), convert(self.e, best, k.type, k.source), k.source)
        found = f.add(index, f.mul(picture, size))
        f.line(f"store i64 {found}, ptr {f.element(self.indices, 'i64', at)}, align 8")
        f.end(column)
        units.end()

    def _taps(self) -> list[tuple[str, str]]:
        """How far each tap of a window is from its first, in memory and in the numbering; empty if there are many."""
        k = self.k
        if k.kernel[0] * k.kernel[1] * k.kernel[2] > _UNROLLED:
            return []
        taps = []
        for tap in product(*(range(count) for count in k.kernel)):
            apart = [index * dilation for index, dilation in zip(tap, k.dilation)]
            taps.append((self.f.offset(apart, self.strides[2:]), self.f.offset(apart, self.numbering)))
        return taps

    def _either(self, x: str, starts: list[str], ranges: list[tuple[str, str]], taps: list[tuple[str, str]]) -> tuple[str, str]:
        """A window that lies inside as a whole in unrolled code, others by loops."""
        f, k = self.f, self.k
        if not taps:
            return self._window(x, starts, ranges)
        whole = "true"
        for (low, high), count in zip(ranges, k.kernel):
            whole = f.let(f"and i1 {whole}, {f.let(f'icmp eq i64 {f.sub(high, low)}, {count}', 'c')}", "c")
        unrolled, loops, done = f.fresh("unrolled"), f.fresh("loops"), f.fresh("done")
        f.branch_if(whole, unrolled, loops)
        f.label(unrolled)
        base = f.element(x, memory_type(k.source), self.f.offset(starts, self.strides[2:]))
        first = self.f.offset(starts, self.numbering)
        best = self._value(base, taps[0][0])
        where = f.add(first, taps[0][1])
        for offset, number in taps[1:]:
            value = self._value(base, offset)
            (better,) = self.e.emit([_better(k.type)], {load(0, k.type): value, load(1, k.type): best})
            best = self.e.choose(better, value, best, k.type)
            where = f.let(f"select i1 {better}, i64 {f.add(first, number)}, i64 {where}", "i")
        after = f.block
        f.branch(done)
        f.label(loops)
        slow, found = self._window(x, starts, ranges)
        last = f.block
        f.branch(done)
        f.label(done)
        kind = self.e.type(k.type)
        return (
            f.let(f"phi {kind} [ {best}, %{after} ], [ {slow}, %{last} ]"),
            f.let(f"phi i64 [ {where}, %{after} ], [ {found}, %{last} ]"),
        )

    def _value(self, base: str, offset: str) -> str:
        k = self.k
        pointer = self.f.element(base, memory_type(k.source), offset)
        return convert(self.e, self.e.load(pointer, k.source), k.source, k.type)

    def _window(self, x: str, starts: list[str], ranges: list[tuple[str, str]]) -> tuple[str, str]:
        """The greatest element of a window and its index in the picture; -1 if the window has none."""
        f, e, k = self.f, self.e, self.k
        carried = [(e.type(k.type), self.nothing), ("i64", "-1")]
        offset, number = "0", "0"
        loops = []
        for axis, (start, limits) in enumerate(zip(starts, ranges)):
            loops.append(f.loop(*limits, 1, carried))
            index = f.add(start, f.mul(loops[-1].index, k.dilation[axis]))
            offset = f.add(offset, f.mul(index, self.strides[2 + axis]))
            number = f.add(number, f.mul(index, self.numbering[axis]))
            carried = list(zip((e.type(k.type), "i64"), loops[-1].carry))
        best, where = loops[-1].carry
        value = self._value(x, offset)
        (better,) = e.emit([_better(k.type)], {load(0, k.type): value, load(1, k.type): best})
        taken = f.let(f"or i1 {better}, {f.let(f'icmp slt i64 {where}, 0', 'c')}", "c")
        results = [e.choose(taken, value, best, k.type), f.let(f"select i1 {taken}, i64 {number}, i64 {where}", "i")]
        for loop in reversed(loops):
            results = f.end(loop, results)
        return results[0], results[1]
