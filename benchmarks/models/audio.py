"""Networks that hear, in PyTorch, with random weights from a fixed seed: convolutions along time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def _prepared(network: nn.Module, x: Tensor) -> nn.Module:
    """He's rule for weights, and statistics of normalization from a random batch: see benchmarks.models.vision."""
    torch.manual_seed(0)
    for part in network.modules():
        if isinstance(part, (nn.Conv1d, nn.ConvTranspose1d, nn.Linear)):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.02)
        elif isinstance(part, nn.BatchNorm1d):
            part.momentum = 1.0
    if any(isinstance(part, nn.BatchNorm1d) for part in network.modules()):
        with torch.no_grad():
            network.train()(torch.cat([x, torch.randn_like(x)]))
    return network.eval()


class Separable(nn.Module):
    """A depthwise convolution along time, then one over channels; added to a shortcut."""

    def __init__(self, inputs: int, outputs: int, size: int, repeats: int, dilation: int = 1, stride: int = 1) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        channels = inputs
        for number in range(repeats):
            padding = dilation * (size - 1) // 2
            parts += [
                nn.Conv1d(channels, channels, size, stride, padding, dilation, groups=channels, bias=False),
                nn.Conv1d(channels, outputs, 1, bias=False),
                nn.BatchNorm1d(outputs),
                *([nn.ReLU()] if number + 1 < repeats else []),
            ]
            channels = outputs
        self.body = nn.Sequential(*parts)
        self.shortcut = nn.Sequential(nn.Conv1d(inputs, outputs, 1, bias=False), nn.BatchNorm1d(outputs)) if stride == 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """Body and shortcut."""
        y = self.body(x)
        return torch.relu(y + self.shortcut(x) if self.shortcut is not None else y)


def activity_network(bands: int = 80, frames: int = 400) -> tuple[nn.Module, dict[str, Any]]:
    """Voice activity: separable convolutions with long kernels, as in MarbleNet; four seconds."""
    network = nn.Sequential(
        Separable(bands, 128, 11, 1, stride=2),
        Separable(128, 64, 13, 2),
        Separable(64, 64, 15, 2),
        Separable(64, 64, 17, 2),
        Separable(64, 128, 29, 1, dilation=2),
        nn.Conv1d(128, 2, 1),
    )
    torch.manual_seed(1)
    x = torch.randn(1, bands, frames)
    return _prepared(network, x), {"x": x}


class Dilated(nn.Module):
    """The block of Conv-TasNet."""

    def __init__(self, channels: int, wide: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, wide, 1), nn.PReLU(), nn.GroupNorm(1, wide),
            nn.Conv1d(wide, wide, 3, padding=dilation, dilation=dilation, groups=wide), nn.PReLU(), nn.GroupNorm(1, wide),
            nn.Conv1d(wide, channels, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """The body, added."""
        y: Tensor = self.body(x)
        return x + y


class Separation(nn.Module):
    """Conv-TasNet: a mask for each of two speakers over a learnt transform."""

    def __init__(self, filters: int = 256, narrow: int = 128, wide: int = 256, speakers: int = 2) -> None:
        super().__init__()
        self.speakers = speakers
        self.encoder = nn.Conv1d(1, filters, 16, 8, bias=False)
        blocks = [Dilated(narrow, wide, 1 << power) for _ in range(2) for power in range(6)]
        self.masks = nn.Sequential(
            nn.GroupNorm(1, filters), nn.Conv1d(filters, narrow, 1), *blocks, nn.PReLU(), nn.Conv1d(narrow, speakers * filters, 1)
        )
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)

    def forward(self, sound: Tensor) -> Tensor:
        """One signal for each speaker."""
        parts = torch.relu(self.encoder(sound))
        masks = torch.sigmoid(self.masks(parts)).unflatten(1, (self.speakers, parts.shape[1]))
        each: Tensor = self.decoder((masks * parts[:, None]).flatten(0, 1))
        return each


def separation_network(samples: int = 8000) -> tuple[nn.Module, dict[str, Any]]:
    """Source separation of a second."""
    torch.manual_seed(1)
    x = torch.randn(1, 1, samples) * 0.1
    return _prepared(Separation(), x), {"sound": x}


class Mixed(nn.Module):
    """Residual convolutions of several dilations, one after the other."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.1), nn.Conv1d(channels, channels, size, padding=dilation * (size - 1) // 2, dilation=dilation),
                nn.LeakyReLU(0.1), nn.Conv1d(channels, channels, size, padding=size // 2),
            )
            for dilation in (1, 3, 5)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """All of them, added up."""
        for part in self.parts:
            x = x + 0.3 * part(x)
        return x


class Vocoder(nn.Module):
    """HiFi-GAN, small: from a spectrogram to sound."""

    def __init__(self, bands: int = 80, width: int = 128) -> None:
        super().__init__()
        self.first = nn.Conv1d(bands, width, 7, padding=3)
        self.ups, self.mixes = nn.ModuleList(), nn.ModuleList()
        for factor in (8, 8, 2, 2):
            self.ups.append(nn.ConvTranspose1d(width, width // 2, 2 * factor, factor, factor // 2))
            width //= 2
            self.mixes.append(nn.ModuleList(Mixed(width, size) for size in (3, 7, 11)))
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, spectrogram: Tensor) -> Tensor:
        """The sound."""
        x = self.first(spectrogram)
        for up, mixes in zip(self.ups, self.mixes):
            assert isinstance(mixes, nn.ModuleList)
            x = up(nn.functional.leaky_relu(x, 0.1))
            x = torch.stack([mix(x) for mix in mixes]).mean(0)
        return torch.tanh(self.last(nn.functional.leaky_relu(x)))


def vocoder_network(frames: int = 40) -> tuple[nn.Module, dict[str, Any]]:
    """Ten thousand samples of sound."""
    torch.manual_seed(1)
    x = torch.randn(1, 80, frames) * 0.3
    return _prepared(Vocoder(), x), {"spectrogram": x}


class Shrinking(nn.Module):
    """A residual unit and a convolution that leaves out samples."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.unit = nn.Sequential(
            nn.ELU(), nn.Conv1d(channels, channels // 2, 3, padding=1), nn.ELU(), nn.Conv1d(channels // 2, channels, 1)
        )
        self.down = nn.Sequential(nn.ELU(), nn.Conv1d(channels, 2 * channels, 2 * stride, stride, stride // 2))

    def forward(self, x: Tensor) -> Tensor:
        """Half as many channels more, fewer samples."""
        y: Tensor = self.down(x + self.unit(x))
        return y


class Codec(nn.Module):
    """The encoder of EnCodec, small: convolutions with strides, then an LSTM over what is left."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
        for stride in (2, 4, 5, 8):
            parts.append(Shrinking(width, stride))
            width *= 2
        self.body = nn.Sequential(*parts)
        self.memory = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.last = nn.Conv1d(width, 64, 7, padding=3)

    def forward(self, sound: Tensor) -> Tensor:
        """A code of 64 numbers for every 320 samples."""
        x = self.body(sound).transpose(1, 2)
        x = (x + self.memory(x)[0]).transpose(1, 2)
        code: Tensor = self.last(nn.functional.elu(x))
        return code


def codec_network(samples: int = 24000) -> tuple[nn.Module, dict[str, Any]]:
    """A second of sound."""
    torch.manual_seed(1)
    x = torch.randn(1, 1, samples) * 0.1
    return _prepared(Codec(), x), {"sound": x}
