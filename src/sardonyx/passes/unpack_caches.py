"""Caches that hold keys and values in one tensor become two, as the decoder loop keeps them.

    past: f32[2,B,N,P,H] (input)                           past.key, past.value: f32[B,N,P,H] (inputs)

    y, present = Attention(x, w, b, mask, past)      =>    q, k, v = MatMul(x, w) + b
                                                           present.key = Concat(past.key, k) (axis 2), present.value likewise
                                                           y = sardonyx::CachedAttention(q, present.key, present.value, mask)
    k = Gather(past, 0), v = Gather(past, 1)         =>    k = past.key, v = past.value
    present = Concat(Unsqueeze(k), Unsqueeze(v))     =>    present.key = k, present.value = v

GPT-2 is exported so by onnxruntime's tools, with and without fused attention. A part of prepare_decoder: it changes what the
model takes and gives. Left alone: a past that anything else reads, an Attention that rotates or has its past in a buffer
with room already.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.passes.rewriter import MICROSOFT, Rewriter

PARTS: Final = ("key", "value")  # in the order in which they are packed
_PAST: Final = 4  # the input of Attention
_AXES_BY_INPUT: Final = 13  # the opset version since which Squeeze and Unsqueeze take their axes as an input


def unpack_caches(g: Rewriter) -> None:
    """Divide every cache of the model that can be."""
    graph = g.model.graph
    for past in list(graph.inputs):
        shape = past.shape or ()
        if past.constant is not None or len(shape) != 5 or shape[0] != 2 or past in graph.outputs:
            continue
        others = [node for node, _ in past.uses if node.op_type != "Shape"]
        if len(others) == 1 and others[0].op_type == "Attention" and others[0].domain == MICROSOFT:
            _unpack_attention(g, past, others[0])
        else:
            _unpack_parts(g, past)


def _new_inputs(graph: Graph, past: Value) -> list[Value]:
    """Two inputs in the place of one."""
    assert isinstance(past.type, TensorType)
    made = [Value(f"{past.name}.{part}", TensorType(past.type.dtype, (past.type.shape or ())[1:])) for part in PARTS]
    at = graph.inputs.index(past)
    graph.inputs[at : at + 1] = made
    return made


def _give_out(graph: Graph, present: Value, parts: list[Value]) -> None:
    """Two outputs in the place of one."""
    at = graph.outputs.index(present)
    graph.outputs[at : at + 1] = parts
    for value, part in zip(parts, PARTS):
        value.name = f"{present.name}.{part}"


def _serve_shapes(g: Rewriter, past: Value, keys: Value) -> None:
    """The shape of a past, from that of its keys."""
    for node in [node for node, _ in past.uses if node.op_type == "Shape"]:
        g.at(node)
        shape = g.op("Concat", g.constant(np.array([2], np.int64), "two"), g.op("Shape", keys), axis=0)
        start, end = node.attr("start", 0), node.attr("end")
        if start or end is not None:
            limits = (g.constant(np.array([5 if each is None else each], np.int64), "limit") for each in (start, end))
            shape = g.op("Slice", shape, *limits)
        g.replace(node.outputs[0], shape)
        g.discard(node)


def _unpack_attention(g: Rewriter, past: Value, node: Node) -> None:
    """Attention of queries, keys and values that it computes itself, with a past."""
    graph = g.model.graph
    x, weights, bias, mask, _, added, length = [*node.inputs, *[None] * 7][:7]
    present = node.outputs[1] if len(node.outputs) > 1 else None
    shape = past.shape or ()
    heads, size = int(node.attr("num_heads")), shape[4]
    if x is None or weights is None or present is None or length is not None or node.inputs[_PAST] is not past:
        return
    if (
        node.graph is not graph
        or graph.outputs.count(present) != 1
        or present.uses
        or shape[2] != heads
        or not isinstance(size, int)
    ):
        return
    width = heads * size
    if node.attr("do_rotary") or list(node.attr("qkv_hidden_sizes") or [width] * 3) != [width] * 3:
        return
    pasts = _new_inputs(graph, past)
    _serve_shapes(g, past, pasts[0])
    g.at(node)
    projected = g.op("MatMul", x, weights)
    if bias is not None:
        projected = g.op("Add", projected, bias)
    axis = g.constant(np.array([2], np.int64), "axis")
    bounds = [g.constant(np.array([number * width], np.int64), "bound") for number in range(4)]
    query, *rows = (g.op("Slice", projected, bounds[number], bounds[number + 1], axis) for number in range(3))
    filled = []
    for row, each in zip(rows, pasts):
        parts = g.op("Reshape", row, g.constant(np.array([0, 0, heads, size], np.int64), "heads"))
        filled.append(g.op("Concat", each, g.op("Transpose", parts, perm=[0, 2, 1, 3]), axis=2))
    kept = {name: node.attr(name) for name in ("mask_filter_value", "unidirectional")}
    made = g.op(
        "CachedAttention", query, *filled, mask, added, domain="sardonyx",
        num_heads=heads, scale=node.attr("scale") or None, **kept,
    )  # fmt: skip
    _give_out(graph, present, filled)
    g.replace(node.outputs[0], made)
    graph.remove(node)


def _unpack_parts(g: Rewriter, past: Value) -> None:
    """Keys and values that nodes of ONNX take out of the past and put together to the present."""
    graph = g.model.graph
    readers = _parts_of(g, past)
    present = _present_of(graph, g, readers)
    if readers is None or present is None:
        return
    value, joined = present
    pasts = _new_inputs(graph, past)
    _serve_shapes(g, past, pasts[0])
    for number, results in enumerate(readers):
        for result in results:
            graph.replace_uses(result, pasts[number])
    _give_out(graph, value, joined)
    g.refresh()
    for unused in (value, *(result for results in readers for result in results)):
        if unused.producer is not None:
            g.discard(unused.producer)


def _parts_of(g: Rewriter, past: Value) -> list[list[Value]] | None:
    """The values that are the keys of a past, and those that are its values; None if anything else reads it."""
    found: list[list[Value]] = [[], []]
    for node, _ in past.uses:
        if node.op_type == "Shape":
            continue
        if node.domain != ONNX_DOMAIN or node.graph is not g.model.graph or node.inputs[0] is not past:
            return None
        if node.op_type == "Gather" and node.attr("axis", 0) in (0, -5):
            held = g.constant_of(node.inputs[1])
            index = None if held is None or held.shape != () else g.ints(node.inputs[1])
            if index is None or index[0] not in (-2, -1, 0, 1):
                return None
            found[index[0] % 2].append(node.outputs[0])
        elif node.op_type == "Split" and node.attr("axis", 0) in (0, -5) and len(node.outputs) == 2:
            for number, part in enumerate(node.outputs):
                for reader, _ in part.uses:
                    if reader.op_type != "Squeeze" or _axes(g, reader) not in ((0,), (-5,)) or part in g.outputs:
                        return None
                    found[number].append(reader.outputs[0])
        else:
            return None
    return found if all(found) else None


def _present_of(graph: Graph, g: Rewriter, readers: list[list[Value]] | None) -> tuple[Value, list[Value]] | None:
    """The output that holds what is put behind the parts of a past: keys and values, in a new axis."""
    if readers is None:
        return None
    appended = []
    for results in readers:
        uses = [node for result in results for node, _ in result.uses if node.op_type == "Concat"]
        if len(uses) != 1:
            return None
        appended.append(uses[0].outputs[0])
    for value in graph.outputs:
        node = value.producer
        if node is None or node.op_type != "Concat" or node.attr("axis") not in (0, -5) or len(node.inputs) != 2 or value.uses:
            continue
        makers = [None if each is None else each.producer for each in node.inputs]
        parts = [
            maker.inputs[0] for maker in makers if maker is not None and maker.op_type == "Unsqueeze" and _axes(g, maker) == (0,)
        ]
        if parts == appended:
            return value, appended
    return None


def _axes(g: Rewriter, node: Node) -> tuple[int, ...] | None:
    """The axes of a Squeeze or Unsqueeze."""
    if node.version < _AXES_BY_INPUT:
        return tuple(node.attr("axes") or ())
    return g.ints(node.inputs[1]) if len(node.inputs) > 1 else None
