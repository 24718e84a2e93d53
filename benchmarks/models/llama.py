"""A decoder of Llama's shape in PyTorch, in float32: root-mean-square norms, rotated positions, grouped heads, a gated layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.transformers import prepared

WIDTH, HEADS, KEY_HEADS, HEAD, INNER, LAYERS, WORDS, CONTEXT = 512, 8, 4, 64, 1408, 8, 16000, 2048


class RootNorm(nn.Module):
    """Scales a row to a root mean square of one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """The row, scaled."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    """Attention over past and present, then the gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False) for _ in range(2))
        self.output = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)
        self.first, self.second = RootNorm(WIDTH), RootNorm(WIDTH)

    def forward(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """The new states; keys and values of all tokens."""
        normed = self.first(x)
        query, key, value = (
            each(normed).view(x.shape[0], x.shape[1], -1, HEAD).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        key = torch.cat([past[0], _rotated(key, cos, sin)], 2)
        value = torch.cat([past[1], value], 2)
        wide = [each[:, :, None].expand(-1, -1, HEADS // KEY_HEADS, -1, -1).flatten(1, 2) for each in (key, value)]
        scores = _rotated(query, cos, sin) @ wide[0].transpose(2, 3) * HEAD**-0.5 + mask
        mixed = (torch.softmax(scores, -1) @ wide[1]).transpose(1, 2).flatten(2)
        x = x + self.output(mixed)
        normed = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed)), torch.stack([key, value])


class Llama(nn.Module):
    """The decoder: `past_i` holds keys and values of the tokens before."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RootNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        angles = torch.arange(CONTEXT)[:, None] * 10000.0 ** (-torch.arange(HEAD // 2) / (HEAD // 2))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())
        self.register_buffer("reachable", torch.tril(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool)))

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Scores of the next word at every place, then keys and values of every layer."""
        before, new = past[0].shape[3], input_ids.shape[1]
        assert isinstance(self.cos, Tensor)
        assert isinstance(self.sin, Tensor)
        assert isinstance(self.reachable, Tensor)
        cos, sin = self.cos[before : before + new], self.sin[before : before + new]
        mask = torch.where(self.reachable[None, None, before : before + new, : before + new], 0.0, -1e9)
        x = self.words(input_ids)
        presents = []
        for layer, one in zip(self.layers, past):
            x, present = layer(x, mask, cos, sin, one)
            presents.append(present)
        return (self.head(self.norm(x)), *presents)


def llama_network(new: int, before: int) -> tuple[nn.Module, dict[str, Any]]:
    """The decoder with some tokens behind it and some to read."""
    network = prepared(Llama())
    past = {f"past_{layer}": torch.randn(2, 1, KEY_HEADS, before, HEAD) * 0.3 for layer in range(LAYERS)}
    return network, {"input_ids": torch.randint(0, WORDS, (1, new)), **past}
