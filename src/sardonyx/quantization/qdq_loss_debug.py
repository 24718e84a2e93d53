"""What quantization costs: activations and weights of a model and of its quantized form, side by side.

    modify_model_output_intermediate_tensors("model.onnx", "augmented.onnx")
    activations = collect_activations("augmented.onnx", reader)        by tensor, an array for each feed
    errors = compute_activation_error(create_activation_matching(quantized_activations, activations))

Errors are signal-to-quantization-noise ratios in decibels (SQNR): 20 is a noise of a tenth of the signal, 40 of a hundredth.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx.enums import GraphOptimizationLevel
from sardonyx.ir import tensor
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.options import SessionOptions
from sardonyx.quantization import arithmetic
from sardonyx.quantization.calibrate import CalibraterBase, CalibrationDataReader
from sardonyx.quantization.models import dense, opset_version, read_model, write_model
from sardonyx.quantization.quant_utils import DEQUANT_OUTPUT_SUFFIX, QUANT_INPUT_SUFFIX, TENSOR_NAME_QUANT_SUFFIX
from sardonyx.session.inference_session import InferenceSession

logger = logging.getLogger(__name__)
_SAVED: Final = "_ReshapedSavedOutput"
_Activations = Mapping[str, Sequence[Any]]


def modify_model_output_intermediate_tensors(
    input_model_path: str | Path,
    output_model_path: str | Path,
    op_types_for_saving: Sequence[str] | None = None,
    save_as_external_data: bool = False,
) -> None:
    """Write a model that gives out, flat, all float tensors that operators (of these types) read or give."""
    saver = CalibraterBase(input_model_path, op_types_to_calibrate=op_types_for_saving or [])
    model = saver.augmented
    graph = model.graph
    flat = graph.add_initializer("sardonyx_flat_shape", tensor.from_numpy(np.array([-1], np.int64)))
    version = opset_version(model)
    for value in saver.calibrated_values():
        assert isinstance(value.type, TensorType)
        result = Value(f"{value.name}{_SAVED}", TensorType(value.type.dtype, None))
        graph.append(Node("Reshape", [value, flat], [result], version=version, name=result.name))
        graph.outputs.append(result)
    write_model(model, output_model_path, save_as_external_data)


def collect_activations(
    augmented_model: str | Path,
    input_reader: CalibrationDataReader,
    session_options: SessionOptions | None = None,
    execution_providers: Sequence[str] | None = None,
) -> dict[str, list[Any]]:
    """Run such a model on all feeds of a reader; by tensor, an array for each feed."""
    if session_options is None:
        session_options = SessionOptions()
        session_options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = list(execution_providers or ["CPUExecutionProvider"])
    session = InferenceSession(os.fspath(augmented_model), sess_options=session_options, providers=providers)
    names = [output.name for output in session.get_outputs()]
    found: dict[str, list[Any]] = {}
    for feed in input_reader:
        for name, data in zip(names, session.run(None, feed)):
            if name.endswith(_SAVED):
                found.setdefault(name[: -len(_SAVED)], []).append(data)
    if not found:
        raise RuntimeError("No data is collected while running augmented model!")
    return found


def create_activation_matching(
    qdq_activations: _Activations, float_activations: _Activations | None = None
) -> dict[str, dict[str, Sequence[Any]]]:
    """By activation of a QDQ model: what it was before (`pre_qdq`) and after (`post_qdq`) its pair, and in the float model."""
    found: dict[str, dict[str, Sequence[Any]]] = {}
    for name, data in qdq_activations.items():
        if name.endswith(QUANT_INPUT_SUFFIX):
            original = name[: -len(QUANT_INPUT_SUFFIX)]
            before, after = data, qdq_activations.get(original)
        else:
            ending = next((each for each in (DEQUANT_OUTPUT_SUFFIX, f"{DEQUANT_OUTPUT_SUFFIX}_1") if name.endswith(each)), None)
            if ending is None:
                continue
            original = name[: -len(ending)]
            before, after = qdq_activations.get(original), data  # type: ignore[assignment]
        if before is not None and after is not None:
            found[original] = {"pre_qdq": before, "post_qdq": after}
    for name, match in found.items():
        if float_activations and name in float_activations:
            match["float"] = float_activations[name]
    return found


def create_weight_matching(float_model_path: str | Path, qdq_model_path: str | Path) -> dict[str, dict[str, Any]]:
    """By weight: its numbers (`float`), and those its quantized form stands for (`dequantized`)."""
    original = read_model(Path(float_model_path)).graph.initializers
    found: dict[str, dict[str, Any]] = {}
    for node in read_model(Path(qdq_model_path)).graph.nodes:
        quantized = dense(node.inputs[0]) if node.op_type == "DequantizeLinear" else None
        value = node.inputs[0] if node.inputs else None
        if quantized is None or value is None:
            continue
        if not value.name.endswith(TENSOR_NAME_QUANT_SUFFIX):
            logger.error("%s: %s reads %r, which is no name of a quantized weight", qdq_model_path, node.label, value.name)
            continue
        name = value.name[: -len(TENSOR_NAME_QUANT_SUFFIX)]
        weight = dense(original.get(name))
        if weight is None:
            logger.error("%s has no weight %r", float_model_path, name)
            continue
        found[name] = {"float": weight.numpy(), "dequantized": _dequantized(node)}
    return found


def _dequantized(node: Node) -> Any:
    """The numbers that a DequantizeLinear of constants gives."""
    data, scale = (dense(value) for value in node.inputs[:2])
    zero = dense(node.inputs[2]) if len(node.inputs) > 2 else None
    if data is None or scale is None:
        raise RuntimeError(f"{node.label}: its data and scale are not both constants")
    scales = scale.numpy()
    zeros = None if zero is None else zero.numpy()
    if zeros is not None and zeros.size != scales.size:
        raise RuntimeError(f"scale and zero_point must have the same shape but {scales.shape} != {zeros.shape}")
    axis = int(node.attr("axis", 1)) % max(len(data.shape), 1)
    if scales.size == 1:
        return arithmetic.dequantize(data.numpy(), None if zeros is None else zeros.reshape(()), scales.reshape(()))
    return arithmetic.dequantize(data.numpy(), zeros, scales, axis, int(node.attr("block_size", 0)))


def compute_signal_to_quantization_noice_ratio(x: Any, y: Any) -> float:
    """The SQNR of two arrays, or lists of arrays, in decibels."""
    left, right = ([each] if isinstance(each, np.ndarray) else list(each) for each in (x, y))
    if len(left) != len(right):
        raise RuntimeError(f"Unequal number of tensors to compare! {len(left)} and {len(right)}")
    signal, noisy = (np.concatenate([np.ravel(part) for part in each]).astype(np.float64) for each in (left, right))
    least = np.finfo(np.float64).eps
    return 20 * math.log10(max(np.linalg.norm(signal), least) / max(np.linalg.norm(signal - noisy), least))


def compute_weight_error(
    weights_match: Mapping[str, Mapping[str, Any]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, float]:
    """The error of each weight."""
    return {name: err_func(match["float"], match["dequantized"]) for name, match in weights_match.items()}


def compute_activation_error(
    activations_match: Mapping[str, Mapping[str, Sequence[Any]]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, dict[str, float]]:
    """By activation: the error of its own pair (`qdq_err`), and of all before it (`xmodel_err`, if the float model is known)."""
    found = {}
    for name, match in activations_match.items():
        found[name] = {"qdq_err": err_func(match["pre_qdq"], match["post_qdq"])}
        if match.get("float"):
            found[name]["xmodel_err"] = err_func(match["float"], match["post_qdq"])
    return found
