"""ModelProto to ir.graph.Model, in two steps: messages to records (here), records to linked graphs (link.py).

What the IR has no place for is kept where the writer finds it again:

    training_info, configuration       as bytes, in Model.unread
    quantization_annotation            in the value's metadata, as onnx.quantization.<parameter>
    device_configurations of a node    in the node's metadata, as onnx.device_configurations (base 64)
    parts of types                     in the value's metadata: see types.py

Unknown fields are skipped, so that files of newer versions can be read.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import Final

from sardonyx.formats.onnx import schema, wire
from sardonyx.formats.onnx.attributes import read_attr
from sardonyx.formats.onnx.context import ReadContext
from sardonyx.formats.onnx.schema import tags
from sardonyx.formats.onnx.tensors import make_tensor, read_record, read_sparse, string_entry
from sardonyx.formats.onnx.types import TypeReader
from sardonyx.formats.onnx.wire import WireError, fields, signed
from sardonyx.formats.shared.link import link_model
from sardonyx.formats.shared.records import ConstantRecord, FunctionRecord, GraphRecord, NodeRecord, ValueRecord
from sardonyx.ir.graph import AttrKind, Model

DEVICE_CONFIGURATIONS: Final = "onnx.device_configurations"
_MODEL, _GRAPH, _NODE, _FUNCTION = tags("Model"), tags("Graph"), tags("Node"), tags("Function")
_OPSET, _ANNOTATION = tags("OperatorSetId"), tags("TensorAnnotation")
_SUBGRAPHS: Final = (AttrKind.GRAPH, AttrKind.GRAPHS)
_MAX_LEFT_OUT: Final = 1000  # outputs of a node without a name; in the file each is two bytes, here an object
_OLDEST_WITH_OPSETS: Final = 3  # IR version


def normal_domain(domain: str) -> str:
    """The domain as the IR has it: "ai.onnx" is the default domain."""
    return "" if domain == "ai.onnx" else domain


def read_model(ctx: ReadContext) -> Model:
    """The model in the context's buffer."""
    return _Reader(ctx).model()


class _Reader:
    def __init__(self, ctx: ReadContext) -> None:
        self._ctx = ctx
        self.types = TypeReader(ctx)

    def model(self) -> Model:
        ctx, buf = self._ctx, self._ctx.buf
        texts = dict.fromkeys((_MODEL.producer_name, _MODEL.producer_version, _MODEL.domain, _MODEL.doc_string), "")
        ir_version = model_version = 0
        imports: dict[str, int] = {}
        metadata: dict[str, str] = {}
        graph_at: tuple[int, int] | None = None
        functions: list[FunctionRecord] = []
        unread = bytearray()
        before = 0
        for tag, start, stop in fields(buf, 0, len(buf)):
            if tag == _MODEL.graph:
                if graph_at is not None:
                    raise WireError("a second graph", before)
                graph_at = start, stop
            elif tag == _MODEL.ir_version:
                ir_version = signed(start)
            elif tag == _MODEL.model_version:
                model_version = signed(start)
            elif tag in texts:
                texts[tag] = wire.text(buf, start, stop)
            elif tag == _MODEL.opset_import:
                self._opset_import(start, stop, imports)
            elif tag == _MODEL.metadata_props:
                string_entry(ctx, start, stop, metadata)
            elif tag == _MODEL.functions:
                functions.append(self._function(start, stop))
            elif tag in (_MODEL.training_info, _MODEL.configuration):
                unread += buf[before:stop]
            else:
                schema.check_skipped("Model", tag, stop - 1)
            before = stop
        if graph_at is None:
            raise WireError("this is no ONNX model: it has no graph", 0)
        if ir_version < 1:
            ctx.problem("the model does not say its IR version" if not ir_version else f"IR version {ir_version} does not exist")
        if 0 < ir_version < _OLDEST_WITH_OPSETS:
            imports.setdefault("", 1)
        elif not imports:
            ctx.problem("the model imports no operator set (opset_import is empty)")
        graph, linked = link_model(ctx, self.graph(*graph_at, 1), functions, imports)
        return Model(
            graph,
            ir_version=ir_version,
            opset_imports=imports,
            functions=linked,
            producer_name=texts[_MODEL.producer_name],
            producer_version=texts[_MODEL.producer_version],
            domain=texts[_MODEL.domain],
            model_version=model_version,
            doc=texts[_MODEL.doc_string],
            metadata=metadata,
            unread=bytes(unread),
            notes=tuple(ctx.notes),
            looked_at=ctx.external.looked_at,
        )

    def _domain(self, start: int, stop: int) -> str:
        return normal_domain(wire.text(self._ctx.buf, start, stop))

    def _opset_import(self, pos: int, end: int, imports: dict[str, int]) -> None:
        domain, version = "", 0
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == _OPSET.domain:
                domain = self._domain(start, stop)
            elif tag == _OPSET.version:
                version = signed(start)
            else:
                schema.check_skipped("OperatorSetId", tag, stop - 1)
        if version < (0 if domain else 1):  # makers of domains of their own count from 0, too
            self._ctx.problem(f"{self._ctx.location(pos - 1)}: version {version} of domain {domain!r} does not exist")
        imports[domain] = max(version, imports.get(domain, 0))

    def graph(self, pos: int, end: int, depth: int) -> GraphRecord:
        """The graph in [pos, end)."""
        ctx, buf = self._ctx, self._ctx.buf
        ctx.check_depth(depth, pos)
        graph = GraphRecord()
        for tag, start, stop in fields(buf, pos, end):
            if tag == _GRAPH.node:
                node = self._node(start, stop, depth + 1)
                if node is not None:
                    graph.nodes.append(node)
            elif tag == _GRAPH.value_info:
                info = self.types.value_info(start, stop)
                if info.name:
                    graph.infos.append(info)
            elif tag == _GRAPH.initializer:
                self._initializer(start, stop, graph)
            elif tag == _GRAPH.input:
                self._value("input", start, stop, graph.inputs)
            elif tag == _GRAPH.output:
                self._value("output", start, stop, graph.outputs)
            elif tag == _GRAPH.name:
                graph.name = wire.text(buf, start, stop)
            elif tag == _GRAPH.doc_string:
                graph.doc = wire.text(buf, start, stop)
            elif tag == _GRAPH.sparse_initializer:
                constant, record = read_sparse(ctx, start, stop)
                if record is not None and not record.name:
                    ctx.problem(f"{ctx.location(start - 1)}: a sparse initializer without a name")
                elif constant is None and record is not None:
                    ctx.refused.add(record.name)
                elif constant is not None and record is not None:
                    graph.initializers.append(ConstantRecord(record.name, constant, record.doc, record.metadata))
            elif tag == _GRAPH.quantization_annotation:
                self._annotation(start, stop, graph.annotations)
            elif tag == _GRAPH.metadata_props:
                string_entry(ctx, start, stop, graph.metadata)
            else:
                schema.check_skipped("Graph", tag, stop - 1)
        if depth > 1 and not graph.nodes and not graph.outputs:
            ctx.count_empty_subgraph(pos - 1)
        return graph

    def _value(self, role: str, pos: int, end: int, into: list[ValueRecord]) -> None:
        info = self.types.value_info(pos, end)
        if info.name:
            into.append(info)
        else:
            self._ctx.problem(f"{self._ctx.location(pos - 1)}: a graph {role} without a name")

    def _initializer(self, pos: int, end: int, graph: GraphRecord) -> None:
        record = read_record(self._ctx, pos, end)
        tensor = make_tensor(self._ctx, record)
        if not record.name:
            self._ctx.problem(f"{self._ctx.location(pos - 1)}: an initializer without a name")
        elif tensor is None:
            self._ctx.refused.add(record.name)
        else:
            graph.initializers.append(ConstantRecord(record.name, tensor, record.doc, record.metadata))

    def _annotation(self, pos: int, end: int, into: dict[str, dict[str, str]]) -> None:
        name = ""
        parameters: dict[str, str] = {}
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == _ANNOTATION.tensor_name:
                name = wire.text(self._ctx.buf, start, stop)
            elif tag == _ANNOTATION.quant_parameter_tensor_names:
                string_entry(self._ctx, start, stop, parameters)
            else:
                schema.check_skipped("TensorAnnotation", tag, stop - 1)
        into[name] = parameters

    def _node(self, pos: int, end: int, depth: int) -> NodeRecord | None:
        """The node in [pos, end); None for one that takes nothing and gives nothing, and so does nothing."""
        ctx, buf = self._ctx, self._ctx.buf
        node = NodeRecord()
        devices = bytearray()
        before = pos
        for tag, start, stop in fields(buf, pos, end):
            if tag == _NODE.input:
                node.inputs.append(str(buf[start:stop], "utf-8", "surrogateescape"))
            elif tag == _NODE.output:
                node.outputs.append(str(buf[start:stop], "utf-8", "surrogateescape"))
            elif tag == _NODE.attribute:
                attr = read_attr(ctx, self, start, stop, depth + 1)
                if attr is not None:
                    node.attrs.append(attr)
                    if attr.kind in _SUBGRAPHS:
                        node.has_subgraphs = True
            elif tag == _NODE.op_type:
                node.op_type = wire.text(buf, start, stop)
            elif tag == _NODE.name:
                node.name = wire.text(buf, start, stop)
            elif tag == _NODE.domain:
                node.domain = self._domain(start, stop)
            elif tag == _NODE.doc_string:
                node.doc = wire.text(buf, start, stop)
            elif tag == _NODE.overload:
                node.overload = wire.text(buf, start, stop)
            elif tag == _NODE.metadata_props:
                string_entry(ctx, start, stop, node.metadata)
            elif tag == _NODE.device_configurations:
                devices += buf[before:stop]
            else:
                schema.check_skipped("Node", tag, stop - 1)
            before = stop
        node.metadata.pop(DEVICE_CONFIGURATIONS, None)  # a file must not forge what the writer takes for encoded fields
        if devices:
            node.metadata[DEVICE_CONFIGURATIONS] = b2a_base64(devices, newline=False).decode()
        if not node.op_type:
            ctx.problem(f"{ctx.location(pos - 1)}: a node without an operator (op_type)")
        elif not node.inputs and not node.outputs:
            ctx.note(f"{ctx.location(pos - 1)}: {node.label} has neither inputs nor outputs, it is left out")
            return None
        elif len(node.outputs) > _MAX_LEFT_OUT and node.outputs.count("") > _MAX_LEFT_OUT:
            ctx.problem(f"{ctx.location(pos - 1)}: {node.label} leaves out more than {_MAX_LEFT_OUT} outputs")
            del node.outputs[_MAX_LEFT_OUT:]
        elif len({attr.name for attr in node.attrs}) < len(node.attrs):
            ctx.problem(f"{ctx.location(pos - 1)}: {node.label} has two attributes of one name")
        if node.has_subgraphs:
            self._check_subgraphs(node, pos)
        return node

    def _check_subgraphs(self, node: NodeRecord, pos: int) -> None:
        for attr in node.attrs:
            graphs = (attr.value,) if attr.kind is AttrKind.GRAPH else attr.value if attr.kind is AttrKind.GRAPHS else ()
            if any(isinstance(graph, GraphRecord) and not graph.nodes and not graph.outputs for graph in graphs):
                self._ctx.problem(f"{self._ctx.location(pos - 1)}: {node.label}: {attr.name} is an empty subgraph")

    def _function(self, pos: int, end: int) -> FunctionRecord:
        ctx, buf = self._ctx, self._ctx.buf
        function = FunctionRecord()
        body = function.body
        for tag, start, stop in fields(buf, pos, end):
            if tag == _FUNCTION.node:
                node = self._node(start, stop, 2)
                if node is not None:
                    body.nodes.append(node)
            elif tag == _FUNCTION.input:
                body.inputs.append(ValueRecord(wire.text(buf, start, stop)))
            elif tag == _FUNCTION.output:
                body.outputs.append(ValueRecord(wire.text(buf, start, stop)))
            elif tag == _FUNCTION.attribute:
                function.attributes.append(wire.text(buf, start, stop))
            elif tag == _FUNCTION.attribute_proto:
                attr = read_attr(ctx, self, start, stop, 2)
                if attr is not None:
                    function.defaults.append(attr)
            elif tag == _FUNCTION.value_info:
                body.infos.append(self.types.value_info(start, stop))
            elif tag == _FUNCTION.name:
                function.name = body.name = wire.text(buf, start, stop)
            elif tag == _FUNCTION.domain:
                function.domain = self._domain(start, stop)
            elif tag == _FUNCTION.overload:
                function.overload = wire.text(buf, start, stop)
            elif tag == _FUNCTION.opset_import:
                self._opset_import(start, stop, function.imports)
            elif tag == _FUNCTION.doc_string:
                function.doc = wire.text(buf, start, stop)
            elif tag == _FUNCTION.metadata_props:
                string_entry(ctx, start, stop, function.metadata)
            else:
                schema.check_skipped("Function", tag, stop - 1)
        if not function.name:
            ctx.problem(f"{ctx.location(pos - 1)}: a function without a name")
        return function
