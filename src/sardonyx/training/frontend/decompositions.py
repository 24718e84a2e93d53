"""Functions of torch that its exporter does not know, in functions that it does: taken while a module is traced.

Each computes what torch's own does, with the same slopes where a function has kinks. Table `DECOMPOSED` at the end says which
functions, under which names; layers, sequences, views and pairs stand in files of their own. A function gives
NotImplemented for arguments that it does not take: torch's own is traced then, and the exporter says that it does not know it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from sardonyx.training.frontend.decompositions_of_layers import LAYERS, movedim
from sardonyx.training.frontend.decompositions_of_pairs import PAIRS
from sardonyx.training.frontend.decompositions_of_sequences import SEQUENCES
from sardonyx.training.frontend.decompositions_of_views import VIEWS


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """How elements become a loss; the two older arguments go before the newer."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """The same, where elements may have weights by which a mean is divided."""
    if weight is None:
        return _reduced(loss, reduction)
    loss = loss * weight
    return loss.sum() / weight.expand_as(loss).sum() if reduction == "mean" else _reduced(loss, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Absolute differences."""
    return _weighted((input - target).abs(), weight, _reduction(size_average, reduce, reduction))


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squares of small differences, absolute values of others."""
    far = (input - target).abs()
    loss = far if beta == 0 else torch.where(far < beta, far * far * (0.5 / beta), far - 0.5 * beta)
    return _reduced(loss, _reduction(size_average, reduce, reduction))


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """The same, `delta` times as steep."""
    far = (input - target).abs()
    loss = torch.where(far <= delta, far * far * 0.5, (far - 0.5 * delta) * delta)
    return _reduced(loss if weight is None else loss * weight, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input, or the same of a rate; `full` adds Stirling's approximation of log(target!)."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        large = torch.where(target > 1, target, torch.ones_like(target))
        stirling = large * large.log() - large + 0.5 * (2 * math.pi * large).log()
        loss = loss + torch.where(target > 1, stirling, torch.zeros_like(target))
    return _reduced(loss, _reduction(size_average, reduce, reduction))


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """Half of log(var) + (input - target)² / var; no gradient flows into what `eps` replaces of a variance."""
    if not isinstance(var, Tensor):
        var = torch.full_like(input, float(var))
    if var.ndim != input.ndim:
        var = var.unsqueeze(-1)
    safe = var + (var.detach().clamp(min=eps) - var.detach())
    loss = 0.5 * (safe.log() + (input - target) ** 2 / safe)
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Logarithms are at least -100, as in torch."""
    loss = (target - 1) * (1 - input).log().clamp(min=-100) - target * input.log().clamp(min=-100)
    return _reduced(loss if weight is None else loss * weight, _reduction(size_average, reduce, reduction))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """How far the order of two inputs misses the margin."""
    return _reduced((-target * (input1 - input2) + margin).clamp(min=0), _reduction(size_average, reduce, reduction))


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Distances of pairs that belong together, and by how much those of others miss the margin."""
    zeros = torch.zeros_like(input)
    loss = torch.where(target == 1, input, zeros) + torch.where(target == -1, (margin - input).clamp(min=0), zeros)
    return _reduced(loss, _reduction(size_average, reduce, reduction))


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cosine for pairs that belong together, what is above the margin for others."""
    squares = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    zeros = torch.zeros_like(cosine)
    loss = torch.where(target == 1, 1 - cosine, zeros) + torch.where(target == -1, (cosine - margin).clamp(min=0), zeros)
    return _reduced(loss, _reduction(size_average, reduce, reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """How much farther the negative should be than the positive."""

    def distance(one: Tensor, other: Tensor) -> Tensor:
        found: Tensor = torch.linalg.vector_norm(one - other + eps, p, dim=-1)
        return found

    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return _reduced((margin + near - far).clamp(min=0), _reduction(size_average, reduce, reduction))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """By how much the scores of other classes come too near to that of the right one."""
    rows, labels = (input, target) if input.ndim > 1 else (input.unsqueeze(0), target.reshape(1))
    column = labels.unsqueeze(1)
    short = (margin - rows.gather(1, column) + rows).clamp(min=0) ** p
    if weight is not None:
        short = short * weight[labels].unsqueeze(1)
    others = torch.arange(rows.shape[1]).unsqueeze(0) != column
    loss = torch.where(others, short, torch.zeros_like(short)).sum(1) / rows.shape[1]
    return _reduced(loss if input.ndim > 1 else loss.squeeze(0), _reduction(size_average, reduce, reduction))


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """By how much scores of other classes come too near to those of the right ones, which stand before the first -1."""
    rows, labels = (input, target) if input.ndim > 1 else (input.unsqueeze(0), target.unsqueeze(0))
    given = (labels < 0).to(torch.int64).cumsum(1) == 0
    positions = torch.where(given, labels, torch.zeros_like(labels))
    right = torch.zeros_like(rows).scatter_add(1, positions, given.to(rows.dtype)) > 0
    short = (1 - rows.gather(1, positions).unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
    counts = given.unsqueeze(2) & ~right.unsqueeze(1)
    loss = torch.where(counts, short, torch.zeros_like(short)).sum((1, 2)) / rows.shape[1]
    return _reduced(loss if input.ndim > 1 else loss.squeeze(0), _reduction(size_average, reduce, reduction))


def tile(input: Tensor, *dims: Any) -> Tensor:
    """`repeat` with 1 for axes that are not named."""
    counts = tuple(dims[0]) if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    return input.repeat(*([1] * (input.ndim - len(counts))), *counts)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, where both may be broadcast along the other axes."""
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    axis = dim % input.ndim
    wide: list[Any] = []
    for at in range(input.ndim):
        one, other = input.shape[at], indices.shape[at]
        wide.append(other if int(one) == 1 else one)
    positions = [indices.shape[axis] if at == axis else size for at, size in enumerate(wide)]
    wide[axis] = input.shape[axis]
    return input.expand(wide).gather(axis, indices.expand(positions))


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """Rows that come several times are all added: the exporter's own keeps the last."""
    shape = [1] * input.ndim
    shape[dim] = -1
    rows = index.reshape(shape).expand(source.shape)
    return input.scatter_add(dim, rows, source if alpha == 1 else source * alpha)


def index_add_(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """The same, in place."""
    return input.copy_(index_add(input, dim, index, source, alpha=alpha))


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Quarter turns: flips and swaps of two axes."""
    first, second = dims
    match k % 4:
        case 0:
            return input.clone()
        case 1:
            return input.flip(second).transpose(first, second)
        case 2:
            return input.flip(first, second)
    return input.transpose(first, second).flip(second)


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Vectors as diagonals of matrices."""
    rank = input.ndim + 1
    at = torch.arange(input.shape[-1] + abs(offset))
    on_diagonal = at.unsqueeze(0) == at.unsqueeze(1) + offset
    wide = F.pad(input, (max(offset, 0), max(-offset, 0))) if offset else input  # each element in its column
    made = torch.where(on_diagonal, wide.unsqueeze(-2), torch.zeros_like(wide).unsqueeze(-2))
    return made if (dim1 % rank, dim2 % rank) == (rank - 2, rank - 1) else movedim(made, (-2, -1), (dim1, dim2))


def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal."""
    return torch.diagonal(input).sum()


def kron(input: Tensor, other: Tensor) -> Any:
    """Every element of one times the whole of the other."""
    if input.ndim != other.ndim:
        return NotImplemented
    left, right = input, other
    for axis in range(input.ndim):
        left, right = left.unsqueeze(2 * axis + 1), right.unsqueeze(2 * axis)
    return (left * right).reshape([one * two for one, two in zip(input.shape, other.shape, strict=True)])


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(x) + exp(y)): the larger one, and what the difference adds."""
    larger, smaller = torch.maximum(input, other), torch.minimum(input, other)
    return larger + (smaller - larger).exp().log1p()


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """The same of powers of two."""
    factor = math.log(2.0)
    return logaddexp(input * factor, other * factor) / factor


def xlogy(input: Any, other: Any) -> Tensor:
    """x log(y), which is 0 for x = 0."""
    y = other if isinstance(other, Tensor) else torch.full_like(input, float(other))
    x = input if isinstance(input, Tensor) else torch.full_like(y, float(input))
    is_zero = (x == 0) & ~torch.isnan(y)
    return torch.where(is_zero, torch.zeros_like(x * y), x * torch.where(is_zero, torch.ones_like(y), y).log())


def entr(input: Tensor) -> Tensor:
    """-x log(x), 0 for 0, and minus infinity below."""
    above = input > 0
    ones = torch.ones_like(input)
    below = torch.where(input == 0, torch.zeros_like(input), torch.full_like(input, -math.inf))
    below = torch.where(torch.isnan(input), input, below)
    inner = torch.where(above, input, ones)
    return torch.where(above, -inner * inner.log(), below)


def sinc(input: Tensor) -> Tensor:
    """sin(πx) / πx, 1 at zero."""
    angle = input * math.pi
    safe = torch.where(angle == 0, torch.ones_like(angle), angle)
    return torch.where(angle == 0, torch.ones_like(angle), safe.sin() / safe)


def copysign(input: Tensor, other: Any) -> Any:
    """The size of one with the sign of the other."""
    if not isinstance(other, Tensor):
        return input.abs() * math.copysign(1.0, other)
    negative = (other < 0) | ((other == 0) & (1 / other < 0))
    return torch.where(negative, -input.abs(), input.abs())


def _skipping_nan(choose: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """The larger or the smaller, or the one that is a number."""

    def chosen(input: Tensor, other: Tensor) -> Tensor:
        return torch.where(torch.isnan(input), other, torch.where(torch.isnan(other), input, choose(input, other)))

    return chosen


def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of what is a number."""
    numbers = torch.where(torch.isnan(input), torch.zeros_like(input), input)
    return numbers.sum(dtype=dtype) if dim is None else numbers.sum(dim, keepdim, dtype=dtype)


def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero."""
    counted = (input != 0).to(torch.int64)
    return counted.sum() if dim is None else counted.sum(dim)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of the difference."""
    found: Tensor = torch.linalg.vector_norm((input - other).reshape(-1), p)
    return found


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along an axis whose norm is above the largest are made as short."""
    axes = [axis for axis in range(input.ndim) if axis != dim % input.ndim]
    norms = torch.linalg.vector_norm(input, p, dim=axes, keepdim=True)
    return input * torch.where(norms > maxnorm, maxnorm / (norms + 1e-7), torch.ones_like(norms))


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """The area under neighbouring points."""
    axis = dim % y.ndim
    later, earlier = _cut(y, axis, 1, None), _cut(y, axis, 0, -1)
    if x is None:
        return (later + earlier).sum(axis) * (0.5 * (1.0 if dx is None else dx))
    steps = _cut(x, x.ndim - 1 if x.ndim == 1 else axis, 1, None) - _cut(x, x.ndim - 1 if x.ndim == 1 else axis, 0, -1)
    if x.ndim == 1:
        steps = steps.reshape([-1 if at == axis else 1 for at in range(y.ndim)])
    return ((later + earlier) * steps).sum(axis) * 0.5


def _cut(x: Tensor, axis: int, start: int, stop: int | None) -> Tensor:
    whole: tuple[Any, ...] = (slice(None),) * axis
    return x[(*whole, slice(start, stop))]


def _running(combine: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, int], Tensor]:
    """Combinations of each element with all before it along an axis, in as many rounds as the length has bits."""

    def run(input: Tensor, dim: int) -> Tensor:
        axis, result, span = dim % max(input.ndim, 1), input, 1
        while input.ndim and input.shape[axis] > span:
            earlier, later = _cut(result, axis, 0, -span), _cut(result, axis, span, None)
            result = torch.cat((_cut(result, axis, 0, span), combine(earlier, later)), axis)
            span *= 2
        return result

    return run


def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Any:
    """Products of each element with all before it."""
    if dtype is None and not input.is_floating_point():
        return NotImplemented
    return _running(torch.mul)(input if dtype is None else input.to(dtype), dim)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Logarithms of running sums of powers of e."""
    return _running(logaddexp)(input, dim)


class Chosen(NamedTuple):
    """Elements of a tensor, and where they stand in it."""

    values: Tensor
    indices: Tensor


def _running_choice(prefers: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, int], Any]:
    """Running maxima or minima with their positions: of equal ones the last, and whatever is no number from there on."""

    def run(input: Tensor, dim: int) -> Any:
        if not input.ndim:
            return NotImplemented
        axis, values, span = dim % input.ndim, input.detach(), 1
        numbers = torch.arange(input.shape[axis]).reshape([-1 if at == axis else 1 for at in range(input.ndim)])
        indices = numbers.expand(input.shape)
        while input.shape[axis] > span:
            earlier, later = _cut(values, axis, 0, -span), _cut(values, axis, span, None)
            takes = prefers(later, earlier)
            if input.is_floating_point():
                takes = (takes & ~earlier.isnan()) | later.isnan()
            sooner, current = _cut(indices, axis, 0, -span), _cut(indices, axis, span, None)
            values = torch.cat((_cut(values, axis, 0, span), torch.where(takes, later, earlier)), axis)
            indices = torch.cat((_cut(indices, axis, 0, span), torch.where(takes, current, sooner)), axis)
            span *= 2
        return Chosen(input.gather(axis, indices), indices)

    return run


def cov(input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Covariances of rows."""
    if fweights is not None or aweights is not None:
        return NotImplemented
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    centred = rows - rows.mean(1, keepdim=True)
    found = centred @ centred.t() / (rows.shape[1] - correction)
    return found if input.ndim == 2 else found.reshape(())


def _sorted_at(input: Tensor, position: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The element that sorting would put at a position, and its index."""
    values, indices = input.sort(dim)
    row = position.reshape(1)
    value, index = values.index_select(dim, row), indices.index_select(dim, row)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two middle ones, if there are two."""
    flat = input.reshape(-1) if dim is None else input
    axis = 0 if dim is None else dim
    middle = torch.as_tensor((flat.shape[axis] - 1) // 2)
    value, index = _sorted_at(flat, middle, axis, keepdim and dim is not None)
    return value if dim is None else torch.return_types.median((value, index))


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest."""
    return torch.return_types.kthvalue(_sorted_at(input, torch.tensor(k - 1), dim, keepdim))


def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Any:
    """Between the two nearest elements in order, of one share."""
    if not isinstance(q, float) or interpolation != "linear":
        return NotImplemented
    flat = input.reshape(-1) if dim is None else input
    axis = 0 if dim is None else dim
    values = flat.sort(axis)[0]
    last = torch.as_tensor(flat.shape[axis] - 1)
    position = last.to(input.dtype) * q
    low = position.floor()
    lower = values.index_select(axis, low.to(torch.int64).reshape(1))
    upper = values.index_select(axis, position.ceil().to(torch.int64).reshape(1))
    found = lower + (upper - lower) * (position - low)
    if dim is not None:
        return found if keepdim else found.squeeze(axis)
    return found.reshape([1] * input.ndim if keepdim else [])


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices one after the other along a diagonal."""
    rows = [each if each.ndim == 2 else each.reshape(1, -1) for each in tensors]
    parts: list[Tensor] = []
    for number, each in enumerate(rows):
        before, after = rows[:number], rows[number + 1 :]
        line = [torch.zeros([1, 1], dtype=each.dtype).expand(each.shape[0], other.shape[1]) for other in before]
        line += [each]
        line += [torch.zeros([1, 1], dtype=each.dtype).expand(each.shape[0], other.shape[1]) for other in after]
        parts.append(torch.cat(line, 1))
    return torch.cat(parts)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, *more: Any, **named: Any) -> Any:
    """Groups of queries that share keys and values: these are repeated."""
    if not named.pop("enable_gqa", False):
        return F.scaled_dot_product_attention(query, key, value, *more, **named)
    groups = int(query.shape[-3]) // int(key.shape[-3])
    repeated = (each.repeat_interleave(groups, -3) for each in (key, value))
    return F.scaled_dot_product_attention(query, *repeated, *more, **named)


_SIMPLE: Final[dict[str, Callable[..., Any]]] = {  # functions of one or two tensors that are also methods of tensors
    "erfc": lambda x: 1 - x.erf(),
    "expm1": lambda x: torch.where(x.abs() < 1e-2, x * (1 + x * (0.5 + x * (1 / 6 + x / 24))), x.exp() - 1),
    "exp2": lambda x: (x * math.log(2.0)).exp(),
    "trunc": lambda x: x.sign() * x.abs().floor(),
    "frac": lambda x: x - (x.sign() * x.abs().floor()).detach(),
    "hypot": lambda x, y: (x * x + y * y).sqrt(),
    "addcdiv": lambda x, tensor1, tensor2, *, value=1: x + tensor1 / tensor2 * value,
    "addmv": lambda x, mat, vec, *, beta=1, alpha=1: x * beta + (mat @ vec) * alpha,
    "vdot": lambda x, y: (x * y).sum(),
    "addbmm": lambda x, batch1, batch2, *, beta=1, alpha=1: x * beta + (batch1 @ batch2).sum(0) * alpha,
    "logaddexp": logaddexp,
    "logaddexp2": logaddexp2,
    "xlogy": xlogy,
    "sinc": sinc,
    "copysign": copysign,
    "fmax": _skipping_nan(torch.maximum),
    "fmin": _skipping_nan(torch.minimum),
    "nansum": nansum,
    "count_nonzero": count_nonzero,
    "dist": dist,
    "renorm": renorm,
    "tile": tile,
    "take_along_dim": take_along_dim,
    "index_add": index_add,
    "rot90": rot90,
    "diag_embed": diag_embed,
    "trace": trace,
    "kron": kron,
    "cov": cov,
    "median": median,
    "quantile": quantile,
    "kthvalue": kthvalue,
    "cumprod": cumprod,
    "logcumsumexp": logcumsumexp,
    "cummax": _running_choice(torch.ge),
    "cummin": _running_choice(torch.le),
}
_SPECIAL: Final = {"erfc": "erfc", "expm1": "expm1", "exp2": "exp2", "xlogy": "xlogy", "sinc": "sinc"}  # in torch.special
_LOSSES: Final = (
    l1_loss, smooth_l1_loss, huber_loss, poisson_nll_loss, gaussian_nll_loss, binary_cross_entropy, margin_ranking_loss,
    hinge_embedding_loss, cosine_embedding_loss, triplet_margin_loss, multi_margin_loss, multilabel_margin_loss,
)  # fmt: skip
DECOMPOSED: Final[dict[Any, Callable[..., Any]]] = {
    **{getattr(torch, name): function for name, function in _SIMPLE.items()},
    **{getattr(torch.Tensor, name): function for name, function in _SIMPLE.items() if hasattr(torch.Tensor, name)},
    **{getattr(torch.special, name): _SIMPLE[simple] for name, simple in _SPECIAL.items()},
    **{getattr(F, function.__name__): function for function in _LOSSES},
    torch.special.entr: entr,
    torch.block_diag: block_diag,
    torch.Tensor.index_add_: index_add_,
    torch.trapz: trapezoid,
    torch.trapezoid: trapezoid,
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    **LAYERS,
    **SEQUENCES,
    **VIEWS,
    **PAIRS,
}
