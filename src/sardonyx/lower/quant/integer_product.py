"""Products of 8-bit integers with zero points, on the kernels of `kernel.matmul.int8`.

    sum over k of (a - az) * (b - bz)  =  sum of a * b  -  az * (sum of b - depth * bz)  -  bz * sum of a

What the kernel adds up is the first sum; the other two belong to columns of B and to rows of A. Those of a constant B are known
when the program is made, and multiplied by a constant zero point of A right then. Everything is exact modulo 2**32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, dim_max, product
from sardonyx.ir.graph import Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import Expr, const, load, reduced
from sardonyx.kernel.matmul.int8 import (
    Byte,
    Int8MatMulKernel,
    QuadPackKernel,
    element_depth,
    offset_of_a,
    offset_of_b,
    pack_units,
    quad_strip_vectors,
    takes_pairs,
    tallest_tile,
)
from sardonyx.kernel.matmul.matmul import fetching_rows, heights, vector_lanes
from sardonyx.kernel.matmul.pack import Order
from sardonyx.lower.derived import is_fixed, numbers
from sardonyx.lower.epilogue import GroupEpilogue, OperandNumber, group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step, merge_axes
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.product import Columns, Product, as_matrices, is_unit
from sardonyx.lower.views import with_axes
from sardonyx.program.constants import Cut, transform
from sardonyx.program.steps import KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost

ResultRule: TypeAlias = Callable[[OperandNumber, Expr], dict[Value, Expr]]


@dataclass(frozen=True)
class Quantized:
    """Bytes and their zero point: one, or one for each row of A or column of B."""

    view: View
    zero_point: Value | View | None

    @property
    def type(self) -> Byte:
        """Of the bytes."""
        return "i8" if self.view.buffer.dtype is dtypes.INT8 else "u8"


# Constants


def _quad_cuts(matrices: Array, strip: int, each: int) -> list[Cut]:
    """[..., segments, depth, columns] -> [..., strips, segments, elements, strip, k of an element]."""
    batch = matrices.ndim - 3
    return [*(Cut(axis, axis) for axis in range(batch)), Cut(batch + 2, batch, strip)]


@transform("pack_quads", 1, _quad_cuts, is_numbers=True)
def pack_quads(matrices: Array, strip: int, each: int) -> Array:
    """[..., segments, depth, columns] as [..., strips, segments, quads, strip, 4] of signed bytes; zeros beyond the matrices.

    Or as pairs: `each` is how many k an element has.
    """
    *batch, segments, depth, columns = matrices.shape
    quads, strips = -(-depth // each), -(-columns // strip)
    signed = matrices if matrices.dtype == np.int8 else (matrices ^ np.uint8(128)).view(np.int8)
    if quads * each != depth or strips * strip != columns:
        padded = np.zeros((*batch, segments, quads * each, strips * strip), np.int8)
        padded[..., :depth, :columns] = signed
        signed = padded
    parts = signed.reshape(*batch, segments, quads, each, strips, strip)
    front = len(batch)
    return np.moveaxis(parts, (front + 3, front, front + 1, front + 4, front + 2), range(front, front + 5))


def _column_cuts(matrices: Array, zero_point: Array | None) -> list[Cut]:
    """[..., depth, columns] -> [..., columns]: matrices, and columns that have the same zero point."""
    batch = matrices.ndim - 2
    columns = [Cut(batch + 1, batch)] if zero_point is None or zero_point.size == 1 else []
    return [*(Cut(axis, axis) for axis in range(batch)), *columns]


@transform("sum_of_distances", 1, _column_cuts, is_numbers=True)
def sum_of_distances(matrices: Array, zero_point: Array | None) -> Array:
    """The sums of [..., depth, columns] along the depth, every element as its distance to a zero point (of its column)."""
    sums = matrices.sum(axis=-2, dtype=np.int64)
    if zero_point is not None:
        sums = sums - matrices.shape[-2] * zero_point.reshape(-1).astype(np.int64)
    return np.asarray(sums.astype(np.int32))


@transform("terms_of_columns", 1, is_numbers=True)
def terms_of_columns(sums: Array, bias: Array | None, zero_point: int) -> Array:
    """What a zero point of A takes away from every column, and a bias that is added."""
    terms = -zero_point * sums.astype(np.int64)
    return np.asarray((terms if bias is None else terms + bias).astype(np.int32))


# The product


@dataclass(frozen=True)
class RowLayout:
    """How the rows of A lie: their depth in segments (sizes and strides), and the rows in lines (length and stride)."""

    segments: tuple[tuple[Dim, Dim], ...] = ()
    line: tuple[Dim, Dim] | None = None
    is_filled: bool = False  # behind a segment there are bytes to read, so that it may be filled up to whole elements


class Int8Product(Product):
    """A product of bytes on its way to steps. B is packed; its view has the batch axes and sizes only."""

    def __init__(
        self,
        ctx: LowerContext,
        group: Group,
        a: View,
        b: View,
        epilogue: GroupEpilogue,
        shape: list[Dim],
        operand_strides: list[list[Dim]],
        layout: RowLayout = RowLayout(),  # noqa: B008  (immutable)
    ) -> None:
        super().__init__(ctx, group, a, b, epilogue, shape, operand_strides, "i32")
        self.layout = layout
        if layout.line is not None:
            self.fixed = 2
        if layout.is_filled:
            each = element_depth(ctx.target)
            self.depth = ceildiv(self.depth, each) * each

    def tile_kernel(self, b: Columns, a: View, batch: int, rows: Dim, whole: bool, epilogue: Epilogue) -> Int8MatMulKernel:
        target = self.ctx.target
        most = tallest_tile(target, b.vectors)
        possible = heights(rows, most)
        return Int8MatMulKernel(
            a_type="i16" if takes_pairs(target) else Quantized(a, None).type,
            b_type=b.type,
            batch=batch,
            vectors=b.vectors,
            rows=most,
            heights=possible,
            fetches=self._fetches(possible[-1]),
            whole=whole,
            ragged=not isinstance(self.depth, int) or self.depth % element_depth(target) != 0,
            segments=len(self.layout.segments),
            lines=self.layout.line is not None,
            epilogue=epilogue,
        )

    def _fetches(self, tallest: int) -> bool:
        """Whether tiles bring the next strip: where vectors are computed in one piece, and a strip is not there by itself."""
        target = self.ctx.target
        whole = target.has_whole_vectors and target.has_broadcast_operands
        return whole and tallest >= fetching_rows(target)

    def a_arguments(self, a: View, strides: Sequence[Dim]) -> dict[str, Any]:
        segments, line = self.layout.segments, self.layout.line
        further = [stride for _, stride in segments] + ([] if line is None else [line[1]])
        sizes = [size for size, _ in segments]
        return {"a": (a.address, (*strides, *further)), "segments": sizes, "line": [] if line is None else [line[0]]}

    @property
    def whole_depth(self) -> Dim:
        """Bytes of all segments."""
        return product([self.depth, *(size for size, _ in self.layout.segments)])

    def bytes(self, elements: int) -> Dim:
        each = 2 if takes_pairs(self.ctx.target) else 1
        return each * elements * product([size for size, _ in self.layout.segments])

    def summable_a(self) -> View:
        """A as the kernel reads it: in 16 bits where elements are pairs."""
        if takes_pairs(self.ctx.target):
            self.a = widened(self.ctx, self.a)
        return self.a

    def work(self, operations: int) -> Dim:
        slots = dim_max(self.rows, 4) * product([*self.shape[:-2], self.columns]) * self.whole_depth
        return cost.int8_matmul(slots, product(self.shape), operations, self.ctx.target)


def integer_product(ctx: LowerContext, group: Group, a: Quantized, b: Quantized, rule: ResultRule) -> None:
    """The steps of a product of bytes; `rule` makes the root's results of the sum of products of distances."""
    assert group.shape is not None
    terms = MatrixTerms(ctx, group, a, b)
    epilogue = group_epilogue(ctx, group, lambda operand: rule(operand, terms.sum(operand)))
    if not epilogue.stores:
        return
    first, second, shape, strides = as_matrices(terms.a, terms.b, epilogue, group.shape)
    made = Int8Product(ctx, group, first, second, epilogue, shape, strides)
    made.check()
    made.tiles(terms.columns, 1)


def widened(ctx: LowerContext, view: View) -> View:
    """Bytes in 16 bits: a step, if they are not that already."""
    if view.buffer.dtype is dtypes.INT16:
        return view
    target = ctx.scratch(dtypes.INT16, view.shape, "widened")
    widen_into(ctx, view, target)
    return target


def widen_into(ctx: LowerContext, source: View, target: View) -> None:
    """A step that writes bytes in 16 bits."""
    assert ctx.group is not None
    kind, nodes = source.buffer.dtype.name, (ctx.group.label,)
    wide, label = load(0, kind).cast("i16"), f"widen for {nodes[0]}"
    ctx.step(loop_step(source.shape, [source, target], [kind, "i16"], [(1, wide)], target=ctx.target, label=label, nodes=nodes))


def element_type(ctx: LowerContext) -> str:
    """Of packed B."""
    return "i16" if takes_pairs(ctx.target) else "i32"


def packed_at_run_time(ctx: LowerContext, group: Group, matrix: View, vectors: int) -> tuple[View, View]:
    """A step that packs matrices [..., depth, columns]: the quads in scratch memory, and the sums [..., columns] of them."""
    *batch, depth, columns = matrix.shape
    strip = vectors * vector_lanes("i32", ctx.target)
    strips, quads = ceildiv(columns, strip), ceildiv(depth, element_depth(ctx.target))
    target = ctx.scratch(dtypes.from_name(element_type(ctx)), (*batch, strips, quads, strip), "quads")
    sums = ctx.scratch(dtypes.INT32, (*batch, strips * strip), "sums of columns")
    sizes, strides = merge_axes(batch, [matrix.strides[:-2]]) if batch else ([], [[]])
    order: Order = "columns" if is_unit(matrix, -1) else "depth" if is_unit(matrix, -2) else "any"
    kernel = QuadPackKernel(source=Quantized(matrix, None).type, batch=len(sizes), vectors=vectors, order=order)
    arguments = kernel.arguments.entries(
        batch=sizes,
        columns=columns,
        depth=depth,
        source=(matrix.address, (*strides[0], matrix.strides[-1], matrix.strides[-2])),
        target=target.address,
        sums=sums.address,
    )
    elements = product([*sizes, columns, depth])
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            pack_units(kernel, sizes, columns, ctx.target),
            cost.packed(elements, scattered=order != "columns"),
            (matrix.buffer,),
            (target.buffer, sums.buffer),
            f"pack for {group.label}",
            tuple(node.label for node in group.nodes),
        )
    )
    return target, View(sums.buffer, (*batch, columns), sums.strides)


class Terms:
    """What zero points take away from sums of products, and a bias that is added."""

    def __init__(self, ctx: LowerContext, group: Group, a: Quantized, b: Quantized, bias: Value | None = None) -> None:
        self.ctx, self.group = ctx, group
        self.left, self.right, self.bias = a, b, bias
        self.depth: Dim = 0  # how many products a sum has
        self.takes_distances = False  # the products are with distances of B to its zero points
        self.flips_a = True  # A's bytes have the sign that the machine wants

    # What a product or a convolution has to tell

    def constant_sums(self, zero_point: View | None) -> View | None:
        """For each column of a constant B the sum of distances to its zero point; None if they are not known."""
        raise NotImplementedError

    def computed_sums(self) -> View:
        """For each column of B as it is packed its sum."""
        raise NotImplementedError

    def row_sums(self) -> View:
        """For each row of A its sum, as it broadcasts to the result."""
        raise NotImplementedError

    def row(self, view: View) -> View:
        """A number for each row, as it broadcasts to the result."""
        raise NotImplementedError

    def column(self, view: View) -> View:
        """A number for each column of each matrix, as it broadcasts to the result."""
        raise NotImplementedError

    # What is made of it

    def sum(self, operand: OperandNumber) -> Expr:
        """The sum of products of distances to the zero points, and the bias."""
        total = accumulator("i32")
        a_offset = offset_of_a(self.left.type, self.ctx.target) if self.flips_a else 0
        a_zero = self._zero_point(self.left.zero_point, a_offset)
        b_zero = 0 if self.takes_distances else self._zero_point(self.right.zero_point, offset_of_b(self.right.type))
        zero_point = self.right.zero_point
        known = self.constant_sums(self.ctx.view(zero_point) if isinstance(zero_point, Value) else zero_point)
        bias = None if self.bias is None else self.ctx.view(self.bias)
        if known is not None and isinstance(a_zero, int) and (bias is None or is_fixed(bias)):
            if a_zero != 0 or bias is not None:
                shape = numbers(known.shape)
                made = self.ctx.packed(terms_of_columns, (known, bias), a_zero, dtype=dtypes.INT32, shape=shape)
                total = total + load(operand(self.column(made)), "i32")
        else:
            if a_zero != 0:
                columns = self._columns(operand, b_zero) if known is None else load(operand(self.column(known)), "i32")
                total = total - columns * self._loaded(operand, a_zero, self.row)
            if bias is not None:
                total = total + load(operand(self.column(bias)), "i32")
        if b_zero != 0:
            rows = load(operand(self.row_sums()), "i32") + self._times_depth(operand, a_offset)
            total = total - rows * self._loaded(operand, b_zero, self.column)
        return total

    def _zero_point(self, value: Value | View | None, offset: int) -> int | tuple[View, int]:
        """The number, if it is known and the same everywhere; else where it lies and what is to be added to it."""
        if value is None:
            return offset
        if isinstance(value, View):
            return value, offset
        data = self.ctx.constant_data(value)
        if data is not None and data.size:
            elements = data.numpy().reshape(-1)
            if (elements == elements[0]).all():
                return int(elements[0]) + offset
        return self.ctx.view(value), offset

    def _loaded(self, operand: OperandNumber, zero: int | tuple[View, int], placed: Callable[[View], View]) -> Expr:
        if isinstance(zero, int):
            return const(zero, "i32")
        view, offset = zero
        single = set(view.shape) <= {1}
        number = operand(View(view.buffer, (), (), view.offset) if single else placed(view))
        return load(number, view.buffer.dtype.name).cast("i32") + const(offset, "i32")

    def _times_depth(self, operand: OperandNumber, number: int) -> Expr:
        if isinstance(self.depth, int) or number == 0:
            return const(number * self.depth if isinstance(self.depth, int) else 0, "i32")
        sizes = self.ctx.sizes([self.depth], "depth")
        return load(operand(View(sizes.buffer, (), ())), "i64").cast("i32") * const(number, "i32")

    def _columns(self, operand: OperandNumber, b_zero: int | tuple[View, int]) -> Expr:
        """The sums of distances of B's columns, when they are not known beforehand."""
        sums = self.constant_sums(None)
        if sums is not None:  # of B as it is in the model
            b_zero = self._zero_point(self.right.zero_point, 0)
        columns = load(operand(self.column(self.computed_sums() if sums is None else sums)), "i32")
        if b_zero == 0:
            return columns
        return columns - self._times_depth(operand, 1) * self._loaded(operand, b_zero, self.column)


class MatrixTerms(Terms):
    """The operands of a matrix product as its kernel wants them."""

    def __init__(self, ctx: LowerContext, group: Group, a: Quantized, b: Quantized) -> None:
        super().__init__(ctx, group, a, b)
        self.a, self.b = a.view, b.view
        if not is_unit(self.a, -1):
            self.a = ctx.copy(self.a, ctx.scratch(self.a.buffer.dtype, self.a.shape, "rows"), "copy")
        self.depth = _known(self.b.shape[-2 if len(self.b.shape) > 1 else -1], self.a.shape[-1])
        self.matrix = self.b if len(self.b.shape) > 1 else with_axes(self.b, [1])
        self.is_constant = is_fixed(self.matrix)
        size = self.matrix.shape[-1]
        rows = self.a.shape[-2] if len(self.a.shape) == 2 else None
        self.vectors = quad_strip_vectors(size, ctx.target, rows, self.depth)
        self.strip = self.vectors * vector_lanes("i32", ctx.target)
        each = element_depth(ctx.target)
        elements = ceildiv(self.depth, each)
        if self.is_constant:
            shape = numbers((*self.matrix.shape[:-2], ceildiv(size, self.strip), 1, elements, self.strip, each))
            inserted = with_axes(self.matrix, [len(self.matrix.shape) - 2])
            packed = ctx.packed(pack_quads, (inserted,), self.strip, each, dtype=dtypes.INT8, shape=shape)
            # The kernel counts in elements.
            batch = View(packed.buffer, packed.shape[:-5], tuple(_over(stride, each) for stride in packed.strides[:-5]), 0)
        else:
            target, self.packed_sums = packed_at_run_time(ctx, group, self.matrix, self.vectors)
            batch = View(target.buffer, target.shape[:-3], target.strides[:-3])
        self.columns = Columns("packed", batch, element_type(ctx), elements * self.strip, self.vectors)

    # What zero points need

    def constant_sums(self, zero_point: View | None) -> View | None:
        if not self.is_constant or (zero_point is not None and not is_fixed(zero_point)):
            return None
        shape = numbers((*self.matrix.shape[:-2], self.matrix.shape[-1]))
        return self.ctx.packed(sum_of_distances, (self.matrix, zero_point), dtype=dtypes.INT32, shape=shape)

    def computed_sums(self) -> View:
        return self.packed_sums

    def row_sums(self) -> View:
        """A step that adds up the rows of A."""
        a = self.a
        sums = self.ctx.scratch(dtypes.INT32, a.shape[:-1], "sums of rows")
        along = View(sums.buffer, a.shape, (*sums.strides, 0))
        types = [a.buffer.dtype.name, "i32"]
        total = reduced("sum", load(0, types[0]).cast("i32"), 1)
        self.ctx.step(
            loop_step(
                a.shape,
                [a, along],
                types,
                (),
                target=self.ctx.target,
                label=f"sums of rows for {self.group.label}",
                nodes=tuple(node.label for node in self.group.nodes),
                results=[(1, total)],
                reduce="inner",
            )
        )
        return self.row(sums)

    def row(self, view: View) -> View:
        if len(self.left.view.shape) == 1:  # a vector has one row, without an axis
            return View(view.buffer, (), (), view.offset)
        return view if len(self.right.view.shape) == 1 else with_axes(view, [len(view.shape)])

    def column(self, view: View) -> View:
        if len(self.right.view.shape) == 1:
            return View(view.buffer, (), (), view.offset)
        if len(view.shape) == 1 or len(self.left.view.shape) == 1:
            return view
        return with_axes(view, [len(view.shape) - 1])


def _known(first: Dim, second: Dim) -> Dim:
    return first if isinstance(first, int) else second


def _over(stride: Dim, each: int) -> Dim:
    return stride // each if isinstance(stride, int) else ceildiv(stride, each)
