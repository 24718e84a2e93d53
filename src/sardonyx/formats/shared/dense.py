"""Constants of a model as readers make them: sizes are checked, so that a tensor never claims data it does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.tensor import Tensor

MAX_RANK: Final = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32  # NumPy's limit
_MAX_EXTENT: Final = (1 << 63) - 1


class Unfit(Exception):
    """Why something in a file is no tensor."""


def raw_tensor(dtype: DType, dims: Sequence[int], raw: memoryview, name: str) -> Tensor:
    """A tensor whose packed bytes are these; Unfit if they are not as many as its shape says."""
    need = dtype.nbytes(prod(dims))
    if len(raw) != need:
        raise Unfit(f"{type_text(dtype, dims)} needs {need} bytes, raw_data has {len(raw)}")
    return Tensor(dtype, dims, loader_of(dtype, lambda: raw), name=name)


def string_tensor(dims: Sequence[int], strings: Sequence[str], name: str) -> Tensor:
    """A tensor of strings; Unfit if they are not as many as its shape says."""
    count = prod(dims)
    if len(strings) != count:
        raise Unfit(f"{type_text(dtypes.STRING, dims)} needs {count} strings, string_data has {len(strings)}")
    return Tensor(dtypes.STRING, dims, lambda: strings, name=name)


def check_sparse(values: Tensor, indices: Tensor, dims: Sequence[int]) -> None:
    """Positions must lie inside the dense shape; whoever makes it dense relies on that."""
    check_extent(values.dtype, dims)
    if len(values.shape) != 1:
        raise Unfit(f"its values have shape {values.shape}, expected one dimension")
    if indices.dtype is not dtypes.INT64:
        raise Unfit(f"its indices are {indices.dtype.name}, expected i64")
    count = values.shape[0]
    if indices.shape not in ((count,), (count, len(dims))):
        raise Unfit(f"its indices have shape {indices.shape}, expected ({count},) or ({count}, {len(dims)})")
    positions = indices.numpy()
    limits = np.array([prod(dims)] if positions.ndim == 1 else dims, np.int64)
    if positions.size and bool(((positions < 0) | (positions >= limits)).any()):
        raise Unfit(f"its indices lie outside of its shape {tuple(dims)}")


def check_extent(dtype: DType, dims: Sequence[int]) -> None:
    """Unfit if no tensor can have this shape."""
    if any(dim < 0 for dim in dims):
        raise Unfit(f"its shape {dims} has a negative dimension")
    if prod(dim for dim in dims if dim) * max(dtype.numpy.itemsize, 1) > _MAX_EXTENT:
        raise Unfit(f"its shape {dims} is larger than any memory")


def type_text(dtype: DType, dims: Sequence[int]) -> str:
    """A type as messages have it: `f32[2,3]`."""
    return f"{dtype.name}[{','.join(map(str, dims))}]"


def loader_of(dtype: DType, load: Callable[[], memoryview]) -> Callable[[], Any]:
    """What gives a tensor its bytes, out of those of a file."""
    return partial(_bools, load) if dtype is dtypes.BOOL else load


def _bools(load: Callable[[], memoryview]) -> memoryview:
    """Bytes of a bool tensor; other bytes than 0 and 1, which NumPy relies on never meeting, become 1."""
    data = np.frombuffer(load(), np.uint8)
    return (data != 0).view(np.uint8).data if data.size and int(data.max()) > 1 else data.data
