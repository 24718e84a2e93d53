"""Merge matrix products of one input with constant weights into one wider product.

    q = MatMul(x, wq: f32[64,8]); k = MatMul(x, wk: f32[64,8])    =>   q, k = Split(MatMul(x, [wq, wk]))

Narrow products leave much of a kernel's width unused; side by side they fill it. Also for Gemm with a constant addend. Refuses:
products wider than `widest` (they fill the machine on their own, and the Split would cost more than is won), weights that others
use as well (they would exist twice), products in different graphs.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.tensor import Array, origin_of
from sardonyx.passes.protocol import PassResult, is_standard
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass


@dataclass(frozen=True)
class MergeSiblings:
    """Merge products of one value into one, and split its result."""

    name: ClassVar[str] = "MergeSiblings"
    ort_names: ClassVar[tuple[str, ...]] = ()
    widest: int = 256  # columns of one product

    def run(self, model: Model) -> PassResult:
        """Group the products of each graph by what must be equal."""
        g = Rewriter(model)
        changes = 0
        reasons: list[str] = []
        for graph in g.graphs():
            for siblings in self._groups(g, graph, reasons):
                _merge(g, siblings)
                changes += 1
        return PassResult(changes > 0, tuple(reasons), changes)

    def _groups(self, g: Rewriter, graph: Graph, reasons: list[str]) -> list[list[Node]]:
        groups: dict[tuple[Any, ...], list[Node]] = {}
        for node in graph.nodes:
            if node.op_type not in ("MatMul", "Gemm") or not is_standard(node):
                continue
            weights = g.constant_of(node.inputs[1])
            if weights is None or len(weights.shape) != 2:
                continue
            x, rank = node.inputs[0], len(node.outputs[0].shape or ())
            addend = node.inputs[2] if len(node.inputs) > 2 else None
            columns = _columns(node, weights.shape)
            held = g.constant_of(addend)
            if x is None or rank < 1 or (addend is not None and (held is None or held.shape != (columns,))):
                continue
            settings = tuple(node.attr(name, 0) for name in ("transA", "transB")) + tuple(
                float(node.attr(name, 1.0)) for name in ("alpha", "beta")
            )
            depth = weights.shape[1] if settings[1] else weights.shape[0]
            key = (node.op_type, node.version, x, weights.dtype, depth, settings, addend is not None)
            groups.setdefault(key, []).append(node)
        found: list[list[Node]] = []
        for siblings in groups.values():
            if len(siblings) < 2:
                continue
            reason = self._refusal(siblings)
            if reason:
                reasons.append(f"{siblings[0].label}: {reason}")
            else:
                found.append(siblings)
        return found

    def _refusal(self, siblings: list[Node]) -> str:
        for node in siblings:
            weights = node.inputs[1]
            assert weights is not None
            assert weights.shape is not None
            columns = weights.shape[0 if node.attr("transB", 0) else 1]
            if isinstance(columns, int) and columns > self.widest:
                return f"{len(siblings)} products of one input, but {node.label} alone has {columns} columns"
            if len(weights.uses) > 1:
                return f"the weights {weights.name!r} are used elsewhere too"
        return ""


def _columns(node: Node, shape: tuple[int, ...]) -> int:
    return shape[0] if node.attr("transB", 0) else shape[1]


def _merge(g: Rewriter, siblings: list[Node]) -> None:
    first = siblings[0]
    g.at(first)
    axis = 0 if first.attr("transB", 0) else 1
    weights = _joined(g, [node.inputs[1] for node in siblings], axis)
    addend = _joined(g, [node.inputs[2] for node in siblings], 0) if len(first.inputs) > 2 and first.inputs[2] else None
    if weights is None or (addend is None and len(first.inputs) > 2 and first.inputs[2] is not None):
        return
    sizes = np.array([_columns(node, node.inputs[1].shape) for node in siblings], np.int64)  # type: ignore[union-attr, arg-type]
    origin = origin_of("join", [g.constant_of(node.inputs[1]) for node in siblings], (axis,))
    inputs: list[Value | None] = [first.inputs[0], g.constant(weights, "weights", origin)]
    if addend is not None:
        inputs.append(g.constant(addend, "bias"))
    joined = g.clone(first, inputs)[0]
    rank = len(joined.shape or ())
    if g.version >= 13:
        parts = g.node("Split", [joined, g.constant(sizes, "sizes")], len(siblings), axis=rank - 1)
    else:
        parts = g.node("Split", [joined], len(siblings), axis=rank - 1, split=sizes.tolist())
    for node, part in zip(siblings, parts, strict=True):
        g.replace(node.outputs[0], part)
    for node in siblings:
        g.discard(node)


def _joined(g: Rewriter, values: list[Value | None], axis: int) -> Array | None:
    arrays = [g.array(value) for value in values]
    if any(data is None for data in arrays):
        return None
    return np.concatenate([data for data in arrays if data is not None], axis)
