"""Where the windows of a convolution or a pool lie, always in three spatial axes: planes, rows, columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sardonyx.ir.dims import Dim, dim_max, is_nonnegative
from sardonyx.lower.lowering import LowerContext
from sardonyx.ops.conv.windows import extent, output_spatial, per_axis, resolve_pads
from sardonyx.program.steps import View
from sardonyx.records import dataclass

SPATIAL = 3


@dataclass(frozen=True)
class Geometry:
    """Sizes, strides, dilations and pads of each spatial axis; fewer than three are the last ones, the others have size 1."""

    size: tuple[Dim, ...]
    out: tuple[Dim, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads_begin: tuple[Dim, ...]
    pads_end: tuple[Dim, ...]

    @property
    def taps(self) -> int:
        """How many taps a window has."""
        planes, rows, columns = self.kernel
        return planes * rows * columns

    @property
    def pointwise(self) -> bool:
        """Whether every output pixel is made of the input pixel at the same position."""
        return self.taps == 1 and set(self.stride) == {1} and set(self.pads_begin) == {0} and self.size == self.out

    @property
    def single_tap(self) -> bool:
        """Whether every window is one pixel, and none lies outside of the image."""
        return self.taps == 1 and set(self.pads_begin) == {0} and all(isinstance(pad, int) and pad <= 0 for pad in self.pads_end)

    @property
    def is_deep(self) -> bool:
        """Whether there is more than one plane, of an image, a kernel or a border."""
        return (self.kernel[0], self.size[0], self.out[0], self.pads_begin[0]) != (1, 1, 1, 0)

    @property
    def known_row(self) -> bool:
        """Whether the widths are numbers."""
        return all(isinstance(dim, int) for dim in (self.size[-1], self.out[-1], self.pads_begin[-1], self.pads_end[-1]))


def _three(values: Sequence[Any], fill: Any) -> tuple[Any, ...]:
    return (*(fill,) * (SPATIAL - len(values)), *values)


def geometry_of(spatial: Sequence[Dim], kernel: Sequence[int], attrs: Mapping[str, Any]) -> Geometry:
    """The geometry of windows over an image, from the attributes of a Conv or a pool."""
    strides, dilations, pads, auto_pad = (attrs.get(name) for name in ("strides", "dilations", "pads", "auto_pad"))
    rank = len(spatial)
    begin, end = resolve_pads(spatial, kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    out = output_spatial(
        spatial, kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad, ceil_mode=attrs.get("ceil_mode")
    )
    return Geometry(
        _three(spatial, 1),
        _three(out, 1),
        _three(kernel, 1),
        _three(per_axis(strides, rank, "strides"), 1),
        _three(per_axis(dilations, rank, "dilations"), 1),
        _three(begin, 0),
        _three(end, 0),
    )


def window_geometry(ctx: LowerContext, spatial: Sequence[Dim], kernel: Sequence[int], attrs: Mapping[str, Any]) -> Geometry:
    """The geometry of a node's windows, with a check that they fit where sizes become known at run time only."""
    geometry = geometry_of(spatial, kernel, attrs)
    for size, begin, end, width, dilation in zip(
        geometry.size, geometry.pads_begin, geometry.pads_end, geometry.kernel, geometry.dilation
    ):
        padded, reach = begin + size + end, extent(width, dilation)
        if not is_nonnegative(padded - reach):
            ctx.check_equal(dim_max(padded, reach), padded)
    return geometry


def flattened(geometry: Geometry) -> Geometry:
    """A pointwise geometry with all pixels in one row."""
    pixels = geometry.size[0] * geometry.size[1] * geometry.size[2]
    return replace(geometry, size=(1, 1, pixels), out=(1, 1, pixels))


def blocked_view(view: View) -> View:
    """A blocked tensor [N, blocks, spatial ..., block] with exactly three spatial axes."""
    missing = SPATIAL + 3 - len(view.shape)
    return View(
        view.buffer,
        (*view.shape[:2], *(1,) * missing, *view.shape[2:]),
        (*view.strides[:2], *(0,) * missing, *view.strides[2:]),
        view.offset,
    )


def blocked_strides(strides: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides over [N, blocks, spatial ..., block] with exactly three spatial axes."""
    missing = SPATIAL + 3 - len(strides)
    return (*strides[:2], *(0,) * missing, *strides[2:])
