"""Casts, attributes and Reshapes, for fusions that programs write: `onnxruntime.transformers.fusion_utils`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import numpy as np

from sardonyx.transformers.messages import package
from sardonyx.transformers.onnx_model import OnnxModel

Array = np.ndarray[Any, Any]
_log = logging.getLogger("sardonyx")
_TYPES: Final = {"int32": "INT32", "float32": "FLOAT", "float16": "FLOAT16"}


class FusionUtils:
    """Changes of a model that fusions need."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    # Casts

    def cast_graph_input_to_int32(self, input_name: str) -> tuple[bool, str]:
        """An input of the model as int32: whether a Cast was needed, and the name of it."""
        found = self.model.find_graph_input(input_name)
        if found is None or found.type.tensor_type.elem_type == package().TensorProto.INT32:
            return False, input_name
        return True, self.cast_input_to_int32(input_name)[0]

    def cast_input_to_int32(self, input_name: str) -> tuple[str, Any]:
        """A value as int32: its name, and the Cast."""
        return self.cast_input(input_name, "int32")

    def cast_input(self, input_name: str, target_type: str = "int32") -> tuple[str, Any]:
        """A value as int32, float32 or float16: its name, and the Cast."""
        if target_type not in _TYPES:
            raise ValueError(f"target_type is {target_type!r}: expected one of {', '.join(_TYPES)}")
        name = f"{input_name}_{target_type}"
        return name, self.add_cast_node(input_name, getattr(package().TensorProto, _TYPES[target_type]), name)

    def add_cast_node(
        self,
        input_name: str,
        to_type: int,
        output_name: str | None = None,
        output_name_to_node: Mapping[str, Any] | None = None,
        graph_name: str | None = None,
    ) -> Any:
        """A Cast of a value, or of what the value is a Cast of."""
        makers = self.model.output_name_to_node() if output_name_to_node is None else output_name_to_node
        maker = makers.get(input_name)
        source = maker.input[0] if maker is not None and maker.op_type == "Cast" else input_name
        name = output_name or f"{input_name}_cast_to_{to_type}"
        node = package().helper.make_node("Cast", [source], [name], to=int(to_type))
        self.model.add_node(node, graph_name)
        return node

    def remove_cast_int32(self, input_name: str) -> None:
        """Let readers of Casts of a value to int32 read the value."""
        for node in self.model.input_name_to_nodes().get(input_name, []):
            if node.op_type == "Cast" and self.check_node_attribute(node, "to", package().TensorProto.INT32):
                self.model.remove_node(node)
                self.model.replace_input_of_all_nodes(node.output[0], input_name)

    def remove_cascaded_cast_nodes(self) -> None:
        """See OnnxModel."""
        self.model.remove_cascaded_cast_nodes()

    def remove_useless_cast_nodes(self) -> None:
        """See OnnxModel."""
        self.model.remove_useless_cast_nodes()

    # Edges

    @staticmethod
    def update_node_input(node: Any, i: int, new_input_name: str, input_name_to_nodes: MutableMapping[str, list[Any]]) -> int:
        """Let a node read another value, and keep the dictionary right; how many nodes read the old value still."""
        old = input_name_to_nodes.get(node.input[i], [])
        if node in old:
            old.remove(node)
        node.input[i] = new_input_name
        input_name_to_nodes.setdefault(new_input_name, []).append(node)
        return len(old)

    @staticmethod
    def skip_parent(
        model: OnnxModel,
        node: Any,
        parent_node: Any,
        input_name_to_nodes: MutableMapping[str, list[Any]],
        node_input_index: int = 0,
        parent_input_index: int = 0,
    ) -> bool:
        """Let a node read what its maker reads; whether nobody needs the maker any more."""
        old = node.input[node_input_index]
        source = parent_node.input[parent_input_index]
        left = FusionUtils.update_node_input(node, node_input_index, source, input_name_to_nodes)
        return left == 0 and model.find_graph_output(old) is None

    def remove_identity_nodes(self) -> None:
        """Take out Identity nodes, but for those that make an output."""
        outputs = set(self.model.get_graphs_output_names())
        found = [node for node in self.model.get_nodes_by_op_type("Identity") if node.output[0] not in outputs]
        for node in found:
            self.model.replace_input_of_all_nodes(node.output[0], node.input[0])
        self.model.remove_nodes(found)

    def remove_useless_reshape_nodes(self) -> None:
        """Take out Reshapes to the shape that their input has."""
        helper = self.model.infer_runtime_shape(update=True)
        if helper is None:
            return
        for node in self.model.get_nodes_by_op_type("Reshape"):
            shape = helper.get_edge_shape(node.input[0])
            if shape and shape == helper.get_edge_shape(node.output[0]):
                self.model.bypass_node(node)

    # Checks

    def get_squeeze_or_unsqueeze_axes(self, node: Any) -> Any:
        """The axes of a Squeeze or Unsqueeze: an attribute before opset 13, then an input; None if they are not known."""
        if node.op_type not in ("Squeeze", "Unsqueeze"):
            raise ValueError(f"node {node.name!r} is a {node.op_type}: expected Squeeze or Unsqueeze")
        return (
            self.model.get_constant_value(node.input[1]) if len(node.input) > 1 else self.model.get_node_attribute(node, "axes")
        )

    @staticmethod
    def check_node_attribute(node: Any, attribute_name: str, expected_value: Any, default_value: Any = None) -> bool:
        """Whether an attribute, or the default if there is none, is this."""
        found = OnnxModel.get_node_attribute(node, attribute_name)
        return _is_same(default_value if found is None else found, expected_value)

    def check_node_input_value(self, node: Any, input_index: int, expected_value: Any) -> bool:
        """Whether an input is a constant that is this."""
        return _is_same(self.model.get_constant_value(node.input[input_index]), expected_value)

    @staticmethod
    def check_qdq_node_for_fusion(node: Any, model: OnnxModel, allow_per_tensor_quantization_only: bool = True) -> bool:
        """Whether a QuantizeLinear or DequantizeLinear has a constant scale (one, unless more are allowed) and zero point 0."""
        scale = model.get_constant_value(node.input[1])
        if scale is None or (allow_per_tensor_quantization_only and scale.shape not in ((), (1,))):
            return False
        if len(node.input) < 3 or not node.input[2]:
            return True
        zero = model.get_constant_value(node.input[2])
        return zero is not None and zero.ndim == scale.ndim and not zero.any()

    @staticmethod
    def transpose_2d_int8_tensor(tensor: Any) -> Any:
        """The TensorProto of an int8 matrix, its bytes in the order of the transposed one; the sizes stay as they are."""
        types = package().TensorProto
        if not isinstance(tensor, types):
            raise TypeError(f"Expected input type is an ONNX TensorProto but got {type(tensor)}")
        if len(tensor.dims) != 2 or tensor.data_type != types.INT8:
            raise ValueError(f"{tensor.name!r} has type {tensor.data_type} and {len(tensor.dims)} axes: expected an int8 matrix")
        if not tensor.raw_data:
            raise ValueError(f"{tensor.name!r} has no raw data: only that can be transposed")
        tensor.raw_data = np.frombuffer(tensor.raw_data, np.int8).reshape(tuple(tensor.dims)).T.tobytes()
        return tensor


def _is_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return isinstance(found, (np.ndarray, list)) and np.array_equal(expected, found)
    return bool(np.all(found == expected))


class NumpyHelper:
    """Tensors as arrays."""

    @staticmethod
    def to_array(tensor: Any, fill_zeros: bool = False) -> Array:
        """The array of a TensorProto; zeros of its type and shape, if its data are not there."""
        onnx = package()
        if fill_zeros:
            return np.zeros(tuple(tensor.dims), onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        array: Array = onnx.numpy_helper.to_array(tensor)
        return array
