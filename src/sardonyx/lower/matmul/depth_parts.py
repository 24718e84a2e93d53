"""Long products in parts of the depth.

    C = epilogue(A B)    =>    P1 = A1 B1;  P2 = P1 + A2 B2;  ...;  C = epilogue(P + An Bn)       columns of A, rows of B

A tile of C takes a strip of B from one end of the depth to the other. A strip that is larger than the second cache comes from the
last one for every block of rows, more slowly than a core that computes whole vectors multiplies.
"""

from __future__ import annotations

from typing import Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.kernel.matmul.matmul import strip_vectors, tallest, vector_lanes
from sardonyx.lower.derived import is_fixed
from sardonyx.lower.views import sliced
from sardonyx.program.steps import View
from sardonyx.records import dataclass
from sardonyx.target.target import LINE_NUMBERS, Target

_FLOAT_BYTES: Final = 4
_PART: Final = 4  # of the second cache is what the strip of a part takes: rows of A pass beside it


@dataclass(frozen=True)
class DepthPart:
    """Columns of A and the rows of B that they are multiplied with."""

    a: View
    b: View


def depth_parts(a: View, b: View, rows: Dim, kind: str, target: Target, *, halves: bool) -> list[DepthPart]:
    """The parts of a product of views whose last two axes are matrices; one if there is nothing to gain.

    `halves`: Strassen's algorithm takes strips of half the depth.
    """
    whole = [DepthPart(a, b)]
    is_float = kind == "f32" and all(view.buffer.dtype is dtypes.FLOAT32 for view in (a, b))
    is_fast = target.has_broadcast_operands and target.has_whole_vectors
    if not is_float or not is_fast or len(a.shape) < 2 or len(b.shape) != 2 or not is_fixed(b):
        return whole
    depth, columns = b.shape
    assert isinstance(depth, int)
    few = rows if isinstance(rows, int) else None
    vectors = strip_vectors(columns, kind, target, few, depth)
    strip = vectors * vector_lanes(kind, target) * _FLOAT_BYTES
    if depth * strip // (1 + halves) <= target.caches.l2:
        return whole
    if few is not None and few <= tallest(target, vectors):
        return whole  # a strip passes once
    number = -(-depth // max(target.caches.l2 // _PART // strip, 1))
    size = -(-depth // (number * LINE_NUMBERS)) * LINE_NUMBERS

    def part(start: int) -> DepthPart:
        own = min(size, depth - start)
        return DepthPart(sliced(a, len(a.shape) - 1, start, own), sliced(b, 0, start, own))

    return [part(start) for start in range(0, depth, size)]
