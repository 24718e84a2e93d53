"""RNN, GRU, LSTM: one matrix product for the inputs of all times, then one kernel for the whole loop over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import BITS, FLOATS, load
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.rnn.rnn import MOST_ROWS, RecurrentKernel, halves_gates
from sardonyx.lower.derived import is_fixed, numbers
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.matmul.matmul import product_into
from sardonyx.lower.registry import template
from sardonyx.lower.rnn.cells import ACTIVATIONS, FUNCTIONS, Cell, Cells
from sardonyx.lower.rnn.inputs_ahead import inputs_ahead, times_ahead
from sardonyx.lower.rnn.shared_units import shared_steps, shares_units
from sardonyx.lower.views import transposed
from sardonyx.program.constants import Cut, transform
from sardonyx.program.steps import Address, Buffer, KernelStep, View, distinct
from sardonyx.records import dataclass
from sardonyx.target import cost

_GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DIRECTIONS: Final = {"forward": 1, "foward": 1, "reverse": 1, "bidirectional": 2}
_LENGTHS: Final = 4  # input
_TRACED: Final = {"LSTMTrace": "LSTM", "GRUTrace": "GRU"}
_HALVED_FROM: Final = 4  # sequences, if their number is known
_KEPT: Final = {"RNN": 1, "GRU": 1, "LSTM": 2}  # states that live on from step to step


def accepts_cell(node: Node) -> str:
    """Why a recurrent layer has no kernel; "" if it has."""
    attrs = attribute_values(node)
    directions = _DIRECTIONS.get(attrs.get("direction") or "forward")
    names = attrs.get("activations")
    if directions is None or (names and len(names) < directions * len(FUNCTIONS[cell_of(node)])):
        return "attributes that are not valid"
    if any(name.lower() not in ACTIVATIONS for name in names or ()):
        return "an activation without a kernel"
    recurrent = node.inputs[2]
    depth = 1 if lies_transposed(node) else 2
    if recurrent is None or recurrent.shape is None or len(recurrent.shape) != 3 or not isinstance(recurrent.shape[depth], int):
        return "a hidden size that is known only at run time"
    for value, expected in _shapes(node):
        shape = value.shape or ()
        if len(shape) != len(expected) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, expected)
        ):
            return f"{value.name!r} has a shape that does not fit"
    return ""


def _input(node: Node, position: int) -> Value | None:
    """An input, by its place in ONNX's operators; of a traced layer all sequences have the same length."""
    if node.op_type in _TRACED:
        if position == _LENGTHS:
            return None
        position -= position > _LENGTHS
    return node.inputs[position] if position < len(node.inputs) else None


def _shapes(node: Node) -> list[tuple[Value, tuple[Dim, ...]]]:
    """Every input and output but X with the shape it must have."""
    attrs = attribute_values(node)
    layout = attrs.get("layout")
    x, r = node.inputs[0], node.inputs[2]
    assert x is not None
    assert x.shape is not None
    assert r is not None
    assert r.shape is not None
    if len(x.shape) != 3:
        return [(x, (0,))]
    steps, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    hidden, gates = r.shape[1 if lies_transposed(node) else 2], _GATES[cell_of(node)]
    directions = _DIRECTIONS[attrs.get("direction") or "forward"]
    kept: tuple[Dim, ...] = (batch, directions, hidden) if layout else (directions, batch, hidden)
    weights: list[tuple[Dim, ...]] = [(directions, gates * hidden, depth) for depth in (x.shape[2], hidden)]
    if lies_transposed(node):
        weights = [(shape[0], shape[2], shape[1]) for shape in weights]
    expected: list[tuple[Dim, ...]] = [
        *weights,
        (directions, 2 * gates * hidden),
        (batch,),
        kept,
        kept,
        (directions, 3 * hidden),
    ]
    results: list[tuple[Dim, ...]] = [
        (batch, steps, directions, hidden) if layout else (steps, directions, batch, hidden),
        *[kept] * _KEPT[cell_of(node)],
    ]
    pairs = [(_input(node, position + 1), shape) for position, shape in enumerate(expected)]
    return [(value, shape) for value, shape in [*pairs, *zip(node.outputs, results)] if value is not None]


def cell_of(node: Node) -> str:
    """The operator whose cell a node computes."""
    return "LSTM" if lies_transposed(node) else _TRACED.get(node.op_type, node.op_type)


def lies_transposed(node: Node) -> bool:
    """Whether weights lie [direction, depth, gates * hidden]."""
    return node.op_type == "DynamicQuantizeLSTM"


@template("RNN", "GRU", "LSTM", types={"T": FLOATS, "T1": ("i32",)}, accepts=accepts_cell)
def recurrent(ctx: LowerContext, group: Group) -> None:
    """A recurrent layer, in one or two directions."""
    assert group.root is not None
    Layer(ctx, group, group.root).lower()


@dataclass(frozen=True)
class Gates:
    """Weights [direction, gate, hidden, depth] (several: their sum) that go to some gates of an arrangement."""

    first: int  # gate
    views: tuple[View, ...]


class Layer:
    """A recurrent layer on its way to steps."""

    def __init__(self, ctx: LowerContext, group: Group, node: Node) -> None:
        self.ctx, self.group, self.node = ctx, group, node
        self.attrs = attribute_values(node)
        self.op = cell_of(node)
        self.gates = _GATES[self.op]
        x, w, r = (ctx.view(value) for value in node.inputs[:3] if value is not None)
        if lies_transposed(node):
            w, r = (transposed(view, [0, 2, 1]) for view in (w, r))
        self.x, self.w, self.r = x, w, r
        self.type = compute_type(x.buffer.dtype.name)
        self.lanes = vector_lanes(self.type, ctx.target)
        self.layout = bool(self.attrs.get("layout"))
        self.steps, self.batch = (x.shape[1], x.shape[0]) if self.layout else x.shape[:2]
        hidden, directions = r.shape[2], _DIRECTIONS[self.attrs.get("direction") or "forward"]
        assert isinstance(hidden, int)
        self.hidden, self.directions = hidden, directions
        self.blocks = -(-hidden // self.lanes)
        self.width = self.blocks * self.lanes
        self.linear = self.op == "GRU" and bool(self.attrs.get("linear_before_reset") or node.op_type in _TRACED)
        self.lengths = _input(node, _LENGTHS)
        escaping = set(ctx.escaping(group))
        self.outputs = [value if value in escaping else None for value in node.outputs]
        self._computed: dict[Any, View] = {}  # weights that are not constant, arranged

    def lower(self) -> None:
        """The product with the inputs, then the loop over time."""
        if not any(self.outputs):
            return
        for value, expected in _shapes(self.node):
            for size, wanted in zip(self.ctx.shape(value), expected):
                self.ctx.check_equal(size, wanted)
        cells = self._cells()
        inputs = None if self.is_ahead else self.projection()
        if all(cell == cells[0] for cell in cells) and not self._shares_units(cells[0]):
            self._loop(cells[0], inputs, 0, self.directions)
        else:
            for direction, cell in enumerate(cells):
                self._loop(cell, inputs, direction, 1)

    def _cells(self) -> list[Cell]:
        cells = Cells(
            op=self.op,
            type=self.type,
            attrs=self.attrs,
            directions=self.directions,
            is_linear=self.linear,
            is_ragged=self.lengths is not None,
            has_bias=_input(self.node, 3) is not None,
            has_peepholes=self.op == "LSTM" and _input(self.node, 7) is not None,
            has_traces=bool(self.traces()),
        )
        return cells.all()

    def _shares_units(self, cell: Cell) -> bool:
        return shares_units(self, [one.gates for one in cell.passes], is_quantized=lies_transposed(self.node))

    def _halves(self, cell: Cell) -> bool:
        """Whether sequences had better be multiplied by half of the gates at a time: few make too few sums for that."""
        if self.columns() or (isinstance(self.batch, int) and self.batch < _HALVED_FROM):
            return False
        return all(halves_gates(one.gates, self.ctx.target) for one in cell.passes)

    # Weights in the order of the kernel

    def gates_of(self, view: View, gates: range, start: int = 0) -> View:
        """Gates of weights [direction, gates * hidden, ...] as [direction, gate, hidden, depth]; the first are skipped."""
        depth, stride = (view.shape[2], view.strides[2]) if len(view.shape) == 3 else (1, 1)
        row = view.strides[1]
        offset = view.offset + (start + gates.start) * self.hidden * row
        return View(
            view.buffer,
            (self.directions, len(gates), self.hidden, depth),
            (view.strides[0], row * self.hidden, row, stride),
            offset,
        )

    def arranged(self, label: str, gates: int, depth_first: bool, parts: Sequence[Gates], dtype: DType | None = None) -> View:
        """Weights as [direction, block, depth, gate, lane], or with the depth as the first axis; constant ones of any type."""
        depth = parts[0].views[0].shape[3]
        shape: tuple[Dim, ...] = (self.directions, self.blocks, depth, gates, self.lanes)
        if depth_first:
            shape = (depth, self.directions, self.blocks, gates, self.lanes)
        sources = [view for part in parts for view in part.views]
        if all(is_fixed(view) for view in sources):
            first_gates = tuple((part.first, len(part.views)) for part in parts)
            dtype = dtype or dtypes.from_name(self.type)
            return self.ctx.packed(
                _arrange_gates, sources, first_gates, gates, self.lanes, depth_first, dtype, dtype=dtype, shape=numbers(shape)
            )
        key = (gates, depth_first, *parts)
        if key in self._computed:
            return self._computed[key]
        target = self._computed[key] = self.ctx.scratch(dtypes.from_name(self.type), shape, label)
        axes = (1, 2, 3, 4, 0) if depth_first else (0, 1, 3, 4, 2)
        strides = tuple(target.strides[axis] for axis in axes)  # of direction, block, gate, lane, depth
        for part in parts:
            self._fill(target, strides, part)
        return target

    def _fill(self, target: View, strides: tuple[Dim, ...], part: Gates) -> None:
        """Steps that pack the weights into blocks of hidden units. What fills up the last block does not matter."""
        whole, rest = divmod(self.hidden, self.lanes)
        count, depth = part.views[0].shape[1], part.views[0].shape[3]
        direction, block, gate, lane, deep = strides
        for blocks, lanes, start in ((whole, self.lanes, 0), (1, rest, whole)):
            if not blocks or not lanes:
                continue
            shape = (self.directions, blocks, count, lanes, depth)
            views = []
            for view in part.views:
                by_direction, by_gate, by_row, by_depth = view.strides
                offset = view.offset + start * self.lanes * by_row
                views.append(View(view.buffer, shape, (by_direction, by_row * self.lanes, by_gate, by_row, by_depth), offset))
            at = target.offset + gate * part.first + block * start
            views.append(View(target.buffer, shape, (direction, block, gate, lane, deep), at))
            types = [view.buffer.dtype.name for view in views]
            value = load(0, types[0]).cast(self.type)
            for number in range(1, len(part.views)):
                value = value + load(number, types[number]).cast(self.type)
            self.ctx.step(
                loop_step(
                    shape, views, types, [(len(part.views), value)], target=self.ctx.target, label="weights", nodes=self.labels
                )
            )

    def bias(self) -> View | None:
        """The bias of all gates; in a linear GRU without the recurrent part of the hidden gate."""
        value = _input(self.node, 3)
        if value is None:
            return None
        view = self.ctx.view(value)
        parts = [Gates(0, (self.gates_of(view, range(self.gates)), self.gates_of(view, range(self.gates), self.gates)))]
        if self.linear:
            parts = [
                Gates(0, (self.gates_of(view, range(2)), self.gates_of(view, range(2), 3))),
                Gates(2, (self.gates_of(view, range(2, 3)),)),
            ]
        return self.arranged("bias", self.gates, False, parts)

    def _vectors(self) -> list[View]:
        """Weights of single hidden units: peepholes, or the recurrent bias of a linear GRU's hidden gate."""
        if self.op == "LSTM" and (value := _input(self.node, 7)) is not None:
            view = self.ctx.view(value)
            return [self.arranged("peephole", 1, False, [Gates(0, (self.gates_of(view, range(n, n + 1)),))]) for n in range(3)]
        if self.linear and (value := _input(self.node, 3)) is not None:
            return [self.arranged("bias", 1, False, [Gates(0, (self.gates_of(self.ctx.view(value), range(2, 3), 3),))])]
        return []

    def input_weights(self, gates: range) -> View:
        """The weights of the inputs of some gates, in the order of the recurrent ones."""
        return self.arranged("input weights", len(gates), False, [Gates(0, (self.gates_of(self.w, gates),))])

    def recurrent_weights(self, gates: range) -> View:
        """The recurrent weights of some gates in the order of the kernel."""
        return self.arranged("weights", len(gates), False, [Gates(0, (self.gates_of(self.r, gates),))])

    def traces(self) -> list[View]:
        """Where the gates, the new content and the cell of every time go, if they are wanted: [time, direction, row, hidden]."""
        return []

    def columns(self) -> list[View]:
        """What columns of quantized weights have: scales, sums of distances, zero points."""
        return []

    # Steps

    @property
    def is_ahead(self) -> bool:
        """Whether the kernel multiplies the inputs, too."""
        return times_ahead(self) > 0

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Of the nodes it stands for."""
        return tuple(node.label for node in self.group.nodes)

    def projection(self) -> View:
        """The inputs times their weights: [time, row, direction * block * gate * lane], in the order of X's axes."""
        columns = self.directions * self.blocks * self.gates * self.lanes
        gates = self.gates_of(self.w, range(self.gates))
        weights = self.arranged("input weights", self.gates, True, [Gates(0, (gates,))])
        matrix = View(weights.buffer, (weights.shape[0], columns), (columns, 1), weights.offset)
        x, swapped = self.x, transposed(self.x, (1, 0, 2))
        # Rows at equal distances in memory are one product, however many sequences there are: weights are read once.
        is_swapped = swapped.is_contiguous and not x.is_contiguous
        if is_swapped:
            x = swapped
        elif not _has_rows(x):
            given = self.node.inputs[0]
            assert given is not None
            x = self.ctx.contiguous(given)
        shape = (*x.shape[:2], columns)
        target = self.ctx.scratch(dtypes.from_name(self.type), shape, "projected")
        value, views = accumulator(self.type), [target]
        bias = self.bias()
        if bias is not None:
            value = value + load(0, self.type)
            views.insert(0, View(bias.buffer, (columns,), (1,), bias.offset))
        product_into(self.ctx, self.group, x, matrix, GroupEpilogue(tuple(views), ((len(views) - 1, value),)), shape)
        return transposed(target, (1, 0, 2)) if is_swapped else target

    def _inputs(self, inputs: View, first: int) -> tuple[Mapping[str, Any], list[Buffer], list[Buffer]]:
        """The products of the inputs as a kernel takes them, from one direction on; what it reads and writes of them."""
        by_time, by_row = (inputs.strides[1], inputs.strides[0]) if self.layout else inputs.strides[:2]
        by_direction = self.blocks * self.gates * self.lanes
        at = Address(inputs.buffer, (inputs.offset + first * by_direction) * (BITS[self.type] // 8))
        return {"projected": (at, (by_time, by_row, by_direction))}, [inputs.buffer], []

    def _loop(self, cell: Cell, inputs: View | None, first: int, count: int) -> None:
        """The step that walks through time, for some of the directions; without products of inputs it makes them itself."""
        ctx, node = self.ctx, self.node
        kept = _KEPT[self.op]
        states = [_input(node, position) for position in (5, 6)[:kept]]
        finals = [self.outputs[position] if position < len(self.outputs) else None for position in (1, 2)[:kept]]
        halved = self._halves(cell)
        weights = [self.recurrent_weights(part) for gates in cell.gates for part in (halves_of(gates) if halved else (gates,))]
        vectors, columns = self._vectors(), self.columns()
        given, reads, writes = self._inputs(inputs, first) if inputs else inputs_ahead(self, first)
        kernel = RecurrentKernel(
            type=self.type,
            outside=self.x.buffer.dtype.name,
            gates=self.gates,
            vectors=len(vectors),
            slots=cell.slots,
            passes=cell.passes,
            initial=tuple(value is not None for value in states),
            final=tuple(value is not None for value in finals),
            output=self.outputs[0] is not None,
            ragged=self.lengths is not None,
            rows=min(max(self.batch, 1), MOST_ROWS) if isinstance(self.batch, int) else MOST_ROWS,
            is_quantized=bool(columns),
            ahead=0 if inputs else times_ahead(self),
            has_bias=bool(given.get("bias")),
            halved=halved,
        )
        planes = cell.slots + 1 + bool(columns)
        memory = ctx.scratch(dtypes.from_name(self.type), (planes, self.directions, self.batch, self.width), "states")
        size = BITS[self.type] // 8
        backwards = 1 if self.attrs.get("direction") == "reverse" else first
        arguments: dict[str, Any] = {
            **given,
            "steps": self.steps,
            "rows": self.batch,
            "hidden": self.hidden,
            "backwards": backwards,
            "state": (Address(memory.buffer, memory.strides[1] * (first * size)), (memory.strides[0],)),
            "initial": [],
            "final": [],
        }
        for name, views in (("weights", weights), ("vectors", vectors), ("columns", columns)):
            arguments[name] = [Address(view.buffer, (view.offset + view.strides[0] * first) * size) for view in views]
        reads += [view.buffer for view in (*weights, *vectors, *columns)]
        writes.append(memory.buffer)
        if self.outputs[0] is not None:
            view = ctx.output(self.outputs[0])
            row, time, direction_axis = (0, 1, 2) if self.layout else (2, 0, 1)
            strides = tuple(view.strides[axis] for axis in (time, direction_axis, row))
            arguments["result"] = (address_in(view, first * view.strides[direction_axis]), strides)
            writes.append(view.buffer)
        traces = self.traces()
        arguments["given"], arguments["traces"] = [], [traced(view, first) for view in traces]
        writes += [view.buffer for view in traces]
        rows = partial(in_rows, ctx)
        for name, values, buffers, look in (("initial", states, reads, rows), ("final", finals, writes, ctx.output)):
            for value in values:
                if value is not None:
                    view = look(value)
                    direction_axis, row = (1, 0) if self.layout else (0, 1)
                    strides = (view.strides[direction_axis], view.strides[row])
                    arguments[name].append((address_in(view, first * view.strides[direction_axis]), strides))
                    buffers.append(view.buffer)
        if self.lengths is not None:
            view = ctx.contiguous(self.lengths)
            record, code = ctx.fault(node, "sequence_lens holds {found}: expected lengths from 0 to {limit}")
            arguments.update(lengths=address_in(view), record=record, code=code)
            reads.append(view.buffer)
        operations = self.gates * self.hidden * (self.hidden if inputs else self.hidden + self.x.shape[2])
        if self._shares_units(cell):
            shared_steps(self, kernel, arguments, reads, writes, memory.buffer)
            return
        work = cost.recurrent(product([self.steps, count, operations]), self.batch)
        flops = 2 * product([self.steps, self.batch, count, operations])
        self.step(kernel, arguments, count if columns else self.batch * count, work, reads, writes, flops)

    def step(
        self,
        kernel: RecurrentKernel,
        arguments: Mapping[str, Any],
        units: Dim,
        work: Dim,
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
        flops: Dim = 0,
    ) -> None:
        """A step of the layer."""
        label, nodes, accesses = self.group.label, self.labels, (distinct(reads), distinct(writes))
        entries = kernel.arguments.entries(**arguments)
        self.ctx.step(KernelStep(kernel, entries, units, work, *accesses, label, nodes, flops=flops))


def halves_of(gates: range) -> tuple[range, range]:
    """The first half of some gates, and the second."""
    middle = gates.start + len(gates) // 2
    return range(gates.start, middle), range(middle, gates.stop)


def _has_rows(view: View) -> bool:
    """Whether the first two of three axes are one, of rows at equal distances."""
    outer, inner = view.strides[:2]
    return view.is_contiguous or 1 in view.shape[:2] or outer == view.shape[1] * inner


def in_rows(ctx: LowerContext, value: Value) -> View:
    """A value whose last axis lies in consecutive elements: kernels load vectors of it."""
    view = ctx.view(value)
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else ctx.contiguous(value)


def traced(view: View, direction: int) -> tuple[Address, tuple[Dim, ...]]:
    """[time, direction, row, hidden] as a kernel takes it, from one direction on."""
    return address_in(view, direction * view.strides[1]), tuple(view.strides[:3])


def address_in(view: View, offset: Dim = 0) -> Address:
    """The first element of a view, or the one some elements behind it."""
    return Address(view.buffer, (view.offset + offset) * (BITS[view.buffer.dtype.name] // 8))


def _gate_cuts(*arguments: Any) -> tuple[Cut, ...]:
    """[direction, gate, hidden, depth]: directions, and blocks of hidden units, of all arrays alike."""
    *_, lanes, depth_first, _ = arguments
    first = 1 if depth_first else 0
    return Cut(0, first, every_source=True), Cut(2, first + 1, lanes, every_source=True)


@transform("arrange_gates", 1, _gate_cuts, is_numbers=True)
def _arrange_gates(*arguments: Any) -> Array:
    """Weights [direction, gate, hidden, depth] as [direction, block, depth, gate, lane], or with the depth first.

    Of each part `parts` gives the first gate it fills and how many of the arrays are summed up for it.
    """
    *arrays, parts, gates, lanes, depth_first, dtype = arguments
    directions, _, hidden, depth = arrays[0].shape
    blocks = -(-hidden // lanes)
    filled = np.zeros((directions, gates, blocks * lanes, depth), dtype.numpy)
    left = iter(arrays)
    for first, count in parts:
        summands = [next(left).astype(dtype.numpy) for _ in range(count)]
        filled[:, first : first + summands[0].shape[1], :hidden] = sum(summands[1:], summands[0])
    split = filled.reshape(directions, gates, blocks, lanes, depth)
    return np.ascontiguousarray(split.transpose(4, 0, 2, 1, 3) if depth_first else split.transpose(0, 2, 4, 1, 3))
