"""For property tests of native kernels: shapes and numbers that kernels find hard, and a comparison with all memory guarded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import ModelProto

from guarded_session import guarded_feeds, guarded_memory
from lowering_case import BOOL, Array
from native_support import assert_native_agrees

SEEDS = st.integers(0, 2**16)
SIZES = st.one_of(st.integers(0, 3), st.integers(7, 33))
"""Nothing, one, a few, and sizes around every width of a vector."""


@st.composite
def shapes(draw: st.DrawFn, least: int = 0, most: int = 4, smallest: int = 0) -> tuple[int, ...]:
    """Shapes of a rank, at most two of whose sizes are longer than a vector; sometimes the last is longer than a block."""
    rank = draw(st.integers(least, most))
    sizes = [draw(st.integers(smallest, 4)) for _ in range(rank)]
    for axis in draw(st.lists(st.integers(0, rank - 1), max_size=2)) if rank else ():
        sizes[axis] = max(draw(SIZES), smallest)
    if rank and draw(st.integers(0, 7)) == 0:
        sizes[-1] = draw(st.sampled_from((255, 1025, 2055)))
    return tuple(sizes)


def small_shapes(least: int = 0, most: int = 4, elements: int = 256) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of few elements, for axes that multiply what a test computes."""
    return shapes(least, most).filter(lambda shape: int(np.prod(shape, dtype=np.int64)) <= elements)


def any_bits(dtype: Any, shape: tuple[int, ...], seed: int) -> Array:
    """Elements of any bits: floats of every magnitude, denormals, infinities and NaN among them."""
    random, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype == BOOL:
        return random.integers(0, 2, shape).astype(dtype)
    count = int(np.prod(shape))
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype, count).reshape(shape)


def between(narrow: Any, wide: Any, shape: tuple[int, ...], seed: int) -> Array:
    """Numbers of a wide float type that lie at, or right beside, the middle of two neighbours of a narrow one."""
    unsigned = np.dtype(f"u{np.dtype(narrow).itemsize}")
    bits = np.asarray(np.random.default_rng(seed).integers(0, np.iinfo(unsigned).max, shape, unsigned))
    first, second = (array.view(narrow).astype(np.float64) for array in (bits, bits + unsigned.type(1)))
    with np.errstate(all="ignore"):
        middle = ((first + second) / 2).astype(wide)
    side = np.random.default_rng(seed + 1).integers(-1, 2, shape)
    beside = np.nextafter(middle, np.where(side < 0, -np.inf, np.inf).astype(wide))
    return np.asarray(np.where(side == 0, middle, beside))


def assert_guarded_agrees(
    content: ModelProto, feeds: Mapping[str, Array], *, rtol: float = 0.0, atol: float = 0.0, at_start: bool = False
) -> None:
    """Native and reference give the same, while inputs, constants, results and scratch memory are all guarded."""
    with guarded_memory(at_start) as guard:
        assert_native_agrees(content, guarded_feeds(guard, feeds), rtol=rtol, atol=atol)
