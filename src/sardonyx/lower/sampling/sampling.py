"""GridSample and AffineGrid; they mean what `ops/sampling/sampling.py` says.

A GridSample first writes, for every point of the grid, the positions of the elements it is made of and their weights; they are
the same for all channels. The expressions are those of the definition, operation by operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim, dim_max
from sardonyx.ir.graph import Node
from sardonyx.ir.types import TensorType
from sardonyx.kernel.expr import FLOATS, Expr, clamp, const, index, load, minimum, select, unary
from sardonyx.kernel.sampling import sample
from sardonyx.kernel.sampling.sample import SampleKernel, SampleRowsKernel
from sardonyx.lower.copying import OF_WIDTH
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import indexed_loop
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template
from sardonyx.lower.views import reshaped, transposed
from sardonyx.program.steps import KernelStep, View, element_count
from sardonyx.records import dataclass
from sardonyx.target import cost

_FARTHEST: Final = 2.0**30  # coordinates are cut to this before they become integers
_TAP_BITS: Final = {"nearest": 0, "linear": 1, "cubic": 2}  # of an axis: two to this power are its taps
_MODES: Final = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}


def _kind(node: Node, position: int) -> str:
    value = node.inputs[position]
    return value.type.dtype.name if value is not None and isinstance(value.type, TensorType) else ""


def _accepts_grid(node: Node) -> str:
    attrs = attribute_values(node)
    shapes = [(value.shape if value is not None else None) or () for value in node.inputs[:2]]
    rank = len(shapes[0]) - 2
    if not 1 <= rank <= 3 or len(shapes[1]) != len(shapes[0]) or shapes[1][-1] != rank:
        return "image and grid do not fit, or more than 3 spatial axes"
    if attrs.get("mode") not in _MODES or attrs.get("padding_mode") not in ("zeros", "border", "reflection"):
        return "a mode that is not known"
    kinds = [_kind(node, position) for position in (0, 1)]
    if _MODES[attrs["mode"]] == "nearest":
        return ""
    fits = kinds[0] in FLOATS and compute_type(kinds[1]) in (compute_type(kinds[0]), "f64")
    return "" if fits else f"no kernel for values between elements of {kinds[0]} with a grid of {kinds[1]}"


@dataclass(frozen=True)
class _Grid:
    """How points are looked up: loads 0 ... rank - 1 are the coordinates of a point, the next ones the sizes of the image."""

    rank: int
    kind: str  # the coordinates are computed in this type
    source: str  # and stored in this one
    mode: str
    padding: str
    corners: bool

    def size(self, axis: int) -> Expr:
        return load(self.rank + axis, "i64")

    def coordinate(self, axis: int) -> Expr:
        """Where a point lies on an axis, in elements."""
        x, size = load(axis, self.source).cast(self.kind), self.size(axis)
        if self.corners:
            return (x + 1.0) * ((size - 1).cast(self.kind) * 0.5)
        return ((x + 1.0) * size.cast(self.kind) - 1.0) * 0.5

    def step(self, axis: int) -> Expr:
        """Which tap of an axis we are at."""
        bits = _TAP_BITS[self.mode]
        return (index(1) >> (bits * (self.rank - 1 - axis))) & ((1 << bits) - 1)

    def position(self) -> Expr:
        """The element of an image's channel, or -1 outside."""
        position: Expr = const(0, "i64")
        inside: Expr | None = None
        for axis in range(self.rank):
            x, size = self.coordinate(axis), self.size(axis)
            finite = select(unary("isnan", x), -_FARTHEST, clamp(x, -_FARTHEST, _FARTHEST))
            if self.mode == "nearest":
                tap = unary("round", finite).cast("i64")
            else:
                tap = unary("floor", finite).cast("i64") + self.step(axis) - (1 if self.mode == "cubic" else 0)
            if self.padding == "reflection":
                resolved = self._reflected(tap, size)
            else:
                resolved = clamp(tap, 0, size - 1)
            if self.padding == "zeros":
                within = (tap >= 0) & (tap < size)
                inside = within if inside is None else inside & within
            position = position * size + resolved
        return position if inside is None else select(inside, position, -1)

    def _reflected(self, tap: Expr, size: Expr) -> Expr:
        if self.corners:
            double = (size - 1) * 2
            folded = unary("abs", tap) % double
            return select(size > 1, minimum(folded, double - folded), 0)
        double = size * 2
        rest = tap % double
        folded = select(rest < 0, rest + double, rest)
        return minimum(folded, double - 1 - folded)

    def weight(self) -> Expr:
        """How much of an element a point has."""
        total: Expr | None = None
        for axis in range(self.rank):
            x, step = self.coordinate(axis), self.step(axis)
            part = x - unary("floor", x)
            if self.mode == "linear":
                share = select(step.eq(0), 1.0 - part, part)
            else:
                share = _cubic((step - 1).cast(self.kind) - part)
            total = share if total is None else total * share
        assert total is not None
        return total


def _cubic(distance: Expr) -> Expr:
    """The cubic convolution kernel."""
    a = -0.75
    t = unary("abs", distance)
    inner = (t * (a + 2) - (a + 3)) * t * t + 1.0
    outer = ((t * a - 5 * a) * t + 8 * a) * t - 4 * a
    return select(t <= 1.0, inner, select(t < 2.0, outer, 0.0))


@template("GridSample", accepts=_accepts_grid)
def grid_sample(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    attrs = attribute_values(node)
    image, points = ctx.contiguous(given(node, 0)), ctx.contiguous(given(node, 1))
    batch, channels, *spatial = image.shape
    rank = len(spatial)
    ctx.check_equal(batch, points.shape[0])
    for size in spatial:
        ctx.check_equal(dim_max(size, 1), size)
    count = element_count(points.shape[1:-1])
    name = points.buffer.dtype.name
    grid = _Grid(rank, compute_type(name), name, _MODES[attrs["mode"]], attrs["padding_mode"], bool(attrs.get("align_corners")))
    # The grid lists coordinates from the last axis to the first.
    coordinates_of = [
        View(points.buffer, (batch, 1, count), (count * rank, 0, rank), points.offset + rank - 1 - axis) for axis in range(rank)
    ]
    sizes = ctx.sizes(spatial, "spatial")
    views = [*coordinates_of, *(View(sizes.buffer, (), (), axis) for axis in range(rank))]
    taps = 1 << (_TAP_BITS[grid.mode] * rank)
    shape: tuple[Dim, ...] = (batch, taps, count)
    tables = [ctx.scratch(dtypes.INT64, shape, "indices")]
    together = isinstance(channels, int) and channels >= ctx.target.lanes and grid.mode != "nearest"
    together = together and image.buffer.dtype is dtypes.FLOAT32
    position = grid.position()
    if together:  # rows of channels are those of all images; the one behind them is zero
        elements = grid.size(0)
        for axis in range(1, rank):
            elements = elements * grid.size(axis)
        views.append(View(ctx.sizes([batch], "images").buffer, (), ()))
        position = select(position < 0, load(2 * rank, "i64") * elements, index(0) * elements + position)
    indexed_loop(ctx, shape, views, tables[0], position, group.label)
    if grid.mode != "nearest":
        kind = compute_type(image.buffer.dtype.name)
        tables.append(ctx.scratch(dtypes.from_name(kind), shape, "weights"))
        indexed_loop(ctx, shape, views, tables[1], grid.weight().cast(kind), group.label)
    target = ctx.output(node.outputs[0])
    if together:
        _sampled_rows(ctx, group, image, tables, target)
    else:
        _sampled(ctx, group, image, tables, target, channels)


def _sampled(ctx: LowerContext, group: Group, image: View, tables: Sequence[View], target: View, image_stride: Dim) -> None:
    """Elements at indices [n, taps, points], weighted if weights are given; `image_stride` leads from n to n + 1 in channels."""
    _, channels, *spatial = image.shape
    batch, taps, count = tables[0].shape
    assert isinstance(taps, int)
    weighted = len(tables) > 1
    kind = image.buffer.dtype.name if weighted else OF_WIDTH[image.buffer.dtype.bits]
    sources = (image, *tables)
    kernel = SampleKernel(source=kind, compute=compute_type(kind), taps=taps, weighted=weighted)
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(
                channels=channels,
                points=count,
                elements=element_count(spatial),
                image_stride=image_stride,
                source=image.address,
                **{name: table.address for name, table in zip(("indices", "weights"), tables)},
                target=target.address,
            ),
            sample.units(batch, channels, count),
            cost.sample(batch * channels * count * taps),
            tuple(view.buffer for view in sources),
            (target.buffer,),
            group.label,
            (group.label,),
        )
    )


def _accepts_theta(node: Node) -> str:
    shape, result = node.inputs[0].shape if node.inputs[0] is not None else None, node.outputs[0].shape
    if shape is None or result is None or len(shape) != 3:
        return "theta is no batch of matrices"
    rank = len(result) - 2
    return "" if tuple(shape[1:]) == (rank, rank + 1) else "theta does not fit the size"


@template("AffineGrid", types={"T1": FLOATS}, accepts=_accepts_theta, data_dependent_sizes=True)
def affine_grid(ctx: LowerContext, group: Group) -> None:
    """Coordinates of all positions of an image, times a matrix.

    What the last axis adds is the same for all rows of it, and lies in memory as a row of the result does: rows are sums of such
    rows, times the coordinates of the other axes.
    """
    node = root_of(group)
    theta, size = ctx.view(given(node, 0)), given(node, 1)
    shape = ctx.shape(node.outputs[0])
    spatial, rank = shape[1:-1], len(shape) - 2
    if ctx.elements(size) is None:
        asked = ctx.view(size)
        ctx.check_equal(asked.shape[0], rank + 2)
        ctx.bind_sizes(View(asked.buffer, (rank,), asked.strides, asked.offset + 2 * asked.strides[0]), spatial, node)
    ctx.check_equal(shape[0], theta.shape[0])
    kind = theta.buffer.dtype.name
    wide = dtypes.from_name(compute_type(kind))
    sizes = ctx.sizes(list(spatial), "spatial")
    batch, row, column = theta.strides
    corners = bool(attribute_values(node).get("align_corners"))
    # Rows of the result that have the columns of the matrix, the first of which belongs to the last axis, and the last to none.
    width = spatial[-1]
    columns = [
        View(theta.buffer, (shape[0], 1, rank), (batch, 0, row), theta.offset + column * position) for position in range(rank + 1)
    ]
    length = View(sizes.buffer, (), (), rank - 1)
    x = _normalized(1, load(2, "i64"), corners).cast(wide.name) * load(0, kind).cast(wide.name) + load(1, kind).cast(wide.name)
    rows = [_rows(ctx, group, (shape[0], width, rank), wide, [columns[0], columns[rank], length], x)]
    rows += [
        _rows(ctx, group, (shape[0], width, rank), wide, [columns[rank - 1 - axis]], load(0, kind).cast(wide.name))
        for axis in range(rank - 1)
    ]
    views = [
        View(each.buffer, (shape[0], *(1,) * (rank - 1), width * rank), (width * rank, *(0,) * (rank - 1), 1)) for each in rows
    ]
    total = load(0, wide.name)
    for axis in range(rank - 1):
        known = View(sizes.buffer, (), (), axis)
        coordinate = ctx.scratch(wide, (spatial[axis],), "coordinates")
        value = _normalized(0, load(0, "i64"), corners).cast(wide.name)
        indexed_loop(ctx, (spatial[axis],), [known], coordinate, value, group.label)
        strides = tuple(int(other == axis) for other in range(rank - 1))
        sides = tuple(spatial[axis] if other == axis else 1 for other in range(rank - 1))
        views.append(View(coordinate.buffer, (1, *sides, 1), (0, *strides, 0)))
        total = total + load(1 + axis, wide.name) * load(rank + axis, wide.name)
    target = reshaped(ctx.output(node.outputs[0]), (shape[0], *spatial[:-1], width * rank))
    assert target is not None  # it has no gaps
    indexed_loop(ctx, target.shape, views, target, total, group.label)


def _rows(ctx: LowerContext, group: Group, shape: Sequence[Dim], kind: DType, views: Sequence[View], value: Expr) -> View:
    """What an expression is over a shape, in memory of its own."""
    made = ctx.scratch(kind, shape, "rows")
    indexed_loop(ctx, shape, views, made, value, group.label)
    return made


def _normalized(axis: int, length: Expr, corners: bool) -> Expr:
    """Where a position lies between -1 and 1: those are the centres of the outermost elements, or their borders."""
    step = index(axis).cast("f64") * 2.0
    if corners:
        return step / select(length > 1, length - 1, 1).cast("f64") - 1.0
    return (step + 1.0) / length.cast("f64") - 1.0


def _sampled_rows(ctx: LowerContext, group: Group, image: View, tables: Sequence[View], target: View) -> None:
    """Sums of whole rows of channels: the image is transposed, so that they lie together, and the result back.

    Indices count the elements of all images; the one behind the last is a row of zeros.
    """
    images, channels, *spatial = image.shape
    count, taps, points = tables[0].shape
    assert isinstance(taps, int)
    elements = element_count([images, *spatial])
    channels_last = ctx.scratch(dtypes.FLOAT32, (elements + 1, channels), "channels last")
    whole = View(
        channels_last.buffer, (images, element_count(spatial), channels), (element_count(spatial) * channels, channels, 1)
    )
    flat_image = View(image.buffer, (images, channels, element_count(spatial)), (*image.strides[:2], 1), image.offset)
    ctx.copy(transposed(flat_image, (0, 2, 1)), whole, group.label)
    zero = ctx.literal(np.zeros(1, np.float32))
    ctx.copy(
        View(zero.buffer, (channels,), (0,)), View(channels_last.buffer, (channels,), (1,), elements * channels), group.label
    )
    rows = ctx.scratch(dtypes.FLOAT32, (count, points, channels), "sampled")
    kernel = SampleRowsKernel(taps=taps)
    views = (channels_last, *tables, rows)
    addresses = {name: view.address for name, view in zip(("source", "indices", "weights", "target"), views)}
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(channels=channels, points=points, **addresses),
            count * points,
            cost.sample_rows(count * points * channels * taps),
            (channels_last.buffer, *(table.buffer for table in tables)),
            (rows.buffer,),
            group.label,
            (group.label,),
        )
    )
    flat = reshaped(target, (count, channels, points))
    if flat is None:
        flat = ctx.scratch(dtypes.FLOAT32, (count, channels, points), "result")
    ctx.copy(transposed(rows, (0, 2, 1)), flat, group.label)
    if flat.buffer is not target.buffer:
        again = reshaped(flat, target.shape)
        assert again is not None
        ctx.copy(again, target, group.label)
