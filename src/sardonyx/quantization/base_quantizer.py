"""What both ways to quantize a graph have in common: settings, types, constants, ranges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.errors import InvalidArgument
from sardonyx.ir import tensor
from sardonyx.ir.graph import Graph, Model, Node, Value, walk
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.ir.types import TensorType
from sardonyx.mapped_file import release_range
from sardonyx.quantization import arithmetic
from sardonyx.quantization.extra_options import check_extra_options
from sardonyx.quantization.models import dense, opset_version, read_model
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.quantization.tensor_quant_overrides import TensorQuantOverridesHelper
from sardonyx.quantization.tensors_data import TensorData, TensorsData
from sardonyx.quantization.types import QuantType, element_type
from sardonyx.records import dataclass

logger = logging.getLogger(__name__)
PRODUCER: Final = ("onnx.quantize", "0.1.0")  # what quantized models name: programs look for it
QUANTIZED: Final = "_quantized"  # ends the names of quantized tensors
REAL: Final = (dtypes.FLOAT32, dtypes.FLOAT16)
_SYMMETRIC_BY_DEFAULT: Final = (dtypes.INT4, dtypes.INT8, dtypes.INT16, dtypes.FLOAT8E4M3FN)


@dataclass(frozen=True)
class Parameters:
    """How a tensor is quantized: as a whole (no axis), by channels along an axis, or by blocks along it."""

    zero: Array
    scale: Array
    dtype: DType
    axis: int | None = None
    block_size: int = 0


@dataclass(frozen=True)
class QuantizedTensor:
    """A quantized tensor in the graph."""

    data: Value
    scale: Value
    zero: Value
    axis: int | None = None


class BaseQuantizer:
    """A model being quantized. `model` is an onnx.ModelProto or a path."""

    def __init__(
        self,
        model: Any,
        per_channel: bool,
        reduce_range: bool,
        weight_qType: QuantType | int,
        activation_qType: QuantType | int,
        tensors_range: Mapping[str, TensorData] | TensorsData | None,
        nodes_to_quantize: Sequence[str] | None,
        nodes_to_exclude: Sequence[str] | None,
        op_types_to_quantize: Sequence[str],
        extra_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.ir: Model = read_model(model)
        self.graph = self.ir.graph
        self.opset_version = opset_version(self.ir)
        self.per_channel = per_channel
        self.reduce_range = reduce_range
        self.extra_options = dict(extra_options or {})
        check_extra_options(self.extra_options)
        option = self.extra_options.get
        self.enable_subgraph_quantization = bool(option("EnableSubgraph", False))
        self.force_quantize_no_input_check = bool(option("ForceQuantizeNoInputCheck", False))
        self.is_activation_symmetric = bool(option("ActivationSymmetric", False))
        self.is_activation_restricted_asymmetric = bool(option("ActivationRestrictedAsymmetric", False))
        self.min_real_range: float | None = option("MinimumRealRange")
        self._weight_symmetric: bool | None = option("WeightSymmetric")
        self.activation_dtype = element_type(activation_qType)
        self.weight_dtype = element_type(weight_qType)
        if tensors_range is not None:
            wrong = {type(each) for each in tensors_range.values() if not isinstance(each, TensorData)}
            if wrong:
                raise TypeError(f"tensors_range contains unexpected types {wrong}, not TensorData.")
        self.tensors_range: dict[str, TensorData] | None = None if tensors_range is None else dict(tensors_range.items())
        self.nodes_to_quantize = list(nodes_to_quantize or ())
        self.nodes_to_exclude = list(nodes_to_exclude or ())
        self.op_types_to_quantize = list(op_types_to_quantize)
        self.tensor_quant_overrides = TensorQuantOverridesHelper(option("TensorQuantOverrides") or {})
        self.initializers = {name: each for name, value in self.graph.initializers.items() if (each := dense(value)) is not None}
        named = {value.name for node in self.graph.nodes for value in node.outputs} | {value.name for value in self.graph.inputs}
        is_valid, complaint = self.tensor_quant_overrides.is_valid(self.initializers, named, activation_qType)
        if not is_valid:
            raise ValueError(complaint)
        self._original_nodes = set(walk(self.graph))
        self.unbounded: set[str] = set()  # activations whose range is infinite
        self._constants: dict[str, Value] = {}  # those we have made, by the name we wanted for them
        self._message: ONNXModel | None = None
        self.on_progress: Callable[[str], None] = lambda name: None  # called for each node that has been looked at

    @property
    def model(self) -> ONNXModel:
        """The model as it is now."""
        if self._message is None:
            self._message = ONNXModel.of_ir(self.ir)
        return self._message

    def quantize_model(self) -> Any:
        """Quantize the model; gives it as an onnx.ModelProto."""
        self.quantize_ir()
        return self.model.model

    def quantize_ir(self) -> Model:
        """Quantize the model; gives our own form of it."""
        raise NotImplementedError

    def _finish(self) -> None:
        self._name_nodes()
        self.ir.producer_name, self.ir.producer_version = PRODUCER
        if any(node.domain == "com.microsoft" for node in self.graph.nodes):
            self.ir.opset_imports.setdefault("com.microsoft", 1)
        self._message = None

    def _name_nodes(self) -> None:
        """Give new nodes names of their own: ONNX Runtime refuses a model in which two have one name."""
        taken = {node.name for node in self._original_nodes}
        for node in walk(self.graph):
            if node in self._original_nodes or not node.name:
                continue
            name, number = node.name, 0
            while name in taken:
                number += 1
                name = f"{node.name}_{number}"
            node.name = name
            taken.add(name)

    def known_ranges(self) -> Iterator[tuple[str, TensorData]]:
        """The statistics of activations that have a range; those that reach to infinity cannot be quantized."""
        for name, data in (self.tensors_range or {}).items():
            limits = np.concatenate([np.ravel(getattr(data, end, 0)) for end in ("lowest", "highest")]).astype(np.float64)
            if np.isfinite(limits).all():
                yield name, data
            else:
                self.unbounded.add(name)
                logger.warning("%s is not quantized: its values are from %s to %s", name, limits.min(), limits.max())

    def is_weight_symmetric(self, dtype: DType) -> bool:
        """Whether weights of this type are quantized around zero."""
        return dtype in _SYMMETRIC_BY_DEFAULT if self._weight_symmetric is None else self._weight_symmetric

    def should_quantize_node(self, node: Node) -> bool:
        """Whether the caller wants this node quantized."""
        if self.nodes_to_quantize and node.name not in self.nodes_to_quantize:
            return False
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") or node.op_type not in self.op_types_to_quantize:
            return False
        return node.name not in self.nodes_to_exclude

    def real_type(self, value: Value | None) -> DType | None:
        """The element type of a value that can be quantized: a 32- or 16-bit float tensor; None for others."""
        constant = dense(value)
        if constant is not None:
            return constant.dtype if constant.dtype in REAL else None
        type_ = None if value is None else value.type
        return type_.dtype if isinstance(type_, TensorType) and type_.dtype in REAL else None

    def constant(self, name: str, data: Array | Tensor) -> Value:
        """A constant of the graph; the one made before, if there is one of this name."""
        if name not in self._constants:
            held = data if isinstance(data, Tensor) else tensor.from_numpy(np.asarray(data))
            free, number = name, 0
            while free in self.graph.initializers:
                number += 1
                free = f"{name}_{number}"
            self._constants[name] = self.graph.add_initializer(free, held)
        return self._constants[name]

    def drop_constant(self, value: Value) -> None:
        """Take away a constant that nothing reads any more."""
        self.graph.initializers.pop(value.name, None)
        if value in self.graph.inputs:
            self.graph.inputs.remove(value)

    def activation_parameters(self, data: TensorData, overrides: Mapping[str, Any]) -> Parameters:
        """Scale and zero point of an activation whose statistics are known."""
        dtype = overrides["quant_type"].dtype if "quant_type" in overrides else self.activation_dtype
        if "scale" in overrides and "zero_point" in overrides:
            zero, scale = np.asarray(overrides["zero_point"]).astype(dtype.numpy), np.asarray(overrides["scale"])
            if scale.dtype not in (np.float32, np.float16):
                scale = scale.astype(np.float32)
        elif dtype is dtypes.FLOAT8E4M3FN:
            zero, scale = arithmetic.compute_scale_zp_float8(dtype, data.avg_std[1])
        else:
            low, high = data.range_value
            low, high = np.asarray(overrides.get("rmin", low)), np.asarray(overrides.get("rmax", high))
            low, high = (each if each.dtype == np.float16 else each.astype(np.float32) for each in (low, high))
            symmetric = overrides.get("symmetric", self.is_activation_symmetric)
            qmin, qmax = arithmetic.quantized_range(dtype, overrides.get("reduce_range", False), symmetric)
            if self.is_activation_restricted_asymmetric and dtype is dtypes.UINT8 and not symmetric:
                zero, scale = arithmetic.snap_zero_point_to_uint8(low, high, qmin, qmax, self.min_real_range)
            else:
                zero, scale = arithmetic.compute_scale_zp(low, high, qmin, qmax, symmetric, self.min_real_range)
        return Parameters(zero.squeeze(), scale.squeeze(), dtype)

    def adjust_tensor_ranges(self) -> None:
        """A Clip or Relu bounds what is quantized before it, and a Softmax gives numbers from 0 to 1."""
        if self.tensors_range is None:
            return
        for node in self.graph.nodes:
            if node.op_type not in ("Clip", "Relu", "Softmax") or not self.should_quantize_node(node):
                continue
            given, result = node.inputs[0], node.outputs[0]
            if node.op_type == "Softmax":
                self.tensors_range[result.name] = TensorData(lowest=np.float32(0.0), highest=np.float32(1.0))
                continue
            if given is None or len(uses_in(self.graph, given)) != 1:
                continue
            if given.name in self.tensors_range and result.name in self.tensors_range:
                self.tensors_range[given.name] = self.tensors_range[result.name]

    def quantized_bias(self, bias: Value, input_scale: Array, weight_scale: Array, beta: float) -> tuple[str, QuantizedTensor]:
        """A bias in units of both scales, and the operator that turns it back."""
        data = self.weight_data(bias)
        name = bias.name + QUANTIZED
        if self.weight_dtype is dtypes.FLOAT8E4M3FN:
            kept = self.constant(name, data.astype(np.float32))
            scale = self.constant(f"{name}_scale", np.ones(1, np.float32))
            return "Cast", QuantizedTensor(kept, scale, self.constant(f"{name}_zero_point", np.zeros(1, self.weight_dtype.numpy)))
        unit = np.asarray(input_scale * weight_scale * np.asarray(beta, weight_scale.dtype))
        scales = unit.astype(data.dtype).reshape(-1)
        number = 0
        while (known := self._constants.get(f"{name}_scale")) is not None:  # the bias of another node, too
            held = dense(known)
            if held is not None and np.array_equal(held.numpy(), scales):
                break
            number += 1
            name = f"{bias.name}_{number}{QUANTIZED}"
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.nan_to_num(data.astype(np.float64) / unit.astype(np.float64)).round()
        limits = np.iinfo(np.int32)
        if exact.size and (exact.min() < limits.min or exact.max() > limits.max):
            logger.warning("bias %r does not fit 32 bits in units of %s: it is cut off", bias.name, scales)
        held_bias = self.constant(name, np.clip(exact, limits.min, limits.max).astype(np.int32).reshape(data.shape))
        scale = self.constant(f"{name}_scale", scales)
        zeros = np.zeros(unit.size, np.int32) if unit.size > 1 else np.zeros((), np.int32)
        zero = self.constant(f"{name}_zero_point", zeros)
        return "DequantizeLinear", QuantizedTensor(held_bias, scale, zero, 0 if unit.size > 1 else None)

    def weight_data(self, value: Value) -> Array:
        """The numbers of a constant that can be quantized."""
        constant = dense(value)
        if constant is None or constant.dtype not in REAL:
            found = "no constant" if constant is None else constant.dtype.ort
            raise ValueError(f"Only float type is supported. Weights {value.name} is {found}")
        return constant.numpy()

    def release(self, value: Value) -> None:
        """Let the pages of a constant leave memory."""
        constant = dense(value)
        if constant is not None and not constant.dtype.is_packed and constant.dtype is not dtypes.STRING:
            release_range(constant.numpy())


def uses_in(graph: Graph, value: Value) -> list[tuple[Node, int]]:
    """The places where nodes of a graph, not of its subgraphs, read a value."""
    return [(node, index) for node, index in value.uses if node.graph is graph]


def normalized_axis(axis: int, rank: int, what: str) -> int:
    """An axis counted from the front; ValueError naming `what` if there is no such axis."""
    if not -rank <= axis < rank:
        raise ValueError(f"{what} has a per-channel axis with value {axis} that is out-of-bounds for rank {rank}")
    return axis % rank


def require_constant(value: Value | None, node: Node, what: str) -> Value:
    """A value that must be a constant; InvalidArgument naming the node if it is not."""
    if value is None or dense(value) is None:
        name = "nothing" if value is None else repr(value.name)
        raise InvalidArgument(f"{node.label}: {what} is {name}, expected a constant of the model", hint="exclude the node")
    return value
