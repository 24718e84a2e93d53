"""The blocked layout for gradients: what training adds to convolution nets.

    dx = ConvGradData(dy, w, shape)             =>   DX = BlockedConvGradData(DY, w, shape)
    dw = ConvGradWeights(x, dy)                      dw = BlockedConvGradWeights(X, DY)
    s = ReduceSum(x, [0, 2, 3]) {keepdims = 1}       S = ReduceSum(X, [0, 2, 3])           one number for each channel
    s = Cast(ReduceSum(Cast(x)))                     S = Cast(ReduceSum(Cast(X)))          the same, added up in 64 bits

A gradient that meets a region in the blocked layout carries it on backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.indexing.layout import DOMAIN, fits_blocks
from sardonyx.passes.layout_region import STANDARD_VERSION, Blocked, Region, constant_data, image_input, image_output, is_float

_WINDOW: Final = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_FLAT: Final = 2  # spatial axes at most
_LONGEST_DEPTHWISE: Final = 8  # kernel columns


def _attrs(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name].value for name in _WINDOW if name in node.attrs}


def _fits(region: Region, node: Node, groups: int, inputs: int, outputs: int) -> bool:
    """Whether groups of so many channels lie in whole blocks, or are single channels."""
    if fits_blocks(groups, inputs, outputs, region.block) and (groups == 1 or inputs == 1 or inputs % region.block == 0):
        return True
    region.refuse(node, f"{groups} groups of {inputs} and {outputs} channels do not fit blocks of {region.block}")
    return False


def _conv_grad_data(region: Region, node: Node) -> None:
    dy, weights = image_input(node), node.inputs[1]
    shape = None if dy is None or dy.shape is None else image_output(node, len(dy.shape))
    kernel = None if weights is None else weights.shape
    if dy is None or shape is None or kernel is None or not is_float(weights) or len(shape) - 2 > _FLAT + 1:
        region.refuse(node, "its types are not float32 or its channels are not known")
        return
    strides, dilations = node.attr("strides") or (1,), node.attr("dilations") or (1,)
    if node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or (max(strides) > 1 and max(dilations) > 1):
        region.refuse(node, "there is no blocked kernel for its pads, or for strides with dilations")
        return
    if any(not isinstance(size, int) for size in kernel):
        region.refuse(node, "the size of its kernels is not known")
        return
    groups = int(node.attr("group", 1))
    outputs, inputs = (int(str(size)) for size in kernel[:2])
    if not _fits(region, node, groups, inputs, outputs // groups):
        return
    blocked = region.blocked(dy, node)
    assert blocked is not None
    name = "BlockedDepthwiseGradData" if groups > 1 and inputs == 1 and max(strides) > 1 else "BlockedConvGradData"
    inner = [blocked.value, weights, node.inputs[2]]
    exact = 1 if node in region.exact and name == "BlockedConvGradData" else None
    made = region.add(node, name, inner, shape, domain=DOMAIN, block=region.block, exact=exact, **_attrs(node))
    region.replace(node, [made])


def _conv_grad_weights(region: Region, node: Node) -> None:
    """The result is plain; dy, and x unless it has few channels, are read in blocks."""
    x, dy = image_input(node), image_input(node, 1)
    if x is None or dy is None or x.shape is None or dy.shape is None or len(x.shape) - 2 > _FLAT:
        region.refuse(node, "its types are not float32 or its channels are not known")
        return
    channels, outputs = (int(str(value.shape[1])) for value in (x, dy) if value.shape is not None)
    groups = int(node.attr("group", 1))
    if not _fits(region, node, groups, channels // groups, outputs // groups):
        return
    if groups > 1 and channels == groups and node.attr("kernel_shape")[-1] > _LONGEST_DEPTHWISE:
        region.refuse(node, f"a depthwise kernel of {node.attr('kernel_shape')[-1]} columns")
        return
    few = x not in region.known and groups == 1 and channels <= region.block // 2
    sides = [x if few else region.blocked(x, node), region.blocked(dy, node)]
    inputs = [side if side is x else side.value for side in sides if side is not None]  # type: ignore[union-attr]
    made = [make_attr(key, value) for key, value in _attrs(node).items()]
    made += [make_attr("block", region.block), make_attr("inputs", channels), make_attr("outputs", outputs)]
    made += [make_attr("plain", 1)] if few else []
    result = node.outputs[0]
    region.put(node, Node("BlockedConvGradWeights", inputs, [result], made, domain=DOMAIN, version=1, name=node.name))


def _max_pool_grad(region: Region, node: Node) -> None:
    images = [image_input(node, position) for position in range(3)]
    if not any(region.inside(image) is not None for image in images):
        return
    shape = None if images[1] is None or images[1].shape is None else image_output(node, len(images[1].shape))
    if shape is None or any(image is None for image in images) or len(shape) - 2 > _FLAT:
        region.refuse(node, "not all its inputs are float32 images with known channels")
        return
    blocked = [region.blocked(image, node) for image in images if image is not None]
    inputs = [each.value for each in blocked if each is not None]
    region.replace(node, [region.add(node, "BlockedMaxPoolGrad", [*inputs], shape, domain=DOMAIN, **_attrs(node))])


def _average_pool_grad(region: Region, node: Node) -> None:
    dy = image_input(node)
    found = region.inside(dy)
    shape = None if dy is None or dy.shape is None else image_output(node, len(dy.shape))
    if found is None or shape is None or len(shape) - 2 > _FLAT:
        return
    inputs = [found.value, node.inputs[1]]
    region.replace(node, [region.add(node, "BlockedAveragePoolGrad", inputs, shape, domain=DOMAIN, **_attrs(node))])


def _sums_channels(region: Region, node: Node, rank: int) -> bool:
    """Whether a ReduceSum goes over all axes but the channels."""
    axes = constant_data(region.graph, node.inputs[1]) if len(node.inputs) > 1 else None
    return axes is not None and sorted(int(axis) % rank for axis in axes.numpy().reshape(-1)) == [0, *range(2, rank)]


def _axes(region: Region, node: Node, rank: int) -> Value:
    """The axes of a sum over all but the channels."""
    return region.constant(f"{node.outputs[0].name}:axes", np.array([0, *range(2, rank)], np.int64))


def _reduce_sum(region: Region, node: Node) -> None:
    """A sum over all but the channels stays in blocks."""
    x = image_input(node)
    found = region.inside(x)
    if (
        found is None
        or x is None
        or x.shape is None
        or len(node.inputs) < 2
        or constant_data(region.graph, node.inputs[1]) is None
    ):
        return
    rank = len(x.shape)
    if not _sums_channels(region, node, rank):
        region.refuse(node, "it sums over other axes than all but the channels")
        return
    shape: Shape = (1, x.shape[1], *(1,) * (rank - 2))
    made = region.add(node, "ReduceSum", [found.value, _axes(region, node, rank)], shape, keepdims=1)
    if node.attr("keepdims", 1):
        region.replace(node, [made])
    else:
        region.flatten(node, made, shape, [0, *range(2, rank)])


def _wide_sum(region: Region, node: Node) -> Blocked | None:
    """The image in the region whose channels a Cast gets the sums of, if these were added up in 64 bits."""
    total = None if node.inputs[0] is None else node.inputs[0].producer
    if total is None or total.op_type != "ReduceSum" or total.domain or not total.attr("keepdims", 1) or total.inputs[0] is None:
        return None
    wide = total.inputs[0].producer
    if wide is None or wide.op_type != "Cast" or wide.domain or wide.attr("to") != dtypes.FLOAT64.onnx:
        return None
    x = image_input(wide)
    found = region.inside(x)
    known = x is not None and x.shape is not None and is_float(node.outputs[0])
    return found if known and x is not None and _sums_channels(region, total, len(x.shape or ())) else None


def write_wide_sum(region: Region, node: Node) -> bool:
    """Bring a sum over all but the channels that is added up in 64 bits, and that a Cast rounds, into blocks, if it is one."""
    found = _wide_sum(region, node)
    if found is None:
        return False
    total = node.inputs[0].producer if node.inputs[0] is not None else None
    assert total is not None
    assert total.inputs[0] is not None
    assert found.value.shape is not None
    rank, inner = len(found.value.shape) - 1, list(found.value.shape)
    sums = (1, inner[1], *(1,) * (rank - 2), inner[-1])
    made: list[Value] = [found.value]
    for op_type, dtype, shape, more, attrs in (
        ("Cast", dtypes.FLOAT64, tuple(inner), [], {"to": dtypes.FLOAT64.onnx}),
        ("ReduceSum", dtypes.FLOAT64, sums, [_axes(region, total, rank)], {"keepdims": 1}),
        ("Cast", dtypes.FLOAT32, sums, [], {"to": dtypes.FLOAT32.onnx}),
    ):
        result = Value(region.free_name(f"{node.outputs[0].name}:{op_type}"), TensorType(dtype, shape))
        own = [make_attr(name, value) for name, value in attrs.items()]
        inputs = [made[-1], *more]
        region.graph.insert_before(node, Node(op_type, inputs, [result], own, version=STANDARD_VERSION, name=node.name))
        made.append(result)
    wide = total.inputs[0].producer
    region.replace(node, [made[-1]])
    for old in (total, wide):
        if old is not None and not old.outputs[0].uses and old.outputs[0] not in region.graph.outputs:
            region.discard(old)
    return True


GRADIENT_RULES: Final[dict[tuple[str, str], Callable[[Region, Node], None]]] = {
    (DOMAIN, "ConvGradData"): _conv_grad_data,
    (DOMAIN, "ConvGradWeights"): _conv_grad_weights,
    (DOMAIN, "MaxPoolGrad"): _max_pool_grad,
    (DOMAIN, "AveragePoolGrad"): _average_pool_grad,
    ("", "ReduceSum"): _reduce_sum,
}
