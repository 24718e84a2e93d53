"""Files in the ORT format, made of tables by hand."""

from __future__ import annotations

import struct
from typing import Any

from sardonyx.formats.ort.encode import TableOut, encode
from sardonyx.formats.ort.schema import slots

_MODEL, _GRAPH, _NODE, _TENSOR = slots("Model"), slots("Graph"), slots("Node"), slots("Tensor")
_EDGES, _SESSION, _VALUE, _TYPE = slots("NodeEdge"), slots("InferenceSession"), slots("ValueInfo"), slots("TypeInfo")
_TENSOR_TYPE = slots("TensorTypeAndShape")


def by_hand(**changes: Any) -> bytes:
    """A model that computes y = Relu(Add(x, w)); changes replace what a file says."""

    def info(name: str | None) -> TableOut:
        tensor, type_, out = TableOut(), TableOut(), TableOut()
        tensor.number(_TENSOR_TYPE.elem_type, "i", changes.get("elem_type", 1))
        type_.number(_TYPE.value_type, "B", changes.get("value_type", 1))
        type_.table(_TYPE.value, tensor)
        if name is not None:
            out.text(_VALUE.name, name)
        out.table(_VALUE.type, type_)
        return out

    def node(op: str, since: int, index: int, inputs: list[str], outputs: list[str]) -> TableOut:
        out = TableOut()
        out.text(_NODE.op_type, op)
        out.number(_NODE.since_version, "i", since)
        out.number(_NODE.index, "I", index)
        out.texts(_NODE.inputs, inputs)
        out.texts(_NODE.outputs, outputs)
        out.numbers(_NODE.input_arg_counts, "i", changes.get("counts", [1] * len(inputs)))
        out.number(_NODE.type, "i", changes.get("node_type", 0))
        return out

    def edges(index: int, into: list[tuple[int, int, int]], out_of: list[tuple[int, int, int]]) -> TableOut:
        out = TableOut()
        out.number(_EDGES.node_index, "I", index)
        out.records(_EDGES.input_edges, struct.Struct("<Iii"), into)
        out.records(_EDGES.output_edges, struct.Struct("<Iii"), out_of)
        return out

    weight = TableOut()
    weight.text(_TENSOR.name, "w")
    weight.numbers(_TENSOR.dims, "q", changes.get("dims", [2]))
    weight.number(_TENSOR.data_type, "i", changes.get("data_type", 1))
    weight.number(_TENSOR.external_data_offset, "q", changes.get("external", -1), -1)
    weight.raw(_TENSOR.raw_data, memoryview(changes.get("raw", b"\0\0\x80?\0\0\0@")))
    graph = TableOut()
    graph.tables(_GRAPH.initializers, [weight])
    graph.tables(_GRAPH.node_args, [info(name) for name in changes.get("args", ["x", "w", "s", "y"])])
    nodes = [node("Add", 14, 0, ["x", "w"], ["s"]), node(changes.get("op", "Relu"), 14, changes.get("index", 1), ["s"], ["y"])]
    graph.tables(_GRAPH.nodes, nodes)
    graph.number(_GRAPH.max_node_index, "I", changes.get("limit", 2))
    linked = changes.get("edges", [(0, [], [(1, 0, 0)]), (1, [(0, 0, 0)], [])])
    graph.tables(_GRAPH.node_edges, [edges(*each) for each in linked])
    graph.texts(_GRAPH.inputs, changes.get("inputs", ["x"]))
    graph.texts(_GRAPH.outputs, changes.get("outputs", ["y"]))
    model = TableOut()
    model.number(_MODEL.ir_version, "q", 8)
    opset = TableOut()
    opset.number(1, "q", 17)
    model.tables(_MODEL.opset_import, [opset])
    if changes.get("graph", True):
        model.table(_MODEL.graph, graph)
    session = TableOut()
    if changes.get("version", "6") is not None:
        session.text(_SESSION.ort_version, changes.get("version", "6"))
    if changes.get("model", True):
        session.table(_SESSION.model, model)
    if changes.get("resolver", True):
        session.table(_SESSION.kernel_type_str_resolver, TableOut())
    return b"".join(encode(session, changes.get("identifier", b"ORTM")))
