"""Models of torch's newer exporter, functions written out and so on: `onnxruntime.transformers.dynamo_onnx_helper`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.transformers.fusion_base import make_tensor
from sardonyx.transformers.messages import package
from sardonyx.transformers.onnx_model import OnnxModel


class DynamoOnnxHelper:
    """Changes of a ModelProto, in place."""

    def __init__(self, model: Any) -> None:
        self.model = OnnxModel(model)

    def update_edges(self, edge_mapping: Mapping[str, str]) -> None:
        """Give values of the graph other names."""
        graph = self.model.model.graph
        for node in graph.node:
            node.input[:] = [edge_mapping.get(name, name) for name in node.input]
            node.output[:] = [edge_mapping.get(name, name) for name in node.output]
        for value in (*graph.input, *graph.output):
            value.name = edge_mapping.get(value.name, value.name)

    def unroll_function(self, func_name: str) -> None:
        """Put the nodes of a function where the one node stands that calls it; values get the names that they have in it."""
        message = self.model.model
        calls = [node for node in message.graph.node if node.op_type == func_name]
        found = [function for function in message.functions if function.name == func_name]
        if len(calls) != 1 or len(found) != 1:
            text = f"function {func_name!r} is there {len(found)} times, and called {len(calls)} times: expected one and one"
            raise ValueError(text)
        (call,), (function,) = calls, found
        inner, outer = (*function.input, *function.output), (*call.input, *call.output)
        if len(inner) != len(outer):
            raise ValueError(f"the node {call.name!r} has {len(outer)} inputs and outputs: {func_name!r} has {len(inner)}")
        message.graph.node.remove(call)
        message.graph.node.extend(function.node)
        message.functions.remove(function)
        self.update_edges(dict(zip(outer, inner)))

    def remove_function(self, func_name: str, input_id: int, output_id: int) -> None:
        """Take out nodes whose operator has this in its name; the value they read takes the name of the one they make."""
        graph = self.model.model.graph
        found = [node for node in graph.node if func_name in node.op_type]
        renamed = {node.input[input_id]: node.output[output_id] for node in found}
        for node in found:
            graph.node.remove(node)
        self.update_edges(renamed)

    def remove_dropout_layer(self) -> None:
        """Take out dropout."""
        self.remove_function("Dropout", 0, 0)

    def remove_lm_head_layer(self) -> None:
        """Take out the last layer of a language model."""
        self.remove_function("Linear_lm_head", 2, 0)

    def add_initializer(self, name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = True) -> Any:
        """One more weight, converted to the type."""
        values = np.asarray(vals).astype(package().helper.tensor_dtype_to_np_dtype(data_type)) if raw else vals
        tensor = make_tensor(name, data_type, dims, values, raw)
        self.model.add_initializer(tensor)
        return tensor

    def convert_constants_to_initializers(self, min_size: int = 1) -> None:
        """Make weights of Constant nodes with so many elements."""
        found = []
        for node in self.model.get_nodes_by_op_type("Constant"):
            tensor = self.model.get_node_attribute(node, "value")
            if tensor is not None and np.prod(tensor.dims, dtype=np.int64) >= min_size:
                graph = self.model.get_graph_by_node(node)
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = node.output[0]
                found.append(node)
        self.model.remove_nodes(found)

    def clear_metadata(self) -> None:
        """Forget the notes of graphs and nodes."""
        for each in (*self.model.graphs(), *self.model.nodes()):
            each.ClearField("metadata_props")

    @staticmethod
    def fold_transpose_initializers(model: Any) -> None:
        """Transpose weights that are read through a Transpose alone; their names stay. For models of onnx_ir."""
        ir = importlib.import_module(type(model).__module__.partition(".")[0])  # the package that the model is of
        for name, weight in list(model.graph.initializers.items()):
            readers = weight.consumers()
            if len(readers) != 1 or readers[0].op_type != "Transpose":
                continue
            (transpose,) = readers
            perm = transpose.attributes.get("perm")
            tensor = ir.tensor(weight.const_value.numpy().transpose(None if perm is None else perm.as_ints()))
            transposed = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
            ir.convenience.replace_all_uses_with(transpose.outputs[0], transposed)
            model.graph.initializers[name] = transposed
            transpose.graph.remove(transpose, safe=True)
