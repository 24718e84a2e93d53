"""In which type floats are computed: float64 in float64, float32 in float32, all narrower types in float32.

A narrow input (float16, bfloat16, float8 ...) is widened exactly, the whole operator runs in float32, and the result is rounded
to the narrow type once, to nearest even. Integers, bools and strings pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array

NARROW: Final = frozenset(dtype.numpy for dtype in dtypes.FLOATS - {dtypes.FLOAT32, dtypes.FLOAT64})


def widen(array: Array) -> Array:
    """The array in the type it is computed in."""
    return array.astype(np.float32) if array.dtype in NARROW else array


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for every floating point type narrower than that; other types stay."""
    return np.dtype(np.float32) if dtype in NARROW else dtype


def narrow(array: Any, dtype: np.dtype[Any]) -> Array:
    """A result rounded to its type; not a copy if it has that type. Overflow gives infinity, as IEEE says."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(dtype, copy=False)


def rounded_once(function: Callable[..., Any], *arrays: Array) -> Array:
    """The function of the widened arrays, in the element type of the first array; no warnings about NaN, infinity or overflow."""
    with np.errstate(all="ignore"):
        result = np.asarray(function(*map(widen, arrays)))
        return result.astype(arrays[0].dtype, copy=False)
