"""One step of an optimizer: Adagrad, Adam and Momentum of ai.onnx.preview.training, for any number of tensors.

The inputs are the learning rate, the count of updates so far, then all tensors, all gradients and each kind of state in turn; the
outputs are all tensors and their states after the step. `Gradient` differentiates the graph it stands in, of which an
evaluation sees nothing: it has no value here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult

Array = NDArray[Any]

_DOMAIN = "ai.onnx.preview.training"


def _groups(values: tuple[Array, ...], kinds: tuple[str, ...]) -> Iterator[tuple[Array, ...]]:
    """For each optimized tensor the tensor, its gradient and its states."""
    if len(values) % len(kinds):
        raise ValueError(
            f"{len(values)} inputs follow the learning rate and the count; expected {', '.join(kinds)} for each tensor"
        )
    count = len(values) // len(kinds)
    for index in range(count):
        group = values[index::count]
        for kind, value in zip(kinds, group, strict=True):
            if value.shape != group[0].shape:
                raise ValueError(f"the {kind} of tensor {index} has shape {value.shape} but the tensor {group[0].shape}")
        yield group


def _columns(rows: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """All new tensors, then all new states of each kind, in the types of the tensors."""
    return tuple(np.asarray(value) for column in zip(*rows, strict=True) for value in column)


def _number(value: Array) -> float:
    return float(np.asarray(value).reshape(()))


def _adagrad(
    rate: Array, count: Array, *tensors: Array, decay_factor: float, epsilon: float, norm_coefficient: float
) -> tuple[Array, ...]:
    step = _number(rate) / (1 + _number(count) * decay_factor)
    rows = []
    for x, gradient, squares in _groups(tensors, ("tensor", "gradient", "accumulated squared gradient")):
        regular = norm_coefficient * x + gradient
        total = squares + regular * regular
        moved = x - step * regular / (np.sqrt(total) + epsilon)
        rows.append((moved.astype(x.dtype), total.astype(x.dtype)))
    return _columns(rows)


def _adam(
    rate: Array,
    count: Array,
    *tensors: Array,
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> tuple[Array, ...]:
    step, updates = _number(rate), _number(count)
    if updates > 0:
        step *= np.sqrt(1 - beta**updates) / (1 - alpha**updates)
    rows = []
    for x, gradient, mean, squares in _groups(tensors, ("tensor", "gradient", "mean gradient", "mean squared gradient")):
        regular = norm_coefficient * x + gradient
        new_mean = alpha * mean + (1 - alpha) * regular
        new_squares = beta * squares + (1 - beta) * regular * regular
        moved = (1 - norm_coefficient_post) * (x - step * new_mean / (np.sqrt(new_squares) + epsilon))
        rows.append((moved.astype(x.dtype), new_mean.astype(x.dtype), new_squares.astype(x.dtype)))
    return _columns(rows)


def _momentum(
    rate: Array, count: Array, *tensors: Array, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Array, ...]:
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode is {mode!r}; expected standard or nesterov")
    step = _number(rate)
    weight = beta if _number(count) > 0 else 1.0
    rows = []
    for x, gradient, momentum in _groups(tensors, ("tensor", "gradient", "momentum")):
        regular = norm_coefficient * x + gradient
        new_momentum = alpha * momentum + weight * regular
        direction = new_momentum if mode == "standard" else regular + alpha * new_momentum
        rows.append(((x - step * direction).astype(x.dtype), new_momentum.astype(x.dtype)))
    return _columns(rows)


def _infer_step(ctx: InferContext, kinds: int) -> InferResult:
    """Tensors and states keep their types; gradients are not given out."""
    values = ctx.inputs[2:]
    count = len(values) // kinds
    return [*values[:count], *values[2 * count :]]


op("Adagrad", domain=_DOMAIN, eval=_adagrad, infer=lambda ctx: _infer_step(ctx, 3))
op("Adam", domain=_DOMAIN, eval=_adam, infer=lambda ctx: _infer_step(ctx, 4))
op("Momentum", domain=_DOMAIN, eval=_momentum, infer=lambda ctx: _infer_step(ctx, 3))


def _gradient(*inputs: Array, xs: tuple[str, ...], y: str) -> tuple[Array, ...]:
    raise ValueError(
        f"Gradient of {y!r} by {', '.join(map(repr, xs))} needs the derivative of the graph around it, which is not computed; "
        "export the model with its gradient written out as operators"
    )


op("Gradient", domain=_DOMAIN, eval=_gradient, infer=lambda ctx: list(ctx.inputs[: len(ctx.attr("xs"))]))
