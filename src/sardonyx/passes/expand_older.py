"""Operators of ONNX Runtime that ONNX has by now, or that are a few of its operators.

    y = com.microsoft.Trilu(x, k)                        =>   y = Trilu(x, k)
    y = com.microsoft.ExpandDims(x, axis)                =>   y = Unsqueeze(x, [axis])
    y = com.microsoft.CDist(a, b) {"sqeuclidean"}        =>   y = Abs(sum(a * a) + sum(b * b) - 2 * MatMul(a, Transpose(b)))

Older exporters, and those of scikit-learn, write them. Runs with ExpandFused, for the same reason. Refuses: operators that the
opset of the model does not have yet, an axis that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.expand_fused import ExpandingRule, Expansion
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_SINCE: Final = {"Trilu": 14, "GridSample": 16, "GatherND": 12, "Pad": 13, "ExpandDims": 13, "CDist": 13}  # the forms used below
_AXES_BY_INPUT: Final = 18  # the opset version since which the axes of most reductions are inputs
_SHORT_MODES: Final = 20  # the opset version since which GridSample calls its modes linear and cubic
_MODES: Final = {"bilinear": "linear", "bicubic": "cubic"}


def _is_there(g: Rewriter, node: Node) -> Any:
    since = _SINCE.get(node.op_type, 1)
    return Reject(f"opset {g.version} of the model has no such operator, opset {since} has") if g.version < since else None


def _same(g: Rewriter, node: Node, facts: None) -> Value:
    return g.op(node.op_type, *node.inputs, **attribute_values(node))


def _grid_sample(g: Rewriter, node: Node, facts: None) -> Value:
    attrs = attribute_values(node)
    if g.version >= _SHORT_MODES:
        attrs = {**attrs, "mode": _MODES.get(attrs["mode"], attrs["mode"])}
    return g.op("GridSample", *node.inputs, **attrs)


def _gather_nd(g: Rewriter, node: Node, facts: None) -> Value:
    data, indices = node.inputs
    assert indices is not None
    return g.op("GatherND", data, indices if dtype_of(indices) is dtypes.INT64 else g.op("Cast", indices, to=dtypes.INT64.onnx))


def _check_axis(g: Rewriter, node: Node) -> Any:
    axis = node.inputs[1].constant if node.inputs[1] is not None else None
    if axis is None or axis.numpy().size != 1:
        return Reject("the axis is not known")
    return _is_there(g, node) or int(axis.numpy().reshape(-1)[0])


def _expand_dims(g: Rewriter, node: Node, axis: int) -> Value:
    return g.op("Unsqueeze", node.inputs[0], g.constant(np.array([axis], np.int64), "axes"))


def _check_distances(g: Rewriter, node: Node) -> Any:
    if any(value is None or value.shape is None or len(value.shape) != 2 for value in node.inputs):
        return Reject("the ranks are not known")
    metric = attribute_values(node)["metric"]
    return _is_there(g, node) or (metric if metric in ("euclidean", "sqeuclidean") else Reject(f"metric {metric!r} is not known"))


def _distances(g: Rewriter, node: Node, metric: str) -> Value:
    a, b = node.inputs
    assert a is not None
    dtype = dtype_of(a)
    assert dtype is not None
    rows, columns = _squares(g, a, keepdims=1), _squares(g, b, keepdims=0)
    product = g.op("Mul", g.op("MatMul", a, g.op("Transpose", b, perm=[1, 0])), g.constant(np.asarray(2, dtype.numpy), "two"))
    squares = g.op("Abs", g.op("Sub", g.op("Add", rows, columns), product))  # rounding may leave a small negative number
    return g.op("Sqrt", squares) if metric == "euclidean" else squares


def _squares(g: Rewriter, x: Value | None, *, keepdims: int) -> Value:
    """The sum of squares of each row."""
    if g.version >= _AXES_BY_INPUT:
        return g.op("ReduceSumSquare", x, g.constant(np.array([1], np.int64), "axes"), keepdims=keepdims)
    return g.op("ReduceSumSquare", x, axes=[1], keepdims=keepdims)


_OLDER: Final[Mapping[str, Expansion]] = {
    "Trilu": Expansion(_same, _is_there),
    "Pad": Expansion(_same, _is_there),
    "GridSample": Expansion(_grid_sample, _is_there),
    "GatherND": Expansion(_gather_nd, _is_there),
    "ExpandDims": Expansion(_expand_dims, _check_axis),
    "SampleOp": Expansion(lambda g, node, facts: g.op("Identity", *node.inputs)),
    "CDist": Expansion(_distances, _check_distances),
}


@dataclass(frozen=True)
class ExpandOlder(ExpandingRule):
    """Operators of ONNX Runtime become those of ONNX."""

    name: ClassVar[str] = "ExpandOlder"
    roots: ClassVar[frozenset[str]] = frozenset(_OLDER)
    domains: ClassVar[frozenset[str]] = frozenset((MICROSOFT,))
    expansions: ClassVar[Mapping[str, Expansion]] = _OLDER

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        return node  # most of them move elements, of any type; distances are of wide floats
