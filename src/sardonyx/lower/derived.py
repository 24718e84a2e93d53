"""Constants derived from constants: weights in the order kernels read them, tables, numbers.

    packed = ctx.packed(pack_strips, (weights,), 16, dtype=FLOAT32, shape=(4, 64, 16))

What a derived constant is, and how it is known: `program.constants`. Here views of buffers become parts of constants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.program.constants import Cut, Derived, Part, transform
from sardonyx.program.steps import View


def is_fixed(view: View) -> bool:
    """Whether what a view shows is the same in every run and of known size, so that constants can be derived from it."""
    known = all(isinstance(size, int) for size in (*view.shape, *view.strides, view.offset))
    return known and view.buffer.constant is not None


def part_of(view: View) -> Part:
    """What a view of a constant shows."""
    assert view.buffer.constant is not None, view
    return Part(view.buffer.constant, numbers([view.offset])[0], numbers(view.shape), numbers(view.strides))


def data_of(part: Part) -> Array:
    """What a part of a constant holds, computed here and now: for decisions that depend on weights."""
    constant = part.constant
    if not isinstance(constant, Derived):
        return part.of(constant.numpy())
    sources = [None if source is None else data_of(source) for source in constant.sources]
    return part.of(constant.transform(*sources, *constant.parameters).reshape(constant.shape))


def numbers(dims: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes that are known."""
    found = tuple(dim for dim in dims if isinstance(dim, int))
    assert len(found) == len(dims), dims
    return found


def label_of(derived: Derived, sources: Sequence[View | None]) -> str:
    """How explanations call a constant."""
    names = ", ".join(view.buffer.label for view in sources if view is not None)
    return f"{derived.transform.name}({names})"


def _conversion_cuts(data: Array) -> list[Cut]:
    """Every axis, unless there is nothing to convert: then the result is the data itself."""
    done = data.dtype == np.float32 and data.flags.c_contiguous
    return [] if done else [Cut(axis, axis) for axis in range(data.ndim)]


@transform("as_float32", 1, _conversion_cuts, is_numbers=True)
def as_float32(data: Array) -> Array:
    """The numbers in float32, without gaps."""
    return np.ascontiguousarray(data, np.float32)
