"""A matrix product on its way to steps.

A constant B is packed into strips when the program is made. A computed one is packed by a step of its own if enough rows use it,
or used as it lies. Products that are only a few rows or columns wide and lie along their depth are sums over it: loop kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, dim_max, dim_min, floordiv, product
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.expr import BITS, load
from sardonyx.kernel.matmul.dot import DotKernel
from sardonyx.kernel.matmul.dot import units as dot_units
from sardonyx.kernel.matmul.gemv import MOST_ROWS, GemvKernel
from sardonyx.kernel.matmul.gemv import units as gemv_units
from sardonyx.kernel.matmul.matmul import (
    MatMulKernel,
    Source,
    fetching_rows,
    heights,
    is_deep,
    strip_vectors,
    tallest,
    units,
    vector_lanes,
    waits_for_strips,
)
from sardonyx.kernel.matmul.pack import Order, PackKernel
from sardonyx.kernel.matmul.pack import units as pack_units
from sardonyx.lower.derived import is_fixed, numbers
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import broadcast_strides, loop_step, merge_axes
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.weights import pack_strips
from sardonyx.lower.matmul.weights import transposed as transpose_matrices
from sardonyx.lower.views import transposed
from sardonyx.program.steps import Address, Argument, Buffer, Kernel, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost

_PACK_FROM: Final = 64  # rows of A from which on it pays to pack a computed B that could be used as it lies
_PACK_FAR_FROM: Final = 32  # the same, if its rows lie far from each other
_LINE_BITS: Final = 512  # of a cache line
_PACK_BYTES: Final = 192 << 10  # of such a B from which on packing it pays: smaller ones stay in the cache as they are
_FAR: Final = 4  # times the second cache: so large must a B be whose rows lie far from each other
_FEW: Final = 3  # rows or columns up to which a product is a sum along the depth
_MANY_ROWS: Final = 16  # that fill a tile, whatever its height
_MANY_TILES: Final = 32  # of a strip: to wait for it in the first one is little then
_SHARED_PART: Final = 8  # of the last cache is what rows of A may take of it


def _inserted(view: View, axis: int) -> View:
    """The view with one more axis, of size 1."""
    at = len(view.shape) + 1 + axis
    return View(view.buffer, (*view.shape[:at], 1, *view.shape[at:]), (*view.strides[:at], 0, *view.strides[at:]), view.offset)


def as_matrices(a: View, b: View, epilogue: GroupEpilogue, shape: Sequence[Dim]) -> tuple[View, View, list[Dim], list[list[Dim]]]:
    """Operands, result shape and strides of the epilogue's operands with the axes that vectors lack: a row, a column."""
    shape = list(shape)
    operand_strides = [list(strides) for strides in epilogue.strides(shape)]
    if len(a.shape) == 1:
        a = _inserted(a, -2)
        at = len(shape) - (1 if len(b.shape) > 1 else 0)
        shape.insert(at, 1)
        for strides in operand_strides:
            strides.insert(at, 0)
    if len(b.shape) == 1:
        b = _inserted(b, -1)
        shape.append(1)
        for strides in operand_strides:
            strides.append(0)
    return a, b, shape, operand_strides


def with_known_rows(
    a: View, b: View, shape: list[Dim], operand_strides: list[list[Dim]]
) -> tuple[View, list[Dim], list[list[Dim]]]:
    """The same product with another axis as rows, if theirs is open and cannot be joined with the one before.

    One matrix times A, whose sequences were turned ([batch, 50, depth] as [50, batch, depth], with an open batch): a tile has a
    row for each sequence, of which there may be one, or fifty rows of a sequence, which all read the same weights. If both are
    open, the run tells which axis is longer: sizes and strides are those of either.
    """
    if len(b.shape) != 2 or len(a.shape) < 3 or len(a.shape) != len(shape) or isinstance(shape[-2], int):
        return a, shape, operand_strides
    if a.strides[-3] == a.shape[-2] * a.strides[-2]:
        return a, shape, operand_strides
    many = [axis for axis, size in enumerate(shape[:-2]) if isinstance(size, int) and size >= _MANY_ROWS]
    if not many and not isinstance(shape[-3], int) and a.shape[-3:-1] == tuple(shape[-3:-1]):
        before, rows = shape[-3], shape[-2]
        swapped = dim_min(floordiv(before, rows + 1), 1)  # 1 if there are more of those, else 0

        def longer_last(strides: Sequence[Dim]) -> list[Dim]:
            outer, inner = strides[-3:-1]
            return [*strides[:-3], outer + (inner - outer) * swapped, inner + (outer - inner) * swapped, strides[-1]]

        sizes = (dim_min(before, rows), dim_max(before, rows))
        view = View(a.buffer, (*a.shape[:-3], *sizes, a.shape[-1]), tuple(longer_last(a.strides)), a.offset)
        return view, [*shape[:-3], *sizes, shape[-1]], [longer_last(each) for each in operand_strides]
    if not many:
        return a, shape, operand_strides
    order = list(range(len(shape)))
    order[many[-1]], order[-2] = order[-2], order[many[-1]]
    strides = [[one[axis] for axis in order] for one in operand_strides]
    return transposed(a, order), [shape[axis] for axis in order], strides


@dataclass(frozen=True)
class Columns:
    """The right operand of a product as a kernel reads it: packed into strips of columns, or row by row."""

    source: Source
    view: View  # its batch axes only
    type: str
    stride: Dim  # from strip to strip (packed) or from row to row
    vectors: int


class Product:
    """One matrix product to be lowered: shape is [*batch, rows, columns], `operand_strides` the epilogue's strides over it."""

    def __init__(
        self,
        ctx: LowerContext,
        group: Group,
        a: View,
        b: View,
        epilogue: GroupEpilogue,
        shape: list[Dim],
        operand_strides: list[list[Dim]],
        kind: str,
    ) -> None:
        self.ctx, self.group, self.a, self.b = ctx, group, a, b
        self.epilogue, self.shape, self.operand_strides, self.kind = epilogue, shape, operand_strides, kind
        self.rows, self.columns = shape[-2], shape[-1]
        self.depth = b.shape[-2] if isinstance(b.shape[-2], int) else a.shape[-1]
        self.constant = is_fixed(b)
        few = self.rows if self.constant else None  # strips of a B that lies as it is share lines of the cache if they are narrow
        self.vectors = strip_vectors(self.columns, kind, ctx.target, few, self.depth)
        self.strip = self.vectors * vector_lanes(kind, ctx.target)
        self.fixed = 1  # axes, counted from the last, that are not joined with others

    def lower(self) -> None:
        """Choose a way and write its steps."""
        self.check()
        along_depth = is_unit(self.a, -1) and (self.constant or is_unit(self.b, -2))
        if along_depth and isinstance(self.columns, int) and self.columns <= _FEW:
            self._sums(1)
        elif self.constant:
            self.constant_tiles(self.packed_constant())
        elif not is_unit(self.b, -1):
            if not along_depth:
                self.tiles(self._packed(1), 1)
            else:
                self._either(_FEW + 1, self._sums)
        elif self._stays_near():
            self.tiles(self._as_it_lies(), 1)
        else:
            least = _PACK_FAR_FROM if self._is_far else _PACK_FROM
            self._either(least, lambda share: self.tiles(self._as_it_lies(), share))

    def check(self) -> None:
        """Note what must hold of the operands' sizes."""
        ctx, a, b = self.ctx, self.a, self.b
        for size, other in ((a.shape[-1], b.shape[-2]), (a.shape[-2], self.rows), (b.shape[-1], self.columns)):
            ctx.check_equal(size, other)
        for batch in (a.shape[:-2], b.shape[:-2]):
            ctx.check_broadcast(batch, self.shape[:-2])

    def _stays_near(self) -> bool:
        """Whether a B consecutive along its columns is read as fast as a packed one.

        Vectors as wide as a cache line take several lines of a row at once; a small B is in the cache anyway.
        """
        is_small = isinstance(self.columns * self.depth, int) and not self._is_larger(_PACK_BYTES - 1)
        return self.ctx.target.vector_bits >= _LINE_BITS or is_small

    def _either(self, least: int, otherwise: Callable[[Dim], None]) -> None:
        """Pack B if it has at least so many rows of A to serve; else do something else.

        If the rows are known only at run time, both ways are in the program: the one that does not fit has no units.
        """
        many = dim_min(floordiv(self.rows, least), 1)
        if many != 0:
            self.tiles(self._packed(many), many)
        if many != 1:
            otherwise(1 - many)

    def bytes(self, elements: int) -> Dim:
        """Memory of some elements of A."""
        return elements * BITS[self.kind] // 8

    # The ways B can be read

    def _as_it_lies(self) -> Columns:
        b = self.b
        return Columns(
            "rows", View(b.buffer, b.shape[:-2], b.strides[:-2], b.offset), b.buffer.dtype.name, b.strides[-2], self.vectors
        )

    def _packed_shape(self) -> tuple[Dim, ...]:
        return (*self.b.shape[:-2], ceildiv(self.columns, self.strip), self.depth, self.strip)

    def packed_constant(self) -> Columns:
        """B in strips."""
        b, strip = self.b, self.strip
        shape = numbers(self._packed_shape())
        view = self.ctx.packed(pack_strips, (b,), strip, dtype=b.buffer.dtype, shape=shape)
        return Columns("packed", batch_of(view), b.buffer.dtype.name, self.depth * strip, self.vectors)

    def _packed(self, share: Dim) -> Columns:
        """A step that packs B into scratch memory."""
        ctx, b = self.ctx, self.b
        target = ctx.scratch(dtypes.from_name(self.kind), self._packed_shape(), "strips")
        batch = batch_of(target)
        sizes: list[Dim] = []
        operand_strides: list[list[Dim]] = [[]]
        if batch.shape:
            sizes, operand_strides = merge_axes(b.shape[:-2], [b.strides[:-2], batch.strides])
        order: Order = "columns" if is_unit(b, -1) else "depth" if is_unit(b, -2) else "any"
        kernel = PackKernel(source=b.buffer.dtype.name, type=self.kind, batch=len(sizes), vectors=self.vectors, order=order)
        arguments = kernel.arguments.entries(
            batch=sizes,
            columns=self.columns,
            depth=self.depth,
            source=(b.address, (*operand_strides[0], b.strides[-1], b.strides[-2])),
            target=Address(target.buffer),
        )
        elements = product([*sizes, self.columns, self.depth])
        label = f"pack for {self.group.label}"
        ctx.step(
            KernelStep(
                kernel,
                arguments,
                pack_units(kernel, sizes, self.columns, self.depth, ctx.target) * share,
                cost.packed(elements, scattered=order == "any") * share,
                (b.buffer,),
                (target.buffer,),
                label,
                tuple(node.label for node in self.group.nodes),
            )
        )
        return Columns("packed", batch, self.kind, self.depth * self.strip, self.vectors)

    # The steps

    def constant_tiles(self, b: Columns) -> None:
        """A product with a constant matrix."""
        self.tiles(b, 1)

    def tiles(self, b: Columns, share: Dim) -> None:
        """A product in tiles, or rows of B as they lie, if few rows of A are multiplied with many of these."""
        ctx, a = self.ctx, self.summable_a()
        a_strides = (*broadcast_strides(View(a.buffer, a.shape[:-1], a.strides[:-1]), self.shape[:-1]), 0)
        b_strides = (*broadcast_strides(b.view, self.shape[:-2]), 0, 0)
        sizes, operand_strides = merge_axes(self.shape, [a_strides, b_strides, *self.operand_strides], self.fixed)
        if len(sizes) < 2 or operand_strides[1][-2] != 0:  # the axis of rows has size 1 and was dropped
            sizes.insert(len(sizes) - 1, 1)
            for own in operand_strides:
                own.insert(len(own) - 1, 0)
        *batch, rows, columns = sizes
        epilogue = self.epilogue.for_kernel([own[-1] for own in operand_strides[2:]], [own[-2] for own in operand_strides[2:]])
        few = self._few_rows(b, rows)
        single = 1 if few else self._is_single(b, rows)  # 1 if the rows are few, 0 if not, perhaps known only at run time
        arguments: dict[str, Any] = {
            "batch": batch,
            "columns": columns,
            "depth": self.depth,
            "b": (b.view.address, (*operand_strides[1][:-2], b.stride)),
            "operands": [(view.address, own) for view, own in zip(self.epilogue.views, operand_strides[2:])],
            **self.a_arguments(a, operand_strides[0][:-1]),
        }
        work, reads = self.work(epilogue.operations) * share, (a.buffer, b.view.buffer)
        if single != 0:
            gemv = GemvKernel(
                type=self.kind,
                b_type=b.type,
                batch=len(batch),
                rows=few or 1,
                epilogue=epilogue,
                deep=is_deep(self.kind, self.depth),
                fetches=self._is_larger(ctx.target.caches.l3 // 2),
            )
            pieces = gemv_units(batch, columns) * share * single
            self.step(gemv, gemv.arguments.entries(**arguments), pieces, work * single, reads)
        if single != 1:
            whole = isinstance(columns, int) and columns % (b.vectors * vector_lanes(self.kind, ctx.target)) == 0
            kernel = self.tile_kernel(b, a, len(batch), rows, whole, epilogue)
            entries = kernel.arguments.entries(rows=rows, group=self._group(kernel), **arguments)
            tiles = units(kernel, batch, rows, columns, ctx.target) * (1 - single)
            self.step(kernel, entries, tiles * share, work * (1 - single), reads)

    def _group(self, kernel: MatMulKernel) -> Dim:
        """How many blocks of rows take a strip of B one after the other.

        Their part of A stays in the second cache, unless that leaves a strip that comes from beyond it so few tiles that each
        group waits for all of B again: A is then read from the last cache, evenly and thus without waiting, and B only once.
        """
        caches, block = self.ctx.target.caches, dim_max(self.depth, 1) * self.bytes(kernel.rows)
        blocks = floordiv(caches.l2 // 2, block)
        if isinstance(blocks, int) and blocks < _MANY_TILES and self._waits_for_strips(kernel.vectors):
            blocks = floordiv(max(caches.l3 // _SHARED_PART, caches.l2 // 2), block)
        return dim_max(blocks, 1)

    def _waits_for_strips(self, vectors: int) -> bool:
        """Whether B is known to come from beyond the second cache, and tiles are held up by that."""
        target = self.ctx.target
        return self._is_larger(target.caches.l2 // 2) and waits_for_strips(target, vectors)

    def _few_rows(self, b: Columns, rows: Dim) -> int:
        """How many rows of A are so few that rows of B are better read from end to end; 0 if there are more."""
        if b.source != "rows" or not isinstance(rows, int):
            return 0
        return rows if rows == 1 or (1 < rows <= MOST_ROWS and self._is_far) else 0

    def _is_single(self, b: Columns, rows: Dim) -> Dim:
        """1 if rows that are known only at run time turn out to be a single one, else 0."""
        if b.source != "rows" or isinstance(rows, int) or not self._is_larger(_PACK_BYTES):
            return 0
        return dim_min(rows, 1) - dim_min(floordiv(rows, 2), 1)

    @property
    def _is_far(self) -> bool:
        """Whether rows of B lie so far from each other that strips of them are waited for."""
        return self._is_larger(_FAR * self.ctx.target.caches.l2)

    def _is_larger(self, bytes_: int) -> bool:
        """Whether a matrix of B is known to have more bytes."""
        size = self.columns * self.depth
        return isinstance(size, int) and size * BITS[self.kind] // 8 > bytes_

    def tile_kernel(self, b: Columns, a: View, batch: int, rows: Dim, whole: bool, epilogue: Epilogue) -> MatMulKernel:
        """The kernel of a product in tiles."""
        most = tallest(self.ctx.target, b.vectors)
        possible = heights(rows, most)
        fetches = possible[-1] >= fetching_rows(self.ctx.target) and self.constant and b.source == "packed" and is_unit(a, -1)
        return MatMulKernel(
            type=self.kind,
            b_type=b.type,
            b=b.source,
            batch=batch,
            vectors=b.vectors,
            rows=most,
            heights=possible,
            unit_depth=is_unit(a, -1),
            whole=whole,
            epilogue=epilogue,
            deep=is_deep(self.kind, self.depth),
            fetches=fetches and self._waits_for_strips(b.vectors),
        )

    def a_arguments(self, a: View, strides: Sequence[Dim]) -> dict[str, Any]:
        """The arguments that describe A, given its strides along the batch axes and from row to row."""
        return {"a": (a.address, (*strides, a.strides[-1]))}

    def work(self, operations: int) -> Dim:
        """Nanoseconds on one core; fewer rows than 4 wait for B to come."""
        results = product(self.shape)
        slots = dim_max(self.rows, 4) * product([*self.shape[:-2], self.columns]) * self.depth
        return cost.matmul(slots, results, operations, double=self.kind == "f64")

    def summable_a(self) -> View:
        """A in the type of the sums: halves are converted once, by a step of their own."""
        a = self.a
        if a.buffer.dtype.name == self.kind:
            return a
        target = self.ctx.scratch(dtypes.from_name(self.kind), a.shape, "converted")
        name = a.buffer.dtype.name
        self.ctx.step(
            loop_step(
                a.shape,
                [a, target],
                [name, self.kind],
                [(1, load(0, name).cast(self.kind))],
                target=self.ctx.target,
                label="convert",
                nodes=("convert",),
            )
        )
        self.a = target
        return target

    def _sums(self, share: Dim) -> None:
        """Every element of the result is one sum along the depth. The vectors of results run along its longer side."""
        ctx, b = self.ctx, self._stored_along_depth()
        first, second, shape, operand_strides = self.a, b, self.shape, self.operand_strides
        if isinstance(self.columns, int) and self.columns <= _FEW and self.rows != 1:
            first, second = b, self.a
            shape = [*shape[:-2], shape[-1], shape[-2]]
            operand_strides = [[*own[:-2], own[-1], own[-2]] for own in operand_strides]
        *batch, rows, columns = shape
        first_strides = (*broadcast_strides(View(first.buffer, first.shape[:-1], first.strides[:-1]), shape[:-1]), 0)
        second_strides = broadcast_strides(View(second.buffer, second.shape[:-2], second.strides[:-2]), batch)
        sizes, merged = merge_axes(shape, [first_strides, (*second_strides, 0, 0), *operand_strides], 2)
        *batch, rows, columns = sizes
        epilogue = self.epilogue.for_kernel([own[-1] for own in merged[2:]])
        kernel = DotKernel(
            type=self.kind, a_type=first.buffer.dtype.name, b_type=second.buffer.dtype.name, batch=len(batch), epilogue=epilogue
        )
        arguments = kernel.arguments.entries(
            batch=batch,
            rows=rows,
            columns=columns,
            depth=self.depth,
            a=(first.address, merged[0][:-1]),
            b=(second.address, (*merged[1][:-2], second.strides[-2])),
            operands=[(view.address, own) for view, own in zip(self.epilogue.views, merged[2:])],
        )
        work = cost.dot(product([*sizes, self.depth]), double=self.kind == "f64")
        units_ = dot_units(kernel, batch, rows, columns, ctx.target)
        self.step(kernel, arguments, units_ * share, work * share, (first.buffer, second.buffer))

    def _stored_along_depth(self) -> View:
        """B with its last two axes exchanged, consecutive along the depth; a constant is transposed beforehand if it must be."""
        b = self.b
        if not self.constant or is_unit(b, -2):
            return transposed(b, [*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2])
        shape = numbers((*b.shape[:-2], b.shape[-1], b.shape[-2]))
        return self.ctx.packed(transpose_matrices, (b,), dtype=b.buffer.dtype, shape=shape)

    def step(
        self,
        kernel: Kernel,
        arguments: tuple[Argument, ...],
        units_: Dim,
        work: Dim,
        reads: tuple[Buffer, ...],
        scratch: tuple[Buffer, ...] = (),
    ) -> None:
        """Write a step that reads these operands, and has the epilogue; `scratch` is memory of each worker."""
        self.ctx.step(
            KernelStep(
                kernel,
                arguments,
                units_,
                work,
                (*reads, *self.epilogue.reads),
                (*self.epilogue.writes, *scratch),
                self.group.label,
                tuple(node.label for node in self.group.nodes),
                self.epilogue.in_place(self.operand_strides, reads),
                flops=2 * product([*self.shape, self.depth]),
            )
        )


def is_unit(view: View, axis: int) -> bool:
    """Whether the view is consecutive along an axis."""
    return view.strides[axis] == 1 or view.shape[axis] == 1


def batch_of(packed: View) -> View:
    """Strips as a tensor of their batch axes."""
    return View(packed.buffer, packed.shape[:-3], packed.strides[:-3], packed.offset)
