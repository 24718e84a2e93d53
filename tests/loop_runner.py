"""Compiles a loop kernel and runs it on NumPy arrays: no graph, no plan, no pool."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sardonyx.codegen.host import host
from sardonyx.codegen.library import KernelLibrary
from sardonyx.kernel.expr import Expr, load
from sardonyx.kernel.loops import LoopKernel, Operand, units
from sardonyx.target.target import Target

Array = NDArray[Any]

NUMPY = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}  # fmt: skip

_call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@cache
def kernels(target: Target | None = None) -> KernelLibrary:
    """Kernels compiled for this machine, or for less than it can do, outside any cache on disk."""
    return KernelLibrary(target or host(), None)


def prepare(
    kernel: LoopKernel, sizes: Sequence[int], arrays: Sequence[Array], target: Target | None = None
) -> tuple[Callable[..., Any], Array, int]:
    """The function of a kernel, its argument array for operands that lie as NumPy says, and the number of units."""
    arguments: list[int] = list(sizes)
    for array in arrays:
        assert array.ndim == len(sizes)
        steps = [
            0 if size == 1 and full != 1 else step // array.itemsize
            for size, full, step in zip(array.shape, sizes, array.strides)
        ]
        arguments += [array.ctypes.data, *steps]
    library = kernels(target)
    count = units(kernel, sizes, library.target)
    assert isinstance(count, int)
    return _call(library.address(kernel)), np.array(arguments, np.int64), count


def run(kernel: LoopKernel, sizes: Sequence[int], arrays: Sequence[Array], pieces: int = 1, target: Target | None = None) -> None:
    """Run a kernel over its whole iteration space, in some pieces."""
    function, arguments, count = prepare(kernel, sizes, arrays, target)
    bounds = [count * piece // pieces for piece in range(pieces + 1)]
    for begin, end in pairwise(bounds):
        function(arguments.ctypes.data, begin, end, 0)


def evaluate(
    function: Callable[..., Expr], *arrays: Array, types: Sequence[str], out: str, target: Target | None = None
) -> Array:
    """An expression of one-dimensional arrays of the given types."""
    value = function(*(load(number, kind) for number, kind in enumerate(types))).cast(out)
    kernel = LoopKernel(axes=1, operands=tuple(Operand(kind, "unit") for kind in (*types, out)), stores=((len(types), value),))
    result = np.empty(arrays[0].shape, NUMPY[out])
    run(kernel, [arrays[0].size], [*arrays, result], target=target)
    return result
