"""Gradients of convolutions as steps.

Of the input: one convolution of dy for each phase of the stride, with the kernels that meet it, rotated; the kernels are read
where they lie, in another order. Of the kernels: `kernel/conv/weight_grad.py`. Plain operators are brought into blocks and back
around the same kernels, every group of channels into blocks of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as combinations
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.conv.weight_grad import DepthwiseGradKernel, WeightGradKernel
from sardonyx.kernel.epilogue import accumulator
from sardonyx.lower.conv.blocks import ceildiv_int, dense_blocks, named, whole_view
from sardonyx.lower.conv.conv import as_float, lower_computed, result_epilogue, result_strides, root_of
from sardonyx.lower.conv.conv_geometry import SPATIAL, Geometry, window_geometry
from sardonyx.lower.conv.conv_task import Task, Weights
from sardonyx.lower.derived import numbers
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.layout import layout_step, misfit
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.indexing.layout import DOMAIN, fits_blocks
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost

_FLOAT: Final = {"T": ("f32",)}
_MOST_PHASES: Final = 64
_MOST_TAPS: Final = 8  # columns of a depthwise kernel: each has a sum in a register


def _known_kernels(value: Value | None) -> str:
    shape = None if value is None else value.shape
    if shape is None or any(not isinstance(size, int) for size in shape):
        return "the size of the kernels is not known"
    if len(shape) > SPATIAL + 2:
        return f"{len(shape) - 2} spatial axes: there are kernels for up to 3"
    return "the kernels are empty" if 0 in shape else ""


def _accepts_data(node: Node) -> str:
    reason = _known_kernels(node.inputs[1])
    if reason:
        return reason
    attrs = attribute_values(node)
    strides, dilations = attrs.get("strides") or (1,), attrs.get("dilations") or (1,)
    if max(strides) > 1 and max(dilations) > 1:
        return "strides and dilations at once"
    if product(list(strides)) > _MOST_PHASES:  # type: ignore[operator]
        return f"strides {list(strides)} would make more than {_MOST_PHASES} convolutions of it"
    if (attrs.get("auto_pad") or "NOTSET") not in ("NOTSET", "VALID"):
        return "its pads depend on the size of the image"
    return ""


def _accepts_blocked_data(node: Node) -> str:
    reason = _accepts_data(node)
    if reason:
        return reason
    attrs, weights = attribute_values(node), node.inputs[1]
    assert weights is not None
    lanes = int(attrs["group"]) > 1 and (weights.shape or ())[1] == 1
    if node.op_type == "BlockedConvGradData" and lanes and max(attrs.get("strides") or (1,)) > 1:
        return "a depthwise convolution with strides"
    outputs, inputs = (int(str(size)) for size in (weights.shape or ())[:2])
    groups, block = int(attrs["group"]), int(attrs["block"])
    if not _fits(groups, inputs, outputs // groups, block):
        return f"the groups do not lie in whole blocks of {block}"
    return misfit(node.inputs[0], outputs, block)


def _fits(groups: int, inputs: int, outputs: int, block: int) -> bool:
    """Whether there are kernels for so many groups of computed weights."""
    return fits_blocks(groups, inputs, outputs, block) and (groups == 1 or inputs == 1 or inputs % block == 0)


def _data_steps(
    ctx: LowerContext,
    group: Group,
    dy: View,
    kernels: View,
    spatial: Sequence[Dim],
    attrs: Mapping[str, Any],
    block: int,
    epilogue: GroupEpilogue,
    shape: Sequence[Dim],
) -> None:
    """The gradient of a blocked image, of whose spatial sizes are given, from that of the result; `kernels` has no gaps."""
    groups = int(attrs["group"])
    outputs, inputs, *window = numbers(kernels.shape)
    geometry = window_geometry(ctx, spatial, window, attrs)
    for size, wanted in zip(dy.shape[2:-1], geometry.out[SPATIAL - len(window) :]):
        ctx.check_equal(size, wanted)
    full = whole_view(kernels, (outputs, inputs, *geometry.kernel))
    per_group = outputs // groups
    operand_strides = result_strides(epilogue, shape)
    steps = geometry.stride
    whole = all(step == 1 for step in steps)
    apart = [(*own[:2], *(step * stride for step, stride in zip(steps, own[2:5])), *own[5:]) for own in operand_strides]
    lanes = groups > 1 and inputs == per_group == 1
    for phase in combinations(*(range(step) for step in steps)):
        taps = [
            _phase(at, int(str(begin)), step, width, dilation)
            for at, begin, step, width, dilation in zip(
                phase, geometry.pads_begin, steps, geometry.kernel, geometry.dilation, strict=True
            )
        ]
        strides, offset = [], full.offset
        for (first, _, _), step, stride in zip(taps, steps, full.strides[2:]):
            strides.append(-step * stride)
            offset = offset + first * stride
        rotated = View(
            full.buffer,
            (groups, inputs, per_group, *(count for _, count, _ in taps)),
            (per_group * full.strides[0], full.strides[1], full.strides[0], *strides),
            offset,
        )
        inner = Geometry(
            geometry.out,
            tuple(ceildiv(length - at, step) for length, at, step in zip(geometry.size, phase, steps)),
            tuple(count for _, count, _ in taps),
            (1,) * SPATIAL,
            geometry.dilation,
            tuple(before for _, _, before in taps),
            (1,) * SPATIAL,  # whatever lies there is looked at pixel by pixel
        )
        weights = Weights(rotated, None, groups, inputs, per_group)
        if lanes and not whole:  # kernels that stay in their lanes write neighbouring pixels
            (result,) = epilogue.views
            part = ctx.scratch(dtypes.FLOAT32, (*result.shape[:2], *inner.out, block), "phase")
            own = GroupEpilogue((part,), ((0, accumulator("f32")),))
            strides_of = result_strides(own, part.shape)
            task = Task(
                ctx=ctx, group=group, geometry=inner, block=block, epilogue=own, operand_strides=strides_of, weights=weights, x=dy
            )
            task.lower("lanes")
            where = [stride * at for stride, at in zip(operand_strides[0][2:5], phase)]
            ctx.copy(part, View(result.buffer, part.shape, apart[0], result.offset + where[0] + where[1] + where[2]), "phase")
            continue
        task = Task(
            ctx=ctx, group=group, geometry=inner, block=block, epilogue=epilogue, weights=weights, x=dy,
            operand_strides=operand_strides if whole else apart, shift=phase,
            whole_strides=None if whole else operand_strides,
        )  # fmt: skip
        if lanes or attrs.get("exact"):
            task.lower("lanes" if lanes else "direct")
        else:
            lower_computed(task)


def _phase(phase: int, begin: int, step: int, kernel: int, dilation: int) -> tuple[int, int, int]:
    """The first tap of the kernel, from the last on, that a phase meets, how many there are, and the padding before them."""
    if step == 1:
        return kernel - 1, kernel, dilation * (kernel - 1) - begin
    full = phase + begin
    taps = range(full % step, kernel, step)
    return (taps[-1] if taps else 0), len(taps), len(taps) - 1 - full // step


@template("BlockedConvGradData", domain=DOMAIN, accepts=_accepts_blocked_data, fuses=True)
def blocked_conv_grad_data(ctx: LowerContext, group: Group) -> None:
    """The gradient of a blocked input, from that of the blocked result."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    assert node.inputs[1] is not None
    epilogue = result_epilogue(ctx, group)
    if not epilogue.stores:
        return
    kernels = as_float(ctx, ctx.view(node.inputs[1]))
    assert group.shape is not None
    _data_steps(ctx, group, ctx.view(source), kernels, group.shape[2:-1], attrs, int(attrs["block"]), epilogue, group.shape)


@template("BlockedDepthwiseGradData", domain=DOMAIN, accepts=_accepts_blocked_data)
def blocked_depthwise_grad_data(ctx: LowerContext, group: Group) -> None:
    """The same for a depthwise convolution with strides, with nothing fused: its phases are computed apart and put together."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    assert node.inputs[1] is not None
    kernels = as_float(ctx, ctx.view(node.inputs[1]))
    final = ctx.output(node.outputs[0])
    target = final if final.is_contiguous else ctx.scratch(dtypes.FLOAT32, final.shape)
    epilogue = GroupEpilogue((target,), ((0, accumulator("f32")),))
    _data_steps(ctx, group, ctx.view(source), kernels, final.shape[2:-1], attrs, int(attrs["block"]), epilogue, final.shape)
    if target is not final:
        ctx.copy(target, final, "copy")


@template("ConvGradData", domain=DOMAIN, types=_FLOAT, accepts=_accepts_data)
def conv_grad_data(ctx: LowerContext, group: Group) -> None:
    """In plain order: by way of blocks."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    assert node.inputs[1] is not None
    kernels = as_float(ctx, ctx.view(node.inputs[1]))
    outputs, inputs = numbers(kernels.shape)[:2]
    groups, block = int(attrs["group"]), ctx.target.lanes
    dy, final = as_float(ctx, ctx.view(source)), ctx.output(node.outputs[0])
    batch = dy.shape[0]
    lanes = groups > 1 and inputs == outputs // groups == 1
    parts, own = (1, groups) if lanes else (groups, inputs)
    given = _in_blocks(ctx, dy, batch * parts, outputs // parts, block, group.label)
    x = whole_view(given, (batch, parts * given.shape[1], *given.shape[2:]))
    blocks = ceildiv_int(own, block)
    made = ctx.scratch(dtypes.FLOAT32, (batch, parts * blocks, *final.shape[2:], block), "blocked result")
    epilogue = GroupEpilogue((made,), ((0, accumulator("f32")),))
    _data_steps(ctx, group, x, kernels, final.shape[2:], attrs, block, epilogue, made.shape)
    target = final if final.is_contiguous else ctx.scratch(dtypes.FLOAT32, final.shape)
    by_group = whole_view(made, (batch * parts, blocks, *final.shape[2:], block))
    layout_step(ctx, whole_view(target, (batch * parts, own, *final.shape[2:])), by_group, "from", group.label)
    if target is not final:
        ctx.copy(target, final, "copy")


def _in_blocks(ctx: LowerContext, plain: View, batch: Dim, channels: int, block: int, label: str) -> View:
    """A plain image without gaps in blocks, as so many images of so many channels."""
    spatial = plain.shape[2:]
    blocked = ctx.scratch(dtypes.FLOAT32, (batch, ceildiv_int(channels, block), *spatial, block), "blocked")
    layout_step(ctx, whole_view(plain, (batch, channels, *spatial)), blocked, "to", label)
    return blocked


def _accepts_weights(node: Node) -> str:
    kernel: Sequence[int] = node.attr("kernel_shape") or ()
    if len(kernel) > SPATIAL - 1:
        return f"{len(kernel)} spatial axes: there are kernels for 1 and 2"
    x, dy = node.inputs[0], node.inputs[1]
    channels = [value.shape[1] for value in (x, dy) if value is not None and value.shape is not None]
    if len(channels) < 2 or not all(isinstance(count, int) and count for count in channels):
        return "the number of channels is not known"
    groups = int(attribute_values(node)["group"])
    if groups > 1 and channels[0] == channels[1] == groups and kernel[-1] > _MOST_TAPS:
        return f"depthwise kernels of {kernel[-1]} columns"
    return ""


@template("ConvGradWeights", domain=DOMAIN, types=_FLOAT, accepts=_accepts_weights, writes_anywhere=True)
def conv_grad_weights(ctx: LowerContext, group: Group) -> None:
    """In plain order: dy is brought into blocks, x is read as it is."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    assert node.inputs[1] is not None
    x, dy = as_float(ctx, ctx.view(source)), as_float(ctx, ctx.view(node.inputs[1]))
    groups, block = int(attrs["group"]), ctx.target.lanes
    channels, outputs = (int(str(view.shape[1])) for view in (x, dy))
    ctx.check_equal(x.shape[0], dy.shape[0])
    geometry = window_geometry(ctx, x.shape[2:], attrs["kernel_shape"], attrs)
    for size, wanted in zip(dy.shape[2:], geometry.out[SPATIAL - len(dy.shape) + 2 :]):
        ctx.check_equal(size, wanted)
    batch = x.shape[0]
    if groups > 1 and channels == outputs == groups:
        sides = [_in_blocks(ctx, view, batch, channels, block, group.label) for view in (x, dy)]
        _depthwise_step(ctx, group, geometry, block, channels, sides[0], sides[1])
        return
    by_group = _in_blocks(ctx, dy, batch * groups, outputs // groups, block, group.label)
    blocked = whole_view(by_group, (batch, groups * by_group.shape[1], *by_group.shape[2:]))
    inputs = channels // groups
    pixels = product(list(x.shape[2:]))
    strides = (channels * pixels, inputs * pixels, block * pixels, pixels, geometry.size[2], 1)
    _weights_step(ctx, group, geometry, block, groups, inputs, outputs // groups, (x, strides), blocked, is_blocked=False)


def _accepts_blocked_weights(node: Node) -> str:
    attrs = attribute_values(node)
    kernel, groups, block = attrs["kernel_shape"], int(attrs["group"]), int(attrs["block"])
    inputs, outputs = int(attrs["inputs"]), int(attrs["outputs"])
    if len(kernel) > SPATIAL - 1:
        return f"{len(kernel)} spatial axes: there are kernels for 1 and 2"
    if groups < 1 or inputs % groups or outputs % groups:
        return f"{inputs} and {outputs} channels cannot be divided into {groups} groups"
    if not _fits(groups, inputs // groups, outputs // groups, block):
        return f"the groups do not lie in whole blocks of {block}"
    if groups > 1 and inputs == groups and kernel[-1] > _MOST_TAPS:
        return f"depthwise kernels of {kernel[-1]} columns"
    if attrs.get("plain"):
        x = node.inputs[0]
        if groups > 1 or x is None or x.shape is None or x.shape[1] != inputs:
            return "groups of a plain input, or another number of channels"
        return misfit(node.inputs[1], outputs, block)
    return misfit(node.inputs[0], inputs, block) or misfit(node.inputs[1], outputs, block)


@template("BlockedConvGradWeights", domain=DOMAIN, accepts=_accepts_blocked_weights, writes_anywhere=True)
def blocked_conv_grad_weights(ctx: LowerContext, group: Group) -> None:
    """From blocked images; with `plain` the input has few channels and lies in plain order."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    assert node.inputs[1] is not None
    plain, block = bool(attrs.get("plain")), int(attrs["block"])
    x, dy = ctx.view(source), dense_blocks(ctx, ctx.view(node.inputs[1]))
    groups, channels, outputs = (int(attrs[name]) for name in ("group", "inputs", "outputs"))
    if plain:
        x = as_float(ctx, x)
    spatial = x.shape[2:] if plain else x.shape[2:-1]
    geometry = window_geometry(ctx, spatial, attrs["kernel_shape"], attrs)
    ctx.check_equal(x.shape[0], dy.shape[0])
    for size, wanted in zip(dy.shape[2:-1], geometry.out):
        ctx.check_equal(size, wanted)
    inputs = channels // groups
    strides: tuple[Dim, ...]
    if plain:
        pixels = product(list(spatial))
        strides = (channels * pixels, 0, block * pixels, pixels, geometry.size[2], 1)
    else:
        x = dense_blocks(ctx, x)
        if groups > 1 and inputs == 1:
            _depthwise_step(ctx, group, geometry, block, channels, x, dy)
            return
        per_group = ceildiv_int(inputs, block)
        strides = (x.strides[0], per_group * x.strides[1], x.strides[1], 1, x.strides[3], block)
    _weights_step(ctx, group, geometry, block, groups, inputs, outputs // groups, (x, strides), dy, is_blocked=not plain)


def _sizes(geometry: Geometry) -> dict[str, Dim]:
    """The arguments that say where windows lie, of the last two axes."""
    return {
        **named("rows columns", geometry.out[1:]),
        **named("height width", geometry.size[1:]),
        **named("top left", geometry.pads_begin[1:]),
        **named("row_stride column_stride", geometry.stride[1:]),
        **named("row_dilation column_dilation", geometry.dilation[1:]),
        **named("kernel_rows kernel_columns", geometry.kernel[1:]),
    }


def _target(ctx: LowerContext, group: Group) -> tuple[View, tuple[Dim, ...]]:
    """Where the gradient goes, and its strides: output, input, kernel row, kernel column."""
    assert group.root is not None
    view = ctx.output(group.root.outputs[0])
    strides = view.strides if len(view.strides) == SPATIAL + 1 else (*view.strides[:2], 0, *view.strides[2:])
    return view, strides


def _weights_step(
    ctx: LowerContext,
    group: Group,
    geometry: Geometry,
    block: int,
    groups: int,
    inputs: int,
    outputs: int,
    x: tuple[View, Sequence[Dim]],
    dy: View,
    *,
    is_blocked: bool,
) -> None:
    """`x` with its strides: batch, group, block, channel, row, column."""
    dy = dense_blocks(ctx, dy) if len(dy.shape) != SPATIAL + 3 else dy
    each = min(inputs, block)
    half = max(ctx.target.registers // 2, 4)
    kernel = WeightGradKernel(
        block=block, inputs=each, last_inputs=inputs % each or each, blocked=is_blocked, sums=min(max(half // each, 1), 8)
    )
    blocks, output_blocks = ceildiv_int(inputs, each), ceildiv_int(outputs, block)
    w, strides = _target(ctx, group)
    flops = product([dy.shape[0], *geometry.out]) * (2 * groups * output_blocks * block * inputs * geometry.taps)
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(
                x=(Address(x[0].buffer, x[0].offset * 4), x[1]),
                dy=(
                    Address(dy.buffer, dy.offset * 4),
                    (dy.strides[0], output_blocks * dy.strides[1], dy.strides[1], dy.strides[3]),
                ),
                w=(Address(w.buffer, w.offset * 4), strides),
                input_blocks=blocks,
                batch=dy.shape[0],
                output_blocks=output_blocks,
                outputs=outputs,
                **_sizes(geometry),
            ),
            groups * output_blocks * blocks,
            cost.conv(flops, ctx.target),
            (x[0].buffer, dy.buffer),
            (w.buffer,),
            group.label,
            tuple(node.label for node in group.nodes),
            flops=flops,
        )
    )


def _depthwise_step(ctx: LowerContext, group: Group, geometry: Geometry, block: int, channels: int, x: View, dy: View) -> None:
    x, dy = (dense_blocks(ctx, view) if len(view.shape) != SPATIAL + 3 else view for view in (x, dy))
    kernel = DepthwiseGradKernel(block=block, taps=geometry.kernel[2])
    w, strides = _target(ctx, group)
    blocks = ceildiv_int(channels, block)
    vectors = product([dy.shape[0], blocks, *geometry.out])
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(
                x=(Address(x.buffer, x.offset * 4), (x.strides[0], x.strides[1], x.strides[3])),
                dy=(Address(dy.buffer, dy.offset * 4), (dy.strides[0], dy.strides[1], dy.strides[3])),
                w=(Address(w.buffer, w.offset * 4), (strides[0], strides[2], strides[3])),
                batch=dy.shape[0],
                output_blocks=blocks,
                outputs=channels,
                **_sizes(geometry),
            ),
            blocks * geometry.kernel[1],
            cost.window(vectors, geometry.taps),
            (x.buffer, dy.buffer),
            (w.buffer,),
            group.label,
            tuple(node.label for node in group.nodes),
            flops=vectors * (2 * geometry.taps * block),
        )
    )
