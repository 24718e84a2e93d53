"""Models of single operators of ONNX, made node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper


def grouped_model(heads: int = 16, key_heads: int = 4, tokens: int = 512, head: int = 64) -> tuple[bytes, dict[str, Any]]:
    """ONNX's Attention operator: four heads share keys and values, and no token looks ahead."""
    widths = {"query": heads * head, "key": key_heads * head, "value": key_heads * head}
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((1, tokens, width), np.float32) for name, width in widths.items()}
    counts = {"q_num_heads": heads, "kv_num_heads": key_heads, "is_causal": 1}
    node = helper.make_node("Attention", list(feeds), ["mixed"], **counts)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in feeds.items()]
    outputs = [helper.make_tensor_value_info("mixed", TensorProto.FLOAT, [1, tokens, heads * head])]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    content: bytes = model.SerializeToString()
    return content, feeds
