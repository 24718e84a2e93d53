"""Bring operators on ONNX Runtime's other layouts back to the standard layout: channels last, and channels in blocks.

    a = nchwc.ReorderInput(x)
    b = nchwc.Conv(a, w', bias) {activation = "Relu"}       =>   y = Relu(Conv(x, w, bias))
    y = nchwc.ReorderOutput(b) {channels = 64}

    y = com.microsoft.NhwcFusedConv(x, w)                   =>   y = Transpose(Conv(Transpose(x), w))

Such operators stand in models that ONNX Runtime has optimised and saved. Kernels in blocked order become kernels in standard
order (`ops.indexing.contrib_layout` tells how they lie); what suits this machine is for AssignLayout to decide. Transposes meet
and cancel in the passes behind. Blocks are filled up: channels that an input lacks are zeros. Refuses: kernels in blocked order
that are no constants or whose channels are fewer than those of the input, and what ExpandFused refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.ir.graph import Node, Value
from sardonyx.passes.expand_fused import (
    Activation,
    ExpandingRule,
    Expansion,
    activation_of,
    conv_attributes,
    sum_operand,
)
from sardonyx.passes.protocol import OLDEST, Reject
from sardonyx.passes.rewriter import MICROSOFT, Rewriter
from sardonyx.records import dataclass

NHWC: Final = "com.ms.internal.nhwc"
NCHWC: Final = "com.microsoft.nchwc"
_RESIZE: Final = 11  # the opset version since which a Resize knows coordinates
_OPTIONAL_ROI: Final = 13
_SLICE_BY_INPUTS: Final = 10
_PADS_BY_INPUT: Final = 11
_PARAMETERS: Final = ("activation", "activation_params")


def _check_activation(g: Rewriter, node: Node) -> Activation | Reject:
    return activation_of(g, node.attr("activation"), node.attr("activation_params"))


def _check_blocked_conv(g: Rewriter, node: Node) -> Any:
    x, w = node.inputs[:2]
    kernels = g.array(w)
    if x is None or kernels is None:
        return Reject("the kernels are not constants")
    group = node.attr("group", 1)
    channels = None if x.shape is None or len(x.shape) != kernels.ndim else x.shape[1]
    wanted = kernels.shape[1] * group
    if not isinstance(channels, int) or channels > wanted or (channels < wanted and group > 1 and g.version < _PADS_BY_INPUT):
        return Reject(f"x is {x.type}, the kernels take {wanted} channels")
    z = sum_operand(node)
    if isinstance(z, Reject):
        return z
    activation = _check_activation(g, node)
    if isinstance(activation, Reject):
        return activation
    from sardonyx.ops.indexing.contrib_layout import unblocked  # lazy: few models have kernels in blocked order

    try:
        plain = unblocked(kernels)
    except ValueError as error:
        return Reject(str(error))
    # Channels that the input lacks would be zeros: their part of the kernels does not count.
    return activation, np.ascontiguousarray(plain[:, :channels]) if group == 1 else plain, wanted - channels


def _is_cut(g: Rewriter, node: Node, channels: int) -> bool:
    """Whether all who read a depthwise convolution take its first channels alone."""
    result = node.outputs[0]
    cuts = [
        (each.domain, each.op_type) == (NCHWC, "ReorderOutput") and 0 < each.attr("channels", 0) <= channels
        for each in result.consumers
    ]
    return all(cuts) and not g.is_output(result)


def _blocked_conv(g: Rewriter, node: Node, facts: Any) -> Value:
    activation, kernels, missing = facts
    x, _, b, z = (*node.inputs, None, None)[:4]
    attrs, group, bias = conv_attributes(node), node.attr("group", 1), g.array(b)
    if missing and group > 1:
        channels = group - missing
        if kernels.shape[:2] == (group, 1) and z is None and (b is None or bias is not None) and _is_cut(g, node, channels):
            kernels, attrs["group"] = np.ascontiguousarray(kernels[:channels]), channels
            b = None if bias is None else g.constant(np.ascontiguousarray(bias[:channels]), "bias")
        else:
            pads = np.zeros((2, kernels.ndim), np.int64)
            pads[1, 1] = missing
            x = g.op("Pad", x, g.constant(pads.reshape(-1), "pads"))
    w = g.constant(kernels, "kernels")
    result = g.op("Conv", x, w, *(() if b is None else (b,)), **attrs)
    applied: Value = activation.apply(g, result if z is None else g.op("Add", result, z))
    return applied


def _pool(g: Rewriter, node: Node, facts: None) -> Value:
    return g.op(node.op_type, node.inputs[0], **{key: attr.value for key, attr in node.attrs.items()})


def transposed(g: Rewriter, x: Value, *, to_last: bool) -> Value:
    """A value with its channels last, or first again."""
    assert x.shape is not None
    spatial = list(range(2, len(x.shape))) if to_last else list(range(1, len(x.shape) - 1))
    return g.op("Transpose", x, perm=[0, *spatial, 1] if to_last else [0, len(x.shape) - 1, *spatial])


def _check_rank(g: Rewriter, node: Node) -> Any:
    x = node.inputs[0]
    return Reject("the rank is not known") if x is None or x.shape is None or len(x.shape) < 3 else None


def _reorder_input(g: Rewriter, node: Node, facts: None) -> Value:
    x = node.inputs[0]
    assert x is not None
    return transposed(g, x, to_last=False) if node.attr("channels_last", 0) else g.op("Identity", x)


def _check_reorder_output(g: Rewriter, node: Node) -> Any:
    x, channels = node.inputs[0], node.attr("channels", 0)
    found = None if x is None or x.shape is None or len(x.shape) < 3 else x.shape[1]
    if not isinstance(found, int) or not 0 < channels <= found or g.version < _SLICE_BY_INPUTS:
        return Reject(f"takes {channels} channels of {found}")
    return channels < found


def _reorder_output(g: Rewriter, node: Node, is_cut: bool) -> Value:
    x = node.inputs[0]
    assert x is not None
    if is_cut:
        ends = (g.constant(np.array([number], np.int64), "channels") for number in (0, node.attr("channels"), 1))
        x = g.op("Slice", x, *ends)
    if node.attr("channels_last", 0):
        return transposed(g, x, to_last=True)
    return x if is_cut else g.op("Identity", x)


def _check_upsample(g: Rewriter, node: Node) -> Any:
    x, scales = node.inputs[0], node.attr("scales")
    if g.version < _RESIZE:
        return Reject(f"opset {g.version} has no Resize with coordinates")
    if x is None or x.shape is None or scales is None or len(scales) != len(x.shape) or tuple(scales[:2]) != (1, 1):
        return Reject(f"scales {scales} of {None if x is None else x.type}")
    return None


def _upsample(g: Rewriter, node: Node, facts: None) -> Value:
    scales = g.constant(np.array(node.attr("scales"), np.float32), "scales")
    roi = None if g.version >= _OPTIONAL_ROI else g.constant(np.empty(0, np.float32), "roi")
    mode = node.attr("coordinate_transformation_mode", "asymmetric")
    attrs = {"mode": node.attr("mode", "nearest"), "coordinate_transformation_mode": mode, "nearest_mode": "floor"}
    return g.op("Resize", node.inputs[0], roi, scales, **attrs)


_BLOCKED: Final[Mapping[str, Expansion]] = {
    "Conv": Expansion(_blocked_conv, _check_blocked_conv),
    "MaxPool": Expansion(_pool),
    "AveragePool": Expansion(_pool),
    "GlobalMaxPool": Expansion(_pool),
    "GlobalAveragePool": Expansion(_pool),
    "ReorderInput": Expansion(_reorder_input, _check_rank),
    "ReorderOutput": Expansion(_reorder_output, _check_reorder_output),
    "Upsample": Expansion(_upsample, _check_upsample),
}


@dataclass(frozen=True)
class ExpandBlocked(ExpandingRule):
    """Operators on channels in blocks become those of the standard layout."""

    name: ClassVar[str] = "ExpandBlocked"
    roots: ClassVar[frozenset[str]] = frozenset(_BLOCKED)
    domains: ClassVar[frozenset[str]] = frozenset((NCHWC,))
    expansions: ClassVar[Mapping[str, Expansion]] = _BLOCKED


def _check_channels_last(g: Rewriter, node: Node) -> Any:
    rank = _check_rank(g, node)
    if rank is not None:
        return rank
    z = sum_operand(node) if node.domain == MICROSOFT else None
    if isinstance(z, Reject):
        return z
    w = node.inputs[1] if len(node.inputs) > 1 else None
    if node.op_type == "NhwcConv" and (w is None or w.shape is None or len(w.shape) < 3):
        return Reject("the rank of the kernels is not known")
    if len(node.outputs) > 1 or (node.domain == NHWC and node.version < OLDEST and node.op_type != "Conv"):
        return Reject("has several outputs, or is of an old version")
    return _check_activation(g, node)


def _channels_last(g: Rewriter, node: Node, activation: Activation) -> Value:
    x, *others = node.inputs
    assert x is not None
    z = others.pop(2) if node.domain == MICROSOFT and len(others) > 2 else None
    if node.op_type == "NhwcConv":
        assert others[0] is not None
        others[0] = transposed(g, others[0], to_last=False)
    operator = "Conv" if node.domain == MICROSOFT else node.op_type
    attrs = {key: attr.value for key, attr in node.attrs.items() if key not in _PARAMETERS}
    while others and others[-1] is None:
        others.pop()
    result = g.op(operator, transposed(g, x, to_last=False), *others, **attrs)
    if z is not None:
        result = g.op("Add", result, transposed(g, z, to_last=False))
    return transposed(g, activation.apply(g, result), to_last=True)


_CHANNELS_LAST: Final[Mapping[str, Expansion]] = dict.fromkeys(
    (
        "Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
        "BatchNormalization", "InstanceNormalization", "LRN", "DepthToSpace", "SpaceToDepth", "NhwcConv", "NhwcFusedConv",
    ),
    Expansion(_channels_last, _check_channels_last),
)  # fmt: skip


@dataclass(frozen=True)
class ExpandChannelsLast(ExpandingRule):
    """Operators on channels last become those of the standard layout between two transposes."""

    name: ClassVar[str] = "ExpandChannelsLast"
    roots: ClassVar[frozenset[str]] = frozenset(_CHANNELS_LAST)
    domains: ClassVar[frozenset[str]] = frozenset((NHWC, MICROSOFT))
    expansions: ClassVar[Mapping[str, Expansion]] = _CHANNELS_LAST
