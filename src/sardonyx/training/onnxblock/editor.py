"""How blocks change the model they are built on, whichever form it has.

A base is a model of our own graph IR, or a `ModelProto` of the `onnx` package: then callers' own blocks change its messages as
they do in ONNX Runtime. The built-in blocks go through an editor and work on both. `onnx` is imported only where a caller has
handed over one of its messages.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.dtypes import DType
from sardonyx.formats import onnx as onnx_format
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Model, Node, Value
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import SequenceType, TensorType, Type
from sardonyx.training.training_graph import copied, named_value

_numbers = itertools.count(1)


def fresh_name(token: str) -> str:
    """A name nobody uses, of ONNX Runtime's form."""
    return f"onnx::{token}::{next(_numbers)}"


class GraphEditor(Protocol):
    """What a block may do with its base."""

    base: Any

    def has_value(self, name: str) -> bool:
        """Whether a node or the graph's inputs know a value."""

    def node(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attrs: Any) -> None:
        """Append a node; attributes that are None are left off."""

    def constant(self, array: np.ndarray[Any, Any], name: str) -> None:
        """Add an initializer."""

    def input(self, name: str, type_: Type) -> None:
        """Add a graph input."""

    def input_like(self, name: str, like: str, *, dtype: DType | None = None, without_last: bool = False) -> None:
        """Add a graph input with the type of a value, in another element type or without its last axis if asked."""

    def rank(self, name: str) -> int | None:
        """How many axes a value has, if that is known."""

    def output(self, name: str, type_: Type) -> None:
        """Add a graph output."""

    def state(self, name: str, type_: Type) -> None:
        """Note the type of a value that inference may not find."""

    def model(self) -> Model:
        """The base as a graph of our own, which may be changed."""


class ModelEditor:
    """A base of our own IR."""

    def __init__(self, base: Model) -> None:
        self.base = base
        infer_shapes(base)

    def has_value(self, name: str) -> bool:
        return named_value(self.base.graph, name) is not None

    def _value(self, name: str) -> Value:
        found = named_value(self.base.graph, name)
        if found is None:
            raise LookupError(f"The provided name {name} was not found in graph outputs, inputs, or value_info.")
        return found

    def node(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attrs: Any) -> None:
        version = self.base.opset_imports.setdefault(domain, 1)
        made = [make_attr(name, value) for name, value in attrs.items() if value is not None]
        values = [self._value(name) if name else None for name in inputs]
        name = fresh_name(op_type)
        results = [Value(each) for each in outputs]
        self.base.graph.append(Node(op_type, values, results, made, domain=domain, version=version, name=name))
        infer_shapes(self.base)

    def constant(self, array: np.ndarray[Any, Any], name: str) -> None:
        self.base.graph.add_initializer(name, from_numpy(array))

    def input(self, name: str, type_: Type) -> None:
        self.base.graph.inputs.append(Value(name, type_))

    def input_like(self, name: str, like: str, *, dtype: DType | None = None, without_last: bool = False) -> None:
        type_ = self._value(like).type
        if not isinstance(type_, TensorType):
            raise LookupError(f"The type of {like} is {type_}, expected a tensor: an input cannot be made like it.")
        shape = type_.shape[:-1] if without_last and type_.shape is not None else type_.shape
        self.input(name, TensorType(dtype or type_.dtype, shape))

    def rank(self, name: str) -> int | None:
        shape = self._value(name).shape
        return None if shape is None else len(shape)

    def output(self, name: str, type_: Type) -> None:
        value = self._value(name)
        value.type = value.type or type_
        self.base.graph.outputs.append(value)

    def state(self, name: str, type_: Type) -> None:
        value = self._value(name)
        value.type = value.type or type_

    def model(self) -> Model:
        return copied(self.base)


class ProtoEditor:
    """A base that is a ModelProto of the `onnx` package."""

    def __init__(self, base: Any) -> None:
        import onnx  # lazy: the caller has handed over a message of this package

        self.base = base
        self._onnx = onnx

    def has_value(self, name: str) -> bool:
        graph = self.base.graph
        return any(name in (*node.input, *node.output) for node in graph.node) or any(each.name == name for each in graph.input)

    def node(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attrs: Any) -> None:
        given = {name: value for name, value in attrs.items() if value is not None}
        made = self._onnx.helper.make_node(op_type, list(inputs), list(outputs), name=fresh_name(op_type), domain=domain, **given)
        self.base.graph.node.append(made)
        if not any(each.domain == domain for each in self.base.opset_import):
            self.base.opset_import.append(self._onnx.helper.make_opsetid(domain, 1))

    def constant(self, array: np.ndarray[Any, Any], name: str) -> None:
        self.base.graph.initializer.append(self._onnx.numpy_helper.from_array(array, name))

    def _info(self, name: str, type_: Type) -> Any:
        helper = self._onnx.helper
        element = type_.element if isinstance(type_, SequenceType) else type_
        assert isinstance(element, TensorType)
        shape = None if element.shape is None else [dim if isinstance(dim, int) else str(dim) for dim in element.shape]
        make = helper.make_tensor_sequence_value_info if isinstance(type_, SequenceType) else helper.make_tensor_value_info
        return make(name, element.dtype.onnx, shape)

    def input(self, name: str, type_: Type) -> None:
        self.base.graph.input.append(self._info(name, type_))

    def input_like(self, name: str, like: str, *, dtype: DType | None = None, without_last: bool = False) -> None:
        graph = self.base.graph
        found = next((each for each in (*graph.output, *graph.input, *graph.value_info) if each.name == like), None)
        if found is None:
            model = self.model()
            infer_shapes(model)
            value = named_value(model.graph, like)
            if value is None or not isinstance(value.type, TensorType):
                raise LookupError(f"The provided name {like} was not found in graph outputs, inputs, or value_info.")
            found = self._info(like, value.type)
        made = copy.deepcopy(found)
        made.name = name
        if dtype is not None:
            made.type.tensor_type.elem_type = dtype.onnx
        if without_last:
            del made.type.tensor_type.shape.dim[-1]
        graph.input.append(made)

    def rank(self, name: str) -> int | None:
        model = self.model()
        infer_shapes(model)
        value = named_value(model.graph, name)
        return None if value is None or value.shape is None else len(value.shape)

    def output(self, name: str, type_: Type) -> None:
        self.base.graph.output.append(self._info(name, type_))

    def state(self, name: str, type_: Type) -> None:
        self.base.graph.value_info.append(self._info(name, type_))

    def model(self) -> Model:
        return onnx_format.load(self.base)


def editor_of(base: Any) -> GraphEditor:
    """The editor for a base."""
    return ModelEditor(base) if isinstance(base, Model) else ProtoEditor(base)


def to_proto(model: Model) -> Any:
    """A model as a ModelProto of the `onnx` package."""
    import onnx  # lazy: only callers who have the package ask for its messages

    return onnx.ModelProto.FromString(onnx_format.to_bytes(model))


def sequence_of(dtype: DType) -> SequenceType:
    """A list of tensors of any shapes."""
    return SequenceType(TensorType(dtype, None))


FLAG = TensorType(dtypes.BOOL, (1,))
