"""Matrix products by Strassen's algorithm, one level of it: seven products of halves instead of eight, in Winograd's form.

Rows, depth and columns are each cut in two. With the quarters of A, B and C

    S1 = A21 + A22    S2 = S1 - A11    S3 = A11 - A21    S4 = A12 - S2
    T1 = B12 - B11    T2 = B22 - T1    T3 = B22 - B12    T4 = T2 - B21

    P1 = A11 B11      P2 = A12 B21     P3 = S4 B22       P4 = A22 T4       P5 = S1 T1    P6 = S2 T2    P7 = S3 T3

    C11 = P1 + P2     C12 = P1 + P6 + P5 + P3     C21 = P1 + P6 + P7 - P4     C22 = P1 + P6 + P7 + P5

Steps before the kernel write the sums S, [entry][4][half of the rows][half of the depth], and the largest magnitude of every row.
The differences T are made of B's ordinary strips: neighbouring strips are the halves of the columns. A product that needs one
makes it in its first tile, whose loads, subtractions and stores fit beside the multiplications, and leaves it to the others.

Rows are in *entries* that have nothing to do with each other (the sequences of a batch): row i is paired with row i + half of
the same entry. If their number is odd, the middle row is in both halves, and stored once.

A tile is computed as the definition says where sums would lose too many digits, or something is no number: if magnitudes of two
rows of a pair are further apart than `MOST_APART`, and if a result is not finite. Which tiles these are follows from the data
alone; they have the bits of a plain product.

`together` is the number of strips and of halves of rows that go together: 2, or 1 for a product of few rows, which is computed
as the definition says. So one kernel serves all sizes.

A unit is a pair of strips for a block of rows, as high as a tile, and the block that is paired with it; blocks of all entries
are counted through. Units with the same strips follow each other, at most `group` of them, and those that a worker has in a row
share the differences of strips: up to `MOST_BLOCKS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.kernel.matmul.matmul import MatMulKernel, Source
from sardonyx.records import dataclass

PRODUCTS: Final = 7
SUMS: Final = 4  # of A
MOST_BLOCKS: Final = 12  # that share differences of strips
# The error of a row is about that of the larger one of its pair: 1e-6 of what that has, for a depth of a few thousand.
MOST_APART: Final = 8.0


@dataclass(frozen=True, kw_only=True)
class StrassenKernel(MatMulKernel):
    """All that decides the code; two equal ones share it."""

    type: str = "f32"
    b_type: str = "f32"
    b: Source = "packed"
    unit_depth: bool = True
    lowest: int  # tile that halves are divided into; of few rows, which do not go together, there may be lower ones

    def __post_init__(self) -> None:
        MatMulKernel.__post_init__(self)
        if (self.type, self.b_type, self.b, self.unit_depth, self.grouped) != ("f32", "f32", "packed", True, False):
            raise ValueError(
                "Strassen's products are of f32, with a B that is packed and an A that is consecutive along its depth"
            )

    @property
    def text(self) -> str:
        """What the key is made of."""
        return f"strassen|{self.lowest}|{super().text}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; `differences` and `products` are memory of each worker."""
        more = (number("together"), address("sums"), address("maxima"))
        return Arguments(*super().arguments.fields, *more, tensor("differences", 1), tensor("products", 1))


def lowest_tile(halves: Iterable[int], tallest: int) -> int:
    """The lowest tile that halves of so many rows are divided into."""
    return min(half // -(-half // tallest) for half in halves)
