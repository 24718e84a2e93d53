"""Sliding windows over the spatial axes of an input: how many there are, where they lie, and views of them.

    output_spatial((5,), (3,), strides=(2,), pads=(1, 1))   ->  (3,)
    resolve_pads((5,), (3,), auto_pad="SAME_UPPER")         ->  ((1,), (1,))

These two take symbolic dimensions as well. `Windows` has the same facts in numbers, for evaluation; convolutions and
pools of all element types build on it. Kernel, strides and dilations have a number for each spatial axis; pads has all
begins, then all ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from sardonyx.ir.dims import Dim, ceildiv, dim_max, dim_min
from sardonyx.ir.tensor import Array
from sardonyx.ops.infer import InferContext
from sardonyx.records import dataclass

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def per_axis(values: Sequence[int] | None, rank: int, name: str, default: int = 1) -> tuple[int, ...]:
    """An attribute with one number for each of `rank` spatial axes."""
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise ValueError(f"{name} {list(values)} has {len(values)} elements, but there are {rank} spatial axes")
    return tuple(int(value) for value in values)


def extent(kernel: int, dilation: int) -> int:
    """How far a dilated kernel reaches."""
    return (kernel - 1) * dilation + 1


def _checked_auto_pad(auto_pad: str | None) -> str:
    mode = auto_pad or "NOTSET"
    if mode not in AUTO_PADS:
        raise ValueError(f"auto_pad is {mode!r}, expected one of {', '.join(AUTO_PADS)}")
    return mode


def pad_pairs(pads: Sequence[int] | None, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The begins and the ends of a `pads` attribute."""
    if pads and len(pads) != 2 * rank:
        raise ValueError(
            f"pads {list(pads)} has {len(pads)} elements, expected a begin and an end for each of {rank} spatial axes"
        )
    flat = tuple(int(pad) for pad in pads) if pads else (0,) * (2 * rank)
    return flat[:rank], flat[rank:]


def resolve_pads(
    spatial: Sequence[Dim],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str | None = "NOTSET",
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """The padding before and after each spatial axis."""
    rank = len(spatial)
    mode = _checked_auto_pad(auto_pad)
    if mode == "NOTSET":
        return pad_pairs(pads, rank)
    if mode == "VALID":
        return (0,) * rank, (0,) * rank
    strides, dilations = per_axis(strides, rank, "strides"), per_axis(dilations, rank, "dilations")
    small, large = [], []
    for size, width, step, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        total = dim_max((ceildiv(size, step) - 1) * step + extent(width, dilation) - size, 0)
        small.append(total // 2)
        large.append(total - total // 2)
    return (tuple(small), tuple(large)) if mode == "SAME_UPPER" else (tuple(large), tuple(small))


def output_spatial(
    spatial: Sequence[Dim],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str | None = "NOTSET",
    ceil_mode: int | None = 0,
    cut: bool = False,
) -> tuple[Dim, ...]:
    """The number of windows on each spatial axis.

    With `ceil_mode` a last window may reach past the padding at the end, but it starts inside the input or the padding before it.
    With `cut`, as pools have it, a kernel that is larger than the padded input by less than a stride has one window, cut to what
    there is, and none if it is larger by less than two: numbers of windows are rounded towards zero.
    """
    rank = len(spatial)
    if len(kernel) != rank:
        raise ValueError(f"kernel_shape {list(kernel)} has {len(kernel)} elements, but there are {rank} spatial axes")
    strides, dilations = per_axis(strides, rank, "strides"), per_axis(dilations, rank, "dilations")
    if any(value < 1 for value in (*strides, *dilations)):
        raise ValueError(f"strides {list(strides)} and dilations {list(dilations)} must be positive")
    mode = _checked_auto_pad(auto_pad)
    if mode.startswith("SAME"):
        return tuple(ceildiv(size, step) for size, step in zip(spatial, strides, strict=True))
    begin, end = pad_pairs(pads if mode == "NOTSET" else None, rank)
    result: list[Dim] = []
    for axis, (size, width, step, dilation) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        reach = extent(width, dilation)
        padded = size + begin[axis] + end[axis]
        if isinstance(padded, int) and padded < reach:
            left = 1 - (reach - padded) // step
            if size and cut and left >= 0:
                result.append(left)
                continue
            if size:
                raise ValueError(
                    f"a kernel that reaches over {reach} does not fit spatial axis {axis} of size {padded} with padding"
                )
            result.append(0)
            continue
        count: Dim = (padded - reach) // step + 1
        if ceil_mode:
            count = ceildiv(padded - reach, step) + 1
            if end[axis] + step > reach:  # only then can a window start past the input
                count = dim_min(count, (size + begin[axis] - 1) // step + 1)
        result.append(count)
    return tuple(result)


def cuts_windows(spatial: Sequence[Dim], attrs: Mapping[str, Any]) -> bool:
    """Whether a pool with these attributes is known to have a kernel that is larger than its padded image."""
    kernel, rank = attrs["kernel_shape"], len(spatial)
    mode, dilations = _checked_auto_pad(attrs.get("auto_pad")), per_axis(attrs.get("dilations"), rank, "dilations")
    if mode.startswith("SAME"):
        return False
    begin, end = pad_pairs(attrs.get("pads") if mode == "NOTSET" else None, rank)
    reaches = (extent(width, dilation) for width, dilation in zip(kernel, dilations, strict=True))
    padded = (before + size + after for size, before, after in zip(spatial, begin, end, strict=True))
    return any(isinstance(size, int) and size < reach for size, reach in zip(padded, reaches))


def expect_windows(ctx: InferContext, spatial: Sequence[Dim], kernel: Sequence[int]) -> None:
    """State that windows, as the attributes of a node describe them, are not larger than the padded image."""
    rank = len(spatial)
    mode, dilations = _checked_auto_pad(ctx.attr("auto_pad")), per_axis(ctx.attr("dilations"), rank, "dilations")
    if mode.startswith("SAME"):
        return
    begin, end = pad_pairs(ctx.attr("pads") if mode == "NOTSET" else None, rank)
    for size, width, dilation, before, after in zip(spatial, kernel, dilations, begin, end, strict=True):
        if not isinstance(size, int):
            ctx.expect_at_most(extent(width, dilation), before + size + after)


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows over the spatial axes of one input."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]  # padding
    end: tuple[int, ...]
    spatial: tuple[int, ...]
    out: tuple[int, ...]  # number of windows per axis

    @property
    def covered(self) -> tuple[int, ...]:
        """What the windows span per axis, counted from the start of the padding; it may end before or after the padded input."""
        return tuple(
            (count - 1) * step + extent(width, dilation) if count else 0
            for count, step, width, dilation in zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        )

    def without_empty_taps(self) -> Windows:
        """The same windows without the taps of the kernel at which all of them find padding; one tap always stays."""
        kernel, begin = [], []
        for axis, (width, dilation, before) in enumerate(zip(self.kernel, self.dilations, self.begin, strict=True)):
            last_start = max(self.out[axis] - 1, 0) * self.strides[axis]
            first = min(max(-((last_start - before) // dilation), 0), width - 1)
            last = max(min((before + self.spatial[axis] - 1) // dilation, width - 1), first)
            kernel.append(last - first + 1)
            begin.append(before - first * dilation)
        return replace(self, kernel=tuple(kernel), begin=tuple(begin))

    def pad(self, x: Array, value: Any = 0) -> Array:
        """The last axes of `x`, padded or cut to what the windows cover."""
        covered, rank = self.covered, len(self.spatial)
        if covered == self.spatial and not any(self.begin):
            return x
        target: tuple[Any, ...] = (...,)
        source: tuple[Any, ...] = (...,)
        for size, before, length in zip(self.spatial, self.begin, covered, strict=True):
            start = max(before, 0)
            stop = max(min(before + size, length), start)
            target += (slice(start, stop),)
            source += (slice(start - before, stop - before),)
        if target[1:] == tuple(slice(0, length) for length in covered):
            return np.asarray(x[source])
        padded = np.full(x.shape[: x.ndim - rank] + covered, value, x.dtype)
        padded[target] = x[source]
        return padded

    def view(self, padded: Array) -> Array:
        """Every window of an input from `pad`: shape outer + kernel + out. Read-only, without a copy."""
        rank = len(self.spatial)
        outer = padded.ndim - rank
        inner = padded.strides[outer:]
        strides = (
            *padded.strides[:outer],
            *(stride * dilation for stride, dilation in zip(inner, self.dilations, strict=True)),
            *(stride * step for stride, step in zip(inner, self.strides, strict=True)),
        )
        return as_strided(padded, padded.shape[:outer] + self.kernel + self.out, strides, writeable=False)

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """For each tap in the kernel: its index, and the index of the padded input's elements that all windows have there."""
        for index in product(*(range(width) for width in self.kernel)):
            yield index, (..., *(self.slice_at(axis, tap) for axis, tap in enumerate(index)))

    def slice_at(self, axis: int, tap: int) -> slice:
        """The elements of one padded axis that the windows have at this tap of the kernel."""
        start = tap * self.dilations[axis]
        return slice(
            start, start + (self.out[axis] - 1) * self.strides[axis] + 1 if self.out[axis] else start, self.strides[axis]
        )


def windows(
    spatial: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str | None = "NOTSET",
    ceil_mode: int | None = 0,
    cut: bool = False,
) -> Windows:
    """The windows of a kernel over an input of this spatial size."""
    rank = len(spatial)
    out = output_spatial(
        spatial, kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad, ceil_mode=ceil_mode, cut=cut
    )
    begin, end = resolve_pads(spatial, kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    return Windows(
        tuple(int(width) for width in kernel),
        per_axis(strides, rank, "strides"),
        per_axis(dilations, rank, "dilations"),
        _numbers(begin),
        _numbers(end),
        tuple(int(size) for size in spatial),
        _numbers(out),
    )


def _numbers(dims: Sequence[Dim]) -> tuple[int, ...]:
    return tuple(int(dim) for dim in dims if isinstance(dim, int))
