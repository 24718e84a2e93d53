"""Transformers in PyTorch, with random weights from a fixed seed: BERT, MiniLM, ViT, and GPT-2 with past keys and values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

MASKED = -10000.0


def prepared(network: nn.Module, seed: int = 0) -> nn.Module:
    """The network with weights of the size trained transformers have, ready for inference."""
    torch.manual_seed(seed)
    for part in network.modules():
        if isinstance(part, (nn.Linear, nn.Embedding, nn.Conv2d)):
            nn.init.normal_(part.weight, std=0.04)
            if not isinstance(part, nn.Embedding) and part.bias is not None:
                nn.init.normal_(part.bias, std=0.02)
        elif isinstance(part, nn.LayerNorm):
            nn.init.uniform_(part.weight, 0.8, 1.2)
            nn.init.normal_(part.bias, std=0.05)
    return network.eval()


class SelfAttention(nn.Module):
    """Every token looks at every other; `mask` is added to the scores."""

    def __init__(self, width: int, heads: int, joined: bool) -> None:
        super().__init__()
        self.heads = heads
        self.joined = joined  # one matrix for queries, keys and values, or three
        if joined:
            self.project = nn.Linear(width, 3 * width)
        else:
            self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        """Batch, tokens, width -> batch, heads, tokens, width of a head."""
        return x.view(x.shape[0], x.shape[1], self.heads, x.shape[2] // self.heads).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The new states, and keys and values including those of the past."""
        three = self.project(x).chunk(3, -1) if self.joined else (self.query(x), self.key(x), self.value(x))
        query, key, value = (self.split(each) for each in three)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        mixed = (weights @ value).permute(0, 2, 1, 3).reshape(x.shape)
        return self.output(mixed), torch.stack([key, value])


class Gelu(nn.Module):
    """GELU as GPT-2 has it: by tanh."""

    def forward(self, x: Tensor) -> Tensor:
        """The activation."""
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    """Attention and a feed-forward network, normalized before (ViT, GPT-2) or after (BERT) each."""

    def __init__(self, width: int, heads: int, inner: int, *, before: bool, joined: bool, activation: nn.Module) -> None:
        super().__init__()
        self.before = before
        self.attention = SelfAttention(width, heads, joined)
        self.feed = nn.Sequential(nn.Linear(width, inner), activation, nn.Linear(inner, width))
        self.first, self.second = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor, mask: Tensor | None = None, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The new states, and keys and values."""
        if self.before:
            mixed, present = self.attention(self.first(x), mask, past)
            x = x + mixed
            return x + self.feed(self.second(x)), present
        mixed, present = self.attention(x, mask, past)
        x = self.first(x + mixed)
        return self.second(x + self.feed(x)), present


class Bert(nn.Module):
    """BERT; `pooled` adds the answer of the first token (BERT) or else the mean over all tokens (sentence models)."""

    def __init__(self, width: int, heads: int, layers: int, *, pooled: bool, vocabulary: int = 30522) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(512, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(
            Block(width, heads, 4 * width, before=False, joined=False, activation=nn.GELU()) for _ in range(layers)
        )
        self.pooler = nn.Linear(width, width) if pooled else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """States of all tokens, and one for the whole text."""
        numbers = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x = self.norm(self.words(input_ids) + self.positions(numbers) + self.types(token_type_ids))
        mask = (1.0 - attention_mask[:, None, None, :].float()) * MASKED
        for block in self.blocks:
            x, _ = block(x, mask)
        if self.pooler is not None:
            return x, torch.tanh(self.pooler(x[:, 0]))
        weight = attention_mask[:, :, None].float()
        mean = (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return x, nn.functional.normalize(mean, dim=1)


def bert_network(
    width: int, heads: int, layers: int, *, pooled: bool, tokens: int = 128, batch: int = 1
) -> tuple[nn.Module, dict[str, Any]]:
    """BERT and texts of random words, the last eighth padding."""
    network = prepared(Bert(width, heads, layers, pooled=pooled))
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    mask[:, tokens - tokens // 8 :] = 0
    return network, {
        "input_ids": torch.randint(0, 30522, (batch, tokens)),
        "attention_mask": mask,
        "token_type_ids": torch.zeros(batch, tokens, dtype=torch.int64),
    }


class VisionTransformer(nn.Module):
    """ViT: patches of 16 pixels as words."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, pixels: int = 224, patch: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.start = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, (pixels // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(
            Block(width, heads, 4 * width, before=True, joined=True, activation=nn.GELU()) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of 1000 classes."""
        words = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.start.expand(image.shape[0], -1, -1), words], 1) + self.positions
        for block in self.blocks:
            x, _ = block(x)
        scores: Tensor = self.head(self.norm(x)[:, 0])
        return scores


def vit_network(width: int = 768, heads: int = 12) -> tuple[nn.Module, dict[str, Any]]:
    """A vision transformer with patches of 16 pixels (ViT-B/16 unless told otherwise), and a picture."""
    torch.manual_seed(0)
    return prepared(VisionTransformer(width, heads)), {"image": torch.randn(1, 3, 224, 224)}


class Gpt2(nn.Module):
    """GPT-2: `past_i` holds keys and values of the tokens before, `present_i` those including the new ones."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, vocabulary: int = 50257, context: int = 1024) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, 4 * width, before=True, joined=True, activation=Gelu()) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.register_buffer("reachable", torch.tril(torch.ones(context, context, dtype=torch.bool)))

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Scores of the next word at every place, then keys and values of every layer."""
        before, new = past[0].shape[3], input_ids.shape[1]
        numbers = torch.arange(before, before + new, device=input_ids.device)[None]
        x = self.words(input_ids) + self.positions(numbers)
        assert isinstance(self.reachable, Tensor)
        mask = torch.where(self.reachable[None, None, before : before + new, : before + new], 0.0, MASKED)
        presents = []
        for block, one in zip(self.blocks, past):
            x, present = block(x, mask, one)
            presents.append(present)
        return (self.norm(x) @ self.words.weight.T, *presents)


GPT2_LAYERS = 12


def gpt2_network(new: int, before: int) -> tuple[nn.Module, dict[str, Any]]:
    """GPT-2 small with some tokens behind it and some to read."""
    network = prepared(Gpt2())
    past = {f"past_{layer}": torch.randn(2, 1, 12, before, 64) * 0.3 for layer in range(GPT2_LAYERS)}
    return network, {"input_ids": torch.randint(0, 50257, (1, new)), **past}
