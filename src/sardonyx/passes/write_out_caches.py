"""Attention that appends to its caches leaves that to a Concat, which the decoder loop gives room.

    y, present_k, present_v = MultiHeadAttention(q, k, v, ..., past_k, past_v)   (com.microsoft)
                                                     =>    present_k = Concat(past_k, k) (axis 2), present_v likewise
                                                           y = sardonyx::CachedAttention(q, present_k, present_v, ...)
    y, present_k, present_v = Attention(q, k, v, mask, past_k, past_v)   (ONNX)
                                                     =>    y = Attention(q, present_k, present_v, mask), and the same Concat

A part of prepare_decoder. Left alone: caches that are not the caller's, or that anything else computes with; attention that is
causal and has a mask as well, which may be shorter than the keys.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Node, Value
from sardonyx.passes.rewriter import MICROSOFT, Rewriter

_KEPT: Final = ("qk_matmul_output_mode", "scale", "softcap", "softmax_precision")


def write_out_caches(g: Rewriter) -> None:
    """Write out the caches of all attention in the main graph."""
    for node in list(g.model.graph.nodes):
        if node.op_type == "MultiHeadAttention" and node.domain == MICROSOFT:
            _write_out_multi_head(g, node)
        elif node.op_type == "Attention" and node.domain == ONNX_DOMAIN:
            _write_out_standard(g, node)


def _write_out_multi_head(g: Rewriter, node: Node) -> None:
    """Put new keys and values behind a past outside of the MultiHeadAttention that does it, where both are the caller's."""
    graph = g.model.graph
    query, key, value, bias, mask, added, *pasts = [*node.inputs, *[None] * 10][:10]
    presents = [*node.outputs[1:], None, None, None][:3]
    if any(each is None for each in (query, key, value, *pasts[:2], *presents[:2])) or any((*pasts[2:], presents[2])):
        return
    if any(each is not None and each.shape is not None and len(each.shape) != 3 for each in (query, key, value)):
        return  # keys that come beside a past have three axes; as yet few shapes are known
    sizes = [_head_sizes(graph, past, present) for past, present in zip(pasts, presents[:2])]
    heads, scale = int(node.attr("num_heads")), node.attr("scale")
    if any(each is None or each[0] != heads for each in sizes):
        return
    widths = [heads * each[1] for each in sizes if each is not None]
    g.at(node)
    rows, start = [query, key, value], 0
    for number, width in enumerate((widths[0], *widths)):
        if bias is not None:
            limits = [g.constant(np.array([each], np.int64)) for each in (start, start + width)]
            rows[number] = g.op("Add", rows[number], g.op("Slice", bias, *limits))
        start += width
    filled = []
    for row, past, present in zip(rows[1:], pasts, presents):
        assert row is not None
        assert past is not None
        assert present is not None
        filled.append(_appended(g, past, _heads_first(g, row, heads), present))
    attrs = {name: node.attr(name) for name in ("mask_filter_value", "unidirectional")}
    made = g.op(
        "CachedAttention", rows[0], *filled, mask, added, domain="sardonyx", num_heads=heads, scale=scale or None, **attrs
    )
    g.replace(node.outputs[0], made)
    graph.remove(node)


def _write_out_standard(g: Rewriter, node: Node) -> None:
    """The same for ONNX's operator. Where it looks at no later key, that becomes a mask: it would count from the first key."""
    graph = g.model.graph
    query, key, value, mask, past_key, past_value, lengths = [*node.inputs, *[None] * 7][:7]
    present_key, present_value = [*node.outputs[1:], None, None][:2]
    if query is None or key is None or value is None or lengths is not None or len(node.outputs) > 3:
        return
    sizes = [_head_sizes(graph, *pair) for pair in ((past_key, present_key), (past_value, present_value))]
    is_flat = node.attr("q_num_heads") is not None if query.shape is None else len(query.shape) == 3
    if None in sizes or past_key is past_value or (node.attr("is_causal") and mask is not None):
        return
    assert past_key is not None
    assert past_value is not None
    assert present_key is not None
    assert present_value is not None
    g.at(node)
    if is_flat:
        query = _heads_first(g, query, int(node.attr("q_num_heads")))
        key, value = (_heads_first(g, each, int(node.attr("kv_num_heads"))) for each in (key, value))
    if node.attr("is_causal"):
        mask = _causal(g, query, key, past_key)
    keys, values = _appended(g, past_key, key, present_key), _appended(g, past_value, value, present_value)
    inputs = [query, keys, values] if mask is None else [query, keys, values, mask]
    result = g.op("Attention", *inputs, **{name: node.attr(name) for name in _KEPT})
    if is_flat:
        flat = g.constant(np.array([0, 0, -1], np.int64), "together")
        result = g.op("Reshape", g.op("Transpose", result, perm=[0, 2, 1, 3]), flat)
    g.replace(node.outputs[0], result)
    graph.remove(node)


def _causal(g: Rewriter, query: Value, key: Value, past: Value) -> Value:
    """A mask by which a query sees the past, and the new keys up to its own position."""

    def length(value: Value) -> Value:
        return g.op("Squeeze", g.op("Shape", value, start=2, end=3))

    zero, one = (g.constant(np.array(number, np.int64), "number") for number in (0, 1))
    before = length(past)
    columns = g.op("Range", zero, g.op("Add", before, length(key)), one)
    rows = g.op("Unsqueeze", g.op("Range", zero, length(query), one), g.constant(np.array([1], np.int64), "axes"))
    return g.op("LessOrEqual", columns, g.op("Add", rows, before))


def _heads_first(g: Rewriter, rows: Value, heads: int) -> Value:
    """[batch, time, heads * size] as [batch, heads, time, size]."""
    parts = g.op("Reshape", rows, g.constant(np.array([0, 0, heads, -1], np.int64), "heads"))
    return g.op("Transpose", parts, perm=[0, 2, 1, 3])


def _appended(g: Rewriter, past: Value, new: Value, present: Value) -> Value:
    """New rows behind those of the past, given out in the place of the present."""
    graph = g.model.graph
    whole = g.op("Concat", past, new, axis=2)
    graph.outputs[graph.outputs.index(present)] = whole
    graph.replace_uses(present, whole)
    whole.name, present.name = present.name, whole.name
    return whole


def _head_sizes(graph: Graph, past: Value | None, present: Value | None) -> tuple[int, int] | None:
    """Heads and their size, of a past that is fed and a present that is given out."""
    if past is None or present is None or past not in graph.inputs or past in graph.outputs or graph.outputs.count(present) != 1:
        return None
    shape, readers = past.shape or (), [node for node, _ in past.uses if node.op_type != "Shape"]
    if len(shape) != 4 or isinstance(shape[2], int) or len(readers) != 1:
        return None
    return (shape[1], shape[3]) if isinstance(shape[1], int) and isinstance(shape[3], int) else None
