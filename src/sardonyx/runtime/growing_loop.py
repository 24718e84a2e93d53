"""What the iterations of a Loop read whose carried values change their sizes, as the tokens of a decoder that grow by one.

The sizes that an iteration takes tell the sizes of what it gives, which the next one takes; no data is needed for that. So the
entries of the table that change from one iteration to the next are known beforehand, for a *stretch* of iterations: a row for
each, which the driver writes into the table when the iteration before is done (see `codegen.driver`). Memory is planned for the
largest sizes of a stretch. A stretch ends where memory would have doubled, so that what is taken is in proportion to what is
needed, however early a loop ends and however fast its values grow. What sizes give is kept for later calls that begin with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.program.image import PARALLEL_FROM
from sardonyx.records import dataclass
from sardonyx.runtime.native_core import NativeCore, SizeConflict

if TYPE_CHECKING:
    from sardonyx.runtime.executable import RunContext

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]
Fits = Callable[[Sequence[tuple[int, ...]]], bool]

_FIRST: Final = 32  # iterations of a first stretch
_MOST: Final = 512
_ROOM: Final = 1 << 16  # bytes that a stretch may take beyond twice what its first iteration does
_KEPT_ENTRIES: Final = 1 << 18  # of the rows of all stretches that a context keeps


@dataclass(slots=True)
class Stretch:
    """Iterations in a row whose sizes are known."""

    taken: list[Shapes]  # by each of them, and by the one behind them
    given: list[Shapes]
    symbols: tuple[int, ...]  # of the last
    dims: Array  # one row an iteration
    most: Array  # of each dim
    table: Array  # what the first one reads
    slots: Array  # table positions of entries that change, and at the end those of addresses
    rows: Array  # the values of these, one row an iteration
    nanoseconds: int  # an iteration takes, estimated
    is_small: bool  # no step of it gains from a second worker

    def __len__(self) -> int:
        return len(self.given)


class Stretches:
    """What the sizes of a loop's iterations are, by the sizes they begin with: one for each context."""

    def __init__(
        self,
        core: NativeCore,
        carried: Sequence[tuple[int, int]],
        results: Sequence[tuple[Sequence[int], Any]],
    ) -> None:
        self._core = core
        self._carried = carried  # input, and which output the next iteration takes for it
        self._results = results  # numbers of dims, element type
        self._kept: dict[tuple[Shapes, tuple[int, ...]], Stretch] = {}
        self._entries = 0

    def knows(self, shapes: Shapes, data_dependent: tuple[int, ...]) -> bool:
        """Whether a call began with these sizes before."""
        return (shapes, data_dependent) in self._kept

    def beginning(
        self, context: RunContext, shapes: Shapes, data_dependent: tuple[int, ...], fits: Fits, done: int, trips: int
    ) -> Stretch | None:
        """The next iterations, whose first takes these shapes; None if that one cannot be computed like this.

        `fits` says of what an iteration gives whether the loop can go on with it. It is not kept: it is the loop's, whose
        contexts keep this.
        """
        found = self._kept.get((shapes, data_dependent))
        if found is None:
            most = min(max(_FIRST, done), _MOST, trips - done)
            found = self._made(context, shapes, data_dependent, fits, most)
            if found is None:
                return None
            self._entries += found.dims.size + found.rows.size
            if self._entries > _KEPT_ENTRIES:
                self._kept.clear()
                self._entries = found.dims.size + found.rows.size
            self._kept[shapes, data_dependent] = found
        return found

    def _made(self, context: RunContext, first: Shapes, data_dependent: tuple[int, ...], fits: Fits, most: int) -> Stretch | None:
        core, shapes = self._core, first
        taken = [first]
        symbols: tuple[int, ...] = ()
        given: list[Shapes] = []
        dims: list[Array] = []
        tables: list[Array] = []
        room = 0
        while len(given) < most:
            try:
                known = core.symbols(shapes, data_dependent)
                core.evaluate(context, known)
                core.check_inputs(context, shapes)
            except SizeConflict:
                break
            sizes = context.sizes
            outputs = tuple([tuple([sizes[number] for number in numbers]) for numbers, _ in self._results])
            if not fits(outputs):
                break
            needed = core.arena_bytes(context) + sum([prod(s) * dtype.itemsize for s, (_, dtype) in zip(outputs, self._results)])
            if given and needed > room:
                break
            room = room or 2 * needed + _ROOM
            after = list(shapes)
            for number, output in self._carried:
                after[number] = outputs[output]
            shapes = tuple(after)
            symbols = known
            taken.append(shapes)
            given.append(outputs)
            dims.append(context.dims)
            tables.append(context.table.copy())
        context.known = None
        if not given:
            return None
        all_tables, all_dims = np.array(tables), np.array(dims)
        changes = (all_tables != all_tables[0]).any(axis=0)
        changes[core.address_slots] = False
        slots = np.concatenate([np.flatnonzero(changes), core.address_slots, [len(changes) - 1]])
        work = all_dims[:, core.work_numbers]
        return Stretch(
            taken,
            given,
            symbols,
            all_dims,
            all_dims.max(axis=0),
            all_tables[0],
            slots,
            np.ascontiguousarray(all_tables[:, slots]),
            int(work.sum(axis=1).max()),
            not (work >= 2 * PARALLEL_FROM).any(),
        )


def write_rows(
    core: NativeCore, context: RunContext, stretch: Stretch, columns: Sequence[int], ports: Array, condition: Array
) -> None:
    """Give a stretch memory, and write what each of its iterations reads.

    `columns` are those of the core's addresses whose buffers the caller has, `ports` where these lie, a row for each column.
    Addresses are written anew for each call: its inputs lie elsewhere, and so may the arena.
    """
    context.known = stretch.symbols
    context.dims = stretch.most
    core.place(context)
    context.known = None
    context.table[:] = stretch.table
    context.alone = core.pool.workers == 1 or stretch.is_small
    addresses = stretch.rows[:, -1 - len(core.address_slots) : -1]
    addresses[:] = context.bases[core.address_buffers] + stretch.dims[:, core.address_offsets]
    addresses[:, columns] += ports.T
    stretch.rows[:, -1] = condition
