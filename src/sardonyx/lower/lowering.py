"""What lowering rules work with: every value a view, steps written one after the other.

Views of weights and inputs exist from the start; a group's rule asks for the views of what it reads and of what it writes.
Values nobody asks for never get memory. `lower.lower_graph` goes through the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim, Expectation, ceildiv, dim_max, dim_min, is_nonnegative, symbols_of
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.tensor import Array, Tensor, from_numpy
from sardonyx.ir.types import TensorType
from sardonyx.kernel.expr import Expr, const, load
from sardonyx.kernel.indexing.write import WriteKernel
from sardonyx.lower import registry
from sardonyx.lower.branches import sides
from sardonyx.lower.candidates import Chooser
from sardonyx.lower.copying import copy_steps, is_transposed
from sardonyx.lower.derived import label_of, part_of
from sardonyx.lower.groups import Group, Grouping, Region
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.shape_values import KnownValues
from sardonyx.lower.views import sliced, transposed, without_axes
from sardonyx.program.constants import Derived, Transform, literal
from sardonyx.program.image import ALIGNMENT
from sardonyx.program.steps import (
    FAULT_ENTRIES,
    Address,
    Buffer,
    Fault,
    KernelStep,
    Lowered,
    SizeStep,
    Step,
    Storage,
    View,
    element_count,
    whole,
)
from sardonyx.target.target import Target

_Fact = TypeVar("_Fact")
_TINY: Final = 2.0**-64  # below it, quotients and remainders of floats may be no normal numbers
_COMMON_BYTES: Final = (-128, 0, 128, 255)  # zero points and bounds that many layers have


def compute_type(dtype: str) -> str:
    """The type elements are computed in: half-precision floats in f32."""
    return "f32" if dtype in ("f16", "bf16") else dtype


class LowerContext:
    """What lowering rules work with: views of values, scratch memory, the steps written so far, and checks of sizes."""

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[Value],
        target: Target,
        known: KnownValues | None = None,
        nodes: Iterable[Node] | None = None,
        inputs: Sequence[Value] | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        self.graph = graph
        self.chooser = chooser  # measures where estimates are close; None: estimates decide
        self.known = known or KnownValues([], [])
        self.target = target
        self.lowered = Lowered()
        self.group: Group | None = None  # the one being lowered
        self._views: dict[Value, View] = {}
        self.row_sums: dict[Value, View] = {}  # of images whose means are wanted (`lower.conv.row_sums`)
        self.inputs = list(graph.inputs if inputs is None else inputs)  # with those a body takes from around it
        self._inputs = set(self.inputs)
        self._outputs = set(outputs)
        self._packed: dict[Derived, View] = {}
        self._made: dict[tuple[tuple[Value, str], Region], list[View]] = {}
        self._region: Region | None = None  # where steps belong that are not made for the group's own nodes
        self._kept: set[Value] = set()  # results of the sides of Ifs
        self.switches: list[tuple[Group, View]] = []  # Ifs, and where their conditions lie
        self._faults = Buffer(Storage.FAULT, dtypes.INT64, FAULT_ENTRIES, "faults")
        # Nodes of the graph that do not run, because nobody needs their results or everything is known about them.
        self._idle = set(graph.nodes).difference(nodes) if nodes is not None else set()
        self._facts: dict[Callable[[Graph], Any], Any] = {}  # of the graph
        self._not_empty: dict[tuple[Dim, ...], Dim] = {}  # sizes of buffers: 1, or 0 where all of them are

    def of_graph(self, fact: Callable[[Graph], _Fact]) -> _Fact:
        """What a function finds in the whole graph, which stays as it is while it is lowered: looked for once."""
        if fact not in self._facts:
            self._facts[fact] = fact(self.graph)
        found: _Fact = self._facts[fact]
        return found

    @property
    def region(self) -> Region:
        """The sides of Ifs that the next step is on."""
        if self._region is not None:
            return self._region
        return self.group.region if self.group is not None else ()

    def keep(self, node: Node, grouping: Grouping) -> None:
        """The results of both sides of this If are needed."""
        for _, graph in sides(node):
            self._kept.update(graph.outputs)
            self._idle.update(each for each in graph.nodes if each not in grouping.group_of)

    # Values and memory

    def shape(self, value: Value) -> tuple[Dim, ...]:
        """The shape of a native value."""
        assert value.shape is not None, value
        return value.shape

    def dtype(self, value: Value) -> DType:
        """The element type of a native value."""
        assert isinstance(value.type, TensorType), value
        return value.type.dtype

    def constant_data(self, value: Value | None) -> Tensor | None:
        """The data of a value that is the same in every run; None if it is computed or fed."""
        if value is None or value in self._inputs:
            return None
        return value.constant if isinstance(value.constant, Tensor) else None

    def view(self, value: Value) -> View:
        """Where a value lies in memory."""
        found = self._views.get(value)
        if found is None:
            found = self._existing(value)
            # What one side writes, the others cannot read.
            if not self.region or found.buffer.storage in (Storage.CONSTANT, Storage.INPUT):
                self._views[value] = found
        return found

    def elements(self, value: Value | None) -> tuple[Dim, ...] | None:
        """The elements of a small tensor of whole numbers, each a number or a size; None if they are not known."""
        return self.known.elements(value)

    def integers(self, value: Value | None) -> tuple[int, ...] | None:
        """The elements of a small tensor of whole numbers that are the same in every run; None if they are not known."""
        found = self.known.elements(value) or ()
        numbers = tuple(item for item in found if isinstance(item, int))
        return numbers if len(numbers) == len(found) and self.known.elements(value) is not None else None

    def _existing(self, value: Value) -> View:
        if value.constant is not None and value not in self._inputs:
            constant = value.constant if isinstance(value.constant, Tensor) else from_numpy(value.constant.numpy())
            buffer = Buffer(Storage.CONSTANT, self.dtype(value), element_count(self.shape(value)), value.name, constant, value)
            return whole(buffer, self.shape(value))
        if value not in self._inputs and self.known.is_known(value):
            return self._known_view(value)
        if value not in self._inputs:
            raise errors.EngineError(f"{value.name!r} is read before anything has computed it")
        buffer = Buffer(Storage.INPUT, self.dtype(value), element_count(self.shape(value)), value.name, None, value)
        return whole(buffer, self.shape(value))

    def _known_view(self, value: Value) -> View:
        """Memory for the elements of a value whose node does not run."""
        shape, dtype = self.shape(value), self.dtype(value)
        data = self.known.array(value)
        if data is not None:
            return whole(Buffer(Storage.CONSTANT, dtype, data.size, value.name, from_numpy(data), value), shape)
        elements = self.known.elements(value)
        assert elements is not None, value
        view = self.scratch(dtype, shape, value.name) if self.region else self.output(value)
        self._write(view, elements, value.name)
        return view

    def _write(self, view: View, elements: Sequence[Dim], label: str) -> None:
        kernel = WriteKernel(type=view.buffer.dtype.name, count=len(elements))
        arguments = kernel.arguments.entries(target=Address(view.buffer), elements=elements)
        self.step(KernelStep(kernel, arguments, 1, len(elements), (), (view.buffer,), "sizes", (f"sizes {label!r}",)))

    def sizes(self, elements: Sequence[Dim], label: str) -> View:
        """Sizes as a tensor of i64 that expressions can load."""
        numbers = [item for item in elements if isinstance(item, int)]
        if len(numbers) == len(elements):
            return self.literal(np.array(numbers, np.int64))
        view = self.scratch(dtypes.INT64, (len(elements),), label)
        self._write(view, elements, label)
        return view

    def has_view(self, value: Value) -> bool:
        """Whether it is settled where a value lies."""
        return value in self._views

    def is_output(self, value: Value) -> bool:
        """Whether the value is a result of the program."""
        return value in self._outputs

    def set_view(self, value: Value, view: View) -> None:
        """Say that a value is this part of existing memory. A graph output gets memory of its own and a copy."""
        if len(view.shape) != len(self.shape(value)):
            raise errors.EngineError(f"{value.name!r} of shape {self.shape(value)} as a view of shape {view.shape}")
        for size, wanted in zip(view.shape, self.shape(value)):  # readers go by the shape of the value
            self.check_at_most(wanted, size)
            self.check_at_most(size, wanted)
        self._views[value] = view

    def output(self, value: Value, order: Sequence[int] | None = None) -> View:
        """Memory for a value a step will write; with its axes in this order, if nobody else has a say in that."""
        found = self._views.get(value)
        if found is not None:
            return found
        storage = Storage.OUTPUT if value in self._outputs else Storage.ARENA
        shape = self.shape(value)
        buffer = Buffer(storage, self.dtype(value), element_count(shape), value.name, None, value)
        if order is None or storage is Storage.OUTPUT:
            view = whole(buffer, shape)
        else:
            stored = whole(buffer, [shape[axis] for axis in order])
            view = transposed(stored, tuple(order.index(axis) for axis in range(len(shape))))
        self._views[value] = view
        return view

    def scratch(self, dtype: DType, shape: Sequence[Dim], label: str = "scratch") -> View:
        """Memory for something that is no value of the graph."""
        return whole(Buffer(Storage.ARENA, dtype, element_count(shape), label), shape)

    def worker_scratch(self, dtype: DType, size: Dim, label: str = "worker's scratch") -> Buffer:
        """Memory for each worker of one step, of at least so many elements: its size is the distance from one's to the next's."""
        line = ALIGNMENT * 8 // dtype.bits
        return Buffer(Storage.WORKER, dtype, ceildiv(size, line) * line, label)

    def packed(
        self,
        transform: Transform,
        sources: Sequence[View | None],
        *parameters: Any,
        dtype: DType,
        shape: Sequence[int],
    ) -> View:
        """What a transform makes of constants and parameters, of this type and shape: made once (see `program.constants`)."""
        parts = tuple(None if view is None else part_of(view) for view in sources)
        derived = Derived(transform, parts, parameters, dtype, tuple(shape), self.target.packing)
        found = self._packed.get(derived)
        if found is None:
            buffer = Buffer(Storage.CONSTANT, dtype, element_count(derived.shape), label_of(derived, sources), derived)
            found = self._packed[derived] = whole(buffer, derived.shape)
        return found

    def literal(self, array: Array) -> View:
        """A constant with this content."""
        dtype = dtypes.from_numpy(array.dtype)
        return self.packed(literal, (), array.tobytes(), array.shape, dtype, dtype=dtype, shape=array.shape)

    def contiguous(self, value: Value) -> View:
        """A view without gaps; copies if the value lies otherwise."""
        view = self.view(value)
        if view.is_contiguous:
            return view

        def copied() -> list[View]:
            return [self.copy(view, self.scratch(view.buffer.dtype, view.shape, value.name), "copy")]

        return self.once((value, "contiguous"), copied)[0]

    def once(self, key: tuple[Value, str], make: Callable[[], list[View]]) -> list[View]:
        """What the steps of `make` write, from a value; made where it is first asked for and by whoever asks for the same."""
        region = self.region
        for depth in range(len(region) + 1):  # what was made on one side does not exist for the other
            found = self._made.get((key, region[:depth]))
            if found is not None:
                return found
        made = self._made[key, region] = make()
        return made

    def untransposed(self, value: Value) -> View:
        """A view that a loop over the value's shape can walk along: a transposed one is copied, which is faster in the end."""
        view = self.view(value)
        return self.contiguous(value) if is_transposed(view, self.target) else view

    def materialise_broadcasts(self, group: Group) -> dict[Value, View]:
        """Give the inputs of a template memory for every element of their last axis; returns the views they had before.

        A constant that an Expand or ConstantOfShape repeats is one element seen many times: loops can walk over that, kernels
        that load vectors of the last axis cannot.
        """
        assert group.root is not None
        before: dict[Value, View] = {}
        for value in group.root.inputs:
            view = self._views.get(value) if value is not None else None
            if value is not None and view is not None and view.shape and view.strides[-1] == 0 and view.shape[-1] != 1:
                before[value] = view
                self._views[value] = self.contiguous(value)
        return before

    def copy(self, source: View, target: View, label: str) -> View:
        """Write one view into another of the same shape."""
        for step in copy_steps(source, target, machine=self.target, label=label):
            self.step(step)
        return target

    # Steps

    def step(self, step: Step) -> None:
        """The next step of the program."""
        if isinstance(step, KernelStep):
            self._check_operands(step)
            step.units = step.units * self._writes_anything(step)
        self.lowered.steps.append(step)
        self.lowered.groups.append(self.group)
        self.lowered.regions.append(self.region)

    @contextmanager
    def if_one(self, condition: Dim) -> Iterator[None]:
        """Steps of the body do their work in runs in which a size, which is 0 or 1, is 1.

        Whatever they write is written by others otherwise, so it shares no memory with what they read.
        """
        first = len(self.lowered.steps)
        yield
        for number, step in enumerate(self.lowered.steps[first:], first):
            assert isinstance(step, KernelStep), step
            self.lowered.steps[number] = replace(step, units=step.units * condition, work=step.work * condition, in_place=())

    def mark(self) -> tuple[int, ...]:
        """How far lowering has come, for `back_to`."""
        return tuple(len(each) for each in self._growing())

    def back_to(self, mark: tuple[int, ...]) -> None:
        """Forget the steps, checks and views that an attempt has made since the mark."""
        for growing, length in zip(self._growing(), mark):
            if isinstance(growing, dict):
                while len(growing) > length:
                    growing.popitem()  # the one added last
            else:
                del growing[length:]

    def _growing(self) -> tuple[list[Any] | dict[Any, Any], ...]:
        made = self.lowered
        lists = (made.steps, made.groups, made.regions, made.checks, made.equalities, made.faults, made.shared, made.savings)
        return (*lists, self._views, self._made)

    def _check_operands(self, step: KernelStep) -> None:
        """Note the sizes of operands that a loop relies on."""
        for size, wanted in step.operand_sizes:
            if isinstance(size, int) and isinstance(wanted, int):
                raise errors.EngineError(f"{step.label}: an operand of size {size} in a loop of size {wanted}")
            self.lowered.checks.append((size, wanted))

    def _writes_anything(self, step: KernelStep) -> Dim:
        """1, or 0 in runs in which nothing that a step writes has elements: its other axes may then be of any length."""
        sizes = tuple([each.size for each in step.writes if each.storage is not Storage.WORKER])
        if isinstance(step.units, int) or not sizes or any(isinstance(size, int) for size in sizes):
            return 1
        symbols = symbols_of(step.units).union(*map(symbols_of, sizes))
        if len(symbols) == 1:
            return 1  # where that is 0 there are no units
        found = self._not_empty.get(sizes)
        if found is None:
            found = self._not_empty[sizes] = dim_min(sum(sizes[1:], sizes[0]), 1)
        return found

    def only_here(self) -> None:
        """What follows cannot depend on an If: if it is on a side of one, that must stay whole."""
        self.lowered.whole_ifs.update(node for node, _ in self.region[:1])

    @contextmanager
    def on_side(self, node: Node, side: bool) -> Iterator[None]:
        """Steps made meanwhile run only if the condition of an If is this."""
        assert self.group is not None
        self._region = (*self.group.region, (node, side))
        try:
            yield
        finally:
            self._region = None

    def bind_sizes(self, counts: View, sizes: Sequence[Dim], node: Node) -> None:
        """From here on these sizes are what stands in a tensor of i64 with as many elements."""
        if not counts.is_contiguous or counts.offset != 0:
            counts = self.copy(counts, self.scratch(dtypes.INT64, counts.shape, "sizes"), "copy")
        self.only_here()
        self.step(SizeStep(counts.buffer, tuple(sizes), f"sizes of {node.op_type}", (node.label,)))

    def check_broadcast(self, shape: Sequence[Dim], target: Sequence[Dim]) -> None:
        """Note what must hold of sizes that are not known yet so that a shape broadcasts to another."""
        for size, wanted in zip(reversed(shape), reversed(target)):
            if size not in (wanted, 1):
                self.only_here()
                self.lowered.checks.append((size, wanted))

    def check_equal(self, size: Dim, other: Dim) -> None:
        """Note two sizes that must turn out to be equal at run time."""
        if size != other:
            self.only_here()
            self.lowered.equalities.append((size, other))

    def note_saving(self, beyond: Dim, saved: Dim) -> None:
        """Note how many nanoseconds some steps may take that are written for any sizes, by those of a run.

        `beyond` their estimated work, and how many of these would be `saved` by steps that are written for just these sizes.
        """
        self.lowered.savings.append((beyond, saved))

    def check_at_most(self, size: Dim, limit: Dim) -> None:
        """Note a size that must not turn out larger than another.

        That is so wherever the sizes of inputs do not contradict each other, so no If has to stay whole for it.
        """
        if is_nonnegative(limit - size):
            return
        if isinstance(size, int) and isinstance(limit, int):
            raise errors.EngineError(f"a part of {size} elements does not lie in the {limit} there are")
        self.lowered.equalities.append((dim_max(size, limit), limit))

    def part(self, view: View, axis: int, start: Dim, size: Dim, step: int = 1) -> View:
        """Part of an axis, as `views.sliced`; that it lies inside the view is checked."""
        limit = view.shape[axis]
        first, last = (start, start + (size - 1) * step) if step > 0 else (start + (size - 1) * step, start)
        some: Dim = 1 if step == 1 or is_nonnegative(size - 1) else dim_min(size, 1)  # nothing of it lies anywhere if it is empty
        self.check_at_most(0, some * first)
        self.check_at_most(some * (last + 1), limit)
        return sliced(view, axis, start, size, step)

    def at(self, view: View, axis: int, index: Dim) -> View:
        """What lies at one position of an axis, which is checked to be there; the axis is gone."""
        return without_axes(self.part(view, axis, index, 1), (axis,))

    def check_expectations(self, expectations: Iterable[Expectation]) -> None:
        """Note what a node's shape rule states about the sizes of its inputs (see `contracts`)."""
        for kind, size, other in expectations:
            if kind == "equal":
                self.check_equal(size, other)
            elif kind == "filled":
                self.check_at_most(other, size)
            else:
                self.check_broadcast((size,), (other,))

    def check_sizes(self, dims: Iterable[Dim]) -> None:
        """Note the sizes that could turn out negative, as those of a window larger than what it slides over."""
        for dim in dims:
            if not is_nonnegative(dim):
                self.check_equal(dim_max(dim, 0), dim)

    def check_not_empty(self, dims: Iterable[Dim]) -> None:
        """Note sizes that must not turn out to be zero."""
        for dim in dims:
            if not is_nonnegative(dim - 1):
                self.check_equal(dim_min(dim, 1), 1)

    def fault(self, node: Node, text: str) -> tuple[Address, int]:
        """Where a kernel reports bad data, and the code to report: `text` says what that means (see `Fault`)."""
        self.lowered.faults.append(Fault(node.label, text))
        return Address(self._faults), len(self.lowered.faults)

    def escaping(self, group: Group) -> list[Value]:
        """The values of a group that are used outside it: these must be stored."""
        own, idle = set(group.nodes), self._idle
        return [
            value
            for value in group.produced
            if value in self._outputs
            or value in self._kept
            or any(consumer not in own and consumer not in idle for consumer, _ in value.uses)
        ]

    def expressions(
        self, group: Group, known: dict[Value, Expr], operand: Callable[[Value], int], *, shared: bool = False
    ) -> dict[Value, Expr]:
        """The expression of every value of a group's elementwise nodes.

        `known` holds the expressions of the root's outputs; `operand` gives the operand number of a value from outside. With
        `shared`, layers that differ in numbers they have learned share a kernel: such a number is an operand, too. A rule that
        asks for `ordinary` is told which inputs are constants of positive float32 between 2**-64 and 2**64.
        """
        made = dict(known)

        def expression(value: Value) -> Expr:
            if value not in made:
                kind = self.dtype(value).name
                scalar = None if shared and self._is_learned(value) else self._scalar(value)
                leaf = scalar if scalar is not None else load(operand(value), kind)
                made[value] = leaf.cast(compute_type(kind))
            return made[value]

        for node in group.elementwise:
            rule = registry.elementwise_rule(node)
            assert rule is not None
            given = node.inputs[: registry.input_count(rule)]
            for value in given:
                if value is not None:
                    self.check_broadcast(self.shape(value), self.shape(node.outputs[0]))
            attrs = attribute_values(node)
            wanted = {name: attrs.get(name) for name in registry.keyword_names(rule)}
            if "out" in wanted:
                wanted["out"] = self.dtype(node.outputs[0]).name
            if "ordinary" in wanted:
                wanted["ordinary"] = tuple(self._is_ordinary(value) for value in given)
            inputs = [None if value is None else expression(value) for value in given]
            result = rule(*inputs, **wanted)
            made[node.outputs[0]] = result.cast(compute_type(self.dtype(node.outputs[0]).name))
        return made

    def _is_learned(self, value: Value) -> bool:
        """Whether a constant is a number with many digits, or a byte, not one that somebody has written, as 0.5 or 6."""
        data = self.constant_data(value)
        if data is None or data.size != 1:
            return False
        if self.dtype(value) in (dtypes.UINT8, dtypes.INT8):
            return int(data.numpy().reshape(-1)[0]) not in _COMMON_BYTES
        return self.dtype(value) is dtypes.FLOAT32 and bool(data.numpy().reshape(-1).view(np.uint32)[0] & 0xFFFF)

    def _is_ordinary(self, value: Value | None) -> bool:
        """Whether a value is a constant of positive float32 that are neither tiny nor huge."""
        data = self.constant_data(value)
        if value is None or data is None or not data.size or self.dtype(value) is not dtypes.FLOAT32:
            return False
        numbers = data.numpy()
        return bool((numbers >= _TINY).all() and (numbers <= 1 / _TINY).all())

    def _scalar(self, value: Value) -> Expr | None:
        """A constant of one element as a number in the code."""
        data = self.constant_data(value)
        if data is None or data.size != 1 or any(size != 1 for size in data.shape):
            return None
        kind = self.dtype(value).name
        number = data.numpy().reshape(-1)[0]
        if kind in ("f16", "bf16"):
            return const(float(number), "f32").cast(kind)
        return const(float(number) if self.dtype(value).is_float else bool(number) if kind == "bool" else int(number), kind)


def lower_loop(ctx: LowerContext, group: Group) -> None:
    """A group without a template: one loop over its shape that stores what escapes."""
    operands: list[View] = []
    numbers: dict[Value, int] = {}

    def operand(value: Value) -> int:
        if value not in numbers:
            numbers[value] = len(operands)
            operands.append(ctx.untransposed(value))
        return numbers[value]

    made = ctx.expressions(group, {}, operand)
    stores = []
    for value in ctx.escaping(group):
        number = len(operands)
        operands.append(ctx.output(value))
        stores.append((number, made[value].cast(ctx.dtype(value).name)))
    if stores:
        types = [view.buffer.dtype.name for view in operands]
        assert group.shape is not None
        ctx.step(
            loop_step(
                group.shape,
                operands,
                types,
                stores,
                target=ctx.target,
                label=group.label,
                nodes=tuple(node.label for node in group.nodes),
            )
        )
