"""A ModelProto and what tools do with it: looking up, changing, pruning, saving. `onnxruntime.transformers.onnx_model`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sardonyx.transformers.float16 import convert_float_to_float16
from sardonyx.transformers.messages import package


class OnnxModel:
    """A model as its message. Nodes of subgraphs are looked at, too, where nothing else is said."""

    def __init__(self, model: Any) -> None:
        self.initialize(model)

    def initialize(self, model: Any) -> None:
        """Take another model."""
        self.model = model
        self._node_name_suffix: dict[str, int] = {}
        self.all_graphs: list[Any] | None = None
        self.enable_shape_infer = True

    def disable_shape_inference(self) -> None:
        """Do not infer shapes."""
        self.enable_shape_infer = False

    # Graphs and nodes

    def graph(self) -> Any:
        """The graph."""
        return self.model.graph

    def graphs(self) -> list[Any]:
        """The graph and all subgraphs."""
        found = [self.model.graph]
        for graph in found:
            for node in graph.node:
                for attr in node.attribute:
                    found.extend([attr.g] if attr.HasField("g") else attr.graphs)
        return found

    def functions(self) -> list[Any]:
        """The functions of the model."""
        return list(self.model.functions)

    def nodes(self) -> list[Any]:
        """The nodes of all graphs."""
        return [node for graph in self.graphs() for node in graph.node]

    def input_name_to_nodes(self, exclude_subgraphs: bool = False) -> dict[str, list[Any]]:
        """Who reads each value."""
        found: dict[str, list[Any]] = {}
        for node in self.model.graph.node if exclude_subgraphs else self.nodes():
            for name in dict.fromkeys(node.input):
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def output_name_to_node(self, exclude_subgraphs: bool = False) -> dict[str, Any]:
        """Who makes each value."""
        nodes = self.model.graph.node if exclude_subgraphs else self.nodes()
        return {name: node for node in nodes for name in node.output if name}

    def get_nodes_by_op_type(self, op_type: str) -> list[Any]:
        """The nodes of an operator."""
        return [node for node in self.nodes() if node.op_type == op_type]

    def get_children(
        self, node: Any, input_name_to_nodes: Mapping[str, list[Any]] | None = None, output_index: int | None = None
    ) -> list[Any]:
        """The nodes that read what a node makes."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        outputs = node.output if output_index is None else node.output[output_index : output_index + 1]
        return [reader for name in outputs for reader in readers.get(name, ())]

    def get_parents(self, node: Any, output_name_to_node: Mapping[str, Any] | None = None) -> list[Any]:
        """The nodes that make what a node reads."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [makers[name] for name in node.input if name in makers]

    def get_parent(self, node: Any, i: int, output_name_to_node: Mapping[str, Any] | None = None) -> Any:
        """The node that makes the i-th input, if there is one."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return makers.get(node.input[i]) if i < len(node.input) else None

    def match_parent(
        self,
        node: Any,
        parent_op_type: str,
        input_index: int | None = None,
        output_name_to_node: Mapping[str, Any] | None = None,
        exclude: Sequence[Any] = (),
        return_indice: list[int] | None = None,
    ) -> Any:
        """The maker of an input, or of any if none is named, if it is of this operator."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        for index in range(len(node.input)) if input_index is None else (input_index,):
            parent = self.get_parent(node, index, makers)
            if parent is not None and parent.op_type == parent_op_type and parent not in exclude:
                if return_indice is not None:
                    return_indice.append(index)
                return parent
        return None

    def match_parent_path(
        self,
        node: Any,
        parent_op_types: Sequence[str],
        parent_input_index: Sequence[int | None] | None = None,
        output_name_to_node: Mapping[str, Any] | None = None,
        return_indice: list[int] | None = None,
    ) -> list[Any] | None:
        """A chain of makers of these operators, or None."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        indices = [None] * len(parent_op_types) if parent_input_index is None else list(parent_input_index)
        found: list[Any] = []
        for op_type, index in zip(parent_op_types, indices):
            parent = self.match_parent(node, op_type, index, makers, (), return_indice)
            if parent is None:
                return None
            found.append(parent)
            node = parent
        return found

    def match_parent_paths(self, node: Any, paths: Iterable[Any], output_name_to_node: Mapping[str, Any]) -> tuple[int, Any, Any]:
        """The first of several chains that is there: its number, its nodes, the indices."""
        for number, (op_types, indices) in enumerate(paths):
            taken: list[int] = []
            found = self.match_parent_path(node, op_types, indices, output_name_to_node, taken)
            if found:
                return number, found, taken
        return -1, None, None

    def find_first_child_by_type(
        self, node: Any, child_type: str, input_name_to_nodes: Mapping[str, list[Any]] | None = None, recursive: bool = True
    ) -> Any:
        """The first reader of this operator, or reader of readers."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return self._first(node, child_type, lambda each: self.get_children(each, readers), recursive)

    def find_first_parent_by_type(
        self, node: Any, parent_type: str, output_name_to_node: Mapping[str, Any] | None = None, recursive: bool = True
    ) -> Any:
        """The first maker of this operator, or maker of makers."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return self._first(node, parent_type, lambda each: self.get_parents(each, makers), recursive)

    @staticmethod
    def _first(node: Any, op_type: str, neighbours: Any, recursive: bool) -> Any:
        pending, seen = list(neighbours(node)), set()
        while pending:
            each = pending.pop(0)
            if each.op_type == op_type:
                return each
            if recursive and id(each) not in seen:
                seen.add(id(each))
                pending.extend(neighbours(each))
        return None

    # Values and attributes

    def get_initializer(self, name: str) -> Any:
        """A weight, if there is one of that name."""
        return next((tensor for graph in self.graphs() for tensor in graph.initializer if tensor.name == name), None)

    def get_constant_value(self, output_name: str) -> Any:
        """The array behind a name, if it is a constant."""
        onnx = package()
        tensor = self.get_initializer(output_name)
        if tensor is not None:
            return onnx.numpy_helper.to_array(tensor)
        node = self.output_name_to_node().get(output_name)
        if node is not None and node.op_type == "Constant":
            value = self.get_node_attribute(node, "value")
            return None if value is None else onnx.numpy_helper.to_array(value)
        return None

    def get_constant_input(self, node: Any) -> tuple[int | None, Any]:
        """The first input that is a constant: its index and array."""
        for index, name in enumerate(node.input):
            value = self.get_constant_value(name)
            if value is not None:
                return index, value
        return None, None

    def find_constant_input(self, node: Any, expected_value: float, delta: float = 0.000001) -> int:
        """The index of an input that is this number, or -1."""
        index, value = self.get_constant_input(node)
        return index if index is not None and value.size == 1 and abs(value.item() - expected_value) < delta else -1

    def has_constant_input(self, node: Any, expected_value: float, delta: float = 0.000001) -> bool:
        """Whether an input is this number."""
        return self.find_constant_input(node, expected_value, delta) >= 0

    @staticmethod
    def get_node_attribute(node: Any, attribute_name: str) -> Any:
        """The value of an attribute, or None."""
        for attr in node.attribute:
            if attr.name == attribute_name:
                return package().helper.get_attribute_value(attr)
        return None

    def find_graph_input(self, input_name: str) -> Any:
        """An input of the model, or None."""
        return next((value for value in self.model.graph.input if value.name == input_name), None)

    def find_graph_output(self, output_name: str) -> Any:
        """An output of the model, or None."""
        return next((value for value in self.model.graph.output if value.name == output_name), None)

    def get_graph_inputs_excluding_initializers(self) -> list[Any]:
        """What must be fed."""
        weights = {tensor.name for tensor in self.model.graph.initializer}
        return [value for value in self.model.graph.input if value.name not in weights]

    def get_graphs_input_names(self) -> list[str]:
        """The inputs of all graphs."""
        return [value.name for graph in self.graphs() for value in graph.input]

    def get_graphs_output_names(self) -> list[str]:
        """The outputs of all graphs."""
        return [value.name for graph in self.graphs() for value in graph.output]

    def get_opset_version(self) -> int:
        """The version of ONNX's own operators."""
        for opset in self.model.opset_import:
            if opset.domain in ("", "ai.onnx"):
                return int(opset.version)
        raise RuntimeError("ONNX model has no opset for default domain")

    def get_operator_statistics(self, include_domain: bool = False) -> dict[str, int]:
        """How many nodes each operator has."""
        return dict(
            Counter(f"{node.domain}:{node.op_type}" if include_domain and node.domain else node.op_type for node in self.nodes())
        )

    # Changes

    def create_node_name(self, op_type: str, name_prefix: str | None = None) -> str:
        """A name that no node has: operator or prefix, and a number."""
        prefix = name_prefix or f"{op_type}_"
        taken = {node.name for node in self.nodes()}
        number = self._node_name_suffix.get(prefix, -1) + 1
        while f"{prefix}{number}" in taken:
            number += 1
        self._node_name_suffix[prefix] = number
        return f"{prefix}{number}"

    def add_node(self, node: Any, graph_name: str | None = None) -> None:
        """One more node; `topological_sort` brings it where it belongs."""
        self._named(graph_name).node.extend([node])

    def add_nodes(self, nodes_to_add: Iterable[Any], node_name_to_graph_name: Mapping[str, str] | None = None) -> None:
        """More nodes, each in its graph."""
        for node in nodes_to_add:
            self.add_node(node, (node_name_to_graph_name or {}).get(node.name))

    def add_initializer(self, tensor: Any, graph_name: str | None = None) -> None:
        """One more weight."""
        self._named(graph_name).initializer.extend([tensor])

    def add_input(self, input: Any, graph_name: str | None = None) -> None:
        """One more input."""
        self._named(graph_name).input.extend([input])

    def _named(self, name: str | None) -> Any:
        graph = self.model.graph if name is None else self.get_graph_by_name(name)
        if graph is None:
            raise ValueError(f"the model has no graph {name!r}")
        return graph

    def get_graph_by_name(self, graph_name: str) -> Any:
        """A graph, or None."""
        return next((graph for graph in self.graphs() if graph.name == graph_name), None)

    def get_graph_by_node(self, node: Any) -> Any:
        """The graph a node stands in, or None."""
        return next((graph for graph in self.graphs() if node in graph.node), None)

    def remove_node(self, node: Any) -> None:
        """Take a node out."""
        graph = self.get_graph_by_node(node)
        if graph is not None:
            graph.node.remove(node)

    def remove_nodes(self, nodes_to_remove: Iterable[Any]) -> None:
        """Take nodes out."""
        for node in list(nodes_to_remove):
            self.remove_node(node)

    def remove_initializer(self, tensor: Any) -> None:
        """Take a weight out."""
        for graph in self.graphs():
            if tensor in graph.initializer:
                graph.initializer.remove(tensor)
                return

    @staticmethod
    def replace_node_input(node: Any, old_input_name: str, new_input_name: str) -> None:
        """Let a node read another value."""
        node.input[:] = [new_input_name if name == old_input_name else name for name in node.input]

    @staticmethod
    def replace_node_output(node: Any, old_output_name: str, new_output_name: str) -> None:
        """Let a node make a value under another name."""
        node.output[:] = [new_output_name if name == old_output_name else name for name in node.output]

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Let all nodes read another value."""
        for node in self.nodes():
            self.replace_node_input(node, old_input_name, new_input_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        """Give what nodes make another name."""
        for node in self.nodes():
            self.replace_node_output(node, old_output_name, new_output_name)

    def remove_unused_constant(self) -> None:
        """Take out Constant nodes that nobody reads."""
        readers = self.input_name_to_nodes()
        outputs = set(self.get_graphs_output_names())
        for node in self.get_nodes_by_op_type("Constant"):
            if node.output[0] not in outputs and node.output[0] not in readers:
                self.remove_node(node)

    def prune_graph(self, outputs: Sequence[str] | None = None, allow_remove_graph_inputs: bool = True) -> None:
        """Take out what these outputs (all, if none are named) do not need."""
        graph = self.model.graph
        wanted = [value.name for value in graph.output if outputs is None or value.name in outputs]
        makers = self.output_name_to_node(exclude_subgraphs=True)
        pending, used = list(wanted), set(wanted)
        needed: list[Any] = []
        while pending:
            node = makers.get(pending.pop())
            if node is None or any(node is each for each in needed):
                continue
            needed.append(node)
            for name in _read_by(node):
                if name not in used:
                    used.add(name)
                    pending.append(name)
        kept = [node for node in graph.node if any(node is each for each in needed)]
        _keep(graph.node, kept)
        _keep(graph.output, [value for value in graph.output if value.name in wanted])
        _keep(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in used])
        if allow_remove_graph_inputs:
            _keep(graph.input, [value for value in graph.input if value.name in used])

    def update_graph(self, verbose: bool = False, allow_remove_graph_inputs: bool = False) -> None:
        """Take out what is not needed."""
        self.prune_graph(allow_remove_graph_inputs=allow_remove_graph_inputs)

    def topological_sort(self, is_deterministic: bool = False, dump_model_on_failure: bool = False) -> None:
        """Bring the nodes of every graph into an order in which they can be computed."""
        for graph in self.graphs():
            self.graph_topological_sort(graph, is_deterministic)

    @staticmethod
    def graph_topological_sort(graph: Any, is_deterministic: bool = False) -> None:
        """Bring the nodes of a graph into an order in which they can be computed."""
        made = {name for node in graph.node for name in node.output if name}
        waiting = [(node, {name for name in _read_by(node) if name in made}) for node in graph.node]
        done: set[str] = set()
        order: list[Any] = []
        while waiting:
            ready = [(node, needs) for node, needs in waiting if needs <= done]
            if not ready:
                raise RuntimeError("the graph has a cycle")
            for node, _ in ready:
                order.append(node)
                done.update(node.output)
            waiting = [pair for pair in waiting if not any(pair[0] is node for node, _ in ready)]
        _keep(graph.node, order)

    # Types and files

    def convert_float_to_float16(self, use_symbolic_shape_infer: bool = True, **kwargs: Any) -> None:
        """Change the model to float16; arguments are those of `float16.convert_float_to_float16`."""
        known = ("keep_io_types", "op_block_list", "node_block_list", "force_fp16_initializers", "force_fp16_inputs",
                 "min_positive_val", "max_finite_val", "use_bfloat16_as_blocked_nodes_dtype")  # fmt: skip
        given = {name: value for name, value in kwargs.items() if name in known}
        self.initialize(convert_float_to_float16(self.model, **given))

    def convert_model_float32_to_float16(self, cast_input_output: bool = True) -> None:
        """The older name: `cast_input_output` keeps inputs and outputs."""
        self.convert_float_to_float16(keep_io_types=cast_input_output)

    @staticmethod
    def save(
        model: Any,
        output_path: str,
        save_as_external_data: bool = False,
        all_tensors_to_one_file: bool = True,
        size_threshold: int = 1024,
        convert_attribute: bool = False,
    ) -> None:
        """Write a model; weights beside it, if asked for."""
        onnx = package()
        if model.opset_import and not any(opset.domain == "com.microsoft" for opset in model.opset_import):
            model.opset_import.extend([onnx.helper.make_opsetid("com.microsoft", 1)])
        if not save_as_external_data:
            onnx.save(model, output_path)
            return
        location = Path(output_path).name + ".data"
        data = Path(output_path).with_name(location)
        if all_tensors_to_one_file and data.exists():  # saving would append to it
            data.unlink()
        onnx.save_model(
            model,
            output_path,
            save_as_external_data=True,
            all_tensors_to_one_file=all_tensors_to_one_file,
            location=location,
            size_threshold=size_threshold,
            convert_attribute=convert_attribute,
        )

    def save_model_to_file(
        self,
        output_path: str,
        use_external_data_format: bool = False,
        all_tensors_to_one_file: bool = True,
        convert_attribute: bool = False,
    ) -> None:
        """Write the model, its nodes in order."""
        self.topological_sort()
        Path(output_path).parent.mkdir(parents=True, exist_ok=True)
        self.save(self.model, output_path, use_external_data_format, all_tensors_to_one_file, convert_attribute=convert_attribute)


def _read_by(node: Any) -> Iterator[str]:
    """What a node reads, subgraphs included."""
    yield from (name for name in node.input if name)
    for attr in node.attribute:
        for graph in [attr.g] if attr.HasField("g") else attr.graphs:
            own = {name for each in graph.node for name in each.output} | {value.name for value in graph.input}
            for name in (*(name for each in graph.node for name in _read_by(each)), *(value.name for value in graph.output)):
                if name not in own:
                    yield name


def _keep(repeated: Any, kept: Sequence[Any]) -> None:
    """Let a repeated field hold these messages."""
    copies = []
    for message in kept:
        copy = type(message)()
        copy.CopyFrom(message)
        copies.append(copy)
    del repeated[:]
    repeated.extend(copies)
