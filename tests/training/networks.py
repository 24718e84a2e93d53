"""Networks of the kinds people train, small enough for tests; each with inputs that fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it


class MLP(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.GELU(), nn.Dropout(0.0), nn.Linear(32, 10))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)
        )
        self.head = nn.Sequential(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(torch.flatten(self.features(x), 1))


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        changes = stride != 1 or channels != out
        self.skip = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if changes else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> Any:
        return F.relu(self.body(x) + self.skip(x))


class ResNet18(nn.Sequential):
    def __init__(self) -> None:
        blocks: list[nn.Module] = []
        channels = 64
        for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [Residual(channels, out, stride), Residual(out, out, 1)]
            channels = out
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        super().__init__(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(512, 10))


class Inverted(nn.Module):
    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = channels * expand
        grow = [nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)] if expand > 1 else []
        self.body = nn.Sequential(
            *grow,
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.adds = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.body(x) if self.adds else self.body(x)


class MobileNetV2(nn.Sequential):
    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
        channels = 32
        table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
        for expand, out, repeats, stride in table:
            for index in range(repeats):
                layers.append(Inverted(channels, out, stride if index == 0 else 1, expand))
                channels = out
        layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1)]
        super().__init__(*layers, nn.Flatten(1), nn.Dropout(0.0), nn.Linear(1280, 10))


def _double(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = _double(1, 8), _double(8, 16), _double(16, 32)
        self.up1, self.merge1 = nn.ConvTranspose2d(32, 16, 2, 2), _double(32, 16)
        self.up2, self.merge2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), _double(24, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> Any:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.merge1(torch.cat([self.up1(self.middle(F.max_pool2d(b, 2))), b], 1))
        return self.head(self.merge2(torch.cat([self.up2(y), a], 1)))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16, padding_idx=0)
        self.cells = kind(16, 24, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 3)

    def forward(self, tokens: torch.Tensor) -> Any:
        states, _ = self.cells(self.embedding(tokens))
        return self.head(states[:, -1])


class TimedResidual(nn.Module):
    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> Any:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


class PixelAttention(nn.Module):
    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(4, channels),
            nn.Conv2d(channels, 3 * channels, 1),
            nn.Conv2d(channels, channels, 1),
        )
        self.heads = heads

    def forward(self, x: torch.Tensor) -> Any:
        batch, channels, height, width = x.shape
        parts = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, channels // self.heads, height * width)
        q, k, v = parts.permute(1, 0, 2, 4, 3)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.permute(0, 1, 3, 2).reshape(batch, channels, height, width))


class Diffusion(nn.Module):
    """A block of a diffusion model's U-Net: noise and a time step go in, the noise that was added comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(16, 32)
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.block1, self.attention, self.down = TimedResidual(16, 32, 32), PixelAttention(32, 2), nn.Conv2d(32, 32, 3, 2, 1)
        self.block2, self.up = TimedResidual(32, 32, 32), nn.Upsample(scale_factor=2, mode="nearest")
        self.block3, self.last = TimedResidual(64, 16, 32), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> Any:
        angles = step[:, None].to(self.time.weight.dtype) * torch.exp(-torch.arange(8) * (9.2 / 8))[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        h = self.attention(self.block1(self.first(x), time))
        low = self.block2(self.down(h), time)
        return self.last(self.block3(torch.cat([self.up(low), h], 1), time))


class Nested(nn.Module):
    """Takes dicts, gives dicts of tuples of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, batch: dict[str, Any], scale: float = 2.0) -> Any:
        hidden = torch.tanh(self.first(batch["x"]) + batch["more"][0] * scale)
        y = self.second(hidden)
        return {"y": y, "rest": (hidden, [y.sum(), None]), "count": 3}


Loss = Callable[[Any], torch.Tensor]


def classes(count: int, batch: int) -> Loss:
    """Cross-entropy with labels that stay the same."""
    labels = torch.arange(batch) % count
    return lambda logits: F.cross_entropy(logits, labels)


def network(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any], Loss]:
    """A network by its name, arguments of a call, and the loss of its result."""
    torch.manual_seed(0)
    match name:
        case "mlp":
            return MLP(), (torch.randn(8, 20),), {}, classes(10, 8)
        case "lenet":
            return LeNet(), (torch.randn(4, 1, 28, 28),), {}, classes(10, 4)
        case "resnet18":
            return ResNet18(), (torch.randn(4, 3, 64, 64),), {}, classes(10, 4)
        case "mobilenetv2":
            return MobileNetV2(), (torch.randn(4, 3, 64, 64),), {}, classes(10, 4)
        case "mobilenetv2 of 16":
            return MobileNetV2(), (torch.randn(16, 3, 64, 64),), {}, classes(10, 16)
        case "unet":
            return (
                UNet(),
                (torch.randn(2, 1, 16, 24),),
                {},
                lambda y: F.cross_entropy(y, torch.arange(768).reshape(2, 16, 24) % 2),
            )
        case "lstm":
            return Recurrent(), (torch.randint(0, 50, (3, 7)),), {}, classes(3, 3)
        case "gru":
            return Recurrent(nn.GRU), (torch.randint(0, 50, (3, 7)),), {}, classes(3, 3)
        case "diffusion":
            noise = torch.randn(2, 3, 8, 8)
            return Diffusion(), (torch.randn(2, 3, 8, 8), torch.tensor([3, 500])), {}, lambda y: F.mse_loss(y, noise)
        case "nested":
            batch = {"x": torch.randn(3, 4), "more": [torch.randn(3, 8)]}
            return Nested(), (batch,), {"scale": 3.0}, lambda y: y["y"].square().mean() + y["rest"][0].mean() + y["rest"][1][0]
    return transformer(name)


def transformer(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any], Loss]:
    """A network of Hugging Face's transformers, from a configuration: random weights, no dropout."""
    import transformers  # lazy: few environments have it

    def bert(hidden: int, layers: int, heads: int, vocabulary: int) -> nn.Module:
        config = transformers.BertConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            vocab_size=vocabulary,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return transformers.BertForSequenceClassification(config)

    tokens = torch.randint(1, 100, (2, 16))
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 11:] = 0
    labels = torch.tensor([0, 1])
    match name:
        case "bert-mini":
            module, given = bert(256, 4, 4, 1000), {"input_ids": tokens, "attention_mask": mask, "labels": labels}
        case "bert-base":
            module, given = bert(768, 12, 12, 30522), {"input_ids": tokens, "attention_mask": mask, "labels": labels}
        case "gpt2":
            config = transformers.GPT2Config(
                attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, use_cache=False, loss_type="ForCausalLM"
            )
            module, given = transformers.GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}
        case "vit-tiny":
            config = transformers.ViTConfig(
                hidden_size=192,
                num_hidden_layers=12,
                num_attention_heads=3,
                intermediate_size=768,
                image_size=64,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
            module = transformers.ViTForImageClassification(config)
            given = {"pixel_values": torch.randn(2, 3, 64, 64), "labels": labels}
        case _:
            raise ValueError(f"there is no network {name!r}")
    return module, (), given, lambda result: result.loss
