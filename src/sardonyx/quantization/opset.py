"""A model written against newer versions of ONNX's operators: what they say with inputs, earlier ones say with attributes.

Squeeze(x) {axes = [1]}   (11)   ->   Squeeze(x, [1])   (13)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Model, Node, Value, walk
from sardonyx.ir.types import TensorType
from sardonyx.quantization.models import opset_version
from sardonyx.quantization.types import QuantType, element_type

logger = logging.getLogger(__name__)
_IR_VERSIONS: Final = ((21, 10), (19, 9), (15, 8), (13, 7), (11, 6), (10, 5))  # which version of the file format came with them
_SIXTEEN_BITS: Final = (dtypes.UINT16, dtypes.INT16)


def raise_opset(model: Model, version: int) -> None:
    """Rewrite a model against a newer version; InvalidArgument for a node whose meaning cannot be said there."""
    present = opset_version(model)
    if present >= version:
        return
    for graph in (model.graph, *(inner for node in walk(model.graph) for inner in node.subgraphs())):
        for node in graph.nodes:
            if not node.domain:
                for since, change in _CHANGES.get(node.op_type, ()):
                    if node.version < since <= version:
                        change(graph, node)
                node.version = version
    model.opset_imports[""] = version
    model.ir_version = max(model.ir_version, next((ir for since, ir in _IR_VERSIONS if version >= since), model.ir_version))


def required_opset(
    version: int,
    weight_type: Any,
    activation_type: Any = None,
    tensor_quant_overrides: Mapping[str, Any] | None = None,
    block_size: int = 0,
) -> int:
    """The version that a model of this version must be raised to, to be quantized to these types."""
    weight = element_type(weight_type)
    used = {weight} | ({element_type(activation_type)} if activation_type is not None else set())
    try:
        every = [each for given in (tensor_quant_overrides or {}).values() for each in given]
        every += [each["convert"] for each in every if each.get("convert")]
        used |= {each["quant_type"].dtype for each in every if isinstance(each.get("quant_type"), QuantType)}
    except (AttributeError, TypeError):  # whoever quantizes says what is wrong with them
        logger.debug("TensorQuantOverrides are not as expected: they do not count for the version of the operators")
    target = 11 if version < 10 else version
    if block_size > 0 or used.intersection(_SIXTEEN_BITS):
        target = max(target, 21)
    elif weight is dtypes.FLOAT8E4M3FN:
        target = max(target, 19)
    if target > version:
        logger.warning("the model is raised from opset %d to %d, which can express the quantized model", version, target)
    return target


def _input(graph: Graph, node: Node, index: int, name: str, data: Any) -> None:
    """Give a node a constant input."""
    while len(node.inputs) <= index:
        node.append_input(None)
    base = f"{node.outputs[0].name}_{name}"
    free, number = base, 0
    while free in graph.initializers:
        number += 1
        free = f"{base}_{number}"
    node.set_input(index, graph.add_initializer(free, tensor.from_numpy(np.asarray(data))))


def _attributes_to_inputs(*names: str, first: int = 1) -> Callable[[Graph, Node], None]:
    """Attributes of whole numbers, given by inputs from a position on."""

    def change(graph: Graph, node: Node) -> None:
        for index, name in enumerate(names, first):
            attr = node.attrs.pop(name, None)
            if attr is not None:
                value = attr.value
                _input(graph, node, index, name, np.array([value] if isinstance(value, int) else value, np.int64))

    return change


def _real_dtype(node: Node) -> Any:
    value = node.inputs[0]
    type_ = None if value is None else value.type
    return type_.dtype.numpy if isinstance(type_, TensorType) else np.dtype(np.float32)


def _slice(graph: Graph, node: Node) -> None:
    starts = node.attr("starts", ())
    axes = node.attr("axes", tuple(range(len(starts))))
    for index, (name, value) in enumerate((("starts", starts), ("ends", node.attr("ends", ())), ("axes", axes)), 1):
        node.attrs.pop(name, None)
        _input(graph, node, index, name, np.array(value, np.int64))


def _clip(graph: Graph, node: Node) -> None:
    for index, name in enumerate(("min", "max"), 1):
        attr = node.attrs.pop(name, None)
        if attr is not None:
            _input(graph, node, index, name, np.array(attr.value, _real_dtype(node)))


def _pad(graph: Graph, node: Node) -> None:
    pads, filling = node.attrs.pop("pads", None), node.attrs.pop("value", None)
    _input(graph, node, 1, "pads", np.array(pads.value if pads is not None else (), np.int64))
    if node.attr("mode", "constant") == "constant":
        _input(graph, node, 2, "value", np.array(filling.value if filling is not None else 0, _real_dtype(node)))


def _dropout(graph: Graph, node: Node) -> None:
    attr = node.attrs.pop("ratio", None)
    if attr is not None:
        _input(graph, node, 1, "ratio", np.array(attr.value, np.float32))


def _upsample(graph: Graph, node: Node) -> None:
    """Upsample, which Resize has replaced."""
    attr = node.attrs.pop("scales", None)
    if attr is not None:
        _input(graph, node, 1, "scales", np.array(attr.value, np.float32))
    node.op_type = "Resize"
    _resize(graph, node)


def _resize(graph: Graph, node: Node) -> None:
    """Resize of opset 10, whose coordinates are asymmetric, and whose second input is not the region."""
    scales = node.inputs[1]
    node.set_input(1, None)
    _input(graph, node, 1, "roi", np.zeros(0, np.float32))
    while len(node.inputs) < 3:
        node.append_input(None)
    node.set_input(2, scales)
    node.attrs["coordinate_transformation_mode"] = make_attr("coordinate_transformation_mode", "asymmetric")
    if node.attr("mode", "nearest") == "nearest":
        node.attrs["nearest_mode"] = make_attr("nearest_mode", "floor")


def _softmax(graph: Graph, node: Node) -> None:
    """Softmax over all axes from one on; since opset 13 it is over one axis."""
    axis = node.attr("axis", 1)
    value = node.inputs[0]
    rank = None if value is None or value.shape is None else len(value.shape)
    if axis == -1 or (rank is not None and axis % rank == rank - 1):
        node.attrs["axis"] = make_attr("axis", -1)
        return
    result = node.outputs[0]
    shape, flat, found = (Value(f"{result.name}_{end}") for end in ("shape", "flat", "flat_result"))
    version = node.version
    graph.insert_before(node, Node("Shape", [value], [shape], version=version))
    graph.insert_before(node, Node("Flatten", [value], [flat], [make_attr("axis", axis)], version=version))
    node.set_input(0, flat)
    node.attrs["axis"] = make_attr("axis", -1)
    node.outputs[0] = found
    found.producer, found.index = node, 0
    graph.insert_after(node, Node("Reshape", [found, shape], [result], version=version))


def _split_outputs(graph: Graph, node: Node) -> None:
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attrs["num_outputs"] = make_attr("num_outputs", len(node.outputs))


def _batch_normalization(graph: Graph, node: Node) -> None:
    if node.attr("spatial", 1) != 1:
        _refuse(graph, node)
    node.attrs.pop("spatial", None)
    if len(node.outputs) > 1:
        _refuse(graph, node)


def _grid_sample(graph: Graph, node: Node) -> None:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.attr("mode", "bilinear")
    node.attrs["mode"] = make_attr("mode", names.get(mode, mode))


def _renamed(name: str) -> Callable[[Graph, Node], None]:
    def change(graph: Graph, node: Node) -> None:
        node.op_type = name

    return change


def _refuse(graph: Graph, node: Node) -> None:
    raise InvalidArgument(
        f"{node.label} of opset {node.version} cannot be rewritten against a newer one",
        hint="export the model with opset 21 or newer, then quantize it",
    )


_Change = Callable[[Graph, Node], None]
_CHANGES: Final[dict[str, tuple[tuple[int, _Change], ...]]] = {  # the first version that says it anew, and how
    "BatchNormalization": ((9, _batch_normalization),),
    "Clip": ((11, _clip),),
    "Dropout": ((12, _dropout),),
    "GridSample": ((20, _grid_sample),),
    "GroupNormalization": ((21, _refuse),),
    "Hardmax": ((13, _softmax),),
    "LogSoftmax": ((13, _softmax),),
    "Pad": ((11, _pad),),
    "ReduceSum": ((13, _attributes_to_inputs("axes")),),
    "Resize": ((11, _resize),),
    "Scan": ((9, _refuse),),
    "Scatter": ((11, _renamed("ScatterElements")),),
    "Slice": ((10, _slice),),
    "Softmax": ((13, _softmax),),
    "Split": ((13, _attributes_to_inputs("split")), (18, _split_outputs)),
    "Squeeze": ((13, _attributes_to_inputs("axes")),),
    "TopK": ((10, _attributes_to_inputs("k")),),
    "Unsqueeze": ((13, _attributes_to_inputs("axes")),),
    "Upsample": ((11, _upsample),),
    **{
        f"Reduce{name}": ((18, _attributes_to_inputs("axes")),)
        for name in ("Max", "Min", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    },
}
