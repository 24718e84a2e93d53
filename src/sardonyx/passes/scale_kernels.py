"""Pointwise convolutions of channels that a run has scaled scale their kernels instead.

    y = Conv(Mul(x: f32[1,C,H,W], s: f32[1,C,1,1]), w: f32[O,C,1,1])     =>   y = Conv(x, Mul(w, s))

Squeeze-and-excite scales all pixels of an image and writes them for a convolution that reads them once; where there are many
more pixels than outputs, it is less work to scale the kernels. They are packed again in every run, which is why that must be much
less. Runs right before the passes that bring convolutions into blocks. Refuses: more than one image, whose scales would differ,
images of unknown size, scaled images that others read, and constant scales, which FoldInputScale has made part of the kernels.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_WORTH: Final = 8  # times as many pixels as outputs: kernels are scaled, brought into order and read again
_FEWEST: Final = 1 << 17  # elements of an image: several workers scale fewer in the time of two or three short steps


@dataclass(frozen=True)
class _Scaled:
    image: Value
    scale: Value


@dataclass(frozen=True)
class ScaleKernels(Rule[_Scaled]):
    """Ensures: no pointwise convolution reads one image of many pixels that was only made to scale its channels."""

    name: ClassVar[str] = "ScaleKernels"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Conv",))
    needs: ClassVar[frozenset[str]] = frozenset(("Mul",))

    def match(self, g: Rewriter, node: Node) -> _Scaled | None:
        scaled, weights = node.inputs[0], g.constant_of(node.inputs[1])
        product = None if scaled is None else scaled.producer
        if scaled is None or product is None or product.op_type != "Mul" or product.domain:
            return None
        if dtype_of(scaled) is not dtypes.FLOAT32:
            return None
        if weights is None or len(weights.shape) < 3 or prod(weights.shape[2:]) != 1 or int(node.attr("group", 1)) != 1:
            return None
        channels = (1, weights.shape[1], *weights.shape[2:])
        for image, scale in (product.inputs, reversed(product.inputs)):
            if image is not None and scale is not None and scale.shape == channels and image.shape == scaled.shape:
                return _Scaled(image, scale)
        return None

    def check(self, g: Rewriter, found: _Scaled) -> Any:
        node = g.anchor
        scaled, weights = node.inputs[0], g.constant_of(node.inputs[1])
        assert scaled is not None
        assert weights is not None
        assert scaled.shape is not None
        if g.constant_of(found.scale) is not None:
            return Reject("its scale is constant")
        if len(scaled.uses) > 1 or scaled in g.outputs:
            return Reject("others read the scaled image, too")
        if scaled.shape[0] != 1 or any(not isinstance(size, int) for size in scaled.shape):
            return Reject(f"its image, {scaled.type}, is more than one or of unknown size")
        pixels = prod(int(str(size)) for size in scaled.shape[2:])
        if pixels < _WORTH * weights.shape[0] or pixels * weights.shape[1] < _FEWEST:
            return Reject(f"{pixels} pixels are few, or not many more than {weights.shape[0]} outputs")
        return ()

    def rewrite(self, g: Rewriter, found: _Scaled, facts: Any) -> None:
        node = g.anchor
        assert node.inputs[1] is not None
        kernels = g.op("Mul", node.inputs[1], found.scale)
        g.replace(node.outputs[0], g.clone(node, [found.image, kernels, *node.inputs[2:]])[0])
