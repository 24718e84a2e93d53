"""A native program as plain numbers: all that running it takes, without the objects of the compiler.

Graph, views and expressions of sizes are gone: a size is the number of a result of one table of operations (`sizes`), which
computes all of them from the values of the symbols. That makes a program quick to save, to read and to start: this module and
those that run an image import nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.program.sizes import SizeTable

Array = np.ndarray[Any, Any]

# Nanoseconds of work for each of two workers from which on a step is reason enough to wake the pool for a program. Once others
# are awake, handing over a step costs them 200 ns: it is shared as soon as it is worth that. What one did alone would lie in its
# cache, where others find it again only slowly.
PARALLEL_FROM: Final = 20_000
SHARED_FROM: Final = 1_500
LONG_FROM: Final = 100_000_000  # of all steps, from which on a run comes back to Python now and then
SHORT_FROM: Final = 12_000  # of all steps that are worth sharing, from which on workers that are awake anyway are asked
ALIGNMENT: Final = 64  # of buffers: a cache line, and the widest vector

TABLES: Final = {  # name -> columns
    "steps": 3,  # arguments' slot, unit count's slot, length of the stretch that it ends (see `steps.KernelStep`)
    "dim_slots": 2,  # table slot, dim
    "work_slots": 2,  # slot of the worker count, dim that estimates the work
    "address_slots": 3,  # table slot, buffer, dim that gives the offset in bytes
    "arena": 5,  # buffer, dim that gives its bytes, first and last step that touch it, buffer whose memory it takes over (or -1)
    "worker": 1,  # buffers of the arena of which every worker has one; their bytes are those of one
    "state": 3,  # buffer, dim that gives its bytes, whether it grows (see `steps.Growth`); `states` says what each holds
    "late": 1,  # buffers of the arena whose sizes host steps tell
    "fault_buffers": 1,
    "checks": 2,  # dim that must be 1 or equal to the other dim
    "equalities": 2,  # dims that must be equal
    # dims that estimate nanoseconds: what steps take beyond their work, what they would save in a program for just these sizes
    "savings": 2,
    "shared": 2,  # buffers of an input and of an output that may be the same memory (see `lower.attention.cache`)
    "bindings": 3,  # symbol, the input and the axis its value is read from
}
_NUMPY: Final = {  # element types that NumPy has, by short name
    "f32": "f4", "f64": "f8", "f16": "f2", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2",
    "u32": "u4", "u64": "u8", "bool": "?", "c64": "c8", "c128": "c16",
}  # fmt: skip


def numpy_type(name: str) -> np.dtype[Any]:
    """The array type of an element type's short name."""
    plain = _NUMPY.get(name)
    if plain is not None:
        return np.dtype(plain)
    from sardonyx import dtypes  # lazy: it brings the types that NumPy lacks, which few programs use

    return dtypes.from_name(name).numpy


class ImagePort:
    """An input or output: `dims` has the number of the dim of each axis."""

    __slots__ = ("buffer", "dims", "dtype", "name")

    def __init__(self, name: str, dtype: str, dims: Sequence[int], buffer: int) -> None:
        self.name = name
        self.dtype = dtype
        self.dims = tuple(dims)
        self.buffer = buffer

    @property
    def numpy_type(self) -> np.dtype[Any]:
        """The type of its arrays."""
        return numpy_type(self.dtype)


class ProgramImage:
    """The numbers of a program. Tables are integer arrays with the columns stated in `TABLES`."""

    steps: Array
    dim_slots: Array
    work_slots: Array
    address_slots: Array
    arena: Array
    worker: Array
    state: Array
    late: Array
    fault_buffers: Array
    checks: Array
    equalities: Array
    savings: Array
    shared: Array
    bindings: Array

    def __init__(
        self,
        tables: dict[str, Any],
        symbols: Sequence[str],
        inputs: Sequence[ImagePort],
        outputs: Sequence[ImagePort],
        faults: Sequence[tuple[str, str]],
        dim_texts: dict[int, str],
        counts: tuple[int, int, int],
        sizes: SizeTable,
        states: Sequence[tuple[str, str]] = (),
    ) -> None:
        for name, columns in TABLES.items():
            setattr(self, name, np.asarray(tables[name], np.int64).reshape(-1, columns))
        self.symbols = tuple(symbols)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.faults = tuple(faults)  # (node, text) of fault code n, counted from 1, at n - 1
        self.dim_texts = dim_texts  # how messages call the dims that are checked
        self.counts = counts
        self.table_size, self.buffer_count, self.fault_entries = counts
        self.states = tuple(states)  # (identity, element type) for each row of `state`
        self.sizes = sizes  # the symbols' values -> the values of all dims
