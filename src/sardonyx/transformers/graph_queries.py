"""Looking things up in a ModelProto: graphs, nodes, who reads and who makes a value, chains of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


class GraphQueries:
    """What of a model can be asked for. Nodes of subgraphs are looked at, too, where nothing else is said."""

    model: Any

    # Graphs

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

    def get_graph_by_name(self, graph_name: str) -> Any:
        """A graph, or None."""
        return next((graph for graph in self.graphs() if graph.name == graph_name), None)

    def get_graph_by_node(self, node: Any) -> Any:
        """The graph a node stands in, or None."""
        return next((graph for graph in self.graphs() if node in graph.node), None)

    def get_graphs_input_names(self) -> list[str]:
        """The inputs of all graphs."""
        return [value.name for graph in self.graphs() for value in graph.input]

    def get_graphs_output_names(self) -> list[str]:
        """The outputs of all graphs."""
        return [value.name for graph in self.graphs() for value in graph.output]

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

    def get_graph_inputs(self, current_node: Any, recursive: bool = False) -> list[str]:
        """The inputs of the model that a node reads, or that anything reads which it depends on."""
        fed = {value.name for value in self.model.graph.input}
        nodes = [current_node, *(self.get_parent_subgraph_nodes(current_node, ()) if recursive else ())]
        return list(dict.fromkeys(name for node in nodes for name in node.input if name in fed))

    def get_topological_insert_id(self, graph: Any, outputs: Iterable[str]) -> int:
        """The position of the first node that reads one of these values: a node that makes them belongs before it."""
        made = set(outputs)
        return next((position for position, node in enumerate(graph.node) if made.intersection(node.input)), len(graph.node))

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

    # Nodes

    def nodes(self) -> list[Any]:
        """The nodes of all graphs."""
        return [node for graph in self.graphs() for node in graph.node]

    def get_nodes_by_op_type(self, op_type: str) -> list[Any]:
        """The nodes of an operator."""
        return [node for node in self.nodes() if node.op_type == op_type]

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

    def get_children_subgraph_nodes(
        self, root_node: Any, stop_nodes: Sequence[Any], input_name_to_nodes: Mapping[str, list[Any]] | None = None
    ) -> list[Any]:
        """All nodes that depend on the first output of a node, none of those at which to stop or behind them."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        first = self.get_children(root_node, readers, 0)
        return list(_reached(first, lambda node: self.get_children(node, readers), stop_nodes))

    def get_parent_subgraph_nodes(
        self, node: Any, stop_nodes: Sequence[Any], output_name_to_node: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """All nodes that a node depends on, none of those at which to stop or before them."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return list(_reached(self.get_parents(node, makers), lambda each: self.get_parents(each, makers), stop_nodes))

    @staticmethod
    def input_index(node_output: str, child_node: Any) -> int:
        """At which place a node reads a value, or -1."""
        return list(child_node.input).index(node_output) if node_output in child_node.input else -1

    def is_safe_to_fuse_nodes(
        self,
        nodes_to_remove: Sequence[Any],
        keep_outputs: Sequence[str],
        input_name_to_nodes: Mapping[str, list[Any]],
        output_name_to_node: Mapping[str, Any],
    ) -> bool:
        """Whether nobody else reads what these nodes make, but for the values that will be there still."""
        made = (name for node in nodes_to_remove for name in node.output if name not in keep_outputs)
        return all(reader in nodes_to_remove for name in made for reader in input_name_to_nodes.get(name, ()))

    # Chains

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
                if return_indice is not None and input_index is None:
                    return_indice.append(index)
                return parent
        return None

    def match_first_parent(
        self, node: Any, parent_op_type: str, output_name_to_node: Mapping[str, Any], exclude: Sequence[Any] = ()
    ) -> tuple[Any, int | None]:
        """The first maker of an input that is of this operator, and which input it makes."""
        taken: list[int] = []
        parent = self.match_parent(node, parent_op_type, None, output_name_to_node, exclude, taken)
        return parent, taken[0] if taken else None

    def match_parent_path(
        self,
        node: Any,
        parent_op_types: Sequence[str],
        parent_input_index: Sequence[int | None] | None = None,
        output_name_to_node: Mapping[str, Any] | None = None,
        return_indice: list[int] | None = None,
    ) -> list[Any] | None:
        """A chain of makers of these operators, or None; places that were left open go to `return_indice`."""
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
        """The first of several chains that is there: its number, its nodes, the places that were left open."""
        for found in self._paths(node, paths, output_name_to_node):
            return found
        return -1, None, None

    def match_parent_paths_all(
        self, node: Any, paths: Iterable[Any], output_name_to_node: Mapping[str, Any]
    ) -> tuple[list[int], list[list[Any]], list[list[int]]]:
        """All of several chains that are there: their numbers, their nodes, the places that were left open."""
        found = list(self._paths(node, paths, output_name_to_node))
        return [number for number, _, _ in found], [nodes for _, nodes, _ in found], [taken for _, _, taken in found]

    def _paths(self, node: Any, paths: Iterable[Any], makers: Mapping[str, Any]) -> Iterator[tuple[int, list[Any], list[int]]]:
        for number, (op_types, indices) in enumerate(paths):
            taken: list[int] = []
            found = self.match_parent_path(node, op_types, indices, makers, taken)
            if found:
                yield number, found, taken

    def match_child_path(
        self,
        node: Any,
        child_op_types: Sequence[str],
        edges: Sequence[tuple[int, int]] | None = None,
        input_name_to_nodes: Mapping[str, list[Any]] | None = None,
        exclude: Sequence[Any] = (),
    ) -> list[Any] | None:
        """A chain of readers of these operators, or None. An edge says which output of a node is which input of the next."""
        if edges is not None and len(edges) != len(child_op_types):
            raise ValueError(f"{len(child_op_types)} operators, but {len(edges)} edges: expected as many")
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        found: list[Any] = []
        for step, op_type in enumerate(child_op_types):
            edge = None if edges is None else edges[step]
            for child in self.get_children(node, readers, None if edge is None else edge[0]):
                fits = edge is None or list(child.input[edge[1] : edge[1] + 1]) == [node.output[edge[0]]]
                if fits and child.op_type == op_type and child not in exclude:
                    break
            else:
                return None
            found.append(child)
            node = child
        return found

    def find_first_child_by_type(
        self, node: Any, child_type: str, input_name_to_nodes: Mapping[str, list[Any]] | None = None, recursive: bool = True
    ) -> Any:
        """The first reader of this operator, or reader of readers."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return _first(node, child_type, lambda each: self.get_children(each, readers), recursive)

    def find_first_parent_by_type(
        self, node: Any, parent_type: str, output_name_to_node: Mapping[str, Any] | None = None, recursive: bool = True
    ) -> Any:
        """The first maker of this operator, or maker of makers."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return _first(node, parent_type, lambda each: self.get_parents(each, makers), recursive)


Neighbours = Callable[[Any], list[Any]]


def _reached(first: list[Any], neighbours: Neighbours, stops: Sequence[Any] = ()) -> Iterator[Any]:
    """Nodes by their distance, each once."""
    pending, seen = list(first), set()
    for node in pending:
        if id(node) not in seen and node not in stops:
            seen.add(id(node))
            yield node
            pending.extend(neighbours(node))


def _first(node: Any, op_type: str, neighbours: Neighbours, recursive: bool) -> Any:
    near = neighbours(node)
    return next((each for each in (_reached(near, neighbours) if recursive else near) if each.op_type == op_type), None)
