"""An ORT model file to the graph IR: tables to records (here), records to linked graphs (formats/shared/link.py).

Weights are parts of the file's memory. What the IR has no use for is checked and left out: edges (names say the same), the
provider a node was assigned to, hashes of old versions.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.errors import Fail
from sardonyx.formats.ort import schema, tables
from sardonyx.formats.ort.flatbuffer import IDENTIFIER_AT, MAX_DEPTH, FlatBuffer, FlatBufferError, FlatTable
from sardonyx.formats.shared.dense import MAX_RANK, Unfit, check_extent, check_sparse, raw_tensor, string_tensor
from sardonyx.formats.shared.link import link_model
from sardonyx.formats.shared.problems import ProblemList
from sardonyx.formats.shared.records import DENOTATION, DIM_PARAM, ConstantRecord, GraphRecord, NodeRecord, ValueRecord
from sardonyx.formats.shared.source import Source
from sardonyx.ir import dims
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Attr, AttrKind, Model, SparseConstant, TypeArguments
from sardonyx.ir.saved_optimisation import SavedOptimisation
from sardonyx.ir.tensor import Tensor, from_numpy
from sardonyx.ir.types import MapType, SequenceType, Shape, TensorType, Type

_KINDS: Final = {int(kind): kind for kind in AttrKind if 0 < kind <= AttrKind.GRAPHS}
_NARROW_INDICES: Final = (dtypes.INT8, dtypes.INT16, dtypes.INT32)
_MAX_LEFT_OUT: Final = 1000  # outputs of a node without a name


def read_file(source: Source, *, least_version: int = 1) -> Model:
    """The model in an ORT file; Fail if the bytes are none, InvalidGraph with all problems if it makes no sense."""
    view = memoryview(source.buf)
    if bytes(view[IDENTIFIER_AT : IDENTIFIER_AT + 4]) != schema.IDENTIFIER:
        raise Fail(f"{source.name}: ORT model verification failed: it does not have the identifier {schema.IDENTIFIER.decode()}")
    reader = _Reader(view, source.name)
    try:
        return reader.file(least_version)
    except FlatBufferError as error:
        text = f"{source.name}: ORT model verification failed: {error.text} (byte {error.offset})"
        raise Fail(text) from None


class _Reader:
    def __init__(self, view: memoryview, name: str) -> None:
        self._file = FlatBuffer(view)
        self._ctx = ProblemList(name)
        self._symbols: dict[str, Dim] = {}
        self._saved: list[tuple[SavedOptimisation, list[NodeRecord | None]]] = []

    def file(self, least_version: int) -> Model:
        session = self._file.root()
        version = self._version(session, least_version)
        model = session.table(tables.SESSION.model)
        if model is None:
            raise Fail(f"{self._ctx.name}: Missing Model. Invalid ORT format model.")
        resolver = session.table(tables.SESSION.kernel_type_str_resolver)
        found = self._model(model)
        if version >= schema.FIRST_WITH_RESOLVER:  # those of older versions are about kernels by their hashes
            found.saved_optimisations = [
                replace(saved, nodes=tuple(None if each is None else each.linked for each in at)) for saved, at in self._saved
            ]
        if resolver is not None:
            found.type_arguments = self._resolver(resolver)
        elif version >= schema.FIRST_WITH_RESOLVER:
            raise Fail(f"{self._ctx.name}: Missing kernel type string resolver. Invalid ORT format model.")
        return found

    def _version(self, session: FlatTable, least: int) -> int:
        text = session.text(tables.SESSION.ort_version)
        if not session.has(tables.SESSION.ort_version):
            raise Fail(f"{self._ctx.name}: Missing version. Invalid ORT format model.")
        version = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
        if not max(least, 1) <= version <= schema.CURRENT_VERSION:
            known = f"{max(least, 1)} to {schema.CURRENT_VERSION}"
            hint = "convert the model again from its ONNX file" if 0 < version < least else ""
            raise Fail(f"{self._ctx.name}: The ORT format model version [{text}] is not supported, expected {known}", hint=hint)
        return version

    def _model(self, table: FlatTable) -> Model:
        imports: dict[str, int] = {}
        for entry in table.tables(tables.MODEL.opset_import):
            imports[_domain(entry.text(tables.OPSET.domain))] = entry.number(tables.OPSET.version, "q")
        graph_table = table.table(tables.MODEL.graph)
        if graph_table is None:
            raise Fail(f"{self._ctx.name}: Graph is null. Invalid ORT format model.")
        record = self._graph(graph_table, 1)
        record.doc = table.text(tables.MODEL.graph_doc_string)
        graph, _ = link_model(self._ctx, record, [], imports)
        return Model(
            graph,
            ir_version=table.number(tables.MODEL.ir_version, "q"),
            opset_imports=imports,
            producer_name=table.text(tables.MODEL.producer_name),
            producer_version=table.text(tables.MODEL.producer_version),
            domain=table.text(tables.MODEL.domain),
            model_version=table.number(tables.MODEL.model_version, "q"),
            doc=table.text(tables.MODEL.doc_string),
            metadata={
                entry.text(tables.ENTRY.key): entry.text(tables.ENTRY.value)
                for entry in table.tables(tables.MODEL.metadata_props)
            },
            notes=tuple(self._ctx.notes),
        )

    def _graph(self, table: FlatTable, depth: int) -> GraphRecord:
        if depth > MAX_DEPTH:
            raise FlatBufferError(f"graphs nested more than {MAX_DEPTH} deep", table.pos)
        graph = GraphRecord()
        for each in table.tables(tables.GRAPH.initializers):
            self._initializer(each, graph)
        for each in table.tables(tables.GRAPH.sparse_initializers):
            self._sparse_initializer(each, graph)
        infos = {}
        for each in table.tables(tables.GRAPH.node_args):
            if not each.has(tables.VALUE.name):
                self._ctx.problem(f"byte {each.pos}: NodeArg name is missing. Invalid ORT format model.")
                continue
            info = self._value_info(each)
            infos[info.name] = info
        graph.infos = [info for name, info in infos.items() if name]
        self._nodes(table, graph, depth)
        for role, slot, into in (("input", tables.GRAPH.inputs, graph.inputs), ("output", tables.GRAPH.outputs, graph.outputs)):
            for name in table.texts(slot):
                if name not in infos or not name:
                    self._ctx.problem(f"graph {role} {name!r} is not among the values of the graph (node_args)")
                else:
                    into.append(infos[name])
        return graph

    def _nodes(self, table: FlatTable, graph: GraphRecord, depth: int) -> None:
        limit = table.number(tables.GRAPH.max_node_index, "I")
        by_index: dict[int, NodeRecord] = {}
        for each in table.tables(tables.GRAPH.nodes):
            node = self._node(each, depth)
            index = each.number(tables.NODE.index, "I")
            if index >= limit or index in by_index:
                what = f"not below the graph's {limit}" if index >= limit else "that of another node"
                self._ctx.problem(f"byte {each.pos}: {node.label} has the index {index}, {what}")
            by_index[index] = node
            graph.nodes.append(node)
        self._check_edges(table, by_index)
        for saved, indices in self._optimisations(table):
            # An index of no node belongs to one that the file's writer has already replaced: the record is void.
            self._saved.append((saved, [None if index == schema.MISSING_NODE else by_index.get(index) for index in indices]))

    def _check_edges(self, table: FlatTable, nodes: dict[int, NodeRecord]) -> None:
        """Edges say what the names of inputs and outputs say; a file in which they lead elsewhere was tampered with."""
        for each in table.tables(tables.GRAPH.node_edges):
            index = each.number(tables.EDGES.node_index, "I")
            node = nodes.get(index)
            if node is None:
                self._ctx.problem(f"byte {each.pos}: edges of node {index}, which does not exist")
                continue
            for into, slot in ((True, tables.EDGES.input_edges), (False, tables.EDGES.output_edges)):
                for other, source, target in each.records(slot, tables.EDGE_END):
                    peer = nodes.get(other)
                    maker, reader = (peer, node) if into else (node, peer)
                    if maker is None or reader is None:
                        self._ctx.problem(f"byte {each.pos}: {node.label} has an edge to node {other}, which does not exist")
                    elif not 0 <= source < len(maker.outputs) or target < 0:
                        self._ctx.problem(
                            f"byte {each.pos}: an edge leads from output {source} of {maker.label} to input {target} of "
                            f"{reader.label}: there is no such place"
                        )

    def _node(self, table: FlatTable, depth: int) -> NodeRecord:
        node = NodeRecord()
        node.name = table.text(tables.NODE.name)
        node.doc = table.text(tables.NODE.doc_string)
        node.domain = _domain(table.text(tables.NODE.domain))
        node.op_type = table.text(tables.NODE.op_type)
        node.since = table.number(tables.NODE.since_version, "i")
        node.inputs = table.texts(tables.NODE.inputs)
        node.outputs = table.texts(tables.NODE.outputs)
        if not node.op_type:
            self._ctx.problem(f"byte {table.pos}: a node without an operator (op_type)")
        elif node.since < 1:
            self._ctx.problem(f"byte {table.pos}: {node.label} is of version {node.since}, expected 1 or more")
        if table.number(tables.NODE.type, "i") == schema.FUSED:
            self._ctx.problem(f"{node.label} was compiled by another runtime's execution provider: a file cannot hold it")
        counts = table.numbers(tables.NODE.input_arg_counts, "i")
        if any(count < 0 for count in counts) or sum(counts) != len(node.inputs):
            self._ctx.problem(f"{node.label} has {len(node.inputs)} inputs, its input_arg_counts are {list(counts[:20])}")
        if node.outputs.count("") > _MAX_LEFT_OUT:
            self._ctx.problem(f"{node.label} leaves out more than {_MAX_LEFT_OUT} outputs")
            del node.outputs[_MAX_LEFT_OUT:]
        for each in table.tables(tables.NODE.attributes):
            attr = self._attr(each, node, depth)
            if attr is not None:
                node.attrs.append(attr)
                node.has_subgraphs = node.has_subgraphs or attr.kind in (AttrKind.GRAPH, AttrKind.GRAPHS)
        if len({attr.name for attr in node.attrs}) < len(node.attrs):
            self._ctx.problem(f"{node.label} has two attributes of one name")
        return node

    def _attr(self, table: FlatTable, node: NodeRecord, depth: int) -> Attr | None:
        name, code = table.text(tables.ATTRIBUTE.name), table.number(tables.ATTRIBUTE.type, "i")
        kind = _KINDS.get(code)
        if kind is None or not name:
            self._ctx.problem(f"byte {table.pos}: attribute {name!r} of {node.label} is of type {code}, which a file cannot hold")
            return None
        value = self._attr_value(table, kind, depth)
        if value is None:
            self._ctx.problem(f"byte {table.pos}: attribute {name!r} of {node.label} has no value of its type {kind.name}")
            return None
        return Attr(name, kind, value, "", table.text(tables.ATTRIBUTE.doc_string))

    def _attr_value(self, table: FlatTable, kind: AttrKind, depth: int) -> Any:
        if kind is AttrKind.FLOAT:
            return table.number(tables.ATTRIBUTE.f, "f", 0.0)
        if kind is AttrKind.INT:
            return table.number(tables.ATTRIBUTE.i, "q")
        if kind is AttrKind.STRING:
            return table.text(tables.ATTRIBUTE.s)
        if kind is AttrKind.FLOATS:
            return table.numbers(tables.ATTRIBUTE.floats, "f")
        if kind is AttrKind.INTS:
            return table.numbers(tables.ATTRIBUTE.ints, "q")
        if kind is AttrKind.STRINGS:
            return tuple(table.texts(tables.ATTRIBUTE.strings))
        if kind is AttrKind.TENSOR:
            tensor = table.table(tables.ATTRIBUTE.t)
            return None if tensor is None else self._tensor(tensor)
        if kind is AttrKind.GRAPH:
            graph = table.table(tables.ATTRIBUTE.g)
            return None if graph is None else self._graph(graph, depth + 1)
        if kind is AttrKind.TENSORS:
            tensors = [self._tensor(each) for each in table.tables(tables.ATTRIBUTE.tensors)]
            return None if None in tensors else tuple(tensors)
        return tuple(self._graph(each, depth + 1) for each in table.tables(tables.ATTRIBUTE.graphs))

    def _initializer(self, table: FlatTable, graph: GraphRecord) -> None:
        tensor, name = self._tensor(table), table.text(tables.TENSOR.name)
        if not name:
            self._ctx.problem(f"byte {table.pos}: an initializer without a name")
        elif tensor is None:
            self._ctx.refused.add(name)
        else:
            graph.initializers.append(ConstantRecord(name, tensor, table.text(tables.TENSOR.doc_string)))

    def _sparse_initializer(self, table: FlatTable, graph: GraphRecord) -> None:
        values, indices = table.table(tables.SPARSE.values), table.table(tables.SPARSE.indices)
        if values is None or indices is None or not values.text(tables.TENSOR.name):
            self._ctx.problem(f"byte {table.pos}: a sparse initializer needs values with a name, and indices")
            return
        name = values.text(tables.TENSOR.name)
        self._ctx.refused.add(name)
        held, where = self._tensor(values), self._tensor(indices)
        shape = table.numbers(tables.SPARSE.dims, "q")
        if held is None or where is None:
            return
        if where.dtype in _NARROW_INDICES:  # which ONNX's own format does not have
            where = from_numpy(where.numpy().astype("<i8"))
        try:
            _check_rank(shape)
            check_sparse(held, where, shape)
        except Unfit as unfit:
            self._ctx.problem(f"sparse tensor {name!r} (byte {table.pos}): {unfit}")
            return
        self._ctx.refused.discard(name)
        graph.initializers.append(ConstantRecord(name, SparseConstant(held, where, shape), values.text(tables.TENSOR.doc_string)))

    def _tensor(self, table: FlatTable) -> Tensor | None:
        """A constant; None, after noting the problem, if it makes no sense."""
        name = table.text(tables.TENSOR.name)
        try:
            return make_tensor(table, name)
        except Unfit as unfit:
            self._ctx.problem(f"tensor {name!r} (byte {table.pos}): {unfit}")
            return None

    def _value_info(self, table: FlatTable) -> ValueRecord:
        aside: dict[str, str] = {}
        type_table = table.table(tables.VALUE.type)
        type_ = None if type_table is None else self._type(type_table, aside, 1)
        return ValueRecord(table.text(tables.VALUE.name), type_, table.text(tables.VALUE.doc_string), aside or None)

    def _type(self, table: FlatTable | None, aside: dict[str, str] | None, depth: int) -> Type | None:
        """A type; None if the file leaves it open. `aside` takes what the IR's types have no place for."""
        if table is None:
            return None
        if depth > MAX_DEPTH:
            raise FlatBufferError(f"types nested more than {MAX_DEPTH} deep", table.pos)
        denotation = table.text(tables.TYPE.denotation)
        if denotation and aside is not None:
            aside[DENOTATION] = denotation
        kind, value = table.number(tables.TYPE.value_type, "B"), table.table(tables.TYPE.value)
        if value is None:
            return None
        if kind == schema.TENSOR_TYPE:
            dtype = self._dtype(value.number(tables.TENSOR_TYPE.elem_type, "i"), value.pos)
            shape = self._shape(value.table(tables.TENSOR_TYPE.shape), aside)
            return None if dtype is None else TensorType(dtype, shape)
        if kind == schema.SEQUENCE_TYPE:
            element = self._type(value.table(tables.SEQUENCE.elem_type), None, depth + 1)
            return None if element is None else SequenceType(element)
        if kind == schema.MAP_TYPE:
            key = self._dtype(value.number(tables.MAP.key_type, "i"), value.pos)
            held = self._type(value.table(tables.MAP.value_type), None, depth + 1)
            return None if key is None or held is None else MapType(key, held)
        self._ctx.problem(f"byte {table.pos}: a type of kind {kind}, which does not exist")
        return None

    def _dtype(self, code: int, offset: int) -> DType | None:
        if code == 0:
            return None
        try:
            return dtypes.from_onnx(code)
        except ValueError as error:
            self._ctx.problem(f"byte {offset}: {error}")
            return None

    def _shape(self, table: FlatTable | None, aside: dict[str, str] | None) -> Shape | None:
        if table is None:
            return None
        found = table.tables(tables.SHAPE.dim)
        if len(found) > MAX_RANK:
            raise FlatBufferError(f"more than {MAX_RANK} dimensions", table.pos)
        return tuple(self._dim(each, axis, aside) for axis, each in enumerate(found))

    def _dim(self, table: FlatTable, axis: int, aside: dict[str, str] | None) -> Dim:
        denotation = table.text(tables.DIMENSION.denotation)
        if denotation and aside is not None:
            aside[f"{DENOTATION}.{axis}"] = denotation
        value = table.table(tables.DIMENSION.value)
        kind = 0 if value is None else value.number(tables.DIMENSION_VALUE.dim_type, "b")
        if value is not None and kind == schema.DIM_VALUE:
            size: int = value.number(tables.DIMENSION_VALUE.dim_value, "q")
            if size >= 0:
                return size
        elif value is not None and kind == schema.DIM_PARAM:
            name = value.text(tables.DIMENSION_VALUE.dim_param)
            if name.startswith("?"):  # this marks symbols nobody named; a file must not forge them
                if aside is not None:
                    aside[f"{DIM_PARAM}.{axis}"] = name
            elif name:
                known = self._symbols.get(name)
                if known is None:
                    known = self._symbols[name] = dims.symbol(name)
                return known
        return dims.fresh()

    def _optimisations(self, table: FlatTable) -> list[tuple[SavedOptimisation, tuple[int, ...]]]:
        """What the file says may be rewritten, with the indices of the nodes that it is about."""
        saved = table.table(tables.GRAPH.runtime_optimizations)
        found: list[tuple[SavedOptimisation, tuple[int, ...]]] = []
        for container in [] if saved is None else saved.tables(tables.RUNTIME.records):
            for record in container.tables(tables.CONTAINER.runtime_optimization_records):
                at = record.table(tables.RECORD.nodes_to_optimize_indices)
                if at is None or not record.text(tables.RECORD.action_id):
                    self._ctx.problem(f"byte {record.pos}: a saved optimisation without an action or without nodes")
                    continue
                one = SavedOptimisation(
                    container.text(tables.CONTAINER.optimizer_name),
                    record.text(tables.RECORD.action_id),
                    (),
                    at.number(tables.INDICES.num_inputs, "I"),
                    at.number(tables.INDICES.num_outputs, "I"),
                    at.number(tables.INDICES.num_variadic_inputs, "I"),
                    at.number(tables.INDICES.num_variadic_outputs, "I"),
                    at.number(tables.INDICES.has_variadic_input, "?", False),
                    at.number(tables.INDICES.has_variadic_output, "?", False),
                    tuple(record.texts(tables.RECORD.produced_op_ids)),
                )
                indices = at.numbers(tables.INDICES.node_indices, "I")
                expected = one.input_count + 1 + one.output_count
                if len(indices) != expected:
                    text = f"{one.action} of {one.optimiser} is about {len(indices)} nodes, expected {expected}"
                    self._ctx.problem(f"byte {record.pos}: the saved optimisation {text}")
                    continue
                found.append((one, indices))
        return found

    def _resolver(self, table: FlatTable) -> TypeArguments:
        found: dict[str, dict[str, tuple[tuple[bool, int], ...]]] = {}
        for operator in table.tables(tables.RESOLVER.op_kernel_type_str_args):
            entries = {}
            for each in operator.tables(tables.OPERATOR.kernel_type_str_args):
                arguments = [
                    (not argument.number(tables.ARGUMENT.arg_type, "b"), argument.number(tables.ARGUMENT.index, "I"))
                    for argument in each.tables(tables.TYPE_STRING.args)
                ]
                entries[each.text(tables.TYPE_STRING.kernel_type_str)] = tuple(arguments)
            name = operator.text(tables.OPERATOR.op_id)
            if name.count(":") < 2 or not name.rpartition(":")[2].isdigit():
                raise FlatBufferError(f"{name!r} is no identifier of an operator, expected domain:name:version", operator.pos)
            found[name] = entries
        return found


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _check_rank(shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_RANK:
        raise Unfit(f"it has more than {MAX_RANK} dimensions")


def make_tensor(table: FlatTable, name: str, external: memoryview | None = None) -> Tensor:
    """A constant; Unfit if it makes no sense. `external` is the file beside a checkpoint that has its data, if there is one."""
    shape = table.numbers(tables.TENSOR.dims, "q")
    _check_rank(shape)
    code = table.number(tables.TENSOR.data_type, "i")
    if code == 0:
        raise Unfit("its element type is missing")
    try:
        dtype = dtypes.from_onnx(code)
    except ValueError as error:
        raise Unfit(str(error)) from None
    check_extent(dtype, shape)
    offset = table.number(tables.TENSOR.external_data_offset, "q", -1)
    if offset >= 0 and external is not None:
        return raw_tensor(dtype, shape, external[offset : offset + dtype.nbytes(prod(shape))], name)
    if offset >= 0:
        raise Unfit("its data is not in the model; only checkpoints of training keep it elsewhere")
    if dtype is dtypes.STRING:
        return string_tensor(shape, table.texts(tables.TENSOR.string_data), name)
    return raw_tensor(dtype, shape, table.raw(tables.TENSOR.raw_data) or memoryview(b""), name)
