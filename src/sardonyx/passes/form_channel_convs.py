"""Products along a few channels that were brought to the end for them are pointwise convolutions.

    y = MatMul(Transpose(x: f32[N,H,Q,K]) {perm = [0, 2, 3, 1]}, w: f32[H,G])   =>   y = Transpose(Conv(x, w as [G,H,1,1])) {perm}

Attention whose heads are mixed before and after the softmax (CaiT, DeepViT) is written so: rows of four or eight numbers, which
fill no vector, and a softmax whose rows lie apart. Of the convolution the pixels fill vectors, and the Transposes behind it meet
their opposites. Runs before PushTransposes. Refuses: more channels (with 16 of them both take the same time), weights that are
not constant, images of unknown size, whose convolution would not be a product again (`layout_choice`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.passes.merge_transposes import permutation
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_MOST_CHANNELS: Final = 12
_RANKS: Final = range(3, 6)  # of images that convolutions know


@dataclass(frozen=True)
class _ChannelProduct:
    """A product along what was the first axis behind the batch."""

    image: Value
    perm: tuple[int, ...]
    weights: Value


@dataclass(frozen=True)
class FormChannelConv(Rule[_ChannelProduct]):
    """Ensures: no product of a few constant channels reads an image whose channels were moved to the end for it."""

    name: ClassVar[str] = "FormChannelConv"
    roots: ClassVar[frozenset[str]] = frozenset(("MatMul",))
    needs: ClassVar[frozenset[str]] = frozenset(("Transpose",))

    def match(self, g: Rewriter, node: Node) -> _ChannelProduct | Reject | None:
        moved, weights = node.inputs
        transpose = None if moved is None else moved.producer
        perm = None if transpose is None else permutation(transpose)
        if transpose is None or perm is None or len(perm) not in _RANKS or perm != (0, *range(2, len(perm)), 1):
            return None
        image = transpose.inputs[0]
        if image is None or weights is None or dtype_of(image) is not dtypes.FLOAT32:
            return None
        shape = weights.shape
        if shape is None or len(shape) != 2 or any(not isinstance(size, int) or not 0 < size <= _MOST_CHANNELS for size in shape):
            return None
        return _ChannelProduct(image, perm, weights)

    def check(self, g: Rewriter, found: _ChannelProduct) -> Any:
        matrix = g.array(found.weights)
        if found.image.shape is None or not all(isinstance(size, int) for size in found.image.shape[2:]):
            return Reject(f"the size of its image, {found.image.type}, is not known")
        return Reject("its weights are not constant") if matrix is None else matrix

    def rewrite(self, g: Rewriter, found: _ChannelProduct, facts: Any) -> None:
        matrix: Array = facts
        kernels = np.ascontiguousarray(matrix.T).reshape(*matrix.T.shape, *(1 for _ in found.perm[2:]))
        made = g.op("Conv", found.image, g.constant(kernels, "kernels"), kernel_shape=list(kernels.shape[2:]))
        g.replace(g.anchor.outputs[0], g.op("Transpose", made, perm=found.perm))
