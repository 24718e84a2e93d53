"""Sizes of inputs that a model's parameters decide.

    y = Conv(x: [N, C, H, W], w: [64, 3, 7, 7])         C can only be 3
    z = MatMul(a: [N, K], b: [20, 30])                  K can only be 20

A module is exported with every size of its inputs open. Those that have to be equal to a size of a parameter get it, so that
kernels know the number of channels and the length of rows. Inputs of other sizes are refused as before: they fit no graph of
the module.
"""

from __future__ import annotations

from collections.abc import Iterator

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.types import TensorType


def settle_sizes(graph: Graph) -> bool:
    """Give inputs the sizes that nodes of the graph, whose types are inferred, demand; whether there were any.

    The types of all other values are forgotten then, to be inferred anew. Nodes of subgraphs, which may not run, demand nothing.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        for one, other in _equal_sizes(node):
            for open_size, size in ((one, other), (other, one)):
                if isinstance(size, int) and not isinstance(open_size, int) and open_size.is_symbol:
                    found.setdefault(str(open_size), size)
    settled = False
    for value in graph.inputs:
        if isinstance(value.type, TensorType) and value.type.shape is not None:
            shape = tuple(found.get(str(dim), dim) for dim in value.type.shape)
            settled = settled or shape != value.type.shape
            value.type = TensorType(value.type.dtype, shape)
    if settled:
        for node in graph.nodes:
            for value in node.outputs:
                if isinstance(value.type, TensorType):
                    value.type = TensorType(value.type.dtype)
    return settled


def _equal_sizes(node: Node) -> Iterator[tuple[Dim, Dim]]:
    """Pairs of sizes of a node's inputs that it demands to be equal."""
    if node.domain or len(node.inputs) < 2:
        return
    left, right = _shape(node.inputs[0]), _shape(node.inputs[1])
    if left is None or right is None:
        return
    attrs = attribute_values(node)
    if node.op_type == "Conv" and len(left) > 2 and len(right) > 2:
        if attrs["group"] == 1:
            yield left[1], right[1]
        elif isinstance(right[1], int):
            yield left[1], right[1] * attrs["group"]
    elif node.op_type == "ConvTranspose" and len(left) > 2 and right:
        yield left[1], right[0]
    elif node.op_type == "MatMul" and left and right:
        yield left[-1], right[-2] if len(right) > 1 else right[0]
    elif node.op_type == "Gemm" and len(left) == len(right) == 2:
        yield left[0 if attrs["transA"] else 1], right[1 if attrs["transB"] else 0]


def _shape(value: Value | None) -> tuple[Dim, ...] | None:
    return value.shape if value is not None else None
