"""Networks that look at pictures, in PyTorch, with random weights from a fixed seed.

Weights follow He's rule, and the statistics of batch normalization are those of a random batch: activations keep the size they
have in a trained network, so that outputs can be compared and no kernel meets denormals or infinities by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

PICTURE = (1, 3, 224, 224)


def prepared(network: nn.Module, shape: Sequence[int], seed: int = 0) -> nn.Module:
    """The network with sensible weights, ready for inference on inputs of this shape."""
    torch.manual_seed(seed)
    for part in network.modules():
        if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.02)
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.0)
            nn.init.normal_(part.bias, std=0.1)
            part.momentum = 1.0  # the statistics of one batch, not an average over many
    if any(isinstance(part, nn.BatchNorm2d) for part in network.modules()):
        with torch.no_grad():
            network.train()(torch.randn(2, *shape[1:]))
    return network.eval()


class ConvNorm(nn.Sequential):
    """Convolution, normalization, activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: Callable[[], nn.Module] | None = nn.ReLU,
    ) -> None:
        convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        parts = [convolution, nn.BatchNorm2d(outputs), *([activation()] if activation is not None else [])]
        super().__init__(*parts)


class Residual(nn.Module):
    """The block of ResNet: two 3x3 convolutions, or 1x1, 3x3, 1x1 with a narrow middle."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = width * 4 if bottleneck else width
        if bottleneck:
            first, middle = ConvNorm(inputs, width), ConvNorm(width, width, 3, stride)
            self.body = nn.Sequential(first, middle, ConvNorm(width, outputs, activation=None))
        else:
            self.body = nn.Sequential(ConvNorm(inputs, width, 3, stride), ConvNorm(width, width, 3, activation=None))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        """Body and shortcut, added."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(depths: Sequence[int], bottleneck: bool) -> nn.Module:
    """ResNet: (2, 2, 2, 2) is 18, (3, 4, 6, 3) with bottlenecks 50."""
    parts: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for number in range(depth):
            parts.append(Residual(inputs, width, 2 if number == 0 and stage > 0 else 1, bottleneck))
            inputs = width * 4 if bottleneck else width
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*parts)


class SqueezeExcite(nn.Module):
    """Scales channels by a small network over their means."""

    def __init__(self, channels: int, narrow: int, activation: Callable[[], nn.Module], gate: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, narrow, 1), activation(), nn.Conv2d(narrow, channels, 1), gate()
        )

    def forward(self, x: Tensor) -> Tensor:
        """The channels, scaled."""
        scaled: Tensor = x * self.scale(x)
        return scaled


class InvertedResidual(nn.Module):
    """Widen, depthwise convolution, perhaps squeeze and excite, narrow again."""

    def __init__(
        self,
        inputs: int,
        wide: int,
        outputs: int,
        size: int,
        stride: int,
        activation: Callable[[], nn.Module],
        squeeze: nn.Module | None = None,
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [ConvNorm(inputs, wide, activation=activation)] if wide != inputs else []
        parts.append(ConvNorm(wide, wide, size, stride, wide, activation))
        parts += [squeeze] if squeeze is not None else []
        self.body = nn.Sequential(*parts, ConvNorm(wide, outputs, activation=None))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """The body, added to the input where the shape stays the same."""
        y: Tensor = self.body(x)
        return x + y if self.adds else y


def mobilenet_v2() -> nn.Module:
    """MobileNetV2, width 1.0."""
    parts: list[nn.Module] = [ConvNorm(3, 32, 3, 2, activation=nn.ReLU6)]
    inputs = 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, outputs, repeats, stride in table:
        for number in range(repeats):
            step = stride if number == 0 else 1
            parts.append(InvertedResidual(inputs, inputs * factor, outputs, 3, step, nn.ReLU6))
            inputs = outputs
    parts += [ConvNorm(inputs, 1280, activation=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*parts)


def mobilenet_v3_large() -> nn.Module:
    """MobileNetV3-Large, width 1.0: rows are kernel, width, outputs, squeeze, hard-swish, stride."""
    table = (
        (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1), (5, 72, 40, True, False, 2),
        (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1), (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1),
        (3, 184, 80, False, True, 1), (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
        (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
    )  # fmt: skip
    parts: list[nn.Module] = [ConvNorm(3, 16, 3, 2, activation=nn.Hardswish)]
    inputs = 16
    for size, wide, outputs, squeezes, hard, stride in table:
        squeeze = SqueezeExcite(wide, _divisible(wide // 4), nn.ReLU, nn.Hardsigmoid) if squeezes else None
        parts.append(InvertedResidual(inputs, wide, outputs, size, stride, nn.Hardswish if hard else nn.ReLU, squeeze))
        inputs = outputs
    parts += [ConvNorm(160, 960, activation=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))


def _divisible(channels: int) -> int:
    """The nearest multiple of 8 that is not more than a tenth smaller."""
    rounded = max(8, (channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0: rows are factor, outputs, repeats, stride, kernel."""
    table = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    parts: list[nn.Module] = [ConvNorm(3, 32, 3, 2, activation=nn.SiLU)]
    inputs = 32
    for factor, outputs, repeats, stride, size in table:
        for number in range(repeats):
            wide = inputs * factor
            squeeze = SqueezeExcite(wide, inputs // 4, nn.SiLU, nn.Sigmoid)
            parts.append(InvertedResidual(inputs, wide, outputs, size, stride if number == 0 else 1, nn.SiLU, squeeze))
            inputs = outputs
    parts += [ConvNorm(inputs, 1280, activation=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """U-Net: four times down and up again, with connections across."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(_double(before, after) for before, after in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, 2) for w in reversed(widths[1:]))
        self.merge = nn.ModuleList(_double(w, w // 2) for w in reversed(widths[1:]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Two classes a pixel."""
        kept: list[Tensor] = []
        for level, part in enumerate(self.down):
            x = part(x if level == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        classes: Tensor = self.head(x)
        return classes


def _double(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(ConvNorm(inputs, outputs, 3), ConvNorm(outputs, outputs, 3))


class SuperResolution(nn.Module):
    """Twice as many pixels: residual blocks without normalization, then channels become pixels (EDSR, small)."""

    def __init__(self, width: int = 64, depth: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(depth)
        )
        self.last = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The larger picture."""
        x = start = self.first(x)
        for block in self.blocks:
            x = x + 0.1 * block(x)
        larger: Tensor = self.last(x + start)
        return larger


NETWORKS: Final[dict[str, Callable[[], nn.Module]]] = {
    "resnet18": lambda: resnet((2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda: resnet((3, 4, 6, 3), bottleneck=True),
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3_large,
    "efficientnet_b0": efficientnet_b0,
    "unet": UNet,
    "super_resolution": SuperResolution,
}


def picture_network(make: str, shape: tuple[int, ...] = PICTURE) -> tuple[nn.Module, dict[str, Any]]:
    """A network and the picture it is fed."""
    network = prepared(NETWORKS[make](), shape)
    return network, {"image": torch.randn(*shape)}
