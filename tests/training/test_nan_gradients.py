"""What is NaN stays visible in gradients, as in PyTorch."""

from __future__ import annotations

import copy

import torch
from torch import nn

from sardonyx.training import TrainingModule


def _gradients(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad(set_to_none=True)
    module(x).square().mean().backward()
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def test_gradients_behind_an_activation_that_is_nan_are_nan() -> None:
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    x[1, 2] = torch.nan
    expected = _gradients(eager, x)
    found = _gradients(TrainingModule(copy.deepcopy(eager)), x)
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found, expected):
        assert torch.equal(ours.isnan(), theirs.isnan())
