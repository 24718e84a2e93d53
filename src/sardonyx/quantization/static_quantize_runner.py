"""Static quantization from the command line, with the test data that lies beside a model.

    python -m onnxruntime.quantization.static_quantize_runner -i folder/model.onnx -o quantized.onnx --per_channel

The inputs are those of ONNX's test layout: folder/test_data_set_0/input_0.pb and so on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.errors import NoSuchFile
from sardonyx.formats.onnx import load, load_tensor
from sardonyx.quantization.calibrate import CalibrationDataReader
from sardonyx.quantization.quantize import StaticQuantConfig, quantize
from sardonyx.quantization.types import CalibrationMethod, QuantFormat, QuantType

_TYPES = {each.name.lower(): each for each in QuantType}
_METHODS = {each.name.lower(): each for each in CalibrationMethod}
_FORMATS = {each.name.lower(): each for each in QuantFormat}


class OnnxModelCalibrationDataReader(CalibrationDataReader):
    """Gives the inputs in the folders `test_data_set_*` beside a model."""

    def __init__(self, model_path: str | os.PathLike[str]) -> None:
        folder = Path(model_path).parent
        graph = load(os.fspath(model_path)).graph
        names = [value.name for value in graph.inputs if value.constant is None]
        sets = sorted(folder.glob("test_data_set_*"))
        if not sets:
            raise NoSuchFile(f"{folder} has no folder test_data_set_0 with inputs to calibrate with")
        self.calibration_data: Iterator[dict[str, Any]] = iter(
            [{name: load_tensor(each / f"input_{index}.pb") for index, name in enumerate(names)} for each in sets]
        )

    def get_next(self) -> dict[str, Any] | None:
        """The next feed."""
        return next(self.calibration_data, None)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Static quantization, calibrated with the test data beside the model.")
    parser.add_argument("-i", "--input_model_path", required=True, help="the model")
    parser.add_argument("-o", "--output_quantized_model_path", required=True, help="where the quantized model goes")
    parser.add_argument("--activation_type", choices=_TYPES, default="quint8", help="the type of activations")
    parser.add_argument("--weight_type", choices=_TYPES, default="qint8", help="the type of weights")
    parser.add_argument("--calibration_method", choices=_METHODS, default="minmax", help="how ranges are found")
    parser.add_argument("--quant_format", choices=_FORMATS, default="qdq", help="pairs, or operators on integers")
    parser.add_argument("--per_channel", action="store_true", help="a scale for each channel of a weight")
    parser.add_argument("--minimum_real_range", type=float, default=0.0001, help="the least width of a range")
    parser.add_argument("--nodes_to_quantize", nargs="+", help="quantize these nodes only")
    parser.add_argument("--nodes_to_exclude", nargs="+", help="do not quantize these nodes")
    parser.add_argument(
        "--op_types_to_exclude_output_quantization", nargs="+", default=[], help="leave results of these as they are"
    )
    parser.add_argument(
        "--op_per_channel_axis", nargs=2, action="append", default=[], metavar=("OP_TYPE", "AXIS"), help="the axis of channels"
    )
    parser.add_argument("--tensor_quant_overrides", help="a JSON file of overrides by tensor")
    for name, text in (
        ("enable_subgraph", "quantize subgraphs, too"),
        ("force_quantize_no_input_check", "quantize operators that move numbers even if their input is not quantized"),
        ("matmul_const_b_only", "quantize products with a constant only"),
        ("add_qdq_pair_to_weight", "keep weights as they are, and quantize them when the model runs"),
        ("dedicated_qdq_pair", "a pair for each node that reads a tensor"),
        ("calib_tensor_range_symmetric", "ranges reach as far on both sides of zero"),
        ("calib_moving_average", "ranges are moving averages"),
        ("disable_quantize_bias", "keep biases as they are"),
        ("use_qdq_contrib_ops", "QuantizeLinear and DequantizeLinear of com.microsoft"),
        ("qdq_keep_removable_activations", "keep Relu and Clip"),
        ("qdq_disable_weight_adjust_for_int32_bias", "never enlarge the scale of a weight for its bias"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=text)
    return parser.parse_args(arguments)


def get_tensor_quant_overrides(file: str | None) -> dict[str, list[dict[str, Any]]]:
    """The overrides in a JSON file; types are names of QuantType."""
    if not file:
        return {}
    found: dict[str, list[dict[str, Any]]] = json.loads(Path(file).read_text())
    for override in (each for overrides in found.values() for each in overrides):
        if "scale" in override:
            override["scale"] = np.array(override["scale"], np.float32)
        if "zero_point" in override:
            override["zero_point"] = np.array(override["zero_point"])
        if isinstance(override.get("quant_type"), str):
            override["quant_type"] = QuantType.from_string(override["quant_type"])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Quantize a model; the exit code."""
    args = parse_arguments(arguments)
    options = {
        "EnableSubgraph": args.enable_subgraph,
        "ForceQuantizeNoInputCheck": args.force_quantize_no_input_check,
        "MatMulConstBOnly": args.matmul_const_b_only,
        "AddQDQPairToWeight": args.add_qdq_pair_to_weight,
        "OpTypesToExcludeOutputQuantization": args.op_types_to_exclude_output_quantization,
        "DedicatedQDQPair": args.dedicated_qdq_pair,
        "QDQOpTypePerChannelSupportToAxis": {name: int(axis) for name, axis in args.op_per_channel_axis},
        "CalibTensorRangeSymmetric": args.calib_tensor_range_symmetric,
        "CalibMovingAverage": args.calib_moving_average,
        "QuantizeBias": not args.disable_quantize_bias,
        "UseQDQContribOps": args.use_qdq_contrib_ops,
        "MinimumRealRange": args.minimum_real_range,
        "QDQKeepRemovableActivations": args.qdq_keep_removable_activations,
        "QDQDisableWeightAdjustForInt32Bias": args.qdq_disable_weight_adjust_for_int32_bias,
        "TensorQuantOverrides": get_tensor_quant_overrides(args.tensor_quant_overrides),
    }
    config = StaticQuantConfig(
        OnnxModelCalibrationDataReader(args.input_model_path),
        calibrate_method=_METHODS[args.calibration_method],
        quant_format=_FORMATS[args.quant_format],
        activation_type=_TYPES[args.activation_type],
        weight_type=_TYPES[args.weight_type],
        nodes_to_quantize=args.nodes_to_quantize,
        nodes_to_exclude=args.nodes_to_exclude,
        per_channel=args.per_channel,
        extra_options=options,
    )
    quantize(args.input_model_path, args.output_quantized_model_path, config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
