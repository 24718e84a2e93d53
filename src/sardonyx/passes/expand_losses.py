"""Losses of classifiers become operators that have kernels.

    l, p = SoftmaxCrossEntropyLoss(x, t)      =>   p = LogSoftmax(x) {axis = 1}
                                                   l = ReduceMean(-GatherElements(p, t) {axis = 1})
    l = NegativeLogLikelihoodLoss(x, t, w)    =>   f = Gather(w, t);  l = ReduceSum(-GatherElements(x, t) * f) / ReduceSum(f)

Labels to be ignored have the factor 0 and are looked up as class 0; those below zero, from which GatherElements would count back,
become one that is out of range. Runs when the portable passes are done: gradients know the operators whole. Refuses: types that
are rounded once at the end, unknown ranks or numbers of classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.expand_fused import ExpandingRule, Expansion
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_VERSION: Final = 13  # from here on LogSoftmax works on one axis, and Unsqueeze has its axes as an input


def _check(g: Rewriter, node: Node) -> Any:
    x, labels = node.inputs[:2]
    if g.version < _VERSION or x is None or labels is None or x.shape is None or labels.shape is None:
        return Reject("the ranks are not known, or the opset is too old")
    if len(x.shape) < 2 or len(x.shape) != len(labels.shape) + 1:
        return Reject("ranks that do not fit")
    classes = x.shape[1]  # without any, labels that are all ignored have a loss nonetheless
    return None if isinstance(classes, int) and classes > 0 else Reject("the number of classes is not known, or zero")


def _cross_entropy(g: Rewriter, node: Node, facts: None) -> list[Value | None]:
    logarithms = g.op("LogSoftmax", node.inputs[0], axis=1)
    made: list[Value | None] = [_loss(g, node, logarithms), logarithms]
    return made[: len(node.outputs)]


def _likelihood(g: Rewriter, node: Node, facts: None) -> list[Value | None]:
    x = node.inputs[0]
    assert x is not None
    return [_loss(g, node, x)]


def _loss(g: Rewriter, node: Node, logarithms: Value) -> Value:
    attrs, labels = attribute_values(node), node.inputs[1]
    weights = node.inputs[2] if len(node.inputs) > 2 else None
    assert labels is not None
    kind, dtype = dtype_of(labels), dtype_of(logarithms)
    assert kind is not None
    assert dtype is not None
    ignore, reduction = attrs.get("ignore_index"), attrs["reduction"]

    def label(value: int) -> Value:
        return g.constant(np.array(value, kind.numpy), "label")

    nothing = g.constant(np.zeros((), dtype.numpy), "zero")
    chosen, ignored = labels, None
    if ignore is not None:
        ignored = g.op("Equal", labels, label(ignore))
        chosen = g.op("Where", ignored, label(0), chosen)
    chosen = g.op("Where", g.op("Less", chosen, label(0)), label(np.iinfo(kind.numpy).max), chosen)
    axis = g.constant(np.array([1], np.int64), "axes")
    picked = g.op("GatherElements", logarithms, g.op("Unsqueeze", chosen, axis), axis=1)
    loss = g.op("Neg", g.op("Squeeze", picked, axis))
    factors = None if weights is None else g.op("Gather", weights, chosen)
    if factors is not None:
        loss = g.op("Mul", loss, factors)
    if ignored is not None:
        one = g.constant(np.ones((), dtype.numpy), "one")
        factors = g.op("Where", ignored, nothing, one if factors is None else factors)
        loss = g.op("Where", ignored, nothing, loss)
    if reduction == "none":
        return loss
    if reduction == "mean" and factors is None:
        return g.op("ReduceMean", loss, keepdims=0)
    total = g.op("ReduceSum", loss, keepdims=0)
    return total if reduction == "sum" else g.op("Div", total, g.op("ReduceSum", factors, keepdims=0))


_LOSSES: Final[Mapping[str, Expansion]] = {
    "SoftmaxCrossEntropyLoss": Expansion(_cross_entropy, _check),
    "NegativeLogLikelihoodLoss": Expansion(_likelihood, _check),
}


@dataclass(frozen=True)
class ExpandLosses(ExpandingRule):
    """Losses become logarithms that are looked up, and sums."""

    name: ClassVar[str] = "ExpandLosses"
    roots: ClassVar[frozenset[str]] = frozenset(_LOSSES)
    expansions: ClassVar[Mapping[str, Expansion]] = _LOSSES
