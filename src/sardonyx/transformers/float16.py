"""float32 models as float16 models: `onnxruntime.transformers.float16` on our own conversion (`conversion.float16`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.conversion.float16 import BLOCKED_OPERATORS, LARGEST, SMALLEST, Float16Settings, convert_model, narrow
from sardonyx.transformers.messages import package, to_ir, to_message

Array = np.ndarray[Any, Any]
DEFAULT_OP_BLOCK_LIST = list(BLOCKED_OPERATORS)


def convert_np_to_float16(np_array: Array, min_positive_val: float = SMALLEST, max_finite_val: float = LARGEST) -> Array:
    """float32 numbers as float16; none but 0 becomes 0, and none but infinity infinite."""
    return narrow(np.asarray(np_array, np.float32), min_positive_val, max_finite_val)


def convert_tensor_float_to_float16(tensor: Any, min_positive_val: float = SMALLEST, max_finite_val: float = LARGEST) -> Any:
    """A TensorProto of float32 as one of float16; others stay as they are."""
    onnx = package()
    if not isinstance(tensor, onnx.TensorProto):
        raise ValueError(f"Expected input type is an ONNX TensorProto but got {type(tensor)}")
    if tensor.data_type == onnx.TensorProto.FLOAT:
        array = convert_np_to_float16(onnx.numpy_helper.to_array(tensor), min_positive_val, max_finite_val)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return tensor


def convert_float_to_float16(
    model: Any,
    min_positive_val: float = SMALLEST,
    max_finite_val: float = LARGEST,
    keep_io_types: bool | Sequence[str] = False,
    disable_shape_infer: bool = False,
    op_block_list: Sequence[str] | None = None,
    node_block_list: Sequence[str] | None = None,
    force_fp16_initializers: bool = False,
    force_fp16_inputs: Mapping[str, Sequence[int]] | None = None,
    use_bfloat16_as_blocked_nodes_dtype: bool = False,
) -> Any:
    """A model (a ModelProto or a path) in float16, as a ModelProto.

    `keep_io_types`: inputs and outputs stay float32, all or those of these names. Operators and nodes on the lists are computed
    in float32. Shapes are not needed here: `disable_shape_infer` changes nothing.
    """
    if use_bfloat16_as_blocked_nodes_dtype:
        raise NotImplementedError("use_bfloat16_as_blocked_nodes_dtype=True: nodes on the lists are computed in float32")
    if not isinstance(model, (str, os.PathLike)) and not hasattr(model, "SerializeToString"):
        raise ValueError(f"Expected an ONNX ModelProto or a path but got {type(model)}")
    ours = to_ir(model)
    settings = Float16Settings(
        keeps_io=keep_io_types if isinstance(keep_io_types, bool) else frozenset(keep_io_types),
        blocked_operators=DEFAULT_OP_BLOCK_LIST if op_block_list is None else list(op_block_list),
        blocked_nodes=list(node_block_list or ()),
        converts_all_weights=force_fp16_initializers,
        smallest=min_positive_val,
        largest=max_finite_val,
        narrow_inputs={name: list(positions) for name, positions in (force_fp16_inputs or {}).items()},
    )
    convert_model(ours, settings)
    return to_message(ours)


def float_to_float16_max_diff(tensor: Any, min_positive_val: float = SMALLEST, max_finite_val: float = LARGEST) -> float:
    """The largest difference that the conversion of a TensorProto would make."""
    onnx = package()
    if not isinstance(tensor, onnx.TensorProto):
        raise ValueError(f"Expected input type is an ONNX TensorProto but got {type(tensor)}")
    if tensor.data_type != onnx.TensorProto.FLOAT:
        raise ValueError("Expected tensor data type is float.")
    array = onnx.numpy_helper.to_array(tensor)
    if not array.size:
        return 0.0
    return float(np.abs(array - convert_np_to_float16(array, min_positive_val, max_finite_val).astype(np.float32)).max())
