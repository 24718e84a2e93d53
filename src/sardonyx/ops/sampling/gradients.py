"""The gradient of Resize; gradient rules make it, models do not hold it.

Resizing is linear and separable: along each axis the result is a matrix times the input, and the gradient its transpose times dy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import op
from sardonyx.ops.indexing.gradients import DOMAIN, shape_input, sizes_of
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import tensordot
from sardonyx.ops.sampling.resize import Interpolation, interpolate, resize_plans


def _resize_grad(
    dy: Array,
    shape: Array,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int | None,
    axes: tuple[int, ...] | None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    keep_aspect_ratio_policy: str | None,
    mode: str,
    nearest_mode: str,
) -> Array:
    whole = sizes_of(shape)
    plans = resize_plans(whole, axes, None, scales, sizes, policy=keep_aspect_ratio_policy)
    how = Interpolation(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside), bool(antialias))
    expected = list(whole)
    for plan in plans:
        expected[plan.axis] = plan.out
    if dy.shape != tuple(expected):
        raise ValueError(f"dY has shape {dy.shape}, expected {tuple(expected)}")
    result: Any = widen(dy)
    for plan in plans:
        one = np.eye(plan.size, dtype=result.dtype)
        alone = type(plan)(0, plan.size, plan.out, plan.scale, plan.start, plan.end)
        matrix = interpolate(one, [alone], how)  # [out, size]
        if plan.out == plan.size and np.array_equal(matrix, one):
            continue
        result = np.moveaxis(tensordot(result, matrix, axes=(plan.axis, 0)), -1, plan.axis)
    return narrow(np.ascontiguousarray(result), dy.dtype)


RESIZE_GRAD = op("ResizeGrad", eval=_resize_grad, infer=shape_input(1), domain=DOMAIN)
