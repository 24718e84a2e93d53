"""Runs the steps of a lowered graph one by one, on a machine of whatever kind: no plan, no pool."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from guarded import GuardedPages
from sardonyx.codegen.library import KernelLibrary
from sardonyx.ir.dims import evaluate
from sardonyx.ir.tensor import Array
from sardonyx.program.steps import Address, Buffer, KernelStep, Lowered, Storage
from sardonyx.runtime.weight_store import WeightStore

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Machine(Protocol):
    """Memory, and kernels that work on it."""

    def put(self, array: Array) -> int:
        """The address of a copy; behind its end is nothing that may be touched."""

    def get(self, address: int, like: Array) -> Array:
        """What lies at an address now, as an array of this type and shape."""

    def call(self, kernel: Any, arguments: Sequence[int], begin: int, end: int) -> None:
        """Run a part of a kernel."""


class GuardedMachine:
    """This machine, each array in memory of its own that ends at an inaccessible page."""

    def __init__(self, kernels: KernelLibrary) -> None:
        self._kernels = kernels
        self._held: dict[int, tuple[GuardedPages, Array]] = {}

    def put(self, array: Array) -> int:
        memory = GuardedPages(array.nbytes)
        held = memory.array(array.shape, array.dtype)
        held[...] = array
        address = int(held.ctypes.data)
        self._held[address] = memory, held
        return address

    def get(self, address: int, like: Array) -> Array:
        return self._held[address][1].reshape(like.shape).copy()

    def call(self, kernel: Any, arguments: Sequence[int], begin: int, end: int) -> None:
        table = np.array(arguments, np.int64)
        _SIGNATURE(self._kernels.address(kernel))(table.ctypes.data, begin, end, 0)


def run_steps(lowered: Lowered, feeds: Mapping[str, Array], machine: Machine) -> list[Array]:
    """The outputs of a program that is made of kernels only. Every step is done in two parts."""
    known: dict[str, int] = {}
    for view in lowered.inputs:
        assert view.buffer.value is not None
        for dim, size in zip(view.shape, feeds[view.buffer.value.name].shape):
            if not isinstance(dim, int):
                known[str(dim)] = size
    places: dict[Buffer, tuple[int, Array]] = {}

    def place(buffer: Buffer) -> tuple[int, Array]:
        if buffer not in places:
            array = np.zeros(evaluate(buffer.size, known), buffer.dtype.numpy)
            if buffer.storage is Storage.INPUT:
                assert buffer.value is not None
                array[...] = feeds[buffer.value.name].reshape(-1)
            elif buffer.constant is not None:
                array[...] = WeightStore().array(buffer.constant).reshape(-1)
            elif array.dtype.kind == "f":
                array[...] = np.nan  # what nobody wrote must not matter
            places[buffer] = machine.put(array), array
        return places[buffer]

    for step in lowered.steps:
        assert isinstance(step, KernelStep), f"{step} is not native"
        arguments = [
            place(value.buffer)[0] + evaluate(value.offset, known) if isinstance(value, Address) else evaluate(value, known)
            for value in step.arguments
        ]
        units = evaluate(step.units, known)
        for begin, end in ((0, units // 2), (units // 2, units)):
            if begin < end:
                machine.call(step.kernel, arguments, begin, end)
    results = []
    for view in lowered.outputs:
        content = machine.get(*place(view.buffer))
        shape = tuple(evaluate(dim, known) for dim in view.shape)
        strides = [evaluate(stride, known) * content.itemsize for stride in view.strides]
        offset = evaluate(view.offset, known)
        results.append(np.lib.stride_tricks.as_strided(content[offset:], shape, strides).copy())
    return results
