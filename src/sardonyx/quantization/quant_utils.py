"""Names that programs for ONNX Runtime import from `onnxruntime.quantization.quant_utils`: types, arithmetic, small helpers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.ir import tensor
from sardonyx.options import SessionOptions
from sardonyx.quantization import arithmetic, messages
from sardonyx.quantization.arithmetic import (
    compute_data_quant_params,
    compute_scale_zp,
    compute_scale_zp_blocked,
    compute_scale_zp_float8,
    quantize_data,
    quantize_nparray,
    snap_zero_point_to_uint8,
)
from sardonyx.quantization.base_quantizer import PRODUCER
from sardonyx.quantization.calibration_table import write_calibration_table
from sardonyx.quantization.histograms import smooth_distribution
from sardonyx.quantization.models import INFERRED, LARGEST_FILE, PREPARED, mark, read_model
from sardonyx.quantization.opset import raise_opset, required_opset
from sardonyx.quantization.types import (
    QuantFormat,
    QuantizationMode,
    QuantizedValueType,
    QuantType,
    element_type,
)
from sardonyx.session.inference_session import InferenceSession

__all__ = [
    "DEQUANT_OP_NAME",
    "DEQUANT_OUTPUT_SUFFIX",
    "FLOAT8_TYPES",
    "MODEL_SIZE_THRESHOLD",
    "ONNX_INT_TYPE_RANGE",
    "ONNX_INT_TYPE_REDUCED_RANGE",
    "ONNX_INT_TYPE_SYMMETRIC_RANGE",
    "ONNX_TYPE_TO_NP_TYPE",
    "QUANT_INPUT_SUFFIX",
    "QUANT_OP_NAME",
    "TENSOR_NAME_QUANT_SUFFIX",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "QuantizedValueType",
    "add_infer_metadata",
    "add_pre_process_metadata",
    "attribute_to_kwarg",
    "compute_data_quant_params",
    "compute_scale_zp",
    "compute_scale_zp_blocked",
    "compute_scale_zp_float8",
    "find_by_name",
    "generate_identified_filename",
    "get_opset_version",
    "get_qmin_qmax_for_qType",
    "get_qrange_for_qType",
    "load_model_with_shape_infer",
    "model_has_external_data",
    "model_has_infer_metadata",
    "model_has_pre_process_metadata",
    "ms_domain",
    "normalize_axis",
    "onnx_domain",
    "optimize_model",
    "pack_bytes_to_4bit",
    "quantize_data",
    "quantize_nparray",
    "quantize_onnx_initializer",
    "save_and_reload_model_with_shape_infer",
    "smooth_distribution",
    "snap_zero_point_to_uint8",
    "tensor_proto_to_array",
    "update_opset_version",
    "write_calibration_table",
]

__producer__, __version__ = PRODUCER
onnx_domain: Final = "ai.onnx"
ms_domain: Final = "com.microsoft"
QUANT_OP_NAME: Final = "QuantizeLinear"
QUANT_INPUT_SUFFIX: Final = "_QuantizeLinear_Input"
DEQUANT_OP_NAME: Final = "DequantizeLinear"
DEQUANT_OUTPUT_SUFFIX: Final = "_DequantizeLinear_Output"
TENSOR_NAME_QUANT_SUFFIX: Final = "_quantized"
MODEL_SIZE_THRESHOLD: Final = LARGEST_FILE
FLOAT8_TYPES: Final = tuple(sorted(each.onnx for each in arithmetic.FLOAT8))
ONNX_TYPE_TO_NP_TYPE: Final = {each.onnx: each.numpy for each in (*arithmetic.FULL_RANGES, dtypes.FLOAT8E4M3FN)}
ONNX_INT_TYPE_RANGE: Final = {each.onnx: limits for each, limits in arithmetic.FULL_RANGES.items()}
ONNX_INT_TYPE_SYMMETRIC_RANGE: Final = {each.onnx: limits for each, limits in arithmetic.SYMMETRIC_RANGES.items()}
ONNX_INT_TYPE_REDUCED_RANGE: Final = {each.onnx: limits for each, limits in arithmetic.REDUCED_RANGES.items()}
_FLOATS: Final = (1, 10)  # TensorProto.FLOAT, FLOAT16
get_qmin_qmax_for_qType = arithmetic.quantized_range  # noqa: N816 - ONNX Runtime's name


def get_qrange_for_qType(qType: int, reduce_range: bool = False, symmetric: bool = False) -> Any:  # noqa: N802
    """The number of steps from the least to the greatest integer of a type."""
    qmin, qmax = arithmetic.quantized_range(qType, reduce_range, symmetric)
    return int(qmax) - int(qmin)


def normalize_axis(axis: int, rank: int) -> tuple[bool, int]:
    """Whether there is such an axis, and which it is, counted from the front."""
    counted = axis + rank if axis < 0 else axis
    return 0 <= counted < rank, counted


def pack_bytes_to_4bit(src_8bit: bytes) -> bytearray:
    """Two elements a byte, the first in the low bits."""
    codes = np.frombuffer(src_8bit, np.uint8)
    return bytearray(tensor.pack(codes, dtypes.UINT4).tobytes()) if codes.size else bytearray()


def quantize_onnx_initializer(
    weight: Any,
    quant_type: int,
    zero_point: Any,
    scale: Any,
    axis: int | None = None,
    quant_weight_name: str | None = None,
    block_size: int = 0,
) -> Any:
    """A TensorProto quantized: as a whole, by channels along an axis, or by blocks along it."""
    dtype = element_type(quant_type)
    data = tensor_proto_to_array(weight)
    quantized = arithmetic.quantize_weight(data, dtype, np.asarray(zero_point), np.asarray(scale), axis, block_size)
    result = type(weight)()
    result.name = quant_weight_name or f"{weight.name}{TENSOR_NAME_QUANT_SUFFIX}"
    result.data_type = dtype.onnx
    result.dims.extend(weight.dims)
    result.raw_data = bytes(tensor.from_numpy(quantized.reshape(data.shape)).raw())
    return result


def tensor_proto_to_array(initializer: Any) -> Any:
    """The numbers of a TensorProto of 32- or 16-bit floats."""
    if initializer.data_type not in _FLOATS:
        name = dtypes.from_onnx(initializer.data_type).ort
        raise ValueError(f"Only float type is supported. Weights {initializer.name} is {name}")
    return messages.onnx_package().numpy_helper.to_array(initializer)


def attribute_to_kwarg(attribute: Any) -> dict[str, Any]:
    """An AttributeProto as an argument of onnx.helper.make_node."""
    fields = (None, "f", "i", "s", "t", "g", "floats", "ints", "strings", "tensors", "graphs")
    field = fields[attribute.type] if attribute.type < len(fields) else None
    if field is None:
        raise ValueError(f"attribute {attribute.name} has unsupported type {attribute.type}.")
    return {attribute.name: getattr(attribute, field)}


def find_by_name(item_name: str, item_list: Iterable[Any]) -> Any:
    """The first item of a name, or None."""
    return next((item for item in item_list if item.name == item_name), None)


def get_elem_index(elem_name: str, elem_list: Sequence[str]) -> int:
    """Where a name stands last in a list; -1 if it does not."""
    return max((index for index, name in enumerate(elem_list) if name == elem_name), default=-1)


def get_mul_node(inputs: Sequence[str], output: str, name: str) -> Any:
    """A Mul as a NodeProto."""
    return messages.onnx_package().helper.make_node("Mul", inputs, [output], name)


def generate_identified_filename(filename: Path, identifier: str) -> Path:
    """A file name with something put before its ending."""
    return filename.with_name(f"{filename.stem}{identifier}{filename.suffix}")


def model_has_external_data(model_path: str | Path) -> bool:
    """Whether a model has weights in other files."""
    return any(
        value.constant is not None and getattr(value.constant, "external", None) is not None
        for value in read_model(model_path).graph.initializers.values()
    )


def optimize_model(model_path: Path, opt_model_path: Path) -> None:
    """Write a model as the basic passes leave it."""
    options = SessionOptions()
    options.optimized_model_filepath = os.fspath(opt_model_path)
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    InferenceSession(os.fspath(model_path), options, providers=["CPUExecutionProvider"])


def add_pre_process_metadata(model: Any) -> None:
    """Mark a ModelProto as prepared for quantization."""
    messages.set_metadata(model, *PREPARED)


def add_infer_metadata(model: Any) -> None:
    """Mark a ModelProto as one whose values have types."""
    messages.set_metadata(model, *INFERRED)


def _has_metadata(model: Any, entry: tuple[str, str]) -> bool:
    return any((each.key, each.value) == entry for each in model.metadata_props)


def model_has_pre_process_metadata(model: Any) -> bool:
    """Whether a ModelProto has been prepared for quantization."""
    return _has_metadata(model, PREPARED)


def model_has_infer_metadata(model: Any) -> bool:
    """Whether a ModelProto is marked as one whose values have types."""
    return _has_metadata(model, INFERRED)


def get_opset_version(model: Any) -> int:
    """The version of ONNX's own operators that a ModelProto is written against."""
    found = [entry.version for entry in model.opset_import if entry.domain in ("", onnx_domain)]
    if len(found) != 1:
        raise ValueError("Failed to find proper ai.onnx domain")
    return int(found[0])


def update_opset_version(
    model: Any,
    weight_type: Any,
    activation_type: Any = None,
    tensor_quant_overrides: Mapping[str, Any] | None = None,
    block_size: int = 0,
) -> Any:
    """A ModelProto whose version of ONNX's operators can express a quantized model; the same one if it can already."""
    version = get_opset_version(model)
    required = required_opset(version, weight_type, activation_type, tensor_quant_overrides, block_size)
    if required == version:
        return model
    read = read_model(model)
    raise_opset(read, required)
    mark(read, INFERRED)
    return messages.to_message(read)


def load_model_with_shape_infer(model_path: str | Path) -> Any:
    """The model in a file as a ModelProto, with the types of all values."""
    model = read_model(Path(model_path))
    mark(model, INFERRED)
    return messages.to_message(model)


def save_and_reload_model_with_shape_infer(model: Any) -> Any:
    """A copy of a ModelProto with the types of all values."""
    read = read_model(model)
    mark(read, INFERRED)
    return messages.to_message(read)


def add_quant_suffix(tensor_name: str) -> str:
    """The name of the node that quantizes a tensor."""
    return f"{tensor_name}_QuantizeLinear"


def add_quant_input_suffix(tensor_name: str) -> str:
    """The name of a result of the model before it is quantized."""
    return f"{tensor_name}{QUANT_INPUT_SUFFIX}"


def add_quant_output_suffix(tensor_name: str) -> str:
    """The name of a quantized tensor."""
    return f"{tensor_name}_QuantizeLinear_Output"


def add_dequant_suffix(tensor_name: str) -> str:
    """The name of the node that dequantizes a tensor."""
    return f"{tensor_name}_DequantizeLinear"


def add_dequant_input_suffix(tensor_name: str) -> str:
    """The name of a quantized tensor that is dequantized."""
    return f"{tensor_name}_DequantizeLinear_Input"


def add_dequant_output_suffix(tensor_name: str) -> str:
    """The name of a dequantized tensor."""
    return f"{tensor_name}{DEQUANT_OUTPUT_SUFFIX}"
