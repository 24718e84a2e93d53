"""Non-maximum suppression: of every image and class the best boxes that overlap no better one by more than a threshold.

    suppress    chosen[row, k], counts[row]     a row is an image and a class; boxes in the order of their scores
    list        target[starts[row] + k]  :=  image, class, chosen[row, k]

Between the two the counts are added up (`kernel/indexing/compact.py`). A box with a score of NaN is the worst. With `scored`
only boxes above a least score take part.

The parallel range counts rows. All tensors lie without gaps.
"""

from __future__ import annotations

from typing import Final

from sardonyx.ir.dims import Dim
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

FIELDS: Final = 5  # of a box that was chosen: its corners and its area


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressKernel:
    """All that decides the code of a suppression."""

    center: bool  # boxes are centre and size, else two corners
    scored: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"suppress|{int(self.center)}|{int(self.scored)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            number("rows"),
            number("classes"),
            number("boxes"),
            number("room"),  # for chosen ones in a row
            address("box"),  # [images, boxes, 4]
            address("score"),  # [rows, boxes]
            address("most"),  # i64: how many boxes a row may have
            address("overlap"),  # f32: the greatest
            *([address("least")] if self.scored else []),  # f32: the least score
            address("chosen"),
            address("counts"),
            address("record"),  # where an overlap is reported that is not between 0 and 1
            number("code"),
            tensor("words", 1),  # scratch memory of each worker, i64; the stride leads from one worker's to the next's
            tensor("corners", 1),  # the same, f32
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListKernel:
    """Writes the chosen boxes of all rows one after the other."""

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return "list"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            number("classes"), number("room"), address("chosen"), address("counts"), address("starts"), address("target")
        )


def corner_room(room: Dim, target: Target) -> Dim:
    """How many chosen boxes a worker has memory for: whole vectors are read."""
    return room + target.lanes
