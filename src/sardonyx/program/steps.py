"""What lowering produces: steps that run kernels on views of buffers.

A buffer is a piece of memory; a view is a tensor in it (offset, shape, strides in elements). Sizes are dimensions: numbers
or expressions, evaluated when the sizes of a run are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Protocol, TypeAlias, Union

from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node, Value
from sardonyx.program.constants import Constant
from sardonyx.records import dataclass

FAULT_ENTRIES = 5  # 64-bit numbers of a fault record: lock, code, position, what was found, what was allowed


class Kernel(Protocol):
    """A specification of machine code. Equal keys mean equal code; `codegen.emit` knows how to write each class."""

    @property
    def key(self) -> str: ...


class Storage(Enum):
    """Who owns the memory of a buffer, and how long it lasts."""

    ARENA = "arena"  # the run's context; those whose lifetimes do not touch share memory
    INPUT = "input"  # the caller's
    OUTPUT = "output"  # an array made for the caller
    CONSTANT = "constant"  # the weight store's, or a mapped file's; never written
    HOST = "host"  # what a host step has made
    FAULT = "fault"  # where kernels report bad data; the context's
    STATE = "state"  # a StateSet's: mutable, outlives the run, shared by programs
    WORKER = "worker"  # scratch of a step, a part for each worker; in the arena


class Growth(Enum):
    """What happens when a run needs more of a state than there is; its content stays."""

    FIXED = 0  # an error
    GEOMETRIC = 1  # memory grows by half at least, so that appending costs little


@dataclass(frozen=True, slots=True)
class State:
    """What a state buffer holds. Programs that name the same identity work on the same memory."""

    identity: str
    growth: Growth = Growth.FIXED


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory. `size` counts elements (for each worker, if every one has a part of its own)."""

    storage: Storage
    dtype: DType
    size: Dim
    label: str = ""
    constant: Constant | None = None  # what it holds, if that is the same in every run
    value: Value | None = None  # input, output, host: the graph value that lives here
    state: State | None = None  # of state buffers

    def __repr__(self) -> str:
        return f"<{self.storage.value} {self.label or hex(id(self))}: {self.dtype.name}[{self.size}]>"


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a buffer."""

    buffer: Buffer
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return all(
            size == 1 or stride == expected for size, stride, expected in zip(self.shape, self.strides, row_major(self.shape))
        )

    def coincides(self, other: View) -> bool:
        """Whether the elements of another view of this shape lie where its own do; the stride of a single one means nothing."""
        strides = zip(self.shape, self.strides, other.strides)
        is_same_start = self.buffer is other.buffer and self.offset == other.offset
        return is_same_start and all(size == 1 or mine == theirs for size, mine, theirs in strides)

    @property
    def address(self) -> Address:
        """Where the first element lies."""
        return Address(self.buffer, self.offset * (self.buffer.dtype.bits // 8))


@dataclass(frozen=True, slots=True)
class Address:
    """Kernel argument: where a buffer lies, plus an offset in bytes."""

    buffer: Buffer
    offset: Dim = 0


Argument: TypeAlias = Union[Address, Dim]


@dataclass(eq=False, slots=True)
class KernelStep:
    """One kernel call over a parallel range of `units`. `work` estimates its cost in nanoseconds on one core."""

    kernel: Kernel
    arguments: tuple[Argument, ...]
    units: Dim
    work: Dim
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    label: str
    nodes: tuple[str, ...]
    in_place: tuple[tuple[Buffer, Buffer], ...] = ()  # (read, written): may be the same memory if the read one dies here
    decides: tuple[KernelStep, ...] = ()  # steps whose unit counts it writes; further arguments tell it where they stand
    operand_sizes: tuple[tuple[Dim, Dim], ...] = ()  # (of an operand, of the loop): the first must turn out 1 or as the second
    flops: Dim = 0  # floating-point operations, a multiply-add counted as two; 0 for kernels that only move data
    # So many steps, this one the last of them, are done again while the number that its first argument points to is not 0. It has
    # one unit, and all that these steps touch among what it reads; they do their `flops` in all rounds together.
    stretch: int = 0


@dataclass(eq=False, slots=True)
class HostNodeStep:
    """A node computed by Python between native steps."""

    node: Node
    inputs: tuple[View | None, ...]
    outputs: tuple[View | None, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    captured: tuple[tuple[Value, View], ...] = ()  # native values its subgraphs read


@dataclass(eq=False, slots=True)
class SizeStep:
    """Numbers that a kernel has found become sizes, which all later steps may use.

    `counts` holds i64 numbers, one for each of `sizes`. A size that is a symbol without a value yet gets its value here.
    """

    counts: Buffer
    sizes: tuple[Dim, ...]
    label: str
    nodes: tuple[str, ...]

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return (self.counts,)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return ()


Step: TypeAlias = Union[KernelStep, HostNodeStep, SizeStep]


@dataclass(frozen=True, slots=True)
class Fault:
    """Bad data a kernel may meet: the node it works for, and a text with fields for what was `{found}` and the `{limit}`."""

    node: str
    text: str


@dataclass(slots=True)
class Lowered:
    """A graph turned into steps."""

    steps: list[Step] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)  # for each step, the group it was made for
    inputs: list[View] = field(default_factory=list)
    outputs: list[View] = field(default_factory=list)
    checks: list[tuple[Dim, Dim]] = field(default_factory=list)  # broadcast: the first must be 1 or the second at run time
    equalities: list[tuple[Dim, Dim]] = field(default_factory=list)  # must be equal at run time
    faults: list[Fault] = field(default_factory=list)  # fault code n, counted from 1, means faults[n - 1]
    shared: list[tuple[Buffer, Buffer]] = field(default_factory=list)  # an input and an output that may be the same memory
    savings: list[tuple[Dim, Dim]] = field(default_factory=list)  # see `LowerContext.note_saving`
    regions: list[Any] = field(default_factory=list)  # for each step, the sides of Ifs it is on
    whole_ifs: set[Node] = field(default_factory=set)  # Ifs that must stay whole: what runs on one side only must not decide all


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The strides of a tensor without gaps."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def whole(buffer: Buffer, shape: Sequence[Dim]) -> View:
    """A buffer seen as one contiguous tensor."""
    return View(buffer, tuple(shape), row_major(shape))


def element_count(shape: Sequence[Dim]) -> Dim:
    """How many elements a shape has."""
    return product(list(shape))


def distinct(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Each buffer once."""
    return tuple(dict.fromkeys(buffers))
