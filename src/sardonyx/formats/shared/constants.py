"""Constants of a graph, one for each name, before names become values.

ONNX Runtime turns every Constant node into an initializer and takes the last of several with one name, so models that name one
twice are around (old PyTorch exporters wrote them). Here a Constant node becomes an initializer where it matters: if its name is
taken by another constant or by a graph input (which makes it that input's default), or if it is sparse (an output of the graph
that is a sparse initializer comes out sparse). Constants of one name must agree in type and shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.formats.shared.problems import ProblemList
from sardonyx.formats.shared.records import ConstantRecord, GraphRecord, NodeRecord
from sardonyx.ir.graph import ONNX_DOMAIN, Attr, AttrKind, Node, SparseConstant
from sardonyx.ir.tensor import Tensor, from_numpy
from sardonyx.ir.types import TensorType

_MAKERS: Final[dict[AttrKind, Callable[[Any], Tensor | SparseConstant]]] = {
    AttrKind.TENSOR: lambda value: value,
    AttrKind.SPARSE_TENSOR: lambda value: value,
    AttrKind.FLOAT: lambda value: from_numpy(np.array(value, np.float32)),
    AttrKind.FLOATS: lambda value: from_numpy(np.array(value, np.float32)),
    AttrKind.INT: lambda value: from_numpy(np.array(value, np.int64)),
    AttrKind.INTS: lambda value: from_numpy(np.array(value, np.int64)),
    AttrKind.STRING: lambda value: from_numpy(np.array(value, object)),
    AttrKind.STRINGS: lambda value: from_numpy(np.array(value, object)),
}


def dense_type(constant: Tensor | SparseConstant) -> TensorType:
    """The type of a constant as nodes see it."""
    dtype = constant.values.dtype if isinstance(constant, SparseConstant) else constant.dtype
    return TensorType(dtype, constant.shape)


def settle_constants(ctx: ProblemList, graph: GraphRecord, where: str) -> None:
    """Leave one initializer for each name, the last; Constant nodes that stand in the way become initializers, too."""
    taken = Counter(each.name for each in graph.initializers) + Counter(each.name for each in graph.inputs)
    held = [(node, _constant(node)) for node in graph.nodes]
    taken.update(made.name for _, made in held if made is not None)
    nodes: list[NodeRecord] = []
    constants = list(graph.initializers)
    for node, made in held:
        if made is not None and (taken[made.name] > 1 or isinstance(made.constant, SparseConstant)):
            constants.append(made)
        else:
            nodes.append(node)
    if len(nodes) == len(graph.nodes) and len({each.name for each in constants}) == len(constants):
        return
    last: dict[str, ConstantRecord] = {}
    for each in constants:
        other = last.get(each.name)
        if other is not None and dense_type(other.constant) != dense_type(each.constant):
            ctx.problem(
                f"two constants{where} are called {each.name!r}: {dense_type(other.constant)} and {dense_type(each.constant)}"
            )
        elif other is not None:
            ctx.note(f"two constants{where} are called {each.name!r}: the last one counts")
        last[each.name] = each
    graph.nodes, graph.initializers = nodes, list(last.values())


def _constant(node: NodeRecord) -> ConstantRecord | None:
    """What a Constant node gives; None for another node, or for one that `check` has something to say about."""
    if node.op_type != "Constant" or node.domain != ONNX_DOMAIN or len(node.outputs) != 1 or not node.outputs[0]:
        return None
    held = _held(node.attrs)
    return None if held is None else ConstantRecord(node.outputs[0], held, node.doc, node.metadata)


def constant_of(node: Node) -> Tensor | SparseConstant | None:
    """What a Constant node of a linked graph gives; None for another node."""
    is_constant = node.op_type == "Constant" and node.domain == ONNX_DOMAIN and len(node.outputs) == 1
    return _held(list(node.attrs.values())) if is_constant else None


def _held(attrs: Sequence[Attr]) -> Tensor | SparseConstant | None:
    if len(attrs) != 1:
        return None
    (attr,) = attrs
    maker = _MAKERS.get(attr.kind)
    return None if maker is None or attr.ref or attr.value is None else maker(attr.value)
