"""Bring the convolutional parts of a graph into the blocked layout, with conversions only at the borders.

    y = Relu(Conv(x, w))          =>   Y = BlockedConv(x, w) {block = 16, plain = 1};  U = Relu(Y)
    z = MaxPool(y)                     Z = BlockedPool(U)
    r = Reshape(z, ...)                z = FromBlocked(Z);  r = Reshape(z, ...)

A convolution starts a region. Elementwise nodes, pools, channel concatenations and splits, and resizing carry it on; everything
else gets its inputs back in plain order. Constants that vary along the channels are reordered. Runs after all passes that look
for standard convolutions. Refuses convolutions whose weights are not constant or whose groups do not fit the blocks, and
says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Attr, Graph, Model, Node, Value
from sardonyx.ir.tensor import Array, Tensor, from_numpy
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops import registry
from sardonyx.ops.layout import DOMAIN, blocked_shape, fits_blocks, repeats, to_blocked
from sardonyx.ops.registry import Trait
from sardonyx.passes.protocol import PassResult

_NOT_ELEMENTWISE: Final = frozenset(("SwiGLU", "Cast", "BitCast"))
_CONV_ATTRS: Final = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_TRANSPOSE_ATTRS: Final = (*_CONV_ATTRS, "output_padding", "output_shape")
_POOL_ATTRS: Final = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")
_VERSION: Final = 13  # of the standard operators made here


@dataclass(frozen=True)
class AssignLayout:
    """Blocks of as many channels as a vector has lanes."""

    lanes: int
    name: ClassVar[str] = "assign-layout"
    ort_names: ClassVar[tuple[str, ...]] = ("NchwcTransformer",)

    def run(self, model: Model) -> PassResult:
        """Change the model in place; its types must be inferred."""
        return assign_layout(model.graph, self.lanes)


def assign_layout(graph: Graph, lanes: int) -> PassResult:
    """Rewrite a graph and its subgraphs for vectors of so many float32 lanes."""
    region = _Region(graph, lanes)
    region.walk()
    modified, reasons = region.modified, list(region.reasons)
    for node in list(graph.nodes):
        for subgraph in node.subgraphs():
            inner = assign_layout(subgraph, lanes)
            modified |= inner.modified
            reasons += inner.reasons
    return PassResult(modified, tuple(reasons))


@dataclass(frozen=True)
class _Blocked:
    """A value in the blocked layout. `made` there, not converted from a plain one that still exists."""

    value: Value
    channels: int
    made: bool


@dataclass
class _Region:
    graph: Graph
    block: int
    known: dict[Value, _Blocked] = field(default_factory=dict)  # plain value -> the same in blocks
    reasons: list[str] = field(default_factory=list)
    modified: bool = False
    _constants: dict[tuple[Value, int], Value] = field(default_factory=dict)

    def walk(self) -> None:
        for node in list(self.graph.nodes):
            rule = _RULES.get((node.domain, node.op_type))
            if rule is None and _is_elementwise(node):
                rule = _elementwise
            if rule is not None:
                rule(self, node)
        self._give_back()

    def _give_back(self) -> None:
        """Plain values that are still read are made from the blocked ones."""
        for value, blocked in self.known.items():
            if blocked.made and (value.uses or value in self.graph.outputs):
                producer = blocked.value.producer
                assert producer is not None
                attrs = [make_attr("channels", blocked.channels)]
                node = Node("FromBlocked", [blocked.value], [value], attrs, domain=DOMAIN, version=1, name=value.name)
                self.graph.insert_after(producer, node)

    # What rules use

    def refuse(self, node: Node, reason: str) -> None:
        """Leave a node plain and say why."""
        self.reasons.append(f"{node.label}: {reason}")

    def inside(self, value: Value | None) -> _Blocked | None:
        """A value of the region; None if it is plain, even if somebody had it converted."""
        found = None if value is None else self.known.get(value)
        return found if found is not None and found.made else None

    def blocked(self, value: Value, before: Node) -> _Blocked | None:
        """A value in blocks, converted if need be; None if it cannot be."""
        found = self.known.get(value)
        if found is None:
            shape = value.shape
            if not _is_float(value) or shape is None or len(shape) < 3 or not isinstance(shape[1], int) or shape[1] == 0:
                return None
            made = self.add(before, "ToBlocked", [value], shape, domain=DOMAIN, block=self.block)
            found = self.known[value] = _Blocked(made, shape[1], False)
        return found

    def add(
        self, before: Node, op_type: str, inputs: list[Value | None], shape: Shape, *, domain: str = "", **attrs: Any
    ) -> Value:
        """A new node with a blocked result, whose plain shape is given."""
        value = Value(f"{before.outputs[0].name}:{op_type}", TensorType(dtypes.FLOAT32, blocked_shape(shape, self.block)))
        made = [make_attr(key, each) for key, each in attrs.items() if each is not None]
        version = 1 if domain == DOMAIN else _VERSION
        self.graph.insert_before(before, Node(op_type, inputs, [value], made, domain=domain, version=version, name=before.name))
        return value

    def constant(self, name: str, data: Array) -> Value:
        """A new initializer."""
        free = name
        number = 0
        while free in self.graph.initializers:
            number += 1
            free = f"{name}_{number}"
        return self.graph.add_initializer(free, from_numpy(data))

    def replace(self, node: Node, results: list[Value]) -> None:
        """The node's outputs are these blocked values from now on."""
        for output, result in zip(node.outputs, results):
            shape = output.shape
            assert shape is not None
            assert isinstance(shape[1], int)
            result.name = f"{output.name}:blocked"
            self.known[output] = _Blocked(result, shape[1], True)
            output.producer = None
        self._discard(node)

    def flatten(self, node: Node, pooled: Value, shape: Shape) -> None:
        """The node's output is a pooled value without its spatial axes."""
        plain = Value(f"{node.outputs[0].name}:pooled", TensorType(dtypes.FLOAT32, shape))
        attrs = [make_attr("channels", shape[1])]
        self.graph.insert_before(node, Node("FromBlocked", [pooled], [plain], attrs, domain=DOMAIN, version=1, name=node.name))
        axes = self.constant(f"{node.outputs[0].name}:axes", np.arange(2, len(shape)))
        squeezed = Node("Squeeze", [plain, axes], [node.outputs[0]], version=_VERSION, name=node.name)
        self.graph.insert_before(node, squeezed)
        self._discard(node)

    def _discard(self, node: Node) -> None:
        self.graph.detach(node)
        for index in range(len(node.inputs)):
            node.set_input(index, None)
        self.modified = True

    def operand(self, value: Value, channels: int, rank: int, before: Node) -> Value | None:
        """An input of an elementwise node of so many channels, in blocks or as something that broadcasts to them."""
        found = self.known.get(value)
        if found is not None and found.channels == channels and value.shape is not None and len(value.shape) == rank:
            return found.value
        shape = value.shape
        if not _is_float(value) or shape is None or len(shape) > rank:
            return None
        if all(size == 1 for size in shape):
            return value if self.inside(value) is None else None
        data = _data(self.graph, value)
        if data is not None:
            return self._reordered(value, data, channels, rank)
        if len(shape) < rank:
            return None
        if shape[1] == channels:
            converted = self.blocked(value, before)
            return None if converted is None else converted.value
        if shape[1] == 1:  # one for all channels: one lane that is repeated
            axes = self.constant(f"{value.name}:axes", np.array([-1], np.int64))
            made = Value(f"{value.name}:lane", TensorType(dtypes.FLOAT32, (*shape, 1)))
            self.graph.insert_before(before, Node("Unsqueeze", [value, axes], [made], version=_VERSION))
            return made
        return None

    def _reordered(self, value: Value, data: Tensor, channels: int, rank: int) -> Value | None:
        """A constant that varies along channels or space, as it broadcasts to blocks."""
        found = self._constants.get((value, channels))
        if found is None:
            shape = (1,) * (rank - len(data.shape)) + data.shape
            array = data.numpy().reshape(shape)
            if shape[1] == channels:
                array = to_blocked(array, self.block)
            elif shape[1] == 1:
                array = array.reshape(*shape, 1)
            else:
                return None
            found = self._constants[value, channels] = self.constant(f"{value.name}:blocked", array)
        return found


def _is_float(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype is dtypes.FLOAT32


def _data(graph: Graph, value: Value | None) -> Tensor | None:
    """The data of a constant."""
    if value is None or not isinstance(value.constant, Tensor) or value in graph.inputs:
        return None
    return value.constant


def _is_elementwise(node: Node) -> bool:
    if node.op_type in _NOT_ELEMENTWISE or (node.domain == "" and node.version < 7) or len(node.outputs) != 1:
        return False
    if node.domain not in ("", "com.microsoft") or (node.domain and len(node.inputs) != 1):
        return False
    definition = registry.lookup(node.domain, node.op_type, node.version)
    return definition is not None and Trait.ELEMENTWISE in definition.traits


def _attrs(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    """The attributes a node carries, out of these."""
    return {name: node.attrs[name].value for name in names if name in node.attrs}


def _image(node: Node, position: int = 0) -> Value | None:
    """An input that is an image: float32 [N, C, ...] with a known number of channels."""
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None or not _is_float(value) or value.shape is None or len(value.shape) < 3:
        return None
    return value if isinstance(value.shape[1], int) and value.shape[1] > 0 else None


def _output_shape(node: Node, rank: int) -> Shape | None:
    """The shape of the output, if it is an image as well."""
    output = node.outputs[0]
    if not _is_float(output) or output.shape is None or len(output.shape) != rank:
        return None
    return output.shape if isinstance(output.shape[1], int) and output.shape[1] > 0 else None


def _kernels(region: _Region, node: Node, x: Value) -> Tensor | None:
    """The weights of a convolution that can be blocked; None, with a reason, if it cannot be."""
    weights = _data(region.graph, node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if weights is None or (bias is not None and _data(region.graph, bias) is None):
        region.refuse(node, "its weights or its bias are not constant")
        return None
    if len(weights.shape) > 5 or 0 in weights.shape or x.shape is None or len(x.shape) != len(weights.shape):
        region.refuse(node, f"there is no blocked kernel for weights of shape {list(weights.shape)}")
        return None
    return weights


def _conv(region: _Region, node: Node) -> None:
    x = _image(node)
    shape = None if x is None or x.shape is None else _output_shape(node, len(x.shape))
    if x is None or shape is None:
        region.refuse(node, "its types are not float32 or its channels are not known")
        return
    weights = _kernels(region, node, x)
    if weights is None:
        return
    block, groups = region.block, int(node.attr("group", 1))
    inputs, outputs = weights.shape[1], weights.shape[0] // groups
    if not fits_blocks(groups, inputs, outputs, block):
        region.refuse(node, f"{groups} groups of {inputs} and {outputs} channels do not fit blocks of {block}")
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
        **_attrs(node, _CONV_ATTRS),
    )
    region.replace(node, [made])


def _conv_transpose(region: _Region, node: Node) -> None:
    x = _image(node)
    shape = None if x is None or x.shape is None else _output_shape(node, len(x.shape))
    if x is None or shape is None:
        region.refuse(node, "its types are not float32 or its channels are not known")
        return
    weights = _kernels(region, node, x)
    if weights is None:
        return
    groups = int(node.attr("group", 1))
    inputs, outputs = weights.shape[0] // groups, weights.shape[1]
    if groups > 1 and (inputs % region.block or outputs % region.block):
        region.refuse(node, f"{groups} groups of {inputs} and {outputs} channels do not fit blocks of {region.block}")
        return
    if any(step != 1 for step in node.attr("dilations") or ()):
        region.refuse(node, "there is no kernel for transposed convolutions with dilations")
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
        **_attrs(node, _TRANSPOSE_ATTRS),
    )
    region.replace(node, [made])


def _carried_on(region: _Region, node: Node) -> tuple[_Blocked, Shape] | None:
    """The first input and the output shape of a node that continues a region."""
    x = _image(node)
    found = region.inside(x)
    if x is None or x.shape is None or found is None:
        return None
    shape = _output_shape(node, len(x.shape))
    return None if shape is None else (found, shape)


def _pool(region: _Region, node: Node) -> None:
    start = _carried_on(region, node)
    if start is None:
        return
    if len(node.outputs) > 1 and (node.outputs[1].uses or node.outputs[1] in region.graph.outputs):
        region.refuse(node, "the places of the maxima are wanted")
        return
    x, shape = start
    if len(shape) > 5:
        region.refuse(node, f"there is no blocked pool for {len(shape) - 2} spatial axes")
        return
    kind = "max" if node.op_type == "MaxPool" else "average"
    made = region.add(node, "BlockedPool", [x.value], shape, domain=DOMAIN, kind=kind, **_attrs(node, _POOL_ATTRS))
    region.replace(node, [made])


def _global_pool(region: _Region, node: Node) -> None:
    start = _carried_on(region, node)
    if start is None:
        return
    x, shape = start
    kind = "max" if node.op_type == "GlobalMaxPool" else "average"
    made = region.add(node, "BlockedGlobalPool", [x.value], shape, domain=DOMAIN, kind=kind)
    region.replace(node, [made])


def _reduce(region: _Region, node: Node) -> None:
    """ReduceMean or ReduceMax over all spatial axes is a global pool."""
    source = _image(node)
    x = region.inside(source)
    if x is None or source is None or source.shape is None or not _is_float(node.outputs[0]):
        return
    shape: Shape = (*source.shape[:2], *(1,) * (len(source.shape) - 2))
    axes: Any = node.attr("axes")
    if axes is None and len(node.inputs) > 1:
        data = _data(region.graph, node.inputs[1])
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


def _elementwise(region: _Region, node: Node) -> None:
    started = [value for value in node.inputs if value is not None and region.inside(value) is not None]
    if not started:
        return
    rank = max(len(value.shape or ()) for value in started)
    shape = _output_shape(node, rank)
    if shape is None:
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
    result = Value("", TensorType(dtypes.FLOAT32, blocked_shape(shape, region.block)))
    made = Node(node.op_type, inputs, [result], attrs, domain=node.domain, version=node.version, name=node.name)
    region.graph.insert_before(node, made)
    region.replace(node, [result])


def _batch_norm(region: _Region, node: Node) -> None:
    """What no convolution took in is a multiplication and an addition."""
    start = _carried_on(region, node)
    data = [_data(region.graph, value) for value in node.inputs[1:5]]
    if start is None or any(each is None for each in data) or len(node.outputs) > 1 or node.attr("training_mode", 0):
        return
    x, shape = start
    scale, bias, mean, variance = (each.numpy().astype(np.float64) for each in data if each is not None)
    factor = scale / np.sqrt(variance + float(attribute_values(node)["epsilon"]))
    spread = (1, -1) + (1,) * (len(shape) - 2)
    constants = [
        region.constant(f"{node.outputs[0].name}:{name}", to_blocked(each.astype(np.float32).reshape(spread), region.block))
        for name, each in (("factor", factor), ("summand", bias - mean * factor))
    ]
    scaled = region.add(node, "Mul", [x.value, constants[0]], shape)
    region.replace(node, [region.add(node, "Add", [scaled, constants[1]], shape)])


def _instance_norm(region: _Region, node: Node) -> None:
    """Mean and variance are pools; the rest is elementwise."""
    start = _carried_on(region, node)
    data = [_data(region.graph, value) for value in node.inputs[1:3]]
    if start is None or any(each is None for each in data):
        return
    x, shape = start
    pooled: Shape = (*shape[:2], *(1,) * (len(shape) - 2))
    spread = (1, -1) + (1,) * (len(shape) - 2)
    scale, bias = (
        region.constant(f"{node.outputs[0].name}:{name}", to_blocked(each.numpy().reshape(spread), region.block))
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


def _pad(region: _Region, node: Node) -> None:
    """Padding of space is the same in blocks."""
    start = _carried_on(region, node)
    if start is None:
        return
    x, shape = start
    rank = len(shape)
    data = _data(region.graph, node.inputs[1]) if len(node.inputs) > 1 else None
    amounts = [int(each) for each in (node.attr("pads") or () if data is None else data.numpy().reshape(-1))]
    axes = _data(region.graph, node.inputs[3]) if len(node.inputs) > 3 else None
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


def _slice(region: _Region, node: Node) -> None:
    """Cutting out a part of space is the same in blocks."""
    start = _carried_on(region, node)
    if start is None:
        return
    x, shape = start
    rank = len(shape)
    if len(node.inputs) < 4 or node.version < 10:
        region.refuse(node, "its axes are not given as an input")
        return
    axes = _data(region.graph, node.inputs[3])
    if axes is None or any(int(axis) % rank < 2 for axis in axes.numpy().reshape(-1)):
        region.refuse(node, "it cuts channels or the batch")
        return
    where = region.constant(f"{node.outputs[0].name}:axes", axes.numpy().astype(np.int64) % rank)
    inputs = [x.value, *node.inputs[1:3], where, *node.inputs[4:]]
    region.replace(node, [region.add(node, "Slice", inputs, shape)])


def _concat(region: _Region, node: Node) -> None:
    if all(region.inside(value) is None for value in node.inputs):
        return
    images = [_image(node, position) for position in range(len(node.inputs))]
    rank = max((len(value.shape or ()) for value in images if value is not None), default=0)
    shape = _output_shape(node, rank)
    if any(value is None for value in images) or shape is None:
        region.refuse(node, "not all inputs are float32 images with known channels")
        return
    if node.attr("axis") % rank != 1:
        region.refuse(node, "it does not join channels")
        return
    channels = [value.shape[1] for value in images if value is not None and value.shape is not None]
    if any(not isinstance(count, int) or count % region.block for count in channels[:-1]):
        region.refuse(node, f"channels {channels} do not fill whole blocks of {region.block}")
        return
    blocked = [region.blocked(value, node) for value in images if value is not None]
    inputs: list[Value | None] = [each.value for each in blocked if each is not None]
    region.replace(node, [region.add(node, "Concat", inputs, shape, axis=1)])


def _split(region: _Region, node: Node) -> None:
    x = _image(node)
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
    made = Node("Split", [found.value, parts], results, [make_attr("axis", 1)], version=_VERSION, name=node.name)
    region.graph.insert_before(node, made)
    region.replace(node, results)


def _resize(region: _Region, node: Node) -> None:
    start = _carried_on(region, node)
    x = node.inputs[0]
    if start is None or x is None or x.shape is None:
        return
    found, shape = start
    attrs = _resize_attributes(region, node, x.shape, shape)
    if isinstance(attrs, str):
        region.refuse(node, attrs)
        return
    region.replace(node, [region.add(node, "BlockedResize", [found.value], shape, domain=DOMAIN, **attrs)])


def _resize_attributes(region: _Region, node: Node, before: Shape, after: Shape) -> dict[str, Any] | str:
    """The attributes of the BlockedResize that does what this Resize or Upsample does; or why there is none."""
    attrs = attribute_values(node)
    rank = len(before)
    old = node.op_type == "Upsample" or node.version < 11
    position = 1 if old else 2
    scales = _data(region.graph, node.inputs[position]) if len(node.inputs) > position else None
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
    if not known and ("scales" not in made or repeats(made) is None):
        return "the sizes are not known and pixels are not simply repeated"
    return made


_Rule = Callable[[_Region, Node], None]
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
}
