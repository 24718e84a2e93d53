"""For tests: a model of one GroupQueryAttention."""

from __future__ import annotations

from typing import Any

from onnx import helper, numpy_helper

from sardonyx.ir.tensor import Array

_INPUTS = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin", "position_ids", "attention_bias",
    "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight",
)  # fmt: skip


def model_of(feeds: dict[str, Array], *, feeds_total: bool = False, **attrs: Any) -> bytes:
    """A model of one GroupQueryAttention with 4 query heads and 2 key heads; `total` is a constant of it, or fed."""
    names = [name if name in feeds else "" for name in _INPUTS]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "present_key", "present_value"]
    node = helper.make_node(
        "GroupQueryAttention", names, outputs, domain="com.microsoft", num_heads=4, kv_num_heads=2, name="attention", **attrs
    )
    graph = helper.make_graph(
        [node],
        "grouped",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
            if name != "total" or feeds_total
        ],
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feeds[source].dtype), None)
            for name, source in zip(outputs, ("query", *(("past_key",) * 2 if "past_key" in feeds else ("query",) * 2)))
        ],
        [] if feeds_total else [numpy_helper.from_array(feeds["total"], "total")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content
