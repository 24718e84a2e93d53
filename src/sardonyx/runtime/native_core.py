"""Sizes, memory and launch of a native program: what every run of one needs, with or without host steps between.

A context is the memory of one run at a time: the table all kernels read their arguments from, and the arena. It remembers the
sizes it was set up for; a run with the same sizes only fills in the addresses of inputs and outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from sardonyx import errors
from sardonyx.codegen.blocks import BARRIER, STRETCH
from sardonyx.forks import ForkSafeLock
from sardonyx.program.image import LONG_FROM, PARALLEL_FROM, SHARED_FROM, SHORT_FROM, ProgramImage
from sardonyx.runtime.arena import Arena, ArenaLayout

if TYPE_CHECKING:
    from typing import Protocol

    from sardonyx.runtime.sizes_apart import SizesApart
    from sardonyx.runtime.state import StateSet

    class Workers(Protocol):  # for type checkers only: making it takes time at every start
        """Who runs native steps (see `pool`)."""

        workers: int

        def native_function(self, name: str) -> int: ...

        def run(self, steps: int, count: int, table: int) -> None: ...

        def run_alone(self, steps: int, count: int, table: int) -> None: ...

        @property
        def launch_alone(self) -> Callable[[int], None]: ...

        def launch(self, block: int, pool_entry: memoryview, position: int) -> None: ...

        @property
        def keeps_awake(self) -> bool: ...

        def launch_short(self, block: int, pool_entry: memoryview, position: int) -> None: ...

        def run_loop(self, block: int, alone: bool) -> None: ...


Array = np.ndarray[Any, Any]


def _arrays_keep_their_address_first() -> bool:
    """Whether an array's data pointer stands where `launch` reads it: right after the object header."""
    probe = np.zeros(3)
    return ctypes.c_void_p.from_address(id(probe) + object.__basicsize__).value == probe.ctypes.data


ADDRESS_FIRST: Final = _arrays_keep_their_address_first()


_HEADER: Final = object.__basicsize__
number_at: Final = ctypes.c_int64.from_address


def address_of(array: Array) -> int:
    """Where an array's data lies; NumPy's own way to tell takes ten times as long."""
    return number_at(id(array) + _HEADER).value if ADDRESS_FIRST else int(array.ctypes.data)


def new_array(shape: Sequence[int], dtype: Any) -> Array:
    """Memory for a result; MemoryError, whichever words NumPy has for sizes that cannot be had."""
    try:
        return np.empty(shape, dtype)
    except ValueError as error:
        raise MemoryError(str(error)) from None


class SizeConflict(Exception):
    """Actual sizes contradict what the kernels were made for: one name fed with two sizes, or a shape rule that was wrong."""

    is_served_by_another: ClassVar[bool] = False  # whether a program of their own is to be made for such sizes


class RunMemory:
    """Memory of one run at a time."""

    __slots__ = (
        "alone", "arena", "bases", "dims", "faults", "known", "late", "late_used", "long", "short", "sizes", "states", "table",
    )  # fmt: skip

    def __init__(self, table_size: int, fault_entries: int) -> None:
        self.table = np.zeros(max(table_size, 1), np.int64)
        self.known: tuple[int, ...] | None = None  # the symbols' values the table was filled for
        self.arena = Arena()
        self.late: list[Arena] = []  # for values whose sizes host steps tell, in the order they do
        self.late_used = 0  # how many of those belong to the run under way
        self.bases: Array = np.empty(0, np.int64)
        self.sizes: tuple[int, ...] = ()  # the values of all dims
        self.dims: Array = np.empty(0, np.int64)  # the same as an array
        self.alone = True  # the whole program is too small to gain from a second worker
        self.short = False  # but for workers that are awake as it is
        self.long = False  # a run comes back to Python now and then (see `long_runs`)
        self.faults = np.zeros(fault_entries, np.int64)  # where kernels report bad data
        self.states: StateSet | None = None  # what outlives its runs


class NativeCore:
    """A program's image with its code and constants, ready to be set up for sizes."""

    def __init__(
        self, image: ProgramImage, addresses: Sequence[int], pool: Workers, load: Callable[[], dict[int, Array]]
    ) -> None:
        self.image = image
        self.pool = pool
        steps = np.empty((len(addresses), 4), np.int64)
        steps[:, 0] = addresses
        steps[:, 1:3] = image.steps[:, :2]
        steps[:, 3] = image.steps[:, 2] << STRETCH | BARRIER
        self._steps = steps
        lengths = image.steps[:, 2]
        self._stretches = [(int(last + 1 - lengths[last]), int(last + 1)) for last in np.flatnonzero(lengths)]
        self.steps_address = steps.ctypes.data
        self.step_count = len(addresses)
        self._ports = [(port.name, port.dims) for port in image.inputs]
        self._bindings = image.bindings.tolist()
        bound = {symbol for symbol, _, _ in self._bindings}
        self._unbound = [number for number in range(len(image.symbols)) if number not in bound]
        self.data_dependent = tuple(image.symbols[number] for number in self._unbound)  # sizes that no input's shape determines
        self._has_rules = len(image.checks) + len(image.equalities) > 0
        self._dim_slots, self._dim_numbers = image.dim_slots.T
        self._work_slots, self.work_numbers = image.work_slots.T
        self.address_slots, self.address_buffers, self.address_offsets = image.address_slots.T
        self._fault_buffers = image.fault_buffers[:, 0]
        late = set(image.late[:, 0].tolist())
        self._layout = ArenaLayout(image, [number for number in image.arena[:, 0].tolist() if number not in late], pool.workers)
        self._state_buffers, self._state_sizes, self._state_growth = image.state.T
        self._late_layouts: dict[tuple[int, ...], ArenaLayout] = {}
        self.apart: SizesApart | None = None  # sizes that other programs serve, if any do
        self._load = load
        self._constants: dict[int, Array] | None = None
        self._fixed_bases = np.zeros(image.buffer_count, np.int64)
        self._lock = ForkSafeLock()

    def whole_part(self, end: int) -> int:
        """The first step from one on in front of which a part of a run may end: not in the middle of a stretch."""
        return next((stop for first, stop in self._stretches if first < end < stop), end)

    def add_inputs(self, labels: Sequence[str], dims: Sequence[tuple[int, ...]], symbols: Sequence[tuple[int, ...]]) -> None:
        """From now on, `fit` is given the shapes of more values behind the inputs; `symbols` has that of each axis, or -1."""
        for label, each, axes in zip(labels, dims, symbols):
            for axis, symbol in enumerate(axes):
                if symbol in self._unbound:
                    self._bindings.append([symbol, len(self._ports), axis])
                    self._unbound.remove(symbol)
            self._ports.append((label, each))
        self.data_dependent = tuple(self.image.symbols[number] for number in self._unbound)

    @property
    def constants(self) -> dict[int, Array]:
        """The arrays of constant buffers, by number; made when they are first needed."""
        if self._constants is None:
            with self._lock:
                if self._constants is None:  # else another thread was faster, and addresses of its arrays may be in use
                    loaded = self._load()
                    for number, array in loaded.items():
                        self._fixed_bases[number] = array.ctypes.data
                    self._constants = loaded
        return self._constants

    def work(self, context: RunMemory) -> int:
        """An estimate of how long a run takes on one worker, in nanoseconds."""
        return int(context.dims[self.work_numbers].sum())

    def symbols(self, shapes: Sequence[Sequence[int]], data_dependent: Sequence[int] = ()) -> tuple[int, ...]:
        """The values of all symbols for inputs of these shapes; `data_dependent` has those that `self.data_dependent` names."""
        for (name, dims), shape in zip(self._ports, shapes):
            if len(shape) != len(dims):
                raise SizeConflict(f"{name!r} has shape {list(shape)}, expected rank {len(dims)}")
        symbols = [0] * len(self.image.symbols)
        for symbol, number, axis in self._bindings:
            symbols[symbol] = shapes[number][axis]
        for symbol, size in zip(self._unbound, data_dependent):
            symbols[symbol] = size
        return tuple(symbols)

    def left_to_others(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
        """The values of the symbols for inputs of these shapes, if other programs are to serve them; None if this one does."""
        symbols = self.symbols(shapes)
        dims = np.array(self.image.sizes(*symbols), np.int64)
        try:
            if self.apart is not None:
                self.apart.check(symbols, dims, dims[self.work_numbers])
        except SizeConflict:
            return symbols
        return None

    def fit(self, context: RunMemory, shapes: Sequence[Sequence[int]], data_dependent: Sequence[int] = ()) -> None:
        """Set a context up for inputs of these shapes, all in order; inputs and outputs get no addresses."""
        known = self.symbols(shapes, data_dependent)
        if known != context.known:
            self.evaluate(context, known)
            self.place(context)
            if len(self.image.late):
                self.place_late(context, tuple(self.image.late[:, 0].tolist()))
        self.check_inputs(context, shapes)
        self.fill_addresses(context)

    def check_inputs(self, context: RunMemory, shapes: Sequence[Sequence[int]]) -> None:
        """Whether inputs have the shapes that follow from the sizes a context was set up for."""
        sizes = context.sizes
        for (name, dims), shape in zip(self._ports, shapes):
            expected = tuple([sizes[dim] for dim in dims])
            if expected != tuple(shape):
                context.known = None
                raise SizeConflict(f"{name!r} has shape {list(shape)}, expected {list(expected)}")

    def evaluate(
        self, context: RunMemory, symbols: tuple[int, ...], is_open: Callable[[int, int], bool] = lambda *dims: False
    ) -> None:
        """Compute all sizes and check what must hold of them, but for pairs of dims that are not known yet (`is_open`)."""
        image = self.image
        context.known = None
        context.sizes = image.sizes(*symbols)
        dims = context.dims = np.array(context.sizes, np.int64)
        context.table[self._dim_slots] = dims[self._dim_numbers]
        if self._has_rules:
            self._check_rules(dims, is_open)
        work = dims[self.work_numbers]
        if self.apart is not None:
            self.apart.check(symbols, dims, work)
        context.table[self._work_slots] = np.maximum(work // SHARED_FROM, 1)
        context.alone = self.pool.workers == 1 or not (work >= 2 * PARALLEL_FROM).any()
        context.long = int(work.sum()) >= LONG_FROM
        context.short = context.alone and self.pool.keeps_awake and int(work[work >= 2 * SHARED_FROM].sum()) >= SHORT_FROM
        context.known = symbols

    def _check_rules(self, dims: Array, is_open: Callable[[int, int], bool]) -> None:
        """Whether sizes broadcast to others or equal them where they must."""
        image = self.image
        found, wanted = dims[image.checks[:, 0]], dims[image.checks[:, 1]]
        wrong = image.checks[(found != 1) & (found != wanted)]
        different = image.equalities[dims[image.equalities[:, 0]] != dims[image.equalities[:, 1]]]
        texts = image.dim_texts
        for size, other in different.tolist():
            if not is_open(size, other):
                raise SizeConflict(f"{texts[size]} is {dims[size]}, but {texts[other]} is {dims[other]}: they must agree")
        for size, target in wrong.tolist():
            if not is_open(size, target):
                raise SizeConflict(f"{texts[size]} is {dims[size]}, which does not broadcast to {dims[target]}")

    def arena_bytes(self, context: RunMemory) -> int:
        """What all buffers of the arena take together, for the sizes a context was set up for."""
        return int(self._layout.bytes_of(context.dims).sum())

    def place(self, context: RunMemory) -> None:
        """Give every buffer of the arena its place, and constants theirs."""
        known, context.known = context.known, None  # memory that cannot be had leaves a context that is set up for nothing
        assert known is not None
        offsets, total = self._layout.place(known, context.dims)
        _ = self.constants  # they have their places now
        bases = context.bases = self._fixed_bases.copy()
        self._layout.assign(bases, context.arena.fit(total), offsets)
        if len(self._fault_buffers):
            bases[self._fault_buffers] = address_of(context.faults)
        context.late_used = 0
        if len(self._state_buffers):
            self.place_states(context)
        context.known = known

    def place_states(self, context: RunMemory) -> bool:
        """Give state buffers the memory of the context's states, which may have moved since the last run; whether it has."""
        if context.states is None:
            names = ", ".join(repr(identity) for identity, _ in self.image.states)
            raise errors.EngineError(f"the program keeps {names} from run to run: run it with a StateSet")
        sizes, growth = context.dims[self._state_sizes].tolist(), self._state_growth.tolist()
        found = [
            context.states.fit(identity, dtype, size, grows=bool(grows))
            for (identity, dtype), size, grows in zip(self.image.states, sizes, growth)
        ]
        if context.bases[self._state_buffers].tolist() == found:
            return False
        context.bases[self._state_buffers] = found
        return True

    def place_late(self, context: RunMemory, members: tuple[int, ...]) -> None:
        """Give a place to buffers whose sizes became known in the middle of a run; what has its place keeps it."""
        assert context.known is not None
        layout = self._late_layouts.get(members)
        if layout is None:
            layout = self._late_layouts[members] = ArenaLayout(self.image, members, self.pool.workers)
        if context.late_used == len(context.late):
            context.late.append(Arena())
        offsets, total = layout.place(context.known, context.dims)
        layout.assign(context.bases, context.late[context.late_used].fit(total), offsets)
        context.late_used += 1

    def fill_addresses(self, context: RunMemory) -> None:
        """Write the addresses of all buffers into the table."""
        if len(self.address_slots):
            context.table[self.address_slots] = context.bases[self.address_buffers] + context.dims[self.address_offsets]

    def raise_fault(self, context: RunMemory) -> None:
        """Raise what kernels reported in the run before, if anything: the first bad element, on any number of workers."""
        if self.image.faults and context.faults[1]:
            _, code, _, found, limit = context.faults.tolist()
            context.faults[:] = 0
            node, text = self.image.faults[code - 1]
            raise errors.BadNodeInput(f"{node}: {text.format(found=found, limit=limit, low=-limit, high=limit - 1)}")
