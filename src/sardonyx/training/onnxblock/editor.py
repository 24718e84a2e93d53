"""How blocks change the model they are built on, whichever form it has.

A base is a model of our own graph IR, or a `ModelProto` of the `onnx` package: then callers' own blocks change its messages as
they do in ONNX Runtime (`messages`). The built-in blocks go through an editor and work on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.dtypes import DType
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Model, Node, Value
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import SequenceType, TensorType, Type
from sardonyx.training.onnxblock.names import fresh_name
from sardonyx.training.training_graph import copied, named_value


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


def editor_of(base: Any) -> GraphEditor:
    """The editor for a base."""
    if isinstance(base, Model):
        return ModelEditor(base)
    from sardonyx.training.onnxblock.messages import ProtoEditor  # lazy: for callers who have the `onnx` package

    return ProtoEditor(base)


def sequence_of(dtype: DType) -> SequenceType:
    """A list of tensors of any shapes."""
    return SequenceType(TensorType(dtype, None))


FLAG = TensorType(dtypes.BOOL, (1,))
