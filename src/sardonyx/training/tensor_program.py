"""Kernel calls on tensors that are given by address, run as one program on the pool.

    program = TensorProgram([TensorCall(kernel, (size,), addresses), ...], workers)
    program.bind(call, operand, address)       a tensor has moved, as gradients do from step to step
    program.run()                              one native call: every worker does its part of every tensor

Nothing is planned and no memory is owned: whoever makes the calls keeps the tensors alive, and knows that calls between two
barriers (`TensorCall.joins`) do not read what another one of them writes. So workers need not wait for each other between the
tensors of a long list, and small ones cost a few nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sardonyx.codegen.blocks import BARRIER, STEP_ENTRIES
from sardonyx.compile.assemble import library
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.loops import LoopKernel, units
from sardonyx.options import environment
from sardonyx.program.image import PARALLEL_FROM
from sardonyx.records import dataclass
from sardonyx.runtime.pool import Pool, shared_pool
from sardonyx.target import cost

_UNITS, _WORTH = 0, 1  # what stands in front of a call's arguments: its units, and how many workers it is worth
_HEAD: Final = 2


@dataclass(frozen=True, slots=True)
class TensorCall:
    """A loop kernel over tensors without gaps: sizes of its axes, and the address of every operand.

    Strides follow from what is known of an operand's vector axis; on the axis before, operands that stay in place on the vector
    axis advance by one element and others by `row` elements.
    """

    kernel: LoopKernel
    sizes: tuple[int, ...]
    addresses: tuple[int, ...]
    joins: bool = False  # all workers meet behind it

    def arguments(self) -> list[int]:
        """The entries of the kernel's argument array."""
        entries = list(self.sizes)
        for operand, address in zip(self.kernel.operands, self.addresses, strict=True):
            inner = int(operand.inner == "unit")
            outer = [self.sizes[-1] if inner else 1] * (self.kernel.axes - 1)
            entries += [address, *outer, inner]
        return entries


def _work(call: TensorCall) -> int:
    """About how long it takes on one worker, in nanoseconds."""
    elements = int(np.prod(call.sizes, dtype=np.int64))
    moved = sum(BITS[operand.type] // 8 for operand in call.kernel.operands if operand.inner == "unit")
    work = cost.loop(elements, len(call.kernel.nodes), moved)
    assert isinstance(work, int)
    return work


class TensorProgram:
    """Calls that were made ready to run again and again."""

    def __init__(self, calls: Sequence[TensorCall], workers: int = 0) -> None:
        folder = environment().cache_folder
        kernels = library(folder)
        self.pool: Pool = shared_pool(kernels.driver, workers, True, kernels.target.runtime)
        kernels.prepare({call.kernel.key: call.kernel for call in calls}.values(), self.pool.workers)
        table: list[int] = []
        steps: list[tuple[int, int, int, int]] = []
        self._operands: list[int] = []  # where the first operand of each call stands in the table
        for number, call in enumerate(calls):
            count = units(call.kernel, call.sizes, kernels.target)
            assert isinstance(count, int)
            joins = call.joins or number == len(calls) - 1
            head = len(table)
            steps.append((kernels.address(call.kernel), head + _HEAD, head, BARRIER if joins else 0))
            self._operands.append(head + _HEAD + call.kernel.axes)
            # Calls that do not meet are divided together: that costs nothing for each of them.
            table += [count, max(count, 1), *call.arguments()]
        self._entries = [call.kernel.axes + 1 for call in calls]
        self.table = np.array(table or [0], np.int64)
        self._steps = np.array(steps or [(0,) * STEP_ENTRIES], np.int64)
        self._count = len(steps)
        self._alone = sum(map(_work, calls)) < 2 * PARALLEL_FROM

    def slot(self, call: int, operand: int) -> int:
        """Where the address of an operand stands in `table`."""
        return self._operands[call] + operand * self._entries[call]

    def run(self) -> None:
        """Run all calls."""
        run = self.pool.run_alone if self._alone else self.pool.run
        run(self._steps.ctypes.data, self._count, self.table.ctypes.data)
