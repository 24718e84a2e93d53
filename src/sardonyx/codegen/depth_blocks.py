"""Long sums of products in blocks of the depth: each block is added up in registers on its own, and then to what memory holds.

A sum of K products in one chain of additions rounds K times, and what it loses grows with the root of K. In blocks it rounds as
often as a block is long and as there are blocks. Memory is touched once a block, so that takes no time that could be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sardonyx.codegen.function import FunctionBuilder

BLOCK: Final = 512  # products of a block

# Sums up a part of the depth: where it begins, how long it is, pointers and the sums so far; pointers and sums afterwards.
Walk: TypeAlias = Callable[[str, str, list[str], list[str]], tuple[list[str], list[str]]]


class DepthBlocks:
    """Sums over a depth, a block at a time; vectors on the stack hold what the blocks before have summed up."""

    def __init__(self, function: FunctionBuilder, kind: str, most: int) -> None:
        """`kind` is the LLVM type of a vector of floats; there are `most` sums at once."""
        self.f, self.kind = function, kind
        self.held = function.let(f"alloca [{most} x {kind}], align 64", "held")

    def sums(self, depth: str, block: str | int, moving: Sequence[str], first: Sequence[str], walk: Walk) -> list[str]:
        """The sums over a depth, `block` of it at a time. `moving` are pointers, `first` what the first block begins with."""
        f = self.f
        carry = [*(("ptr", pointer) for pointer in moving), *((self.kind, value) for value in first)]
        loop = f.loop(0, depth, block, carry)
        part = f.min(f.sub(depth, loop.index), block)
        moved, now = walk(loop.index, part, list(loop.carry[: len(moving)]), list(loop.carry[len(moving) :]))
        hold, following = f.fresh("hold"), f.fresh("block")
        last = f.block
        f.branch_if(f.let(f"icmp slt i64 {f.add(loop.index, block)}, {depth}", "c"), hold, following)
        f.label(hold)
        self._hold(now, f.let(f"icmp eq i64 {loop.index}, 0", "c"))
        held = f.block
        f.branch(following)
        f.label(following)
        now = [f.let(f"phi {self.kind} [ {value}, %{last} ], [ zeroinitializer, %{held} ]", "r") for value in now]
        sums = f.end(loop, [*moved, *now])[len(moving) :]
        join, done, before = f.fresh("join"), f.fresh("done"), f.block
        f.branch_if(f.let(f"icmp sgt i64 {depth}, {block}", "c"), join, done)
        f.label(join)
        joined = self._joined(sums)
        f.branch(done)
        f.label(done)
        return [f.let(f"phi {self.kind} [ {a}, %{before} ], [ {b}, {join} ]", "r") for a, b in zip(sums, joined)]

    def _hold(self, sums: Sequence[str], is_first: str) -> None:
        """Add the sums of a block to what is held."""
        f = self.f
        clear, add = f.fresh("clear"), f.fresh("add")
        f.branch_if(is_first, clear, add)
        f.label(clear)
        self._store(["zeroinitializer"] * len(sums))
        f.branch(add)
        f.label(add)
        self._store(self._joined(sums))

    def _joined(self, sums: Sequence[str]) -> list[str]:
        """What is held and the sums of one more block, added up."""
        f = self.f
        held = [f.let(f"load {self.kind}, ptr {f.element(self.held, self.kind, n)}, align 4") for n in range(len(sums))]
        return [f.let(f"fadd {self.kind} {before}, {value}") for before, value in zip(held, sums)]

    def _store(self, values: Sequence[str]) -> None:
        f = self.f
        for number, value in enumerate(values):
            f.line(f"store {self.kind} {value}, ptr {f.element(self.held, self.kind, number)}, align 4")
