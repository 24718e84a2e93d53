"""The short way through a program without host steps: no dictionaries, no conversions, one call into native code.

`run` takes a user's feeds and only checks that nothing changed: plain contiguous arrays of the types and shapes of the last
run that was checked in full. Anything else is left to the full way (`run` gives None), which hands checked arrays to
`run_checked`. The addresses of arrays are read in native code, from the array objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.codegen.driver import BIND_ENTRIES, BLOCK_POOL
from sardonyx.program.image import numpy_type
from sardonyx.runtime.native_core import Array, Context, NativeCore, SizeConflict, new_array

if TYPE_CHECKING:
    from sardonyx.runtime.state import StateSet

Shapes = tuple[tuple[int, ...], ...]

_MOST_PREPARED = 8


class _Prepared:
    """A context with everything a launch needs; for one run at a time."""

    def __init__(self, context: Context, binds: Array, steps: int, count: int, values: int) -> None:
        self.context = context
        self.binds = binds
        self.objects = np.zeros(max(values, 1), np.int64)
        table, where = context.table.ctypes.data, self.objects.ctypes.data
        self.block = np.array([steps, count, table, binds.ctypes.data, binds.size // BIND_ENTRIES, where, 0], np.int64)
        self.block_view = self.block.data
        self.block_address = self.block.ctypes.data
        self.object_view = self.objects.data
        self.shapes: Shapes | None = None
        self.outputs: list[tuple[tuple[int, ...], Any]] = []


class FastPath:
    """Runs a native program whose inputs and outputs are all native."""

    def __init__(self, core: NativeCore) -> None:
        self._core = core
        image = core.image
        self._declared = [(port.name, numpy_type(port.dtype), len(port.dims)) for port in image.inputs]
        self._result_types = [(numpy_type(port.dtype), list(port.dims)) for port in image.outputs]
        positions = {port.buffer: position for position, port in enumerate((*image.inputs, *image.outputs))}
        rows = [(slot, positions[buffer], dim) for slot, buffer, dim in image.address_slots.tolist() if buffer in positions]
        # Where the addresses of inputs and outputs stand in the table: slot, number of the value, the offset's dim.
        self._entries = np.array(rows, np.int64).reshape(-1, BIND_ENTRIES)
        self._expected: list[tuple[str, Any, tuple[int, ...]]] | None = None
        self._free: list[_Prepared] = []

    def run(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, or None if this run needs the full way."""
        expected = self._expected
        if expected is None or len(feeds) != len(expected):
            return self._run_declared(feeds)
        arrays = []
        for name, dtype, shape in expected:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                return self._run_declared(feeds)
            arrays.append(array)
        return self._launch(arrays)

    def _run_declared(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs for arrays of the declared types and ranks; None for other feeds, and for sizes that do not fit."""
        if len(feeds) != len(self._declared):
            return None
        for name, dtype, rank in self._declared:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != rank:
                return None
        try:
            return self.run_checked(feeds)
        except (SizeConflict, MemoryError, OverflowError):
            return None  # the full way says what is wrong

    def run_checked(self, feeds: Mapping[str, Any], targets: Sequence[Array | None] = ()) -> list[Any]:
        """The outputs for feeds whose types and shapes fit the model; later runs of the same shapes take the short way.

        `targets` are arrays that outputs are written to, if type and shape are theirs; whoever gives one has made sure that it is
        in C order and shares no memory with feeds or other targets.
        """
        arrays = [np.asarray(feeds[name], order="C") for name, _, _ in self._declared]
        results = self._launch(arrays, targets)
        self._expected = [(name, array.dtype, array.shape) for (name, _, _), array in zip(self._declared, arrays)]
        return results

    def run_arrays(self, arrays: Sequence[Array]) -> list[Any]:
        """The outputs for checked arrays in the order of the inputs."""
        return self._launch([np.asarray(array, order="C") for array in arrays])

    def _launch(self, arrays: list[Array], targets: Sequence[Array | None] = ()) -> list[Any]:
        free = self._free
        try:
            prepared = free.pop()
        except IndexError:
            prepared = self._prepare()
        shapes = tuple([array.shape for array in arrays])
        if shapes != prepared.shapes:
            self._fit(prepared, shapes)
        if targets:
            results = [_fitting(target, shape, dtype) for target, (shape, dtype) in zip(targets, prepared.outputs)]
        else:
            results = [new_array(shape, dtype) for shape, dtype in prepared.outputs]
        view = prepared.object_view
        position = 0
        for array in arrays:
            view[position] = id(array)
            position += 1
        for array in results:
            view[position] = id(array)
            position += 1
        core = self._core
        core.pool.launch(prepared.block_address, prepared.context.alone, prepared.block_view, BLOCK_POOL)
        if core.image.faults:
            core.raise_fault(prepared.context)
        if len(free) < _MOST_PREPARED:
            free.append(prepared)
        return results

    def _prepare(self) -> _Prepared:
        core = self._core
        values = len(self._declared) + len(self._result_types)
        return _Prepared(core.new_context(), self._entries.copy(), core.steps_address, core.step_count, values)

    def prepare(self, arrays: Sequence[Array], states: StateSet) -> None:
        """Set the context of the next run up for these arrays and states; for one caller at a time."""
        prepared = self._free.pop() if self._free else self._prepare()
        context = prepared.context
        context.states = states
        shapes = tuple([array.shape for array in arrays])
        try:
            if shapes != prepared.shapes:
                self._fit(prepared, shapes)
            elif self._core.place_states(context):
                self._core.fill_addresses(context)
        finally:
            context.states = None  # the context does not keep them
        self._free.append(prepared)

    def _fit(self, prepared: _Prepared, shapes: Shapes) -> None:
        """Set a context up for other shapes."""
        prepared.shapes = None  # if setting up fails, nothing may be taken for granted
        context = prepared.context
        self._core.fit(context, shapes)
        prepared.binds[:, 2] = context.dims[self._entries[:, 2]]
        sizes = context.sizes
        prepared.outputs = [(tuple([sizes[dim] for dim in dims]), dtype) for dtype, dims in self._result_types]
        prepared.shapes = shapes

    def shrink(self) -> None:
        """Give the memory kept for later runs back."""
        self._free = []


def _fitting(target: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The target, if it has this shape and type; else a new array."""
    return target if target is not None and target.shape == shape and target.dtype == dtype else np.empty(shape, dtype)
