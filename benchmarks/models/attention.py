"""Attention alone: spelled out with a mask, and PyTorch's function over other keys."""

from __future__ import annotations

import math
from typing import Any

import torch
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
