"""Gradients of operators that sample images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.dtypes import INT64
from sardonyx.ir.graph import Value
from sardonyx.ops.indexing.layout import repeats
from sardonyx.records import dataclass
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]

_ATTRS: Final = (
    "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "keep_aspect_ratio_policy",
    "mode", "nearest_mode",
)  # fmt: skip


@gradient("Resize", stops=(1, 2, 3))
def _resize(b: Backward) -> Results:
    """Pixels that were repeated are summed up; what was blended goes back by the transposed matrices."""
    if b.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        b.refuse("it crops the image")
    scales = b.constant(2)
    factors = None if scales is None or not scales.size else _repeats(b, scales)
    if factors is not None:
        return [_summed(b, factors)]
    attrs: dict[str, Any] = {name: b.node.attrs[name].value for name in _ATTRS if name in b.node.attrs}
    if b.node.version >= 11 and (b.attr("keep_aspect_ratio_policy") or "stretch") == "stretch":
        return [_by_matrices(b, attrs)]
    given = b.x(2) if b.has(2) and (scales is None or scales.size) else None
    return [b.own("ResizeGrad", b.dy(), b.Shape(b.x()), given, b.x(3) if b.has(3) else None, **attrs)]


def _by_matrices(b: Backward, attrs: dict[str, Any]) -> Value:
    """Resizing is linear: along each axis a matrix, which is the resized identity; its gradient is the product with that."""
    x, shape, whole = b.x(), b.shape(b.x()), b.y().shape
    rank, dtype = len(shape), dtype_of(b.x())
    axes = [int(axis) % rank for axis in b.attr("axes") or range(rank)]
    scales = b.constant(2)
    by_sizes = b.has(3)
    more = {name: value for name, value in attrs.items() if name not in ("axes", "keep_aspect_ratio_policy")}
    d = b.dy()
    for number, axis in enumerate(axes):
        same = whole is not None and shape[axis] == whole[axis]
        if same and (by_sizes or (scales is not None and scales.reshape(-1)[number] == 1)):
            continue
        size = b.sizes(x, axis)
        indices = b.Range(np.array(0), b.Squeeze(size, b.ints(0)), np.array(1))
        one = b.Cast(b.Equal(b.Unsqueeze(indices, b.ints(1)), indices), to=dtype.onnx)
        square = b.Unsqueeze(one, b.ints(0, 1))
        if by_sizes:
            wanted: tuple[Value | None, ...] = (None, b.Concat(b.ints(1, 1), b.sizes(b.y(), axis), size, axis=0))
        else:
            factor = b.Gather(b.x(2), b.ints(number), axis=0)
            ones = np.ones(1, np.float32)
            wanted = (b.Concat(np.ones(2, np.float32), factor, ones, axis=0),)
        matrix = b.Squeeze(b.g.op("Resize", square, None, *wanted, version=b.node.version, **more), b.ints(0, 1))
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        moved = d if axis == rank - 1 else b.Transpose(d, perm=order)
        made = b.MatMul(moved, matrix)
        d = made if axis == rank - 1 else b.Transpose(made, perm=order)
    return d


@gradient("Upsample", stops=(1,))
def _upsample(b: Backward) -> Results:
    scales = b.constant(1) if b.has(1) else np.array(b.attr("scales") or (), np.float32)
    factors = None if scales is None else _repeats(b, scales, old=True)
    if factors is None:
        b.refuse("it does more than repeat pixels")
    return [_summed(b, factors)]


def _repeats(b: Backward, scales: np.ndarray[tuple[int, ...], np.dtype[np.float32]], *, old: bool = False) -> list[int] | None:
    """How often each element is repeated along every axis, if that is all."""
    rank = b.rank(b.x())
    axes = b.attr("axes") or range(rank)
    by_axis = dict(zip([int(axis) % rank for axis in axes], scales.reshape(-1).tolist()))
    attrs = {
        "mode": b.attr("mode"),
        "scales": [by_axis.get(axis, 1.0) for axis in range(rank)],
        "coordinate_transformation_mode": "asymmetric" if old else b.attr("coordinate_transformation_mode"),
        "nearest_mode": "floor" if old else b.attr("nearest_mode"),
    }
    found = repeats(attrs)
    return None if found is None else list(found)


def _summed(b: Backward, factors: list[int]) -> Value:
    """dy as [n0, f0, n1, f1, ...], summed over the repetitions."""
    sizes: list[Value] = []
    kept: list[int] = []
    for axis, factor in enumerate(factors):
        kept.append(len(sizes))
        sizes.append(b.sizes(b.x(), axis))
        if factor > 1:
            sizes.append(b.g.constant(b.ints(factor)))
    gone = [axis for axis in range(len(sizes)) if axis not in kept]
    if not gone:
        return b.dy()
    return b.ReduceSum(b.Reshape(b.dy(), b.Concat(*sizes, axis=0)), b.ints(*gone), keepdims=0)


@gradient("GridSample")
def _grid_sample(b: Backward) -> Results:
    """A sample is a sum of pixels times weights that follow from its coordinates: both carry a gradient."""
    if dtype_of(b.x()) is not dtype_of(b.x(1)):
        b.refuse("image and grid have different types", "cast one of them")
    return _Samples(b).gradients()


@dataclass(frozen=True)
class _Tap:
    """One of the pixels of an axis that a sample is made of: [N, P] each."""

    index: Value  # within the image
    inside: Value | None  # whether it was, without padding
    weight: Term | None  # None: all of it
    slope: Term | None  # of the weight along the coordinate


class _Samples:
    """Points [N, P] in images whose pixels are rows: [N * pixels, C]."""

    def __init__(self, b: Backward) -> None:
        self.b = b
        self.rank = b.rank(b.x()) - 2
        self.dtype = dtype_of(b.x())
        self.mode = {"bilinear": "linear", "bicubic": "cubic"}.get(b.attr("mode"), b.attr("mode"))
        self.sizes = [b.sizes(b.x(), 2 + axis) for axis in range(self.rank)]
        self.points = b.Reshape(b.x(1), b.Concat(b.sizes(b.x(), 0), b.ints(-1, self.rank), axis=0))
        self.taps: list[list[_Tap]] = []
        self.scales: list[Term] = []
        for axis in range(self.rank):
            size = Term(b, b.Cast(self.sizes[axis], to=self.dtype.onnx), self.dtype)
            along = Term(b, b.Gather(self.points, np.array(self.rank - 1 - axis), axis=2), self.dtype) + 1
            aligned = bool(b.attr("align_corners"))
            self.scales.append((size - 1) * 0.5 if aligned else size * 0.5)
            self.taps.append(self._taps(along * self.scales[-1] if aligned else (along * size - 1) * 0.5, self.sizes[axis]))

    def _taps(self, at: Term, size: Value) -> list[_Tap]:
        b = self.b
        far = 2.0**30
        low = at.apply("Round" if self.mode == "nearest" else "Floor")
        whole = b.Cast(b.Clip(low.value, b.number(-far, b.x()), b.number(far, b.x())), to=INT64.onnx)
        if self.mode == "nearest":
            return [self._tap(whole, size, None, None)]
        part = at - low
        if self.mode == "linear":
            weights = [(0, 1 - part, part * 0 - 1), (1, part, part * 0 + 1)]
        else:
            weights = [(step, *_cubic(part, step)) for step in (-1, 0, 1, 2)]
        return [self._tap(b.Add(whole, np.array(step)), size, weight, slope) for step, weight, slope in weights]

    def _tap(self, index: Value, size: Value, weight: Term | None, slope: Term | None) -> _Tap:
        b, zero, one = self.b, np.array(0), np.array(1)
        last = b.Sub(size, one)
        inside = None
        match b.attr("padding_mode"):
            case "reflection" if b.attr("align_corners"):
                span = b.Mul(b.Max(last, one), np.array(2))
                folded = b.Mod(b.Abs(index), span)
                index = b.Min(folded, b.Sub(span, folded))
            case "reflection":
                span = b.Mul(size, np.array(2))
                folded = b.Mod(index, span)
                index = b.Min(folded, b.Sub(b.Sub(span, one), folded))
            case "zeros":
                inside = b.And(b.GreaterOrEqual(index, zero), b.Less(index, size))
        return _Tap(b.Max(b.Min(index, last), zero), inside, weight, slope)

    def gradients(self) -> Results:
        """Those of the image and of the grid."""
        b = self.b
        channels = b.sizes(b.x(), 1)
        batch = b.Squeeze(b.sizes(b.x(), 0), b.ints(0))
        pixels = b.ReduceProd(b.sizes(b.x(), *range(2, 2 + self.rank)), keepdims=0)
        first = b.Unsqueeze(b.Mul(b.Range(np.array(0), batch, np.array(1)), pixels), b.ints(1))
        dy = self._rows(b.dy())
        image = self._rows(b.x()) if b.wants(1) else None
        indices, shares = [], []
        of_points: list[Term | None] = [None] * self.rank
        for taps in itertools.product(*self.taps):
            position: Value | None = None
            for tap, size in zip(taps, self.sizes):
                position = tap.index if position is None else b.Add(b.Mul(position, size), tap.index)
            assert position is not None
            flat = b.Reshape(b.Add(position, first), b.ints(-1))
            inside: Value | None = None
            for tap in taps:
                if tap.inside is not None:
                    inside = tap.inside if inside is None else b.And(inside, tap.inside)
            indices.append(flat)
            weight = self._product([tap.weight for tap in taps], inside)
            shares.append(dy if weight is None else dy * self._column(weight))
            if image is None or self.mode == "nearest":
                continue
            met = dy * Term(b, b.Gather(image.value, flat, axis=0), self.dtype)
            total = Term(b, b.Reshape(b.ReduceSum(met.value, b.ints(1), keepdims=0), b.Shape(position)), self.dtype)
            for axis in range(self.rank):
                steep = self._product([tap.slope if at == axis else tap.weight for at, tap in enumerate(taps)], inside)
                assert steep is not None
                before = of_points[axis]
                of_points[axis] = total * steep if before is None else before + total * steep
        of_x = None
        if b.wants(0):
            rows = b.Concat(*(share.value for share in shares), axis=0)
            whole = b.Concat(b.Reshape(b.Mul(batch, pixels), b.ints(1)), channels, axis=0)
            added = b.own("GatherGrad", rows, b.Concat(*indices, axis=0), whole, axis=0)
            parted = b.Reshape(added, b.Concat(b.sizes(b.x(), 0), b.ints(-1), channels, axis=0))
            of_x = b.Reshape(b.Transpose(parted, perm=[0, 2, 1]), b.Shape(b.x()))
        if not b.wants(1):
            return [of_x, None]
        if self.mode == "nearest":
            return [of_x, b.zeros_like(b.x(1))]
        columns = []
        for level, scale in reversed(list(zip(of_points, self.scales))):
            assert level is not None
            columns.append(b.Unsqueeze((level * scale).value, b.ints(2)))
        return [of_x, b.Reshape(b.Concat(*columns, axis=2), b.Shape(b.x(1)))]

    def _rows(self, value: Value) -> Term:
        """[N, C, ...] as [N * ..., C]."""
        b = self.b
        parted = b.Reshape(value, b.Concat(b.sizes(b.x(), 0, 1), b.ints(-1), axis=0))
        rows = b.Reshape(b.Transpose(parted, perm=[0, 2, 1]), b.Concat(b.ints(-1), b.sizes(b.x(), 1), axis=0))
        return Term(b, rows, self.dtype)

    def _column(self, term: Term) -> Term:
        return Term(self.b, self.b.Reshape(term.value, self.b.ints(-1, 1)), self.dtype)

    def _product(self, factors: Sequence[Term | None], inside: Value | None) -> Term | None:
        found: Term | None = None
        for factor in factors:
            if factor is not None:
                found = factor if found is None else found * factor
        if inside is None:
            return found
        if found is None:
            return Term(self.b, self.b.Cast(inside, to=self.dtype.onnx), self.dtype)
        return found.select(inside)


def _cubic(part: Term, step: int) -> tuple[Term, Term]:
    """The weight of the pixel at a step from the one before a coordinate, and its slope."""
    a = -0.75
    far = part - step if step <= 0 else step - part  # how far it is, between 0 and 2
    sign = 1.0 if step <= 0 else -1.0
    if step in (0, 1):
        return ((a + 2) * far - (a + 3)) * far * far + 1, (3 * (a + 2) * far - 2 * (a + 3)) * far * sign
    return ((a * far - 5 * a) * far + 8 * a) * far - 4 * a, ((3 * a * far - 10 * a) * far + 8 * a) * sign
