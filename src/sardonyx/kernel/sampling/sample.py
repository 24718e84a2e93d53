"""Weighted sums of elements at any indices of images: the second half of a GridSample.

    target[n, c, p]  :=  sum over t of weights[n, t, p] * source[n * image_stride + c, indices[n, t, p]]

An index below zero lies outside and counts as an element that is 0. Without weights there is one index, whose element is taken as
it is. All tensors lie without gaps.

The parallel range counts chunks of points, of all images and channels.

Where all channels have the same indices, and none of them is below zero, channels that lie together are read in vectors
(`SampleRowsKernel`):

    target[n, p, c]  :=  sum over t of weights[n, t, p] * source[indices[n, t, p], c]
"""

from __future__ import annotations

from typing import Final

from sardonyx.ir.dims import Dim, ceildiv
from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass

CHUNK: Final = 1024  # points


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKernel:
    """All that decides the code of a sampling."""

    source: str
    compute: str  # type of the weights and sums; of the elements themselves, if there are no weights
    taps: int
    weighted: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"sample|{self.source}|{self.compute}|{self.taps}|{int(self.weighted)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            number("channels"),
            number("points"),
            number("elements"),  # of one channel of the source
            number("image_stride"),  # in channels
            address("source"),
            address("indices"),  # i64
            *([address("weights")] if self.weighted else []),
            address("target"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRowsKernel:
    """A sampling of f32 whose channels lie together. A unit is a point."""

    taps: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"sample rows|{self.taps}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        names = ("source", "indices", "weights", "target")
        return Arguments(number("channels"), number("points"), *map(address, names))


def units(images: Dim, channels: Dim, points: Dim) -> Dim:
    """How many chunks there are."""
    return images * channels * ceildiv(points, CHUNK)
