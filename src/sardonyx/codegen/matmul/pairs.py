"""Products of bfloat16 -> LLVM: the tiles of `codegen.matmul.matmul` over pairs, two products in a lane of float32."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.matmul import MatMulEmitter, TileLoop
from sardonyx.kernel.matmul.pairs import PairMatMulKernel
from sardonyx.target.target import Target


def emit_pair_matmul_kernel(kernel: PairMatMulKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a product of pairs."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _PairMatMulEmitter(kernel, function, target).emit()
    return function


class _PairMatMulEmitter(MatMulEmitter):
    def __init__(self, kernel: PairMatMulKernel, function: FunctionBuilder, target: Target) -> None:
        self.ragged = kernel.ragged
        super().__init__(kernel, function, target)
        self.pairs = function.let(f"lshr i64 {self.depth}, 1", "i")
        self.rest = function.let(f"and i64 {self.depth}, 1", "i")

    def take_a(self, a: Loaded) -> None:
        super().take_a(a)
        self.a_type = "bf16"

    def accumulate(self, tile: TileLoop, moving: list[str], sums: list[str]) -> list[str]:
        moving, sums = self.walk(tile, self.pairs, moving, sums)
        if not self.ragged:
            return sums
        # A loop of one turn, or of none, over the last number of an odd depth.
        f, kind, size, vectors = self.f, self.e.type("f32"), tile.size, self.k.vectors
        last = f.loop(0, self.rest, 1, [(kind, value) for value in sums[:size]])
        weights = [self.load_b(f.element(moving[0], "i32", number * self.lanes), None) for number in range(vectors)]
        now: list[str] = []
        for row, (pointer, offset) in enumerate(tile.offsets):
            one = f.let(f"load i16, ptr {f.element(moving[1 + pointer], 'i8', offset)}, align 2")
            value = (self.e.splat(f.let(f"zext i16 {one} to i32"), "i32"),)
            now += [self.multiply(value, weight, last.carry[row * vectors + number]) for number, weight in enumerate(weights)]
        return [*f.end(last, now), *sums[size:]]

    def load_a(self, at: str) -> tuple[str, ...]:
        return (self.e.splat(self.f.let(f"load i32, ptr {at}, align 2"), "i32"),)

    def load_b(self, at: str, mask: str | None) -> tuple[str, ...]:
        return (self.e.load(at, "i32", mask),)

    def multiply(self, a: tuple[str, ...], b: tuple[str, ...], total: str) -> str:
        f, kind, pairs = self.f, self.e.type("f32"), f"<{2 * self.lanes} x bfloat>"
        operands = [(pairs, f.let(f"bitcast {self.e.type('i32')} {each[0]} to {pairs}")) for each in (a, b)]
        return f.call(kind, f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}", (kind, total), *operands)
