"""Products with constant matrices by Strassen's algorithm (`kernel.matmul.strassen`), where there is enough of each axis.

A step goes before the product: it adds quarters of A, and finds the largest magnitude of each row. Products of one A (queries,
keys and values) share it. It has nothing to do where rows are open and turn out to be few: the kernel then multiplies as the
definition says.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, dim_max, dim_min, floordiv, product
from sardonyx.ir.graph import Value
from sardonyx.kernel.expr import binary, load, reduced, unary
from sardonyx.kernel.matmul.matmul import heights, is_deep, tallest, vector_lanes
from sardonyx.kernel.matmul.strassen import MOST_BLOCKS, PRODUCTS, SUMS, StrassenKernel, lowest_tile
from sardonyx.lower.derived import data_of, part_of
from sardonyx.lower.loop_builder import broadcast_strides, loop_step, merge_axes
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.product import Columns, Product, is_unit
from sardonyx.lower.views import sliced, without_axes
from sardonyx.program.steps import Address, View
from sardonyx.target.target import Target

LEAST_ROWS: Final = 32  # of an entry
_LEAST_IN_ALL: Final = (32, 80)  # rows of all entries; the second is for machines that compute whole vectors (`least_in_all`)
_SEQUENCES: Final = 3  # axes: entries, rows, columns
LEAST_DEPTH: Final = 256
# Of the time of a product's multiplications about 1/13 is saved, 2 * columns / 13 of them for each element of A. Magnitudes and
# sums of quarters read that element twice and write as much, at the speed of a shared cache: 0.3 to 0.45 ns.
LEAST_COLUMNS: Final = 224
_FLOAT_BYTES: Final = 4
_SAMPLED_ROWS: Final = 64  # of the weights
_SAMPLED_COLUMNS: Final = 4  # of a strip
# The error of a column is about that of the larger one of two that go together, 1e-6 of what that has.
_MOST_UNLIKE: Final = 32.0
_A_IN_CACHE: Final = 4  # times the second cache: rows and their sums are read fast enough from beyond it,
_A_IN_SHARED_CACHE: Final = 8  # as long as they take no more than this part of the last cache


def least_in_all(target: Target) -> int:
    """Rows of all entries from which on it pays.

    Where whole vectors are computed weights come slower than few rows use them. Plain products bring them in time; of seven
    products, which have half as many tiles each, every first one waits.
    """
    return _LEAST_IN_ALL[target.has_broadcast_operands and target.has_whole_vectors]


def in_entries(
    ctx: LowerContext, value: Value, a: View, shape: list[Dim], operand_strides: list[list[Dim]]
) -> tuple[View, list[Dim], list[list[Dim]]]:
    """The same product with all that the first axis counts as entries: pixels of an image are rows of one, and those of a matrix
    belong to the entries they come from, if it is a reshaped tensor."""
    if len(shape) > _SEQUENCES and len(a.shape) == len(shape):
        return _with_joined_rows(a, shape, operand_strides)
    source = value.producer.inputs[0] if value.producer is not None and value.producer.op_type == "Reshape" else None
    if source is None or len(a.shape) != 2 or len(shape) != 2 or ctx.shape(source)[-1] != a.shape[-1]:
        return a, shape, operand_strides
    *outer, rows, _ = ctx.shape(source)
    entries = product(outer)
    ctx.check_equal(entries * rows, shape[0])
    row, along = a.strides
    split = [[rows * own[0], *own] for own in operand_strides]
    return View(a.buffer, (entries, rows, a.shape[-1]), (rows * row, row, along), a.offset), [entries, rows, shape[1]], split


def _with_joined_rows(a: View, shape: list[Dim], operand_strides: list[list[Dim]]) -> tuple[View, list[Dim], list[list[Dim]]]:
    """Axes between the first and the last as one, where everybody walks through them without a jump."""
    walks = [list(a.strides[1:-1]), *(own[1:-1] for own in operand_strides)]
    sizes, joined = merge_axes(shape[1:-1], walks)
    if len(sizes) > 1:
        return a, shape, operand_strides
    strides = [[own[0], *rows, own[-1]] for own, rows in zip([list(a.strides), *operand_strides], joined)]
    rows_of_a, *others = strides
    view = View(a.buffer, (a.shape[0], *sizes, a.shape[-1]), tuple(rows_of_a), a.offset)
    return view, [shape[0], *sizes, shape[-1]], others


class StrassenProduct(Product):
    """A product of rows that belong together, as those of a sequence do."""

    def constant_tiles(self, b: Columns) -> None:
        """A product with a constant matrix."""
        many = self._share(b)
        if many == 0:
            super().constant_tiles(b)
        else:
            self._halves(b, many)

    def _share(self, b: Columns) -> Dim:
        """1 if the product is computed in halves, 0 if not; an expression of the rows if these are open."""
        depth, columns, a = self.depth, self.columns, self.a
        if not isinstance(depth, int) or not isinstance(columns, int) or b.view.shape or not is_unit(a, -1):
            return 0
        if depth % 2 or depth < LEAST_DEPTH or columns < LEAST_COLUMNS or columns <= self.strip:
            return 0
        if a.buffer.dtype is not dtypes.FLOAT32 or b.type != "f32" or len(a.shape) != len(self.shape):
            return 0
        if depth // 2 * self.strip * _FLOAT_BYTES > self.ctx.target.caches.l2 // 2:
            return 0
        many, least = dim_min(floordiv(self.rows, LEAST_ROWS), 1), least_in_all(self.ctx.target)
        if least > LEAST_ROWS:
            many = many * dim_min(floordiv(product(self.shape[:-1]), least), 1)
        return many if many != 0 and self._columns_are_alike() else 0

    def _columns_are_alike(self) -> bool:
        """Whether columns that go together have weights of about the same size, by a sample; NaN are unlike anything.

        Where columns lie along the depth only some are looked at: all of the weights would have to be fetched.
        """
        weights = data_of(part_of(self.b))
        step = 1 if is_unit(self.b, -1) else self.strip // _SAMPLED_COLUMNS
        largest = np.abs(weights[:: max(len(weights) // _SAMPLED_ROWS, 1), ::step]).max(axis=0)
        width = self.strip // step
        for start in range(0, len(largest) - width, 2 * width):
            right = largest[start + width : start + 2 * width]
            left = largest[start : start + len(right)]
            if not (np.maximum(left, right) <= _MOST_UNLIKE * np.minimum(left, right)).all():
                return False
        return True

    def _halves(self, b: Columns, many: Dim) -> None:
        ctx, a, target = self.ctx, self.a, self.ctx.target
        assert isinstance(self.depth, int)
        sums, maxima = self._sums_and_maxima(many)
        a_strides = (*broadcast_strides(View(a.buffer, a.shape[:-1], a.strides[:-1]), self.shape[:-1]), 0)
        sizes, strides = merge_axes(self.shape, [a_strides, *self.operand_strides], 2)
        *batch, rows, columns = sizes
        if many != 1 and len(batch) == 1 and all(own[0] == own[1] * rows for own in strides):
            # Few rows are computed as one matrix.
            rows, batch = many * rows + (1 - many) * batch[0] * rows, [many * batch[0] + 1 - many]
        half = many * ceildiv(rows, 2) + (1 - many) * rows
        most = tallest(target, b.vectors)
        epilogue = self.epilogue.for_kernel([own[-1] for own in strides[1:]], [own[-2] for own in strides[1:]])
        kernel = StrassenKernel(
            batch=len(batch),
            vectors=b.vectors,
            rows=most,
            heights=heights(ceildiv(rows, 2) if many == 1 else rows, most),
            lowest=lowest_tile([half] if isinstance(half, int) else range(LEAST_ROWS // 2, LEAST_ROWS // 2 + most * most), most),
            whole=isinstance(columns, int) and columns % (b.vectors * vector_lanes(self.kind, target)) == 0,
            epilogue=epilogue,
            deep=is_deep(self.kind, floordiv(self.depth, 2)),
        )
        strips = ceildiv(columns, self.strip)
        pairs = many * ceildiv(strips, 2) + (1 - many) * strips
        blocks = product(batch) * ceildiv(half, most)
        differences = ctx.worker_scratch(dtypes.FLOAT32, self.depth // 2 * self.strip, "differences of weights")
        products = ctx.worker_scratch(dtypes.FLOAT32, PRODUCTS * MOST_BLOCKS * most * self.strip, "products of halves")
        arguments = kernel.arguments.entries(
            batch=batch,
            rows=rows,
            columns=columns,
            depth=self.depth,
            group=self._group_of(blocks, most),
            a=(a.address, (*strides[0][:-1], 1)),
            b=(b.view.address, (*(0 for _ in batch), b.stride)),
            operands=[(view.address, own) for view, own in zip(self.epilogue.views, strides[1:])],
            together=1 + many,
            sums=Address(sums.buffer),
            maxima=Address(maxima.buffer),
            differences=(Address(differences), (differences.size,)),
            products=(Address(products), (products.size,)),
        )
        units = blocks * pairs
        reads = (a.buffer, b.view.buffer, sums.buffer, maxima.buffer)
        self.step(kernel, arguments, units, self.work(epilogue.operations), reads, (differences, products))

    def _group_of(self, blocks: Dim, rows: int) -> Dim:
        """How many blocks take a pair of strips one after the other: as many in each group, for the strips come anew for each."""
        assert isinstance(self.depth, int)
        caches, block = self.ctx.target.caches, 4 * rows * self.depth * _FLOAT_BYTES  # rows of both halves, and sums
        most = max(max(caches.l2 * _A_IN_CACHE, caches.l3 // _A_IN_SHARED_CACHE) // block, 1)
        return dim_max(ceildiv(blocks, dim_max(ceildiv(blocks, most), 1)), 1)

    def _sums_and_maxima(self, many: Dim) -> tuple[View, View]:
        """What a step adds up of A, and the largest magnitudes of its rows; products of the same A share them."""
        root, a = self.group.root, self.a
        value = None if root is None else root.inputs[0]
        assert value is not None
        key = (value, f"halves {many} {a.shape} {a.strides} {a.offset}")
        sums, maxima = self.ctx.once(key, lambda: self._made_of_halves(many))
        return sums, maxima

    def _made_of_halves(self, many: Dim) -> list[View]:
        """A step that adds quarters of A, as the kernel reads them, [entry][sum][row of a half][half of the depth], and finds the
        largest magnitude of each row; NaN if there is one. The middle one of an odd number of rows is written twice, the same."""
        ctx, a, half, deep = self.ctx, self.a, ceildiv(self.rows, 2), self.depth // 2
        used = many * half  # nothing where rows are few
        batch = a.shape[:-2]
        sums = ctx.scratch(dtypes.FLOAT32, (*batch, SUMS, used, deep), "sums of halves")
        maxima = ctx.scratch(dtypes.FLOAT32, (*batch, many * self.rows), "magnitudes of rows")
        starts = (0, self.rows - half)
        upper, lower = (sliced(a, len(batch), start, used) for start in starts)
        a11, a12, a21, a22 = (sliced(rows, len(batch) + 1, start, deep) for rows in (upper, lower) for start in (0, deep))
        of_rows = [sliced(maxima, len(batch), many * start, used) for start in starts]
        along = [View(each.buffer, a11.shape, (*each.strides, 0), each.offset) for each in of_rows]
        x11, x12, x21, x22 = (load(number, "f32") for number in range(4))
        s1 = x21 + x22
        s2 = s1 - x11
        to = [without_axes(sliced(sums, len(batch), number, 1), [len(batch)]) for number in range(SUMS)]
        views = [a11, a12, a21, a22, *to, *along]
        stores = [(4 + number, value) for number, value in enumerate((s1, s2, x11 - x21, x12 - s2))]
        largest = [
            reduced("max", binary("max", unary("abs", left), unary("abs", right)), 0) for left, right in ((x11, x12), (x21, x22))
        ]
        results = [(4 + SUMS + number, value) for number, value in enumerate(largest)]
        label, nodes = f"sums for {self.group.label}", tuple(node.label for node in self.group.nodes)
        types, target = ["f32"] * len(views), ctx.target
        ctx.step(
            loop_step(a11.shape, views, types, stores, results=results, reduce="inner", target=target, label=label, nodes=nodes)
        )
        return [sums, maxima]
