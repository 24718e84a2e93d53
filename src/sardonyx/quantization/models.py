"""Models in and out: from a path or a message to a graph whose values have types, and back to a file.

Weights stay in their mapped file until they are wanted, one by one; a quantized weight is a constant that is computed when it
is written. So a model needs memory for its largest weight, not for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.dtypes import DType
from sardonyx.errors import InvalidArgument, InvalidGraph
from sardonyx.formats.onnx import dense_initializers, load, save
from sardonyx.ir import tensor
from sardonyx.ir.graph import Graph, Model, Node, SparseConstant, Value, captured_values, walk
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.mapped_file import release_range
from sardonyx.quantization import messages

ONNX_OPERATORS: Final = ""
CONTRIB_OPERATORS: Final = "com.microsoft"
INFERRED: Final = ("onnx.infer", "onnxruntime.quant")  # the mark of a model whose values have types
PREPARED: Final = ("onnx.quant.pre_process", "onnxruntime.quant")  # and of one that has been through quant_pre_process
_LISTED: Final = ("_scale", "_zero_point", "_scale_convert", "_zero_point_convert")  # parameters: programs look at their lists
LARGEST_FILE: Final = 2**31  # bytes: models from this size on have their weights in a file of their own


def read_model(given: Any) -> Model:
    """The model in a file or message, with the types of all values as far as they follow from its inputs."""
    if isinstance(given, Model):
        model = given
    elif isinstance(given, (str, os.PathLike)):
        model = load(os.fspath(given))
    elif messages.is_message(given):
        model = messages.from_message(given)
    else:
        raise InvalidArgument(f"a model is a path or an onnx.ModelProto, not {type(given).__name__}")
    infer_shapes(model)
    return model


def write_model(model: Model, path: str | Path, external: bool) -> None:
    """Write a model; weights go to a file beside it if asked for, or if there is no room for them in the model."""
    size = sum(constant.nbytes for _, constant in dense_initializers(model))
    target = os.fspath(path)
    data = f"{os.path.basename(target)}.data" if external or size >= LARGEST_FILE else None
    save(model, target, external_data=data, listed=lambda name: name.endswith(_LISTED))


def opset_version(model: Model) -> int:
    """The version of ONNX's own operators that a model is written against."""
    if ONNX_OPERATORS not in model.opset_imports:
        raise ValueError("Failed to find proper ai.onnx domain")
    return model.opset_imports[ONNX_OPERATORS]


def has_mark(model: Model, mark: tuple[str, str]) -> bool:
    """Whether the model's metadata has an entry."""
    return model.metadata.get(mark[0]) == mark[1]


def mark(model: Model, entry: tuple[str, str]) -> None:
    """Put an entry into the model's metadata."""
    model.metadata[entry[0]] = entry[1]


def dense(value: Value | None) -> Tensor | None:
    """The constant of a value, if it has one that is a dense tensor."""
    constant = None if value is None else value.constant
    return None if constant is None or isinstance(constant, SparseConstant) else constant


def computed(name: str, dtype: DType, shape: tuple[int, ...], source: Tensor, compute: Callable[[Array], Array]) -> Tensor:
    """A constant that is computed from another each time its bytes are wanted; the other's pages leave memory afterwards."""

    def load_bytes() -> memoryview:
        data = source.numpy()
        result = tensor.from_numpy(np.ascontiguousarray(compute(data)).reshape(shape)).raw()
        release_range(data)
        return result

    return Tensor(dtype, shape, load_bytes, name=name)


def order_nodes(graph: Graph, nodes: Sequence[Node]) -> None:
    """Make these the nodes of a graph, each behind those whose results it reads.

    First come those that read inputs and constants only, by the names of these; the others follow when all they read is there.
    This is the order that ONNX Runtime's tools write.
    """
    for node in list(graph.nodes):
        graph.detach(node)
    made = {value for node in nodes for value in node.outputs}
    waiting: dict[Node, set[Value]] = {}
    readers: dict[Value, list[Node]] = {}
    for node in nodes:
        inner = (value for each in node.subgraphs() for value in captured_values(each))
        waiting[node] = {value for value in (*node.inputs, *inner) if value in made and value is not None}
        for value in waiting[node]:
            readers.setdefault(value, []).append(node)

    def last_name(node: Node) -> str:
        return max((value.name for value in node.inputs if value is not None), default="")

    ready = [node for node in nodes if not any(node.inputs)]
    ready += sorted((node for node in nodes if any(node.inputs) and not waiting[node]), key=last_name)
    ready = [node for node in ready if not waiting[node]]
    done = 0
    while done < len(ready):
        node = graph.append(ready[done])
        done += 1
        for value in node.outputs:
            for reader in readers.get(value, ()):
                waiting[reader].discard(value)
                if not waiting[reader]:
                    ready.append(reader)
    if done != len(nodes):
        raise InvalidGraph("the quantized graph has a cycle")


def remove_unused_initializers(graph: Graph) -> None:
    """Drop initializers that nothing reads, also from the inputs; those of subgraphs too."""
    for each in (graph, *(inner for node in walk(graph) for inner in node.subgraphs())):
        outputs = set(each.outputs)
        for name, value in list(each.initializers.items()):
            if not value.uses and value not in outputs:
                del each.initializers[name]
                if value in each.inputs:
                    each.inputs.remove(value)
