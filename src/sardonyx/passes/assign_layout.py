"""Bring the convolutional parts of a graph into the blocked layout, with conversions only at the borders.

    y = Relu(Conv(x, w))          =>   Y = BlockedConv(x, w) {block = 16, plain = 1};  U = Relu(Y)
    z = MaxPool(y)                     Z = BlockedPool(U)
    r = Reshape(z, ...)                z = FromBlocked(Z);  r = Reshape(z, ...)

A convolution starts a region. Elementwise nodes, pools, channel concatenations and splits, and resizing carry it on; everything
else gets its inputs back in plain order. A pointwise convolution that stands alone may become a product (`layout_choice`).
Constants that vary along the channels are reordered. Runs after all passes that look for standard convolutions. Refuses
convolutions whose weights are not constant or whose groups do not fit the blocks, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.builder import make_attr
from sardonyx.ir.dims import DimExpr
from sardonyx.ir.graph import Attr, Graph, Model, Node, Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.conv.windows import cuts_windows
from sardonyx.ops.indexing.layout import DOMAIN, blocked_shape, fits_blocks, to_blocked
from sardonyx.passes.layout_choice import is_faster_as_product, write_product
from sardonyx.passes.layout_gradients import GRADIENT_RULES, write_wide_sum
from sardonyx.passes.layout_region import (
    STANDARD_VERSION,
    Region,
    carried_on,
    constant_data,
    image_input,
    image_output,
    is_elementwise,
    is_float,
)
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.quantized_values import before_bytes
from sardonyx.records import dataclass
from sardonyx.target.levels import generic
from sardonyx.target.target import Target

MOST_PHASES: Final = 64  # a transposed convolution is a convolution for every phase of its stride
_CONV_ATTRS: Final = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_TRANSPOSE_ATTRS: Final = (*_CONV_ATTRS, "output_padding", "output_shape")
_USUAL: Final = generic("x86-64-v3")  # until somebody says what code is made for
_POOL_ATTRS: Final = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")


@dataclass(frozen=True)
class AssignLayout:
    """Convert convolutions and what lies between them to blocks of as many channels as a vector has lanes."""

    target: Target = _USUAL  # the pipeline sets it to what code is made for
    exact: bool = False  # convolutions add up what their definition says
    name: ClassVar[str] = "AssignLayout"
    ort_names: ClassVar[tuple[str, ...]] = ("NchwcTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("Conv", "ConvTranspose", "ConvGradData", "ConvGradWeights", "MaxPoolGrad"))

    def run(self, model: Model) -> PassResult:
        """Change the model in place; its types must be inferred."""
        return assign_layout(model.graph, self.target, exact=self.exact)


def assign_layout(graph: Graph, target: Target, *, exact: bool = False) -> PassResult:
    """Rewrite a graph and its subgraphs for the vectors of a target.

    Where what they make becomes bytes later, a last bit may become a whole step: such convolutions are exact, too.
    """
    exact_nodes = frozenset(graph.nodes) if exact else before_bytes(graph)
    region = Region(graph, target, exact_nodes)
    for node in list(graph.nodes):
        rule = _RULES.get((node.domain, node.op_type))
        if rule is None and is_elementwise(node):
            rule = _elementwise
        if rule is not None:
            rule(region, node)
    region.give_back()
    changes, reasons = region.changes, list(region.reasons)
    for node in list(graph.nodes):
        for subgraph in node.subgraphs():
            inner = assign_layout(subgraph, target, exact=node in exact_nodes)
            changes += inner.changes
            reasons += inner.reasons
    return PassResult(changes > 0, tuple(reasons), changes)


def has_layout_rule(domain: str, name: str) -> bool:
    """Whether an operator has a form of its own in the blocked layout, with a kernel."""
    return (domain, name) in _RULES


def _has_rule(node: Node) -> bool:
    return has_layout_rule(node.domain, node.op_type)


def _attrs(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    """The attributes a node carries, out of these."""
    return {name: node.attrs[name].value for name in names if name in node.attrs}


def _kernels(region: Region, node: Node, x: Value) -> tuple[int, ...] | None:
    """The shape of the weights of a convolution that can be blocked; None, with a reason, if it cannot be."""
    value = node.inputs[1]
    shape = None if value is None else value.shape
    if shape is None or not is_float(value) or any(not isinstance(size, int) for size in shape):
        region.refuse(node, "the size of its kernels is not known")
        return None
    sizes = tuple(int(str(size)) for size in shape)
    if len(sizes) > 5 or 0 in sizes or x.shape is None or len(x.shape) != len(sizes):
        region.refuse(node, f"there is no blocked kernel for weights of shape {list(sizes)}")
        return None
    return sizes


def _has_constants(region: Region, node: Node) -> bool:
    """Whether weights and bias of a convolution are the same in every run."""
    return all(constant_data(region.graph, value) is not None for value in node.inputs[1:] if value is not None)


def _conv(region: Region, node: Node) -> None:
    x = image_input(node)
    shape = None if x is None or x.shape is None else image_output(node, len(x.shape))
    if x is None or shape is None:
        region.refuse(node, "its types are not float32 or its channels are not known")
        return
    weights = _kernels(region, node, x)
    if weights is None:
        return
    if is_faster_as_product(region, node, x, weights, _has_rule):
        write_product(region, node, x, weights, shape)
        return
    block, groups = region.block, int(node.attr("group", 1))
    inputs, outputs = weights[1], weights[0] // groups
    if not fits_blocks(groups, inputs, outputs, block):
        region.refuse(node, f"{groups} groups of {inputs} and {outputs} channels do not fit blocks of {block}")
        return
    if groups > 1 and 1 < inputs < block and not _has_constants(region, node):
        region.refuse(node, f"its weights are not constant and its groups of {inputs} channels do not fill blocks")
        return
    pads = node.attr("pads") or ()
    few = x not in region.known and groups == 1 and inputs <= block // 2 and all(pad >= 0 for pad in pads)
    if few:
        source: Value = x
    else:
        blocked = region.blocked(x, node)
        assert blocked is not None
        source = blocked.value
    made = region.add(
        node,
        "BlockedConv",
        [source, *node.inputs[1:]],
        shape,
        domain=DOMAIN,
        block=block,
        plain=1 if few else None,
        exact=1 if node in region.exact else None,
        **_attrs(node, _CONV_ATTRS),
    )
    region.replace(node, [made])


def _conv_transpose(region: Region, node: Node) -> None:
    x = image_input(node)
    shape = None if x is None or x.shape is None else image_output(node, len(x.shape))
    if x is None or shape is None:
        region.refuse(node, "its types are not float32 or its channels are not known")
        return
    weights = _kernels(region, node, x)
    if weights is None:
        return
    groups = int(node.attr("group", 1))
    inputs, outputs = weights[0] // groups, weights[1]
    if groups > 1 and inputs % region.block and not _has_constants(region, node):
        region.refuse(node, f"its weights are not constant and its groups of {inputs} channels do not fill blocks")
        return
    if not fits_blocks(groups, inputs, outputs, region.block):
        region.refuse(node, f"{groups} groups of {inputs} and {outputs} channels do not fit blocks of {region.block}")
        return
    if prod(node.attr("strides") or ()) > MOST_PHASES:
        region.refuse(node, f"strides {list(node.attr('strides'))} would make more than {MOST_PHASES} convolutions of it")
        return
    blocked = region.blocked(x, node)
    assert blocked is not None
    made = region.add(
        node,
        "BlockedConvTranspose",
        [blocked.value, *node.inputs[1:]],
        shape,
        domain=DOMAIN,
        block=region.block,
        exact=1 if node in region.exact else None,
        **_attrs(node, _TRANSPOSE_ATTRS),
    )
    region.replace(node, [made])


def _pool(region: Region, node: Node) -> None:
    start = carried_on(region, node)
    if start is None:
        return
    if len(node.outputs) > 1 and (node.outputs[1].uses or node.outputs[1] in region.graph.outputs):
        region.refuse(node, "the indices of the maxima are wanted")
        return
    x, shape = start
    if len(shape) > 5:
        region.refuse(node, f"there is no blocked pool for {len(shape) - 2} spatial axes")
        return
    source = node.inputs[0]
    if source is not None and source.shape is not None and cuts_windows(source.shape[2:], attribute_values(node)):
        region.refuse(node, "windows are larger than the image")
        return
    kind = "max" if node.op_type == "MaxPool" else "average"
    made = region.add(node, "BlockedPool", [x.value], shape, domain=DOMAIN, kind=kind, **_attrs(node, _POOL_ATTRS))
    region.replace(node, [made])


def _global_pool(region: Region, node: Node) -> None:
    start = carried_on(region, node)
    if start is None:
        return
    x, shape = start
    kind = "max" if node.op_type == "GlobalMaxPool" else "average"
    made = region.add(node, "BlockedGlobalPool", [x.value], shape, domain=DOMAIN, kind=kind)
    region.replace(node, [made])


def _reduce(region: Region, node: Node) -> None:
    """ReduceMean or ReduceMax over all spatial axes is a global pool."""
    source = image_input(node)
    x = region.inside(source)
    if x is None or source is None or source.shape is None or not is_float(node.outputs[0]):
        return
    shape: Shape = (*source.shape[:2], *(1,) * (len(source.shape) - 2))
    axes: Any = node.attr("axes")
    if axes is None and len(node.inputs) > 1:
        data = constant_data(region.graph, node.inputs[1])
        axes = None if data is None else data.numpy().reshape(-1).tolist()
    rank = len(shape)
    if axes is None or sorted(axis % rank for axis in axes) != list(range(2, rank)):
        region.refuse(node, "it reduces other axes than the spatial ones")
        return
    kind = "max" if node.op_type == "ReduceMax" else "average"
    made = region.add(node, "BlockedGlobalPool", [x.value], shape, domain=DOMAIN, kind=kind)
    if node.attr("keepdims", 1):
        region.replace(node, [made])
    else:
        region.flatten(node, made, shape)


def _elementwise(region: Region, node: Node) -> None:
    if node.op_type == "Cast" and write_wide_sum(region, node):
        return
    started = [value for value in node.inputs if value is not None and region.inside(value) is not None]
    if not started:
        return
    rank = max(len(value.shape or ()) for value in started)
    shape, dtype = image_output(node, rank, allow_bool=True), _dtype(node.outputs[0])
    if shape is None or dtype is None:
        region.refuse(node, "its result is not a float32 image")
        return
    channels = shape[1]
    assert isinstance(channels, int)
    inputs: list[Value | None] = []
    for value in node.inputs:
        operand = None if value is None else region.operand(value, channels, rank, node)
        if value is not None and operand is None:
            region.refuse(node, f"{value.name!r} ({value.type}) cannot be broadcast to blocks of {channels} channels")
            return
        inputs.append(operand)
    attrs: list[Attr] = list(node.attrs.values())
    result = Value("", TensorType(dtype, blocked_shape(shape, region.block)))
    made = Node(node.op_type, inputs, [result], attrs, domain=node.domain, version=node.version, name=node.name)
    region.graph.insert_before(node, made)
    region.replace(node, [result])


def _dtype(value: Value) -> dtypes.DType | None:
    return value.type.dtype if isinstance(value.type, TensorType) else None


def _batch_norm(region: Region, node: Node) -> None:
    """What no convolution took in is a multiplication and an addition."""
    start = carried_on(region, node)
    data = [constant_data(region.graph, value) for value in node.inputs[1:5]]
    if start is None or any(each is None for each in data) or len(node.outputs) > 1 or node.attr("training_mode", 0):
        return
    x, shape = start
    scale, bias, mean, variance = (each.numpy().astype(np.float64) for each in data if each is not None)
    factor = scale / np.sqrt(variance + float(attribute_values(node)["epsilon"]))
    channel_shape = (1, -1) + (1,) * (len(shape) - 2)
    constants = [
        region.constant(
            f"{node.outputs[0].name}:{name}", to_blocked(each.astype(np.float32).reshape(channel_shape), region.block)
        )
        for name, each in (("factor", factor), ("summand", bias - mean * factor))
    ]
    scaled = region.add(node, "Mul", [x.value, constants[0]], shape)
    region.replace(node, [region.add(node, "Add", [scaled, constants[1]], shape)])


def _instance_norm(region: Region, node: Node) -> None:
    """Mean and variance are pools; the rest is elementwise."""
    start = carried_on(region, node)
    data = [constant_data(region.graph, value) for value in node.inputs[1:3]]
    if start is None or any(each is None for each in data):
        return
    x, shape = start
    pooled: Shape = (*shape[:2], *(1,) * (len(shape) - 2))
    channel_shape = (1, -1) + (1,) * (len(shape) - 2)
    scale, bias = (
        region.constant(f"{node.outputs[0].name}:{name}", to_blocked(each.numpy().reshape(channel_shape), region.block))
        for name, each in zip(("scale", "bias"), data)
        if each is not None
    )
    epsilon = region.constant(f"{node.outputs[0].name}:epsilon", np.array(attribute_values(node)["epsilon"], np.float32))
    mean = region.add(node, "BlockedGlobalPool", [x.value], pooled, domain=DOMAIN, kind="average")
    centred = region.add(node, "Sub", [x.value, mean], shape)
    squared = region.add(node, "Mul", [centred, centred], shape)
    variance = region.add(node, "BlockedGlobalPool", [squared], pooled, domain=DOMAIN, kind="average")
    deviation = region.add(node, "Sqrt", [region.add(node, "Add", [variance, epsilon], pooled)], pooled)
    factor = region.add(node, "Div", [scale, deviation], pooled)
    scaled = region.add(node, "Mul", [centred, factor], shape)
    region.replace(node, [region.add(node, "Add", [scaled, bias], shape)])


def _pad(region: Region, node: Node) -> None:
    """Padding of space is the same in blocks."""
    start = carried_on(region, node)
    if start is None:
        return
    x, shape = start
    rank = len(shape)
    data = constant_data(region.graph, node.inputs[1]) if len(node.inputs) > 1 else None
    amounts = [int(each) for each in (node.attr("pads") or () if data is None else data.numpy().reshape(-1))]
    axes = constant_data(region.graph, node.inputs[3]) if len(node.inputs) > 3 else None
    if len(node.inputs) > 3 and node.inputs[3] is not None and axes is None:
        amounts = []
    where = list(range(rank)) if axes is None else [int(axis) % rank for axis in axes.numpy().reshape(-1)]
    if len(amounts) != 2 * len(where) or any(
        amounts[at] or amounts[at + len(where)] for at, axis in enumerate(where) if axis < 2
    ):
        region.refuse(node, "what it adds is not known, or not only around the image")
        return
    before, after = [0] * (rank + 1), [0] * (rank + 1)
    for at, axis in enumerate(where):
        before[axis], after[axis] = amounts[at], amounts[at + len(where)]
    fill = node.inputs[2] if len(node.inputs) > 2 else None
    if fill is None and node.attr("value"):
        fill = region.constant(f"{node.outputs[0].name}:fill", np.array(node.attr("value"), np.float32))
    pads = region.constant(f"{node.outputs[0].name}:pads", np.array([*before, *after], np.int64))
    region.replace(node, [region.add(node, "Pad", [x.value, pads, fill], shape, mode=node.attr("mode"))])


def _slice(region: Region, node: Node) -> None:
    """Cutting out a part of space is the same in blocks."""
    start = carried_on(region, node)
    if start is None:
        return
    x, shape = start
    rank = len(shape)
    if len(node.inputs) < 4 or node.version < 10:
        region.refuse(node, "its axes are not given as an input")
        return
    axes = constant_data(region.graph, node.inputs[3])
    if axes is None or any(int(axis) % rank < 2 for axis in axes.numpy().reshape(-1)):
        region.refuse(node, "it cuts channels or the batch")
        return
    where = region.constant(f"{node.outputs[0].name}:axes", axes.numpy().astype(np.int64) % rank)
    inputs = [x.value, *node.inputs[1:3], where, *node.inputs[4:]]
    region.replace(node, [region.add(node, "Slice", inputs, shape)])


def _concat(region: Region, node: Node) -> None:
    if all(region.inside(value) is None for value in node.inputs):
        return
    images = [image_input(node, position) for position in range(len(node.inputs))]
    rank = max((len(value.shape or ()) for value in images if value is not None), default=0)
    shape = image_output(node, rank)
    if any(value is None for value in images) or shape is None:
        region.refuse(node, "not all inputs are float32 images with known channels")
        return
    if node.attr("axis") % rank != 1:
        region.refuse(node, "it does not join channels")
        return
    channels = [value.shape[1] for value in images if value is not None and value.shape is not None]
    blocked = [region.blocked(value, node) for value in images if value is not None]
    inputs: list[Value | None] = [each.value for each in blocked if each is not None]
    if any(isinstance(count, int) and count % region.block for count in channels[:-1]):
        region.replace(node, [region.add(node, "BlockedConcat", inputs, shape, domain=DOMAIN, channels=channels)])
        return
    region.replace(node, [region.add(node, "Concat", inputs, shape, axis=1)])


def _split(region: Region, node: Node) -> None:
    x = image_input(node)
    found = region.inside(x)
    if x is None or x.shape is None or found is None:
        return
    if node.attr("axis", 0) % len(x.shape) != 1:
        region.refuse(node, "it does not divide channels")
        return
    shapes = [output.shape for output in node.outputs]
    channels = [0 if shape is None else shape[1] for shape in shapes]
    if any(not isinstance(count, int) or not count or count % region.block for count in channels[:-1]) or not channels[-1]:
        region.refuse(node, f"parts of {channels} channels do not fill whole blocks of {region.block}")
        return
    types = [TensorType(dtypes.FLOAT32, blocked_shape(shape, region.block)) for shape in shapes if shape is not None]
    sizes = np.array([type_.shape[1] for type_ in types if type_.shape is not None], np.int64)
    results = [Value("", type_) for type_ in types]
    parts = region.constant(f"{node.outputs[0].name}:parts", sizes)
    made = Node("Split", [found.value, parts], results, [make_attr("axis", 1)], version=STANDARD_VERSION, name=node.name)
    region.graph.insert_before(node, made)
    region.replace(node, results)


def _resize(region: Region, node: Node) -> None:
    start = carried_on(region, node)
    x = node.inputs[0]
    if start is None or x is None or x.shape is None:
        return
    found, shape = start
    attrs = _resize_attributes(region, node, x.shape, shape)
    if _grows(x.shape, shape) and not _is_read_in_blocks(node.outputs[0]):
        attrs = "what it makes is larger than what it reads, and nobody reads it in blocks: it is put in plain order before"
    if isinstance(attrs, str):
        region.refuse(node, attrs)
        return
    inputs: list[Value | None] = [found.value]
    if "scales" not in attrs and "sizes" not in attrs:
        inputs.append(node.inputs[3])
    region.replace(node, [region.add(node, "BlockedResize", inputs, shape, domain=DOMAIN, **attrs)])


def _grows(before: Shape, after: Shape) -> bool:
    """Whether an image gets at least twice as many pixels; those of open sizes do, as far as anybody knows."""
    sizes = [size for size in (*before[2:], *after[2:]) if isinstance(size, int)]
    is_known = len(sizes) == 2 * len(before[2:])
    return not is_known or prod(sizes[len(before[2:]) :]) >= 2 * prod(sizes[: len(before[2:])])


def _is_read_in_blocks(value: Value) -> bool:
    """Whether a node that may stay in blocks reads a value."""
    return any((reader.domain, reader.op_type) in _RULES or is_elementwise(reader) for reader in value.consumers)


def _resize_attributes(region: Region, node: Node, before: Shape, after: Shape) -> dict[str, Any] | str:
    """The attributes of the BlockedResize that does what this Resize or Upsample does; or why there is none."""
    attrs = attribute_values(node)
    rank = len(before)
    old = node.op_type == "Upsample" or node.version < 11
    position = 1 if old else 2
    scales = constant_data(region.graph, node.inputs[position]) if len(node.inputs) > position else None
    factors = [] if scales is None else [float(each) for each in scales.numpy().reshape(-1)]
    if old and not factors:
        factors = [float(each) for each in attrs.get("scales") or ()]
    axes = [axis % rank for axis in attrs.get("axes") or range(rank)]
    made: dict[str, Any] = {"mode": attrs["mode"], "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if not old:
        made["coordinate_transformation_mode"] = attrs["coordinate_transformation_mode"]
        made["nearest_mode"] = attrs["nearest_mode"]
    if made["mode"] not in ("nearest", "linear") or made["coordinate_transformation_mode"] == "tf_crop_and_resize":
        return f"there is no blocked kernel for {made['mode']} interpolation with {made['coordinate_transformation_mode']}"
    if attrs.get("antialias") or attrs.get("exclude_outside") or attrs.get("keep_aspect_ratio_policy") not in (None, "stretch"):
        return "it smooths, leaves pixels out or keeps the aspect ratio"
    known = all(isinstance(dim, int) for dim in (*before[2:], *after[2:]))
    if rank > 4 or before[:2] != after[:2]:
        return "it changes more than two spatial axes"
    if factors:
        by_axis = dict(zip(axes, factors))
        if old and min(factors) < 1:
            return "it shrinks by a rule of old operators"
        made["scales"] = [by_axis.get(axis, 1.0) for axis in range(2, rank)]
    elif known:
        made["sizes"] = list(after[2:])
    is_given = factors or not any(isinstance(dim, DimExpr) and dim.is_anonymous for dim in after[2:])
    if not is_given or (not factors and axes not in (list(range(rank)), list(range(2, rank)))):
        return "its sizes are known only when it runs"
    return made


_Rule = Callable[[Region, Node], None]
_RULES: Final[dict[tuple[str, str], _Rule]] = {
    ("", "Conv"): _conv,
    ("", "ConvTranspose"): _conv_transpose,
    ("", "MaxPool"): _pool,
    ("", "AveragePool"): _pool,
    ("", "GlobalAveragePool"): _global_pool,
    ("", "GlobalMaxPool"): _global_pool,
    ("", "ReduceMean"): _reduce,
    ("", "ReduceMax"): _reduce,
    ("", "BatchNormalization"): _batch_norm,
    ("", "InstanceNormalization"): _instance_norm,
    ("", "Pad"): _pad,
    ("", "Slice"): _slice,
    ("", "Concat"): _concat,
    ("", "Split"): _split,
    ("", "Resize"): _resize,
    ("", "Upsample"): _resize,
    **GRADIENT_RULES,
}
