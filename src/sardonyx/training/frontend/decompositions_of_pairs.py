"""Distances and combinations of all pairs of rows or elements, and reductions of what is scattered.

Where a distance is 0 its gradient is 0, as in torch: a square root would give none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

_NEUTRAL: Final = {"amax": -math.inf, "amin": math.inf, "prod": 1.0}


def _length(difference: Tensor, p: float) -> Tensor:
    """The p-norm along the last axis."""
    if p == 0:
        return (difference != 0).to(difference.dtype).sum(-1)
    far = difference.abs()
    if p == 1:
        return far.sum(-1)
    if math.isinf(p):
        return far.amax(-1)
    if p == 2:
        return _root((difference * difference).sum(-1), 0.5)
    is_zero = far == 0
    powers = torch.where(is_zero, torch.zeros_like(far), torch.where(is_zero, torch.ones_like(far), far) ** p)
    return _root(powers.sum(-1), 1 / p)


def _root(x: Tensor, power: float) -> Tensor:
    is_zero = x == 0
    safe = torch.where(is_zero, torch.ones_like(x), x)
    return torch.where(is_zero, torch.zeros_like(x), safe.sqrt() if power == 0.5 else safe**power)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """Distances of all rows of one from all rows of the other."""
    return _length(x1.unsqueeze(-2) - x2.unsqueeze(-3), float(p))


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of each two rows."""
    first, second = _pairs(input)
    return _length(input.index_select(0, first) - input.index_select(0, second), float(p))


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of each two elements along the first axis, (0, 1), (0, 2), ... (1, 2), ...: the row of a pair by a square root."""
    size = torch.as_tensor(x.shape[0]).to(torch.int64)
    count: Any = x.shape[0] * (x.shape[0] - 1) // 2
    number = torch.arange(count)

    def begin(row: Tensor) -> Tensor:
        return torch.div(row * (2 * size - row - 1), 2, rounding_mode="floor")

    wide = (2 * size - 1).to(torch.float64)
    first = ((wide - (wide * wide - 8 * number.to(torch.float64)).sqrt()) / 2).floor().to(torch.int64)
    first = torch.where(begin(first) > number, first - 1, first)  # the root is rounded
    first = torch.where(begin(first + 1) <= number, first + 1, first)
    return first, number - begin(first) + first + 1


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of an element of each vector."""
    if len(tensors) == 1:
        return tensors[0]
    return torch.stack([each.reshape(-1) for each in torch.meshgrid(*tensors, indexing="ij")], -1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """Each two elements."""
    if r != 2 or with_replacement:
        return NotImplemented
    first, second = _pairs(input)
    return torch.stack((input.index_select(0, first), input.index_select(0, second)), -1)


def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """Sums, means, extrema or products of what falls into the same place, with what was there or without."""
    if not input.is_floating_point() or not input.ndim:
        return NotImplemented
    if any(bool(size != other) for size, other in zip(src.shape, index.shape)):  # then torch itself has no gradient
        return NotImplemented
    fallen = torch.ones_like(index, dtype=input.dtype)
    counts = torch.zeros_like(input).scatter_add(dim, index, fallen)
    if reduce in ("sum", "mean"):
        start = input if include_self else torch.where(counts > 0, torch.zeros_like(input), input)
        sums = start.scatter_add(dim, index, src)
        if reduce == "sum":
            return sums
        return sums / (counts + 1 if include_self else torch.where(counts > 0, counts, torch.ones_like(counts)))
    own, others = input.detach(), src.detach()
    if not include_self:  # what changes nothing stands where something falls
        own = torch.where(counts > 0, torch.full_like(own, _NEUTRAL[reduce]), own)
    result = torch.scatter_reduce(own, dim, index, others, reduce)
    if reduce == "prod":
        of_input, of_src = _product_slopes(own, dim, index, others, result)
    else:  # torch counts what was there even if it is left out
        of_input, of_src = _extreme_slopes(input.detach(), dim, index, others, result)
    if not include_self:
        of_input = torch.where(counts > 0, torch.zeros_like(of_input), of_input)
    moved = torch.zeros_like(own).scatter_add(dim, index, _along(src, of_src))
    return result + _along(input, of_input) + moved


def _along(x: Tensor, slope: Tensor) -> Tensor:
    """0, with a slope by which gradients flow back into x; into what is not finite they do not."""
    flows = (slope != 0) & torch.isfinite(x.detach())
    return torch.where(flows, (x - x.detach()) * slope, torch.zeros_like(slope))


def _extreme_slopes(own: Tensor, dim: int, index: Tensor, src: Tensor, result: Tensor) -> tuple[Tensor, Tensor]:
    """Equal elements share the gradient."""
    is_own, is_src = (own == result).to(own.dtype), (src == result.gather(dim, index)).to(own.dtype)
    count = is_own.scatter_add(dim, index, is_src)
    share = 1 / count.clamp(min=1)
    return is_own * share, is_src * share.gather(dim, index)


def _product_slopes(own: Tensor, dim: int, index: Tensor, src: Tensor, result: Tensor) -> tuple[Tensor, Tensor]:
    """The product of the others; a single zero leaves them, of several none gets anything."""

    def product(start: Tensor, factors: Tensor) -> Tensor:
        return torch.scatter_reduce(start, dim, index, factors, "prod")

    full = torch.where(own == 0, torch.ones_like(own), own)
    is_zero = src == 0
    zeros = torch.zeros_like(own).scatter_add(dim, index, is_zero.to(own.dtype)).gather(dim, index)
    alone = is_zero & (zeros == 1)
    rest = product(own, torch.where(alone, torch.ones_like(src), src)).gather(dim, index)
    divided = result.gather(dim, index) / torch.where(is_zero, torch.ones_like(src), src)
    return product(full, src) / full, torch.where(alone, rest, divided)


PAIRS: Final[dict[Any, Callable[..., Any]]] = {
    torch.cdist: cdist,
    **dict.fromkeys((torch.pdist, torch.nn.functional.pdist), pdist),
    torch.cartesian_prod: cartesian_prod,
    torch.combinations: combinations,
    **dict.fromkeys((torch.scatter_reduce, torch.Tensor.scatter_reduce), scatter_reduce),
}
