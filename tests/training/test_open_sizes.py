"""One graph for all sizes: what a module asks of the shapes of its own tensors is asked anew in every call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.utils.checkpoint import checkpoint

from sardonyx.training.module import TrainingModule


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)


class Does(nn.Module):
    """What a function says, with two layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


class Attends(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first)

    def forward(self, x: torch.Tensor) -> Any:
        return self.attention(x, x, x)[0]


class Translates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(6, 2, 1, 1, 12, 0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        padding = torch.arange(x.shape[1])[None].expand(x.shape[0], -1) > 2
        return self.layers(x, x, tgt_mask=mask, tgt_is_causal=True, src_key_padding_mask=padding)


def assert_same_for_all_sizes(module: nn.Module, *shapes: tuple[int, ...]) -> None:
    ours, theirs = TrainingModule(copy.deepcopy(module)), module
    for shape in shapes or ((3, 4, 6), (2, 5, 6), (5, 3, 6)):
        x = torch.randn(shape)
        results = []
        for each in (ours, theirs):
            each.zero_grad()
            results.append(each(x))
            (results[-1] * torch.cos(torch.arange(results[-1].numel())).reshape(results[-1].shape)).sum().backward()
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    manager = ours._torch_module._execution_manager(True)
    assert manager._graph_transition_manager.counters.exports == 1
    assert manager._execution_agent.host_nodes == ()


def _heads_of_parts(module: Any, x: torch.Tensor) -> Any:
    query, key = module.first(x).split(3, dim=2)
    return query.view((*query.shape[:-1], -1, 3)).transpose(1, 2) @ key.view((*key.shape[:-1], -1, 3)).permute(0, 2, 3, 1)


def _uneven_parts(module: Any, x: torch.Tensor) -> Any:
    parts = module.first(x).split(4, dim=-1)
    return torch.cat([part.reshape(*part.shape[:-1], 1, -1) * number for number, part in enumerate(parts)], -1)


@pytest.mark.parametrize("function", [_heads_of_parts, _uneven_parts])
def test_sizes_of_parts(function: Callable[..., Any]) -> None:
    assert_same_for_all_sizes(Does(function))


@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_of_torch(batch_first: bool) -> None:
    assert_same_for_all_sizes(Attends(batch_first))


def test_layers_of_transformers() -> None:
    assert_same_for_all_sizes(nn.TransformerEncoderLayer(6, 2, 12, 0.0))
    assert_same_for_all_sizes(Translates())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_inside_a_module_are_part_of_its_graph(reentrant: bool) -> None:
    def function(module: Any, x: torch.Tensor) -> Any:
        return checkpoint(lambda y: module.second(module.first(y).tanh()), module.second(x), use_reentrant=reentrant)

    assert_same_for_all_sizes(Does(function))


def _log_probability(module: Any, x: torch.Tensor) -> Any:
    spread = F.softplus(module.second(x)) + 0.1
    return torch.distributions.Normal(module.first(x), spread).log_prob(x)


def _entropy(module: Any, x: torch.Tensor) -> Any:
    return torch.distributions.Categorical(logits=module.first(x)).entropy()


def _divergence(module: Any, x: torch.Tensor) -> Any:
    found = torch.distributions.Normal(module.first(x), module.second(x).exp())
    return torch.distributions.kl_divergence(found, torch.distributions.Normal(torch.zeros(6), torch.ones(6)))


@pytest.mark.parametrize("function", [_log_probability, _entropy, _divergence])
def test_distributions(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)  # torch.compile switches it off for good
    assert_same_for_all_sizes(Does(function))
    with pytest.raises(ValueError, match="Expected parameter scale"):  # outside of an export they check as ever
        torch.distributions.Normal(torch.zeros(2), -torch.ones(2))
