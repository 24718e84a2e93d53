"""Views of views against NumPy's own."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.ir.dims import symbol
from sardonyx.ir.tensor import Array
from sardonyx.lower.views import expanded, reshaped, sliced, transposed, with_axes, without_axes
from sardonyx.program.steps import Buffer, Storage, View, whole


def shown(view: View, memory: Array) -> Array:
    """What a view shows of an array of 64-bit integers."""
    flat: Any = memory.reshape(-1)
    shape: Any = view.shape
    strides: Any = tuple(stride * 8 for stride in view.strides)
    return np.lib.stride_tricks.as_strided(flat[view.offset :], shape, strides, writeable=False)


def of(memory: Array) -> View:
    return whole(Buffer(Storage.ARENA, dtypes.INT64, memory.size), memory.shape)


@st.composite
def views(draw: Any) -> tuple[Array, View, Array]:
    """Memory, a view of it with axes in any order and cut in any way, and the same by NumPy."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    memory = np.arange(prod(shape), dtype=np.int64).reshape(shape)
    view, array = of(memory), memory
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(shape))))
        view, array = transposed(view, order), array.transpose(order)
    for axis in range(len(shape)):
        step = draw(st.sampled_from([1, 1, 1, 2, -1]))
        start = draw(st.integers(0, array.shape[axis] - 1))
        array = array[tuple(slice(start, None, step) if place == axis else slice(None) for place in range(array.ndim))]
        view = sliced(view, axis, start, array.shape[axis], step)
    return memory, view, array


@given(views())
def test_slices_and_orders_are_numpys(case: tuple[Array, View, Array]) -> None:
    memory, view, array = case
    np.testing.assert_array_equal(shown(view, memory), array)


@given(views(), st.randoms(use_true_random=False))
def test_a_reshaped_view_shows_what_a_copy_would(case: tuple[Array, View, Array], random: Any) -> None:
    memory, view, array = case
    rest, shape = array.size, []
    while rest > 1:
        factor = random.choice([number for number in range(2, rest + 1) if rest % number == 0])
        shape.append(factor)
        rest //= factor
    for _ in range(random.randint(0, 2)):
        shape.insert(random.randint(0, len(shape)), 1)
    found = reshaped(view, shape)
    wanted = array.reshape(shape)
    if found is None:
        assert not np.shares_memory(wanted, memory), "NumPy found a view"
    else:
        np.testing.assert_array_equal(shown(found, memory), wanted)


def test_axes_come_and_go() -> None:
    memory = np.arange(12, dtype=np.int64).reshape(3, 4)
    view = of(memory)
    np.testing.assert_array_equal(shown(with_axes(view, [0, 2]), memory), memory[None, :, None])
    np.testing.assert_array_equal(shown(without_axes(with_axes(view, [1]), [1]), memory), memory)
    np.testing.assert_array_equal(shown(without_axes(sliced(view, 1, 2, 1), (1,)), memory), memory[:, 2])
    np.testing.assert_array_equal(shown(expanded(view, (2, 3, 4)), memory), np.broadcast_to(memory, (2, 3, 4)))


def test_symbolic_axes_are_cut_and_joined_where_their_product_shows_it() -> None:
    n, s = symbol("N"), symbol("S")
    view = whole(Buffer(Storage.ARENA, dtypes.FLOAT32, n * s * 768), (n, s, 12, 64))
    exchanged = transposed(view, (0, 2, 1, 3))
    cut = reshaped(exchanged, (n, 3, 4, s, 64))
    assert cut is not None
    assert cut.strides == (s * 768, 256, 64, 768, 1)
    assert reshaped(exchanged, (n, 12 * s, 64)) is None
    assert reshaped(view, (n * s, 768)) == whole(view.buffer, (n * s, 768))
