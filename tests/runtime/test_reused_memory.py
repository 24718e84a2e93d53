"""Memory of results that are gone is used again, and that of results somebody holds never is."""

from __future__ import annotations

import gc
import itertools
import sys
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.runtime.reused_memory import LARGE, ReusedMemory
from sardonyx.runtime.runs import owned

SHAPE = (LARGE // 4, 2)


def test_memory_is_used_again_when_nothing_shows_it() -> None:
    memory = ReusedMemory()
    first = memory.array("y", SHAPE, np.float32)
    at = first.ctypes.data
    part = first[1:, 1]
    del first
    assert memory.array("y", SHAPE, np.float32).ctypes.data != at, "a view still shows it"
    del part
    assert at in [memory.array("y", SHAPE, np.float32).ctypes.data for _ in range(2)]


def test_other_sizes_and_types_have_memory_that_fits() -> None:
    memory = ReusedMemory()
    for rows in (SHAPE[0], 3 * SHAPE[0], 40 * SHAPE[0], SHAPE[0], 0, 1):
        for dtype in (np.float32, np.float64, np.int8):
            array = memory.array("y", (rows, 2), dtype)
            array[...] = 1
            assert array.shape == (rows, 2)
            assert array.dtype == dtype
            assert array.flags.writeable


def test_threads_that_ask_at_once_never_share_memory() -> None:
    memory, wrong = ReusedMemory(), []

    def work(number: int) -> None:
        for _ in range(300):
            array = memory.array("y", SHAPE, np.float32)
            array[::4096] = number
            if not (array[::4096] == number).all():
                wrong.append(number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_results_are_gone_with_their_last_reference() -> None:
    """No cycle of references keeps them until garbage is collected."""
    memory = ReusedMemory()
    gc.disable()
    try:
        (result,) = owned([memory.array("y", SHAPE, np.float32)])
        at = result.ctypes.data
        del result
        assert memory.array("y", SHAPE, np.float32).ctypes.data == at
    finally:
        gc.enable()


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 6), st.integers(-3, 3), st.booleans()), max_size=12))
def test_owned_results_share_no_memory(parts: list[tuple[int, int, int, bool]]) -> None:
    memory = np.arange(40.0)
    results = []
    for start, count, step, writeable in parts:
        first = start + max(0, -step * (count - 1))
        view = np.ndarray((count,), np.float64, memory, 8 * first, (8 * step,))
        view.flags.writeable = writeable
        results.append(view)
    found = owned([results, *results])
    arrays = [*found[0], *found[1:]]
    for array, given_array in zip(arrays, [*results, *results]):
        np.testing.assert_array_equal(array, given_array)
        assert array.flags.writeable
    for first, second in itertools.combinations(arrays, 2):
        assert not np.may_share_memory(first, second)
