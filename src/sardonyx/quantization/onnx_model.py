"""`ONNXModel`: a model as an onnx.ModelProto, with the questions and changes that programs for ONNX Runtime use.

A model that we have made ourselves becomes a message when somebody looks at it; until then it is saved from our own form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx.ir.graph import Model
from sardonyx.quantization import messages
from sardonyx.quantization.models import write_model

_GRAPH: Final = 5  # AttributeProto.AttributeType
_GRAPHS: Final = 10


class ONNXModel:
    """A ModelProto and what can be asked of it."""

    def __init__(self, model: Any) -> None:
        self._message = model
        self._ir: Model | None = None

    @classmethod
    def of_ir(cls, model: Model) -> ONNXModel:
        """One of a model in our own form."""
        made = cls(None)
        made._ir = model
        return made

    @property
    def model(self) -> Any:
        """The ModelProto, which may be changed."""
        if self._message is None:
            assert self._ir is not None
            self._message = messages.to_message(self._ir)
            self._ir = None
        return self._message

    @model.setter
    def model(self, message: Any) -> None:
        self._message, self._ir = message, None

    def graph(self) -> Any:
        """The GraphProto."""
        return self.model.graph

    def nodes(self) -> Any:
        """The nodes of the main graph."""
        return self.graph().node

    def initializer(self) -> Any:
        """The initializers of the main graph."""
        return self.graph().initializer

    def initializer_extend(self, inits: Collection[Any]) -> None:
        """Add initializers."""
        if not inits:
            raise ValueError("there is no initializer to add")
        self.initializer().extend(inits)

    def ir_version(self) -> int:
        """The version of the file format."""
        return int(self.model.ir_version)

    def opset_import(self) -> Any:
        """The operator sets and their versions."""
        return self.model.opset_import

    def set_opset_import(self, domain: str, version: int) -> None:
        """Set the version of an operator set."""
        for entry in self.model.opset_import:
            if entry.domain == domain:
                entry.version = version
                return
        self.model.opset_import.add(domain=domain, version=version)

    def remove_node(self, node: Any) -> None:
        """Remove a node, if it is there."""
        if node in self.nodes():
            self.nodes().remove(node)

    def remove_nodes(self, nodes_to_remove: Iterable[Any]) -> None:
        """Remove nodes."""
        for node in nodes_to_remove:
            self.remove_node(node)

    def add_node(self, node: Any) -> None:
        """Add a node at the end."""
        self.nodes().append(node)

    def add_nodes(self, nodes_to_add: Iterable[Any]) -> None:
        """Add nodes at the end."""
        self.nodes().extend(nodes_to_add)

    def add_initializer(self, tensor: Any) -> None:
        """Add an initializer, unless there is one of that name."""
        if self.get_initializer(tensor.name) is None:
            self.initializer().append(tensor)

    def get_initializer(self, name: str) -> Any:
        """The initializer of a name, or None."""
        return _named(self.initializer(), name)

    def find_graph_input(self, input_name: str) -> Any:
        """The input of a name, or None."""
        return _named(self.graph().input, input_name)

    def find_graph_output(self, output_name: str) -> Any:
        """The output of a name, or None."""
        return _named(self.graph().output, output_name)

    def is_graph_output(self, output_name: str) -> bool:
        """Whether the graph gives out a value."""
        return self.find_graph_output(output_name) is not None

    def is_graph_input(self, tensor_name: str) -> bool:
        """Whether a value is an input."""
        return self.find_graph_input(tensor_name) is not None

    def get_tensor_type(self, tensor_name: str) -> Any:
        """The TypeProto.Tensor of a value, as far as the model states it."""
        for values in (self.graph().value_info, self.graph().input, self.graph().output):
            found = _named(values, tensor_name)
            if found is not None:
                return found.type.tensor_type
        return None

    def get_constant_value(self, output_name: str) -> Any:
        """The array that a Constant node or an initializer holds; None if the value is neither."""
        to_array = messages.onnx_package().numpy_helper.to_array
        for node in self.nodes():
            if node.op_type == "Constant" and output_name in node.output:
                for attribute in node.attribute:
                    if attribute.name == "value":
                        return to_array(attribute.t)
                    if attribute.name in ("value_float", "value_floats"):
                        return np.array(attribute.f if attribute.name == "value_float" else attribute.floats, np.float32)
                    if attribute.name in ("value_int", "value_ints"):
                        return np.array(attribute.i if attribute.name == "value_int" else attribute.ints, np.int64)
        held = self.get_initializer(output_name)
        return None if held is None else to_array(held)

    def get_initializer_name_set(self) -> set[str]:
        """The names of the initializers."""
        return {each.name for each in self.initializer()}

    def remove_initializer(self, tensor: Any) -> None:
        """Remove an initializer, also from the inputs."""
        if tensor in self.initializer():
            self.initializer().remove(tensor)
            entry = self.find_graph_input(tensor.name)
            if entry is not None:
                self.graph().input.remove(entry)

    def remove_initializers(self, init_to_remove: Iterable[Any]) -> None:
        """Remove initializers."""
        for each in init_to_remove:
            self.remove_initializer(each)

    def get_non_initializer_inputs(self) -> set[str]:
        """The names of the inputs that must be fed."""
        return {each.name for each in self.graph().input} - self.get_initializer_name_set()

    def input_name_to_nodes(self) -> dict[str, list[Any]]:
        """The nodes that read each value."""
        found: dict[str, list[Any]] = {}
        for node in self.nodes():
            for name in node.input:
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def output_name_to_node(self) -> dict[str, Any]:
        """The node that makes each value."""
        return {name: node for node in self.nodes() for name in node.output if name}

    def get_children(self, node: Any, input_name_to_nodes: dict[str, list[Any]] | None = None) -> list[Any]:
        """The nodes that read what a node gives."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return [reader for name in node.output for reader in readers.get(name, ())]

    def get_parents(self, node: Any, output_name_to_node: dict[str, Any] | None = None) -> list[Any]:
        """The nodes that make what a node reads."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [makers[name] for name in node.input if name in makers]

    def get_parent(self, node: Any, idx: int, output_name_to_node: dict[str, Any] | None = None) -> Any:
        """The node that makes one input of a node, or None."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return makers.get(node.input[idx]) if idx < len(node.input) else None

    def find_node_by_name(self, node_name: str, new_nodes_list: Iterable[Any], graph: Any) -> Any:
        """The node of a name in a graph or a list."""
        return _named([*graph.node, *new_nodes_list], node_name)

    def get_largest_node_name_suffix(self, node_name_prefix: str) -> int:
        """The greatest number that follows a prefix in the names of nodes; -1 if there is none."""
        return _largest_suffix((node.name for node in self.nodes()), node_name_prefix)

    def get_largest_initializer_name_suffix(self, initializer_name_prefix: str) -> int:
        """The greatest number that follows a prefix in the names of initializers; -1 if there is none."""
        return _largest_suffix(self.get_initializer_name_set(), initializer_name_prefix)

    def find_nodes_by_initializer(self, graph: Any, initializer: Any) -> list[Any]:
        """The nodes of a graph that read an initializer."""
        return [node for node in graph.node for name in node.input if name == initializer.name]

    @staticmethod
    def replace_node_input(node: Any, old_input_name: str, new_input_name: str) -> None:
        """Let a node read another value."""
        _rename(node.input, old_input_name, new_input_name)

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Let all nodes read another value."""
        for node in self.nodes():
            _rename(node.input, old_input_name, new_input_name)

    def replace_input_of_nodes(self, old_input_name: str, new_input_name: str, node_names_set: Collection[str]) -> None:
        """Let the nodes of these names read another value."""
        for node in self.nodes():
            if node.name in node_names_set:
                _rename(node.input, old_input_name, new_input_name)

    @staticmethod
    def replace_node_output(node: Any, old_output_name: str, new_output_name: str) -> None:
        """Let a node give out another value."""
        _rename(node.output, old_output_name, new_output_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        """Let all nodes give out another value."""
        for node in self.nodes():
            _rename(node.output, old_output_name, new_output_name)

    def replace_output_of_nodes(self, old_output_name: str, new_output_name: str, node_names_set: Collection[str]) -> None:
        """Let the nodes of these names give out another value."""
        for node in self.nodes():
            if node.name in node_names_set:
                _rename(node.output, old_output_name, new_output_name)

    def remove_unused_constant(self) -> None:
        """Remove Constant nodes and initializers that nothing reads."""
        read = _read_names(self.graph()) | {each.name for each in self.graph().output}
        self.remove_nodes([node for node in self.nodes() if node.op_type == "Constant" and node.output[0] not in read])
        self.remove_initializers([each for each in self.initializer() if each.name not in read])

    def clean_initializers(self) -> tuple[Any, set[str]]:
        """Remove initializers that nothing reads, in subgraphs too; gives the graph and the names that nothing defines."""
        return self.graph(), _clean(self.graph())

    def topological_sort(self) -> None:
        """Order the nodes so that each comes after those whose results it reads."""
        graph = self.graph()
        nodes = list(graph.node)
        ready = {"", *(each.name for each in graph.initializer), *(each.name for each in graph.input)}
        made = {name for node in nodes for name in node.output if name}
        # What no node of this graph makes is there already: nodes wait for the others.
        waiting = [{name for name in node.input if name in made and name not in ready} for node in nodes]
        readers: dict[str, list[int]] = {}
        for index, names in enumerate(waiting):
            for name in names:
                readers.setdefault(name, []).append(index)
        ordered = [index for index, node in enumerate(nodes) if not any(node.input)]
        started = [index for index, node in enumerate(nodes) if any(node.input) and not waiting[index]]
        ordered += sorted(started, key=lambda index: max(name for name in nodes[index].input if name))
        done = 0
        while done < len(ordered):
            for name in nodes[ordered[done]].output:
                for index in readers.pop(name, ()):
                    waiting[index].discard(name)
                    if not waiting[index]:
                        ordered.append(index)
            done += 1
        if len(ordered) != len(nodes):
            raise AssertionError("Graph is not a DAG")
        copies = [type(nodes[index]).FromString(nodes[index].SerializeToString()) for index in ordered]
        del graph.node[:]
        graph.node.extend(copies)

    def replace_gemm_with_matmul(self) -> None:
        """Turn each Gemm that only adds a bias to a product into MatMul and Add."""
        from sardonyx.quantization.gemm import split_gemms  # lazy: it works on our own form of models

        model = messages.from_message(self.model)
        split_gemms(model)
        self._message.CopyFrom(messages.to_message(model))

    def save_model_to_file(self, output_path: str | Path, use_external_data_format: bool = False) -> None:
        """Write the model; with `use_external_data_format` its weights go to a file beside it."""
        if self._ir is None:
            self.topological_sort()
        write_model(messages.from_message(self._message) if self._ir is None else self._ir, output_path, use_external_data_format)


def _named(items: Iterable[Any], name: str) -> Any:
    return next((item for item in items if item.name == name), None)


def _rename(names: Any, old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new


def _largest_suffix(names: Iterable[str], prefix: str) -> int:
    ends = (name[len(prefix) :] for name in names if name.startswith(prefix))
    return max((int(end) for end in ends if end.isascii() and end.isdigit()), default=-1)


def _subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.g
        elif attribute.type == _GRAPHS:
            yield from attribute.graphs


def _read_names(graph: Any) -> set[str]:
    """All names that nodes of a graph and of its subgraphs read."""
    found = {name for node in graph.node for name in node.input if name}
    for node in graph.node:
        for inner in _subgraphs(node):
            found |= _read_names(inner) | {each.name for each in inner.output}
    return found


def _clean(graph: Any) -> set[str]:
    wanted = {name for node in graph.node for name in node.input if name} | {each.name for each in graph.output if each.name}
    for node in graph.node:
        for inner in _subgraphs(node):
            wanted |= _clean(inner)
    wanted -= {name for node in graph.node for name in node.output}
    for held in list(graph.initializer):
        if held.name in wanted:
            wanted.discard(held.name)
        else:
            graph.initializer.remove(held)
            entry = _named(graph.input, held.name)
            if entry is not None:
                graph.input.remove(entry)
    return wanted - {each.name for each in graph.input}
