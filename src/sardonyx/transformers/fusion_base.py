"""The base of fusions that programs write for themselves: `onnxruntime.transformers.fusion_base`.

class FusionDouble(Fusion):
    def __init__(self, model):
        super().__init__(model, "Double", "Add")

    def fuse(self, node, input_name_to_nodes, output_name_to_node):
        if node.input[0] == node.input[1]:
            self.nodes_to_remove.append(node)
            self.nodes_to_add.append(...)

FusionDouble(OnnxModel(proto)).apply()
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.transformers.messages import package
from sardonyx.transformers.onnx_model import OnnxModel

_log = logging.getLogger("sardonyx")


class TransformerFusion:
    """Looks at the nodes of some operators; what `fuse` notes to remove and to add is done for all of them at the end."""

    def __init__(self, model: OnnxModel, fused_op_type: str, search_op_types: str | Sequence[str], description: str = "") -> None:
        self.model = model
        self.fused_op_type = fused_op_type
        self.search_op_types = [search_op_types] if isinstance(search_op_types, str) else list(search_op_types)
        self.description = f"{fused_op_type}({description})" if description else fused_op_type
        self.nodes_to_remove: list[Any] = []
        self.nodes_to_add: list[Any] = []
        self.node_name_to_graph_name: dict[str, str] = {}
        self.this_graph_name: str | None = None
        self.prune_graph = False
        self.fused_count: defaultdict[str, int] = defaultdict(int)

    def fuse(self, node: Any, input_name_to_nodes: Mapping[str, list[Any]], output_name_to_node: Mapping[str, Any]) -> None:
        """Look at a node, and note in `nodes_to_remove` and `nodes_to_add` what is to be done."""
        raise NotImplementedError

    def apply(self) -> None:
        """Look at all nodes of the operators, then change the model."""
        readers, makers = self.model.input_name_to_nodes(), self.model.output_name_to_node()
        for op_type in self.search_op_types:
            for graph in self.model.graphs():
                for node in [node for node in graph.node if node.op_type == op_type]:
                    self.this_graph_name = graph.name
                    self.fuse(node, readers, makers)
        made = self.fused_count or {self.description: [node.op_type for node in self.nodes_to_add].count(self.fused_op_type)}
        for name, count in made.items():
            if count:
                _log.info("Fused %s: %d", name, count)
        self.model.remove_nodes(self.nodes_to_remove)
        self.model.add_nodes(self.nodes_to_add, self.node_name_to_graph_name)
        if self.prune_graph:
            self.model.prune_graph()
        elif self.nodes_to_remove or self.nodes_to_add:
            self.model.update_graph()

    def increase_counter(self, fused_op_name: str) -> None:
        """One more node of a fused operator."""
        self.fused_count[fused_op_name] += 1

    def add_initializer(self, name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = True) -> Any:
        """One more weight in the graph that is looked at."""
        tensor = make_tensor(name, data_type, dims, vals, raw)
        self.model.add_initializer(tensor, self.this_graph_name)
        return tensor

    def remove_initializer(self, tensor: Any) -> None:
        """Take a weight out."""
        self.model.remove_initializer(tensor)

    def add_nodes_to_remove(self, nodes: Sequence[Any]) -> None:
        """Note nodes, each once: fusions may share some."""
        self.add_nodes_to_remove_with_nodes_to_keep(nodes, ())

    def add_nodes_to_remove_with_nodes_to_keep(self, nodes: Sequence[Any], nodes_to_keep: Sequence[Any]) -> None:
        """Note nodes, each once, but for those to keep."""
        for node in nodes:
            if node not in self.nodes_to_remove and node not in nodes_to_keep:
                self.nodes_to_remove.append(node)


def make_tensor(name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = True) -> Any:
    """A TensorProto of an array (its bytes as they are) or a list."""
    helper = package().helper
    if raw:
        array = vals if isinstance(vals, np.ndarray) else np.array(vals, helper.tensor_dtype_to_np_dtype(data_type))
        vals = array.tobytes()
    return helper.make_tensor(name, data_type, dims, vals, raw)


Fusion = TransformerFusion  # as ONNX Runtime calls it, which has another class of that name beside its quantizers
