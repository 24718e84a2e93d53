"""The roughest type behind each output of a model: how exact a result can be expected to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx
from onnx import AttributeProto, helper

# From the roughest on; int8 stands for floats that are rounded to steps of 8 bits on the way.
ROUGH = ("bfloat16", "int8", "float16", "float32", "float64")
_EXACT = len(ROUGH) - 1
_TYPES = ("to", "dtype", "output_dtype", "precision", "softmax_precision", "stash_type")  # attributes that are types
_FLOATS = frozenset(ROUGH) - {"int8"}


def roughest(model: onnx.ModelProto, inputs: Mapping[str, str], inner: str = "float64") -> list[str]:
    """For each output the roughest among the types (by name, of `inputs` as given here) that it is computed from, and `inner`."""
    graph = model.graph
    ranks = {tensor.name: _rank(helper.tensor_dtype_to_np_dtype(tensor.data_type).name) for tensor in graph.initializer}
    ranks.update((name, _rank(kind)) for name, kind in inputs.items())
    functions = {(function.domain, function.name) for function in model.functions}
    in_functions = [_rank(kind) for function in model.functions for kind in _casts(function.node)]
    for node in graph.node:
        has_body = any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute)
        read = ranks if has_body else node.input  # bodies read what lies around them
        behind = [ranks.get(name, _EXACT) for name in read] + [_rank(kind) for kind in _casts([node])]
        behind += in_functions if (node.domain, node.op_type) in functions else []
        ranks.update(dict.fromkeys(node.output, min(behind, default=_EXACT)))
    least = ROUGH.index(inner)
    return [ROUGH[min(least, ranks.get(value.name, _EXACT))] for value in graph.output]


def _rank(kind: str) -> int:
    return ROUGH.index(kind) if kind in _FLOATS else _EXACT


def _casts(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The types that nodes and those of their bodies cast to, and those of constants."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _casts(attribute.g.node)
            elif attribute.name in _TYPES and attribute.i != onnx.TensorProto.UNDEFINED:
                yield helper.tensor_dtype_to_np_dtype(attribute.i).name
            elif attribute.type == AttributeProto.TENSOR:
                yield helper.tensor_dtype_to_np_dtype(attribute.t.data_type).name
