"""Write operators that are short for others as those others, for engines that have no kernels for them.

    HardSwish(x)   =>   x * HardSigmoid(x, alpha=1/6, beta=0.5)
    CastLike(x, y) =>   Cast(x, to=the type of y)

ONNX Runtime puts the function body of the standard in place of such a node when it opens an ONNX model; in an ORT model it looks
for a kernel. Refuses: a GroupNormalization whose input has no known rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass


def _hard_swish(g: Rewriter, node: Node, attrs: Mapping[str, Any]) -> Value:
    x = node.inputs[0]
    return g.op("Mul", x, g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))


def _mish(g: Rewriter, node: Node, attrs: Mapping[str, Any]) -> Value:
    x = node.inputs[0]
    return g.op("Mul", x, g.op("Tanh", g.op("Softplus", x)))


def _swish(g: Rewriter, node: Node, attrs: Mapping[str, Any]) -> Value:
    x, dtype, alpha = node.inputs[0], dtype_of(node.outputs[0]), attrs["alpha"]
    assert dtype is not None
    scaled = x if alpha == 1 else g.op("Mul", x, g.constant(np.asarray(alpha, dtype.numpy), "alpha"))
    return g.op("Mul", x, g.op("Sigmoid", scaled))


def _cast_like(g: Rewriter, node: Node, attrs: Mapping[str, Any]) -> Value:
    dtype = dtype_of(node.inputs[1])
    assert dtype is not None
    return g.op("Cast", node.inputs[0], to=dtype.onnx)


def _group_norm(g: Rewriter, node: Node, attrs: Mapping[str, Any]) -> Value:
    """Groups side by side are channels of an InstanceNormalization; scale and bias follow."""
    x, scale, bias = node.inputs
    assert x is not None
    assert x.shape is not None
    groups, dtype = attrs["num_groups"], dtype_of(x)
    assert dtype is not None
    rows = g.op("Reshape", x, g.constant(np.array([0, groups, -1], np.int64), "groups"))
    ones, zeros = np.ones(groups, dtype.numpy), np.zeros(groups, dtype.numpy)
    normed = g.op("InstanceNormalization", rows, g.constant(ones, "one"), g.constant(zeros, "zero"), epsilon=attrs["epsilon"])
    if node.version < 21:  # scale and bias are those of groups
        parts = g.constant(np.array([1, groups, 1], np.int64), "per_group")
        normed = g.op("Add", g.op("Mul", normed, g.op("Reshape", scale, parts)), g.op("Reshape", bias, parts))
        return g.op("Reshape", normed, g.op("Shape", x))
    whole = g.op("Reshape", normed, g.op("Shape", x))
    channels = g.constant(np.array([1, -1, *(1 for _ in x.shape[2:])], np.int64), "per_channel")
    return g.op("Add", g.op("Mul", whole, g.op("Reshape", scale, channels)), g.op("Reshape", bias, channels))


_BODIES: Final[Mapping[str, Callable[[Rewriter, Node, Mapping[str, Any]], Value]]] = {
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "Swish": _swish,
    "CastLike": _cast_like,
    "GroupNormalization": _group_norm,
}


@dataclass(frozen=True)
class ExpandFunctions(Rule[Node]):
    """Operators that others are made of take the place of those that are short for them."""

    name: ClassVar[str] = "ExpandFunctions"
    roots: ClassVar[frozenset[str]] = frozenset(_BODIES)
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        if dtype_of(node.outputs[0]) is None or (node.op_type == "GroupNormalization" and node.inputs[0].shape is None):  # type: ignore[union-attr]
            return Reject("its type or rank is not known")
        return node

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        g.replace(found.outputs[0], _BODIES[found.op_type](g, found, attribute_values(found)))
