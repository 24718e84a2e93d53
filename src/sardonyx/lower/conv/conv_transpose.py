"""Transposed convolutions as steps: one convolution for each phase.

With a stride of s, the output pixels whose position leaves the same remainder modulo s meet the same taps of the kernel. They are
an ordinary convolution with a stride of 1 over part of the kernel, turned around; its results lie s pixels apart. With a dilation
of d, neighbouring taps of a phase are d / gcd(d, s) pixels of the input apart, and phases between them meet none.

    s = 2, kernel [a b c], no padding:   y[0 2 4 ...] = conv(x, [c a]);   y[1 3 5 ...] = conv(x, [b])
    the same with d = 2:                 y[0 2 4 ...] = conv(x, [c b a]); y[1 3 5 ...] = 0
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from math import gcd
from typing import Any

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, ceildiv
from sardonyx.ir.graph import Node
from sardonyx.lower.conv import conv_weights
from sardonyx.lower.conv.blocks import whole_view
from sardonyx.lower.conv.conv import (
    accepts_conv,
    as_float,
    constant_tensor,
    lower_fastest,
    result_epilogue,
    result_strides,
    root_of,
)
from sardonyx.lower.conv.conv_choice import is_lane_grouped
from sardonyx.lower.conv.conv_geometry import SPATIAL, Geometry
from sardonyx.lower.conv.conv_task import Task, Weights
from sardonyx.lower.derived import is_fixed, numbers
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.layout import misfit
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.conv.conv_transpose import transposed_geometry
from sardonyx.ops.indexing.layout import DOMAIN, fits_blocks
from sardonyx.program.steps import View


def _accepts(node: Node) -> str:
    reason = accepts_conv(node)
    if reason:
        return reason
    attrs, weights = attribute_values(node), node.inputs[1]
    assert weights is not None
    inputs, outputs = (int(str(dim)) for dim in (weights.shape or ())[:2])
    groups, block = int(attrs.get("group") or 1), int(attrs["block"])
    if not fits_blocks(groups, inputs // groups, outputs, block):
        return f"the groups do not lie in whole blocks of {block}"
    if constant_tensor(node, 1) is None and groups > 1 and (inputs // groups) % block:
        return f"computed weights of groups of {inputs // groups} channels"
    reason = misfit(node.inputs[0], inputs, block)
    if reason:
        return reason
    where = _where(node)
    return "" if all(isinstance(begin, int) for begin in where.begin) else "what is cut off depends on the size of the input"


def _where(node: Node) -> Any:
    attrs = attribute_values(node)
    names = ("auto_pad", "dilations", "output_padding", "output_shape", "pads", "strides")
    x, weights = node.inputs[0], node.inputs[1]
    assert x is not None
    assert weights is not None
    assert x.shape is not None
    assert weights.shape is not None
    return transposed_geometry(
        x.shape[2:-1], [int(str(dim)) for dim in weights.shape[2:]], **{name: attrs.get(name) for name in names}
    )


@template("BlockedConvTranspose", domain=DOMAIN, accepts=_accepts, fuses=True)
def blocked_conv_transpose(ctx: LowerContext, group: Group) -> None:
    """A step for each phase."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    value, summands = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    assert value is not None
    given = as_float(ctx, ctx.view(value))
    inputs, outputs, *window = numbers(given.shape)
    bias = None if summands is None else as_float(ctx, ctx.view(summands))
    groups = int(attrs.get("group") or 1)
    where = _where(node)
    fill = SPATIAL - len(where.strides)
    kernel = (*(1,) * fill, *window)
    full = whole_view(given, (inputs, outputs, *kernel))
    strides = (*(1,) * fill, *where.strides)
    dilations = (*(1,) * fill, *where.dilations)
    begin = (*(0,) * fill, *where.begin)
    out: tuple[Dim, ...] = (*(1,) * fill, *where.out)
    epilogue = result_epilogue(ctx, group)
    if not epilogue.stores:
        return
    assert group.shape is not None
    x = ctx.view(source)
    size: tuple[Dim, ...] = (*(1,) * fill, *x.shape[2:-1])
    operand_strides = result_strides(epilogue, group.shape)
    steps = [(*own[:2], *(step * stride for step, stride in zip(strides, own[2:5])), *own[5:]) for own in operand_strides]
    block = int(attrs["block"])
    for phase in combinations(*(range(step) for step in strides)):
        axes = [_phase(*each) for each in zip(phase, begin, strides, dilations, kernel)]
        taps = tuple(chosen for chosen, _ in axes)
        width = tuple(len(chosen) for chosen in taps)
        results = tuple(ceildiv(length - at, step) for length, at, step in zip(out, phase, strides))
        apart = tuple(d // gcd(d, step) if len(chosen) > 1 else 1 for d, step, chosen in zip(dilations, strides, taps))
        before = tuple(pad for _, pad in axes)
        behind = tuple(map(_behind, size, results, width, apart, before))
        geometry = Geometry(size, results, width, (1,) * SPATIAL, apart, before, behind)
        if is_fixed(full):
            shape = (groups * outputs, inputs // groups, *width)
            part = ctx.packed(conv_weights.transposed_phase, (full,), inputs // groups, taps, dtype=dtypes.FLOAT32, shape=shape)
        else:
            part = _phase_of_computed(full, groups, taps)
        weights = Weights(part, bias, groups, outputs, inputs // groups)
        task = Task(
            ctx=ctx, group=group, geometry=geometry, block=block, epilogue=epilogue, operand_strides=steps, shift=phase,
            whole_strides=operand_strides,
            weights=weights, x=x,
        )  # fmt: skip
        if 0 in geometry.kernel:  # no tap meets this phase
            task.lower("lanes" if is_lane_grouped(weights, block) else "direct")
        else:
            lower_fastest(task, plain=False, exact=bool(attrs.get("exact")))


def _phase_of_computed(full: View, groups: int, taps: Sequence[tuple[int, ...]]) -> View:
    """`conv_weights.transposed_phase`, read where it lies: [groups, outputs, inputs of a group, planes, rows, columns]."""
    inputs, outputs = numbers(full.shape)[:2]
    row, column, *apart = full.strides
    offset, strides = full.offset, []
    for chosen, stride in zip(taps, apart):
        offset = offset + (chosen[0] * stride if chosen else 0)
        strides.append((chosen[1] - chosen[0]) * stride if len(chosen) > 1 else stride)
    shape = (groups, outputs, inputs // groups, *(len(chosen) for chosen in taps))
    return View(full.buffer, shape, (inputs // groups * row, column, row, *strides), offset)


def _phase(phase: int, begin: int, step: int, dilation: int, kernel: int) -> tuple[tuple[int, ...], int]:
    """The taps of the kernel, last first, that a phase meets, and the padding before the first of them.

    Output pixel step * q + phase is at step * q + phase + begin of the full result; tap k of the kernel reaches it from
    input (that - dilation * k) / step.
    """
    full = phase + begin
    taps = tuple(tap for tap in range(kernel) if (full - dilation * tap) % step == 0)[::-1]
    return taps, (dilation * taps[0] - full) // step if taps else 0


def _behind(size: Dim, results: Dim, taps: int, dilation: int, before: int) -> int:
    """How far windows reach past the image, or 1 if that depends on its size: what lies there is looked at pixel by pixel."""
    reach = results + (taps - 1) * dilation - before - size
    return reach if isinstance(reach, int) else 1
