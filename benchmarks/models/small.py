"""Recurrent networks, and programs so small that the cost of running anything at all decides."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

CHAIN = 100
CHAIN_WIDTH = 64


class Recurrent(nn.Module):
    """Two layers of LSTM or GRU over a sequence, and a classifier of its last state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], inputs: int = 128, width: int = 256) -> None:
        super().__init__()
        self.cells = kind(inputs, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 32)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of 32 classes."""
        states, _ = self.cells(x)
        scores: Tensor = self.head(states[:, -1])
        return scores


def recurrent_network(kind: type[nn.LSTM] | type[nn.GRU], steps: int = 64) -> tuple[nn.Module, dict[str, Any]]:
    """A recurrent network and a sequence."""
    torch.manual_seed(0)
    network = Recurrent(kind).eval()
    return network, {"x": torch.randn(1, steps, 128)}


def perceptron_network() -> tuple[nn.Module, dict[str, Any]]:
    """64-128-128-10 with ReLU, one row."""
    torch.manual_seed(0)
    parts = (nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    network = nn.Sequential(*parts)
    for part in network:
        if isinstance(part, nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    return network.eval(), {"x": torch.randn(1, 64)}


class Chain(nn.Module):
    """A hundred elementwise operations, one after the other, none of which can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factors", torch.rand(CHAIN // 4, CHAIN_WIDTH) + 0.5)
        self.register_buffer("terms", torch.randn(CHAIN // 4, CHAIN_WIDTH) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        """Scale, shift, then two functions, 25 times."""
        assert isinstance(self.factors, Tensor)
        assert isinstance(self.terms, Tensor)
        for number in range(CHAIN // 4):
            x = x * self.factors[number] + self.terms[number]
            x = torch.abs(torch.tanh(x)) if number % 2 else torch.relu(torch.neg(x))
        return x


def chain_network() -> tuple[nn.Module, dict[str, Any]]:
    """The chain and 64 numbers."""
    torch.manual_seed(0)
    return Chain().eval(), {"x": torch.randn(1, CHAIN_WIDTH)}
