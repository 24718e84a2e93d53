"""Networks of volumes: convolutions and pools of three axes, whose gradients are computed plane by plane, in native code."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from sardonyx.training.module import TrainingModule


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)


def _check(theirs: nn.Module, *shapes: tuple[int, ...], rounded: bool = False) -> None:
    """Results and gradients are PyTorch's, and no node is left to NumPy but those that are of images, too.

    Whole numbers have many equal maxima.
    """
    ours = TrainingModule(copy.deepcopy(theirs))
    for shape in shapes:
        x = torch.randn(shape)
        given = [(x.mul(2).round() if rounded else x).requires_grad_() for x in (x.clone(), x.clone())]
        gradient = torch.randn(theirs(given[1]).shape)
        for module, leaf in ((ours, given[0]), (theirs, given[1])):
            module.zero_grad()
            leaf.retain_grad()
            module(leaf).backward(gradient)
        torch.testing.assert_close(given[0].grad, given[1].grad, rtol=1e-4, atol=1e-4)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    manager: Any = ours._torch_module._execution_manager(True)
    left = [node for node in manager._execution_agent.host_nodes if "strides and dilations at once" not in node]
    assert left == []


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_size": 3},
    "padded": {"kernel_size": 3, "padding": 1},
    "in steps": {"kernel_size": (3, 2, 3), "stride": (2, 1, 2), "padding": (2, 0, 1)},
    "apart": {"kernel_size": 2, "dilation": (2, 1, 2), "padding": (1, 1, 0)},
    "in steps and apart": {"kernel_size": (2, 3, 3), "stride": (3, 2, 1), "dilation": (2, 1, 1)},
    "of single pixels": {"kernel_size": 1},
    "in groups": {"kernel_size": 3, "groups": 2, "padding": 1},
    "depthwise": {"kernel_size": 3, "groups": 4, "padding": 1},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    options = CONVOLUTIONS[name]
    _check(nn.Conv3d(4, 4 if name == "depthwise" else 6, **options), (2, 4, 7, 6, 8), (3, 4, 9, 7, 6))


def test_transposed_convolutions() -> None:
    _check(nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1), (2, 4, 3, 4, 5), (1, 4, 4, 3, 3))


POOLS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": (1, 2, 1), "padding": 1},
    "uneven": {"kernel_size": (3, 2, 1), "stride": (2, 3, 1)},
    "apart": {"kernel_size": 2, "dilation": (2, 1, 3)},
    "rounded up": {"kernel_size": 2, "stride": 2, "ceil_mode": True},
}


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_maxima(name: str, rounded: bool) -> None:
    pool = nn.Sequential(nn.Conv3d(3, 3, 1), nn.MaxPool3d(**POOLS[name]))
    with torch.no_grad():  # the channels are known, and numbers stay whole
        pool[0].weight.copy_(torch.eye(3)[..., None, None, None])
        pool[0].bias.zero_()
    _check(pool, (2, 3, 7, 8, 5), (1, 3, 5, 6, 9), rounded=rounded)


def test_a_net_of_volumes() -> None:
    net = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8, eps=0.1), nn.SiLU(), nn.MaxPool3d(2),
        nn.Conv3d(8, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
    )  # fmt: skip
    _check(net, (2, 1, 12, 12, 12), (3, 1, 8, 12, 10))
