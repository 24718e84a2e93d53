"""Operators that torch's exporter has not, or not for every size: results and gradients are PyTorch's, of other sizes too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from sardonyx.training.module import TrainingModule
from training.functions import Function, check, leaves


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)


@pytest.mark.parametrize("size", [(5, 7), (None, 4), 1, 3])
def test_adaptive_means_of_images(size: Any) -> None:
    check(lambda x: F.adaptive_avg_pool2d(x, size), (torch.randn(2, 3, 11, 9),), (torch.randn(1, 3, 6, 14),))


def test_adaptive_means_of_lines_and_volumes() -> None:
    check(lambda x: F.adaptive_avg_pool1d(x, 4), (torch.randn(2, 3, 11),), (torch.randn(1, 3, 4),))
    check(lambda x: F.adaptive_avg_pool1d(x, 4), (torch.randn(3, 5),))
    check(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), (torch.randn(2, 3, 5, 7, 6),))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_smoothed_labels(reduction: str) -> None:
    labels = torch.tensor([[1, 0], [2, -100]])
    more: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1}
    check(lambda x, t: F.cross_entropy(x, t, **more), (torch.randn(2, 3, 2), labels))
    weight = torch.tensor([0.5, 2.0, 1.0])
    check(lambda x, t: F.cross_entropy(x, t, weight, **more), (torch.randn(2, 3, 2), labels))
    check(lambda x, t: F.cross_entropy(x, t.softmax(1), weight, **more), (torch.randn(2, 3, 2), torch.randn(2, 3, 2)))


def test_cross_entropy_that_ignores_the_class_of_a_size() -> None:
    calls = [(torch.randn(5, 4), torch.tensor([0, 1, 3, 2, 3])), (torch.randn(2, 6), torch.tensor([5, 1]))]
    check(lambda x, t: F.cross_entropy(x, t, ignore_index=x.size(1) - 1), *calls)


def test_bits_of_integers_and_truth_values() -> None:
    i, j, x = torch.randint(0, 9, (3, 4)), torch.randint(0, 9, (3, 4)), torch.randn(3, 4)
    check(lambda i, j, x: ((i | j) & (i ^ j)) * x + ~i, (i, j, x))
    check(lambda i, j, x: ((i > 3) | (j > 2)) * x + (i.int() | 5) + torch.bitwise_and(i.to(torch.int16), j), (i, j, x))


@pytest.mark.parametrize("scale", [(2.0, 4.7), (0.6, 1.5)])
def test_aligned_corners_are_those_of_the_rounded_size(scale: tuple[float, float]) -> None:
    sizes = [(torch.randn(2, 3, 4, 5),), (torch.randn(1, 3, 10, 7),)]
    check(lambda x: F.interpolate(x, scale_factor=scale, mode="bilinear", align_corners=True), *sizes, native=False)


def test_samples_of_one_distribution() -> None:
    module = TrainingModule(Function(lambda x: torch.multinomial(x, 1)))
    assert module(torch.tensor([0.0, 1.0, 0.0])).tolist() == [1]
    assert module(torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])).tolist() == [[1], [0]]


@pytest.mark.parametrize(("left", "right"), [((3, 4), (3, 1)), ((3, 1), (1, 5)), ((2, 3, 4), (3, 4)), ((1,), (2, 3, 4))])
def test_gradients_of_inputs_that_may_be_broadcast_are_native(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Every size of both is open: only the run tells along which axes a gradient is summed."""
    broadcast = torch.broadcast_shapes(left, right)
    whole = broadcast[len(broadcast) - len(left) :]
    check(torch.mul, (torch.randn(left), torch.randn(right)), (torch.randn(whole), torch.randn(right)))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("special", [float("nan"), float("inf")])
def test_rows_that_are_ignored_have_no_loss_whatever_they_hold(smoothing: float, special: float) -> None:
    x = torch.randn(4, 3)
    x[2, 1] = special
    ours, theirs = leaves((x, x))
    labels = torch.tensor([0, 2, -100, 1])
    module = TrainingModule(Function(lambda x, t: F.cross_entropy(x, t, label_smoothing=smoothing)))
    found, expected = module(ours, labels), F.cross_entropy(theirs, labels, label_smoothing=smoothing)
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    rows = [0, 1, 3]  # PyTorch's gradient of the other is NaN
    assert ours.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad[rows], theirs.grad[rows])
