"""Packing kernels -> LLVM: a matrix goes into strips of columns, transposed in registers where it lies along its depth."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.matmul.pack import DEPTH, PackKernel
from sardonyx.target.target import Target


def emit_pack_kernel(kernel: PackKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a packing kernel."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _PackEmitter(kernel, function, target).emit()
    return function


def exchange(e: VectorEmitter, a: str, b: str, distance: int, kind: str) -> tuple[str, str]:
    """Two vectors; odd blocks (of `distance` lanes) of the first have changed places with even ones of the second."""
    lanes, vector = e.lanes, e.type(kind)
    upper = [lane if not lane & distance else lanes + (lane ^ distance) for lane in range(lanes)]
    lower = [lane ^ distance if not lane & distance else lanes + lane for lane in range(lanes)]
    first, second = (
        e.f.let(f"shufflevector {vector} {a}, {vector} {b}, <{lanes} x i32> <{', '.join(f'i32 {lane}' for lane in order)}>")
        for order in (upper, lower)
    )
    return first, second


def transpose(e: VectorEmitter, rows: list[str], kind: str) -> list[str]:
    """A square of vectors, mirrored at its diagonal: ever smaller blocks off the diagonal change places."""
    rows = list(rows)
    distance = e.lanes // 2
    while distance:
        for first in range(e.lanes):
            if not first & distance:
                second = first + distance
                rows[first], rows[second] = exchange(e, rows[first], rows[second], distance, kind)
        distance //= 2
    return rows


class _PackEmitter:
    def __init__(self, kernel: PackKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = vector_lanes(kernel.type, target)
        self.e = VectorEmitter(f, self.lanes)
        self.strip = kernel.vectors * self.lanes
        self.source_type, self.type = memory_type(kernel.source), memory_type(kernel.type)
        a = Loaded(f, kernel.arguments)
        self.batch, self.columns, self.depth = a.several("batch"), a["columns"], a["depth"]
        self.source, (*self.batch_strides, column_stride, depth_stride) = a.tensor("source")
        self.column_stride = "1" if kernel.order == "columns" else column_stride
        self.depth_stride = "1" if kernel.order == "depth" else depth_stride
        self.target = a["target"]

    def emit(self) -> None:
        f = self.f
        strips = f.let(f"udiv i64 {f.add(self.columns, self.strip - 1)}, {self.strip}", "i")
        pieces = f.let(f"udiv i64 {f.add(self.depth, DEPTH - 1)}, {DEPTH}", "i")
        unit = f.loop("%begin", "%end")
        piece = f.let(f"urem i64 {unit.index}, {pieces}", "i")
        above = f.let(f"udiv i64 {unit.index}, {pieces}", "i")  # strips lie one after the other, through all matrices
        strip = f.let(f"urem i64 {above}, {strips}", "i")
        rest = f.let(f"udiv i64 {above}, {strips}", "i")
        offset = f.offset(f.indices(rest, self.batch), self.batch_strides)
        start = f.mul(piece, DEPTH)
        stop = f.min(f.add(start, DEPTH), self.depth)
        target = f.element(self.target, self.type, f.mul(f.mul(above, self.depth), self.strip))
        vector = f.loop(0, self.k.vectors)  # of the strip
        along = f.mul(vector.index, self.lanes)
        column = f.add(f.mul(strip, self.strip), along)
        pointer = f.element(target, self.type, along)
        if self.k.order == "columns":
            source = f.element(self.source, self.source_type, f.add(offset, column))
            self._copy(source, pointer, start, stop, f.sub(self.columns, column))
        else:
            column = f.min(column, f.sub(self.columns, 1))  # beyond the matrix its last column is repeated
            count = f.sub(self.columns, column)
            source = f.element(self.source, self.source_type, f.add(offset, f.mul(column, self.column_stride)))
            whole = start
            if self.k.order == "depth":
                whole = f.add(start, f.let(f"and i64 {f.sub(stop, start)}, {-self.lanes}", "i"))
                self._transpose(source, pointer, start, whole, count)
            self._gather(source, pointer, whole, stop, count)
        f.end(vector)
        f.end(unit)

    def _put(self, pointer: str, row: str, value: str) -> None:
        at = self.f.element(pointer, self.type, self.f.mul(row, self.strip))
        self.e.store(at, convert(self.e, value, self.k.source, self.k.type), self.k.type)

    def _copy(self, source: str, pointer: str, start: str, stop: str, count: str) -> None:
        f = self.f
        full, ragged, done = f.fresh("full"), f.fresh("ragged"), f.fresh("copied")
        f.branch_if(f.let(f"icmp sge i64 {count}, {self.lanes}", "c"), full, ragged)
        for name, mask in ((full, None), (ragged, count)):
            f.label(name)
            masked = None if mask is None else self.e.mask_below(mask)
            row = f.loop(start, stop)
            at = f.element(source, self.source_type, f.mul(row.index, self.depth_stride))
            self._put(pointer, row.index, self.e.load(at, self.k.source, masked))
            f.end(row)
            f.branch(done)
        f.label(done)

    def _transpose(self, source: str, pointer: str, start: str, stop: str, count: str) -> None:
        f = self.f
        last = f.sub(count, 1)
        columns = [
            f.element(source, self.source_type, f.mul(f.min(lane, last), self.column_stride)) for lane in range(self.lanes)
        ]
        block = f.loop(start, stop, self.lanes)
        loaded = [self.e.load(f.element(column, self.source_type, block.index), self.k.source) for column in columns]
        for number, value in enumerate(transpose(self.e, loaded, self.k.source)):
            self._put(pointer, f.add(block.index, number), value)
        f.end(block)

    def _gather(self, source: str, pointer: str, start: str, stop: str, count: str) -> None:
        f = self.f
        row = f.loop(start, stop)
        at = f.element(source, self.source_type, f.mul(row.index, self.depth_stride))
        self._put(pointer, row.index, self.e.load_strided(at, self.column_stride, self.k.source, count))
        f.end(row)
