"""Non-maximum suppression: of every image and class the best boxes that overlap no better one by more than a threshold.

    suppress    chosen[row, k], counts[row]     a row is an image and a class; boxes in the order of their scores
    list        target[starts[row] + k]  :=  image, class, chosen[row, k]

Between the two the counts are added up (`kernel/indexing/compact.py`). A box with a score of NaN is the worst. With `scored`
only boxes above a least score take part.

Arguments of suppress: rows, classes, boxes, room for chosen ones in a row; addresses of the boxes [images, boxes, 4], of the
scores [rows, boxes], of how many boxes a row may have at most (i64), of the greatest overlap (f32) and with `scored` of the least
score (f32); of the chosen boxes and of the counts; fault record and code for an overlap that is not between 0 and 1; address and
size of a worker's scratch memory for words (i64) and for corners (f32). The parallel range counts rows.

Arguments of list: classes, room, addresses of the chosen boxes, the counts, the starts and the target. The parallel range counts
rows. All tensors lie without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sardonyx.ir.dims import Dim
from sardonyx.target.target import Target

FIELDS: Final = 5  # of a box that was chosen: its corners and its area


@dataclass(frozen=True)
class SuppressKernel:
    """All that decides the code of a suppression."""

    center: bool  # boxes are centre and size, else two corners
    scored: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"suppress|{int(self.center)}|{int(self.scored)}"

    def argument_count(self) -> int:
        """How many entries the argument array has."""
        return 4 + 4 + int(self.scored) + 2 + 2 + 4


@dataclass(frozen=True)
class ListKernel:
    """Writes the chosen boxes of all rows one after the other."""

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return "list"


def corner_room(room: Dim, target: Target) -> Dim:
    """How many chosen boxes a worker has memory for: whole vectors are read."""
    return room + target.lanes
