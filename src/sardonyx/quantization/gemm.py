"""Gemm as MatMul and Add: integer products have no bias and no factors.

Gemm(a, b, c)  ->  Add(MatMul(a, b), c)
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Model, Node, Value, walk
from sardonyx.ir.tensor import Array
from sardonyx.quantization.models import computed, dense


def split_gemms(model: Model) -> None:
    """Split every Gemm that scales nothing and does not transpose its first operand."""
    graphs = [model.graph, *(inner for node in walk(model.graph) for inner in node.subgraphs())]
    for graph in graphs:
        for node in graph.nodes:
            if node.op_type == "Gemm" and not node.domain and _is_plain(node):
                _split(graph, node)


def _is_plain(node: Node) -> bool:
    return node.attr("alpha", 1.0) == 1.0 and node.attr("beta", 1.0) == 1.0 and not node.attr("transA", 0)


def _split(graph: Graph, node: Node) -> None:
    left, right = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    result = node.outputs[0]
    if node.attr("transB", 0) and right is not None:
        right = _transposed(graph, node, right)
    product = result if bias is None else Value(f"{result.name}_MatMul", result.type)
    name = node.name and f"{node.name}_MatMul"
    matmul = graph.insert_before(node, Node("MatMul", [left, right], [product], version=node.version, name=name))
    if bias is not None:
        name = node.name and f"{node.name}_Add"
        graph.insert_after(matmul, Node("Add", [product, bias], [result], version=node.version, name=name))
    for index in range(len(node.inputs)):
        node.set_input(index, None)
    graph.detach(node)


def _transposed(graph: Graph, node: Node, matrix: Value) -> Value:
    """The second operand as a MatMul wants it: another constant, or what a Transpose makes."""
    constant = dense(matrix)
    if constant is not None and len(constant.shape) == 2 and matrix not in graph.inputs:
        home: Graph | None = graph
        while home is not None and home.initializers.get(matrix.name) is not matrix:
            home = home.parent_node.graph if home.parent_node is not None else None
        if home is not None:

            def transpose(data: Array) -> Array:
                return np.ascontiguousarray(data.T)

            rows, columns = constant.shape
            held = computed(matrix.name, constant.dtype, (columns, rows), constant, transpose)
            if len(matrix.uses) == 1:
                del home.initializers[matrix.name]
                return home.add_initializer(matrix.name, held)
            name = f"{matrix.name}_Transposed"
            return home.initializers[name] if name in home.initializers else home.add_initializer(name, held)
    result = Value(f"{matrix.name}_Transposed")
    name = node.name and f"{node.name}_Transpose"
    graph.insert_before(node, Node("Transpose", [matrix], [result], [make_attr("perm", [1, 0])], version=node.version, name=name))
    return result
