"""Sessions all of whose memory is guarded: inputs, outputs, constants and every buffer of the arena lie in pages of their own.

    with guarded_memory():
        session.run(None, guarded_feeds(feeds))

An access past the end of a buffer (or, with `at_start`, before its beginning) kills the process, as does a write to an input or a
constant. Buffers are filled with ones (NaN as a float) before each run, so that what nobody wrote does not pass for zero.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from sardonyx.runtime import executable, segment_runner
from sardonyx.runtime.arena import ArenaLayout
from sardonyx.runtime.native_core import Context, NativeCore

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_NONE, _READ = 0, 1
Array = np.ndarray[Any, Any]


class _Pages:
    """Whole pages between two that nobody may touch."""

    def __init__(self, size: int) -> None:
        self.size = -(-max(size, 1) // _PAGE) * _PAGE
        try:
            self.map = mmap.mmap(-1, self.size + 2 * _PAGE)
        except OSError as error:  # as the memory it stands for, see `Arena`
            raise MemoryError(str(error)) from None
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + _PAGE
        self.protect(self.start - _PAGE, _PAGE, _NONE)
        self.protect(self.start + self.size, _PAGE, _NONE)

    @staticmethod
    def protect(address: int, size: int, how: int) -> None:
        if _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), how):
            raise OSError(ctypes.get_errno(), "mprotect failed")

    def array(self, shape: tuple[int, ...], dtype: Any, at_start: bool) -> Array:
        """An array that begins at the first byte, or ends at the last."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        offset = _PAGE + (0 if at_start else self.size - count * dtype.itemsize)
        flat: Array = np.frombuffer(self.map, np.uint8, count * dtype.itemsize, offset)
        flat[...] = 0xFF
        whole: Array = flat.view(dtype).reshape(shape)
        return whole

    def make_read_only(self) -> None:
        self.protect(self.start, self.size, _READ)


class _Guard:
    """Hands out guarded memory and keeps it alive."""

    def __init__(self, at_start: bool) -> None:
        self.at_start = at_start
        self._alive: list[Any] = []

    def empty(self, shape: Any, dtype: Any) -> Array:
        whole = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(size < 0 for size in whole):
            raise ValueError("negative dimensions are not allowed")
        pages = _Pages(int(np.prod(whole, dtype=np.int64)) * np.dtype(dtype).itemsize)
        self._alive.append(pages)
        return pages.array(whole, dtype, self.at_start)

    def copy(self, array: Any, *, read_only: bool) -> Array:
        copied = self.empty(array.shape, array.dtype)
        copied[...] = array
        if read_only:
            self._alive[-1].make_read_only()
        return copied

    def spread(self, layout: ArenaLayout, context: Context) -> None:
        """Every buffer of an arena in memory of its own."""
        for number, size in zip(layout.buffers.tolist(), layout.bytes_of(context.dims).tolist()):
            context.bases[number] = self.empty((size,), np.uint8).ctypes.data
        context.bases[layout.shared] = context.bases[layout.roots]

    def place(self, core: NativeCore, context: Context) -> None:
        """Every buffer of the arena, and every constant, in memory of its own."""
        self.spread(core._layout, context)
        bases = context.bases
        for number, array in core.constants.items():
            bases[number] = self.copy(array, read_only=True).ctypes.data


class _NumpyWith:
    """NumPy, but for `empty`."""

    def __init__(self, guard: _Guard) -> None:
        self.empty = guard.empty

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@contextmanager
def guarded_memory(at_start: bool = False) -> Iterator[_Guard]:
    """While this holds, native programs run in guarded memory; contexts of earlier runs must not be used again."""
    guard = _Guard(at_start)
    place, place_late = NativeCore.place, NativeCore.place_late

    def guarded_place(self: NativeCore, context: Context) -> None:
        place(self, context)
        guard.place(self, context)

    def guarded_place_late(self: NativeCore, context: Context, members: tuple[int, ...]) -> None:
        place_late(self, context, members)
        guard.spread(self._late_layouts[members], context)

    numpy_with_guards = _NumpyWith(guard)
    with (
        mock.patch.object(NativeCore, "place", guarded_place),
        mock.patch.object(NativeCore, "place_late", guarded_place_late),
        mock.patch.object(executable, "np", numpy_with_guards),
        mock.patch.object(segment_runner, "np", numpy_with_guards),
    ):
        yield guard


def guarded_feeds(guard: _Guard, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds in guarded memory that cannot be written."""
    return {name: guard.copy(array, read_only=True) for name, array in feeds.items()}
