"""The columns of long windows, combined in a row on the stack -> LLVM.

doubled   windows of q blocks of s columns, s being the stride, and r columns more:
  b[i] = columns i s ... i s + s - 1;   p[i] = the first r of them
  b[i] = b[i] and b[i + 1];   b[i] = b[i] and b[i + 2];   ...                 then b[i] has 2, 4, ... blocks
  maximum:   b[i] and b[i + q - 2 ** n] and p[i + q]
  sum:       those of the b that q is the sum of, each added when it is there, and p[i + q]

across    for each window: vectors of its columns, and their lanes
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.pool.pool import PoolKernel

_WRITTEN = 8  # vectors of a window that are combined without a loop


class LongRows:
    """Combines the columns of the windows of a chunk, then gives the result of any vector of neighbours."""

    def __init__(self, kernel: PoolKernel, emitter: VectorEmitter, row: str, width: int, join: Callable[[str, str], str]) -> None:
        """`row` has room for `width` elements. `join` combines two vectors."""
        self.k = kernel
        self.e = emitter
        self.f = f = emitter.f
        self.row = row
        self.join = join
        self.lanes = emitter.lanes
        self.vector, self.element = emitter.type(kernel.type), memory_type(kernel.type)
        self.blocks, self.rest = divmod(kernel.kernel[2], kernel.stride[2])
        self.partial = self.made = ""
        if kernel.way == "across" or self._is_added_up:
            self.made = f.let(f"alloca [{kernel.chunk + self.lanes} x {self.element}], align 64", "made")
        if kernel.way == "doubled" and self.rest:
            self.partial = f.let(f"alloca [{width} x {self.element}], align 64", "partial")

    @property
    def _is_added_up(self) -> bool:
        """Whether sums of several lengths are parts of a result."""
        return self.k.kind != "max" and self.blocks.bit_count() > 1

    def combine(self, count: str) -> None:
        """All windows of a chunk."""
        if self.k.way == "across":
            self._across(count)
            return
        if self.k.stride[2] > 1:
            self._make_blocks(count)
        self._double(count)

    def totals(self, position: str) -> str:
        """The results of a vector of windows."""
        if self.made:
            total = self._load(self.made, position)
        else:
            total = self._load(self.row, position)
            reached = 1 << self.blocks.bit_length() - 1
            if reached < self.blocks:
                total = self.join(total, self._load(self.row, self.f.add(position, (self.blocks - reached) * self.k.dilation[2])))
        if self.partial:
            total = self.join(total, self._load(self.partial, self.f.add(position, self.blocks)))
        return total

    def _load(self, base: str, position: str) -> str:
        return self.e.load(self.f.element(base, self.element, position), self.k.type)

    def _store(self, base: str, position: str, value: str) -> None:
        self.e.store(self.f.element(base, self.element, position), value, self.k.type)

    def _make_blocks(self, count: str) -> None:
        """Each block where it is the number of the block: that is not behind its own columns."""
        f, stride = self.f, self.k.stride[2]
        loop = f.loop(0, f.add(count, self.blocks - 1 + (self.rest > 0)), self.lanes)
        at = f.mul(loop.index, stride)
        total = ""
        for column in range(stride):
            here = f.element(self.row, self.element, f.add(at, column))
            value = self.e.load_strided(here, str(stride), self.k.type)
            total = self.join(total, value) if total else value
            if column + 1 == self.rest:
                self._store(self.partial, loop.index, total)
        self._store(self.row, loop.index, total)
        f.end(loop)

    def _double(self, count: str) -> None:
        """Windows of twice the length, until all or more than half of the blocks are in one."""
        f, step = self.f, self.k.dilation[2]
        length, added = 1, 0
        while True:
            if self._is_added_up and self.blocks & length:
                self._add_up(count, added * step, is_first=not added)
                added += length
            if 2 * length > self.blocks:
                return
            # So many are still read.
            loop = f.loop(0, f.add(count, (self.blocks - 2 * length) * step), self.lanes)
            other = self._load(self.row, f.add(loop.index, length * step))
            self._store(self.row, loop.index, self.join(self._load(self.row, loop.index), other))
            f.end(loop)
            length *= 2

    def _add_up(self, count: str, distance: int, *, is_first: bool) -> None:
        f = self.f
        loop = f.loop(0, count, self.lanes)
        value = self._load(self.row, f.add(loop.index, distance))
        if not is_first:
            value = self.join(self._load(self.made, loop.index), value)
        self._store(self.made, loop.index, value)
        f.end(loop)

    def _across(self, count: str) -> None:
        """One window after the other."""
        f, lanes, columns = self.f, self.lanes, self.k.kernel[2]
        windows = f.loop(0, count)
        first = f.element(self.row, self.element, f.mul(windows.index, self.k.stride[2]))
        whole, left = divmod(columns, lanes)
        total = self._load(first, "0") if whole else ""
        if whole > _WRITTEN:
            loop = f.loop(lanes, whole * lanes, lanes, [(self.vector, total)])
            (total,) = f.end(loop, [self.join(loop.carry[0], self._load(first, loop.index))])
        else:
            for number in range(1, whole):
                total = self.join(total, self._load(first, str(number * lanes)))
        if left:
            total = self._with_rest(total, first, whole * lanes, left)
        self._store_one(windows.index, self._over_lanes(total))
        f.end(windows)

    def _with_rest(self, total: str, first: str, at: int, left: int) -> str:
        """The columns behind the last whole vector."""
        if total and self.k.kind == "max":  # what counted before may count again
            return self.join(total, self._load(first, str(at + left - self.lanes)))
        mask = "<" + ", ".join(f"i1 {str(lane < left).lower()}" for lane in range(self.lanes)) + ">"
        nothing = constant(self.k.type, 0, self.lanes) if self.k.kind != "max" else self._first_in_all(first)
        value = self.e.choose(mask, self._load(first, str(at)), nothing, self.k.type)
        return self.join(total, value) if total else value

    def _first_in_all(self, first: str) -> str:
        return self.e.load_scalar(first, self.k.type)

    def _over_lanes(self, total: str) -> str:
        """All lanes combined in the first one."""
        half = self.lanes // 2
        while half:
            order = ", ".join(f"i32 {lane + half}" if lane < half else "i32 poison" for lane in range(self.lanes))
            moved = self.f.let(f"shufflevector {self.vector} {total}, {self.vector} poison, <{self.lanes} x i32> <{order}>")
            total = self.join(total, moved)
            half //= 2
        return self.f.let(f"extractelement {self.vector} {total}, i32 0")

    def _store_one(self, position: str, value: str) -> None:
        at = self.f.element(self.made, self.element, position)
        self.f.line(f"store {self.element} {value}, ptr {at}, align {max(BITS[self.k.type] // 8, 1)}")
