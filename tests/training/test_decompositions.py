"""Functions that torch's exporter has not: written in others while a module is traced, results and gradients are PyTorch's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from sardonyx.training.frontend.decompositions import DECOMPOSED
from sardonyx.training.module import TrainingModule
from training.functions import Function, check


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


LOSSES: dict[str, tuple[Callable[..., torch.Tensor], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "l1": (F.l1_loss, lambda n: (x(n, 5), x(n, 5))),
    "smooth l1": (lambda a, b, **more: F.smooth_l1_loss(a, b, beta=0.7, **more), lambda n: (x(n, 5), x(n, 5))),
    "huber": (lambda a, b, **more: F.huber_loss(a, b, delta=0.7, **more), lambda n: (x(n, 5), x(n, 5))),
    "poisson": (F.poisson_nll_loss, lambda n: (x(n, 5), x(n, 5).abs())),
    "poisson of rates": (
        lambda a, b, **more: F.poisson_nll_loss(a.abs(), b.detach(), log_input=False, full=True, **more),
        lambda n: (x(n, 5), x(n, 5).abs() * 4),
    ),
    "gauss": (F.gaussian_nll_loss, lambda n: (x(n, 5), x(n, 5), torch.rand(n, 5) + 0.1)),
    "gauss of rows": (
        lambda a, b, v, **more: F.gaussian_nll_loss(a, b, v, full=True, **more),
        lambda n: (x(n, 5), x(n, 5), torch.rand(n) + 0.1),
    ),
    "bce": (F.binary_cross_entropy, lambda n: (torch.rand(n, 5), torch.rand(n, 5))),
    "ranking": (
        lambda a, b, t, **more: F.margin_ranking_loss(a, b, t * 2.0 - 1, 0.3, **more),
        lambda n: (x(n), x(n), torch.arange(n) % 2),
    ),
    "hinge": (lambda a, y, **more: F.hinge_embedding_loss(a, y.sign(), 0.7, **more), lambda n: (x(n), x(n))),
    "cosine": (lambda a, b, y, **more: F.cosine_embedding_loss(a, b, y.sign(), 0.1, **more), lambda n: (x(n, 4), x(n, 4), x(n))),
    "triplet": (
        lambda a, b, c, **more: F.triplet_margin_loss(a, b, c, swap=True, **more),
        lambda n: (x(n, 4), x(n, 4), x(n, 4)),
    ),
    "margins of several labels": (
        F.multilabel_margin_loss,
        lambda n: (x(n, 5), torch.tensor([[1, 3, -1, 0, 2], [0, 1, 2, 3, 4], [-1, 2, 2, 2, 2]]).repeat(n // 3, 1)),
    ),
    "margins": (
        lambda a, t, **more: F.multi_margin_loss(a, t, margin=0.8, weight=torch.arange(5.0) + 1, **more),
        lambda n: (x(n, 5), torch.arange(n) % 5),
    ),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, reduction: str) -> None:
    function, make = LOSSES[name]
    check(lambda *args: function(*args, reduction=reduction), make(3), make(6), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:size_average and reduce")
def test_losses_by_older_arguments() -> None:
    check(lambda a, b: F.l1_loss(a, b, size_average=False), (x(3, 2), x(3, 2)))
    check(lambda a, b: F.smooth_l1_loss(a, b, reduce=False), (x(3, 2), x(3, 2)))
    weights: dict[str, Any] = {"weight": torch.arange(6.0).reshape(3, 2)}
    check(lambda a, b: F.huber_loss(a, b, **weights), (x(3, 2), x(3, 2)), rtol=1e-4)
    check(lambda a, b: F.l1_loss(a, b, **weights), (x(3, 2), x(3, 2)), rtol=1e-4)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "erfc": (torch.erfc, (3, 4)),
    "expm1": (lambda a: torch.expm1(a * 0.02), (30, 4)),
    "exp2": (torch.exp2, (3, 4)),
    "sums of products": (lambda a: torch.addbmm(a[0] @ a[0].mT, a, a.mT, beta=0.5, alpha=2), (2, 3, 4)),
    "matrices transposed": (lambda a: a @ a.mT, (2, 3, 4)),
    "conjugate transposes": (lambda a: a.H @ a, (3, 4)),
    "inner products": (lambda a: torch.vdot(a[0], a[1]), (3, 4)),
    "adjoint matrices": (lambda a: a.mH @ a.adjoint().mT, (2, 3, 4)),
    "flat": (lambda a: a.transpose(0, 1).ravel() * 2, (3, 4)),
    "sorted rows": (lambda a: torch.msort(a) * 2, (3, 4)),
    "joined sideways": (lambda a: torch.hstack([a, a * 2]), (3, 4)),
    "joined vectors": (lambda a: torch.hstack([a[0], a[1] * 2, a[0, 0]]), (3, 4)),
    "joined below": (lambda a: torch.vstack([a, a[0]]), (3, 4)),
    "joined in depth": (lambda a: torch.dstack([a, a * 2]), (3, 4)),
    "columns": (lambda a: torch.column_stack([a, a[:, 0]]), (3, 4)),
    "parts": (lambda a: torch.tensor_split(a, 3, -1)[1], (3, 8)),
    "parts that end": (lambda a: torch.cat(a.tensor_split((1, -2), -1)[::-1], -1) * 3, (3, 8)),
    "parts of columns": (lambda a: torch.hsplit(a[:, :4], 2)[1] * 2, (3, 4)),
    "parts of depths": (lambda a: torch.dsplit(a[..., :4], 2)[1] * 2, (2, 3, 4)),
    "a slice replaced": (lambda a: torch.select_scatter(a, a[:, 0] * 2, 1, -1), (3, 4)),
    "slices replaced": (lambda a: a.slice_scatter(a[:, :2] * 2, 1, 1, 3), (3, 4)),
    "mean of numbers": (lambda a: torch.nanmean(torch.where(a > 1, torch.nan, a), 1), (3, 4)),
    "mean of all numbers": (lambda a: torch.where(a > 1, torch.nan, a).nanmean(), (3, 4)),
    "distances": (lambda a: torch.cdist(a, a * 2), (2, 3, 4)),
    "distances of equal rows": (lambda a: torch.cdist(a, a), (3, 4)),
    "distances along axes": (lambda a: torch.cdist(a, a * 2, 1.0), (2, 3, 4)),
    "cubic distances": (lambda a: torch.cdist(a, a, 3.0), (3, 4)),
    "largest distances": (lambda a: torch.cdist(a, a * 2, float("inf")), (3, 4)),
    "distances of pairs": (F.pdist, (5, 4)),
    "pairs": (lambda a: torch.combinations(a[0]), (3, 6)),
    "all pairs": (lambda a: torch.cartesian_prod(a[0], a[1] * 2, a[0]), (3, 4)),
    "frac": (torch.frac, (3, 4)),
    "hypot": (lambda a: torch.hypot(a, a + 1), (3, 4)),
    "addcdiv": (lambda a: torch.addcdiv(a, a, a.abs() + 1, value=0.3), (3, 4)),
    "addmv": (lambda a: torch.addmv(a[:, 0], a, a[0], beta=0.5, alpha=2), (3, 4)),
    "logaddexp": (lambda a: torch.logaddexp(a * 60, a), (3, 4)),
    "logaddexp2": (lambda a: torch.logaddexp2(a, a * 2), (3, 4)),
    "xlogy": (lambda a: torch.special.xlogy(a, a.abs() + 0.1), (3, 4)),
    "entr": (lambda a: torch.special.entr(a.abs()), (3, 4)),
    "sinc": (torch.sinc, (3, 4)),
    "copysign": (lambda a: a.copysign(a * 2 - 1), (3, 4)),
    "fmax": (lambda a: torch.fmax(a, a * 2), (3, 4)),
    "nansum": (lambda a: torch.nansum(a, 1), (3, 4)),
    "count": (lambda a: torch.count_nonzero(a > 0, dim=0) * a, (3, 4)),
    "dist": (lambda a: torch.dist(a[:2], a[1:3], 3), (3, 4)),
    "renorm": (lambda a: torch.renorm(a, 2, 0, 1.5), (3, 4)),
    "tile": (lambda a: a.tile((2, 1, 2)), (3, 4)),
    "rotate": (lambda a: torch.rot90(a, 1, (0, 2)) * 2, (3, 4, 5)),
    "rotate back": (lambda a: torch.rot90(a, -1, (0, 2)) * 2, (3, 4, 5)),
    "diagonals": (lambda a: torch.diag_embed(a, 1), (3, 4)),
    "diagonals below": (lambda a: torch.diag_embed(a, -2, 0, 2), (3, 4)),
    "trace": (torch.trace, (4, 5)),
    "kron": (lambda a: torch.kron(a, a[:2] * 2), (3, 4)),
    "trapeze": (lambda a: torch.trapezoid(a, dim=0, dx=0.3), (3, 4)),
    "trapeze at points": (lambda a: torch.trapz(a, a[0]), (3, 4)),
    "covariance": (torch.cov, (3, 9)),
    "median": (lambda a: a.median(1)[0], (3, 6)),
    "median of all": (torch.median, (3, 5)),
    "third": (lambda a: torch.kthvalue(a, 3, 0)[0], (5, 4)),
    "quantile": (lambda a: torch.quantile(a, 0.3, 1), (3, 7)),
    "quantile of all": (lambda a: torch.quantile(a, 0.8), (3, 7)),
    "products": (lambda a: torch.cumprod(a, 1), (3, 5)),
    "products with zeros": (lambda a: (a.relu() - 0.1).relu().cumprod(0), (5, 3)),
    "products in another type": (lambda a: a.cumprod(-1, dtype=torch.float64).float(), (2, 5)),
    "running sums of powers": (lambda a: torch.logcumsumexp(a * 20, 1), (3, 5)),
    "running maxima": (lambda a: a.round().cummax(1)[0] * a, (3, 9)),
    "where running maxima are": (lambda a: a.round().cummax(1)[1] * a, (3, 9)),
    "running minima": (lambda a: torch.cummin(a, dim=0).values * 2, (5, 3)),
    "blocks": (lambda a: torch.block_diag(a, a * 2), (3, 4)),
    "moved": (lambda a: a.movedim(0, -1) * 2, (3, 4, 5)),
    "moved together": (lambda a: torch.movedim(a, (0, 1), (-1, 0)) * 2, (3, 4, 5)),
    "divided": (lambda a: a.unflatten(1, (2, -1)) * torch.arange(a.unflatten(1, (2, -1)).shape[-1]), (3, 4, 5)),
    "windows": (lambda a: a.unfold(1, 3, 2) * 2, (3, 9, 2)),
    "shuffled": (lambda a: F.channel_shuffle(a, 2) * 2, (3, 4, 5)),
    "threshold": (lambda a: F.threshold(a, 0.2, 20.0), (3, 4)),
    "rms norm": (lambda a: F.rms_norm(a, (6,), torch.arange(6.0), 1e-6), (3, 6)),
    "batch norm": (lambda a: F.batch_norm(a, None, None, training=True), (3, 4, 5)),
    "bilinear": (lambda a: F.bilinear(a, a[..., :2], torch.arange(24.0).reshape(3, 4, 2) * 0.1), (3, 4)),
    "nothing dropped": (lambda a: F.dropout2d(a, 0.0), (2, 3, 4, 4)),
    "alpha": (lambda a: F.alpha_dropout(a, 0.0, True), (2, 3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, shape = FUNCTIONS[name]
    exact = name in ("rms norm", "bilinear") or name.startswith("parts")  # sizes that the function itself says, or that decide
    other = (shape[0] + 2, *shape[1:]) if exact or len(shape) < 2 else tuple(size + 2 for size in shape)
    check(function, (x(*shape),), (x(*other),), native=False, rtol=1e-4)


def test_elements_are_taken_along_an_axis() -> None:
    check(lambda a: torch.take_along_dim(a, a[:, :1].argsort(0), 0), (x(3, 4),), native=False)
    check(lambda a: torch.take_along_dim(a[:, :1], a.argsort(0), 0), (x(3, 4),), native=False)
    check(lambda a: torch.take_along_dim(a, a.argmax()), (x(3, 4),), native=False)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "prod"])
def test_what_falls_into_the_same_place(reduce: str, include: bool) -> None:
    def function(a: torch.Tensor, b: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return a.scatter_reduce(0, index, b, reduce, include_self=include)

    def call(rows: int, others: int) -> tuple[torch.Tensor, ...]:
        return x(rows, 4), x(others, 3), torch.randint(0, rows, (others, 3))

    check(function, call(6, 9), call(8, 5), native=False)


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
def test_slopes_of_equal_elements_and_zeros_that_fall_into_the_same_place(reduce: str) -> None:
    index = torch.tensor([0, 0, 0, 1, 1, 2])
    given = torch.tensor([2.0, 0.0, -3.0, 4.0]), torch.tensor([2.0, 2.0, 1.0, 0.0, 5.0, 0.0])
    for include in (True, False):
        check(lambda a, b, include=include: a.scatter_reduce(0, index, b, reduce, include_self=include), given, native=False)
    twice = torch.tensor([2.0, 1.0, -3.0, 4.0]), torch.tensor([0.0, 0.0, 1.0, 3.0, 5.0, 0.5])
    check(lambda a, b: a.scatter_reduce(0, index, b, reduce), twice, native=False)
    unbounded = torch.full((4,), -torch.inf), torch.tensor([2.0, 2.0, 1.0, 0.0, 5.0, 0.0])
    if reduce == "amax":
        check(
            lambda a, b: a.detach().scatter_reduce(0, index, b, reduce) * torch.tensor([1.0, 1, 1, 0.5]), unbounded, native=False
        )


def test_running_maxima_of_what_is_no_number() -> None:
    given = torch.tensor([[1.0, float("nan"), 3.0, float("nan")], [2.0, 2.0, 1.0, float("inf")]])
    module = TrainingModule(Function(lambda a: torch.cummax(a, 1)))
    found, expected = module(given.clone().requires_grad_()), torch.cummax(given, 1)
    torch.testing.assert_close(found[0], expected[0], equal_nan=True)
    assert torch.equal(found[1], expected[1])


class Spectral(nn.Module):
    """Weights divided by their largest singular value, of which the module keeps estimates."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.spectral_norm(nn.Linear(5, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_spectral_norm() -> None:
    torch.manual_seed(3)
    theirs = Spectral()
    ours = TrainingModule(copy.deepcopy(theirs))
    for _ in range(3):
        given = x(4, 5)
        for module in (ours, theirs):
            module.zero_grad()
            module(given).square().sum().backward()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(one, other)


def test_parametrized_weights() -> None:
    layers = nn.utils.parametrizations
    theirs = nn.Sequential(layers.weight_norm(nn.Linear(6, 8)), nn.Tanh(), layers.spectral_norm(nn.Linear(8, 3)))
    ours = TrainingModule(copy.deepcopy(theirs))
    for rows in (5, 3):
        given = x(rows, 6)
        for module in (ours, theirs):
            module.zero_grad()
            module(given).square().sum().backward()
        for one, other in zip([*ours.parameters()], theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
        for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_small_numbers_keep_their_digits() -> None:
    check(torch.expm1, (torch.logspace(-12, 1, 40),), rtol=1e-5, atol=0.0)


def test_rows_that_are_added_several_times() -> None:
    """The exporter's own keeps the last of them."""
    index = torch.tensor([0, 1, 1, 2])
    check(lambda a: torch.zeros(3, 5).index_add(0, index, a, alpha=2), (x(4, 5),))

    def in_place(a: torch.Tensor) -> torch.Tensor:
        made = torch.ones(3, 5)
        made.index_add_(0, index, a)
        return made * 2

    check(in_place, (x(4, 5),))


@pytest.mark.parametrize("size", [(2, 3), (None, 2), 1, 5])
def test_adaptive_maxima(size: Any) -> None:
    check(lambda a: F.adaptive_max_pool2d(a, size), (x(2, 3, 11, 9),), (x(1, 3, 6, 14),), native=False)


def test_adaptive_maxima_of_lines_and_volumes() -> None:
    check(lambda a: F.adaptive_max_pool1d(a, 4), (x(2, 3, 11),), (x(1, 3, 4),), native=False)
    check(lambda a: F.adaptive_max_pool3d(a, (2, 3, 1)), (x(2, 3, 5, 7, 6),), native=False)


@pytest.mark.parametrize("more", [{"stride": 2}, {"padding": 1}, {"dilation": 2}, {"stride": (1, 3), "padding": (0, 1)}])
def test_columns_are_folded(more: dict[str, Any]) -> None:
    columns = F.unfold(x(2, 4, 8, 9), 3, **more)
    check(lambda a: F.fold(a, (8, 9), 3, **more), (columns,), (columns[:1],))
    check(lambda a: F.fold(a, (8, 9), 3, **more), (columns[0],))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_maxima_go_back_to_their_places(axes: int) -> None:
    pool, unpool = getattr(F, f"max_pool{axes}d"), getattr(F, f"max_unpool{axes}d")
    check(
        lambda a: unpool(*pool(a, 2, return_indices=True), 2) * a, (x(2, 3, *[6] * axes),), (x(1, 3, *[4] * axes),), native=False
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str) -> None:
    rows = torch.randint(0, 9, (3, 5))
    check(lambda i, w: F.embedding_bag(i, w, mode=mode), (rows, x(9, 4)), (rows[:2, :3], x(9, 4)), native=False, rtol=1e-5)
    check(lambda i, w: F.embedding_bag(i, w, mode=mode, padding_idx=2), (rows, x(9, 4)), native=False, rtol=1e-5)
    if mode == "sum":
        check(
            lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
            (rows, x(9, 4), x(3, 5)),
            native=False,
            rtol=1e-5,
        )
    if mode != "max":
        starts = torch.tensor([0, 4, 4, 9])
        check(lambda i, w, o: F.embedding_bag(i, w, o, mode=mode), (rows.reshape(-1), x(9, 4), starts), native=False, rtol=1e-5)


def test_queries_that_share_keys() -> None:
    check(
        lambda q, k: F.scaled_dot_product_attention(q, k, k * 2, enable_gqa=True),
        (x(2, 6, 5, 4), x(2, 2, 7, 4)),
        native=False,
        rtol=1e-4,
    )


def test_channels_are_dropped_as_a_whole() -> None:
    ours = TrainingModule(Function(lambda a: F.dropout2d(a, 0.25)))
    a = torch.ones(100, 40, 3, 5, requires_grad=True)
    y = ours(a)
    kept = y[:, :, 0, 0] != 0
    assert 0.7 < float(kept.float().mean()) < 0.8
    torch.testing.assert_close(y, kept[:, :, None, None].float().expand_as(y) / 0.75)
    y.sum().backward()
    torch.testing.assert_close(a.grad, y.detach())


@pytest.mark.parametrize("dropout", [F.alpha_dropout, F.feature_alpha_dropout])
def test_alpha_dropout_keeps_mean_and_variance(dropout: Callable[..., torch.Tensor]) -> None:
    ours = TrainingModule(Function(lambda a: dropout(a, 0.2, True)))
    y = ours(torch.randn(200, 300, 1, requires_grad=True)).detach()
    assert abs(float(y.mean())) < 0.03
    assert abs(float(y.var()) - 1) < 0.05


def test_noise_before_a_softmax() -> None:
    ours = TrainingModule(Function(lambda a: F.gumbel_softmax(a, hard=True)))
    shares = torch.tensor([0.7, 0.2, 0.1])
    a = shares.log().expand(4000, 3).clone().requires_grad_()
    y = ours(a)
    torch.testing.assert_close(y.detach().mean(0), shares, rtol=0, atol=0.03)
    (y * torch.arange(3.0)).sum().backward()
    assert a.grad is not None
    assert float(a.grad.abs().sum()) > 0


@pytest.mark.parametrize("weights", [(3, 6, 3, 3), (16, 16, 3, 3), (4, 3, 3, 3), (6, 1, 3, 3), (5, 6, 1, 1)])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_with_constant_kernels(weights: tuple[int, ...], stride: int) -> None:
    """Constants of the graph: the gradient of the input reads them rotated."""
    kernels = x(*weights)
    channels = 6 if weights[1] < 6 else weights[1]
    groups = channels // weights[1]
    check(lambda a: F.conv2d(a, kernels, stride=stride, padding=1, groups=groups), (x(2, channels, 7, 6),), rtol=1e-4, atol=1e-4)


def test_what_a_function_does_not_take_is_left_to_the_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_UNSUPPORTED_ONNX_MODEL")
    module = TrainingModule(Function(lambda a: torch.quantile(a, 0.3, interpolation="nearest")))
    a = x(3, 7).requires_grad_()
    torch.testing.assert_close(module(a), torch.quantile(a, 0.3, interpolation="nearest"))


def test_sizes_that_data_decides_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_UNSUPPORTED_ONNX_MODEL")
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0)
    module = TrainingModule(layer)
    a, labels = x(6, 8), torch.tensor([1, 7, 12, 3, 19, 6])
    torch.testing.assert_close(module(a, labels).loss, layer(a, labels).loss)


def test_every_function_is_one_of_torch() -> None:
    assert all(callable(function) for function in DECOMPOSED)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images_are_sampled_along_a_grid(mode: str, padding: str) -> None:
    more: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": False}
    grid, other = (torch.rand(2, 5, 4, 2) * 2.4 - 1.2, torch.rand(1, 3, 6, 2) * 2.4 - 1.2)
    check(
        lambda a, g: F.grid_sample(a, g, **more),
        (x(2, 3, 6, 5), grid),
        (x(1, 3, 4, 7), other),
        native=False,
        rtol=1e-4,
        atol=1e-4,
    )


def test_volumes_are_sampled_along_a_grid() -> None:
    grid = torch.rand(1, 3, 2, 4, 3) * 2.2 - 1.1
    check(lambda a, g: F.grid_sample(a, g, align_corners=True), (x(1, 2, 4, 3, 5), grid), native=False, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("corners", [False, True])
def test_grids_of_affine_maps(corners: bool) -> None:
    check(lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=corners), (x(2, 2, 3),), native=False)
    check(lambda t: F.affine_grid(t, [2, 3, 4, 5, 6], align_corners=corners), (x(2, 3, 4),), native=False)


def test_recurrent_layers_with_relu() -> None:
    layer = nn.RNN(4, 5, 2, nonlinearity="relu", bidirectional=True)
    ours = TrainingModule(layer)
    a = x(6, 2, 4)
    gradients = []
    for module in (ours, layer):
        layer.zero_grad()
        module(a)[0].square().sum().backward()
        gradients.append([each.grad.clone() for each in layer.parameters() if each.grad is not None])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
