"""GridSample and AffineGrid; they mean what `ops/sampling.py` says.

A GridSample first writes, for every point of the grid, the places of the elements it is made of and their weights; they are the
same for all channels. The expressions are those of the definition, operation by operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max
from sardonyx.ir.graph import Node
from sardonyx.ir.types import TensorType
from sardonyx.kernel import sample
from sardonyx.kernel.expr import BITS, FLOATS, Expr, clamp, const, index, load, minimum, select, unary
from sardonyx.kernel.sample import SampleKernel
from sardonyx.lower.copying import OF_WIDTH
from sardonyx.lower.groups import Group
from sardonyx.lower.index_loops import indexed_loop
from sardonyx.lower.indexing import given
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.movement import root_of
from sardonyx.lower.registry import template
from sardonyx.lower.steps import KernelStep, View, element_count

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
    fits = kinds[0] in FLOATS and compute_type(kinds[0]) == compute_type(kinds[1])
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

    def place(self) -> Expr:
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
    places_of = [
        View(points.buffer, (batch, 1, count), (count * rank, 0, rank), points.offset + rank - 1 - axis) for axis in range(rank)
    ]
    sizes = ctx.sizes(spatial, "spatial")
    views = [*places_of, *(View(sizes.buffer, (), (), axis) for axis in range(rank))]
    taps = 1 << (_TAP_BITS[grid.mode] * rank)
    shape: tuple[Dim, ...] = (batch, taps, count)
    tables = [ctx.scratch(dtypes.INT64, shape, "places")]
    indexed_loop(ctx, shape, views, tables[0], grid.place(), group.label)
    kind = image.buffer.dtype.name
    weighted = grid.mode != "nearest"
    if weighted:
        tables.append(ctx.scratch(dtypes.from_name(compute_type(kind)), shape, "weights"))
        indexed_loop(ctx, shape, views, tables[1], grid.weight(), group.label)
    else:
        kind = OF_WIDTH[BITS[kind]]
    target = ctx.output(node.outputs[0])
    sources = (image, *tables)
    ctx.step(
        KernelStep(
            SampleKernel(kind, compute_type(kind), taps, weighted),
            (channels, count, element_count(spatial), *(view.address for view in (*sources, target))),
            sample.units(batch, channels, count),
            batch * channels * count * taps,
            tuple(view.buffer for view in sources),
            (target.buffer,),
            group.label,
            (node.label,),
        )
    )


def _accepts_theta(node: Node) -> str:
    shape, result = node.inputs[0].shape if node.inputs[0] is not None else None, node.outputs[0].shape
    if shape is None or result is None or len(shape) != 3 or _kind(node, 0) not in FLOATS:
        return "theta is no batch of matrices of floats"
    rank = len(result) - 2
    return "" if tuple(shape[1:]) == (rank, rank + 1) else "theta does not fit the size"


@template("AffineGrid", accepts=_accepts_theta)
def affine_grid(ctx: LowerContext, group: Group) -> None:
    """Coordinates of all places of an image, times a matrix."""
    node = root_of(group)
    theta, target = ctx.view(given(node, 0)), ctx.output(node.outputs[0])
    shape = ctx.shape(node.outputs[0])
    spatial, rank = shape[1:-1], len(shape) - 2
    ctx.check_equal(shape[0], theta.shape[0])
    kind = theta.buffer.dtype.name
    wide = compute_type(kind)
    sizes = ctx.sizes(list(spatial), "spatial")
    batch, row, column = theta.strides
    ones = (1,) * rank
    views = [
        View(theta.buffer, (shape[0], *ones, rank), (batch, *(0,) * rank, row), theta.offset + column * place)
        for place in range(rank + 1)
    ]
    views += [View(sizes.buffer, (), (), axis) for axis in range(rank)]
    corners = bool(attribute_values(node).get("align_corners"))
    # The first column of the matrix belongs to the last axis.
    places = [_normalized(1 + axis, load(rank + 1 + axis, "i64"), corners).cast(wide) for axis in reversed(range(rank))]
    factors = [load(place, kind).cast(wide) for place in range(rank + 1)]
    total = _dot(places, factors) + factors[-1]
    indexed_loop(ctx, shape, views, target, total, group.label)


def _dot(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:]):
        total = total + x * y
    return total


def _normalized(axis: int, length: Expr, corners: bool) -> Expr:
    """Where a place lies between -1 and 1: those are the centres of the outermost elements, or their borders."""
    step = index(axis).cast("f64") * 2.0
    if corners:
        return step / select(length > 1, length - 1, 1).cast("f64") - 1.0
    return (step + 1.0) / length.cast("f64") - 1.0
