"""The text form of graphs and models: made for people and tests, and read back exactly.

    graph main(x: f32[N,4]) -> (y: f32[N,2]) {
      const w: f32[4,2] = [1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.0, 0.0]
      h: f32[N,2] = MatMul(x, w) @13 "project"
      y = com.microsoft::Gelu(h) @1
    }

A node is `outputs = domain::Op:overload(inputs) {attributes} @version "name" [notes]`, its name on the line of its version; `_`
is an input that is left out or an output without a name. Attributes are written by kind: 1, 1.0, "text", lists of these,
tensor(f32[2] = [1.0, 2.0]), graph (...) ..., type f32[N], sparse(...), and `@alpha: float` for a reference to a function's
attribute. Notes hold documentation, metadata and the node's priority. Names that are not plain words stand in quotes. Subgraphs
read the values of the graphs around them by name; where two values one scope can see have the same name, one gets a number.

Constants of up to 16 elements are written out; larger ones as base64 or, for display, as a summary, `<40000 bytes, sha256 ...>`,
which reads back as a constant without data. `format_model(parse_model(text)) == text` holds for every text that was printed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Atom, Dim
from sardonyx.ir.graph import Attr, AttrKind, Function, Graph, Model, Node, SparseConstant, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.text_parser import parse_graph, parse_model
from sardonyx.ir.text_tokens import ElidedTensor, name_text, quoted, symbol_text
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, Type

__all__ = ["format_dim", "format_graph", "format_model", "format_node", "format_type", "parse_graph", "parse_model"]

INLINE: Final = 16  # elements
_STEP: Final = "  "
_HEADER: Final = ("producer_name", "producer_version", "domain", "model_version", "doc")
_NUMPY_FLOATS: Final = (dtypes.FLOAT32, dtypes.FLOAT64, dtypes.FLOAT16)  # their scalars print the shortest text that reads back


def format_model(model: Model, *, elide: bool = False) -> str:
    """A model as text; with `elide` the data of large constants is left out."""
    printer = _Printer(elide)
    lines = ["model {", f"{_STEP}ir_version = {model.ir_version}"]
    for field in _HEADER:
        value = getattr(model, field)
        if value:
            lines.append(f"{_STEP}{field} = {quoted(value) if isinstance(value, str) else value}")
    lines.extend(_opset_lines(model.opset_imports, _STEP))
    lines.extend(f"{_STEP}metadata {quoted(key)} = {quoted(value)}" for key, value in model.metadata.items())
    for function in model.functions.values():
        lines.append(_STEP + printer.function(function, _STEP))
    lines.append(_STEP + printer.graph(model.graph, _STEP, {}))
    return "\n".join([*lines, "}"]) + "\n"


def format_graph(graph: Graph, *, elide: bool = False) -> str:
    """A graph as text; with `elide` the data of large constants is left out. Outer values it reads keep their names."""
    return _Printer(elide).graph(graph, "", {}) + "\n"


def format_node(node: Node) -> str:
    """One node as text, the data of large constants left out."""
    return _Printer(True).node(node, "", {}, ())


def format_dim(dim: Dim) -> str:
    """A dimension as text."""
    if isinstance(dim, int):
        return str(dim)
    text = ""
    for monomial, factor in sorted(dim.terms, key=lambda term: (-len(term[0]), [atom.text for atom in term[0]])):
        parts = [_atom_text(atom) for atom in monomial]
        if abs(factor) != 1 or not parts:
            parts.insert(0, str(abs(factor)))
        sign = "-" if factor < 0 else "+"
        text += f" {sign} {'*'.join(parts)}" if text else ("-" if factor < 0 else "") + "*".join(parts)
    return text


def _atom_text(atom: Atom) -> str:
    if atom.is_long:  # nested deeper than anybody reads: its parts, written out, could fill the memory
        return symbol_text(f"?{atom.digest.hex()[:16]}")
    if atom.function:
        return f"{atom.function}({', '.join(format_dim(arg) for arg in atom.args)})"
    return symbol_text(atom.text)


def format_type(type_: Type) -> str:
    """A type as text."""
    if isinstance(type_, SequenceType):
        return f"seq({format_type(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({format_type(type_.element)})"
    if isinstance(type_, MapType):
        return f"map({type_.key.name}, {format_type(type_.value)})"
    shape = "[...]" if type_.shape is None else f"[{','.join(format_dim(dim) for dim in type_.shape)}]"
    return f"sparse({type_.dtype.name}{shape})" if isinstance(type_, SparseTensorType) else f"{type_.dtype.name}{shape}"


def _opset_lines(opsets: Mapping[str, int], indent: str) -> list[str]:
    return [f"{indent}opset {_domain_text(domain)} = {version}" for domain, version in opsets.items()]


def _domain_text(domain: str) -> str:
    if domain == "":
        return "ai.onnx"
    return quoted(domain) if domain == "ai.onnx" else name_text(domain)


def _notes(metadata: Mapping[str, str], **fields: str | int) -> str:
    """` [doc = "...", "key" = "value"]`, or nothing if there is nothing to note."""
    notes = [f"{name} = {quoted(value) if isinstance(value, str) else value}" for name, value in fields.items() if value]
    notes.extend(f"{quoted(key)} = {quoted(value)}" for key, value in metadata.items())
    return f" [{', '.join(notes)}]" if notes else ""


class _Printer:
    def __init__(self, elide: bool) -> None:
        self._elide = elide
        self._taken: set[str] = set()  # the names that can be seen from here

    def _define(self, values: Iterable[Value], names: dict[Value, str]) -> None:
        """Give each value a name nobody in sight has."""
        for value in values:
            if value in names or (not value.name and not value.uses):
                continue
            stem = chosen = value.name or "value"
            number = 0
            while chosen in self._taken:
                number += 1
                chosen = f"{stem}_{number}"
            self._taken.add(chosen)
            names[value] = chosen

    def graph(self, graph: Graph, indent: str, outer: Mapping[Value, str]) -> str:
        head = f"graph {name_text(graph.name)}" if graph.name else "graph "
        taken, names = set(self._taken), dict(outer)
        text = head + self._signature(graph, names) + _notes(graph.metadata, doc=graph.doc) + " {\n"
        text += self._body(graph, indent + _STEP, names) + indent + "}"
        self._taken = taken
        return text

    def function(self, function: Function, indent: str) -> str:
        graph, inner = function.graph, indent + _STEP
        overload = f":{name_text(function.overload)}" if function.overload else ""
        head = f"function {_domain_text(function.domain)}::{name_text(function.name)}{overload}"
        taken: set[str] = set(self._taken)
        names: dict[Value, str] = {}
        name = "" if graph.name == function.name else graph.name
        text = head + self._signature(graph, names) + _notes(function.metadata, doc=function.doc, name=name) + " {\n"
        lines = [f"{inner}attribute {name_text(each)}" for each in function.attributes]
        lines += [f"{inner}attribute {self._attr(each, inner, names)}" for each in function.attribute_defaults]
        lines += _opset_lines(function.opset_imports, inner)
        text += "".join(f"{line}\n" for line in lines) + self._body(graph, inner, names) + indent + "}"
        self._taken = taken
        return text

    def _signature(self, graph: Graph, names: dict[Value, str]) -> str:
        """`(inputs) -> (outputs)`; names of all values of the graph are chosen here, as outputs stand before their nodes."""
        self._define(graph.inputs, names)
        self._define(graph.initializers.values(), names)
        made = [output for node in graph.nodes for output in node.outputs]
        self._define(made, names)
        inputs = ", ".join(self._value(value, names) for value in graph.inputs)
        unseen = set(made)
        outputs = []
        for value in graph.outputs:
            outputs.append(self._value(value, names) if value in unseen else name_text(names.get(value, value.name)))
            unseen.discard(value)
        return f"({inputs}) -> ({', '.join(outputs)})"

    def _body(self, graph: Graph, indent: str, names: dict[Value, str]) -> str:
        lines = []
        for value in graph.initializers.values():
            if value.constant is None:
                continue
            notes = "" if value in graph.inputs else _notes(value.metadata, doc=value.doc)
            lines.append(f"{indent}const {name_text(names[value])}: {self._constant(value.constant)}{notes}\n")
        outputs = set(graph.outputs)
        lines.extend(f"{indent}{self.node(node, indent, names, outputs)}\n" for node in graph.nodes)
        return "".join(lines)

    def _value(self, value: Value, names: Mapping[Value, str], typed: bool = True) -> str:
        text = name_text(names[value]) if value in names else "_"
        if typed:
            text += (f": {format_type(value.type)}" if value.type is not None else "") + _notes(value.metadata, doc=value.doc)
        return text

    def node(self, node: Node, indent: str, names: Mapping[Value, str], outputs: Iterable[Value]) -> str:
        """One node; the types of graph outputs stand in the graph's head."""
        left = ", ".join(self._value(value, names, value not in outputs) for value in node.outputs) or "()"
        if not names:
            left = ", ".join(name_text(value.name) if value.name else "_" for value in node.outputs) or "()"
        domain = f"{name_text(node.domain)}::" if node.domain else ""
        overload = f":{name_text(node.overload)}" if node.overload else ""
        inputs = ", ".join("_" if value is None else name_text(names.get(value, value.name)) for value in node.inputs)
        text = f"{left} = {domain}{name_text(node.op_type)}{overload}({inputs})"
        if node.attrs:
            text += f" {{{', '.join(self._attr(attr, indent, names) for attr in node.attrs.values())}}}"
        name = f" {quoted(node.name)}" if node.name else ""
        return f"{text} @{node.version}{name}" + _notes(node.metadata, doc=node.doc, priority=node.priority)

    def _attr(self, attr: Attr, indent: str, names: Mapping[Value, str]) -> str:
        if attr.ref:
            text = f"@{name_text(attr.ref)}: {attr.kind.name.lower()}"
        elif attr.value is None:
            text = f"none: {attr.kind.name.lower()}"
        elif attr.kind.name.endswith("S"):
            items = ", ".join(self._item(attr.kind, item, indent, names) for item in attr.value)
            text = f"[{items}]" if attr.value else f"[]: {attr.kind.name.lower()}"
        else:
            text = self._item(attr.kind, attr.value, indent, names)
        return f"{name_text(attr.name)} = {text}{_notes({}, doc=attr.doc)}"

    def _item(self, kind: AttrKind, value: Any, indent: str, names: Mapping[Value, str]) -> str:
        """One value of an attribute; a list's items are written as single values are."""
        if isinstance(value, Graph):
            return self.graph(value, indent, names)
        if isinstance(value, Tensor):
            return f"tensor({f'{quoted(value.name)}, ' if value.name else ''}{self._constant(value)})"
        if isinstance(value, SparseConstant):
            return self._constant(value).partition(" = ")[2]
        if kind in (AttrKind.TYPE_PROTO, AttrKind.TYPE_PROTOS):
            return f"type {format_type(value)}"
        if isinstance(value, str):
            return quoted(value)
        return repr(float(value)) if kind in (AttrKind.FLOAT, AttrKind.FLOATS) else str(value)

    def _constant(self, constant: Tensor | SparseConstant) -> str:
        """The type and data of a constant: `f32[2] = [1.0, 2.0]`."""
        if isinstance(constant, SparseConstant):
            shape = f"[{','.join(map(str, constant.shape))}]"
            parts = f"{self._constant(constant.values)}, {self._constant(constant.indices)}"
            return f"sparse({constant.values.dtype.name}{shape}) = sparse({shape}, {parts})"
        type_ = f"{constant.dtype.name}[{','.join(map(str, constant.shape))}]"
        return f"{type_} = {self._data(constant)}"

    def _data(self, tensor: Tensor) -> str:
        if isinstance(tensor, ElidedTensor):
            return tensor.summary
        is_text = tensor.dtype is dtypes.STRING
        if tensor.size <= INLINE or (is_text and not self._elide):
            literal = _literal(tensor)
            if literal is not None:
                return literal
        raw = "\0".join(tensor.numpy().reshape(-1)).encode("utf-8", "surrogateescape") if is_text else bytes(tensor.raw())
        if self._elide:
            return f"<{len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()[:12]}>"
        return f"base64 {quoted(base64.b64encode(raw).decode())}"


def _literal(tensor: Tensor) -> str | None:
    """The elements written out; None for types that have no such form, and for data it would not keep to the last bit."""
    if tensor.dtype in (dtypes.COMPLEX64, dtypes.COMPLEX128):
        return None
    data = tensor.numpy()
    items = [element_text(item, tensor.dtype) for item in data.reshape(-1)]
    if tensor.dtype.is_float and not _keeps_bits(items, data, tensor.dtype):
        return None
    return f"[{', '.join(items)}]" if tensor.shape else items[0]


def _keeps_bits(items: list[str], data: np.ndarray[Any, Any], dtype: DType) -> bool:
    """Whether the texts of the elements read back as the same bits; a NaN with a payload does not."""
    with np.errstate(all="ignore"):
        again = np.asarray([float(item) for item in items], np.float64).astype(dtype.numpy)
    return again.tobytes() == np.ascontiguousarray(data).tobytes()


def element_text(item: Any, dtype: DType) -> str:
    """One element of a constant."""
    if dtype is dtypes.STRING:
        return quoted(item)
    if dtype is dtypes.BOOL:
        return "true" if item else "false"
    if dtype in _NUMPY_FLOATS:
        return str(item)
    return repr(float(item)) if dtype.is_float else str(int(item))
