"""Recurrent networks, and programs so small that the cost of running anything at all decides."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

CHAIN = 100
CHAIN_WIDTH = 64


class Recurrent(nn.Module):
    """Two layers of LSTM or GRU over a sequence, in one direction or both, and a classifier of its last state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], inputs: int = 128, width: int = 256, both: bool = False) -> None:
        super().__init__()
        self.cells = kind(inputs, width, num_layers=2, batch_first=True, bidirectional=both)
        self.head = nn.Linear(2 * width if both else width, 32)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of 32 classes."""
        states, _ = self.cells(x)
        scores: Tensor = self.head(states[:, -1])
        return scores


class Streaming(nn.Module):
    """Two layers of LSTM or GRU that take up their state where they left it."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], inputs: int = 128, width: int = 256) -> None:
        super().__init__()
        self.cells = kind(inputs, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 32)

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Scores of 32 classes for every step, and the state after the last."""
        states, after = self.cells(x, state if len(state) > 1 else state[0])
        return (self.head(states), *(after if len(state) > 1 else (after,)))


_CELLS = {"LSTM": nn.LSTM, "GRU": nn.GRU}


def recurrent_network(kind: str, steps: int = 64, batch: int = 1, both: bool = False) -> tuple[nn.Module, dict[str, Any]]:
    """A recurrent network and a sequence."""
    torch.manual_seed(0)
    network = Recurrent(_CELLS[kind], both=both).eval()
    return network, {"x": torch.randn(batch, steps, 128)}


def streaming_network(kind: str, steps: int = 1, width: int = 256) -> tuple[nn.Module, dict[str, Any]]:
    """A recurrent network, a few steps, and the state it is in."""
    torch.manual_seed(0)
    network = Streaming(_CELLS[kind], width=width).eval()
    names = ("hidden", "cell") if kind == "LSTM" else ("hidden",)
    return network, {"x": torch.randn(1, steps, 128), **{name: torch.randn(2, 1, width) * 0.3 for name in names}}


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


def digits_network() -> tuple[nn.Module, dict[str, Any]]:
    """LeNet and a picture of a digit."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10), nn.Softmax(1),
    )  # fmt: skip
    return network.eval(), {"image": torch.rand(1, 1, 28, 28)}


class Table(nn.Module):
    """A network for rows of tables: embeddings of categories beside normalized numbers, two layers, a probability."""

    def __init__(self, sizes: tuple[int, ...] = (12, 40, 7, 100, 3), numbers: int = 13) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 8) for size in sizes)
        self.norm = nn.BatchNorm1d(numbers)
        self.body = nn.Sequential(
            nn.Linear(8 * len(sizes) + numbers, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        """The probability."""
        found = [table(categories[:, column]) for column, table in enumerate(self.tables)]
        return torch.sigmoid(self.body(torch.cat([*found, self.norm(numbers)], 1)))


def table_network() -> tuple[nn.Module, dict[str, Any]]:
    """The network and one row."""
    torch.manual_seed(0)
    return Table().eval(), {"categories": torch.tensor([[3, 17, 5, 60, 1]]), "numbers": torch.randn(1, 13)}
