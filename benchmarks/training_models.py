"""The models of the training benchmark, in plain PyTorch, and batches for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f


class Mlp(nn.Module):
    """Three small layers: a step is mostly overhead."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class LeNet(nn.Module):
    """Two convolutions and three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.f1, self.f2, self.f3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = f.max_pool2d(torch.relu(self.c1(x)), 2)
        x = f.max_pool2d(torch.relu(self.c2(x)), 2).flatten(1)
        return self.f3(torch.relu(self.f2(torch.relu(self.f1(x)))))


class BasicBlock(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.c2, self.n2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.n1(self.c1(x)))
        return torch.relu(self.n2(self.c2(y)) + self.short(x))


class ResNet18(nn.Module):
    """ResNet-18 for images of any size."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(f.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Inverted(nn.Module):
    """An inverted bottleneck with a depthwise convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        middle = inputs * factor
        layers: list[nn.Module] = []
        if factor > 1:
            layers += [nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU6()]
        layers += [nn.Conv2d(middle, middle, 3, stride, 1, groups=middle, bias=False), nn.BatchNorm2d(middle), nn.ReLU6()]
        layers += [nn.Conv2d(middle, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.layers, self.adds = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """MobileNetV2."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
        inputs = 32
        for factor, outputs, count, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for number in range(count):
                layers.append(Inverted(inputs, outputs, stride if number == 0 else 1, factor))
                inputs = outputs
        layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(f.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first in (inputs, outputs):
        layers += [nn.Conv2d(first, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A U-Net with three levels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [width, width * 2, width * 4]
        self.down = nn.ModuleList([_double(first, second) for first, second in zip([3, *sizes], sizes)])
        self.middle = _double(sizes[-1], sizes[-1] * 2)
        self.up = nn.ModuleList([nn.ConvTranspose2d(size * 2, size, 2, 2) for size in reversed(sizes)])
        self.join = nn.ModuleList([_double(size * 2, size) for size in reversed(sizes)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = f.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat((up(x), kept.pop()), 1))
        return self.head(x)


class LstmClassifier(nn.Module):
    """Tokens, two recurrent layers, a class."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(2000, 128), nn.LSTM(128, 128, 2, batch_first=True), nn.Linear(128, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        y, _ = self.lstm(self.embedding(tokens))
        return self.head(y[:, -1])


class Attention(nn.Module):
    """Self-attention of several heads; with `causal` each position sees those before it."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores + (1 - mask[:, None, None, :].to(scores.dtype)) * -10000.0
        if self.causal:
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            scores = torch.where(hidden, scores, torch.full_like(scores, -10000.0))
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """A transformer layer, normalised before or behind its parts."""

    def __init__(self, width: int, heads: int, *, first: bool, causal: bool = False, approximate: str = "none") -> None:
        super().__init__()
        self.first = first
        self.attention = Attention(width, heads, causal)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.first:
            x = x + self.attention(self.n1(x), mask)
            return x + self.inner(self.n2(x))
        x = self.n1(x + self.attention(x, mask))
        return self.n2(x + self.inner(x))


class Bert(nn.Module):
    """An encoder with a mask, and a class from its first token."""

    def __init__(self, width: int = 256, layers: int = 4, heads: int = 4, vocabulary: int = 8000) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, heads, first=False) for _ in range(layers)])
        self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device)))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(torch.tanh(self.pool(x[:, 0])))


class Gpt2(nn.Module):
    """A decoder whose output layer has the weights of its embedding."""

    def __init__(self, width: int = 256, layers: int = 4, heads: int = 4, vocabulary: int = 4000) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.layers = nn.ModuleList([Layer(width, heads, first=True, causal=True, approximate="tanh") for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.words.weight.T


class Vit(nn.Module):
    """A vision transformer of the Ti size, with fewer layers."""

    def __init__(self, width: int = 192, layers: int = 6, heads: int = 3, patch: int = 16, size: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token, self.positions = (
            nn.Parameter(torch.zeros(1, 1, width)),
            nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width)),
        )
        self.layers = nn.ModuleList([Layer(width, heads, first=True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class DiffusionBlock(nn.Module):
    """A block of a diffusion net: group norm, SiLU, an embedding of time, attention over pixels, and resizing."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(128, width)
        self.n2, self.c2 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.n3, self.attention = nn.GroupNorm(8, width), Attention(width, heads)
        self.c3 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.c1(f.silu(self.n1(x))) + self.time(f.silu(time))[:, :, None, None]
        x = x + self.c2(f.silu(self.n2(y)))
        batch, width, height, length = x.shape
        pixels = self.n3(x).reshape(batch, width, height * length).transpose(1, 2)
        x = x + self.attention(pixels).transpose(1, 2).reshape(batch, width, height, length)
        return self.c3(f.interpolate(x, scale_factor=2.0, mode="nearest"))


@dataclass(frozen=True)
class Workload:
    """A model, and how a batch for it is made."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, ...]]
    dynamic: dict[str, dict[int, str]]  # open axes by the name of the input


def _tokens(count: int, length: int, vocabulary: int) -> Tensor:
    return torch.randint(0, vocabulary, (count, length))


_IMAGES = {"x": {0: "batch", 2: "height", 3: "width"}}
_TEXT = {"tokens": {0: "batch", 1: "length"}}
_MASKED = {**_TEXT, "mask": {0: "batch", 1: "length"}}

WORKLOADS = (
    Workload("mlp", Mlp, lambda: (torch.randn(32, 64),), {"x": {0: "batch"}}),
    Workload("lenet", LeNet, lambda: (torch.randn(32, 1, 28, 28),), {"x": {0: "batch"}}),
    Workload("resnet18", ResNet18, lambda: (torch.randn(4, 3, 128, 128),), _IMAGES),
    Workload("mobilenetv2", MobileNetV2, lambda: (torch.randn(4, 3, 128, 128),), _IMAGES),
    Workload("unet", UNet, lambda: (torch.randn(2, 3, 96, 96),), _IMAGES),
    Workload("lstm", LstmClassifier, lambda: (_tokens(16, 40, 2000),), _TEXT),
    Workload("bert", Bert, lambda: (_tokens(4, 64, 8000), torch.ones(4, 64, dtype=torch.int64)), _MASKED),
    Workload("gpt2", Gpt2, lambda: (_tokens(2, 96, 4000),), _TEXT),
    Workload("vit", Vit, lambda: (torch.randn(2, 3, 224, 224),), {"x": {0: "batch"}}),
    Workload("diffusion", DiffusionBlock, lambda: (torch.randn(2, 64, 24, 24), torch.randn(2, 128)),
             {**_IMAGES, "time": {0: "batch"}}),
)  # fmt: skip


def workload(name: str) -> Workload:
    """One of the workloads."""
    return next(each for each in WORKLOADS if each.name == name)


def seeded(build: Callable[[], Any]) -> Any:
    """What a function makes, from the same random numbers each time."""
    torch.manual_seed(0)
    return build()
