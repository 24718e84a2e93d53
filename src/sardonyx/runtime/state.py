"""State of programs: memory that runs read and write in place, that outlives them and that several programs share.

    states = StateSet()
    states.write("cache", keys)                      optional: a state begins as zeros
    program = StatefulProgram(core)
    program.run([token], states)                     reads and writes the states its image names
    states.array("cache", (12, 64))                  what it holds now

Parameters, optimizer state, saved activations, key/value caches are states. A program's image names them (identity, element type,
size, growth); the memory belongs to the caller's StateSet. Two programs that name the same identity work on the same memory;
one program runs on several StateSets, as one decoder for several texts. Runs on one StateSet follow one another.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.forks import ForkSafeLock
from sardonyx.program.image import ALIGNMENT, numpy_type
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.native_core import Array, NativeCore

_GROWTH: Final = 1.5


class _Memory:
    """The memory of one state: bytes that begin on a cache line, zero where nobody has written."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.bytes: Array = np.empty(0, np.uint8)
        self.address = 0

    def resize(self, size: int) -> None:
        """Change the size; what fits of the content stays."""
        room = np.zeros(size + ALIGNMENT, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        new = room[start : start + size]
        kept = min(size, self.bytes.size)
        new[:kept] = self.bytes[:kept]
        self.bytes, self.address = new, int(new.ctypes.data)


class StateSet:
    """The state buffers that a series of runs shares, by identity."""

    def __init__(self) -> None:
        self._memories: dict[str, _Memory] = {}
        self.lock = ForkSafeLock(reentrant=True)  # held while a program runs on the states

    def fit(self, identity: str, dtype: str, size: int, *, grows: bool) -> int:
        """The address of a state of this type, with room for so many bytes."""
        memory = self._memories.get(identity)
        if memory is None:
            memory = self._memories[identity] = _Memory(dtype)
            memory.resize(size)
        if memory.dtype != dtype:
            raise errors.InvalidArgument(f"state {identity!r} holds {memory.dtype}, the program works on {dtype}")
        if size > memory.bytes.size:
            if not grows:
                found = f"state {identity!r} has {memory.bytes.size} bytes, this run needs {size}"
                raise errors.InvalidArgument(found, hint="declare it to grow, or make it large enough before the first run")
            memory.resize(max(size, int(memory.bytes.size * _GROWTH)))
        return memory.address

    def write(self, identity: str, array: Any) -> None:
        """Give a state a content; it gets as large as that, if it was smaller."""
        from sardonyx.dtypes import from_numpy  # lazy: it brings the types that NumPy lacks, which few programs use

        content = np.ascontiguousarray(array)
        with self.lock:
            self.fit(identity, from_numpy(content.dtype).name, content.nbytes, grows=True)
            self._memories[identity].bytes[: content.nbytes] = content.reshape(-1).view(np.uint8)

    def array(self, identity: str, shape: Sequence[int]) -> Array:
        """What the first elements of a state are, as an array that shares its memory until a run makes it grow."""
        memory = self._memories.get(identity)
        if memory is None:
            raise errors.InvalidArgument(f"there is no state {identity!r}, only {sorted(self._memories)}")
        dtype = numpy_type(memory.dtype)
        size = prod(shape) * dtype.itemsize
        if size > memory.bytes.size:
            raise errors.InvalidArgument(f"state {identity!r} has {memory.bytes.size} bytes, {list(shape)} takes {size}")
        shown: Array = memory.bytes[:size].view(dtype).reshape(shape)
        return shown

    def nbytes(self, identity: str) -> int:
        """How much memory a state has."""
        memory = self._memories.get(identity)
        return 0 if memory is None else memory.bytes.size

    def drop(self, identity: str) -> None:
        """Forget a state; the next run that names it begins with zeros."""
        with self.lock:
            self._memories.pop(identity, None)


class StatefulProgram:
    """A native program with state buffers. All inputs and outputs are native."""

    def __init__(self, core: NativeCore) -> None:
        self._core = core
        # Contexts hold addresses of states: each set has its own, and they end with it.
        self._paths: weakref.WeakKeyDictionary[StateSet, Executable] = weakref.WeakKeyDictionary()

    def run(self, arrays: Sequence[Array], states: StateSet) -> list[Array]:
        """The outputs for arrays in the order of the inputs; the states are read and written in place."""
        given = [np.asarray(array, order="C") for array in arrays]
        with states.lock:
            path = self._paths.get(states)
            if path is None:
                path = self._paths[states] = Executable(self._core)
            path.prepare(given, states)
            return path.run_arrays(given)
