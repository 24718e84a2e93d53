"""Regions of images, divided into bins: the mean, or the largest share, of some points of every bin (RoiAlign).

    target[region, bin, channel]  :=  mean of image[y, x, channel] over the points (y, x) of the bin

A point lies between four elements. A bin has `ratio` points along each axis or, if that is 0, as many as its size in elements
asks for. Regions are left, top, right, bottom. The channels of an element lie together in the image and in the result.

The parallel range counts bins of regions.
"""

from __future__ import annotations

from typing import Final

from sardonyx.ir.dims import Dim
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass

MOST_SAMPLES: Final = 1 << 14  # of one bin along one axis


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsKernel:
    """All that decides the code of a sampling of regions."""

    bins: tuple[int, int]  # rows and columns
    ratio: int
    scale: float
    half_pixel: bool  # regions begin half an element earlier and may be smaller than an element
    largest: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        rows, columns = self.bins
        return f"regions|{rows}x{columns}|{self.ratio}|{self.scale!r}|{int(self.half_pixel)}|{int(self.largest)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            number("channels"),
            number("height"),
            number("width"),
            address("image"),  # [images, height, width, channels]
            tensor("regions", 2),
            address("numbers"),  # i64: the image of each region
            address("target"),
            address("record"),  # where a bin is reported that asks for too many points
            number("code"),
        )


def units(kernel: RegionsKernel, regions: Dim) -> Dim:
    """How many bins there are."""
    return regions * (kernel.bins[0] * kernel.bins[1])
