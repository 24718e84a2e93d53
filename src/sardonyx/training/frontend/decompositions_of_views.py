"""Views, parts and joins of tensors that torch's exporter lacks, or makes sequences of, through which no gradient flows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor


def _joined(axis: int, rank: int) -> Callable[[Sequence[Tensor]], Tensor]:
    """Tensors one after the other, each with as many axes as this at least."""

    def join(tensors: Sequence[Tensor]) -> Tensor:
        widened = (_of_rank(each, rank) for each in tensors)
        return torch.cat(list(widened), axis)

    return join


def _of_rank(x: Tensor, rank: int) -> Tensor:
    """With new axes where `atleast_2d` and `atleast_3d` put them."""
    if x.ndim == 0:
        return x.reshape([1] * rank)
    if rank > 1 and x.ndim == 1:
        x = x.unsqueeze(0)
    return x.unsqueeze(-1) if rank == 3 and x.ndim == 2 else x


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Along the second axis; vectors along their only one."""
    widened = [_of_rank(each, 1) for each in tensors]
    return torch.cat(widened, 0 if widened[0].ndim == 1 else 1)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Along the second axis; vectors are columns."""
    return torch.cat([each.reshape(-1, 1) if each.ndim < 2 else each for each in tensors], 1)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """Parts that end at the indices, or as many parts, of which the first ones have one element more."""
    if isinstance(indices_or_sections, Tensor):
        return NotImplemented
    size = int(input.shape[dim])
    if isinstance(indices_or_sections, (tuple, list)):
        ends = [min(max(int(index) + size if index < 0 else int(index), 0), size) for index in indices_or_sections]
    else:
        whole, more = divmod(size, int(indices_or_sections))
        ends = [number * whole + min(number, more) for number in range(1, int(indices_or_sections))]
    starts = [0, *ends]
    return tuple(input.narrow(dim, start, max(end - start, 0)) for start, end in zip(starts, [*ends, size], strict=True))


def _divided(axis: Callable[[Tensor], int]) -> Callable[..., Any]:
    def divide(input: Tensor, indices_or_sections: Any) -> Any:
        return tensor_split(input, indices_or_sections, axis(input))

    return divide


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """With one slice replaced."""
    return slice_scatter(input, src.unsqueeze(dim), dim, index, None if index == -1 else index + 1)


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """With a part of an axis replaced."""
    where: list[slice] = [slice(None)] * (dim % input.ndim)
    result = input.clone()
    result[(*where, slice(start, end, step))] = src
    return result


def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of what is a number."""
    x = input if dtype is None else input.to(dtype)
    is_number = ~torch.isnan(x)
    total, count = torch.where(is_number, x, torch.zeros_like(x)), is_number.to(x.dtype)
    if dim is None:
        return total.sum() / count.sum()
    return total.sum(dim, keepdim) / count.sum(dim, keepdim)


VIEWS: Final[dict[Any, Callable[..., Any]]] = {
    **{getattr(torch.Tensor, name).__get__: lambda x: x.transpose(-2, -1) for name in ("mT", "mH", "H")},
    **dict.fromkeys((torch.adjoint, torch.Tensor.adjoint), lambda x: x.transpose(-2, -1)),
    **dict.fromkeys((torch.ravel, torch.Tensor.ravel), lambda x: x.reshape(-1)),
    **dict.fromkeys((torch.msort, torch.Tensor.msort), lambda x: x.sort(0)[0]),
    torch.hstack: hstack,
    torch.column_stack: column_stack,
    **dict.fromkeys((torch.vstack, torch.row_stack), _joined(0, 2)),
    torch.dstack: _joined(2, 3),
    **dict.fromkeys((torch.tensor_split, torch.Tensor.tensor_split), tensor_split),
    **dict.fromkeys((torch.hsplit, torch.Tensor.hsplit), _divided(lambda x: 0 if x.ndim == 1 else 1)),
    **dict.fromkeys((torch.vsplit, torch.Tensor.vsplit), _divided(lambda x: 0)),
    **dict.fromkeys((torch.dsplit, torch.Tensor.dsplit), _divided(lambda x: 2)),
    **dict.fromkeys((torch.select_scatter, torch.Tensor.select_scatter), select_scatter),
    **dict.fromkeys((torch.slice_scatter, torch.Tensor.slice_scatter), slice_scatter),
    **dict.fromkeys((torch.nanmean, torch.Tensor.nanmean), nanmean),
}
