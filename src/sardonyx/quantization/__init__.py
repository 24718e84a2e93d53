"""Quantization: models with smaller numbers. The names and options are those of `onnxruntime.quantization`.

    from sardonyx.quantization import quantize_dynamic, quantize_static
    quantize_dynamic("model.onnx", "model.int8.onnx")

docs/quantization.md has a worked example.
"""

from __future__ import annotations

from sardonyx.quantization.calibrate import (
    CalibraterBase,
    CalibrationDataReader,
    CalibrationFeeds,
    CalibrationMethod,
    MinMaxCalibrater,
    TensorData,
    TensorsData,
    create_calibrator,
    load_tensors_data,
    save_tensors_data,
)
from sardonyx.quantization.calibration_table import write_calibration_table
from sardonyx.quantization.error_chart import write_chart
from sardonyx.quantization.error_report import LayerError, layer_errors
from sardonyx.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
)
from sardonyx.quantization.qdq_quantizer import QDQQuantizer
from sardonyx.quantization.quantize import (
    DynamicQuantConfig,
    StaticQuantConfig,
    get_qdq_config,
    quantize,
    quantize_dynamic,
    quantize_static,
)
from sardonyx.quantization.shape_inference import quant_pre_process
from sardonyx.quantization.types import QuantFormat, QuantizationMode, QuantType

__all__ = [
    "CalibraterBase",
    "CalibrationDataReader",
    "CalibrationFeeds",
    "CalibrationMethod",
    "DefaultWeightOnlyQuantConfig",
    "DynamicQuantConfig",
    "HQQWeightOnlyQuantConfig",
    "KQuantWeightOnlyQuantConfig",
    "LayerError",
    "MatMulNBitsQuantizer",
    "MinMaxCalibrater",
    "QDQQuantizer",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "RTNWeightOnlyQuantConfig",
    "StaticQuantConfig",
    "TensorData",
    "TensorsData",
    "create_calibrator",
    "get_qdq_config",
    "layer_errors",
    "load_tensors_data",
    "quant_pre_process",
    "quantize",
    "quantize_dynamic",
    "quantize_static",
    "save_tensors_data",
    "write_calibration_table",
    "write_chart",
]
