"""Norms of heads leave the attention that holds them: rows of their own, which have kernels.

    y = GroupQueryAttention(q, k, v, ..., q_norm_weight, k_norm_weight)
                       =>   n = Reshape(SimplifiedLayerNormalization(Reshape(q, [0, 0, heads, size]), q_norm_weight), Shape(q))
                            y = GroupQueryAttention(n, (k likewise), v, ...)

Runs with the other expansions. Refuses: queries, keys and values packed into one input, narrow floats (which are rounded once at
the end), a hidden size that is not known.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.expand_fused import inputs_of
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_INPUTS: Final = 16
_NORMS: Final = ((0, 14, "num_heads"), (1, 15, "kv_num_heads"))  # input, its weight, how many heads it has


@dataclass(frozen=True)
class ExpandHeadNorms(Rule[Node]):
    """Ensures: attention over float32 heads of separate inputs holds no norm."""

    name: ClassVar[str] = "ExpandHeadNorms"
    roots: ClassVar[frozenset[str]] = frozenset(("GroupQueryAttention",))
    domains: ClassVar[frozenset[str]] = frozenset((MICROSOFT,))
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> Node | None:
        inputs = inputs_of(node, _INPUTS)
        return node if any(inputs[weight] is not None for _, weight, _ in _NORMS) else None

    def check(self, g: Rewriter, found: Node) -> Reject | None:
        inputs, attrs = inputs_of(found, _INPUTS), attribute_values(found)
        for position, weight, heads in _NORMS:
            value = inputs[position]
            if inputs[weight] is None:
                continue
            if value is None or inputs[1] is None:
                return Reject("queries, keys and values are packed into one input")
            if dtype_of(value) is not dtypes.FLOAT32:
                return Reject(f"{value.type} is rounded once at the end, a norm before it would round, too")
            hidden = (value.shape or (None,))[-1]
            if len(value.shape or ()) != 3 or not isinstance(hidden, int) or hidden % max(int(attrs[heads]), 1):
                return Reject(f"{value.type} is not divided into {attrs[heads]} heads")
            if (inputs[weight].shape or ()) != (hidden // int(attrs[heads]),):  # type: ignore[union-attr]
                return Reject("the weight of a norm has not one element for each of a head's")
        return None

    def rewrite(self, g: Rewriter, found: Node, facts: None) -> None:
        inputs, attrs = list(inputs_of(found, _INPUTS)), attribute_values(found)
        for position, weight, heads in _NORMS:
            value, scale = inputs[position], inputs[weight]
            if scale is not None:
                assert value is not None
                inputs[position] = _normalized(g, value, scale, int(attrs[heads]), float(attrs["qk_norm_epsilon"]))
                inputs[weight] = None
        while inputs and inputs[-1] is None:
            inputs.pop()
        made = g.clone(found, inputs, qk_norm_epsilon=None)
        for old, new in zip(found.outputs, made):
            g.replace(old, new)


def _normalized(g: Rewriter, value: Value, weight: Value, heads: int, epsilon: float) -> Value:
    """Each head of [batch, time, heads * size] divided by the root of its mean square, times the weight."""
    apart = g.op("Reshape", value, g.constant(np.array([0, 0, heads, -1], np.int64), "apart"))
    rows = g.op("SimplifiedLayerNormalization", apart, weight, axis=-1, epsilon=epsilon)
    return g.op("Reshape", rows, g.constant(np.array([0, 0, -1], np.int64), "together"))
