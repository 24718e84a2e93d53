"""Wrong options, wrong calibration data, wrong blocks: the message names what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantization.small_models import Feeds, convolutional, feeds_for, products
from sardonyx.errors import InvalidArgument
from sardonyx.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static
from sardonyx.quantization.calibrate import create_calibrator
from sardonyx.quantization.matmul_nbits_quantizer import HQQWeightOnlyQuantConfig, MatMulNBitsQuantizer, RTNWeightOnlyQuantConfig

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"extra_options": {"ActivationSymetric": True}}, "no option 'ActivationSymetric'.*\n.*'ActivationSymmetric'"),
    ({"extra_options": {"BlockSize": -3}}, "BlockSize is -3"),
    ({"extra_options": {"SmoothQuant": True}}, "SmoothQuant"),
    ({"extra_options": {"TensorQuantOverrides": {"nothing": [{}]}}}, "'nothing'.*not present"),
    ({"extra_options": {"TensorQuantOverrides": {"w1": [{"scal": 1}]}}}, "'w1'.*unknown key 'scal'"),
    ({"extra_options": {"TensorQuantOverrides": {"w1": [{"scale": 1.0}]}}}, "both 'scale' and 'zero_point'.*'w1'"),
    ({"extra_options": {"TensorQuantOverrides": {"w1": [{"axis": 7}]}}}, "out-of-bounds for tensor w1"),
    ({"quant_format": "QDQ"}, "quant_format is 'QDQ', expected one of QuantFormat.QOperator"),
    ({"activation_type": QuantType.QInt8, "weight_type": QuantType.QUInt8}, "do not go together"),
    ({"activation_type": QuantType.QUInt16, "quant_format": QuantFormat.QOperator}, "16-bit"),
    ({"nodes_to_quantize": ["conv9"]}, "nodes_to_quantize.*'conv9'"),
    ({"calibration_data_reader": None}, "calibration_data_reader"),
]


@pytest.mark.parametrize(("given", "text"), WRONG, ids=lambda each: str(each)[:40])
def test_options_of_static_quantization(tmp_path: Path, given: dict[str, Any], text: str) -> None:
    model = convolutional()
    arguments = {"calibration_data_reader": feeds_for(model), **given}
    with pytest.raises(ValueError, match=f"(?s){text}"):
        quantize_static(model, tmp_path / "out.onnx", **arguments)
    assert not (tmp_path / "out.onnx").exists()


FEEDS: list[tuple[Any, str]] = [
    ({"y": np.zeros((2, 3, 8, 8), np.float32)}, "sample 0 does not fit the model.*'?[xy]"),
    ({"x": np.zeros((2, 4, 8, 8), np.float32)}, "sample 0 does not fit the model.*x"),
    ({"x": np.zeros((2, 3, 8, 8), np.float64)}, "sample 0 does not fit the model.*x"),
    ([np.zeros((2, 3, 8, 8), np.float32)], "sample 0: get_next.* gave list"),
]


@pytest.mark.parametrize(("feed", "text"), FEEDS, ids=["name", "shape", "type", "list"])
def test_calibration_data_that_does_not_match(tmp_path: Path, feed: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"(?s){text}"):
        quantize_static(convolutional(), tmp_path / "out.onnx", Feeds([feed]))


@pytest.mark.parametrize("method", [CalibrationMethod.Entropy, CalibrationMethod.Percentile])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_histograms_want_finite_numbers(tmp_path: Path, method: CalibrationMethod, value: float) -> None:
    feed = {"x": np.full((2, 3, 8, 8), value, np.float32)}
    with pytest.raises(InvalidArgument, match=r"calibration data: the values of tensor '[^']+' are from"):
        quantize_static(convolutional(), tmp_path / "out.onnx", Feeds([feed]), calibrate_method=method)


def test_no_calibration_data(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No data is collected"):
        quantize_static(convolutional(), tmp_path / "out.onnx", Feeds([]))


def test_an_unknown_option_of_a_calibrator(tmp_path: Path) -> None:
    import onnx

    onnx.save(products(), str(tmp_path / "model.onnx"))
    with pytest.raises(ValueError, match="no calibration option 'bins'"):
        create_calibrator(tmp_path / "model.onnx", augmented_model_path=tmp_path / "a.onnx", extra_options={"bins": 3})


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"a model is a path or an onnx.ModelProto, not int"):
        quantize_dynamic(3, tmp_path / "out.onnx")
    with pytest.raises(FileNotFoundError):
        quantize_dynamic(tmp_path / "missing.onnx", tmp_path / "out.onnx")


def test_blocks_and_bits() -> None:
    model = products()
    with pytest.raises(AssertionError, match="bits is 3"):
        MatMulNBitsQuantizer(model, bits=3)
    for size in (0, 8, 24):
        with pytest.raises(InvalidArgument, match=f"block_size is {size}, expected a power of two"):
            MatMulNBitsQuantizer(model, block_size=size)
    with pytest.raises(InvalidArgument, match="accuracy_level is 9"):
        MatMulNBitsQuantizer(model, block_size=16, accuracy_level=9)
    with pytest.raises(InvalidArgument, match=r"HQQ writes QuantFormat.QOperator only"):
        HQQWeightOnlyQuantConfig(quant_format=QuantFormat.QDQ)
    with pytest.raises(InvalidArgument, match=r"'matmul1': bits is 8, but QuantFormat.QDQ has 4 bits only"):
        MatMulNBitsQuantizer(model, bits=8, block_size=16, quant_format=QuantFormat.QDQ).process()
    own = RTNWeightOnlyQuantConfig(customized_weight_config={"matmul2": {"size": 4}})
    with pytest.raises(InvalidArgument, match=r"'matmul2'.*no setting 'size'"):
        MatMulNBitsQuantizer(model, block_size=16, algo_config=own).process()
