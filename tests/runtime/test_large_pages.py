"""Memory for weights in large pages."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sardonyx import mapped_file
from sardonyx.mapped_file import write_pages
from sardonyx.runtime import large_pages
from sardonyx.runtime.arena import mapped_memory
from sardonyx.runtime.large_pages import WeightMemory

FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_SLAB", 1 << 16), ("_FEW", 1 << 12), ("_SMALL", 1 << 9), ("LARGE_FROM", 1 << 14)):
        monkeypatch.setattr(large_pages, name, size)


def test_arrays_of_any_size_keep_apart() -> None:
    memory = WeightMemory()
    sizes = [1, 100, 700, 1000, 1025, 3, 0, 5000, 9000, 2000, 8191, 17]
    arrays = [memory.array((size,), FLOAT) for size in sizes]
    for number, array in enumerate(arrays):
        assert array.ctypes.data % 64 == 0 or not array.size
        array[...] = number
    for number, (array, size) in enumerate(zip(arrays, sizes)):
        assert array.shape == (size,)
        assert (array == number).all()


def test_an_array_that_is_made_read_only_leaves_the_others_writable() -> None:
    memory = WeightMemory()
    memory.array((2000,), FLOAT)
    first, second = memory.array((300, 2), FLOAT), memory.array((300, 2), FLOAT)
    first.flags.writeable = False
    second[...] = 1
    memory.array((300, 2), FLOAT)[...] = 2
    assert (second == 1).all()


def test_few_weights_stay_by_themselves() -> None:
    memory = WeightMemory()
    arrays = [np.full(size, size % 251, np.uint8) for size in (2000, 2000, 2000, 100, 1 << 15)]
    moved = [memory.moved(array) for array in arrays]
    assert [each is array for each, array in zip(moved, arrays)] == [True, True, False, True, True]
    np.testing.assert_array_equal(moved[2], arrays[2])


def test_memory_that_the_system_has_not_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match=r"the system has no \d+ bytes"):
        mapped_memory(1 << 60)


@pytest.mark.parametrize("has_writev", [True, False])
def test_pieces_are_written_one_behind_the_other(tmp_path: Path, has_writev: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "_AT_ONCE", 1 << 12)
    monkeypatch.setattr(mapped_file, "_MOST_AT_ONCE", 3)
    if not has_writev:
        monkeypatch.delattr(os, "writev")
    random = np.random.default_rng(0)
    arrays = [random.integers(0, 256, size, np.uint8) for size in (0, 1, 4095, 4096, 10_000, 3, 3, 3, 3, 8192, 0, 777)]
    pieces: list[bytes | memoryview] = [array.data if number % 2 else array.tobytes() for number, array in enumerate(arrays)]
    path = tmp_path / "file"
    with open(path, "wb") as file:
        write_pages(file.fileno(), pieces)
    assert path.read_bytes() == np.concatenate(arrays).tobytes()
