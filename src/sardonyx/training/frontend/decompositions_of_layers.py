"""Layers of torch that its exporter does not know, or not for every size: `decompositions.py` has what this is for.

fold                   a transposed convolution with kernels that put each element of a column at its position
adaptive maxima        the maximum along one axis after the other, of windows whose elements are gathered
max_unpool             a scatter into zeros
embedding_bag          rows, and sums, means or maxima of them
affine_grid            a grid of points, times a matrix
dropout of channels    one draw for a channel
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it


def _several(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list, torch.Size)) else [value] * count


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Axes at other places, the rest in order: of places counted from the end the exporter makes something else, or crashes."""
    rank = input.ndim
    came = [int(axis) % rank for axis in _several(source, 1)]
    goes = [int(axis) % rank for axis in _several(destination, 1)]
    rest = iter(axis for axis in range(rank) if axis not in came)
    return input.permute([came[goes.index(axis)] if axis in goes else next(rest) for axis in range(rank)])


def unflatten(input: Tensor, dim: int, sizes: Sequence[Any]) -> Any:
    """One axis as several, at most one of them -1: of the exporter's own, later sizes would be those of the first call."""
    if not isinstance(dim, int):
        return NotImplemented
    axis = dim % input.ndim
    before, after = list(input.shape[:axis]), list(input.shape[axis + 1 :])
    return input.reshape([*before, *sizes, *after])


def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Columns of windows, added up where they lay in an image."""
    sizes, kernel, apart, border, step = (_several(each, 2) for each in (output_size, kernel_size, dilation, padding, stride))
    columns = input if input.ndim == 3 else input.unsqueeze(0)
    inner = [
        (size + 2 * pad - wide * (edge - 1) - 1) // each + 1
        for size, pad, wide, edge, each in zip(sizes, border, apart, kernel, step, strict=True)
    ]
    reach = [
        (count - 1) * each - 2 * pad + wide * (edge - 1) + 1
        for count, each, pad, wide, edge in zip(inner, step, border, apart, kernel, strict=True)
    ]
    count = kernel[0] * kernel[1]
    positions = torch.eye(count, dtype=input.dtype).reshape(count, 1, kernel[0], kernel[1])
    windows = columns.reshape(-1, count, inner[0], inner[1])
    more = [size - reached for size, reached in zip(sizes, reach, strict=True)]
    image = F.conv_transpose2d(windows, positions, None, step, border, more, 1, apart)
    result = image.reshape(-1, columns.shape[1] // count, sizes[0], sizes[1])
    return result if input.ndim == 3 else result.squeeze(0)


def unfold_axis(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along one axis, as a new last axis (`Tensor.unfold`)."""
    axis = dimension % input.ndim
    starts = torch.arange(0, input.shape[axis] - size + 1, step)
    positions = starts.unsqueeze(1) + torch.arange(size)
    windows = movedim(input, axis, -1).index_select(-1, positions.reshape(-1))
    return movedim(unflatten(windows, -1, (-1, size)), -2, axis)


def _adaptive_maximum(axes: int) -> Callable[..., Any]:
    """Maxima of windows that cover an axis evenly: each from floor(i * size / count) to ceil((i + 1) * size / count)."""

    def adaptive(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        if return_indices:
            return NotImplemented
        result = input
        for axis, count in zip(range(-axes, 0), _several(output_size, axes), strict=True):
            if count is None:
                continue
            if count == 1:
                result = result.max(axis, keepdim=True)[0]
                continue
            size = result.shape[axis]
            window = torch.arange(count)
            starts, ends = window * size // count, ((window + 1) * size + count - 1) // count
            positions = starts.unsqueeze(1) + torch.arange((size + count - 1) // count + 1)
            positions = torch.minimum(positions, ends.unsqueeze(1) - 1)  # the last one again changes no maximum
            gathered = unflatten(movedim(result, axis, -1).index_select(-1, positions.reshape(-1)), -1, (count, -1))
            result = movedim(gathered.max(-1)[0], -1, axis)
        return result

    return adaptive


def _max_unpool(axes: int) -> Callable[..., Any]:
    """Maxima put back where `max_pool` found them, zeros elsewhere."""

    def unpool(
        input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Any:
        kernel, border = _several(kernel_size, axes), _several(padding, axes)
        step = kernel if stride is None else _several(stride, axes)
        sizes: list[Any] = (
            [(input.shape[at - axes] - 1) * step[at] - 2 * border[at] + kernel[at] for at in range(axes)]
            if output_size is None
            else list(output_size)[-axes:]
        )
        count = math.prod(sizes[1:], start=sizes[0])
        flat = torch.zeros([1], dtype=input.dtype).expand([*input.shape[:-axes], count])
        made = flat.scatter(-1, indices.flatten(-axes), input.flatten(-axes))
        return made.reshape([*input.shape[:-axes], *sizes])

    return unpool


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of rows: of each line of indices, or between offsets."""
    if max_norm is not None or scale_grad_by_freq or sparse or (offsets is not None and mode == "max"):
        return NotImplemented
    rows = F.embedding(input, weight)
    counts = torch.ones_like(input, dtype=weight.dtype)
    if padding_idx is not None:
        counts = (input != padding_idx % int(weight.shape[0])).to(weight.dtype)
    if mode == "max":
        rows = torch.where((counts == 0).unsqueeze(-1), torch.full_like(rows, -math.inf), rows)
        best = rows.max(-2)[0]
        return torch.where(counts.sum(-1, keepdim=True) == 0, torch.zeros_like(best), best)
    shares = counts if per_sample_weights is None else counts * per_sample_weights
    if offsets is None:
        total, number = (rows * shares.unsqueeze(-1)).sum(-2), counts.sum(-1)
    else:
        starts = offsets[:-1] if include_last_offset else offsets
        bag_of = (torch.arange(input.shape[0]).unsqueeze(1) >= starts.unsqueeze(0)).to(torch.int64).sum(1) - 1
        belongs = (torch.arange(starts.shape[0]).unsqueeze(1) == bag_of.unsqueeze(0)).to(weight.dtype)
        total, number = belongs @ (rows * shares.unsqueeze(-1)), belongs @ counts
    return total / number.clamp(min=1).unsqueeze(-1) if mode == "mean" else total


def affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool | None = None) -> Tensor:
    """Where each pixel of a result lies in the image it is sampled from."""
    axes = len(size) - 2
    points = [torch.ones(1, dtype=theta.dtype)]
    for number, count in enumerate(reversed(list(size[2:]))):
        at = torch.arange(count).to(theta.dtype)
        line = at * 2 / (count - 1) - 1 if align_corners else (at * 2 + 1) / count - 1
        if align_corners and int(count) == 1:
            line = torch.zeros(1, dtype=theta.dtype)
        points.insert(number, line.reshape([-1 if axis == axes - 1 - number else 1 for axis in range(axes)]))
    grid = torch.stack([each.expand(list(size[2:])) for each in points], -1)
    flat = grid.reshape(1, -1, axes + 1) @ theta.transpose(1, 2)
    return flat.reshape([size[0], *size[2:], axes])


def _dropout_of_channels(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Whole channels are dropped, the second axis; of an input without a batch the first."""
    if not training:
        return input.clone()
    return input * _kept(input, p) / (1 - p) if p < 1 else input * 0


def _dropout_of_lines(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if input.ndim == 2:
        return _dropout_of_channels(input.unsqueeze(0), p, training).squeeze(0)
    return _dropout_of_channels(input, p, training)


def _dropout_of_volumes(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if input.ndim == 4:
        return _dropout_of_channels(input.unsqueeze(0), p, training).squeeze(0)
    return _dropout_of_channels(input, p, training)


def _kept(input: Tensor, p: float) -> Tensor:
    """1 for channels that stay, 0 for others."""
    channels = input.detach().flatten(2)[..., :1] * 0 + 1 if input.ndim > 2 else torch.ones_like(input.detach())
    drawn = F.dropout(channels, p, True) * (1 - p)
    return drawn.reshape([*input.shape[:2], *[1] * (input.ndim - 2)])


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """What is dropped becomes SELU's value for minus infinity; mean and variance stay."""
    if not training or p == 0:
        return input.clone()
    return _at_alpha(input, F.dropout(torch.ones_like(input.detach()), p, True) * (1 - p), p)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """The same for whole channels."""
    if not training or p == 0:
        return input.clone()
    return _at_alpha(input, _kept(input, p), p)


def _at_alpha(input: Tensor, kept: Tensor, p: float) -> Tensor:
    alpha = 1.7580993408473766
    if p == 1:
        return input * 0
    scale = 1 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
    return input * kept * scale + (kept - 1) * (alpha * scale) + alpha * scale * p


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """For each output the product with a matrix from both sides."""
    outputs, first, second = (int(size) for size in weight.shape)
    left = input1 @ weight.permute(1, 0, 2).reshape(first, outputs * second)
    made = (unflatten(left, -1, (outputs, second)) * input2.unsqueeze(-2)).sum(-1)
    return made if bias is None else made + bias


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Softmax of logits with noise; `hard` gives the largest as 1, with the gradient of the soft one."""
    tiny = torch.finfo(logits.dtype).tiny
    noise = -(-torch.rand_like(logits.detach()).clamp(min=tiny).log()).clamp(min=tiny).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    largest = soft.detach().argmax(dim, keepdim=True)
    one = torch.zeros_like(logits.detach()).scatter(dim, largest, torch.ones_like(largest, dtype=logits.dtype))
    return one - soft.detach() + soft


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of the groups in turns."""
    parted = unflatten(input, 1, (groups, -1)).transpose(1, 2)
    return parted.flatten(1, 2)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """What is not above the threshold becomes a value."""
    return torch.where(input > threshold, input, torch.full_like(input, value))


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Any:
    """Vectors of length 1, written to a tensor: as `spectral_norm` does with its buffers."""
    if out is None:
        return NotImplemented
    return out.zero_().add_(input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input))


def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean of squares + eps), in 32 bits at least."""
    epsilon = torch.finfo(input.dtype).eps if eps is None else eps
    wide = input if input.dtype in (torch.float32, torch.float64) else input.float()
    axes = tuple(range(-len(normalized_shape), 0))
    normal = wide * torch.rsqrt((wide * wide).mean(axes, keepdim=True) + epsilon)
    return (normal if weight is None else normal * weight).to(input.dtype)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Without running statistics and weights, of which the exporter would make some for a number of channels it knows."""
    if not training or running_mean is not None or weight is not None or bias is not None:
        return NotImplemented
    axes = (0, *range(2, input.ndim))
    centred = input - input.mean(axes, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)


LAYERS: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((torch.movedim, torch.moveaxis, torch.Tensor.movedim, torch.Tensor.moveaxis), movedim),
    **dict.fromkeys((torch.unflatten, torch.Tensor.unflatten), unflatten),
    F.fold: fold,
    torch.Tensor.unfold: unfold_axis,
    **{getattr(F, f"adaptive_max_pool{axes}d"): _adaptive_maximum(axes) for axes in (1, 2, 3)},
    **{getattr(F, f"max_unpool{axes}d"): _max_unpool(axes) for axes in (1, 2, 3)},
    F.embedding_bag: embedding_bag,
    F.affine_grid: affine_grid,
    F.dropout1d: _dropout_of_lines,
    F.dropout2d: _dropout_of_channels,
    F.dropout3d: _dropout_of_volumes,
    F.alpha_dropout: alpha_dropout,
    F.feature_alpha_dropout: feature_alpha_dropout,
    F.bilinear: bilinear,
    F.gumbel_softmax: gumbel_softmax,
    F.channel_shuffle: channel_shuffle,
    torch.channel_shuffle: channel_shuffle,
    F.threshold: threshold,
    F.normalize: normalize,
    F.rms_norm: rms_norm,
    F.batch_norm: batch_norm,
}
