"""Forests -> LLVM. The layouts: `ops.ml.ml_decisions`, the ways: `kernel.ml.trees`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant, scalar_type
from sardonyx.codegen.function import FunctionBuilder, Loop
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.ml.trees import FEW, WAYS, WIDEST, TreeKernel, has_unsigned_vectors
from sardonyx.target.target import CACHE_LINE, Target

# The layouts of `ops.ml.ml_decisions`, which codegen does not see; a test compares them.
COLUMN_BITS: Final = 12
SLOT_BITS: Final = 20
FIRST_SLOT, DEPTH, FIRST_WORD, END_WORD, TARGET, TREE_ENTRIES = 0, 1, 2, 3, 4, 8
FIRST_BIT, END_BIT, FIRST_LEAF, WORD_ENTRIES = 0, 1, 2, 4
BIT_ENTRIES: Final = 4
WORD_LEAVES: Final = 32

_OneBlock = Callable[[str, str, str, str], None]  # the first row in the unit, keys, number of rows, and sums of a block

_STEPS: Final = 4  # down a tree before anybody looks whether all have arrived
_VECTORS: Final = 4  # of rows that share the loads of a node
_START: Final = {"SUM": 0.0, "MIN": float("inf"), "MAX": float("-inf")}


def emit_trees(kernel: TreeKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a forest."""
    return _Emitter(kernel, name, target).emit()


class _Emitter:
    def __init__(self, kernel: TreeKernel, name: str, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.f = f = FunctionBuilder(name, KERNEL_PARAMETERS)
        self.a = a = Loaded(f, kernel.arguments)
        self.lanes = min(target.lanes, kernel.block)
        self.vector = VectorEmitter(f, self.lanes)
        self.words = f"<{self.lanes} x i32>"
        self.unsigned = has_unsigned_vectors(target)
        self.lowest, self.highest = (0, -1) if self.unsigned else (-(1 << 31), (1 << 31) - 1)
        self.sum = scalar_type(kernel.sums)
        self.sum_bytes = 8 if kernel.sums == "f64" else 4
        scratch, (size,) = a.tensor("scratch")
        self.keys = f.own_part(scratch, "i32", size)
        # Keys of all blocks of a unit, then the leaf of each row of one (if leaves vote more than once) or all sums.
        self.block_keys = f.mul(f.add(a["columns"], 1), kernel.block)
        self.leaves = f.element(self.keys, "i32", f.mul(self.block_keys, a["blocks"]))
        self.totals = self.leaves
        self.unit_rows = f.mul(a["blocks"], kernel.block)

    # Keys

    def _nan_key(self, column: str, emitter: VectorEmitter) -> str:
        """The key of NaN in a column, in every lane."""
        f = self.f
        low = f.let(f"trunc i64 {column} to i1", "c")
        return emitter.splat(f.let(f"select i1 {low}, i32 {self.lowest}, i32 {self.highest}"), "i32")

    def _keys_of(self, values: str, column: str, number: str, emitter: VectorEmitter) -> str:
        """The keys of a vector of values in a column."""
        f, e = self.f, emitter
        kind, ints = e.type(self.kernel.type), e.type("i32")
        if self.kernel.type == "f32":
            plain = f.let(f"fadd {kind} {values}, {constant('f32', 0.0, e.lanes)}")  # -0 and 0 are the same number
            bits = f.let(f"bitcast {kind} {plain} to {ints}")
            sign = f.let(f"ashr {ints} {bits}, {constant('i32', 31, e.lanes)}")
            if self.unsigned:
                flips = f.let(f"or {ints} {sign}, {constant('i32', -(1 << 31), e.lanes)}")
            else:
                flips = f.let(f"and {ints} {sign}, {constant('i32', (1 << 31) - 1, e.lanes)}")
            keys = f.let(f"xor {ints} {bits}, {flips}")
        else:
            keys = self._ranks(values, number, e)
        nan = f.let(f"fcmp uno {kind} {values}, {values}")
        return f.let(f"select {e.type('bool')} {nan}, {ints} {self._nan_key(column, e)}, {ints} {keys}")

    def _ranks(self, values: str, number: str, e: VectorEmitter) -> str:
        """1 + how many cuts of a column are less than each value: a binary search with the same steps in all lanes."""
        f = self.f
        starts = self.a["cut_starts"]
        first = f.let(f"load i64, ptr {f.element(starts, 'i64', number)}, align 8")
        end = f.let(f"load i64, ptr {f.element(starts, 'i64', f.add(number, 1))}, align 8")
        cuts = f.element(self.a["cuts"], "double", first)
        longs = e.type("i64")
        head, body, done, before = f.fresh("search"), f.fresh("probe"), f.fresh("found"), f.block
        length = f.sub(end, first)
        f.branch(head)
        f.label(head)
        left, position, left_next, position_next = (f.fresh("r") for _ in range(4))
        zero = constant("i64", 0, e.lanes)
        f.line(f"{left} = phi i64 [ {length}, %{before} ], [ {left_next}, {body} ]")
        f.line(f"{position} = phi {longs} [ {zero}, %{before} ], [ {position_next}, {body} ]")
        f.branch_if(f.let(f"icmp sgt i64 {left}, 0", "c"), body, done)
        f.label(body)
        f.line(f"{left_next} = lshr i64 {left}, 1")
        half = e.splat(f.sub(left, left_next), "i64")
        above = f.let(f"add {longs} {position}, {half}")
        probe = f.let(f"sub {longs} {above}, {constant('i64', 1, e.lanes)}")
        less = f.let(f"fcmp olt {e.type('f64')} {self._gathered(cuts, probe, 'f64', e)}, {values}")
        f.line(f"{position_next} = select {e.type('bool')} {less}, {longs} {above}, {longs} {position}")
        f.branch(head)
        f.label(done)
        found = f.let(f"add {longs} {position}, {constant('i64', 1, e.lanes)}")
        keys = f.let(f"trunc {longs} {found} to {e.type('i32')}")
        return keys if self.unsigned else f.let(f"xor {e.type('i32')} {keys}, {constant('i32', -(1 << 31), e.lanes)}")

    def _gathered(self, base: str, positions: str, kind: str, e: VectorEmitter) -> str:
        """The elements of a table at positions, i64 each."""
        f, element = self.f, scalar_type(kind)
        size = 8 if kind == "f64" else 4
        if e.lanes == 1:
            return f.let(f"load {element}, ptr {f.element(base, element, positions)}, align {size}")
        value = "poison"
        for lane in range(e.lanes):
            one = f.let(f"extractelement {e.type('i64')} {positions}, i32 {lane}")
            loaded = f.let(f"load {element}, ptr {f.element(base, element, one)}, align {size}")
            value = f.let(f"insertelement {e.type(kind)} {value}, {element} {loaded}, i32 {lane}")
        return value

    def _column(self, number: str) -> tuple[str, str]:
        """An entry of the table of columns, and the address of its feature in the first row."""
        f, (base, (_, along)) = self.f, self.a.tensor("x")
        column = f.let(f"load i64, ptr {f.element(self.a['column_table'], 'i64', number)}, align 8")
        feature = f.let(f"lshr i64 {column}, 1", "i")
        return column, f.element(base, scalar_type(self.kernel.type), f.mul(feature, along))

    def _block_keys(self, first: str, count: str, block: str) -> None:
        """Write the keys of a block of rows, column by column."""
        f, kind, (_, (stride, _)) = self.f, self.kernel.type, self.a.tensor("x")
        element, lanes = scalar_type(kind), self.lanes
        whole = f.let(f"and i64 {count}, {-lanes}", "i")
        loop = f.loop(0, self.a["columns"])
        column, feature = self._column(loop.index)
        row = f.element(feature, element, f.mul(first, stride))
        keys = f.element(block, "i32", f.mul(loop.index, self.kernel.block))

        def part(start: str, limit: str | None) -> None:
            source = f.element(row, element, f.mul(start, stride))
            values = self.vector.load_strided(source, stride, kind, limit)
            found = self._keys_of(values, column, loop.index, self.vector)
            f.line(f"store {self.words} {found}, ptr {f.element(keys, 'i32', start)}, align 4")

        vectors = f.loop(0, whole, lanes)
        part(vectors.index, None)
        f.end(vectors)
        some, none = f.fresh("some"), f.fresh("none")
        f.branch_if(f.let(f"icmp slt i64 {whole}, {count}", "c"), some, none)
        f.label(some)
        part(whole, f.sub(count, whole))
        f.branch(none)
        f.label(none)
        f.end(loop)
        lowest = f.element(block, "i32", f.mul(self.a["columns"], self.kernel.block))
        fill = f.loop(0, self.kernel.block, lanes)
        f.line(f"store {self.words} {constant('i32', self.lowest, lanes)}, ptr {f.element(lowest, 'i32', fill.index)}, align 4")
        f.end(fill)

    def _row_keys(self, row: str) -> None:
        """Write the keys of one row."""
        f, kind, (_, (stride, _)) = self.f, self.kernel.type, self.a.tensor("x")
        one = VectorEmitter(f, 1)
        loop = f.loop(0, self.a["columns"])
        column, feature = self._column(loop.index)
        value = one.load(f.element(feature, scalar_type(kind), f.mul(row, stride)), kind)
        found = self._keys_of(value, column, loop.index, one)
        f.line(f"store i32 {found}, ptr {f.element(self.keys, 'i32', loop.index)}, align 4")
        f.end(loop)
        f.line(f"store i32 {self.lowest}, ptr {f.element(self.keys, 'i32', self.a['columns'])}, align 4")

    # Walks

    def _entry(self, tree: str, entry: int) -> str:
        """A number of the table of trees."""
        return self._entry_of("tree_table", tree, TREE_ENTRIES, entry)

    def _entry_of(self, table: str, row: str, entries: int, entry: int) -> str:
        f = self.f
        at = f.element(self.a[table], "i64", f.add(f.mul(row, entries), entry))
        return f.let(f"load i64, ptr {at}, align 8", "i")

    def _down(self, nodes: str, at: str, keys: str, shift: int) -> str:
        """The slot after one step; `keys` is where the keys of the row begin, those of a column being 2**shift bytes apart."""
        f = self.f
        if self.kernel.wide:
            address = f.element(nodes, "i64", f.mul(at, 2))
            word = f.let(f"load i64, ptr {address}, align 8")
            column = f.let(f"load i64, ptr {f.element(address, 'i64', 1)}, align 8")
            offset, pair = f.let(f"shl i64 {column}, {shift}", "i"), f.let(f"lshr i64 {word}, 32", "i")
        else:
            word = f.let(f"load i64, ptr {f.element(nodes, 'i64', at)}, align 8")
            moved = f.let(f"lshr i64 {word}, {32 - shift}")
            offset = f.let(f"and i64 {moved}, {((1 << COLUMN_BITS) - 1) << shift}", "i")
            pair = f.let(f"lshr i64 {word}, {64 - SLOT_BITS}", "i")
        key = f.let(f"load i32, ptr {f.element(keys, 'i8', offset)}, align 4")
        own = f.let(f"trunc i64 {word} to i32")
        exceeds = f.let(f"icmp {'ugt' if self.unsigned else 'sgt'} i32 {key}, {own}", "c")
        return f.let(f"add i64 {pair}, {f.let(f'zext i1 {exceeds} to i64')}", "i")

    def _walk(self, depth: str, nodes: Sequence[str], keys: Sequence[str], shift: int) -> list[str]:
        """The slots of the leaves that several walks end in."""
        f = self.f
        head, body, done, before = f.fresh("walk"), f.fresh("steps"), f.fresh("arrived"), f.block
        f.branch(head)
        f.label(head)
        level, level_next, going = f.fresh("i"), f.fresh("i"), f.fresh("c")
        slots, following = [f.fresh("s") for _ in nodes], [f.fresh("s") for _ in nodes]
        f.line(f"{level} = phi i64 [ 0, %{before} ], [ {level_next}, {body} ]")
        f.line(f"{going} = phi i1 [ true, %{before} ], [ {going}next, {body} ]")
        for slot, after in zip(slots, following):
            f.line(f"{slot} = phi i64 [ 0, %{before} ], [ {after}, {body} ]")
        more = f.let(f"icmp slt i64 {level}, {depth}", "c")
        f.branch_if(f.let(f"and i1 {more}, {going}", "c"), body, done)
        f.label(body)
        at = list(slots)
        for step in range(_STEPS):
            previous, at = at, [self._down(node, slot, key, shift) for node, slot, key in zip(nodes, at, keys)]
            if step == _STEPS - 1:
                moved = [f.let(f"xor i64 {new}, {old}") for new, old in zip(at, previous)]
        while len(moved) > 1:
            moved = [f.let(f"or i64 {moved[i]}, {moved[i + 1]}") for i in range(0, len(moved) - 1, 2)] + (
                moved[-1:] if len(moved) % 2 else []
            )
        for slot, after in zip(at, following):
            f.line(f"{after} = add i64 {slot}, 0")
        f.line(f"{going}next = icmp ne i64 {moved[0]}, 0")
        f.line(f"{level_next} = add i64 {level}, {_STEPS}")
        f.branch(head)
        f.label(done)
        return slots

    # Votes

    def _combined(self, total: str, vote: str, kind: str) -> str:
        """A total with another vote; `kind` is the LLVM type of both."""
        f = self.f
        if self.kernel.aggregate == "SUM":
            return f.let(f"fadd {kind} {total}, {vote}")
        better = f.let(f"fcmp {'olt' if self.kernel.aggregate == 'MIN' else 'ogt'} {kind} {vote}, {total}")
        masks = "i1" if not kind.startswith("<") else f"<{kind[1:].split(' ', maxsplit=1)[0]} x i1>"
        return f.let(f"select {masks} {better}, {kind} {vote}, {kind} {total}")

    def _add_at(self, address: str, vote: str, kind: str) -> None:
        total = self.f.let(f"load {kind}, ptr {address}, align {self.sum_bytes}")
        self.f.line(f"store {kind} {self._combined(total, vote, kind)}, ptr {address}, align {self.sum_bytes}")

    def _chunks(self) -> list[tuple[int, str]]:
        """Where the votes of a leaf are cut, and the types of the parts."""
        width = self.kernel.width
        sizes = [(start, min(WIDEST, width - start)) for start in range(0, width, WIDEST)]
        return [(start, self.sum if size == 1 else f"<{size} x {self.sum}>") for start, size in sizes]

    def _initial(self, kind: str) -> str:
        lanes = 1 if not kind.startswith("<") else int(kind[1:].split(" ", maxsplit=1)[0])
        return constant(self.kernel.sums, _START[self.kernel.aggregate], lanes)

    def _leaf_row(self, leaf: str, start: int) -> str:
        """The address of votes of a leaf, by its number."""
        return self.f.element(self.a["votes"], self.sum, self.f.add(self.f.mul(leaf, self.kernel.width), start))

    def _content(self, slot: str) -> str:
        """The address of what a leaf holds, by its slot, counted through all trees."""
        return self.f.element(self.a["nodes"], "i64", self.f.mul(slot, 2 if self.kernel.wide else 1))

    def _vote_of(self, slot: str) -> str:
        """The only vote of the leaf in a slot."""
        f, address = self.f, self._content(slot)
        if self.kernel.sums == "f64":
            address = self._leaf_row(self._number(address), 0)
        return f.let(f"load {self.sum}, ptr {address}, align {self.sum_bytes}")

    def _number(self, address: str) -> str:
        """A number of 32 bits in memory."""
        loaded = self.f.let(f"load i32, ptr {address}, align 4")
        return self.f.let(f"sext i32 {loaded} to i64", "i")

    # One row after the other

    def _few(self, first: str, count: str) -> None:
        f, a, kernel = self.f, self.a, self.kernel
        rows = f.loop(0, count)
        row = f.add(first, rows.index)
        self._row_keys(row)
        scores = f.element(a["scores"], self.sum, f.mul(row, a["targets"]))
        in_registers = kernel.is_single and kernel.width <= WIDEST
        chunks = self._chunks()
        if not in_registers:
            self._fill(scores, a["targets"])
        carry = [(kind, self._initial(kind)) for _, kind in chunks] if in_registers else []
        groups = f.loop(0, a["trees"], WAYS, carry)
        trees = [f.add(groups.index, way) for way in range(WAYS)]
        starts, depth = [self._entry(tree, FIRST_SLOT) for tree in trees], "0"
        for tree in trees:
            own = self._entry(tree, DEPTH)
            depth = f.call("i64", "llvm.smax.i64", ("i64", depth), ("i64", own))
        nodes = [f.element(a["nodes"], "i64", f.mul(start, 2 if kernel.wide else 1)) for start in starts]
        slots = self._walk(depth, nodes, [self.keys] * WAYS, 2)
        slots = [f.add(start, slot) for start, slot in zip(starts, slots)]
        totals = list(groups.carry)
        exists = [f.let(f"icmp slt i64 {tree}, {a['trees']}", "c") for tree in trees]
        if kernel.width == 1:
            votes = [self._vote_of(slot) for slot in slots]
            neutral = self._initial(self.sum)
            votes = [f.let(f"select i1 {one}, {self.sum} {vote}, {self.sum} {neutral}") for one, vote in zip(exists, votes)]
            for tree, vote in zip(trees, votes):
                if in_registers:
                    totals = [self._combined(totals[0], vote, self.sum)]
                else:
                    self._add_at(f.element(scores, self.sum, self._entry(tree, TARGET)), vote, self.sum)
        else:
            leaves = [self._number(self._content(slot)) for slot in slots]
            for one, leaf in zip(exists, leaves):
                for number, (start, kind) in enumerate(chunks):
                    vote = f.let(f"load {kind}, ptr {self._leaf_row(leaf, start)}, align {self.sum_bytes}")
                    vote = f.let(f"select i1 {one}, {kind} {vote}, {kind} {self._initial(kind)}")
                    if in_registers:
                        totals[number] = self._combined(totals[number], vote, kind)
                    else:
                        self._add_at(f.element(scores, self.sum, start), vote, kind)
        totals = f.end(groups, totals)
        for (start, kind), total in zip(chunks, totals):
            f.line(f"store {kind} {total}, ptr {f.element(scores, self.sum, start)}, align {self.sum_bytes}")
        f.end(rows)

    def _fill(self, address: str, count: str) -> None:
        """Begin sums."""
        f = self.f
        loop = f.loop(0, count)
        f.line(
            f"store {self.sum} {self._initial(self.sum)}, ptr {f.element(address, self.sum, loop.index)}, align {self.sum_bytes}"
        )
        f.end(loop)

    # A block of rows

    def _blocks(self, first: str, count: str) -> None:
        """A unit of several blocks: their keys, then tree after tree."""
        f, a, kernel = self.f, self.a, self.kernel
        block = kernel.block

        def each_block() -> tuple[Loop, str, str, str]:
            """A loop over blocks: the first row in the unit, how many there are, and their keys."""
            loop = f.loop(0, count, block)
            number = f.let(f"udiv i64 {loop.index}, {block}", "i")
            return (
                loop,
                loop.index,
                f.min(f.sub(count, loop.index), block),
                f.element(self.keys, "i32", f.mul(number, self.block_keys)),
            )

        loop, row, here, keys = each_block()
        self._block_keys(f.add(first, row), here, keys)
        f.end(loop)
        scores = f.element(a["scores"], self.sum, f.mul(first, a["targets"]))
        if kernel.width == 1:
            self._fill(self.totals, f.mul(a["targets"], self.unit_rows))
        else:
            self._fill(scores, f.mul(count, a["targets"]))
        trees = f.loop(0, a["trees"])
        tree = trees.index
        totals = self.totals
        if kernel.width == 1 and not kernel.is_single:
            totals = f.element(self.totals, self.sum, f.mul(self._entry(tree, TARGET), self.unit_rows))
        small, large, done = f.fresh("bits"), f.fresh("walks"), f.fresh("voted")
        if kernel.has_bits and kernel.has_walks:
            f.branch_if(f.let(f"icmp slt i64 {self._entry(tree, FIRST_WORD)}, 0", "c"), large, small)
        else:
            f.branch(small if kernel.has_bits else large)
        ways = [(small, self._bits)] if kernel.has_bits else []
        ways += [(large, self._walks)] if kernel.has_walks else []
        for label, prepare in ways:
            f.label(label)
            one_block = prepare(tree, count)
            loop, row, here, keys = each_block()
            one_block(row, keys, here, f.element(totals, self.sum, row))
            if kernel.width > 1:
                self._add_leaves(f.element(scores, self.sum, f.mul(row, kernel.width)), here)
            f.end(loop)
            f.branch(done)
        f.label(done)
        f.end(trees)
        if kernel.width == 1:
            self._write_totals(scores, count)

    def _add_leaves(self, scores: str, count: str) -> None:
        """Add the votes of the leaf of each row."""
        f = self.f
        rows = f.loop(0, count)
        leaf = self._number(f.element(self.leaves, "i32", rows.index))
        row = f.element(scores, self.sum, f.mul(rows.index, self.kernel.width))
        for start, kind in self._chunks():
            vote = f.let(f"load {kind}, ptr {self._leaf_row(leaf, start)}, align {self.sum_bytes}")
            self._add_at(f.element(row, self.sum, start), vote, kind)
        f.end(rows)

    def _write_totals(self, scores: str, count: str) -> None:
        f = self.f
        targets = f.loop(0, self.a["targets"])
        totals = f.element(self.totals, self.sum, f.mul(targets.index, self.unit_rows))
        out = f.element(scores, self.sum, targets.index)
        rows = f.loop(0, count)
        total = f.let(f"load {self.sum}, ptr {f.element(totals, self.sum, rows.index)}, align {self.sum_bytes}")
        address = f.element(out, self.sum, f.mul(rows.index, self.a["targets"]))
        f.line(f"store {self.sum} {total}, ptr {address}, align {self.sum_bytes}")
        f.end(rows)
        f.end(targets)

    def _walks(self, tree: str, unit_rows: str) -> _OneBlock:
        """What a block does with a large tree."""
        f, a, kernel = self.f, self.a, self.kernel
        depth, start = self._entry(tree, DEPTH), self._entry(tree, FIRST_SLOT)
        nodes = f.element(a["nodes"], "i64", f.mul(start, 2 if kernel.wide else 1))
        fetch = self._fetch_next(tree, unit_rows) if kernel.fetches else None

        def one_block(first: str, keys: str, count: str, totals: str) -> None:
            rows = f.loop(0, count, WAYS)  # a block is a multiple of it: rows behind the last have keys of whatever was there
            if fetch is not None:
                fetch(f.add(first, rows.index))
            here = [f.element(f.element(keys, "i32", rows.index), "i32", way) for way in range(WAYS)]
            slots = self._walk(depth, [nodes] * WAYS, here, (kernel.block * 4).bit_length() - 1)
            for way, slot in enumerate(slots):
                row, address = f.add(rows.index, way), f.add(start, slot)
                if kernel.width == 1:
                    self._add_at(f.element(totals, self.sum, row), self._vote_of(address), self.sum)
                else:
                    leaf = f.let(f"load i32, ptr {self._content(address)}, align 4")
                    f.line(f"store i32 {leaf}, ptr {f.element(self.leaves, 'i32', row)}, align 4")
            f.end(rows)

        return one_block

    def _fetch_next(self, tree: str, unit_rows: str) -> Callable[[str], None]:
        """What brings the next tree to the second cache meanwhile: a share of its lines for each group of rows, given the first.

        Few rows do not come to all nodes of a large tree: they fetch no more than a line each. Behind the last tree the table has
        zeros, so that there seems to be no last tree, and nothing behind it.
        """
        f, a = self.f, self.a
        start, end = self._entry(f.add(tree, 1), FIRST_SLOT), self._entry(f.add(tree, 2), FIRST_SLOT)
        node = 16 if self.kernel.wide else 8
        base = f.element(a["nodes"], "i8", f.mul(start, node))
        size = f.call("i64", "llvm.smax.i64", ("i64", f.mul(f.sub(end, start), node)), ("i64", "0"))
        groups = f.let(f"udiv i64 {f.add(unit_rows, WAYS - 1)}, {WAYS}", "i")  # units have rows
        bytes_of_group = f.mul(groups, CACHE_LINE)
        lines = f.let(f"udiv i64 {f.add(size, f.sub(bytes_of_group, 1))}, {bytes_of_group}", "i")
        lines = f.min(lines, WAYS)

        def fetch(row: str) -> None:
            at = f.element(base, "i8", f.mul(f.mul(row, lines), CACHE_LINE // WAYS))
            line = f.loop(0, lines)
            f.fetch_ahead(f.element(at, "i8", f.mul(line.index, CACHE_LINE)))
            f.end(line)

        return fetch

    def _bits(self, tree: str, unit_rows: str) -> _OneBlock:
        """What a block does with a small tree."""
        f, lanes, kernel = self.f, self.lanes, self.kernel
        first, end = self._entry(tree, FIRST_WORD), self._entry(tree, END_WORD)
        together = min(_VECTORS, kernel.block // lanes)
        kind = self.words if kernel.width > 1 else self.vector.type(kernel.sums)
        nothing = "zeroinitializer" if kernel.width > 1 else self._initial(kind)

        def one_block(first_row: str, keys: str, count: str, totals: str) -> None:
            vectors = f.let(f"udiv i64 {f.add(count, lanes - 1)}, {lanes}", "i")
            whole = f.let(f"and i64 {vectors}, {-together}", "i")

            def some(begin: str, stop: str, number: int) -> None:
                loop = f.loop(begin, stop, number)
                row = f.mul(loop.index, lanes)
                # Words from the last to the first: the first one that has a leaf left has the last word.
                words = f.loop(first, end, 1, [(kind, nothing)] * number)
                states = self._states(words.index, f.element(keys, "i32", row), number)
                said = self._said(words.index)
                found = []
                for state, before in zip(states, words.carry):
                    left = f.let(f"icmp ne {self.words} {state}, zeroinitializer")
                    found.append(f.let(f"select <{lanes} x i1> {left}, {kind} {said(state)}, {kind} {before}"))
                for vector, each in enumerate(f.end(words, found)):
                    at = f.add(row, vector * lanes)
                    if kernel.width > 1:
                        f.line(f"store {kind} {each}, ptr {f.element(self.leaves, 'i32', at)}, align 4")
                    else:
                        self._add_at(f.element(totals, self.sum, at), each, kind)
                f.end(loop)

            some("0", whole, together)
            if together > 1:
                some(whole, vectors, 1)

        return one_block

    def _states(self, word: str, keys: str, number: int) -> list[str]:
        """The leaves of a word that are possible for each row of some vectors, as bits."""
        f, words, lanes = self.f, self.words, self.lanes
        first, end = (self._entry_of("words", word, WORD_ENTRIES, entry) for entry in (FIRST_BIT, END_BIT))
        loop = f.loop(first, end, 1, [(words, constant("i32", -1, lanes))] * number)
        node = f.element(self.a["bits"], "i32", f.mul(loop.index, BIT_ENTRIES))
        column = self._number(node)
        own, kept = (self.vector.load_scalar(f.element(node, "i32", entry), "i32") for entry in (1, 2))
        base = f.element(keys, "i32", f.mul(column, self.kernel.block))
        states = []
        for vector, state in enumerate(loop.carry):
            address = f.element(base, "i32", vector * lanes)
            key = f.let(f"load {words}, ptr {address}, align 4")
            exceeds = f.let(f"icmp {'ugt' if self.unsigned else 'sgt'} {words} {key}, {own}")
            if self.target.has_masked_accesses:
                left = f.let(f"and {words} {state}, {kept}")
                states.append(f.let(f"select <{lanes} x i1> {exceeds}, {words} {left}, {words} {state}"))
            else:
                stays = f.let(f"sext <{lanes} x i1> {f.let(f'xor <{lanes} x i1> {exceeds}, splat (i1 true)')} to {words}")
                states.append(f.let(f"and {words} {state}, {f.let(f'or {words} {stays}, {kept}')}"))
        return f.end(loop, states)

    def _lowest(self, state: str) -> str:
        """The number of the lowest bit in each lane, 0 to 31; anything in that range where there is none."""
        f, lanes, words = self.f, self.lanes, self.words
        if self.target.has_masked_accesses:
            f.declarations.add(f"declare {words} @llvm.cttz.v{lanes}i32({words}, i1)")
            number = f.let(f"call {words} @llvm.cttz.v{lanes}i32({words} {state}, i1 false)")
        else:  # the exponent of the bit as a float
            floats = self.vector.type("f32")
            single = f.let(f"and {words} {state}, {f.let(f'sub {words} zeroinitializer, {state}')}")
            power = f.let(f"sitofp {words} {single} to {floats}")
            exponent = f.let(f"lshr {words} {f.let(f'bitcast {floats} {power} to {words}')}, {constant('i32', 23, lanes)}")
            number = f.let(f"sub {words} {exponent}, {constant('i32', 127, lanes)}")
        return f.let(f"and {words} {number}, {constant('i32', WORD_LEAVES - 1, lanes)}")

    def _said(self, word: str) -> Callable[[str], str]:
        """What makes of states of a word the votes of their leaves, or the numbers of these if they have several votes."""
        f, lanes, words, kernel, e = self.f, self.lanes, self.words, self.kernel, self.vector
        if kernel.width > 1:
            start = e.splat(f.let(f"trunc i64 {self._entry_of('words', word, WORD_ENTRIES, FIRST_LEAF)} to i32"), "i32")
            last = e.splat(f.let(f"trunc i64 {f.sub(self.a['leaves'], 1)} to i32"), "i32")

            def leaf(state: str) -> str:
                number = f.let(f"add {words} {self._lowest(state)}, {start}")
                return f.call(words, f"llvm.umin.v{lanes}i32", (words, number), (words, last))

            return leaf

        votes = f.element(self.a["bit_votes"], self.sum, f.mul(word, WORD_LEAVES))
        kind = e.type(kernel.sums)
        in_registers = kernel.sums == "f32" and self.target.has_float_permute
        halves = (
            [f.let(f"load {kind}, ptr {f.element(votes, self.sum, half)}, align 4") for half in (0, 16)] if in_registers else []
        )

        def vote(state: str) -> str:
            index = self._lowest(state)
            if halves:
                name = "llvm.x86.avx512.vpermi2var.ps.512"
                return f.call(kind, name, (kind, halves[0]), (words, index), (kind, halves[1]))
            return self._gathered(votes, f.let(f"zext {words} {index} to <{lanes} x i64>"), kernel.sums, e)

        return vote

    def emit(self) -> FunctionBuilder:
        f = self.f
        unit = f.loop("%begin", "%end")
        first = f.mul(unit.index, self.unit_rows)
        count = f.min(f.sub(self.a["rows"], first), self.unit_rows)
        few, many, done = f.fresh("few"), f.fresh("many"), f.fresh("block")
        f.branch_if(f.let(f"icmp slt i64 {count}, {FEW}", "c"), few, many)
        f.label(few)
        self._few(first, count)
        f.branch(done)
        f.label(many)
        self._blocks(first, count)
        f.branch(done)
        f.label(done)
        f.end(unit)
        return f
