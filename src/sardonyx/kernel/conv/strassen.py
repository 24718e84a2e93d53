"""Convolutions of single pixels over blocked activations by Strassen's algorithm, one level of it (see `kernel.matmul.strassen`).

Pixels are the rows of a product, blocks of input channels its depth, output channels its columns. The pixels of an image are cut
into *bands*, whose activations and sums of activations stay in the cache while all output channels are computed. In a band a
pixel i is paired with pixel i + half; if their number is odd, the middle one is in both halves, and stored once. Blocks of input
channels are halved, and neighbouring sets of output channels are the halves of the columns.

    S1 = A21 + A22    S2 = S1 - A11    S3 = A11 - A21    S4 = A12 - S2      of activations, made once for a band
    T1 = B12 - B11    T2 = B22 - T1    -T4 = B21 - T2    T3 = B22 - B12     of weights, made by the first tile that needs each

    P1 = A11 B11     P5 = S1 T1      U = P1 + S2 T2      X = U + A22 (-T4)
    C11 = P1 + A12 B21     C12 = (U + P5) + S4 B22     C21 = X + S3 T3     C22 = (U + P5) + S3 T3

Tiles end with adding others to them, in the shadow of the next one's multiplications.

Two blocks of pixels that are paired are computed as the definition says where magnitudes of two paired pixels are further apart
than `MOST_APART`, or not below `LARGEST`: an infinity, a NaN or an overflow stays where it is. So are pairs of sets that are
marked as `unlike`. Which those are follows from the data alone.

A unit is a pair of sets for a band. Units of a band follow each other.
"""

from __future__ import annotations

from typing import Final

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.kernel.conv.conv import blocked_operands
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass

MOST_BLOCKS: Final = 16  # of a half of a band, each as high as a tile
BUFFERS: Final = 5  # tiles that are kept for each block: the four parts of the result, and U
LARGEST: Final = 2.0**60  # of activations; of weights as well
_NUMBERS: Final = ("batch", "pixels", "bands", "pairs", "half_depth", "x_batch", "x_block", "w_set")


@dataclass(frozen=True, kw_only=True)
class StrassenConvKernel:
    """All that decides the code; two equal ones share it."""

    block: int  # lanes: channels in a vector
    vectors: int  # of a set
    heights: tuple[int, ...]  # pixels of the tiles that occur, ascending
    parts: int  # of a half of a strip, of which a tile fetches one ahead
    dense: bool  # neighbouring output pixels are one block apart
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        heights = ",".join(map(str, self.heights))
        return f"strassen_conv|{self.block}x{self.vectors}|{heights}|{self.parts}|{self.dense}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; `sums`, `differences` and `products` are memory of each worker, with so many floats."""
        return Arguments(
            *map(address, ("x", "w", "bias", "unlike")),
            *map(number, _NUMBERS),
            *(tensor(name, 1) for name in ("sums", "differences", "products")),
            blocked_operands(self.epilogue),
        )


def tile_heights(pixels: int, bands: int, tallest: int) -> tuple[int, ...]:
    """The heights of the tiles that halves of the bands of so many pixels are divided into."""
    halves = {-(-size // 2) for size in (pixels // bands, -(-pixels // bands))}
    found: set[int] = set()
    for half in halves:
        blocks = -(-half // tallest)
        found |= {half // blocks, -(-half // blocks)}
    return tuple(sorted(found))
