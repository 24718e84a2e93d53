"""ModelProto to ir.graph.Model, in two steps: messages to records (here), records to linked graphs (link.py).

What the IR has no place for is kept where the writer finds it again:

    training_info, configuration       as bytes, in Model.unread
    quantization_annotation            in the value's metadata, as onnx.quantization.<parameter>
    device_configurations of a node    in the node's metadata, as onnx.device_configurations (base 64)
    denotations                        in the value's metadata: see types.py

Unknown fields are skipped, so that files of newer versions can be read.
"""

from __future__ import annotations

import base64
from typing import Final

from sardonyx.formats.onnx import schema, wire
from sardonyx.formats.onnx.attributes import read_attr
from sardonyx.formats.onnx.context import Context
from sardonyx.formats.onnx.link import link_model
from sardonyx.formats.onnx.records import ConstantRecord, FunctionRecord, GraphRecord, NodeRecord, ValueRecord
from sardonyx.formats.onnx.tensors import make_tensor, read_record, read_sparse, string_entry
from sardonyx.formats.onnx.types import TypeReader
from sardonyx.formats.onnx.wire import WireError, fields, signed
from sardonyx.ir.graph import AttrKind, Model

DEVICE_CONFIGURATIONS: Final = "onnx.device_configurations"
_SUBGRAPHS: Final = (AttrKind.GRAPH, AttrKind.GRAPHS)
_MAX_LEFT_OUT: Final = 1000  # outputs of a node without a name; in the file each is two bytes, here an object
_OLDEST_WITH_OPSETS: Final = 3  # IR version


def normal_domain(domain: str) -> str:
    """The domain as the IR has it: "ai.onnx" is the default domain."""
    return "" if domain == "ai.onnx" else domain


def read_model(ctx: Context) -> Model:
    """The model in the context's buffer."""
    return _Reader(ctx).model()


class _Reader:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.types = TypeReader(ctx)

    def model(self) -> Model:
        ctx, buf = self._ctx, self._ctx.buf
        texts = {0x12: "", 0x1A: "", 0x22: "", 0x32: ""}
        ir_version = model_version = 0
        imports: dict[str, int] = {}
        metadata: dict[str, str] = {}
        graph_at: tuple[int, int] | None = None
        functions: list[FunctionRecord] = []
        unread = bytearray()
        before = 0
        for tag, start, stop in fields(buf, 0, len(buf)):
            if tag == 0x3A:
                if graph_at is not None:
                    raise WireError("a second graph", before)
                graph_at = start, stop
            elif tag == 0x08:
                ir_version = signed(start)
            elif tag == 0x28:
                model_version = signed(start)
            elif tag in texts:
                texts[tag] = wire.text(buf, start, stop)
            elif tag == 0x42:
                self._opset_import(start, stop, imports)
            elif tag == 0x72:
                string_entry(ctx, start, stop, metadata)
            elif tag == 0xCA:
                functions.append(self._function(start, stop))
            elif tag in (0xA2, 0xD2):
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
            producer_name=texts[0x12],
            producer_version=texts[0x1A],
            domain=texts[0x22],
            model_version=model_version,
            doc=texts[0x32],
            metadata=metadata,
            unread=bytes(unread),
        )

    def _domain(self, start: int, stop: int) -> str:
        return normal_domain(wire.text(self._ctx.buf, start, stop))

    def _opset_import(self, pos: int, end: int, imports: dict[str, int]) -> None:
        domain, version = "", 0
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == 0x0A:
                domain = self._domain(start, stop)
            elif tag == 0x10:
                version = signed(start)
            else:
                schema.check_skipped("OperatorSetId", tag, stop - 1)
        if version < (0 if domain else 1):  # makers of domains of their own count from 0, too
            self._ctx.problem(f"{self._ctx.place(pos - 1)}: version {version} of domain {domain!r} does not exist")
        imports[domain] = max(version, imports.get(domain, 0))

    def graph(self, pos: int, end: int, depth: int) -> GraphRecord:
        """The graph in [pos, end)."""
        ctx, buf = self._ctx, self._ctx.buf
        ctx.check_depth(depth, pos)
        graph = GraphRecord()
        for tag, start, stop in fields(buf, pos, end):
            if tag == 0x0A:
                graph.nodes.append(self._node(start, stop, depth + 1))
            elif tag == 0x6A:
                info = self.types.value_info(start, stop)
                if info.name:
                    graph.infos.append(info)
            elif tag == 0x2A:
                self._initializer(start, stop, graph)
            elif tag == 0x5A:
                self._value("input", start, stop, graph.inputs)
            elif tag == 0x62:
                self._value("output", start, stop, graph.outputs)
            elif tag == 0x12:
                graph.name = wire.text(buf, start, stop)
            elif tag == 0x52:
                graph.doc = wire.text(buf, start, stop)
            elif tag == 0x7A:
                constant, record = read_sparse(ctx, start, stop)
                if record is not None and not record.name:
                    ctx.problem(f"{ctx.place(start - 1)}: a sparse initializer without a name")
                elif constant is not None and record is not None:
                    graph.initializers.append(ConstantRecord(record.name, constant, record.doc, record.metadata))
            elif tag == 0x72:
                self._annotation(start, stop, graph.annotations)
            elif tag == 0x82:
                string_entry(ctx, start, stop, graph.metadata)
            else:
                schema.check_skipped("Graph", tag, stop - 1)
        if depth > 1 and not graph.nodes and not graph.outputs:
            ctx.problem(f"{ctx.place(pos - 1)}: an empty subgraph")
        return graph

    def _value(self, role: str, pos: int, end: int, into: list[ValueRecord]) -> None:
        info = self.types.value_info(pos, end)
        if info.name:
            into.append(info)
        else:
            self._ctx.problem(f"{self._ctx.place(pos - 1)}: a graph {role} without a name")

    def _initializer(self, pos: int, end: int, graph: GraphRecord) -> None:
        record = read_record(self._ctx, pos, end)
        tensor = make_tensor(self._ctx, record)
        if not record.name:
            self._ctx.problem(f"{self._ctx.place(pos - 1)}: an initializer without a name")
        elif tensor is not None:
            graph.initializers.append(ConstantRecord(record.name, tensor, record.doc, record.metadata))

    def _annotation(self, pos: int, end: int, into: dict[str, dict[str, str]]) -> None:
        name = ""
        parameters: dict[str, str] = {}
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == 0x0A:
                name = wire.text(self._ctx.buf, start, stop)
            elif tag == 0x12:
                string_entry(self._ctx, start, stop, parameters)
            else:
                schema.check_skipped("TensorAnnotation", tag, stop - 1)
        into[name] = parameters

    def _node(self, pos: int, end: int, depth: int) -> NodeRecord:
        ctx, buf = self._ctx, self._ctx.buf
        node = NodeRecord()
        devices = bytearray()
        before = pos
        for tag, start, stop in fields(buf, pos, end):
            if tag == 0x0A:
                node.inputs.append(str(buf[start:stop], "utf-8", "surrogateescape"))
            elif tag == 0x12:
                node.outputs.append(str(buf[start:stop], "utf-8", "surrogateescape"))
            elif tag == 0x2A:
                attr = read_attr(ctx, self, start, stop, depth + 1)
                if attr is not None:
                    node.attrs.append(attr)
                    if attr.kind in _SUBGRAPHS:
                        node.has_subgraphs = True
            elif tag == 0x22:
                node.op_type = wire.text(buf, start, stop)
            elif tag == 0x1A:
                node.name = wire.text(buf, start, stop)
            elif tag == 0x3A:
                node.domain = self._domain(start, stop)
            elif tag == 0x32:
                node.doc = wire.text(buf, start, stop)
            elif tag == 0x42:
                node.overload = wire.text(buf, start, stop)
            elif tag == 0x4A:
                string_entry(ctx, start, stop, node.metadata)
            elif tag == 0x52:
                devices += buf[before:stop]
            else:
                schema.check_skipped("Node", tag, stop - 1)
            before = stop
        node.metadata.pop(DEVICE_CONFIGURATIONS, None)  # a file must not forge what the writer takes for encoded fields
        if devices:
            node.metadata[DEVICE_CONFIGURATIONS] = base64.b64encode(devices).decode()
        if not node.op_type:
            ctx.problem(f"{ctx.place(pos - 1)}: a node without an operator (op_type)")
        elif not node.inputs and not node.outputs:
            ctx.problem(f"{ctx.place(pos - 1)}: {node.label} has neither inputs nor outputs")
        elif len(node.outputs) > _MAX_LEFT_OUT and node.outputs.count("") > _MAX_LEFT_OUT:
            ctx.problem(f"{ctx.place(pos - 1)}: {node.label} leaves out more than {_MAX_LEFT_OUT} outputs")
            del node.outputs[_MAX_LEFT_OUT:]
        elif len({attr.name for attr in node.attrs}) < len(node.attrs):
            ctx.problem(f"{ctx.place(pos - 1)}: {node.label} has two attributes of one name")
        return node

    def _function(self, pos: int, end: int) -> FunctionRecord:
        ctx, buf = self._ctx, self._ctx.buf
        function = FunctionRecord()
        body = function.body
        for tag, start, stop in fields(buf, pos, end):
            if tag == 0x3A:
                body.nodes.append(self._node(start, stop, 2))
            elif tag == 0x22:
                body.inputs.append(ValueRecord(wire.text(buf, start, stop)))
            elif tag == 0x2A:
                body.outputs.append(ValueRecord(wire.text(buf, start, stop)))
            elif tag == 0x32:
                function.attributes.append(wire.text(buf, start, stop))
            elif tag == 0x5A:
                attr = read_attr(ctx, self, start, stop, 2)
                if attr is not None:
                    function.defaults.append(attr)
            elif tag == 0x62:
                body.infos.append(self.types.value_info(start, stop))
            elif tag == 0x0A:
                function.name = body.name = wire.text(buf, start, stop)
            elif tag == 0x52:
                function.domain = self._domain(start, stop)
            elif tag == 0x6A:
                function.overload = wire.text(buf, start, stop)
            elif tag == 0x4A:
                self._opset_import(start, stop, function.imports)
            elif tag == 0x42:
                function.doc = wire.text(buf, start, stop)
            elif tag == 0x72:
                string_entry(ctx, start, stop, function.metadata)
            else:
                schema.check_skipped("Function", tag, stop - 1)
        if not function.name:
            ctx.problem(f"{ctx.place(pos - 1)}: a function without a name")
        return function
