"""Parts that all kernels over blocked activations share: counting units, operands of epilogues, storing tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sardonyx.codegen.arguments import MemRef
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.kernel.epilogue import Epilogue

_WRITTEN_OUT: Final = 8  # steps of a run of products, or fewer, are straight code: a loop of few iterations mispredicts its end
_STEPS: Final = 2  # of a longer run that are written out
STEPS_OF_FEW: Final = 4  # if there are fewer sums than these, or several for each result: they go round in as many
_ENOUGH_SUMS: Final = 8
HEAVY_TILE = 400  # operations of a tile's epilogue from which on it is a loop over the tile instead of straight code


class Operands:
    """The operands of an epilogue over a blocked result: their addresses at any position of it."""

    def __init__(self, epilogue: Epilogue, function: FunctionBuilder, operands: Sequence[MemRef], dense: int | None) -> None:
        """`operands` are the loaded arguments; `dense` is how far stored pixels are apart, if that is known."""
        self.f = function
        self.types = [memory_type(operand.type) for operand in epilogue.operands]
        self.bases = [operand.base for operand in operands]
        self.strides = [list(operand.strides) for operand in operands]
        if dense is not None:
            for number, _ in epilogue.stores:
                self.strides[number][-1] = str(dense)

    @property
    def columns(self) -> list[str]:
        """How they move from pixel to pixel."""
        return [strides[-1] for strides in self.strides]

    def at(self, *indices: str) -> list[str]:
        """Their addresses at an image, block, plane, row and column."""
        found = []
        for base, kind, strides in zip(self.bases, self.types, self.strides):
            offset = "0"
            for index, stride in zip(indices, strides):
                offset = self.f.add(offset, self.f.mul(index, stride))
            found.append(self.f.element(base, kind, offset))
        return found


class TileStore:
    """Runs an epilogue on a tile of vectors: straight code, or for long epilogues a loop over a copy of the tile on the stack."""

    def __init__(self, emitter: EpilogueEmitter, function: FunctionBuilder, vectors: int, pixels: int) -> None:
        self.emitter = emitter
        self.f = function
        self.lanes = emitter.e.lanes
        self.heavy = emitter.epilogue.operations * vectors * pixels > HEAVY_TILE
        self._stack = function.let(f"alloca [{vectors * pixels} x <{self.lanes} x float>], align 64") if self.heavy else ""

    def store(
        self,
        tile: Sequence[Sequence[str]],
        pointers: Callable[[int], list[str]],
        steps: list[str],
        count: str | None,
        total: str = "",
    ) -> None:
        """`tile[v][p]` are the sums; `pointers(v)` the operands at pixel 0 of block v; `steps` how they move from pixel to pixel.

        With `count`, only the first pixels exist. With `total`, the only result of all pixels is added to the vector there.
        """
        if self.heavy:
            self._loop(tile, pointers, steps, count, total)
            return
        f = self.f
        pixels = len(tile[0])
        stored: list[str] = []
        bases = [pointers(v) for v in range(len(tile))]
        for p in range(pixels):
            after = ""
            if count is not None and p:
                inside, after = f.fresh("inside"), f.fresh("after")
                f.branch_if(f.let(f"icmp sgt i64 {count}, {p}", "c"), inside, after)
                f.label(inside)
            made = [self._vector(row[p], bases[v], steps, p)[0] for v, row in enumerate(tile)]
            if total and count is None:
                stored += made
            elif total:
                self._add(total, made)
            if after:
                f.branch(after)
                f.label(after)
        if stored:
            self._add(total, stored)

    def _add(self, total: str, values: list[str]) -> None:
        """Add vectors to the one at an address, in pairs."""
        f, kind = self.f, f"<{self.lanes} x float>"
        while len(values) > 1:
            odd = values[len(values) // 2 * 2 :]
            values = [f.let(f"fadd {kind} {left}, {right}") for left, right in zip(values[::2], values[1::2])] + odd
        before = f.let(f"load {kind}, ptr {total}, align 4")
        f.line(f"store {kind} {f.let(f'fadd {kind} {before}, {values[0]}')}, ptr {total}, align 4")

    def _vector(self, sums: str, bases: list[str], steps: list[str], pixel: str | int) -> list[str]:
        f = self.f
        operands = self.emitter.epilogue.operands
        at = [
            f.element(base, memory_type(operand.type), f.mul(pixel, step)) for base, operand, step in zip(bases, operands, steps)
        ]
        return self.emitter.vector(sums, "f32", at, ["1"] * len(operands), 0)

    def _loop(
        self,
        tile: Sequence[Sequence[str]],
        pointers: Callable[[int], list[str]],
        steps: list[str],
        count: str | None,
        total: str,
    ) -> None:
        f, pixels = self.f, len(tile[0])
        kind = f"<{self.lanes} x float>"
        for v, row in enumerate(tile):
            for p, value in enumerate(row):
                f.line(f"store {kind} {value}, ptr {f.element(self._stack, kind, v * pixels + p)}, align 64")
        for v in range(len(tile)):
            bases = pointers(v)
            loop = f.loop(0, count if count is not None else pixels)
            at = f.element(self._stack, kind, f.add(loop.index, v * pixels))
            made = self._vector(f.let(f"load {kind}, ptr {at}, align 64"), bases, steps, loop.index)
            if total:
                self._add(total, made)
            f.end(loop)


class Counter:
    """A loop over units that keeps the index on every axis, so that only the first unit needs divisions.

    Axes are given innermost first.
    """

    def __init__(self, function: FunctionBuilder, sizes: Sequence[str]) -> None:
        self.f = function
        self.sizes = list(sizes)
        indices = []
        rest = "%begin"
        for size in self.sizes:
            indices.append(function.let(f"urem i64 {rest}, {size}", "i"))
            rest = function.let(f"udiv i64 {rest}, {size}", "i")
        self._loop = function.loop("%begin", "%end", carry=[("i64", index) for index in (*indices, rest)])
        self.index = self._loop.index  # of the unit
        self.indices = self._loop.carry  # one more than there are sizes: the outermost axis

    def end(self) -> None:
        """Go on with the next unit."""
        f, following, carry = self.f, [], "true"
        for index, size in zip(self.indices, self.sizes):
            more = f.let(f"zext i1 {carry} to i64", "i")
            next_index = f.add(index, more)
            carry = f.let(f"icmp eq i64 {next_index}, {size}", "c")
            following.append(f.let(f"select i1 {carry}, i64 0, i64 {next_index}", "i"))
        following.append(f.add(self.indices[-1], f.let(f"zext i1 {carry} to i64", "i")))
        f.end(self._loop, following)


def in_steps(
    f: FunctionBuilder,
    count: int,
    vector: str,
    sums: list[str],
    moving: Sequence[tuple[str, int]],
    step_of: Callable[[int, list[str], list[str], str], None],
    chains: int = 1,
) -> list[str]:
    """The sums after `count` steps: straight code, or if there are many a loop of some that are written out.

    `moving` are addresses of floats and how far they move in a step. `step_of(step, sums, addresses, first)` writes one step and
    changes the sums; addresses are those of step 0, which has the number `first` in all. They move along with the loop: an index
    beside them would make two operations of a product that reads memory. Steps take turns with `chains` sums of each result.
    """
    written = _STEPS if chains == 1 and len(sums) >= _ENOUGH_SUMS else STEPS_OF_FEW
    addresses = [address for address, _ in moving]
    values = list(sums)
    if count % written or count <= _WRITTEN_OUT:
        for step in range(count):
            step_of(step, values, addresses, "0")
        return values
    loop = f.loop(0, count, written, carry=[*((vector, value) for value in sums), *(("ptr", address) for address in addresses)])
    values, addresses = list(loop.carry[: len(sums)]), list(loop.carry[len(sums) :])
    for step in range(written):
        step_of(step, values, addresses, loop.index)
    following = [f.element(address, "float", written * far) for address, (_, far) in zip(addresses, moving)]
    return f.end(loop, [*values, *following])[: len(sums)]


def maximum(f: FunctionBuilder, a: str, b: str | int) -> str:
    """The larger of two integers."""
    more = f.let(f"icmp sgt i64 {a}, {b}", "c")
    return f.let(f"select i1 {more}, i64 {a}, i64 {b}", "i")


def inside(f: FunctionBuilder, first: str, dilation: str, size: str, count: str | int) -> tuple[str, str]:
    """Which of `count` positions first, first + dilation, ... lie in 0 .. size: from one number up to another."""
    less = f.sub(dilation, "1")
    low = maximum(f, f.let(f"sdiv i64 {f.sub(less, first)}, {dilation}", "i"), 0)
    high = f.min(f.let(f"sdiv i64 {f.add(f.sub(size, first), less)}, {dilation}", "i"), count)
    return low, maximum(f, high, low)
