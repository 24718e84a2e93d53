"""Resamplings -> LLVM: rows are vectors with weights in every lane; single points go one by one."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant, memory_type, scalar_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.sampling.resample import ResampleKernel
from sardonyx.target.target import Target


def emit_resample_kernel(kernel: ResampleKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a resampling."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _ResampleEmitter(kernel, function, target).emit()
    return function


class _ResampleEmitter:
    def __init__(self, kernel: ResampleKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = target.lanes_of(64 if kernel.compute == "f64" else 32)
        a = Loaded(f, kernel.arguments)
        self.outer, self.points, self.inner = a.several("outer"), a["points"], a["inner"]
        self.source, (*self.source_outer, self.source_stride) = a.tensor("source")
        self.target, (*self.target_outer, self.target_stride) = a.tensor("target")
        self.indices, self.weights = a["indices"], a["weights"]

    def emit(self) -> None:
        f, k = self.f, self.k
        unit = f.loop("%begin", "%end")
        rest, point = unit.index, "0"
        if k.rows:
            point = f.let(f"urem i64 {rest}, {self.points}", "i")
            rest = f.let(f"udiv i64 {rest}, {self.points}", "i")
        indices = f.indices(rest, self.outer)
        read, written = f.offset(indices, self.source_outer), f.offset(indices, self.target_outer)
        source = f.element(self.source, memory_type(k.source), read)
        target = f.element(self.target, memory_type(k.target), written)
        if k.rows:
            self._row(source, target, point)
        else:
            each = f.loop(0, self.points)
            taps = self._taps(source, each.index)
            at = f.element(target, memory_type(k.target), f.mul(each.index, self.target_stride))
            self._sum(VectorEmitter(f, 1), taps, at, "0")
            f.end(each)
        f.end(unit)

    def _taps(self, source: str, point: str) -> list[tuple[str, str]]:
        """The pointer and the weight of every element that takes part in a point."""
        f, k = self.f, self.k
        first = f.mul(point, k.taps)
        taps = []
        for tap in range(k.taps):
            position = f.add(first, tap)
            index = f.let(f"load i64, ptr {f.element(self.indices, 'i64', position)}, align 8")
            weight = VectorEmitter(f, 1).load(f.element(self.weights, memory_type(k.compute), position), k.compute)
            taps.append((f.element(source, memory_type(k.source), f.mul(index, self.source_stride)), weight))
        return taps

    def _row(self, source: str, target: str, point: str) -> None:
        f = self.f
        e = VectorEmitter(f, self.lanes)
        taps = self._taps(source, point)
        at = f.element(target, memory_type(self.k.target), f.mul(point, self.target_stride))
        whole = f.let(f"and i64 {self.inner}, {-self.lanes}", "i")
        block = f.loop(0, whole, self.lanes)
        self._sum(e, taps, at, block.index)
        f.end(block)
        rest = f.loop(whole, self.inner)
        self._sum(VectorEmitter(f, 1), taps, at, rest.index)
        f.end(rest)

    def _sum(self, e: VectorEmitter, taps: list[tuple[str, str]], target: str, index: str) -> None:
        f, k = self.f, self.k
        kind, zero = e.type(k.compute), constant(k.compute, 0.0, e.lanes)
        total = ""
        for pointer, weight in taps:
            value = e.load(f.element(pointer, memory_type(k.source), index), k.source)
            factor = e.splat(weight, scalar_type(k.compute))
            part = f.let(f"fmul {kind} {convert(e, value, k.source, k.compute)}, {factor}")
            part = e.choose(f.let(f"fcmp oeq {kind} {factor}, {zero}"), zero, part, k.compute)
            total = f.let(f"fadd {kind} {total}, {part}") if total else part
        e.store(f.element(target, memory_type(k.target), index), convert(e, total, k.compute, k.target), k.target)
