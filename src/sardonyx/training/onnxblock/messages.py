"""Bases that are messages of the `onnx` package, which callers of ONNX Runtime hand over and expect back.

The only module of training that knows this package, and only when a caller has it: models of our own need none of this.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.dtypes import DType
from sardonyx.formats import onnx as onnx_format
from sardonyx.ir.graph import Model
from sardonyx.ir.types import SequenceType, TensorType, Type
from sardonyx.training.onnxblock.names import fresh_name
from sardonyx.training.training_graph import named_value


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
        known = [each for each in (*graph.output, *graph.input, *graph.value_info) if each.name == like]
        found = next((each for each in known if each.type.tensor_type.HasField("shape")), None)
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
        if without_last and made.type.tensor_type.shape.dim:
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


def to_proto(model: Model) -> Any:
    """A model as a ModelProto."""
    import onnx  # lazy: only callers who have the package ask for its messages

    return onnx.ModelProto.FromString(onnx_format.to_bytes(model))


def tensor_protos(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[Any]:
    """Arrays as TensorProtos."""
    from onnx import numpy_helper  # lazy: as above

    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]


def latest_opset() -> int:
    """The opset that the package writes."""
    import onnx  # lazy: as above

    return int(onnx.defs.onnx_opset_version())
