"""The inputs of a recurrent layer times their weights, a few times ahead of the loop over time.

The product of one row of state waits for its weights to come from the second cache, and half of the multipliers' time is left.
So the inputs of the next window of times are multiplied in the same loop over the depth: a tile of all times of the window and
one vector of columns, in which every weight is used as often as the window has times.

    window  the times that share weights: as many as a tile of the state's product has vectors (blocks * gates)
    ring    [direction, time modulo two windows, gate, block, lane]: this window is read, the next one is written

Every vector of columns has its time within a window, at which whoever does its block computes it. That depends on nothing but
the number of the block: gate g of block b at time g + gates * (b modulo the blocks of a tile). The first window is multiplied
before the loop (`first_window`).
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant, intrinsic_suffix, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.matmul.tile import MatmulTile, TileArguments, Tiles
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.rnn.rnn import RecurrentKernel, tile_sizes, window
from sardonyx.target.target import Target

_UNROLL: Final = 4
_HEIGHTS: Final = (4, 2, 1)  # of tiles that make up less than a window
_STRIPS: Final = 4  # of such a tile
_BOTH: Final = "both_products"  # function


class InputsAhead:
    """The products of inputs in a layer's kernel."""

    def __init__(
        self, kernel: RecurrentKernel, arguments: Loaded, function: FunctionBuilder, tiles: Tiles, target: Target
    ) -> None:
        self.k, self.f, self.tiles = kernel, function, tiles
        self.lanes = lanes = vector_lanes(kernel.type, target)
        self.strips, _, _ = tile_sizes(kernel.gates, target)  # blocks of a tile
        self.window = window(kernel.gates, target)
        self.e = VectorEmitter(function, lanes)
        self.element, self.bytes = memory_type(kernel.type), BITS[kernel.type] // 8
        self.ring, self.inputs = arguments.tensor("projected"), arguments.tensor("inputs")
        self.size, self.steps = arguments["input_size"], arguments["steps"]
        self.weights, self.bias = arguments.several("input_weights"), arguments.several("bias")
        hidden = arguments["hidden"]
        f = function
        self.blocks = f.let(f"udiv i64 {f.add(hidden, lanes - 1)}, {lanes}", "i")
        self.width = f.mul(self.blocks, lanes)
        self.columns = f.mul(self.width, kernel.gates)  # of a direction
        self.row_bytes = f.mul(self.columns, self.bytes)
        self._is_made = False  # the function of both products

    def projected(self, direction: str, time: str, column: str) -> list[str]:
        """Where the products of a time lie from a hidden unit on, for each gate."""
        f = self.f
        base = self._row(direction, time)
        return [f.element(base, self.element, f.add(f.mul(self.width, gate), column)) for gate in range(self.k.gates)]

    def _row(self, direction: str, time: str) -> str:
        f = self.f
        row = f.let(f"urem i64 {time}, {2 * self.window}", "i")
        return f.element(self.ring.base, self.element, f.add(f.mul(direction, self.ring.strides[0]), f.mul(row, self.columns)))

    def _input(self, backwards: str, time: str) -> str:
        """The inputs that come at a time of the loop, which may run backwards; behind the last they are taken to be the last."""
        f = self.f
        last = f.sub(self.steps, 1)
        index = f.min(time, last)
        at = f.let(f"select i1 {backwards}, i64 {f.sub(last, index)}, i64 {index}", "i")
        return f.element(self.inputs.base, self.element, f.mul(at, self.inputs.strides[0]))

    def _strip(self, base: str, direction: str, block: str) -> str:
        f = self.f
        strip = f.mul(self.size, self.lanes)
        return f.element(base, self.element, f.mul(f.add(f.mul(direction, self.blocks), block), strip))

    def _bias(self, direction: str, vector: str) -> str:
        """The bias of a vector of columns."""
        f = self.f
        return f.element(self.bias[0], self.element, f.add(f.mul(direction, self.columns), f.mul(vector, self.lanes)))

    def first_window(self, direction: str, backwards: str, low: str, high: str, sums: str) -> None:
        """The inputs of the first window, for some blocks; `sums` is memory that may be written."""
        f = self.f
        if self.k.ahead < self.window:
            long, short, done = f.fresh("long"), f.fresh("short"), f.fresh("windowed")
            f.branch_if(f.let(f"icmp sge i64 {self.steps}, {self.window}", "c"), long, short)
            f.label(short)
            self._short_window(direction, backwards, low, high)
            f.branch(done)
            f.label(long)
        block = f.loop(low, high)
        for gate in range(self.k.gates):
            self._multiply_both(direction, backwards, "0", block.index, str(gate), _without_state(sums))
        f.end(block)
        if self.k.ahead < self.window:
            f.branch(done)
            f.label(done)

    def _short_window(self, direction: str, backwards: str, low: str, high: str) -> None:
        """All inputs, if there are fewer times than a window has: in tiles of fewer and fewer of them."""
        f = self.f
        done = "0"
        for height in _HEIGHTS:
            some, none, before = f.fresh("some"), f.fresh("none"), f.block
            f.branch_if(f.let(f"icmp sge i64 {f.sub(self.steps, done)}, {height}", "c"), some, none)
            f.label(some)
            self._few_times(direction, backwards, low, high, done, height)
            more, behind = f.add(done, height), f.block
            f.branch(none)
            f.label(none)
            done = f.let(f"phi i64 [ {done}, %{before} ], [ {more}, %{behind} ]", "i")

    def _few_times(self, direction: str, backwards: str, low: str, high: str, first: str, height: int) -> None:
        f, k = self.f, self.k
        stride = f.mul(self.inputs.strides[0], self.bytes)
        a_row = f.let(f"select i1 {backwards}, i64 {f.sub(0, stride)}, i64 {stride}", "i")
        a, ring = self._input(backwards, first), self._row(direction, first)
        strip = f.mul(self.size, self.lanes * self.bytes)
        whole = f.add(low, f.let(f"and i64 {f.sub(high, low)}, {-_STRIPS}", "i"))
        for start, stop, count in ((low, whole, _STRIPS), (whole, high, 1)):
            block = f.loop(start, stop, count)
            for gate in range(k.gates):
                at = f.element(ring, self.element, f.add(f.mul(self.width, gate), f.mul(block.index, self.lanes)))
                weights = self._strip(self.weights[gate], direction, block.index)
                given = TileArguments(at, self.row_bytes, a, a_row, weights, self.size, b_strip=strip)
                self.tiles.call(MatmulTile(k.type, self.lanes, height, 1, count, self.lanes), given)
                if self.bias:
                    self._add_bias(direction, block.index, count, gate, at, height)
            f.end(block)

    def _add_bias(self, direction: str, block: str, blocks: int, gate: int, at: str, height: int) -> None:
        f, kind = self.f, self.e.type(self.k.type)
        for number in range(blocks):
            bias = self.e.load(self._bias(direction, f.add(f.mul(f.add(block, number), self.k.gates), gate)), self.k.type)
            for time in range(height):
                row = f.element(at, self.element, f.add(f.mul(self.columns, time), number * self.lanes))
                self.e.store(row, f.let(f"fadd {kind} {self.e.load(row, self.k.type)}, {bias}"), self.k.type)

    def multiply(
        self, direction: str, backwards: str, time: str, block: str, alone: MatmulTile, arguments: TileArguments
    ) -> None:
        """The product of the state from a block on; with it, at their time, columns of the next window's inputs."""
        f, gates = self.f, self.k.gates
        within = f.let(f"urem i64 {time}, {self.window}", "i")
        start = f.add(f.sub(time, within), self.window)  # of the next window
        index, gate = f.let(f"udiv i64 {within}, {gates}", "i"), f.let(f"urem i64 {within}, {gates}", "i")
        distance = f.sub(f.add(index, self.strips), f.let(f"urem i64 {block}, {self.strips}", "i"))
        number = f.let(f"urem i64 {distance}, {self.strips}", "i")
        is_here = f.let(f"icmp slt i64 {number}, {alone.strips}", "c")
        has_more = f.let(f"icmp slt i64 {start}, {self.steps}", "c")
        both, only, done = f.fresh("both"), f.fresh("only"), f.fresh("multiplied")
        f.branch_if(f.let(f"and i1 {is_here}, {has_more}", "c"), both, only)
        f.label(both)
        if alone.strips == self.strips:
            self._multiply_both(direction, backwards, start, f.add(block, number), gate, arguments)
            f.branch(done)
        else:  # the few blocks that are left: one after the other
            self._multiply_both(direction, backwards, start, f.add(block, number), gate, _without_state(arguments.c))
            f.branch(only)
        f.label(only)
        self.tiles.call(alone, arguments)
        f.branch(done)
        f.label(done)

    def _multiply_both(self, direction: str, backwards: str, start: str, block: str, gate: str, state: TileArguments) -> None:
        """The product of the state, and a vector of columns of the inputs of a window."""
        f, k, gates = self.f, self.k, self.k.gates
        if not self._is_made:
            self._is_made = True
            both = _BothProducts(k.type, self.lanes, gates, self.strips, self.window, bool(self.bias))
            f.companions.append(both.function)
        base = self.weights[0]
        for other in range(1, gates):
            base = f.let(f"select i1 {f.let(f'icmp eq i64 {gate}, {other}', 'c')}, ptr {self.weights[other]}, ptr {base}", "p")
        column = f.add(f.mul(self.width, gate), f.mul(block, self.lanes))
        values = [
            ("ptr", state.c),
            ("ptr", state.a),
            ("ptr", state.b),
            ("i64", state.b_strip),
            ("i64", state.depth),
            ("ptr", f.element(self._row(direction, start), self.element, column)),
            ("i64", self.row_bytes),
            ("ptr", self._strip(base, direction, block)),
            ("i64", self.size),
            ("ptr", self._bias(direction, f.add(f.mul(block, gates), gate)) if self.bias else "null"),
            *(("ptr", self._input(backwards, f.add(start, time))) for time in range(self.window)),
        ]
        f.line(f"call void @{_BOTH}({', '.join(f'{kind} {value}' for kind, value in values)})")


def _without_state(sums: str) -> TileArguments:
    """No product of the state: its depth is 0."""
    return TileArguments(sums, "0", "null", "0", "null", "0")


class _BothProducts:
    """A tile of one row and some strips of weights, and one of `times` rows and a vector, in one loop over the depth."""

    def __init__(self, type: str, lanes: int, gates: int, strips: int, times: int, has_bias: bool) -> None:
        parameters = [
            ("sums", "ptr"), ("state", "ptr"), ("weights", "ptr"), ("strip", "i64"), ("depth", "i64"),
            ("products", "ptr"), ("row", "i64"), ("input_weights", "ptr"), ("size", "i64"), ("bias", "ptr"),
            *((f"input{time}", "ptr") for time in range(times)),
        ]  # fmt: skip
        self.function = self.f = FunctionBuilder(_BOTH, parameters, "nounwind noinline", "internal")
        self.type, self.lanes, self.gates, self.strips, self.times = type, lanes, gates, strips, times
        self.e = VectorEmitter(self.f, lanes)
        self.kind, self.element = self.e.type(type), memory_type(type)
        self.vector_bytes = lanes * BITS[type] // 8
        self._emit(has_bias)

    def _emit(self, has_bias: bool) -> None:
        f = self.f
        zero = constant(self.type, 0.0, self.lanes)
        sums, products = [zero] * (self.strips * self.gates), [zero] * self.times
        shared = f.min("%depth", "%size")
        weights, inputs = "%weights", "%input_weights"
        whole = f.let(f"and i64 {shared}, {-_UNROLL}", "i")
        stretches = (
            ("0", whole, _UNROLL, True, True),
            (whole, shared, 1, True, True),
            (shared, "%depth", 1, True, False),
            (shared, "%size", 1, False, True),
        )
        for first, last, unroll, has_state, has_inputs in stretches:
            carried = [("ptr", weights), ("ptr", inputs), *((self.kind, value) for value in (*sums, *products))]
            loop = f.loop(first, last, unroll, carried)
            (weights, inputs), values = loop.carry[:2], loop.carry[2:]
            sums, products = values[: len(sums)], values[len(sums) :]
            for k in range(unroll):
                index = f.add(loop.index, k)
                sums, products = self._multiply(
                    index, weights, inputs, sums, products, has_state=has_state, has_inputs=has_inputs
                )
                weights = f.element(weights, "i8", self.gates * self.vector_bytes if has_state else 0)
                inputs = f.element(inputs, "i8", self.vector_bytes if has_inputs else 0)
            values = f.end(loop, [weights, inputs, *sums, *products])
            (weights, inputs), values = values[:2], values[2:]
            sums, products = values[: len(sums)], values[len(sums) :]
        for number, value in enumerate(sums):
            self.e.store(f.element("%sums", self.element, number * self.lanes), value, self.type)
        bias = self.e.load("%bias", self.type) if has_bias else ""
        for time, value in enumerate(products):
            whole = f.let(f"fadd {self.kind} {value}, {bias}") if bias else value
            self.e.store(f.element("%products", "i8", f.mul("%row", time)), whole, self.type)

    def _multiply(
        self, index: str, weights: str, inputs: str, sums: list[str], products: list[str], *, has_state: bool, has_inputs: bool
    ) -> tuple[list[str], list[str]]:
        """One element of the depth. Instructions of both products alternate."""
        f = self.f
        name = f"llvm.fmuladd.{intrinsic_suffix(self.type, self.lanes)}"
        made, more = list(sums), list(products)
        state = self.e.load_scalar(f.element("%state", self.element, index), self.type) if has_state else ""
        column = self.e.load(inputs, self.type) if has_inputs else ""
        for number in range(max(len(sums), len(products))):
            if has_state and number < len(sums):
                strip, gate = divmod(number, self.gates)
                base = f.element(weights, "i8", f.mul("%strip", strip))
                weight = self.e.load(f.element(base, self.element, gate * self.lanes), self.type)
                made[number] = f.call(self.kind, name, (self.kind, state), (self.kind, weight), (self.kind, sums[number]))
            if has_inputs and number < len(products):
                value = self.e.load_scalar(f.element(f"%input{number}", self.element, index), self.type)
                more[number] = f.call(self.kind, name, (self.kind, value), (self.kind, column), (self.kind, products[number]))
        return made, more
