"""Sessions all of whose memory is guarded: inputs, outputs, constants and every buffer of the arena lie in pages of their own.

    with guarded_memory():
        session.run(None, guarded_feeds(feeds))

An access past the end of a buffer (or, with `at_start`, before its beginning) kills the process, as does a write to an input or a
constant. Buffers are filled with ones (NaN as a float) before each run, so that what nobody wrote does not pass for zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from guarded import GuardedPages
from sardonyx.runtime import executable, repeated_sizes, segment_runner
from sardonyx.runtime.arena import ArenaLayout
from sardonyx.runtime.native_core import NativeCore, RunMemory

Array = np.ndarray[Any, Any]


class _Guard:
    """Hands out guarded memory and keeps it alive."""

    def __init__(self, at_start: bool) -> None:
        self.at_start = at_start
        self._alive: list[Any] = []

    def empty(self, shape: Any, dtype: Any) -> Array:
        whole = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(size < 0 for size in whole):
            raise ValueError("negative dimensions are not allowed")
        pages = GuardedPages(int(np.prod(whole, dtype=np.int64)) * np.dtype(dtype).itemsize)
        self._alive.append(pages)
        return pages.array(whole, dtype, self.at_start, fill=0xFF)

    def copy(self, array: Any, *, read_only: bool) -> Array:
        copied = self.empty(array.shape, array.dtype)
        copied[...] = array
        if read_only:
            self._alive[-1].make_read_only()
        return copied

    def isolate(self, layout: ArenaLayout, context: RunMemory) -> None:
        """Every buffer of an arena in memory of its own."""
        for number, size in zip(layout.buffers.tolist(), layout.bytes_of(context.dims).tolist()):
            context.bases[number] = self.empty((size,), np.uint8).ctypes.data
        context.bases[layout.shared] = context.bases[layout.roots]

    def place(self, core: NativeCore, context: RunMemory) -> None:
        """Every buffer of the arena, and every constant, in memory of its own."""
        self.isolate(core._layout, context)
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

    def guarded_place(self: NativeCore, context: RunMemory) -> None:
        place(self, context)
        guard.place(self, context)

    def guarded_place_late(self: NativeCore, context: RunMemory, members: tuple[int, ...]) -> None:
        place_late(self, context, members)
        guard.isolate(self._late_layouts[members], context)

    numpy_with_guards = _NumpyWith(guard)
    with (
        mock.patch.object(NativeCore, "place", guarded_place),
        mock.patch.object(NativeCore, "place_late", guarded_place_late),
        mock.patch.object(executable, "np", numpy_with_guards),
        mock.patch.object(segment_runner, "np", numpy_with_guards),
        mock.patch.object(repeated_sizes, "new_array", guard.empty),
        # These lay out memory in native code.
        mock.patch.object(segment_runner.SegmentRunner, "run_staged", return_value=None),
        mock.patch.object(segment_runner.SegmentRunner, "open_run", return_value=None),
    ):
        yield guard


def guarded_feeds(guard: _Guard, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds in guarded memory that cannot be written."""
    return {name: guard.copy(array, read_only=True) for name, array in feeds.items()}


def assert_run_agrees(
    session: Any, reference: Any, guard: _Guard, feeds: Mapping[str, Any], rtol: float, atol: float = 0.0
) -> None:
    """A session answers feeds in guarded memory as the definition does, or refuses what it refuses."""
    try:
        wanted = reference.run(None, feeds)
    except Exception as error:
        with pytest.raises(type(error)):
            session.run(None, guarded_feeds(guard, feeds))
        return
    for found, expected in zip(session.run(None, guarded_feeds(guard, feeds)), wanted):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
