"""Functions of torch as modules, compared with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sardonyx.training.module import TrainingModule


class Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def leaves(args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return [each.clone().requires_grad_() if each.is_floating_point() else each for each in args]


def check(
    function: Callable[..., torch.Tensor],
    *calls: tuple[torch.Tensor, ...],
    native: bool = True,
    rtol: float = 1.3e-6,
    atol: float = 1e-5,
) -> None:
    """Results and gradients of a function are PyTorch's; one module for all calls, whose sizes may differ."""
    module = TrainingModule(Function(function))
    for args in calls:
        ours, theirs = leaves(args), leaves(args)
        found, expected = module(*ours), function(*theirs)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
        gradient = torch.randn(expected.shape)
        found.backward(gradient)
        expected.backward(gradient)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=rtol, atol=atol)
    manager: Any = module._torch_module._execution_manager(True)
    assert manager._graph_transition_manager.counters.exports == 1
    if native:
        assert manager._execution_agent.host_nodes == ()
