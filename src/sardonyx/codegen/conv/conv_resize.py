"""Resizing -> LLVM: rows of pixels that are looked up, or blended of four."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, Operands, TileStore
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.sampling.resize import ResizeKernel
from sardonyx.target.target import Target

_PIXELS = 4  # worked on at once


def emit_resize(kernel: ResizeKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a resizing kernel. A unit is a row of the result."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _ResizeEmitter(kernel, function, target).emit()
    return function


class _ResizeEmitter:
    def __init__(self, kernel: ResizeKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.e = VectorEmitter(f, kernel.block)
        self.vector = f"<{kernel.block} x float>"
        self.a = Loaded(f, kernel.arguments)
        self.operands = Operands(kernel.epilogue, f, self.a.tensors("operands"), None)
        self.tiles = TileStore(EpilogueEmitter(kernel.epilogue, f, kernel.block, target), f, 1, _PIXELS)

    def emit(self) -> None:
        f, a = self.f, self.a
        units = Counter(f, [a["rows"], a["blocks"]])
        row, block, image = units.indices
        source = f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(block, a["x_block"])))
        lines = [
            f.element(source, "float", f.mul(index, a["x_row"]))
            for index in self._source_indices("row_indices", row, self._factor(0))
        ]
        shares = self._shares("row_shares", row)
        whole = f.mul(f.let(f"sdiv i64 {a['columns']}, {_PIXELS}", "i"), _PIXELS)
        for begin, end, pixels in (("0", whole, _PIXELS), (whole, a["columns"], 1)):
            loop = f.loop(begin, end, pixels)
            tile = [self._pixel(lines, shares, f.add(loop.index, p)) for p in range(pixels)]

            def pointers(v: int, column: str = loop.index) -> list[str]:
                return self.operands.at(image, block, "0", row, column)

            self.tiles.store([tile], pointers, self.operands.columns, None)
            f.end(loop)
        units.end()

    def _factor(self, axis: int) -> int:
        return self.k.factors[axis] if self.k.factors is not None else 0

    def _source_indices(self, table: str, index: str, factor: int) -> list[str]:
        """The input rows or columns an output row or column is made of."""
        f = self.f
        if self.k.factors is not None:
            return [f.let(f"udiv i64 {index}, {factor}", "i")]
        count = 2 if self.k.blend else 1
        base = f.element(self.a[table], "i64", f.mul(index, count))
        return [f.let(f"load i64, ptr {f.element(base, 'i64', number)}, align 8", "i") for number in range(count)]

    def _shares(self, table: str, index: str) -> list[str]:
        """What part each of them has."""
        f = self.f
        if not self.k.blend:
            return []
        base = f.element(self.a[table], "float", f.mul(index, 2))
        return [f.let(f"load float, ptr {f.element(base, 'float', number)}, align 4") for number in range(2)]

    def _pixel(self, lines: list[str], shares: list[str], column: str) -> str:
        f, k = self.f, self.k
        indices = self._source_indices("column_indices", column, self._factor(1))
        columns = self._shares("column_shares", column)
        blended = []
        for line in lines:
            taken = [self.e.load(f.element(line, "float", f.mul(index, k.block)), "f32") for index in indices]
            blended.append(self._blend(taken, columns) if k.blend else taken[0])
        return self._blend(blended, shares) if k.blend else blended[0]

    def _blend(self, values: list[str], shares: list[str]) -> str:
        f = self.f
        parts = []
        for value, share in zip(values, shares):
            part = f.let(f"fmul {self.vector} {value}, {self.e.splat(share, 'float')}")
            # What has no part in the result must not turn it into NaN.
            none = f.let(f"fcmp oeq float {share}, 0.0", "c")
            parts.append(f.let(f"select i1 {none}, {self.vector} zeroinitializer, {self.vector} {part}"))
        return f.let(f"fadd {self.vector} {parts[0]}, {parts[1]}")
