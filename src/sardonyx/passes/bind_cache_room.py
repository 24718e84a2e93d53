"""The total length of a cache becomes a size, where it is a number that only a run can tell.

    y, present, .. = GroupQueryAttention(.., total)   =>   n = Cast(Shape(Range(0, total, 1)))
                                                           y, present, .. = GroupQueryAttention(.., n)

A cache has room for at least so many positions: a result of the node has a size that stands in the data. A Range tells it in
native code, once for all layers, and what reads the caches stays native. A length that is computed from sizes, as exporters
write it (the length of a mask), is left alone.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.shapes import report_shapes
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, all_graphs, dtype_of
from sardonyx.records import dataclass

_TOTAL: Final = 6
_OLDEST_RANGE: Final = 11


@dataclass(frozen=True)
class BindCacheRoom:
    """Ensures: where the data tells how long a cache is, it is the size of a tensor that tells it."""

    name: ClassVar[str] = "BindCacheRoom"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("GroupQueryAttention",))

    def run(self, model: Model) -> PassResult:
        """Change all graphs."""
        found = [node for graph in all_graphs(model) for node in graph.nodes if _may_tell(node)]
        if not found:
            return PassResult(False)
        known = report_shapes(model).values
        g = Rewriter(model)
        lengths: dict[tuple[Graph | None, Value], Value] = {}
        changes = 0
        for node in found:
            total = node.inputs[_TOTAL]
            assert total is not None
            if known.known_of(total) is not None or g.at(node).version < _OLDEST_RANGE:
                continue
            if (node.graph, total) not in lengths:
                lengths[node.graph, total] = _length(g, total)
            made = g.clone(node, [*node.inputs[:_TOTAL], lengths[node.graph, total], *node.inputs[_TOTAL + 1 :]])
            for old, new in zip(node.outputs, made):
                g.replace(old, new)
            g.discard(node)
            changes += 1
        return PassResult(changes > 0, (), changes)


def _may_tell(node: Node) -> bool:
    """Whether the node has a cache, and its total length is computed or fed."""
    if node.op_type != "GroupQueryAttention" or node.domain != MICROSOFT or len(node.inputs) <= _TOTAL:
        return False
    total = node.inputs[_TOTAL]
    return total is not None and total.constant is None and dtype_of(total) is dtypes.INT32


def _length(g: Rewriter, total: Value) -> Value:
    """The number as the size of an axis."""
    number = g.op("Reshape", total, g.constant(np.zeros(0, np.int64), "scalar"))
    positions = g.op("Range", g.constant(np.zeros((), np.int32), "zero"), number, g.constant(np.ones((), np.int32), "one"))
    return g.op("Cast", g.op("Shape", positions), to=dtypes.INT32.onnx)
