"""The values of a ModelProto: weights and constants, attributes, types and shapes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from sardonyx.errors import SardonyxError
from sardonyx.transformers.graph_queries import GraphQueries
from sardonyx.transformers.messages import package
from sardonyx.transformers.shape_infer_helper import SymbolicShapeInferenceHelper

_log = logging.getLogger("sardonyx")


class GraphValues(GraphQueries):
    """What is known of values."""

    enable_shape_infer: bool
    shape_infer_helper: SymbolicShapeInferenceHelper | None
    _dtype_dict: dict[str, int] | None  # programs set these to None after they have changed types themselves
    _shape_dict: dict[str, list[Any]] | None

    # Constants

    def get_initializer(self, name: str) -> Any:
        """A weight, if there is one of that name."""
        return next((tensor for graph in self.graphs() for tensor in graph.initializer if tensor.name == name), None)

    def get_constant_value(self, output_name: str) -> Any:
        """The array behind a name, if it is a constant."""
        onnx = package()
        tensor = self.get_initializer(output_name)
        if tensor is not None:
            return onnx.numpy_helper.to_array(tensor)
        node = self.output_name_to_node().get(output_name)
        if node is not None and node.op_type == "Constant":
            value = self.get_node_attribute(node, "value")
            return None if value is None else onnx.numpy_helper.to_array(value)
        return None

    def get_constant_input(self, node: Any) -> tuple[int | None, Any]:
        """The first input that is a constant: its index and array."""
        for index, name in enumerate(node.input):
            value = self.get_constant_value(name)
            if value is not None:
                return index, value
        return None, None

    def find_constant_input(self, node: Any, expected_value: float, delta: float = 0.000001) -> int:
        """The index of an input that is this number, or -1."""
        index, value = self.get_constant_input(node)
        return index if index is not None and value.size == 1 and abs(value.item() - expected_value) < delta else -1

    def has_constant_input(self, node: Any, expected_value: float, delta: float = 0.000001) -> bool:
        """Whether an input is this number."""
        return self.find_constant_input(node, expected_value, delta) >= 0

    def is_constant_with_specified_dimension(self, output_name: str, dimensions: int, description: str) -> bool:
        """Whether a value is a constant of this rank."""
        value = self.get_constant_value(output_name)
        found = "no constant" if value is None else f"of {value.ndim} dimensions"
        if value is None or value.ndim != dimensions:
            _log.debug("%s %s is %s: expected a constant of %d", description, output_name, found, dimensions)
            return False
        return True

    @staticmethod
    def get_node_attribute(node: Any, attribute_name: str) -> Any:
        """The value of an attribute, or None."""
        for attr in node.attribute:
            if attr.name == attribute_name:
                return package().helper.get_attribute_value(attr)
        return None

    # Tensors

    @staticmethod
    def to_data_hash(tensor: Any, base_dir: str = "") -> int:
        """A number that is the same for tensors of the same bytes; weights in a file are read from this folder."""
        onnx = package()
        if tensor.HasField("segment"):
            raise ValueError(f"{tensor.name!r} is a segment of a tensor: expected a whole one")
        if tensor.data_type == onnx.TensorProto.UNDEFINED:
            raise TypeError(f"{tensor.name!r} has no element type")
        if tensor.data_type == onnx.TensorProto.STRING:
            return hash(tuple(text.decode() for text in tensor.string_data))
        if onnx.external_data_helper.uses_external_data(tensor):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, base_dir)
        return hash(tensor.raw_data if tensor.HasField("raw_data") else onnx.numpy_helper.to_array(tensor).tobytes())

    @staticmethod
    def has_same_value(
        tensor1: Any,
        tensor2: Any,
        signature_cache1: MutableMapping[str, int] | None = None,
        signature_cache2: MutableMapping[str, int] | None = None,
        rtol: float = 1e-05,
        atol: float = 1e-08,
    ) -> bool:
        """Whether two tensors are of the same type and shape and, within the tolerances, of the same numbers.

        Hashes of tensors go into the dictionaries, by name, if there are any.
        """
        for tensor, cache in ((tensor1, signature_cache1), (tensor2, signature_cache2)):
            if cache is not None and tensor.name not in cache:
                cache[tensor.name] = GraphValues.to_data_hash(tensor)
        if tensor1.data_type != tensor2.data_type or tensor1.dims != tensor2.dims:
            return False
        first, second = (package().numpy_helper.to_array(tensor) for tensor in (tensor1, tensor2))
        if first.dtype.kind in "biufc":
            return bool(np.array_equal(first, second) or np.allclose(first, second, rtol=rtol, atol=atol))
        return bool((first == second).all())

    # Types and shapes

    def infer_runtime_shape(
        self, dynamic_axis_mapping: Mapping[str, int] | None = None, update: bool = False
    ) -> SymbolicShapeInferenceHelper | None:
        """The shapes of the values with these sizes of dynamic axes; None if some are not known, or nobody wants them."""
        if not self.enable_shape_infer:
            return None
        try:
            if self.shape_infer_helper is None or update:
                self.shape_infer_helper = SymbolicShapeInferenceHelper(self.model)
            return self.shape_infer_helper if self.shape_infer_helper.infer(dynamic_axis_mapping or {}) else None
        except SardonyxError as error:
            self.enable_shape_infer = False  # it would fail again
            _log.warning("shapes cannot be inferred: %s", error)
            return None

    def tensor_shape_to_list(self, tensor_type: Any) -> list[Any]:
        """The sizes in a type: numbers, names, or "?"."""
        return [_size(dim, "?") for dim in tensor_type.shape.dim]

    def get_dtype(self, name: str, symbolic_shape_helper: SymbolicShapeInferenceHelper | None = None) -> int | None:
        """The element type of a value, as the graph or else the helper says."""
        if self._dtype_dict is None:
            self._dtype_dict = {tensor.name: tensor.data_type for tensor in self.model.graph.initializer}
            self._dtype_dict.update((value.name, value.type.tensor_type.elem_type) for value in self._described())
        found = self._dtype_dict.get(name)
        return found if found is not None or symbolic_shape_helper is None else symbolic_shape_helper.get_edge_dtype(name)

    def get_shape(self, name: str, symbolic_shape_helper: SymbolicShapeInferenceHelper | None = None) -> list[Any] | None:
        """The shape of a value, as the graph or else the helper says."""
        if self._shape_dict is None:
            self._shape_dict = {tensor.name: list(tensor.dims) for tensor in self.model.graph.initializer}
            for value in self._described():
                kind = value.type.tensor_type
                if kind.HasField("shape"):
                    self._shape_dict[value.name] = [_size(dim, 0) for dim in kind.shape.dim]
        found = self._shape_dict.get(name)
        return found if found is not None or symbolic_shape_helper is None else symbolic_shape_helper.get_edge_shape(name)

    def _described(self) -> Iterator[Any]:
        graph = self.model.graph
        yield from graph.value_info
        yield from graph.input
        yield from graph.output

    def use_float16(self) -> bool:
        """Whether a value, a weight, a constant or a Cast of the model is of float16."""
        half = package().TensorProto.FLOAT16
        for graph in self.graphs():
            if any(tensor.data_type == half for tensor in graph.initializer):
                return True
            for value in (*graph.input, *graph.output, *graph.value_info):
                kind = value.type.sequence_type.elem_type if value.type.HasField("sequence_type") else value.type
                if kind.tensor_type.elem_type == half:
                    return True
            for node in graph.node:
                if node.op_type == "Cast" and self.get_node_attribute(node, "to") == half:
                    return True
                if any(tensor.data_type == half for attr in node.attribute for tensor in (attr.t, *attr.tensors)):
                    return True
        return False


def _size(dim: Any, unknown: Any) -> Any:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or unknown
