"""Quantize a model: `quantize_static`, `quantize_dynamic`, and the configurations that `quantize` takes.

quantize_dynamic("model.onnx", "model.int8.onnx")
quantize_static("model.onnx", "model.qdq.onnx", reader, per_channel=True)
"""

from __future__ import annotations

import copy
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx import dense_initializers
from sardonyx.ir.graph import Model
from sardonyx.quantization import messages
from sardonyx.quantization.calibrate import CalibrationDataReader, create_calibrator
from sardonyx.quantization.extra_options import check_extra_options, check_node_names
from sardonyx.quantization.models import LARGEST_FILE, PREPARED, has_mark, opset_version, read_model, write_model
from sardonyx.quantization.onnx_quantizer import ONNXQuantizer
from sardonyx.quantization.opset import raise_opset, required_opset
from sardonyx.quantization.qdq_quantizer import QDQQuantizer
from sardonyx.quantization.registry import IntegerOpsRegistry, QDQRegistry, QLinearOpsRegistry
from sardonyx.quantization.tensor_quant_overrides import TensorQuantOverridesHelper
from sardonyx.quantization.tensors_data import TensorsData, load_tensors_data, read_cache, save_tensors_data
from sardonyx.quantization.types import CalibrationMethod, QuantFormat, QuantizationMode, QuantType

logger = logging.getLogger(__name__)
OnProgress = Callable[[str, str], None]  # what is being done ("calibrating", "quantizing"), and with which sample or node
_SIXTEEN_BITS: Final = (QuantType.QInt16, QuantType.QUInt16)
_FOUR_BITS: Final = (QuantType.QInt4, QuantType.QUInt4)
_CALIBRATION: Final = {  # of `extra_options`: what calibrators call them
    "CalibTensorRangeSymmetric": "symmetric",
    "CalibMovingAverage": "moving_average",
    "CalibMovingAverageConstant": "averaging_constant",
    "CalibMaxIntermediateOutputs": "max_intermediate_outputs",
    "CalibPercentile": "percentile",
    "scenario": "scenario",
}


class QuantConfig:
    """What static and dynamic quantization have in common."""

    def __init__(
        self,
        activation_type: QuantType = QuantType.QUInt8,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Sequence[str] | None = None,
        nodes_to_quantize: Sequence[str] | None = None,
        nodes_to_exclude: Sequence[str] | None = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
    ) -> None:
        self.activation_type = activation_type
        self.weight_type = weight_type
        self.op_types_to_quantize = op_types_to_quantize or []
        self.nodes_to_quantize = nodes_to_quantize or []
        self.nodes_to_exclude = nodes_to_exclude or []
        self.per_channel = per_channel
        self.reduce_range = reduce_range
        self.use_external_data_format = use_external_data_format


class StaticQuantConfig(QuantConfig):
    """The arguments of `quantize_static`."""

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader | None,
        calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
        quant_format: QuantFormat = QuantFormat.QDQ,
        activation_type: QuantType = QuantType.QInt8,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Sequence[str] | None = None,
        nodes_to_quantize: Sequence[str] | None = None,
        nodes_to_exclude: Sequence[str] | None = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
        calibration_providers: Sequence[str] | None = None,
        extra_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            activation_type, weight_type, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude, per_channel, reduce_range,
            use_external_data_format,
        )  # fmt: skip
        self.calibration_data_reader = calibration_data_reader
        self.calibrate_method = calibrate_method
        self.quant_format = quant_format
        self.calibration_providers = calibration_providers
        self.extra_options = extra_options or {}


class DynamicQuantConfig(QuantConfig):
    """The arguments of `quantize_dynamic`."""

    def __init__(
        self,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Sequence[str] | None = None,
        nodes_to_quantize: Sequence[str] | None = None,
        nodes_to_exclude: Sequence[str] | None = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
        extra_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            QuantType.QUInt8, weight_type, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude, per_channel, reduce_range,
            use_external_data_format,
        )  # fmt: skip
        self.extra_options = extra_options or {}


def get_qdq_config(
    model_input: Any,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibrate_args: Mapping[str, Any] | None = None,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QInt8,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    keep_removable_activations: bool = False,
    min_real_range: float | None = None,
    tensor_quant_overrides: Mapping[str, list[dict[str, Any]]] | None = None,
    calibration_providers: Sequence[str] | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | Callable[[Any, Any], bool] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> StaticQuantConfig:
    """A configuration that quantizes every operator of a model.

    `nodes_to_exclude` may be a function of the model and a node, messages of the onnx package. For the other arguments see
    `quantize_static`; those it has in `extra_options` have names of their own here.
    """
    if callable(nodes_to_exclude):
        message = (
            model_input
            if messages.is_message(model_input)
            else messages.onnx_package().load_model(str(model_input), load_external_data=False)
        )
        chosen = nodes_to_exclude
        excluded = {node.name for node in message.graph.node if _is_wanted(node, op_types_to_quantize) and chosen(message, node)}
    else:
        excluded = set(nodes_to_exclude or ())
    model = read_model(model_input)
    overrides = TensorQuantOverridesHelper(copy.deepcopy(dict(tensor_quant_overrides or {})))
    present = {node.op_type for node in model.graph.nodes if _is_wanted(node, op_types_to_quantize) and node.name not in excluded}
    options: dict[str, Any] = {
        "MinimumRealRange": min_real_range,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "ForceQuantizeNoInputCheck": True,
        "TensorQuantOverrides": overrides.get_dict(),
    }
    for option, name in _CALIBRATION.items():
        if name in (calibrate_args or {}):
            options[option] = (calibrate_args or {})[name]
    types = {activation_type, weight_type, *overrides.get_quant_types()}
    # 16 bits raise the model to opset 21, where ONNX's own operators have 4 bits as well.
    if opset_version(model) < 21 and not types.intersection(_SIXTEEN_BITS) and types.intersection(_FOUR_BITS):
        options["UseQDQContribOps"] = True
    options.update(extra_options or {})
    size = sum(constant.nbytes for _, constant in dense_initializers(model))
    is_external = any(constant.external is not None for _, constant in dense_initializers(model))
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        quant_format=QuantFormat.QDQ,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=list(op_types_to_quantize or sorted(present - {"Cast", "DequantizeLinear", "QuantizeLinear"})),
        nodes_to_exclude=sorted(excluded),
        per_channel=per_channel,
        reduce_range=reduce_range,
        use_external_data_format=is_external or size >= LARGEST_FILE,
        calibration_providers=calibration_providers,
        extra_options=options,
    )


def _is_wanted(node: Any, op_types: Sequence[str] | None) -> bool:
    return not op_types or node.op_type in op_types


def check_static_quant_arguments(quant_format: QuantFormat, activation_type: QuantType, weight_type: QuantType) -> None:
    """ValueError for types and formats that do not go together."""
    if activation_type is QuantType.QInt8 and weight_type is QuantType.QUInt8:
        raise ValueError("activation_type=QInt8 and weight_type=QUInt8 do not go together: no kernel has this combination")
    if (activation_type is QuantType.QFLOAT8E4M3FN) != (weight_type is QuantType.QFLOAT8E4M3FN):
        raise ValueError(
            f"activation_type={activation_type} and weight_type={weight_type} do not go together: float 8 must be both"
        )
    if quant_format is not QuantFormat.QDQ and {activation_type, weight_type}.intersection(_SIXTEEN_BITS):
        raise ValueError("Only QuantFormat.QDQ supports 16-bit quantization types.")
    if quant_format is not QuantFormat.QDQ and activation_type is weight_type is QuantType.QInt8:
        logger.warning("QuantFormat.QDQ is faster than QOperator for activations and weights of type QInt8")


def quantize_static(
    model_input: Any,
    model_output: str | Path,
    calibration_data_reader: CalibrationDataReader | None = None,
    quant_format: QuantFormat = QuantFormat.QDQ,
    op_types_to_quantize: Sequence[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: QuantType = QuantType.QInt8,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    use_external_data_format: bool = False,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibration_providers: Sequence[str] | None = None,
    extra_options: Mapping[str, Any] | None = None,
    calibration_cache_path: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Quantize a model with scales that are found by running it on the reader's feeds, and write it.

    The model is a path or an onnx.ModelProto. Only the named nodes, but those excluded, of the named operators are quantized;
    by default all that can be. `reduce_range` leaves out one bit of the weights, for machines whose 8-bit products saturate.
    `calibration_cache_path` is a file that ranges are read from, or written to if it is not there. For `extra_options` see
    docs/quantization.md.
    """
    options = dict(extra_options or {})
    check_extra_options(options)
    _require(quant_format, QuantFormat, "quant_format")
    activation_type, weight_type = _quant_type(activation_type, "activation_type"), _quant_type(weight_type, "weight_type")
    _require(calibrate_method, CalibrationMethod, "calibrate_method")
    if QuantType.QFLOAT8E4M3FN in (activation_type, weight_type) and calibrate_method is not CalibrationMethod.Distribution:
        raise ValueError("Only Distribution calibration method is supported for float quantization.")
    if options.get("SmoothQuant", False):
        raise InvalidArgument(
            "extra_options: SmoothQuant needs neural-compressor, which cannot be used here",
            hint="smooth the model first, then quantize it without this option",
        )
    tell = on_progress or (lambda what, name: None)
    chosen = list(op_types_to_quantize or {**QLinearOpsRegistry, **QDQRegistry})
    model = read_model(model_input)
    _check_nodes(model, nodes_to_quantize, nodes_to_exclude)
    _advise(model)
    version = required_opset(
        opset_version(model), weight_type, activation_type, options.get("TensorQuantOverrides"), options.get("BlockSize", 0)
    )
    is_raised = version > opset_version(model)
    if is_raised:
        raise_opset(model, version)
    check_static_quant_arguments(quant_format, activation_type, weight_type)
    ranges = _cached_ranges(calibration_cache_path, calibrate_method)
    if ranges is None:
        if calibration_data_reader is None:
            raise ValueError("Either calibration_data_reader or an existing calibration_cache_path must be provided.")
        with tempfile.TemporaryDirectory(prefix="sardonyx.") as folder:
            source = model_input
            if is_raised or not isinstance(model_input, (str, os.PathLike)):
                source = os.path.join(folder, "model.onnx")
                write_model(model, source, external=False)
            calibrator = create_calibrator(
                source,
                chosen,
                os.path.join(folder, "augmented.onnx"),
                calibrate_method,
                use_external_data_format,
                calibration_providers,
                {name: options[option] for option, name in _CALIBRATION.items() if option in options},
            )
            _collect(calibrator, calibration_data_reader, options.get("CalibStridedMinMax"), tell)
            ranges = calibrator.compute_data()
            del calibrator
        if calibration_cache_path is not None:
            save_tensors_data(ranges, calibration_cache_path)
    common = (weight_type, activation_type, ranges, nodes_to_quantize, nodes_to_exclude, chosen, options)
    quantizer: ONNXQuantizer | QDQQuantizer
    if quant_format is QuantFormat.QOperator:
        quantizer = ONNXQuantizer(model, per_channel, reduce_range, QuantizationMode.QLinearOps, True, *common)
    else:
        quantizer = QDQQuantizer(model, per_channel, reduce_range, *common)
    quantizer.on_progress = lambda name: tell("quantizing", name)
    write_model(quantizer.quantize_ir(), model_output, use_external_data_format)


def quantize_dynamic(
    model_input: Any,
    model_output: str | Path,
    op_types_to_quantize: Sequence[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    use_external_data_format: bool = False,
    extra_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Quantize the weights of a model, and let it quantize its activations when it runs; write it.

    For the arguments see `quantize_static`. By default only products with a constant are quantized (MatMulConstBOnly).
    """
    options = {"MatMulConstBOnly": True, **(extra_options or {})}
    check_extra_options(options)
    weight_type = _quant_type(weight_type, "weight_type")
    model = read_model(model_input)
    _check_nodes(model, nodes_to_quantize, nodes_to_exclude)
    _advise(model)
    raise_opset(model, required_opset(opset_version(model), weight_type))
    quantizer = ONNXQuantizer(
        model, per_channel, reduce_range, QuantizationMode.IntegerOps, False, weight_type, QuantType.QUInt8, None,
        nodes_to_quantize, nodes_to_exclude, list(op_types_to_quantize or IntegerOpsRegistry), options,
    )  # fmt: skip
    if on_progress is not None:
        tell = on_progress
        quantizer.on_progress = lambda name: tell("quantizing", name)
    write_model(quantizer.quantize_ir(), model_output, use_external_data_format)


def quantize(model_input: Any, model_output: str | Path, quant_config: Any) -> None:
    """Quantize a model as a configuration says, and write it."""
    if isinstance(quant_config, StaticQuantConfig):
        quantize_static(model_input, model_output, **vars(quant_config))
    elif isinstance(quant_config, DynamicQuantConfig):
        arguments = {name: value for name, value in vars(quant_config).items() if name != "activation_type"}
        quantize_dynamic(model_input, model_output, **arguments)
    else:
        from sardonyx.quantization.matmul_nbits_quantizer import (  # lazy: few programs quantize by blocks
            MatMulNBitsQuantizer,
            WeightOnlyQuantConfig,
        )

        if not isinstance(quant_config, WeightOnlyQuantConfig):
            raise TypeError(
                "Invalid quantization config type, it must be either StaticQuantConfig, DynamicQuantConfig, or "
                f"WeightOnlyQuantConfig, not {type(quant_config).__name__}."
            )
        quantizer = MatMulNBitsQuantizer(model_input, algo_config=quant_config)
        quantizer.process()
        quantizer.model.save_model_to_file(model_output, True)


def _require(given: Any, kind: Any, option: str) -> None:
    if not isinstance(given, kind):
        names = ", ".join(f"{kind.__name__}.{name}" for name in kind.__members__)
        raise InvalidArgument(f"{option} is {given!r}, expected one of {names}")


def _quant_type(given: Any, option: str) -> QuantType:
    """A type that is given as such, or by ONNX's number of it."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = next((kind for kind in QuantType if kind.tensor_type == given), given)
    _require(given, QuantType, option)
    found: QuantType = given
    return found


def _check_nodes(model: Model, wanted: Sequence[str] | None, excluded: Sequence[str] | None) -> None:
    names = [node.name for node in model.graph.nodes]
    if wanted and not set(wanted).intersection(names):
        check_node_names("nodes_to_quantize", wanted, names)


def _advise(model: Model) -> None:
    if not has_mark(model, PREPARED):
        logger.warning("the model has not been prepared: quant_pre_process folds constants and finds more shapes")


def _cached_ranges(path: str | Path | None, method: CalibrationMethod) -> TensorsData | None:
    """The ranges in a file; None if there is none, or if they are of a model that was changed before."""
    if path is None or not Path(path).exists():
        return None
    if not Path(path).is_file():
        raise ValueError(f"calibration_cache_path is not a file: {path}")
    if read_cache(path).get("smooth_quant", False):
        logger.warning("%s has smooth_quant set: its ranges are of a model after SmoothQuant, and are found again", path)
        return None
    ranges = load_tensors_data(path)
    if ranges.calibration_method != method:
        raise ValueError(
            f"Calibration cache at {path} was produced with {ranges.calibration_method}, but calibrate_method is {method}. "
            "Delete the file, or pass the method it was produced with."
        )
    return ranges


def _collect(calibrator: Any, reader: CalibrationDataReader, stride: int | None, tell: OnProgress) -> None:
    observed = _Observed(reader, tell)
    if not stride:
        calibrator.collect_data(observed)
        return
    total = len(reader)
    if total % stride:
        raise ValueError(f"CalibStridedMinMax: Total data size ({total}) is not divisible by stride size ({stride}).")
    for start in range(0, total, stride):
        reader.set_range(start_index=start, end_index=start + stride)
        calibrator.collect_data(observed)


class _Observed(CalibrationDataReader):
    """A reader that tells of each feed."""

    def __init__(self, reader: CalibrationDataReader, tell: OnProgress) -> None:
        self._reader = reader
        self._tell = tell
        self._count = 0

    def get_next(self) -> Any:
        feed = self._reader.get_next()
        if feed:
            self._tell("calibrating", str(self._count))
            self._count += 1
        return feed
