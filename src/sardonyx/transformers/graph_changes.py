"""Changing a ModelProto: nodes, weights, names, Casts; pruning and sorting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from sardonyx.transformers.graph_values import GraphValues
from sardonyx.transformers.messages import package


class GraphChanges(GraphValues):
    """What can be changed of a model."""

    _node_name_suffix: dict[str, int]

    # Nodes and weights

    def create_node_name(self, op_type: str, name_prefix: str | None = None) -> str:
        """A name that no node has: operator or prefix, and the number behind the highest there is."""
        prefix = f"{(name_prefix or op_type).removesuffix('_')}_"
        if prefix not in self._node_name_suffix:
            ends = (node.name[len(prefix) :] for node in self.nodes() if node.name.startswith(prefix))
            self._node_name_suffix[prefix] = max((int(end) for end in ends if end.isdecimal()), default=-1)
        self._node_name_suffix[prefix] += 1
        return f"{prefix}{self._node_name_suffix[prefix]}"

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

    def remove_duplicated_initializer(self, cache: MutableMapping[str, int] | None = None) -> None:
        """Let nodes read the first of weights with equal bytes, and take out the others; subgraphs keep theirs."""
        hashes: MutableMapping[str, int] = {} if cache is None else cache
        groups: dict[Any, list[Any]] = {}
        for tensor in self.model.graph.initializer:
            if tensor.name not in hashes:
                hashes[tensor.name] = self.to_data_hash(tensor)
            groups.setdefault((tensor.data_type, tuple(tensor.dims), hashes[tensor.name]), []).append(tensor)
        renamed: dict[str, str] = {}
        for first, *others in groups.values():
            renamed.update((other.name, first.name) for other in others if self.has_same_value(first, other, rtol=0, atol=0))
        if renamed:
            for node in self.nodes():
                node.input[:] = [renamed.get(name, name) for name in node.input]
            self.update_graph()

    # Names

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

    def rename_graph_output(self, old_name: str, new_name: str) -> None:
        """Give an output of the model another name."""
        if new_name in self.output_name_to_node():
            raise RuntimeError(f"the graph has a value {new_name!r} already: choose another name")
        output = self.find_graph_output(old_name)
        if output is not None:
            self.replace_input_of_all_nodes(old_name, new_name)
            self.replace_output_of_all_nodes(old_name, new_name)
            output.name = new_name

    def add_prefix_to_names(self, prefix: str) -> None:
        """Put a prefix before the names of weights and of values between nodes, as for two models that become one.

        Inputs and outputs of the model keep their names; subgraphs are left as they are.
        """
        graph = self.model.graph
        kept = {"", *(value.name for value in (*graph.input, *graph.output))}

        def renamed(name: str) -> str:
            return name if name in kept or prefix + name in kept else prefix + name

        for named in (*graph.initializer, *graph.value_info):
            named.name = renamed(named.name)
        for node in graph.node:
            node.input[:] = map(renamed, node.input)
            node.output[:] = map(renamed, node.output)

    # Types

    def remove_cascaded_cast_nodes(self) -> None:
        """Let a Cast of a Cast read what the first reads, as onnxruntime does: what the first would round is lost."""
        makers = self.output_name_to_node()
        casts = [(node, self.get_parent(node, 0, makers)) for node in self.get_nodes_by_op_type("Cast")]
        chains = [(node, parent) for node, parent in casts if parent is not None and parent.op_type == "Cast"]
        for node, parent in chains:
            node.input[0] = parent.input[0]
        if chains:
            self.prune_graph()

    def remove_useless_cast_nodes(self) -> None:
        """Take out Casts to the type that their input has."""
        helper = self.infer_runtime_shape(update=True)
        self._dtype_dict = None
        for node in self.get_nodes_by_op_type("Cast"):
            kind = self.get_dtype(node.input[0], helper)
            if kind and kind == self.get_node_attribute(node, "to"):
                self.bypass_node(node)

    def bypass_node(self, node: Any) -> None:
        """Take out a node that changes nothing, unless input and output of it both have names that are needed."""
        source, target = node.input[0], node.output[0]
        if target not in self.get_graphs_output_names():
            self.replace_input_of_all_nodes(target, source)
        elif source not in self.get_graphs_input_names() and len(self.input_name_to_nodes()[source]) == 1:
            if source in self.get_graphs_output_names() or self.get_initializer(source) is not None:
                return
            self.replace_output_of_all_nodes(source, target)
        else:
            return
        self.remove_node(node)

    def change_graph_input_type(self, graph_input: Any, new_type: int) -> tuple[Any, list[Any]]:
        """Give an input another type: nodes read it through a Cast. That Cast, if one is needed, and Casts that were removed."""
        old_type = graph_input.type.tensor_type.elem_type
        if old_type == int(new_type):
            return None, []
        readers = self.input_name_to_nodes().get(graph_input.name, [])
        others = [node for node in readers if node.op_type != "Cast"]
        cast = None
        if others:
            cast = self._cast(graph_input, old_type, is_input=True)
            for node in others:
                self.replace_node_input(node, graph_input.name, cast.output[0])
        removed = []
        for node in readers:
            is_useless = node.op_type == "Cast" and self.get_node_attribute(node, "to") == int(new_type)
            if is_useless and not self.find_graph_output(node.output[0]):
                self.replace_input_of_all_nodes(node.output[0], graph_input.name)
                removed.append(node)
        self.remove_nodes(removed)
        graph_input.type.tensor_type.elem_type = int(new_type)
        return cast, removed

    def change_graph_output_type(self, graph_output: Any, new_type: int) -> Any:
        """Give an output another type by a Cast, which is returned if one is needed."""
        if graph_output.type.tensor_type.elem_type == int(new_type):
            return None
        cast = self._cast(graph_output, new_type, is_input=False)
        graph_output.type.tensor_type.elem_type = int(new_type)
        return cast

    def _cast(self, value: Any, kind: int, is_input: bool) -> Any:
        """A Cast behind an input, or before an output, with the name that the inner value gets."""
        name = self.create_node_name("Cast")
        inner = f"{name}_{value.name}"
        described = self.model.graph.value_info.add()
        described.CopyFrom(value)
        described.name = inner
        if not is_input:
            self.replace_input_of_all_nodes(value.name, inner)
            self.replace_output_of_all_nodes(value.name, inner)
        ends = ([value.name], [inner]) if is_input else ([inner], [value.name])
        self.model.graph.node.extend([package().helper.make_node("Cast", *ends, to=int(kind), name=name)])
        return self.model.graph.node[-1]

    def clean_shape_infer(self) -> None:
        """Forget what is noted of values between nodes."""
        self.model.graph.ClearField("value_info")

    # Pruning and sorting

    def remove_unused_constant(self) -> None:
        """Take out Constant nodes that nobody reads."""
        used = {name for graph in self.graphs() for node in graph.node for name in node.input}
        used.update(self.get_graphs_output_names())
        self.remove_nodes(node for node in self.get_nodes_by_op_type("Constant") if node.output[0] not in used)

    def prune_graph(self, outputs: Sequence[str] | None = None, allow_remove_graph_inputs: bool = True) -> None:
        """Take out what these outputs (all, if none are named) do not need."""
        graph = self.model.graph
        wanted = [value.name for value in graph.output if outputs is None or value.name in outputs]
        nodes = list(graph.node)  # held, so that each is the same object below
        makers = {name: node for node in nodes for name in node.output if name}
        pending, used = list(wanted), set(wanted)
        needed: set[int] = set()
        while pending:
            node = makers.get(pending.pop())
            if node is None or id(node) in needed:
                continue
            needed.add(id(node))
            for name in _read_by(node):
                if name not in used:
                    used.add(name)
                    pending.append(name)
        _keep(graph.node, [node for node in nodes if id(node) in needed])
        _keep(graph.output, [value for value in graph.output if value.name in wanted])
        self._keep_used(used, allow_remove_graph_inputs)

    def update_graph(self, verbose: bool = False, allow_remove_graph_inputs: bool = False) -> None:
        """Take out weights, Constants and, if allowed, inputs that no node reads."""
        used = {name for node in self.model.graph.node for name in _read_by(node)}
        used.update(value.name for value in self.model.graph.output)
        self._keep_used(used, allow_remove_graph_inputs)
        self.remove_unused_constant()

    def _keep_used(self, used: set[str], allow_remove_graph_inputs: bool) -> None:
        graph = self.model.graph
        for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
            graph.initializer.remove(tensor)  # in place: who holds another weight holds it still
        if allow_remove_graph_inputs:
            _keep(graph.input, [value for value in graph.input if value.name in used])

    def topological_sort(self, is_deterministic: bool = False, dump_model_on_failure: bool = False) -> None:
        """Bring the nodes of every graph into an order in which they can be computed."""
        for graph in self.graphs():
            self.graph_topological_sort(graph, is_deterministic)

    @staticmethod
    def graph_topological_sort(graph: Any, is_deterministic: bool = False) -> None:
        """Bring the nodes of a graph into an order in which they can be computed.

        Nodes are gone through, by name if the order must not depend on theirs, until all have been taken; each time, those are
        taken whose inputs are there.
        """
        nodes = sorted(graph.node, key=lambda node: node.name) if is_deterministic else list(graph.node)
        made = {name for node in nodes for name in node.output if name}
        waiting = [(node, made.intersection(_read_by(node))) for node in nodes]
        done: set[str] = set()
        order: list[Any] = []
        while waiting:
            left = []
            for node, needs in waiting:
                if needs <= done:
                    order.append(node)
                    done.update(node.output)
                else:
                    left.append((node, needs))
            if len(left) == len(waiting):
                raise RuntimeError(f"Graph is not a DAG: node {left[0][0].name!r} waits for {sorted(left[0][1] - done)}")
            waiting = left
        _keep(graph.node, order)


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
