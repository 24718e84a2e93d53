"""Write norms, activations and embeddings of transformers as the fused operators of com.microsoft.

    LayerNormalization(Add(a, b), g, s)                                  =>   SkipLayerNormalization(a, b, g, s)
    Gelu(Add(x, bias))                                                   =>   BiasGelu(x, bias)
    LayerNormalization(Add(Add(Gather(w, ids), Gather(t, types)), Gather(p, ...)))   =>   EmbedLayerNormalization(ids, types, ...)

These are for models that are written to a file and run elsewhere, too (`sardonyx.transformers.optimizer`): sessions find the same
layers in plain graphs. They run after the passes that find norms and activations (`fuse_norms`, `fuse_activations`), on a graph
whose types are known. Refuses: parts that serve something else, shapes that are not known, weights that are no constants.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_NORMS: Final = frozenset(("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"))


def maker(value: Value | None, *operators: str) -> Node | None:
    """The node that makes a value, if it is one of these operators of ONNX."""
    node = None if value is None else value.producer
    return node if node is not None and node.op_type in operators and node.domain == ONNX_DOMAIN else None


def _is_vector(g: Rewriter, value: Value | None, size: object) -> bool:
    """Whether a value is a constant vector of this size."""
    held = g.constant_of(value)
    return held is not None and tuple(held.shape) == (size,)


def bias_of(g: Rewriter, value: Value | None) -> tuple[Value, Value] | None:
    """What a constant vector along the last axis is added to, and that vector; the sum serves nothing else."""
    add = maker(value, "Add")
    if add is None or value is None or not g.is_private(value) or not value.shape:
        return None
    for x, bias in (add.inputs, add.inputs[::-1]):
        if x is not None and bias is not None and x.shape == value.shape and _is_vector(g, bias, value.shape[-1]):
            return x, bias
    return None


@dataclass(frozen=True)
class _Sum:
    """What a norm is of: x and what is added to it, of the same shape or one for all of a batch."""

    x: Value
    skip: Value
    bias: Value | None
    is_read: bool  # whether something else needs the sum


@dataclass(frozen=True)
class FuseSkipNorm(Rule[Node]):
    """A norm of a sum; the sum is an output, too, where something else reads it. A bias inside goes with it."""

    name: ClassVar[str] = "FuseSkipNorm"
    roots: ClassVar[frozenset[str]] = _NORMS
    with_bias: bool = True

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node if maker(node.inputs[0], "Add") is not None else None

    def check(self, g: Rewriter, found: Node) -> Any:
        total = found.inputs[0]
        assert total is not None
        shape = total.shape or ()
        if found.attr("axis", -1) not in (-1, len(shape) - 1) or len(shape) not in (2, 3):
            return Reject("the norm is not over the last axis of two or three")
        add = total.producer
        assert add is not None
        if any(each is None or each.constant is not None for each in add.inputs):
            return Reject("what is added is a constant")
        if any(value.uses or g.is_output(value) for value in found.outputs[1:]):
            return Reject("mean or deviation is used")
        is_read = len(total.uses) > 1 or g.is_output(total)
        if is_read and add.graph is not found.graph:
            return Reject("the sum is made outside")
        if is_read and any(value is not None and value.producer is not None for value in found.inputs[1:]):
            return Reject("the sum is used elsewhere, maybe before scale and bias are there")
        return self._sum(g, total, add, is_read) or Reject("what is added is broadcast")

    def _sum(self, g: Rewriter, total: Value, add: Node, is_read: bool) -> _Sum | None:
        orders = (add.inputs, add.inputs[::-1])
        for first, second in orders if self.with_bias else ():
            inner = bias_of(g, first)
            if inner is not None and second is not None and _is_skip(second, total):
                return _Sum(inner[0], second, inner[1], is_read)
        for first, second in orders:
            if first is not None and second is not None and first.shape == total.shape and _is_skip(second, total):
                return _Sum(first, second, None, is_read)
        return None

    def rewrite(self, g: Rewriter, found: Node, facts: _Sum) -> None:
        total = found.inputs[0]
        assert total is not None
        is_layer_norm = found.op_type == "LayerNormalization"
        shifts = [found.inputs[2] if len(found.inputs) > 2 else None] if is_layer_norm else []
        inputs = [facts.x, facts.skip, found.inputs[1], *shifts, *([facts.bias] if facts.bias is not None else [])]
        while inputs[-1] is None:
            inputs.pop()
        operator = "SkipLayerNormalization" if is_layer_norm else "SkipSimplifiedLayerNormalization"
        epsilon = found.attr("epsilon", 1e-5)
        add = total.producer
        assert add is not None
        g.at(add if facts.is_read else found)  # before all that read the sum
        made = g.node(operator, inputs, 4 if facts.is_read else 1, domain=MICROSOFT, epsilon=epsilon)
        for unused in made[1:3]:
            unused.name = ""
        g.replace(found.outputs[0], made[0])
        if facts.is_read:
            found.set_input(0, None)  # it goes: the new node must not be thought to read its own sum
            g.replace(total, made[3])
            g.discard(add)


def _is_skip(value: Value, total: Value) -> bool:
    """Whether a value may be added to rows of the shape of `total`: as many rows, or those of one of a batch."""
    shape, whole = value.shape or (), total.shape or ()
    return shape == whole or (len(whole) == 3 and shape in (whole[1:], (1, *whole[1:])))


@dataclass(frozen=True)
class FuseBiasGelu(Rule[Node]):
    """A Gelu of a sum with a bias."""

    name: ClassVar[str] = "FuseBiasGelu"
    roots: ClassVar[frozenset[str]] = frozenset(("Gelu", "FastGelu"))
    domains: ClassVar[frozenset[str]] = frozenset((ONNX_DOMAIN, MICROSOFT))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node if len(node.inputs) == 1 and bias_of(g, node.inputs[0]) is not None else None

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        bias = bias_of(g, found.inputs[0])
        assert bias is not None
        by_tanh = found.op_type == "FastGelu" or found.attr("approximate", "none") == "tanh"
        g.replace(found.outputs[0], g.op("FastGelu" if by_tanh else "BiasGelu", *bias, domain=MICROSOFT))


@dataclass(frozen=True)
class ApproximateGelu(Rule[Node]):
    """Gelu by tanh instead of erf: another function, where the caller asks for it."""

    name: ClassVar[str] = "ApproximateGelu"
    roots: ClassVar[frozenset[str]] = frozenset(("Gelu", "BiasGelu"))
    domains: ClassVar[frozenset[str]] = frozenset((ONNX_DOMAIN, MICROSOFT))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        g.replace(found.outputs[0], g.op("FastGelu", *found.inputs, domain=MICROSOFT))


@dataclass(frozen=True)
class _Embedding:
    norm: Node
    tables: list[tuple[Value, Value]]  # table, indices


@dataclass(frozen=True)
class FuseEmbedding(Rule[_Embedding]):
    """The norm of a sum of looked-up rows: of tokens, of segments (if there are any) and of positions."""

    name: ClassVar[str] = "FuseEmbedding"
    roots: ClassVar[frozenset[str]] = frozenset(("LayerNormalization",))

    def match(self, g: Rewriter, node: Node) -> _Embedding | Reject | None:
        pending, tables = [node.inputs[0]], []
        while pending:
            value = pending.pop()
            gather, add = maker(value, "Gather"), maker(value, "Add")
            if value is None or not g.is_private(value):
                return None
            if gather is not None and gather.attr("axis", 0) == 0 and None not in gather.inputs:
                tables.append((gather.inputs[0], gather.inputs[1]))
            elif add is not None and len(tables) + len(pending) < 3:
                pending.extend(add.inputs)
            else:
                return None
        return _Embedding(node, tables) if len(tables) in (2, 3) else None  # type: ignore[arg-type]

    def check(self, g: Rewriter, found: _Embedding) -> Any:
        norm = found.norm
        if len(norm.inputs) < 3 or norm.attr("axis", -1) not in (-1, 2) or len(norm.outputs[0].shape or ()) != 3:
            return Reject("the norm is not over the last of three axes, or has no bias")
        if any(g.constant_of(table) is None or len(table.shape or ()) != 2 for table, _ in found.tables):
            return Reject("a table is no constant matrix")
        inputs = {value for graph in g.graphs() for value in graph.inputs}
        fed = [pair for pair in found.tables if pair[1] in inputs and len(pair[1].shape or ()) == 2]
        rest = [pair for pair in found.tables if pair not in fed]
        if len(rest) == 0:  # positions are fed, too: by name, for nothing else tells them from segments
            rest = [pair for pair in fed if "position" in pair[1].name]
            fed = [pair for pair in fed if pair not in rest]
        if len(rest) != 1 or not 1 <= len(fed) <= 2 or not 1 <= len(rest[0][1].shape or ()) <= 2:
            return Reject("tokens, segments and positions cannot be told apart")
        fed.sort(key=lambda pair: -int(g.constant_of(pair[0]).shape[0]))  # type: ignore[union-attr]
        return fed, rest[0]

    def rewrite(self, g: Rewriter, found: _Embedding, facts: Any) -> None:
        fed, (positions, where) = facts
        norm = found.norm
        to_i32 = dtypes.INT32.onnx
        ids = [g.op("Cast", indices, to=to_i32) if dtype_of(indices) is not dtypes.INT32 else indices for _, indices in fed]
        position_ids = g.op("Cast", where, to=to_i32) if dtype_of(where) is not dtypes.INT32 else where
        if len(where.shape or ()) == 1:
            position_ids = g.op("Unsqueeze", position_ids, g.constant(np.array([0], np.int64), "axis"))
        segments = (ids[1], fed[1][0]) if len(fed) > 1 else (None, None)
        inputs = [ids[0], segments[0], fed[0][0], positions, segments[1], *norm.inputs[1:3], None, position_ids]
        epsilon = norm.attr("epsilon", 1e-5)
        made = g.node("EmbedLayerNormalization", inputs, 2, domain=MICROSOFT, epsilon=epsilon)
        made[1].type = TensorType(dtypes.INT32, (ids[0].shape[0],)) if ids[0].shape else None
        g.replace(norm.outputs[0], made[0])
