"""`get_qnn_qdq_config`: a configuration whose quantized model fits what QNN's kernels take."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.formats.onnx import dense_initializers
from sardonyx.ir.graph import Node
from sardonyx.quantization.calibrate import CalibrationDataReader
from sardonyx.quantization.execution_providers.qnn.mixed_precision_overrides_utils import (
    MixedPrecisionTensorQuantOverridesFixer,
)
from sardonyx.quantization.models import LARGEST_FILE, opset_version, read_model
from sardonyx.quantization.quantize import StaticQuantConfig
from sardonyx.quantization.tensor_quant_overrides import TensorQuantOverridesHelper
from sardonyx.quantization.types import CalibrationMethod, QuantType

logger = logging.getLogger(__name__)
_SIXTEEN_BITS: Final = (QuantType.QInt16, QuantType.QUInt16)
_EIGHT_BITS: Final = (QuantType.QInt8, QuantType.QUInt8)
_SINCE_21: Final = (*_SIXTEEN_BITS, QuantType.QInt4, QuantType.QUInt4)
_FIXED: Final = {  # operator and type -> scale and zero point of its result, which QNN prescribes
    ("Sigmoid", QuantType.QUInt16): (1 / 65536, 0),
    ("Sigmoid", QuantType.QInt16): (1 / 32768, 0),
    ("Tanh", QuantType.QUInt16): (1 / 32768, 32768),
    ("Tanh", QuantType.QInt16): (1 / 32768, 0),
}


def get_qnn_qdq_config(
    model_input: Any,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QUInt8,
    per_channel: bool = False,
    init_overrides: Mapping[str, list[dict[str, Any]]] | None = None,
    add_qtype_converts: bool = True,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    keep_removable_activations: bool = False,
    stride: int | None = None,
    calibration_providers: Sequence[str] | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
) -> StaticQuantConfig:
    """The configuration of a model, a path or an onnx.ModelProto.

    `init_overrides` are overrides by tensor; with `add_qtype_converts` they are completed, so that each operator has one type.
    """
    if weight_symmetric is None:
        weight_symmetric = weight_type in (QuantType.QInt8, QuantType.QInt16)
    model = read_model(model_input)
    overrides = TensorQuantOverridesHelper(copy.deepcopy(dict(init_overrides or {})))
    if not overrides.empty() and add_qtype_converts:
        fixer = MixedPrecisionTensorQuantOverridesFixer.create_from_model(overrides, model, activation_type)
        fixer.apply(activation_type, activation_symmetric)
    fitting = _Fitting(activation_type, weight_type, weight_symmetric, per_channel, overrides)
    op_types = set()
    for node in model.graph.nodes:
        is_wanted = not op_types_to_quantize or node.op_type in op_types_to_quantize
        if is_wanted and node.name not in (nodes_to_exclude or ()):
            op_types.add(node.op_type)
            fitting.fit(node)
    options: dict[str, Any] = {
        "MinimumRealRange": 0.0001,
        "DedicatedQDQPair": False,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "TensorQuantOverrides": overrides.get_dict(),
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "CalibStridedMinMax": stride,
    }
    if opset_version(model) < 21 and {activation_type, weight_type, *overrides.get_quant_types()}.intersection(_SINCE_21):
        options["UseQDQContribOps"] = True
    constants = [constant for _, constant in dense_initializers(model)]
    is_large = any(each.external is not None for each in constants) or sum(each.nbytes for each in constants) >= LARGEST_FILE
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=list(op_types_to_quantize or sorted(op_types - {"Cast"})),
        nodes_to_exclude=nodes_to_exclude,
        per_channel=per_channel,
        use_external_data_format=is_large,
        calibration_providers=calibration_providers,
        extra_options=options,
    )


class _Fitting:
    """Adds the overrides that single operators need."""

    def __init__(
        self,
        activation_type: QuantType,
        weight_type: QuantType,
        weight_symmetric: bool,
        per_channel: bool,
        overrides: TensorQuantOverridesHelper,
    ) -> None:
        self.activation_type = activation_type
        self.weight_type = weight_type
        self.weight_symmetric = weight_symmetric
        self.per_channel = per_channel
        self.overrides = overrides

    def fit(self, node: Node) -> None:
        """Add what a node needs."""
        if node.op_type in ("Sigmoid", "Tanh"):
            self._prescribe(node)
        elif node.op_type == "MatMul" and self.per_channel:
            # QNN has no products by channels: weights are quantized as a whole, unless the caller says otherwise.
            for value in node.inputs:
                if value is not None and value.constant is not None and value.name not in self.overrides:
                    self.overrides.update_tensor_overrides(value.name, self._weight())
        elif node.op_type in ("MatMul", "LayerNormalization") and not self.per_channel:
            self._weight_of_wide_input(node)

    def _weight(self) -> dict[str, Any]:
        return {"quant_type": self.weight_type, "symmetric": self.weight_symmetric}

    def _prescribe(self, node: Node) -> None:
        name = node.outputs[0].name
        kind = self.overrides.get_node_output_qtype_info(name, self.activation_type).quant_type
        if kind is not None and (node.op_type, kind) in _FIXED:
            scale, zero = _FIXED[node.op_type, kind]
            numbers = {"scale": np.array(scale, np.float32), "zero_point": np.array(zero, kind.dtype.numpy)}
            self.overrides.update_tensor_overrides(name, {"quant_type": kind, **numbers})

    def _weight_of_wide_input(self, node: Node) -> None:
        """A constant beside a 16-bit activation has the type of weights, not that of activations."""
        if self.weight_type not in _EIGHT_BITS:
            return
        weight, is_wide = None, False
        for value in node.inputs[:2]:
            if value is None:
                continue
            default = None if value.constant is not None else self.activation_type
            info = self.overrides.get_node_input_qtype_info(value.name, node.name, default)
            if info.axis is not None:
                return
            if value.constant is None:
                is_wide = is_wide or info.quant_type in _SIXTEEN_BITS
            elif info.quant_type == self.weight_type and info.symmetric == self.weight_symmetric:
                return
            else:
                weight = value.name
        if is_wide and weight is not None and not self.overrides.update_tensor_overrides(weight, self._weight(), overwrite=False):
            logger.warning("%s: its weight %r keeps the type it has been overridden with", node.label, weight)
