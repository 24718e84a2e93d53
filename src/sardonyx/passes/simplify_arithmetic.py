"""Small arithmetic with fewer nodes.

    Clip(Relu(x), a, b)        =>   Clip(x, max(a, 0), b)            Relu(Clip(x, 0, b))   =>   Clip(x, 0, b)
    Mul(Div(1, x), y)          =>   Div(y, x)
    Where(Not(c), a, b)        =>   Where(c, b, a)
    Div(x, 2), Div(x, 0.5)     =>   Mul(x, 0.5), Mul(x, 2)           (powers of two: exact)

Runs after FoldConstants. Each refuses when an inner node serves others too.
"""

from __future__ import annotations

from math import frexp, isfinite
from typing import Any, ClassVar

import numpy as np

from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass


def _made_by(value: Value | None, op_type: str) -> Node | None:
    node = None if value is None else value.producer
    return node if node is not None and node.op_type == op_type and is_standard(node) else None


@dataclass(frozen=True)
class FuseReluClip(Rule[Node]):
    """A Relu before a Clip raises its lower bound to zero; after one whose lower bound is not negative it does nothing."""

    name: ClassVar[str] = "FuseReluClip"
    ort_names: ClassVar[tuple[str, ...]] = ("FuseReluClip", "ReluClipFusion")
    roots: ClassVar[frozenset[str]] = frozenset(("Clip", "Relu"))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return _made_by(node.inputs[0], "Relu" if node.op_type == "Clip" else "Clip")

    def check(self, g: Rewriter, found: Node) -> Any:
        node = g.anchor
        clip = node if node.op_type == "Clip" else found
        if clip.version < 11:
            return Reject("the bounds are attributes of an old Clip")
        if not g.is_private(found.outputs[0]):
            return Reject(f"the result of {found.label} is used elsewhere too")
        low, high = (g.number(clip.inputs[i]) if len(clip.inputs) > i and clip.inputs[i] is not None else None for i in (1, 2))
        if len(clip.inputs) > 1 and clip.inputs[1] is not None and low is None:
            return Reject("the lower bound is not a constant")
        if node.op_type == "Relu":
            if len(clip.inputs) > 2 and clip.inputs[2] is not None and high is None:
                return Reject("the upper bound is not a constant")
            if high is not None and not high >= 0:
                return Reject(f"the upper bound is {high:g}")
        dtype = dtype_of(node.outputs[0])
        if dtype is None:
            return Reject("the type is not known")
        return np.asarray(max(low or 0.0, 0.0), dtype.numpy) if low is None or low < 0 else None

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        node = g.anchor
        clip = node if node.op_type == "Clip" else found
        inputs = [found.inputs[0], *clip.inputs[1:]]
        if facts is not None:
            inputs[1:2] = [g.constant(facts, "zero")]
        g.replace(node.outputs[0], g.clone(clip, inputs)[0])


@dataclass(frozen=True)
class FuseDivMul(Rule[Node]):
    """A product with a reciprocal is a quotient."""

    name: ClassVar[str] = "FuseDivMul"
    ort_names: ClassVar[tuple[str, ...]] = ("DivMulFusion", "FuseDivMul")
    roots: ClassVar[frozenset[str]] = frozenset(("Mul",))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        dtype = dtype_of(node.outputs[0])
        if dtype is None or not dtype.is_float:  # 1 / x is 0 for whole numbers
            return None
        for value in node.inputs:
            inverse = _made_by(value, "Div")
            one = None if inverse is None else inverse.inputs[0]
            if one is not None and g.number(one) == 1 and one.shape == ():
                return inverse
        return None

    def check(self, g: Rewriter, found: Node) -> Any:
        if not g.is_private(found.outputs[0]):
            return Reject(f"the result of {found.label} is used elsewhere too")
        return None

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        node = g.anchor
        other = node.inputs[1] if node.inputs[0] is found.outputs[0] else node.inputs[0]
        g.replace(node.outputs[0], g.op("Div", other, found.inputs[1]))


@dataclass(frozen=True)
class FuseNotWhere(Rule[Node]):
    """A negated condition swaps the choices."""

    name: ClassVar[str] = "FuseNotWhere"
    ort_names: ClassVar[tuple[str, ...]] = ("NotWhereFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Where",))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return _made_by(node.inputs[0], "Not")

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        node = g.anchor
        g.replace(node.outputs[0], g.clone(node, [found.inputs[0], node.inputs[2], node.inputs[1]])[0])


@dataclass(frozen=True)
class MultiplyByInverse(Rule[float]):
    """Division by a power of two is the product with its inverse, exactly; multiplication is much faster."""

    name: ClassVar[str] = "MultiplyByInverse"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Div",))

    def match(self, g: Rewriter, node: Node) -> float | Reject | None:
        dtype, divisor = dtype_of(node.outputs[0]), g.number(node.inputs[1])
        if dtype is None or not dtype.is_float or dtype.bits < 32 or divisor is None or divisor == 0 or not isfinite(divisor):
            return None
        mantissa, exponent = frexp(divisor)
        return divisor if abs(mantissa) == 0.5 and abs(exponent) < 60 else None

    def rewrite(self, g: Rewriter, found: float, facts: Any) -> None:
        node = g.anchor
        divisor = node.inputs[1]
        data = g.array(divisor)
        assert data is not None
        g.replace(node.outputs[0], g.op("Mul", node.inputs[0], g.constant(1 / data, "factor")))
