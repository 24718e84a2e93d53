"""Losses and layers of sequences: results and gradients are PyTorch's, in native code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from sardonyx.errors import BadNodeInput
from sardonyx.ops.rows.sequence_loss import CTC_LOSS
from sardonyx.training.module import TrainingModule
from training.functions import Function, check


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)


ctc: Any = F.ctc_loss


def scores(steps: int, batch: int, classes: int) -> torch.Tensor:
    return torch.randn(steps, batch, classes).log_softmax(-1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_of_labels_in_rows(reduction: str) -> None:
    def loss(*args: torch.Tensor) -> Any:
        return ctc(*args, reduction=reduction)

    first = scores(9, 3, 5), torch.randint(1, 5, (3, 4)), torch.tensor([9, 7, 8]), torch.tensor([4, 2, 0])
    labels = torch.tensor([[1, 1, 2, 3, 3], [2, 1, -100, -100, -100]])  # behind the end of a row anything may stand
    second = scores(12, 2, 5), labels, torch.tensor([12, 5]), torch.tensor([5, 2])
    check(loss, first, second, rtol=1e-4, atol=1e-4)


def test_ctc_of_labels_one_after_the_other() -> None:
    first = scores(9, 3, 5), torch.randint(0, 4, (6,)), torch.tensor([9, 7, 8]), torch.tensor([3, 2, 1])
    second = scores(12, 2, 5), torch.randint(0, 4, (5,)), torch.tensor([12, 5]), torch.tensor([3, 2])
    check(lambda x, *args: ctc(x.log_softmax(-1), *args, blank=4), first, second, rtol=1e-4, atol=1e-4)


def test_ctc_of_a_single_sequence_and_of_lengths_in_lists() -> None:
    one = scores(9, 1, 5)[:, 0], torch.randint(1, 5, (3,)), torch.tensor(9), torch.tensor(3)
    check(lambda *args: ctc(*args, reduction="none"), one, rtol=1e-4, atol=1e-4)
    check(
        lambda x, t: F.ctc_loss(x, t, (9, 9, 9), [4, 2, 1]), (scores(9, 3, 5), torch.randint(1, 5, (3, 4))), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("zero_infinity", [True, False])
def test_ctc_of_labels_that_are_longer_than_their_sequence(zero_infinity: bool) -> None:
    def loss(*args: torch.Tensor) -> Any:
        return ctc(*args, reduction="none", zero_infinity=zero_infinity)

    x = scores(9, 4, 5)
    rest = torch.randint(1, 5, (4, 4)), torch.tensor([9, 2, 0, 0]), torch.tensor([4, 4, 0, 2])
    found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours, theirs = TrainingModule(Function(loss))(found, *rest), loss(expected, *rest)
    torch.testing.assert_close(ours, theirs)
    for result in (ours, theirs):
        result.sum().backward()
    torch.testing.assert_close(found.grad, expected.grad, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"labels": 7}, {"input_lengths": 10}, {"label_lengths": 5}], ids=["label", "input length", "label length"]
)
def test_ctc_of_what_is_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    module = TrainingModule(Function(F.ctc_loss))
    given = {
        "labels": torch.randint(1, 5, (3, 4)),
        "input_lengths": torch.tensor([9, 2, 5]),
        "label_lengths": torch.tensor([4, 1, 2]),
    }
    x = scores(9, 3, 5)
    module(x, *given.values())
    for name, value in wrong.items():
        given[name] = given[name].clone()
        given[name].view(-1)[0] = value
    with pytest.raises(BadNodeInput, match="out of range"):
        module(x, *given.values())


@pytest.mark.parametrize("zero_infinity", [0, 1])
def test_what_ctc_means_in_numpy(zero_infinity: int) -> None:
    x = scores(9, 5, 6).double()
    labels = torch.tensor([[1, 1, 2], [3, 3, 3], [4, 0, 0], [1, 2, 1], [5, 4, 3]])
    lengths, counts = torch.tensor([9, 5, 4, 2, 0]), torch.tensor([3, 3, 0, 3, 3])
    leaf = x.clone().requires_grad_()
    expected = F.ctc_loss(leaf, labels, lengths, counts, reduction="none", zero_infinity=bool(zero_infinity))
    expected.sum().backward()
    given = [each.numpy() for each in (x, labels, lengths, counts)]
    loss, gradient = CTC_LOSS.eval(*given, blank=0, zero_infinity=zero_infinity)
    np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=1e-10)
    assert leaf.grad is not None
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-8, atol=1e-10)


class Layer(nn.Module):
    """A recurrent layer; states and results in one tensor."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.cells = kind(6, 8, **options)

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
        given: Any = states if len(states) > 1 else (states[0] if states else None)
        y, ends = self.cells(x, given)
        rest = ends if isinstance(ends, tuple) else (ends,)
        return torch.cat([y.flatten() * 2, *(each.flatten() for each in rest)])


def assert_same(ours: Any, theirs: nn.Module, *args: torch.Tensor) -> None:
    wanted = [each for each in args if each.requires_grad]
    found, expected = ours(*args), theirs(*args)
    torch.testing.assert_close(found, expected)
    one, other = (
        torch.autograd.grad(result.cos().sum(), [*wanted, *module.parameters()])
        for result, module in ((found, ours), (expected, theirs))
    )
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True, "batch_first": True}],
    ids=["plain", "no bias", "two ways"],
)
def test_lstms_with_projections(options: dict[str, Any]) -> None:
    theirs = Layer(nn.LSTM, proj_size=4, **options)
    ours = TrainingModule(copy.deepcopy(theirs))
    for batch in (3, 2):
        assert_same(ours, theirs, torch.randn(batch, 4 + batch, 6))
        rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        width = batch if options.get("batch_first") else 4 + batch
        states = [torch.randn(rows, width, size, requires_grad=True) for size in (4, 8)]
        assert_same(ours, theirs, torch.randn(batch, 4 + batch, 6), *states)
    assert ours._torch_module._execution_manager(True)._execution_agent.host_nodes == ()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_states_that_the_caller_passes(kind: Callable[..., nn.Module]) -> None:
    theirs = Layer(kind, num_layers=2, batch_first=True)
    ours = TrainingModule(copy.deepcopy(theirs))
    for batch in (3, 2):
        states = [torch.randn(2, batch, 8, requires_grad=True) for _ in range(2 if kind is nn.LSTM else 1)]
        assert_same(ours, theirs, torch.randn(batch, 5, 6), *states)
    manager = ours._torch_module._execution_manager(True)
    assert manager._graph_transition_manager.counters.exports == 1
    assert manager._execution_agent.host_nodes == ()
