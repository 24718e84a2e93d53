"""Recognise normalisations that were exported as formulas.

    d = Sub(x, ReduceMean(x, -1))
    y = Add(Mul(Div(d, Sqrt(Add(ReduceMean(Pow(d, 2), -1), eps))), scale), bias)      =>   y = LayerNormalization(x, scale, bias)

    r = Sqrt(Add(ReduceMean(Pow(x, 2), -1), eps))
    y = Mul(Div(x, r), scale)                                                         =>   y = RMSNormalization(x, scale)

The square may be Pow or Mul, the quotient Div or a product with Reciprocal or Div(1, ..). Runs after MergeSubexpressions (the
difference is computed once). Refuses: means over axes that are not the last ones, scales that are not of the normalised shape,
parts that are used elsewhere. Mean and variance in other types (a Cast around the formula) stay outside.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.ir.graph import Node, Value
from sardonyx.passes.pattern import Match, Pattern, match, number, one_of, op, var
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, attr_ints, dtype_of
from sardonyx.records import dataclass

_X: Final = var("x")
_D: Final = var("d")
_LARGEST_ONES: Final = 1 << 16  # elements of a scale that has to be made up


def _square(x: Pattern) -> Pattern:
    return one_of(op("Pow", x, number(2.0)), op("Mul", x, x))


def _inverse(x: Pattern) -> Pattern:
    return one_of(op("Reciprocal", x), op("Div", number(1.0), x), op("Pow", x, number(-1.0)))


def _normalised(x: Pattern, mean_square: Pattern) -> Pattern:
    """x divided by the root of `mean_square` plus epsilon."""
    variance = op("Add", mean_square, number(name="epsilon"))
    root = one_of(op("Sqrt", variance), op("Pow", variance, number(0.5)))
    return one_of(op("Div", x, root), op("Mul", x, one_of(_inverse(root), op("Pow", variance, number(-0.5)))))


def _mean(x: Pattern) -> Pattern:
    """A ReduceMean in either of its forms; the axes are looked at in `check`."""
    return one_of(op("ReduceMean", x), op("ReduceMean", x, var("axes")))


@dataclass(frozen=True)
class _Found:
    match: Match
    scale: Value | None
    bias: Value | None


def _last_axes(node: Node, g: Rewriter, rank: int) -> int | None:
    """How many of the last axes a ReduceMean goes over; None if it is not exactly those, or if it drops them."""
    if node.attr("keepdims", 1) != 1:
        return None
    axes = g.ints(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else attr_ints(node, "axes")
    if not axes:
        return None
    counted = sorted(axis + rank if axis < 0 else axis for axis in axes)
    return len(counted) if counted == list(range(rank - len(counted), rank)) else None


class _Norm(Rule[_Found]):
    """A normalisation whose core is a formula; a scale and a bias may follow."""

    core: ClassVar[Pattern]
    takes_bias: ClassVar[bool]

    def match(self, g: Rewriter, node: Node) -> _Found | Reject | None:
        found = match(self.core, node.outputs[0], g)
        if found is None or isinstance(found, Reject):
            return found
        if "d" in found.values:  # the difference, with the mean inside, was only bound as a whole
            inner = match(op("Sub", _X, _mean(_X)), found["d"], g)
            if not isinstance(inner, Match):
                return None
            found.values["x"] = inner["x"]
            if g.is_output(found["d"]) or any(reader not in found.nodes for reader, _ in found["d"].uses):
                return Reject(f"the difference {found['d'].name!r} is used elsewhere too")
            found.nodes.extend(inner.nodes)
        scale = self._operand(g, found, "Mul")
        bias = self._operand(g, found, "Add") if self.takes_bias and scale is not None else None
        return _Found(found, scale, bias)

    @staticmethod
    def _operand(g: Rewriter, found: Match, op_type: str) -> Value | None:
        """What the node after the last one adds or multiplies by, if that has the normalised shape; the node joins the match."""
        last = found.nodes[0]
        value = last.outputs[0]
        reader = next(iter(value.uses))[0] if g.is_private(value) else None
        x = found["x"]
        if reader is None or reader.op_type != op_type or not is_standard(reader) or reader.graph is not last.graph:
            return None
        other = next((each for each in reader.inputs if each is not value), None)
        if other is None or other.shape is None or x.shape is None or dtype_of(other) is not dtype_of(x):
            return None
        mean = next(node for node in found.nodes if node.op_type == "ReduceMean")
        count = _last_axes(mean, g, len(x.shape))
        if count is None or other.shape != x.shape[len(x.shape) - count :]:
            return None
        found.nodes.insert(0, reader)
        return other

    def check(self, g: Rewriter, found: _Found) -> Any:
        m = found.match
        x, end = m["x"], m.nodes[0].outputs[0]
        dtype = dtype_of(x)
        if x.shape is None or dtype is None or x.shape != end.shape or dtype_of(end) is not dtype or not dtype.is_float:
            return Reject(f"x is {x.type}, the result {end.type}")
        means = {node for node in m.nodes if node.op_type == "ReduceMean"}
        counts = {_last_axes(node, g, len(x.shape)) for node in means}
        if len(counts) != 1 or None in counts:
            return Reject("a mean is not over the last axes, kept as dimensions of size 1")
        count = next(iter(counts))
        if m.numbers["epsilon"] < 0:
            return Reject(f"epsilon is {m.numbers['epsilon']:g}")
        assert count is not None
        normalised = x.shape[len(x.shape) - count :]
        if found.scale is None:
            sizes = [dim for dim in normalised if isinstance(dim, int)]
            if len(sizes) < count or int(np.prod(sizes)) > _LARGEST_ONES:
                return Reject("there is no scale, and one of the sizes is not known")
        return count

    def rewrite(self, g: Rewriter, found: _Found, count: int) -> None:
        m = found.match
        x, end = m["x"], m.nodes[0]
        g.at(end)  # scale and bias may be computed after the core
        scale = found.scale
        if scale is None:
            dtype = dtype_of(x)
            assert x.shape is not None
            assert dtype is not None
            sizes = [dim for dim in x.shape[len(x.shape) - count :] if isinstance(dim, int)]
            scale = g.constant(np.ones(sizes, dtype.numpy), "ones")
        g.replace(end.outputs[0], self.fused(g, x, scale, found.bias, -count, m.numbers["epsilon"]))
        g.discard(end)

    def fused(self, g: Rewriter, x: Value, scale: Value, bias: Value | None, axis: int, epsilon: float) -> Value:
        """The operator that stands for the formula."""
        raise NotImplementedError


@dataclass(frozen=True)
class FuseLayerNorm(_Norm):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias is LayerNormalization."""

    name: ClassVar[str] = "FuseLayerNorm"
    ort_names: ClassVar[tuple[str, ...]] = ("LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2")
    roots: ClassVar[frozenset[str]] = frozenset(("Div", "Mul"))
    needs: ClassVar[frozenset[str]] = frozenset(("ReduceMean",))
    core: ClassVar[Pattern] = _normalised(_D, _mean(_square(_D)))
    takes_bias: ClassVar[bool] = True

    def fused(self, g: Rewriter, x: Value, scale: Value, bias: Value | None, axis: int, epsilon: float) -> Value:
        return g.op("LayerNormalization", x, scale, *([] if bias is None else [bias]), axis=axis, epsilon=epsilon)


@dataclass(frozen=True)
class FuseRmsNorm(_Norm):
    """x / sqrt(mean(x^2) + epsilon) * scale is RMSNormalization."""

    name: ClassVar[str] = "FuseRmsNorm"
    ort_names: ClassVar[tuple[str, ...]] = ("SimplifiedLayerNormFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Div", "Mul"))
    needs: ClassVar[frozenset[str]] = frozenset(("ReduceMean",))
    core: ClassVar[Pattern] = _normalised(_X, _mean(_square(_X)))
    takes_bias: ClassVar[bool] = False

    def fused(self, g: Rewriter, x: Value, scale: Value, bias: Value | None, axis: int, epsilon: float) -> Value:
        if g.version >= 23:
            return g.op("RMSNormalization", x, scale, axis=axis, epsilon=epsilon)
        return g.op("SimplifiedLayerNormalization", x, scale, axis=axis, epsilon=epsilon)
