"""`qnn_preprocess_model`: nodes that are one operator for QNN made one, inputs and outputs with channels last."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx import save
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.quantization import graph_fusions
from sardonyx.quantization.models import opset_version, read_model, write_model

logger = logging.getLogger(__name__)


def qnn_preprocess_model(
    model_input: Any,
    model_output: str | Path,
    exclude_initializer_from_input: bool = False,
    fuse_layernorm: bool = False,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    external_data_convert_attribute: bool = False,
    inputs_to_make_channel_last: Sequence[str] | None = None,
    outputs_to_make_channel_last: Sequence[str] | None = None,
    dynamic_input_shapes: Sequence[tuple[str, str]] | None = None,
) -> bool:
    """Prepare a model (a path or an onnx.ModelProto) for QNN; whether it had to be changed, and has been written.

    `dynamic_input_shapes` fixes shapes of inputs, as ("x", "1,3,224,224"). External data goes to one file.
    """
    model = read_model(model_input)
    graph = model.graph
    is_changed = False
    for name, text in dynamic_input_shapes or ():
        _fix_shape(model, name, text)
        is_changed = True
    if exclude_initializer_from_input and any(value.constant is not None for value in graph.inputs):
        graph.inputs = [value for value in graph.inputs if value.constant is None]
        is_changed = True
    is_changed |= bool(graph_fusions.fuse_gelu(model))
    is_changed |= bool(graph_fusions.fuse_lp_norms(model))
    is_changed |= bool(graph_fusions.fuse_space_to_depth(model))
    if fuse_layernorm:
        if opset_version(model) < 17:
            logger.warning("LayerNormalization has been there since opset 17, and the model has %d", opset_version(model))
        is_changed |= bool(graph_fusions.fuse_layer_norms(model))
    if inputs_to_make_channel_last or outputs_to_make_channel_last:
        _make_channels_last(model, inputs_to_make_channel_last or (), outputs_to_make_channel_last or ())
        is_changed = True
    is_changed |= _name_nodes(graph)
    if is_changed and save_as_external_data:
        location = external_data_location or f"{os.path.basename(os.fspath(model_output))}.data"
        save(model, model_output, external_data=location, external_threshold=external_data_size_threshold)
    elif is_changed:
        write_model(model, model_output, external=False)
    return is_changed


def _fix_shape(model: Model, name: str, text: str) -> None:
    value = next((each for each in model.graph.inputs if each.name == name), None)
    if value is None or not isinstance(value.type, TensorType):
        raise InvalidArgument(f"dynamic_input_shapes: the model has no tensor input {name!r}")
    value.type = TensorType(value.type.dtype, tuple(int(size) for size in text.split(",")))
    infer_shapes(model)


def _make_channels_last(model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Transpose inputs to [N, C, ...] behind them, and outputs to [N, ..., C] before them."""
    graph, version = model.graph, opset_version(model)
    number = 1 + max((int(node.name[18:]) for node in graph.nodes if _is_numbered(node.name)), default=-1)
    for kind, names, values in (("input", inputs, graph.inputs), ("output", outputs, graph.outputs)):
        for name in names:
            value = next((each for each in values if each.name == name), None)
            if value is None:
                raise ValueError(f"{name} is not a graph {kind}")
            shape = value.shape
            if shape is None or not isinstance(value.type, TensorType) or len(shape) < 3:
                raise ValueError(f"Expected {kind} {name} to be of rank >= 3")
            rank = len(shape)
            last = TensorType(value.type.dtype, (shape[0], *shape[2:], shape[1]))
            inner = Value(f"{name}_channel_first_0", value.type)
            if kind == "input":
                for node, index in list(value.uses):
                    node.set_input(index, inner)
                value.type = last
                perm = [0, rank - 1, *range(1, rank - 1)]
                node = Node("Transpose", [value], [inner], [make_attr("perm", perm)], version=version)
                first = next(graph.nodes, None)
                graph.append(node) if first is None else graph.insert_before(first, node)
            else:
                value.name = inner.name
                given_out = Value(name, last)
                graph.outputs[graph.outputs.index(value)] = given_out
                perm = [0, *range(2, rank), 1]
                node = graph.append(Node("Transpose", [value], [given_out], [make_attr("perm", perm)], version=version))
            node.name = f"Transpose_channel_{number}"
            number += 1


def _is_numbered(name: str) -> bool:
    return name.startswith("Transpose_channel_") and name[18:].isascii() and name[18:].isdigit()


def _name_nodes(graph: Graph) -> bool:
    """Give names to nodes that have none; whether there were such."""
    taken = {node.name for node in graph.nodes}
    number = 0
    is_changed = False
    for node in graph.nodes:
        if node.op_type == "Constant" or node.name:
            continue
        while f"qnn_preproc_node_{number}" in taken:
            number += 1
        node.name = f"qnn_preproc_node_{number}"
        taken.add(node.name)
        is_changed = True
    return is_changed
