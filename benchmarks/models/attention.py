"""Attention alone: spelled out with a mask, PyTorch's function over other keys, and ONNX's operator with fewer heads of keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn


class Masked(nn.Module):
    """softmax(Q K^T / sqrt(d) + mask) V."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """The values, mixed."""
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return torch.softmax(scores + mask, -1) @ value


class Cross(nn.Module):
    """Attention over keys of another sequence, as PyTorch's own function."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The values, mixed."""
        return nn.functional.scaled_dot_product_attention(query, key, value)


def masked_network(heads: int = 12, tokens: int = 1024, head: int = 64) -> tuple[nn.Module, dict[str, Any]]:
    """Every token looks at all but the padding."""
    torch.manual_seed(0)
    mask = torch.zeros(1, 1, 1, tokens)
    mask[..., tokens - tokens // 8 :] = -10000.0
    parts = {name: torch.randn(1, heads, tokens, head) for name in ("query", "key", "value")}
    return Masked().eval(), {**parts, "mask": mask.expand(1, 1, tokens, tokens).clone()}


def cross_network(heads: int = 8, queries: int = 64, keys: int = 1500, head: int = 64) -> tuple[nn.Module, dict[str, Any]]:
    """A few tokens look at a long sequence, as a decoder of speech does."""
    torch.manual_seed(0)
    sizes = {"query": queries, "key": keys, "value": keys}
    return Cross().eval(), {name: torch.randn(1, heads, size, head) for name, size in sizes.items()}


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
