"""Gathers and scatters -> LLVM: every index is checked before it is used."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.fault import report
from sardonyx.codegen.function import FunctionBuilder, Loop
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS, Expr, binary, load
from sardonyx.kernel.indexing.indexing import ROW_PIECE, IndexKernel
from sardonyx.target.target import Target

_TOGETHER = 4  # positions whose indices are checked at once
_COLUMN = 1 << 40  # the first index of all positions is looked at before the second: how far apart their positions count


def emit_index_kernel(kernel: IndexKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a gather or scatter."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _IndexEmitter(kernel, function, target).emit()
    return function


class _IndexEmitter:
    def __init__(self, kernel: IndexKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.target = target
        self.element = memory_type(kernel.type)
        a = Loaded(f, kernel.arguments)
        self.sizes = a.several("sizes")
        self.row = a["row"] if kernel.rows else "1"
        self.near, self.near_strides = a.tensor("near")
        self.far, self.far_strides = a.tensor("far")
        self.limits, self.strides = a.several("limits"), a.several("strides")
        self.index = [each.base for each in a.tensors("index")]
        self.index_strides = [each.strides for each in a.tensors("index")]
        self.record, self.code = a["record"], a["code"]
        self._use_known_strides()

    def _use_known_strides(self) -> None:
        last = self.k.parallel - 1
        for strides, inner in zip((self.near_strides, self.far_strides, *self.index_strides), self.k.inner):
            if inner != "any":
                strides[last] = "1" if inner == "unit" else "0"
        for number, unit in enumerate(self.k.unit_strides):
            if unit:
                self.strides[number] = "1"

    def emit(self) -> None:
        f, k = self.f, self.k
        start, stop = "0", self.row
        decoded = k.parallel - 1 if k.chunked else k.parallel
        unit = f.loop("%begin", "%end")
        rest = unit.index
        if k.rows or k.chunked:
            size, piece = (self.row, ROW_PIECE) if k.rows else (self.sizes[k.parallel - 1], k.chunk)
            pieces = f.let(f"udiv i64 {f.add(size, piece - 1)}, {piece}", "i")
            start = f.mul(f.let(f"urem i64 {rest}, {pieces}", "i"), piece)
            stop = f.min(f.add(start, piece), size)
            rest = f.let(f"udiv i64 {rest}, {pieces}", "i")
        offsets = ["0"] * (2 + k.indices)  # of near, far and the indices
        for axis, index in enumerate(f.indices(rest, self.sizes[:decoded])):
            offsets = self._moved(offsets, axis, index)
        loops: list[Loop] = []
        for axis in range(k.parallel, k.axes):
            loops.append(f.loop(0, self.sizes[axis]))
            offsets = self._moved(offsets, axis, loops[-1].index)
        if k.chunked:
            self._chunk(offsets, start, stop)
        else:
            self._element(offsets, start, f.sub(stop, start))
        for loop in reversed(loops):
            f.end(loop)
        f.end(unit)

    def _element(self, offsets: list[str], start: str, count: str) -> None:
        """Check the indices of one position and move what is there."""
        f, k = self.f, self.k
        skip = f.fresh("skip")
        near, far = offsets[0], offsets[1]
        for number in range(k.indices):
            far = f.add(far, f.mul(self._checked(number, offsets[2 + number], skip), self.strides[number]))
        if k.rows:
            near, far = f.add(near, start), f.add(far, start)
        self._move(f.element(self.near, self.element, near), f.element(self.far, self.element, far), count)
        f.branch(skip)
        f.label(skip)

    def _chunk(self, offsets: list[str], start: str, stop: str) -> None:
        """Positions along the last parallel axis: a few at a time while all their indices are good, one by one otherwise."""
        f, axis = self.f, self.k.parallel - 1
        whole = f.add(start, f.let(f"and i64 {f.sub(stop, start)}, {-_TOGETHER}", "i"))
        kinds = [self.element, self.element, *(memory_type(self.k.index) for _ in self.index)]
        strides = [self.near_strides[axis], self.far_strides[axis], *(own[axis] for own in self.index_strides)]
        bases = [f.element(*parts) for parts in zip((self.near, self.far, *self.index), kinds, offsets)]
        block = f.loop(start, whole, _TOGETHER)
        fast, slow, done = f.fresh("fast"), f.fresh("slow"), f.fresh("moved")
        first = [f.element(base, kind, f.mul(block.index, stride)) for base, kind, stride in zip(bases, kinds, strides)]
        lanes = [
            [f.element(pointer, kind, f.mul(number, stride)) for pointer, kind, stride in zip(first, kinds, strides)]
            for number in range(_TOGETHER)
        ]
        good = ""
        for column in range(self.k.indices):
            for lane in lanes:
                _, counted, inside = self._counted(column, lane[2 + column])
                good = f.let(f"and i1 {good}, {inside}", "c") if good else inside
                lane[1] = f.element(lane[1], self.element, f.mul(counted, self.strides[column]))
        f.branch_if(good or "true", fast, slow)
        f.label(fast)
        for lane in lanes:
            self._move(lane[0], lane[1], "1")
        f.branch(done)
        f.label(slow)
        each = f.loop(block.index, f.add(block.index, _TOGETHER))
        self._element(self._moved(offsets, axis, each.index), "0", "1")
        f.end(each)
        f.branch(done)
        f.label(done)
        f.end(block)
        rest = f.loop(whole, stop)
        self._element(self._moved(offsets, axis, rest.index), "0", "1")
        f.end(rest)

    def _moved(self, offsets: list[str], axis: int, index: str) -> list[str]:
        strides = [self.near_strides[axis], self.far_strides[axis], *(strides[axis] for strides in self.index_strides)]
        return [self.f.add(offset, self.f.mul(index, stride)) for offset, stride in zip(offsets, strides)]

    def _checked(self, number: int, offset: str, skip: str) -> str:
        """An index counted from the front; a bad one is reported and its position skipped."""
        f, limit = self.f, self.limits[number]
        found, counted, inside = self._counted(number, f.element(self.index[number], memory_type(self.k.index), offset))
        good, bad = f.fresh("good"), f.fresh("bad")
        f.branch_if(inside, good, bad)
        f.label(bad)
        report(f, self.record, self.code, f.add(offset, _COLUMN * number), found, limit)
        f.branch(skip)
        f.label(good)
        return counted

    def _counted(self, number: int, pointer: str) -> tuple[str, str, str]:
        """An index as it is, counted from the front, and whether it is in range."""
        f, limit = self.f, self.limits[number]
        one = VectorEmitter(f, 1)
        found = convert(one, one.load(pointer, self.k.index), self.k.index, "i64")
        negative = f.let(f"icmp slt i64 {found}, 0", "c")
        counted = f.let(f"select i1 {negative}, i64 {f.add(found, limit)}, i64 {found}", "i")
        return found, counted, f.let(f"icmp ult i64 {counted}, {limit}", "c")

    def _move(self, near: str, far: str, count: str) -> None:
        source, target = (far, near) if self.k.direction == "gather" else (near, far)
        if self.k.combine:
            self._combine(source, target, count)
        elif self.k.rows:
            self._copy(source, target, count)
        else:
            one = VectorEmitter(self.f, 1)
            one.store(target, one.load(source, self.k.type), self.k.type)

    def _copy(self, source: str, target: str, count: str) -> None:
        f, width = self.f, BITS[self.k.type] // 8
        f.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {f.mul(count, width)}, i1 false)")

    def _combine(self, source: str, target: str, count: str) -> None:
        f, kind = self.f, self.k.type
        value = binary(self.k.combine, load(0, kind), load(1, kind))
        lanes = self.target.lanes_of(BITS[kind]) if self.k.rows else 1
        edge = "0"
        if lanes > 1:
            edge = f.let(f"and i64 {count}, {-lanes}", "i")
            self._combined(VectorEmitter(f, lanes), value, source, target, f.loop(0, edge, lanes))
        self._combined(VectorEmitter(f, 1), value, source, target, f.loop(edge, count))

    def _combined(self, e: VectorEmitter, value: Expr, source: str, target: str, loop: Loop) -> None:
        at, into = (self.f.element(pointer, self.element, loop.index) for pointer in (source, target))
        known = {load(0, self.k.type): e.load(into, self.k.type), load(1, self.k.type): e.load(at, self.k.type)}
        (result,) = e.emit([value], known)
        e.store(into, result, self.k.type)
        self.f.end(loop)
