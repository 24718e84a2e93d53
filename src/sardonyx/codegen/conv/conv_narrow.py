"""Convolution to a few output channels -> LLVM: lanes are input channels, added up at the end.

for tile of pixels in the row:
  for block of input channels, kernel plane and row inside the image:
    for input column of the tile:                      loaded once
      for pixel and tap that meet there, output:       acc[output][pixel] += w[tap][output] * column
  result[pixel] = bias + (sum of the lanes of acc[0][pixel], of acc[1][pixel], ...)
  epilogue(result)
"""

from __future__ import annotations

from sardonyx.codegen.conv.conv_window import Inside, RowEmitter, UnitPosition
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.conv.window import NarrowKernel
from sardonyx.target.target import Target


def emit_narrow(kernel: NarrowKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a convolution to few channels."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _NarrowEmitter(kernel, function, target).emit()
    return function


class _NarrowEmitter(RowEmitter[NarrowKernel]):
    def _tile(self, pixels: int, position: UnitPosition, column: str, within: Inside | None, count: str | None) -> None:
        f, a, k = self.f, self.a, self.k
        sums = ["zeroinitializer"] * (k.outputs * pixels)
        sums = self._blocks(pixels, position, column, within, "0", a["blocks"], sums, None)
        if k.tail:
            # The lanes past the last channel may hold anything, infinities too: they must not be multiplied at all.
            mask = f"<{', '.join(f'i1 {int(lane < k.tail)}' for lane in range(k.block))}>"
            sums = self._blocks(pixels, position, column, within, a["blocks"], f.add(a["blocks"], 1), sums, mask)
        bias = self.e.load(a["bias"], "f32")
        results = []
        for p in range(pixels):
            result = "zeroinitializer"
            for output in range(k.outputs):
                total = self._total(sums[output * pixels + p])
                result = f.let(f"insertelement {self.vector} {result}, float {total}, i32 {output}")
            results.append(f.let(f"fadd {self.vector} {result}, {bias}"))
        self._store(results, position, column, count)

    def _total(self, lanes: str) -> str:
        """The sum of all lanes."""
        f, name = self.f, f"llvm.vector.reduce.fadd.v{self.k.block}f32"
        f.declarations.add(f"declare float @{name}(float, {self.vector})")
        return f.let(f"call reassoc float @{name}(float -0.0, {self.vector} {lanes})")

    def _blocks(
        self,
        pixels: int,
        position: UnitPosition,
        column: str,
        within: Inside | None,
        begin: str,
        end: str,
        sums: list[str],
        mask: str | None,
    ) -> list[str]:
        """The sums after some blocks of input channels."""
        f, a, k = self.f, self.a, self.k
        first = f.sub(f.mul(column, k.stride), a["left"])
        block = f.loop(begin, end, carry=[(self.vector, value) for value in sums])
        image = f.element(position.source, "float", f.mul(block.index, a["x_block"]))
        deep = f.loop(*position.planes, carry=[(self.vector, value) for value in block.carry])
        at = f.mul(f.add(position.first_plane, f.mul(deep.index, a["plane_dilation"])), a["x_plane"])
        plane = f.element(image, "float", at)
        high = f.loop(*position.rows, carry=[(self.vector, value) for value in deep.carry])
        at = f.mul(f.add(position.first_row, f.mul(high.index, k.row_dilation)), a["x_row"])
        base = f.element(f.element(plane, "float", at), "float", f.mul(first, k.block))
        number = f.add(f.mul(f.add(f.mul(block.index, a["kernel_planes"]), deep.index), a["kernel_rows"]), high.index)
        weights = f.element(a["w"], "float", f.mul(number, k.taps * k.outputs * k.block))
        w = [self.e.load(f.element(weights, "float", each * k.block), "f32") for each in range(k.taps * k.outputs)]
        values = list(high.carry)
        for offset, meeting in self._meetings(pixels, k.taps, within).items():
            pointer = f.element(base, "float", offset * k.block)
            if within is None:
                valid = f.let(f"icmp ult i64 {f.add(first, offset)}, {a['width']}", "c")
                pointer = f.let(f"select i1 {valid}, ptr {pointer}, ptr {a['zeros']}", "p")
            x = self.e.load(pointer, "f32", mask)
            for p, tap in meeting:
                for output in range(k.outputs):
                    at_sum = output * pixels + p
                    values[at_sum] = f.call(
                        self.vector, f"llvm.fmuladd.v{k.block}f32", (self.vector, x), (self.vector, w[tap * k.outputs + output]),
                        (self.vector, values[at_sum]),
                    )  # fmt: skip
        return f.end(block, f.end(deep, f.end(high, values)))
