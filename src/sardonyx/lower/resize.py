"""Resize and Upsample of plain tensors.

Enlarging by whole factors with the nearest element is a copy of a repeated view, for any size. Everything else goes by tables of
the elements each point is made of, one axis after the other; they are made ahead, so the sizes must be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node
from sardonyx.ir.tensor import Array
from sardonyx.kernel import resample
from sardonyx.kernel.resample import ResampleKernel
from sardonyx.lower.indexing import take
from sardonyx.lower.loop_builder import merge_axes
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.movement import first_input
from sardonyx.lower.registry import view
from sardonyx.lower.steps import Address, Argument, KernelStep, View
from sardonyx.lower.views import expanded, reshaped, with_axes
from sardonyx.ops.infer import normalize_axis
from sardonyx.ops.resize import AxisPlan, Interpolation, axis_taps, nearest_index, resize_plans, source_coordinates

_OLD_MODES: Final = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
_TRIED: Final = 64  # sizes for which a rule that must hold for all of them is tried


@dataclass(frozen=True)
class _Resize:
    """What a node asks for: the axes, their factors where they are given, and the rules."""

    axes: tuple[int, ...]
    scales: Array | None
    how: Interpolation
    policy: str


def _asked(ctx: LowerContext, node: Node, rank: int) -> _Resize | None:
    """What a node asks for; None if it depends on data, or on a crop."""
    attrs = attribute_values(node)
    if node.op_type == "Upsample" or node.version < 11:
        if node.version >= 9:
            scales = ctx.known.array(node.inputs[1])
        elif node.version >= 7:
            scales = np.asarray(attrs["scales"], np.float32)
        else:
            return None
        mode = _OLD_MODES.get(attrs.get("mode") or "nearest")
        if scales is None or mode is None:
            return None
        return _Resize(tuple(range(rank)), scales.reshape(-1), Interpolation(mode, "asymmetric", "truncate"), "stretch")
    coordinates = attrs.get("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_crop_and_resize" or attrs.get("mode", "nearest") not in _OLD_MODES:
        return None
    scales = None
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        scales = ctx.known.array(node.inputs[2])
        if scales is None:
            return None
        scales = scales.reshape(-1) if scales.size else None
    how = Interpolation(
        attrs.get("mode", "nearest"),
        coordinates,
        attrs.get("nearest_mode") or "round_prefer_floor",
        attrs.get("cubic_coeff_a", -0.75),
        bool(attrs.get("exclude_outside")),
        bool(attrs.get("antialias")),
    )
    axes = tuple(normalize_axis(axis, rank) for axis in attrs.get("axes") or range(rank))
    return _Resize(axes, scales, how, attrs.get("keep_aspect_ratio_policy") or "stretch")


@view("Resize", "Upsample")
def resize(ctx: LowerContext, node: Node) -> bool:
    value, output = first_input(node), node.outputs[0]
    source, shape = ctx.shape(value), ctx.shape(output)
    asked = _asked(ctx, node, len(source))
    if asked is None or (asked.how.mode != "nearest" and not ctx.dtype(value).is_float):
        return False
    factors = _factors(asked, source, shape)
    if factors is not None:
        _repeat(ctx, node, factors)
        return True
    sizes, outs = [size for size in source if isinstance(size, int)], [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(source) and not _only_outer(asked, source, shape):
        return False
    if 0 in sizes or 0 in outs:
        return False
    _by_tables(ctx, node, asked, _plans(asked, source, shape))
    return True


def _only_outer(asked: _Resize, source: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether all axes whose size is not known stay as they are."""
    return all(
        isinstance(size, int) or (size == out and (axis not in asked.axes or _scale_of(asked, axis) in (None, 1.0)))
        for axis, (size, out) in enumerate(zip(source, shape))
    )


def _scale_of(asked: _Resize, axis: int) -> float | None:
    return None if asked.scales is None else float(asked.scales[asked.axes.index(axis)])


def _factors(asked: _Resize, source: Sequence[Dim], shape: Sequence[Dim]) -> list[int] | None:
    """How often every element is repeated along each axis, if that is all that happens."""
    if asked.how.mode != "nearest":
        return None
    factors = [1] * len(source)
    for axis in asked.axes:
        size, out, scale = source[axis], shape[axis], _scale_of(asked, axis)
        if size == out and scale in (None, 1.0):
            continue
        if isinstance(size, int) and isinstance(out, int) and size:
            factor = out // size
        elif scale is not None:
            factor = int(scale)
        else:
            return None
        if factor < 1 or out != size * factor or (scale is not None and scale != factor):
            return None
        if not all(_repeats(asked.how, tried, factor) for tried in ([size] if isinstance(size, int) else range(1, _TRIED))):
            return None
        factors[axis] = factor
    return factors


def _repeats(how: Interpolation, size: int, factor: int) -> bool:
    plan = AxisPlan(0, size, size * factor, np.float32(factor), np.float32(0), np.float32(1))
    index = nearest_index(source_coordinates(plan, how.coordinates), how.nearest, plan.scale)
    return np.array_equal(np.clip(index, 0, size - 1), np.arange(size * factor) // factor)


def _repeat(ctx: LowerContext, node: Node, factors: Sequence[int]) -> None:
    """Write the input with an axis of repeats after each axis."""
    source = ctx.view(first_input(node))
    if all(factor == 1 for factor in factors):
        ctx.set_view(node.outputs[0], source)
        return
    target = ctx.output(node.outputs[0])
    repeated = [axis for axis, factor in enumerate(factors) if factor > 1]
    wide = with_axes(source, [axis + 1 + number for number, axis in enumerate(repeated)])
    shape: list[Dim] = []
    for axis, size in enumerate(source.shape):
        shape += [size, factors[axis]] if factors[axis] > 1 else [size]
    into = reshaped(target, shape)
    assert into is not None  # an axis can always be cut
    ctx.copy(expanded(wide, shape), into, node.op_type)


def _plans(asked: _Resize, source: Sequence[Dim], shape: Sequence[Dim]) -> list[AxisPlan]:
    known = [size if isinstance(size, int) else 1 for size in source]
    outs = [size if isinstance(size, int) else 1 for size in shape]
    wanted = None if asked.scales is not None else np.array([outs[axis] for axis in asked.axes], np.int64)
    if asked.scales is None and asked.policy != "stretch":
        best = min if asked.policy == "not_larger" else max
        factors = [np.float32(outs[axis]) / np.float32(known[axis]) for axis in asked.axes]
        zero, one = np.float32(0), np.float32(1)
        scale = best(factors)
        return [AxisPlan(axis, known[axis], outs[axis], scale, zero, one) for axis in asked.axes]
    return resize_plans(known, asked.axes, None, asked.scales, wanted, policy="stretch")


def _by_tables(ctx: LowerContext, node: Node, asked: _Resize, plans: Sequence[AxisPlan]) -> None:
    """Axis by axis: the shrinking ones first, then the last ones, which moves the least data."""
    how = asked.how
    current = ctx.view(first_input(node))
    todo = []
    for plan in sorted(plans, key=lambda plan: (plan.out / plan.size, -plan.axis)):
        x = source_coordinates(plan, how.coordinates)
        if how.mode == "nearest":
            index = np.clip(nearest_index(x, how.nearest, plan.scale), 0, plan.size - 1)
            if plan.out != plan.size or not np.array_equal(index, np.arange(plan.size)):
                todo.append((plan, index, index))
        elif plan.out != plan.size or not np.array_equal(x, np.arange(plan.size)):
            todo.append((plan, *axis_taps(plan, how, x)))
    if not todo:
        ctx.set_view(node.outputs[0], current)
        return
    kind = ctx.dtype(node.outputs[0])
    wide = kind if how.mode == "nearest" else dtypes.from_name(compute_type(kind.name))
    for number, (plan, index, weights) in enumerate(todo):
        if number == len(todo) - 1:
            target = ctx.output(node.outputs[0])
        else:
            shape = (*current.shape[: plan.axis], plan.out, *current.shape[plan.axis + 1 :])
            target = ctx.scratch(wide, shape, node.op_type)
        places = ctx.packed(_key("places", plan, how), dtypes.INT64, index.shape, partial(np.ascontiguousarray, index))
        if how.mode == "nearest":
            take(ctx, current, plan.axis, places, target, ctx.fault(node, "element {found} of {limit}"), node.op_type)
        else:
            _blend(ctx, node, current, target, plan.axis, places, weights.astype(wide.numpy), _key("weights", plan, how))
        current = target


def _key(what: str, plan: AxisPlan, how: Interpolation) -> str:
    return f"resize {what} {plan.size} {plan.out} {plan.scale!r} {how}"


def _blend(ctx: LowerContext, node: Node, source: View, target: View, axis: int, places: View, weights: Array, key: str) -> None:
    kind = dtypes.from_numpy(weights.dtype)
    factors = ctx.packed(f"{key} {kind.name}", kind, weights.shape, lambda: np.ascontiguousarray(weights))
    rank = len(source.shape)
    others = [place for place in range(rank) if place != axis]
    sides = (source, target)
    sizes, moves = merge_axes(
        [target.shape[place] for place in others], [[one.strides[place] for place in others] for one in sides]
    )
    row = next((place for place, (read, write) in enumerate(zip(*moves)) if read == 1 == write), None)
    inner: Dim = 1
    if row is not None:
        inner = sizes.pop(row)
        for move in moves:
            move.pop(row)
    types = [one.buffer.dtype.name for one in sides]
    kernel = ResampleKernel(types[0], types[1], kind.name, weights.shape[1], len(sizes), row is not None)
    points = target.shape[axis]
    arguments: list[Argument] = [*sizes, points, inner]
    for one, move in zip(sides, moves):
        arguments += [Address(one.buffer, one.offset * (one.buffer.dtype.bits // 8)), *move, one.strides[axis]]
    arguments += [Address(places.buffer), Address(factors.buffer)]
    elements = product([*sizes, points, inner]) * weights.shape[1]
    ctx.step(
        KernelStep(
            kernel,
            tuple(arguments),
            resample.units(kernel, sizes, points),
            elements // 8 if row is not None else elements,
            (source.buffer, places.buffer, factors.buffer),
            (target.buffer,),
            node.op_type,
            (node.label,),
        )
    )
