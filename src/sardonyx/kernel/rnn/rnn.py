"""Recurrent layers: all time steps of RNN, GRU or LSTM in one kernel.

The products of the inputs with their weights are there already, for all times. Each time step makes one or two passes over the
hidden units, a vector of them (a block) at a time:

    total(g)   :=  state * recurrent weights, for every gate of the pass
    slot       :=  expressions of total(g), projected(g), state(slot), vector(n), given(n), at this block

Slot 0 is the hidden state; it has two planes, one that is read and one that is written, and they change places after every
step. All other slots are read and written in place. Slot 0 may be `wide`, a row of several parts of the hidden size each: the
depth of its product is that of all parts (the gradient of an LSTM multiplies those of four gates). Rows (sequences) do not
depend on each other; the parallel range counts directions * rows, and a worker takes all its rows through a pass together, so
that they share the weights.

A layer with so few rows that workers would have nothing to do, but many hidden units, can be cut the other way: kernels that do
one part each (values enter the state; one pass at one time; values leave). Then the parallel range of a pass counts directions *
blocks, and that of the others directions * rows. The kernels of the passes are called again for every time, which a counter has
(`kernel.indexing.rounds`).

One sequence alone waits for its weights to come from a cache. So its inputs are multiplied in the kernel (`ahead`): those of the
next few times, a window, together with the state, while multipliers have nothing else to do (`codegen.rnn.inputs_ahead`).

Rows whose sequences have ended are left out where a tile has no others: they keep their states, and give zeros.

Sums run over the depth in one order, whatever the number of rows: the result does not depend on how rows or blocks are divided.

Layouts (lanes = elements of a vector; the last block is filled up):

    projected   [.., direction, block, gate, lane] at a time and row
                (ahead: [direction, time modulo two windows, gate, block, lane])
    input_weights   ahead, of a gate: [direction, block, depth, lane]; bias [direction, block, gate, lane]
    weights     of a pass: [direction, block, depth, gate, lane]; `halved` ones are two such, of half of the gates each
    vectors     [direction, block, lane]
    state       [plane, direction, row, part, block, lane], planes: hidden, hidden, slot 1, slot 2, ...
    given, traces   read and written at a time, direction and row: [.., hidden], consecutive elements

Recurrent weights may be bytes (`is_quantized`, layers of one pass): [direction, block, quad of the depth, gate, lane, 4], with
scales, sums of distances to zero points, and zero points of columns [direction, block, gate, lane]. Before every step the hidden
state is quantized by the range of all rows, into one more plane; the products are sums of integers. The parallel range counts
directions then, unless workers share the hidden units: a kernel before that of the pass makes the bytes.
"""

from __future__ import annotations

from typing import Final

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, Field, address, addresses, number, tensor, tensors
from sardonyx.kernel.expr import Expr, canonical
from sardonyx.records import dataclass
from sardonyx.target.target import Target
from sardonyx.target.tiles import product_rows

MOST_SUMS: Final = 24  # vectors of sums in a tile: more gain nothing
MOST_ROWS: Final = MOST_SUMS  # no tile is higher
_LOW: Final = 3  # rows: lower tiles read their weights too often


def total(gate: int, type: str) -> Expr:
    """The product of the state with a gate's weights at this place."""
    return Expr("total", type, (), gate)


def projected(gate: int, type: str) -> Expr:
    """The product of the inputs with a gate's weights, with the bias."""
    return Expr("projected", type, (), gate)


def state(slot: int, type: str) -> Expr:
    """What a slot holds before this pass stores to it."""
    return Expr("state", type, (), slot)


def vector(number: int, type: str) -> Expr:
    """A weight of this hidden unit."""
    return Expr("vector", type, (), number)


def given(number: int, type: str) -> Expr:
    """What a tensor of the outside has for this time, row and hidden unit."""
    return Expr("given", type, (), number)


def running() -> Expr:
    """Whether the sequence has not ended yet."""
    return Expr("running", "bool")


@dataclass(frozen=True)
class RecurrentPass:
    """One pass over the hidden units: a slot times the weights gives the gates, of which expressions are computed and stored."""

    source: int  # slot whose product with the weights is taken
    gates: int
    stores: tuple[tuple[int, Expr], ...]  # slot := expression; several of slot 0 are its parts
    output: Expr | None = None  # what the layer gives at this time
    traces: tuple[Expr, ...] = ()  # what else it gives

    @cached_property
    def key(self) -> str:
        """Equal for passes with the same code."""
        roots = [value for _, value in self.stores]
        output = "" if self.output is None else canonical([self.output])
        traces = canonical(self.traces) if self.traces else ""
        return f"{self.source}:{self.gates}:{[slot for slot, _ in self.stores]}:{canonical(roots)}:{output}:{traces}"


@dataclass(frozen=True, kw_only=True)
class RecurrentKernel:
    """All that decides the code of a recurrent layer."""

    type: str  # of states and sums
    outside: str  # of initial, final and resulting values in memory
    gates: int  # in a projected row; 0: inputs have no product of their own
    vectors: int
    slots: int
    passes: tuple[RecurrentPass, ...]
    initial: tuple[bool, ...]  # for each slot that lives on from step to step, whether values are given; else it starts with 0
    final: tuple[bool, ...]  # for each of them, whether its last value is wanted
    output: bool  # whether the values of all times are wanted
    ragged: bool  # whether sequences have lengths
    rows: int  # the most there can be, as far as it matters (at most MOST_ROWS): tiles are not higher
    is_quantized: bool = False
    wide: int = 1  # parts of slot 0; if there are more than one, the hidden size is a multiple of the lanes
    given: int = 0
    # Not 0: the inputs are not multiplied yet, and have so many times at least (up to a `window`). One row, one pass.
    ahead: int = 0
    has_bias: bool = False  # of inputs that are multiplied here
    halved: bool = False  # all rows are multiplied by half of the gates' weights of a block, then by the others
    # Or "enter", "leave", "window" (the first), "bytes" (of the state at one time), or the number of a pass at one time
    part: str = "all"

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = (self.type, self.outside, self.gates, self.vectors, self.slots, self.initial, self.final)
        flags = (
            self.output,
            self.ragged,
            self.rows,
            self.is_quantized,
            self.wide,
            self.given,
            self.ahead,
            self.has_bias,
            self.halved,
            self.part,
        )
        return f"rnn|{'|'.join(map(str, (*fields, *flags)))}|{'|'.join(one.key for one in self.passes)}"

    @property
    def halves(self) -> int:
        """Parts that the gates of a pass are multiplied in."""
        return 2 if self.halved else 1

    @property
    def has_counter(self) -> bool:
        """Whether it is given the counter of times."""
        return self.part in ("enter", "bytes") or self.part.isdigit()

    @property
    def _projected(self) -> list[Field]:
        if not self.ahead:
            return [tensor("projected", 3)] if self.gates else []  # strides: time, row, direction
        ring, inputs = tensor("projected", 1), tensor("inputs", 1)  # strides: direction; time
        return [ring, inputs, number("input_size"), addresses("input_weights", self.gates), addresses("bias", self.has_bias)]

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            number("steps"),
            number("rows"),
            number("hidden"),
            number("backwards"),  # whether direction 0 runs backwards (direction 1 then does not exist, or is the other way)
            *self._projected,
            tensor("state", 1),  # stride of a plane
            addresses("weights", len(self.passes) * self.halves),
            addresses("vectors", self.vectors),
            addresses("columns", 3 if self.is_quantized else 0),  # scales, sums of distances, zero points
            *([tensor("result", 3)] if self.output else []),  # time, direction, row
            tensors("given", self.given, 3),  # time, direction, row
            tensors("traces", sum(len(one.traces) for one in self.passes), 3),
            tensors("initial", sum(self.initial), 2),  # of those slots that have them: direction, row
            tensors("final", sum(self.final), 2),
            *([address("lengths"), address("record"), number("code")] if self.ragged else []),
            *([address("counter")] if self.has_counter else []),
        )


def tile_sizes(gates: int, target: Target) -> tuple[int, int, int]:
    """(blocks at once for one row; blocks at once for more rows; the most rows of a tile) that registers have room for."""
    alone = max(8 // gates, 1)
    together = 2 if gates == 1 else 1
    vectors = gates * together
    return alone, together, min(product_rows(target, vectors), MOST_SUMS // vectors)


def halves_gates(gates: int, target: Target) -> bool:
    """Whether tiles of all gates would be so low for want of registers that half of the gates at a time are better."""
    return gates % 2 == 0 and tile_sizes(gates, target)[2] < _LOW <= tile_sizes(gates // 2, target)[2]


def window(gates: int, target: Target) -> int:
    """Times whose inputs are multiplied together: as many as a tile of one row has vectors."""
    return tile_sizes(gates, target)[0] * gates
