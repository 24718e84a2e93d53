"""Reads the text form of graphs and models that `text.py` describes and writes.

Errors are InvalidGraph: "line 3, column 14: expected ')' after the inputs, found '}'".
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from math import prod
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.errors import InvalidGraph
from sardonyx.ir import dims, tensor
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Attr, AttrKind, Function, Graph, Model, Node, SparseConstant, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.text_tokens import ElidedTensor, Token, text_error, tokens_of
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.records import dataclass

T = TypeVar("T")

_DEEPEST: Final = 60  # graphs in graphs
_KINDS: Final = {kind.name.lower(): kind for kind in AttrKind if kind is not AttrKind.OPAQUE}
_LIST_OF: Final = {
    kind: _KINDS[kind.name.lower() + "s"] for kind in AttrKind if kind.name.lower() + "s" in _KINDS
}  # FLOAT -> FLOATS ...
_DTYPES: Final = {dtype.name: dtype for dtype in dtypes.ALL}
_MODEL_FIELDS: Final = ("producer_name", "producer_version", "domain", "model_version", "doc", "ir_version")


def parse_model(text: str) -> Model:
    """The model a text describes."""
    parser = _Parser(text)
    model = parser.model()
    parser.end()
    return model


def parse_graph(text: str, captures: Mapping[str, Value] | None = None) -> Graph:
    """The graph a text describes. `captures` are values around it that it may read by name."""
    parser = _Parser(text)
    graph = parser.graph(dict(captures or {}))
    parser.end()
    return graph


@dataclass
class _Notes:
    fields: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._at = 0
        self._depth = 0

    # Tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _fail(self, expected: str) -> NoReturn:
        found = repr(self._token.text) if self._token.kind != "end" else "the end of the text"
        raise text_error(self._text, self._token.position, f"expected {expected}, found {found}")

    def _is(self, text: str) -> bool:
        return self._token.text == text and self._token.kind in ("mark", "name")

    def _take(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str, where: str = "") -> None:
        if not self._take(text):
            self._fail(f"{text!r}{f' {where}' if where else ''}")

    def _kind(self, kind: str, expected: str) -> str:
        if self._token.kind != kind:
            self._fail(expected)
        self._at += 1
        return self._tokens[self._at - 1].text

    def end(self) -> None:
        if self._token.kind != "end":
            self._fail("the end of the text")

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Errors of the objects being built carry the place where they were written."""
        position = self._token.position
        try:
            yield
        except InvalidGraph:  # has its place already
            raise
        except (ValueError, TypeError, OverflowError) as error:
            raise text_error(self._text, position, str(error)) from None

    def _list(self, item: Callable[[], T], close: str, where: str) -> list[T]:
        """Items between commas up to the closing mark; the opening one has been read."""
        items: list[T] = []
        while not self._take(close):
            if items:
                self._expect(",", f"or {close!r} {where}")
            items.append(item())
        return items

    # Words

    def _string(self, expected: str = "a string in quotes") -> str:
        with self._located():
            return str(json.loads(self._kind("string", expected)))

    def _name(self, expected: str = "a name") -> str:
        return self._string() if self._token.kind == "string" else self._kind("name", expected)

    def _integer(self, expected: str = "a whole number") -> int:
        sign = -1 if self._take("-") else 1
        if not self._token.text.isdigit():
            self._fail(expected)
        return sign * int(self._kind("number", expected))

    def _domain(self) -> str:
        is_bare = self._token.kind == "name"
        domain = self._name("a domain")
        return "" if is_bare and domain == "ai.onnx" else domain

    def _notes(self) -> _Notes:
        notes = _Notes()
        if self._take("["):
            self._list(lambda: self._note(notes), "]", "after a note")
        return notes

    def _note(self, notes: _Notes) -> None:
        if self._token.kind == "string":
            key = self._string()
            self._expect("=")
            notes.metadata[key] = self._string()
        else:
            key = self._kind("name", "a note")
            if key not in ("doc", "name", "priority"):
                self._at -= 1
                self._fail("doc, name, priority or a key in quotes")
            self._expect("=")
            notes.fields[key] = self._integer() if key == "priority" else self._string()

    # Types

    def _type(self) -> Type:
        word = self._kind("name", "a type")
        if word in _DTYPES:
            return TensorType(_DTYPES[word], self._shape())
        if word not in ("seq", "optional", "map", "sparse"):
            self._at -= 1
            self._fail(f"a type ({', '.join(_DTYPES)}, seq, optional, map or sparse)")
        self._expect("(")
        result: Type
        if word == "sparse":
            result = SparseTensorType(self._dtype(), self._shape())
        elif word == "map":
            key = self._dtype()
            self._expect(",", "after the key type")
            result = MapType(key, self._type())
        else:
            result = SequenceType(self._type()) if word == "seq" else OptionalType(self._type())
        self._expect(")", "after the element type")
        return result

    def _dtype(self) -> DType:
        word = self._kind("name", "an element type")
        if word not in _DTYPES:
            self._at -= 1
            self._fail(f"an element type ({', '.join(_DTYPES)})")
        return _DTYPES[word]

    def _shape(self) -> tuple[Dim, ...] | None:
        self._expect("[", "and the dimensions")
        if self._take("..."):
            self._expect("]")
            return None
        return tuple(self._list(self._dim, "]", "after a dimension"))

    def _static_shape(self) -> tuple[int, ...]:
        self._expect("[", "and the dimensions")
        return tuple(self._list(lambda: self._integer("a dimension in numbers"), "]", "after a dimension"))

    def _dim(self) -> Dim:
        total: Dim = -self._product() if self._take("-") else self._product()
        while self._is("+") or self._is("-"):
            negative = self._take("-")
            self._take("+")
            total = total - self._product() if negative else total + self._product()
        return total

    def _product(self) -> Dim:
        result = self._factor()
        while self._take("*"):
            result = result * self._factor()
        return result

    def _factor(self) -> Dim:
        if self._token.kind == "number":
            return self._integer("a dimension")
        if self._token.kind == "anonymous":
            return dims.symbol(self._kind("anonymous", "a dimension"))
        is_quoted = self._token.kind == "string"
        name = self._name("a dimension")
        functions = {"floordiv": dims.floordiv, "mod": dims.mod, "max": dims.dim_max, "min": dims.dim_min}
        if is_quoted or name not in functions:
            return dims.symbol(name)
        self._expect("(")
        left = self._dim()
        self._expect(",")
        right = self._dim()
        self._expect(")")
        return functions[name](left, right)

    # Constants

    def _tensor(self, name: str) -> Tensor:
        """`f32[2] = [1.0, 2.0]`."""
        dtype, shape = self._dtype(), self._static_shape()
        self._expect("=", "and the data")
        with self._located():
            return self._data(dtype, shape, name)

    def _data(self, dtype: DType, shape: tuple[int, ...], name: str) -> Tensor:
        count = prod(shape)
        if self._token.kind == "elided":
            return ElidedTensor(dtype, shape, self._kind("elided", ""), name)
        if self._take("base64"):
            try:
                raw = base64.b64decode(self._string(), validate=True)
            except binascii.Error as error:
                raise ValueError(f"the data is not base64: {error}") from None
            if len(raw) != dtype.nbytes(count):
                raise ValueError(f"{dtype.name}{list(shape)} has {dtype.nbytes(count)} bytes, not {len(raw)}")
            return Tensor(dtype, shape, lambda: raw, name=name)
        if not shape:
            items = [self._element(dtype)]
        else:
            self._expect("[", "and the elements")
            items = self._list(lambda: self._element(dtype), "]", "after an element")
        if len(items) != count:
            raise ValueError(f"{dtype.name}{list(shape)} has {count} elements, not {len(items)}")
        if dtype is dtypes.STRING:
            return Tensor(dtype, shape, lambda: items, name=name)
        data = np.asarray(items, np.float64).astype(dtype.numpy) if dtype.is_float else _integers(items, dtype)
        return tensor.from_numpy(data.reshape(shape), name)

    def _element(self, dtype: DType) -> Any:
        if dtype is dtypes.STRING:
            return self._string()
        if dtype is dtypes.BOOL:
            if not (self._is("true") or self._is("false")):
                self._fail("true or false")
            return self._kind("name", "") == "true"
        if dtype.is_float:
            number = self._number("a number")
            return float(np.dtype(dtype.numpy).type(number)) if dtype.numpy.kind == "f" else float(number)
        return self._integer()

    def _number(self, expected: str) -> str:
        sign = "-" if self._take("-") else ""
        if self._is("inf") or self._is("nan"):
            return sign + self._kind("name", "")
        return sign + self._kind("number", expected)

    def _sparse(self) -> SparseConstant:
        """`([3,4], f32[2] = [...], i64[2] = [...])`, after the word `sparse`."""
        self._expect("(")
        shape = self._static_shape()
        self._expect(",")
        values = self._tensor("")
        self._expect(",")
        indices = self._tensor("")
        self._expect(")")
        return SparseConstant(values, indices, shape)

    # Graphs

    def model(self) -> Model:
        self._expect("model")
        self._expect("{")
        model = Model(Graph())
        fields: dict[str, Any] = {}
        while not self._is("graph"):
            if self._take("opset"):
                domain, version = self._opset()
                model.opset_imports[domain] = version
            elif self._take("metadata"):
                key = self._string()
                self._expect("=")
                model.metadata[key] = self._string()
            elif self._take("function"):
                function = self._function()
                model.functions[function.domain, function.name, function.overload] = function
            elif self._token.text in _MODEL_FIELDS:
                name = self._kind("name", "")
                self._expect("=")
                fields[name] = self._integer() if name.endswith("_version") and name != "producer_version" else self._string()
            else:
                self._fail(f"graph, function, opset, metadata, {', '.join(_MODEL_FIELDS)}")
        for name, value in fields.items():
            setattr(model, name, value)
        model.graph = self.graph({})
        self._expect("}", "after the graph")
        return model

    def _opset(self) -> tuple[str, int]:
        domain = self._domain()
        self._expect("=")
        return domain, self._integer("a version")

    def graph(self, scope: dict[str, Value]) -> Graph:
        """A graph that can read the values in `scope`."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise text_error(self._text, self._token.position, f"graphs are nested more than {_DEEPEST} deep")
        self._expect("graph")
        graph = Graph("" if self._is("(") else self._name("the graph's name"))
        outputs, scope = self._signature(graph, scope)
        notes = self._notes()
        graph.doc, graph.metadata = notes.fields.get("doc", ""), notes.metadata
        self._expect("{", "and the nodes")
        self._body(graph, outputs, scope)
        self._depth -= 1
        return graph

    def _function(self) -> Function:
        domain = self._domain()
        self._expect("::")
        name = self._name("the function's name")
        overload = self._name("the overload") if self._take(":") else ""
        graph = Graph(name)
        outputs, scope = self._signature(graph, {})
        notes = self._notes()
        graph.name = notes.fields.get("name", name)
        self._expect("{", "and the nodes")
        required: list[str] = []
        defaults: list[Attr] = []
        opsets: dict[str, int] = {}
        while self._is("attribute") or self._is("opset"):
            if self._take("opset"):
                opset, version = self._opset()
                opsets[opset] = version
                continue
            self._expect("attribute")
            if self._tokens[self._at + 1].text == "=":
                defaults.append(self._attr({}))
            else:
                required.append(self._name("an attribute"))
        self._body(graph, outputs, scope)
        doc = notes.fields.get("doc", "")
        return Function(domain, name, overload, graph, tuple(required), tuple(defaults), opsets, doc, notes.metadata)

    def _signature(self, graph: Graph, outer: dict[str, Value]) -> tuple[list[tuple[Token, Value]], dict[str, Value]]:
        """`(inputs) -> (outputs)`: the outputs, not resolved yet, and the scope inside."""
        scope = dict(outer)
        self._expect("(", "and the inputs")
        graph.inputs = self._list(lambda: self._input(scope), ")", "after the inputs")
        self._expect("->", "and the outputs")
        self._expect("(")
        return self._list(lambda: (self._token, self._declared()), ")", "after the outputs"), scope

    def _declared(self) -> Value:
        """`name: type [notes]`."""
        value = Value("" if self._take("_") else self._name("a value"))
        if self._take(":"):
            value.type = self._type()
        notes = self._notes()
        value.doc, value.metadata = notes.fields.get("doc", ""), notes.metadata
        return value

    def _input(self, scope: dict[str, Value]) -> Value:
        token, value = self._token, self._declared()
        self._define(token, value, scope)
        return value

    def _define(self, token: Token, value: Value, scope: dict[str, Value]) -> None:
        if value.name:
            if value.name in scope:
                raise text_error(self._text, token.position, f"there is a value {value.name!r} already")
            scope[value.name] = value

    def _body(self, graph: Graph, outputs: list[tuple[Token, Value]], scope: dict[str, Value]) -> None:
        while not self._take("}"):
            if self._take("const"):
                self._constant(graph, scope)
            else:
                graph.append(self._node(scope))
        for token, declared in outputs:
            value = scope.get(declared.name)
            if value is None:
                raise text_error(self._text, token.position, f"nothing in the graph defines the output {declared.name!r}")
            if declared.type is not None:
                value.type = declared.type
            value.doc = declared.doc or value.doc
            value.metadata.update(declared.metadata)
            graph.outputs.append(value)

    def _constant(self, graph: Graph, scope: dict[str, Value]) -> None:
        token, name = self._token, self._name("the constant's name")
        self._expect(":", "and the type")
        value = next((each for each in graph.inputs if each.name == name), None)
        if value is None:
            value = Value(name)
            self._define(token, value, scope)
        constant: Tensor | SparseConstant
        if self._is("sparse"):
            type_ = self._type()
            self._expect("=", "and the data")
            self._expect("sparse")
            constant = self._sparse()
        else:
            constant = self._tensor(name)
            type_ = TensorType(constant.dtype, constant.shape)
        if value.type is None:
            value.type = type_
        value.constant = constant
        graph.initializers[name] = value
        notes = self._notes()
        value.doc = notes.fields.get("doc", value.doc)
        value.metadata.update(notes.metadata)

    def _node(self, scope: dict[str, Value]) -> Node:
        declared: list[tuple[Token, Value]] = []
        if self._take("("):
            self._expect(")")
            self._expect("=")
        else:
            declared = self._list(lambda: (self._token, self._declared()), "=", "after the outputs")
        domain, op_type = "", self._name("an operator")
        if self._take("::"):
            domain, op_type = op_type, self._name("an operator")
        overload = self._name("the overload") if self._take(":") else ""
        self._expect("(", "and the inputs")
        inputs = self._list(lambda: self._used(scope), ")", "after the inputs")
        attrs = self._list(lambda: self._attr(scope), "}", "after an attribute") if self._take("{") else []
        self._expect("@", "and the version")
        version = self._integer("the version")
        name = self._string() if self._token.kind == "string" and self._on_same_line() else ""
        outputs = [value for _, value in declared]
        node = Node(op_type, inputs, outputs, attrs, domain=domain, version=version, name=name, overload=overload)
        notes = self._notes()
        node.doc, node.metadata = notes.fields.get("doc", ""), notes.metadata
        node.priority = notes.fields.get("priority", 0)
        for token, value in declared:
            self._define(token, value, scope)
        return node

    def _on_same_line(self) -> bool:
        """Whether the token at hand stands on the line of the one before it."""
        return "\n" not in self._text[self._tokens[self._at - 1].position : self._token.position]

    def _used(self, scope: Mapping[str, Value]) -> Value | None:
        if self._take("_"):
            return None
        position = self._token.position
        name = self._name("a value or _")
        if name not in scope:
            raise text_error(self._text, position, f"no value {name!r} is defined before this")
        return scope[name]

    # Attributes

    def _attr(self, scope: dict[str, Value]) -> Attr:
        name = self._name("an attribute")
        self._expect("=", "after the attribute's name")
        ref = ""
        value: Any = None
        if self._take("@"):
            ref = self._name("an attribute of the function")
            kind = self._attr_kind()
        elif self._take("none"):
            kind = self._attr_kind()
        elif self._take("["):
            items = self._list(lambda: self._item(scope), "]", "after an item")
            kinds = {each for each, _ in items}
            if len(kinds) > 1:
                self._at -= 1
                self._fail(f"items of one kind in {name!r}")
            kind = _LIST_OF[kinds.pop()] if kinds else self._attr_kind()
            value = tuple(item for _, item in items)
        else:
            kind, value = self._item(scope)
        doc = self._notes().fields.get("doc", "")
        return Attr(name, kind, value, ref, doc)

    def _attr_kind(self) -> AttrKind:
        self._expect(":", "and the kind of the attribute")
        if self._token.text not in _KINDS:
            self._fail(f"a kind of attribute ({', '.join(_KINDS)})")
        return _KINDS[self._kind("name", "")]

    def _item(self, scope: dict[str, Value]) -> tuple[AttrKind, Any]:
        if self._token.kind == "string":
            return AttrKind.STRING, self._string()
        if self._is("graph"):
            return AttrKind.GRAPH, self.graph(scope)
        if self._take("tensor"):
            self._expect("(")
            name = ""
            if self._token.kind == "string":
                name = self._string()
                self._expect(",")
            found = self._tensor(name)
            self._expect(")")
            return AttrKind.TENSOR, found
        if self._take("type"):
            return AttrKind.TYPE_PROTO, self._type()
        if self._take("sparse"):
            return AttrKind.SPARSE_TENSOR, self._sparse()
        number = self._number("an attribute's value")
        return (AttrKind.INT, int(number)) if number.lstrip("-").isdigit() else (AttrKind.FLOAT, float(number))


def _integers(items: list[Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype is dtypes.BOOL:
        return np.asarray(items, np.bool_)
    if dtype.numpy.kind in "iu":
        return np.asarray(items, dtype.numpy)  # refuses what does not fit
    low, high = (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype in dtypes.SIGNED else (0, (1 << dtype.bits) - 1)
    outside = [item for item in items if not low <= item <= high]
    if outside:
        raise ValueError(f"{outside[0]} does not fit {dtype.name}: it holds {low} to {high}")
    return np.asarray(items, np.int64).astype(dtype.numpy)
