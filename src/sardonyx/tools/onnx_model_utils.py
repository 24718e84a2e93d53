"""Small changes of ONNX messages: `onnxruntime.tools.onnx_model_utils`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sardonyx.enums import GraphOptimizationLevel
from sardonyx.options import SessionOptions
from sardonyx.session.inference_session import InferenceSession
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference

_LEVELS = {
    "disable": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph, then those in the attributes of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def iterate_graph_per_node_func(graph: Any, per_node_func: Callable[..., Any], **func_args: Any) -> None:
    """Call a function for every node, those of subgraphs included."""
    for each in _graphs(graph):
        for node in each.node:
            per_node_func(node, **func_args)


def iterate_graph_per_graph_func(graph: Any, per_graph_func: Callable[..., Any], **func_args: Any) -> None:
    """Call a function for a graph and every subgraph."""
    for each in _graphs(graph):
        per_graph_func(each, **func_args)


def get_opsets_imported(model: Any) -> dict[str, int]:
    """Versions of operator sets by domain; that of ONNX is `ai.onnx`."""
    return {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}


def update_onnx_opset(model_path: Path, opset: int, out_path: Path | None = None, logger: logging.Logger | None = None) -> Any:
    """Convert a model to another version of ONNX's operators; returned, and written if there is a path for it."""
    import onnx
    from onnx import version_converter

    if logger:
        logger.info("Updating %s to opset %d", model_path, opset)
    updated = version_converter.convert_version(onnx.load(os.fspath(Path(model_path).resolve(strict=True))), opset)
    if out_path:
        onnx.save(updated, os.fspath(out_path))
    return updated


def optimize_model(
    model_path: Path,
    output_path: Path,
    level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_BASIC,
    log_level: int = 3,
    use_external_initializers: bool = False,
) -> None:
    """Write a model as the passes of a level leave it."""
    options = SessionOptions()
    options.optimized_model_filepath = os.fspath(output_path)
    options.graph_optimization_level = level
    options.log_severity_level = log_level
    if use_external_initializers:
        name = f"{Path(output_path).name}.data"
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", name)
    InferenceSession(os.fspath(model_path), options, providers=["CPUExecutionProvider"])


def get_optimization_level(level: str) -> GraphOptimizationLevel:
    """A level by its short name."""
    if level not in _LEVELS:
        raise ValueError(f"Invalid optimization level of {level}: expected {', '.join(_LEVELS)}")
    return _LEVELS[level]


def _shapes(graph: Any) -> Iterator[Any]:
    """The shapes of all values that a graph and its subgraphs describe."""
    for each in _graphs(graph):
        for info in (*each.input, *each.value_info, *each.output):
            if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
                yield info.type.tensor_type.shape


def remove_invalid_dim_values(graph: Any) -> None:
    """Leave sizes open that are stated as less than 1."""
    for shape in _shapes(graph):
        for dim in shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 1:
                dim.Clear()


def make_dim_param_fixed(graph: Any, param_name: str, value: int) -> None:
    """Give a named dimension a size, wherever it stands."""
    for shape in _shapes(graph):
        for dim in shape.dim:
            if dim.HasField("dim_param") and dim.dim_param == param_name:
                dim.Clear()
                dim.dim_value = value


def make_input_shape_fixed(graph: Any, input_name: str, fixed_shape: Sequence[int]) -> None:
    """Give an input a shape; names of its dimensions have these sizes wherever they stand. ValueError if it contradicts."""
    remove_invalid_dim_values(graph)
    info = next((each for each in graph.input if each.name == input_name), None)
    if info is None:
        names = ", ".join(each.name for each in graph.input)
        raise ValueError(f"Input {input_name} was not found in graph inputs. Valid input names are: {names}")
    if not info.type.HasField("tensor_type"):
        raise ValueError(f"Input {input_name} is not a tensor")
    shape = info.type.tensor_type.shape
    if not info.type.tensor_type.HasField("shape"):
        for size in fixed_shape:
            shape.dim.add().dim_value = size
        return
    if len(shape.dim) != len(fixed_shape):
        raise ValueError(f"Rank mismatch. Existing:{len(shape.dim)} Replacement:{len(fixed_shape)}")
    for index, (dim, size) in enumerate(zip(shape.dim, fixed_shape)):
        if dim.HasField("dim_value"):
            if dim.dim_value != size:
                raise ValueError(f"Can't replace existing fixed size of {dim.dim_value} with {size} for dimension {index + 1}")
        elif dim.HasField("dim_param"):
            make_dim_param_fixed(graph, dim.dim_param, size)
        else:
            dim.dim_value = size


def is_fixed_size_tensor(value: Any) -> bool:
    """Whether a value is a tensor all of whose sizes are stated."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim)


def fix_output_shapes(model: Any) -> None:
    """State the shapes of outputs that follow from those of the inputs."""
    shaped = SymbolicShapeInference.infer_shapes(model, guess_output_rank=True)
    for output, found in zip(model.graph.output, shaped.graph.output):
        if not is_fixed_size_tensor(output) and is_fixed_size_tensor(found):
            output.CopyFrom(found)


def get_producer_consumer_maps(graph: Any) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """By the index of a node in its graph: the nodes that make its inputs, and those that read its outputs."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    producers: dict[int, list[int]] = {}
    consumers: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        names = [name for name in node.input if name]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                names += [name for each in _graphs(inner) for below in each.node for name in below.input if name]
        for name in dict.fromkeys(names):
            maker = makers.get(name)
            if maker is not None and maker != index and maker not in producers.get(index, ()):
                producers.setdefault(index, []).append(maker)
                consumers.setdefault(maker, []).append(index)
    return producers, consumers


class ModelProtoWithShapeInfo:
    """A model from a file, with the shapes of all its values."""

    def __init__(self, model_path: Path) -> None:
        import onnx

        self.model_path = Path(model_path)
        self.model = onnx.load(os.fspath(self.model_path))
        self.model_with_shape_info = SymbolicShapeInference.infer_shapes(self.model, guess_output_rank=True)
