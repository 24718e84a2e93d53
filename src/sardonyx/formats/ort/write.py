"""The graph IR to an ORT model file: every value with its type, every node with its version and all attributes.

A reader of this format looks nothing up, so the file says what the operator table knows (`OperatorFacts`): from which version an
operator's definition is, defaults of attributes, how many inputs belong to each formal one, and which arguments a type
constraint is about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from sardonyx import dtypes
from sardonyx.errors import Fail
from sardonyx.formats.ort import schema, tables
from sardonyx.formats.ort.encode import TableOut, encode
from sardonyx.formats.shared.constants import constant_of
from sardonyx.formats.shared.naming import file_names
from sardonyx.formats.shared.records import DENOTATION, DIM_PARAM
from sardonyx.formats.shared.replacing import replacing
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import (
    Attr,
    AttrKind,
    Graph,
    Model,
    Node,
    SparseConstant,
    TypeArguments,
    Value,
    captured_values,
    walk,
)
from sardonyx.ir.saved_optimisation import SavedOptimisation
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import MapType, SequenceType, TensorType, Type

_ALWAYS_IMPORTED: Final = {"com.microsoft": 1}  # what ONNX Runtime makes of saved optimisations is of this domain


class OperatorFacts(Protocol):
    """What is known about operators beyond the graph."""

    def since_version(self, node: Node) -> int:
        """The version in which the node's operator got the definition that the node follows."""

    def defaults(self, node: Node) -> Iterable[Attr]:
        """The attributes that the node does not carry, but its operator has a default for."""

    def argument_counts(self, node: Node) -> Sequence[int]:
        """How many of the node's inputs belong to each formal input."""

    def type_arguments(self, nodes: Iterable[Node], operators: Iterable[str]) -> TypeArguments:
        """Which arguments type constraints are about: for the operators of nodes, and for others by their identifiers."""


def model_parts(model: Model, facts: OperatorFacts, optimisations: Sequence[SavedOptimisation] = ()) -> list[bytes | memoryview]:
    """The parts of the file of a model."""
    return _ModelWriter(model, facts, optimisations).parts()


def save_model(model: Model, path: str, facts: OperatorFacts, optimisations: Sequence[SavedOptimisation] = ()) -> None:
    """Write a model to a file, which appears complete or not at all."""
    parts = model_parts(model, facts, optimisations)
    with replacing(os.fsdecode(path)) as file:
        file.writelines(parts)


def operator_identifier(domain: str, name: str, version: int) -> str:
    """An operator as this format names it: `:Add:14`, `com.microsoft:FusedConv:1`."""
    return f"{domain}:{name}:{version}"


class _ModelWriter:
    def __init__(self, model: Model, facts: OperatorFacts, optimisations: Sequence[SavedOptimisation]) -> None:
        if model.functions:
            raise Fail("the model has functions, which the ORT format cannot hold: inline them first")
        self._model = model
        self._facts = facts
        self._optimisations = optimisations
        self._names = file_names(model.graph)

    def parts(self) -> list[bytes | memoryview]:
        produced = [name for record in self._optimisations for name in record.produced]
        nodes = [node for node in walk(self._model.graph) if constant_of(node) is None]
        session = TableOut()
        session.text(tables.SESSION.ort_version, str(schema.CURRENT_VERSION))
        session.table(tables.SESSION.model, self._model_table())
        session.table(tables.SESSION.kernel_type_str_resolver, _resolver(self._facts.type_arguments(nodes, produced)))
        return encode(session, schema.IDENTIFIER)

    def _model_table(self) -> TableOut:
        model, out = self._model, TableOut()
        out.number(tables.MODEL.ir_version, "q", model.ir_version)
        imports = []
        used = {node.domain: node.version for node in walk(model.graph)}  # of which a model need not import all
        for domain, version in {**_ALWAYS_IMPORTED, **used, **model.opset_imports}.items():
            entry = TableOut()
            entry.text(tables.OPSET.domain, domain)
            entry.number(tables.OPSET.version, "q", version)
            imports.append(entry)
        out.tables(tables.MODEL.opset_import, imports)
        out.text(tables.MODEL.producer_name, model.producer_name)
        out.text(tables.MODEL.producer_version, model.producer_version)
        out.text(tables.MODEL.domain, model.domain)
        out.number(tables.MODEL.model_version, "q", model.model_version)
        if model.doc:
            out.text(tables.MODEL.doc_string, model.doc)
        out.table(tables.MODEL.graph, self._graph(model.graph, is_main=True))
        if model.graph.doc:
            out.text(tables.MODEL.graph_doc_string, model.graph.doc)
        entries = []
        for key, text in model.metadata.items():
            entry = TableOut()
            entry.text(tables.ENTRY.key, key)
            entry.text(tables.ENTRY.value, text)
            entries.append(entry)
        out.tables(tables.MODEL.metadata_props, entries)
        return out

    def _name(self, value: Value | None) -> str:
        if value is None:
            return ""
        name = self._names.get(value)
        if name is None:
            raise Fail(f"the graph cannot be written: it reads {value.name!r}, which is no value of it")
        return name

    def _graph(self, graph: Graph, *, is_main: bool = False) -> TableOut:
        out = TableOut()
        constants = [(value, value.constant) for value in graph.initializers.values() if value.constant is not None]
        nodes: list[Node] = []
        for node in graph.nodes:
            made = constant_of(node)
            if made is None:
                nodes.append(node)
            else:
                constants.append((node.outputs[0], made))
        dense = [tensor_table(each, self._name(value), value.doc) for value, each in constants if isinstance(each, Tensor)]
        out.tables(tables.GRAPH.initializers, dense)
        sparse = [_sparse(each, self._name(value)) for value, each in constants if isinstance(each, SparseConstant)]
        out.tables(tables.GRAPH.sparse_initializers, sparse)
        outer = [] if is_main else captured_values(graph)
        out.tables(tables.GRAPH.node_args, self._node_args(graph, nodes, [value for value, _ in constants], outer))
        index = {node: position for position, node in enumerate(nodes)}
        implicit = {node: _implicit_inputs(node) for node in nodes}
        out.tables(tables.GRAPH.nodes, [self._node(node, position, implicit[node]) for node, position in index.items()])
        out.number(tables.GRAPH.max_node_index, "I", len(nodes))
        out.tables(tables.GRAPH.node_edges, _edges(index, implicit))
        out.texts(tables.GRAPH.inputs, [self._name(value) for value in graph.inputs])
        out.texts(tables.GRAPH.outputs, [self._name(value) for value in graph.outputs])
        saved = [each for each in self._optimisations if _graph_of(each) is graph]
        if saved:
            out.table(tables.GRAPH.runtime_optimizations, _runtime_optimizations(saved, index))
        return out

    def _node_args(
        self, graph: Graph, nodes: Sequence[Node], constants: Sequence[Value], outer: Sequence[Value]
    ) -> Iterator[TableOut]:
        """What is said of every value that a graph names."""
        results = [value for node in nodes for value in node.outputs]
        for value in dict.fromkeys((*graph.inputs, *constants, *results, *outer)):
            name = self._name(value)
            if name:
                out = TableOut()
                out.text(tables.VALUE.name, name)
                out.text(tables.VALUE.doc_string, value.doc)
                out.table(tables.VALUE.type, self._type(value))
                yield out
        if any(value is None for node in nodes for value in node.inputs) or not all(map(self._name, results)):
            out = TableOut()
            out.text(tables.VALUE.name, "")
            yield out

    def _type(self, value: Value) -> TableOut:
        type_ = value.type
        if type_ is None and value.constant is not None:
            held = value.constant.values if isinstance(value.constant, SparseConstant) else value.constant
            type_ = TensorType(held.dtype, value.constant.shape)
        if type_ is None:
            raise Fail(f"the type of {value.name!r} is not known, which the ORT format needs")
        return _type(type_, value.name, value.metadata)

    def _node(self, node: Node, index: int, implicit: Sequence[Value]) -> TableOut:
        out = TableOut()
        out.text(tables.NODE.name, node.name)
        out.text(tables.NODE.doc_string, node.doc)
        out.text(tables.NODE.domain, node.domain)
        out.number(tables.NODE.since_version, "i", self._facts.since_version(node))
        out.number(tables.NODE.index, "I", index)
        out.text(tables.NODE.op_type, node.op_type)
        out.text(tables.NODE.execution_provider_type, schema.ASSIGNED_TO)
        out.texts(tables.NODE.inputs, map(self._name, node.inputs))
        out.texts(tables.NODE.outputs, map(self._name, node.outputs))
        attrs = [attr for attr in node.attrs.values() if attr.value is not None]
        out.tables(tables.NODE.attributes, [self._attr(attr, node) for attr in (*attrs, *self._facts.defaults(node))])
        out.numbers(tables.NODE.input_arg_counts, "i", self._facts.argument_counts(node))
        out.texts(tables.NODE.implicit_inputs, map(self._name, implicit))
        return out

    def _attr(self, attr: Attr, node: Node) -> TableOut:
        out = TableOut()
        out.text(tables.ATTRIBUTE.name, attr.name)
        if attr.doc:
            out.text(tables.ATTRIBUTE.doc_string, attr.doc)
        writer = _ATTR_WRITERS.get(attr.kind)
        if writer is not None:
            writer(out, attr.value)
        elif attr.kind is AttrKind.GRAPH:
            out.table(tables.ATTRIBUTE.g, self._graph(attr.value))
        elif attr.kind is AttrKind.GRAPHS:
            out.tables(tables.ATTRIBUTE.graphs, [self._graph(graph) for graph in attr.value])
        else:
            raise Fail(f"{node.label}: attribute {attr.name!r} is a {attr.kind.name}, which the ORT format cannot hold")
        out.number(tables.ATTRIBUTE.type, "i", int(attr.kind))
        return out


_ATTR_WRITERS: Final[Mapping[AttrKind, Callable[[TableOut, Any], None]]] = {
    AttrKind.FLOAT: lambda out, value: out.number(tables.ATTRIBUTE.f, "f", value),
    AttrKind.INT: lambda out, value: out.number(tables.ATTRIBUTE.i, "q", value),
    AttrKind.STRING: lambda out, value: out.text(tables.ATTRIBUTE.s, value),
    AttrKind.FLOATS: lambda out, value: out.numbers(tables.ATTRIBUTE.floats, "f", value),
    AttrKind.INTS: lambda out, value: out.numbers(tables.ATTRIBUTE.ints, "q", value),
    AttrKind.STRINGS: lambda out, value: out.texts(tables.ATTRIBUTE.strings, value),
    AttrKind.TENSOR: lambda out, value: out.table(tables.ATTRIBUTE.t, tensor_table(value, value.name)),
    AttrKind.TENSORS: lambda out, value: out.tables(tables.ATTRIBUTE.tensors, [tensor_table(each, each.name) for each in value]),
}


def _implicit_inputs(node: Node) -> list[Value]:
    """What a node's subgraphs read of the graphs around them."""
    return list(dict.fromkeys(value for graph in node.subgraphs() for value in captured_values(graph)))


def _edges(index: Mapping[Node, int], implicit: Mapping[Node, Sequence[Value]]) -> list[TableOut]:
    """Which node hands what to which: the same that names say, in numbers."""
    into: dict[Node, list[tuple[int, int, int]]] = {node: [] for node in index}
    out_of: dict[Node, list[tuple[int, int, int]]] = {node: [] for node in index}
    for node, position in index.items():
        for argument, value in enumerate((*node.inputs, *implicit[node])):
            maker = None if value is None else value.producer
            if value is not None and maker is not None and maker in index:
                into[node].append((index[maker], value.index, argument))
                out_of[maker].append((position, value.index, argument))
    written = []
    for node, position in index.items():
        table = TableOut()
        table.number(tables.EDGES.node_index, "I", position)
        table.records(tables.EDGES.input_edges, tables.EDGE_END, sorted(into[node]))
        table.records(tables.EDGES.output_edges, tables.EDGE_END, sorted(out_of[node]))
        written.append(table)
    return written


def tensor_table(tensor: Tensor, name: str, doc: str = "") -> TableOut:
    """A constant with its data."""
    out = TableOut()
    out.text(tables.TENSOR.name, name)
    if doc:
        out.text(tables.TENSOR.doc_string, doc)
    out.numbers(tables.TENSOR.dims, "q", tensor.shape)
    out.number(tables.TENSOR.data_type, "i", tensor.dtype.onnx)
    if tensor.dtype is dtypes.STRING:
        out.texts(tables.TENSOR.string_data, tensor.numpy().reshape(-1).tolist())
    else:
        out.raw(tables.TENSOR.raw_data, tensor.raw())
    return out


def _sparse(constant: SparseConstant, name: str) -> TableOut:
    out = TableOut()
    out.table(tables.SPARSE.values, tensor_table(constant.values, name))
    out.table(tables.SPARSE.indices, tensor_table(constant.indices, ""))
    out.numbers(tables.SPARSE.dims, "q", constant.shape)
    return out


def _type(type_: Type, name: str, metadata: Mapping[str, str]) -> TableOut:
    out, inner = TableOut(), TableOut()
    if metadata.get(DENOTATION):
        out.text(tables.TYPE.denotation, metadata[DENOTATION])
    if isinstance(type_, TensorType):
        kind = schema.TENSOR_TYPE
        inner.number(tables.TENSOR_TYPE.elem_type, "i", type_.dtype.onnx)
        if type_.shape is not None:
            shape = TableOut()
            shape.tables(tables.SHAPE.dim, [_dim(dim, axis, metadata) for axis, dim in enumerate(type_.shape)])
            inner.table(tables.TENSOR_TYPE.shape, shape)
    elif isinstance(type_, SequenceType):
        kind = schema.SEQUENCE_TYPE
        inner.table(tables.SEQUENCE.elem_type, _type(type_.element, name, {}))
    elif isinstance(type_, MapType):
        kind = schema.MAP_TYPE
        inner.number(tables.MAP.key_type, "i", type_.key.onnx)
        inner.table(tables.MAP.value_type, _type(type_.value, name, {}))
    else:
        raise Fail(f"{name!r} is {type_.ort}: the ORT format holds tensors, sequences and maps only")
    out.number(tables.TYPE.value_type, "B", kind)
    out.table(tables.TYPE.value, inner)
    return out


def _dim(dim: Dim, axis: int, metadata: Mapping[str, str]) -> TableOut:
    out, value = TableOut(), TableOut()
    if isinstance(dim, int):
        value.number(tables.DIMENSION_VALUE.dim_type, "b", schema.DIM_VALUE)
        value.number(tables.DIMENSION_VALUE.dim_value, "q", dim)
    else:
        name = metadata.get(f"{DIM_PARAM}.{axis}", "") if dim.is_anonymous else str(dim)
        if name:
            value.number(tables.DIMENSION_VALUE.dim_type, "b", schema.DIM_PARAM)
            value.text(tables.DIMENSION_VALUE.dim_param, name)
    out.table(tables.DIMENSION.value, value)
    denotation = metadata.get(f"{DENOTATION}.{axis}")
    if denotation:
        out.text(tables.DIMENSION.denotation, denotation)
    return out


def _graph_of(saved: SavedOptimisation) -> Graph | None:
    return next((node.graph for node in saved.nodes if node is not None), None)


def _runtime_optimizations(saved: Sequence[SavedOptimisation], index: Mapping[Node, int]) -> TableOut:
    by_optimiser: dict[str, list[TableOut]] = {}
    for record in saved:
        at = TableOut()
        numbers = [schema.MISSING_NODE if node is None else index[node] for node in record.nodes]
        at.numbers(tables.INDICES.node_indices, "I", numbers)
        at.number(tables.INDICES.num_inputs, "I", record.num_inputs)
        at.number(tables.INDICES.num_outputs, "I", record.num_outputs)
        at.number(tables.INDICES.has_variadic_input, "?", record.has_variadic_input, False)
        at.number(tables.INDICES.has_variadic_output, "?", record.has_variadic_output, False)
        at.number(tables.INDICES.num_variadic_inputs, "I", record.num_variadic_inputs)
        at.number(tables.INDICES.num_variadic_outputs, "I", record.num_variadic_outputs)
        out = TableOut()
        out.text(tables.RECORD.action_id, record.action)
        out.table(tables.RECORD.nodes_to_optimize_indices, at)
        out.texts(tables.RECORD.produced_op_ids, record.produced)
        by_optimiser.setdefault(record.optimiser, []).append(out)
    containers = []
    for optimiser in sorted(by_optimiser):
        container = TableOut()
        container.text(tables.CONTAINER.optimizer_name, optimiser)
        container.tables(tables.CONTAINER.runtime_optimization_records, by_optimiser[optimiser])
        containers.append(container)
    result = TableOut()
    result.tables(tables.RUNTIME.records, containers)
    return result


def _resolver(entries: TypeArguments) -> TableOut:
    """Readers search in these vectors by halving them: they are sorted by their bytes."""
    operators = []
    for name in sorted(entries, key=str.encode):
        strings = []
        for constraint in sorted(entries[name], key=str.encode):
            arguments = []
            for is_input, position in entries[name][constraint]:
                argument = TableOut()
                argument.number(tables.ARGUMENT.arg_type, "b", 0 if is_input else 1)
                argument.number(tables.ARGUMENT.index, "I", position)
                arguments.append(argument)
            entry = TableOut()
            entry.text(tables.TYPE_STRING.kernel_type_str, constraint)
            entry.tables(tables.TYPE_STRING.args, arguments)
            strings.append(entry)
        operator = TableOut()
        operator.text(tables.OPERATOR.op_id, name)
        operator.tables(tables.OPERATOR.kernel_type_str_args, strings)
        operators.append(operator)
    out = TableOut()
    out.tables(tables.RESOLVER.op_kernel_type_str_args, operators)
    return out
