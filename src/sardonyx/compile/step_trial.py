"""Kernel steps run alone, on memory of their own, to learn how long they take.

    trial = StepTrial(steps, kernels, size_of)
    trial.run()          nanoseconds of the processor, for this thread

What the steps read and write need not exist yet: every buffer they name gets memory with made-up numbers, unless the caller has
some for it. So do constants: packing weights takes longer than multiplying them a few times.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sardonyx.codegen.library import KernelLibrary
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.program.image import ALIGNMENT
from sardonyx.program.steps import Address, Buffer, KernelStep, Storage

_SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_FEW_UNITS: Final = 16  # fewer are run all: a part of them would not be like the rest


class _Call(NamedTuple):
    function: Any
    table: Array  # its arguments
    units: int  # how many of them are run
    scale: float  # how many times as long all of them take


class StepTrial:
    """Some steps, ready to be run one after the other.

    `size_of` gives a number for every size. A run takes about `longest` nanoseconds by the steps' own estimates, if those are
    right: of longer steps only a part of the units is run, and their time is reckoned from it.
    """

    def __init__(
        self,
        steps: Sequence[KernelStep],
        kernels: KernelLibrary,
        size_of: Callable[[Dim], int],
        *,
        longest: int = 0,
        given: Callable[[Buffer], Array] | None = None,
    ) -> None:
        self._arrays: dict[Buffer, Array] = {}
        self._size_of = size_of
        self._given = given or self._made_up
        self._clock = time.thread_time_ns
        whole = sum(size_of(step.work) for step in steps)
        share = min(longest / max(whole, 1), 1.0) if longest else 1.0
        self._calls = [self._call(step, kernels, share) for step in steps]

    def run(self) -> int:
        """Run all steps once; the nanoseconds that they take on this thread, not counting those of others."""
        total = 0.0
        for function, table, units, scale in self._calls:
            address = table.ctypes.data
            start = self._clock()
            function(address, 0, units, 0)
            total += (self._clock() - start) * scale
        return int(total)

    def touch(self) -> None:
        """Read what steps compute from, constants apart: the step before would have left it in the cache."""
        for buffer, array in self._arrays.items():
            if buffer.storage is not Storage.CONSTANT:
                array.max(initial=0)

    def _call(self, step: KernelStep, kernels: KernelLibrary, share: float) -> _Call:
        size_of = self._size_of
        arguments = [
            self._address(one.buffer) + size_of(one.offset) if isinstance(one, Address) else size_of(one)
            for one in step.arguments
        ]
        units = size_of(step.units)
        run = min(max(int(units * share), _FEW_UNITS), units)
        return _Call(_SIGNATURE(kernels.address(step.kernel)), np.array(arguments, np.int64), run, units / max(run, 1))

    def _address(self, buffer: Buffer) -> int:
        if buffer not in self._arrays:
            self._arrays[buffer] = self._given(buffer)
        return int(self._arrays[buffer].ctypes.data)

    def _made_up(self, buffer: Buffer) -> Array:
        """Memory for a buffer. No zeros among floats: pages of nothing but zeros would be one page, which is always near."""
        dtype, size = buffer.dtype.numpy, self._size_of(buffer.size)
        memory = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        array = memory[start : start + size * dtype.itemsize].view(dtype)
        array.fill(0.5 if dtype.kind == "f" else 0)
        return array


def bytes_of(steps: Sequence[KernelStep], size_of: Callable[[Dim], int]) -> int:
    """The memory of all buffers that some steps name."""
    buffers = {one.buffer for step in steps for one in step.arguments if isinstance(one, Address)}
    return sum(size_of(buffer.size) * buffer.dtype.bits // 8 for buffer in buffers)
