"""Quantization by pairs of QuantizeLinear and DequantizeLinear: the operators stay, their tensors pass through integers.

    x -> Conv(w, b) -> y        becomes        x -> Q -> DQ -> Conv(DQ <- w_quantized, DQ <- b_quantized) -> Q -> DQ -> y

First the operators are asked, in order, which of their tensors are to be quantized (`operators.qdq`): these get a mark. Then
scales and zero points of the weights are computed, and the pairs are put in, tensor by tensor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Attr, AttrKind, Model, Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.quantization import arithmetic
from sardonyx.quantization.base_quantizer import (
    QUANTIZED,
    BaseQuantizer,
    Parameters,
    QuantizedTensor,
    normalized_axis,
    uses_in,
)
from sardonyx.quantization.models import (
    CONTRIB_OPERATORS,
    ONNX_OPERATORS,
    computed,
    dense,
    order_nodes,
    remove_unused_initializers,
)
from sardonyx.quantization.operators import qdq
from sardonyx.quantization.tensors_data import TensorData, TensorsData
from sardonyx.quantization.types import QuantType
from sardonyx.records import dataclass

logger = logging.getLogger(__name__)
_SINCE_21: Final = (dtypes.UINT16, dtypes.INT16, dtypes.UINT4, dtypes.INT4)  # types that QuantizeLinear has had since then
_ADJUSTABLE: Final = (dtypes.INT8, dtypes.INT16)


@dataclass(frozen=True)
class Mark:
    """A tensor that is to be quantized: as a weight or an activation, or with the parameters that `like` has for `reader`."""

    is_weight: bool = False
    axis: int | None = None
    like: Value | None = None
    reader: Node | None = None


@dataclass(frozen=True)
class BiasMark:
    """A bias that is to be quantized, in units of the scales of input and weight."""

    node: Node
    input: Value
    weight: Value
    beta: float


@dataclass(frozen=True)
class TensorParameters:
    """How a tensor is quantized, and how some (or, if `readers` is None, all) of its readers want it instead."""

    original: Parameters
    converted: Parameters | None = None
    readers: frozenset[str] | None = None

    def for_reader(self, name: str) -> Parameters:
        """What a node of this name reads."""
        if self.converted is not None and (self.readers is None or name in self.readers):
            return self.converted
        return self.original


@dataclass(frozen=True)
class Result:
    """A tensor that has been quantized: its parameters in the graph, by reader."""

    original: QuantizedTensor
    converted: QuantizedTensor | None = None
    readers: frozenset[str] | None = None

    def for_reader(self, name: str) -> QuantizedTensor:
        """What a node of this name reads."""
        if self.converted is not None and (self.readers is None or name in self.readers):
            return self.converted
        return self.original


class QDQQuantizer(BaseQuantizer):
    """Quantizes a model by pairs of QuantizeLinear and DequantizeLinear."""

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
        super().__init__(
            model, per_channel, reduce_range, weight_qType, activation_qType, tensors_range, nodes_to_quantize,
            nodes_to_exclude, op_types_to_quantize, extra_options,
        )  # fmt: skip
        option = self.extra_options.get
        self.op_types_to_exclude_output_quantization: Sequence[str] = option("OpTypesToExcludeOutputQuantization", ())
        self.add_qdq_pair_to_weight = bool(option("AddQDQPairToWeight", False))
        self.quantize_bias = bool(option("QuantizeBias", True))
        self.dedicated_qdq_pair = bool(option("DedicatedQDQPair", False))
        self.channel_axes: Mapping[str, int] = option("QDQOpTypePerChannelSupportToAxis") or {}
        self.keep_removable_activations = bool(option("QDQKeepRemovableActivations", False))
        self.keeps_weight_scales = bool(option("QDQDisableWeightAdjustForInt32Bias", False))
        self.block_size = int(option("BlockSize", 0))
        self.domain = CONTRIB_OPERATORS if option("UseQDQContribOps", False) or self._needs_contrib() else ONNX_OPERATORS
        self.marks: dict[Value, Mark] = {}
        self.bias_marks: dict[Value, BiasMark] = {}
        self.results: dict[Value, Result] = {}
        self.weight_parameters: dict[Value, Parameters] = {}
        self._added: list[Node] = []
        self.readers: dict[Value, dict[Node, None]] = {}  # the quantized nodes that read a tensor
        self.dequantized = {
            value: node for node in self.graph.nodes if node.op_type == "DequantizeLinear" for value in node.outputs
        }
        self.adjust_tensor_ranges()
        self.parameters = {name: self._tensor_parameters(name, data) for name, data in self.known_ranges()}

    def _needs_contrib(self) -> bool:
        used = {self.activation_dtype, self.weight_dtype, *(each.dtype for each in self.tensor_quant_overrides.get_quant_types())}
        if self.opset_version >= 21 or not used.intersection(_SINCE_21):
            return False
        logger.warning(
            "QuantizeLinear has had 16- and 4-bit types since opset 21, and the model has %d: those of %s are used",
            self.opset_version,
            CONTRIB_OPERATORS,
        )
        return True

    def _tensor_parameters(self, name: str, data: TensorData) -> TensorParameters:
        overrides = self.tensor_quant_overrides.get_per_tensor_overrides(name, {}) or {}
        original = self.activation_parameters(data, overrides)
        if "convert" not in overrides:
            return TensorParameters(original)
        readers = overrides["convert"].get("recv_nodes")
        converted = self.activation_parameters(data, overrides["convert"])
        return TensorParameters(original, converted, None if readers is None else frozenset(readers))

    # What operators ask for.

    def _can_be_quantized(self, value: Value | None) -> bool:
        if value is None or not value.name or (value.name in self.unbounded and value.constant is None):
            return False
        if value.constant is None and value.type is None:
            logger.warning("%s is not quantized: its type is not known", value.name)
        return self.real_type(value) is not None

    def quantize_activation_tensor(self, value: Value | None) -> None:
        """Mark a tensor, as an activation."""
        if value is not None and self._can_be_quantized(value):
            self.marks.setdefault(value, Mark())

    def quantize_weight_tensor(self, value: Value | None) -> None:
        """Mark a tensor, as a weight."""
        if value is not None and self._can_be_quantized(value):
            self.marks.setdefault(value, Mark(is_weight=True))

    def quantize_weight_tensor_per_channel(self, value: Value | None, axis: int) -> None:
        """Mark a constant as a weight that has a scale for each channel."""
        if value is not None and dense(value) is not None and self._can_be_quantized(value):
            self.marks[value] = Mark(is_weight=True, axis=axis)

    def quantize_output_same_as_input(self, output: Value, given: Value | None, node: Node) -> None:
        """Mark a result, to have the parameters with which the node reads its input."""
        if self._can_be_quantized(output) and self._can_be_quantized(given):
            self.marks[output] = Mark(like=given, reader=node)

    def quantize_bias_tensor(self, node: Node, index: int, given: Value, weight: Value, beta: float = 1.0) -> None:
        """Mark a bias; one that is the bias of another node, too, is copied."""
        bias = node.inputs[index]
        assert bias is not None
        if self.tensor_quant_overrides.get(bias.name):
            axis = self.channel_axis(bias, 0)
            if axis is not None:
                self.quantize_weight_tensor_per_channel(bias, axis)
            else:
                self.quantize_weight_tensor(bias)
            return
        constant = dense(bias)
        if constant is None:
            logger.warning("%s: its bias %r is not constant, and is not quantized", node.label, bias.name)
            return
        if self.real_type(bias) is None:
            return
        if bias in self.bias_marks:
            number = 0
            while f"{bias.name}{number}" in self.graph.initializers:
                number += 1
            bias = self.graph.add_initializer(f"{bias.name}{number}", constant)
            node.set_input(index, bias)
        self.bias_marks[bias] = BiasMark(node, given, weight, beta)

    def is_tensor_quantized(self, value: Value | None) -> bool:
        """Whether a tensor has been marked."""
        return value in self.marks or value in self.bias_marks

    def channel_axis(self, value: Value | None, default: int, op_type: str = "") -> int | None:
        """Along which axis a weight is quantized by channels; None if it is quantized as a whole."""
        constant = dense(value)
        if value is None or constant is None or self.tensor_quant_overrides.has_per_tensor_overrides(value.name):
            return None
        by_override = self.tensor_quant_overrides.has_per_channel_overrides(value.name)
        if not self.per_channel and not by_override:
            return None
        axis = self.tensor_quant_overrides[value.name][0]["axis"] if by_override else self.channel_axes.get(op_type, default)
        if not -len(constant.shape) <= axis < len(constant.shape):
            logger.warning("weight %r has no axis %d: it is quantized as a whole", value.name, axis)
            return None
        return int(axis) % len(constant.shape)

    def try_replacing_upstream_output(self, node: Node) -> bool:
        """Let the node before give out what this one does: its range says the same. False if that cannot be."""
        given, result = node.inputs[0], node.outputs[0]
        producer = None if given is None else given.producer
        if given is None or producer is None or given in self.graph.outputs or len(given.uses) != 1:
            return False
        before, after = self.parameters.get(given.name), self.parameters.get(result.name)
        if before is None or after is None or before.converted is not None or after.converted is not None:
            return False
        producer.outputs[given.index] = result
        for index in range(len(node.inputs)):
            node.set_input(index, None)
        self.graph.detach(node)
        result.producer, result.index = producer, given.index
        self.marks.pop(given, None)
        return True

    # The whole.

    def quantize_ir(self) -> Model:
        """Quantize the model; gives our own form of it."""
        for node in self.graph.nodes:
            if self.should_quantize_node(node):
                qdq.operator_of(node.op_type)(self, node)
                for value in node.inputs if node.graph is self.graph else ():
                    if value is not None:
                        self.readers.setdefault(value, {})[node] = None
            self.on_progress(node.name)
        for value, mark in self.marks.items():
            if dense(value) is not None and mark.like is None:
                self.weight_parameters[value] = self._parameters_of_weight(value, mark)
                self.release(value)
        self._adjust_weight_scales()
        self._quantize_marked()
        self._quantize_alike()
        if self.quantize_bias:
            self._quantize_biases()
        order_nodes(self.graph, [*self.graph.nodes, *self._added])
        if not self.add_qdq_pair_to_weight:
            remove_unused_initializers(self.graph)
        if self.domain:
            self.ir.opset_imports.setdefault(self.domain, 1)
        self._finish()
        return self.ir

    def _parameters_of_weight(self, value: Value, mark: Mark) -> Parameters:
        data = self.weight_data(value)
        overrides = self.tensor_quant_overrides.get(value.name) or [{}]
        first = overrides[0]
        dtype = self.weight_dtype if mark.is_weight else self.activation_dtype
        if "quant_type" in first:
            dtype = first["quant_type"].dtype
        axis = first.get("axis", mark.axis)
        if axis is not None:
            axis = normalized_axis(axis, data.ndim, f"Weight {value.name}")
        if self.tensor_quant_overrides.overrides_scale_zp(value.name):
            given = overrides if axis is not None else overrides[:1]
            zeros = np.array([each["zero_point"] for each in given]).astype(dtype.numpy)
            scales = np.array([each["scale"] for each in given]).astype(data.dtype)
            shape = (-1,) if axis is not None else ()
            return Parameters(zeros.reshape(shape), scales.reshape(shape), dtype, axis)
        # Kernels want the same zero point for all channels.
        by_default = axis is not None or (self.is_weight_symmetric(dtype) if mark.is_weight else self.is_activation_symmetric)
        symmetric, reduce_range = first.get("symmetric", by_default), first.get("reduce_range", self.reduce_range)
        if mark.is_weight and self.block_size:
            axis = 0 if axis is None else axis
            if axis >= data.ndim:
                raise ValueError(f"Weight {value.name} has rank {data.ndim}: it has no axis {axis} that could be cut into blocks")
            zero, scale = arithmetic.compute_scale_zp_blocked(data, dtype, axis, self.block_size, symmetric)
            return Parameters(zero, scale, dtype, axis, self.block_size)
        limits = [(each.get("rmin"), each.get("rmax")) for each in overrides]
        if axis is not None:
            zero, scale = arithmetic.channel_parameters(data, dtype, axis, symmetric, reduce_range, self.min_real_range, limits)
        else:
            zero, scale = arithmetic.compute_data_quant_params(
                data.reshape(-1), dtype, symmetric, reduce_range, self.min_real_range, *limits[0]
            )
        return Parameters(zero, scale, dtype, axis)

    def _adjust_weight_scales(self) -> None:
        """Enlarge the scales of weights whose bias would not fit 32 bits."""
        for bias, mark in self.bias_marks.items() if not self.keeps_weight_scales else ():
            weight = self.weight_parameters.get(mark.weight)
            given = self.parameters.get(mark.input.name)
            if weight is None or given is None or mark.input not in self.marks or weight.dtype not in _ADJUSTABLE:
                continue
            if weight.block_size or weight.zero.astype(np.int32).any():
                continue
            scale = given.for_reader(mark.node.name).scale
            adjusted = arithmetic.least_weight_scale(self.weight_data(bias), scale, weight.scale, weight.axis is not None)
            if not np.array_equal(adjusted, weight.scale):
                self.weight_parameters[mark.weight] = Parameters(weight.zero, adjusted, weight.dtype, weight.axis)

    def _quantize_marked(self) -> None:
        for value, mark in list(self.marks.items()):
            if mark.like is not None:
                continue
            del self.marks[value]
            if value in self.results or value in self.dequantized:  # it comes out of a DequantizeLinear of the model's own
                continue
            if value in self.weight_parameters:
                self._quantize_constant(value)
                continue
            parameters = self.parameters.get(value.name)
            if parameters is None:
                raise ValueError(
                    f"Quantization parameters are not specified for param {value.name}: its range is not known. Calibrate the "
                    "model with the operators that read or give it, or exclude them"
                )
            original = self._parameter_values(value.name, parameters.original)
            if parameters.converted is None:
                self._quantize_activation(value, original)
            else:
                converted = self._parameter_values(value.name, parameters.converted, "_convert")
                self._quantize_converted(value, original, converted, parameters.readers)

    def _quantize_alike(self) -> None:
        """Quantize results that share the parameters of an input; one whose input waits, too, has its turn later."""
        while self.marks:
            ready = [value for value, mark in self.marks.items() if mark.like in self.results]
            if not ready:
                names = ", ".join(repr(value.name) for value in self.marks)
                raise InvalidArgument(f"{names}: to be quantized as an input that is not quantized itself")
            for value in ready:
                mark = self.marks.pop(value)
                assert mark.like is not None
                assert mark.reader is not None
                if dense(value) is not None:
                    raise ValueError(f"{value.name}: a constant cannot share the parameters of another tensor")
                shared = self.results[mark.like].for_reader(mark.reader.name)
                pair = (shared.scale, shared.zero)
                parameters = self.parameters.get(value.name)
                if parameters is None or parameters.converted is None:
                    self._quantize_activation(value, pair)
                else:
                    converted = self._parameter_values(value.name, parameters.converted, "_convert")
                    self._quantize_converted(value, pair, converted, parameters.readers)

    # Nodes and constants.

    def _parameter_values(self, name: str, parameters: Parameters, ending: str = "") -> tuple[Value, Value]:
        zero = self.constant(f"{name}_zero_point{ending}", parameters.zero)
        return self.constant(f"{name}_scale{ending}", parameters.scale), zero

    def _node(
        self,
        op_type: str,
        name: str,
        given: Value,
        scale: Value,
        zero: Value,
        result: Value,
        parameters: Parameters | None = None,
    ) -> None:
        """Add a QuantizeLinear or DequantizeLinear."""
        attrs = []
        if parameters is not None and parameters.axis is not None:
            attrs.append(make_attr("axis", parameters.axis))
            if parameters.block_size:
                attrs.append(make_attr("block_size", parameters.block_size))
        version = self.opset_version if not self.domain else 1
        made = Node(op_type, [given, scale, zero], [result], attrs, domain=self.domain, version=version, name=name)
        self._added.append(made)

    def _read_instead(self, old: Value, new: Value, nodes: Sequence[Node] | None = None) -> None:
        """Let nodes of the graph (all, or some) read another value."""
        for node, index in uses_in(self.graph, old):
            if nodes is None or node in nodes:
                node.set_input(index, new)

    def _renamed_output(self, value: Value, result: Value) -> None:
        """Give out `result` under the name of `value`, which is called a quantizer's input from now on."""
        value.name = f"{result.name}_QuantizeLinear_Input"
        result.type = value.type
        self.graph.outputs[self.graph.outputs.index(value)] = result

    def _quantize_constant(self, value: Value) -> None:
        parameters = self.weight_parameters[value]
        constant = dense(value)
        assert constant is not None
        name = value.name
        scale, zero = self._parameter_values(name, parameters)
        real = Value(f"{name}_DequantizeLinear_Output", TensorType(constant.dtype, constant.shape))
        self._read_instead(value, real)
        if self.add_qdq_pair_to_weight:
            data = Value(f"{name}_QuantizeLinear_Output")
            self._node("QuantizeLinear", f"{name}_QuantizeLinear", value, scale, zero, data, parameters)
        else:
            held, (zeros, scales) = constant, (parameters.zero, parameters.scale)

            def quantize(numbers: Array) -> Array:
                return arithmetic.quantize_weight(
                    numbers, parameters.dtype, zeros, scales, parameters.axis, parameters.block_size
                )

            data = self.constant(name + QUANTIZED, computed(name + QUANTIZED, parameters.dtype, held.shape, held, quantize))
        self._node("DequantizeLinear", f"{name}_DequantizeLinear", data, scale, zero, real, parameters)
        self.results[value] = Result(QuantizedTensor(data, scale, zero, parameters.axis))

    def _quantize_activation(self, value: Value, parameters: tuple[Value, Value]) -> None:
        scale, zero = parameters
        readers = list(self.readers.get(value, ()))
        name = value.name
        if self.dedicated_qdq_pair and len(readers) > 1:
            pairs: list[tuple[str, list[Node] | None]] = [(f"_{index + 1}", [reader]) for index, reader in enumerate(readers)]
        else:
            pairs = [("", None)]
        for ending, nodes in pairs:
            data, real = (
                Value(f"{name}_QuantizeLinear_Output{ending}"),
                Value(f"{name}_DequantizeLinear_Output{ending}", value.type),
            )
            self._read_instead(value, real, nodes)
            if nodes is None and value in self.graph.outputs:
                real.name = name
                self._renamed_output(value, real)
            self._node("QuantizeLinear", f"{name}_QuantizeLinear{ending}", value, scale, zero, data)
            self._node("DequantizeLinear", f"{name}_DequantizeLinear{ending}", data, scale, zero, real)
            self.results.setdefault(value, Result(QuantizedTensor(data, scale, zero)))

    def _quantize_converted(
        self, value: Value, original: tuple[Value, Value], converted: tuple[Value, Value], chosen: frozenset[str] | None
    ) -> None:
        """Two types for one tensor: some readers (or all) get it by way of a second pair.

        value -> Q1 -+-> DQ1 -> readers of the original type
                     +-> DQ1' -> Q2 -> DQ2 -> readers of the converted type
        """
        name = value.name
        readers = list(self.readers.get(value, ()))
        if self.dedicated_qdq_pair and len(readers) > 1:
            raise ValueError(f"{name}: 'convert' in TensorQuantOverrides and the option DedicatedQDQPair exclude each other")
        late = [node for node in readers if chosen is None or node.name in chosen]
        early = [node for node in readers if node not in late]
        all_late = not early if chosen is None else len(chosen) == len({node.name for node in readers})
        is_output = value in self.graph.outputs
        type_ = value.type
        data = Value(f"{name}_QuantizeLinear_Output")
        first = Value(f"{name}_DequantizeLinear_Output", type_)
        last = Value(f"{name}_convert_DequantizeLinear_Output", type_)
        self._read_instead(value, first, early)
        self._read_instead(value, last, late)
        if is_output:
            given_out = last if all_late else first
            given_out.name = name
            self._read_instead(value, given_out)  # nodes that are not quantized read what is given out
            self._renamed_output(value, given_out)
        self._node("QuantizeLinear", f"{name}_QuantizeLinear", value, *original, data)
        self._node("DequantizeLinear", f"{name}_DequantizeLinear", data, *original, first)
        source = first
        if not all_late:
            source = Value(f"{name}_convert_QuantizeLinear_Input", type_)
            self._node("DequantizeLinear", f"{name}_convert_clone_DequantizeLinear", data, *original, source)
        again = Value(f"{name}_convert_QuantizeLinear_Output")
        self._node("QuantizeLinear", f"{name}_convert_QuantizeLinear", source, *converted, again)
        self._node("DequantizeLinear", f"{name}_convert_DequantizeLinear", again, *converted, last)
        names = frozenset(node.name for node in late)
        self.results[value] = Result(QuantizedTensor(data, *original), QuantizedTensor(again, *converted), names)

    def _scale_of(self, value: Value, reader: Node) -> Array | None:
        """The scale with which a node reads a tensor: one of ours, or of a DequantizeLinear that the model had."""
        if value in self.results:
            held = dense(self.results[value].for_reader(reader.name).scale)
        elif value in self.dequantized:
            held = dense(self.dequantized[value].inputs[1])
        else:
            held = None
        return None if held is None else held.numpy()

    def _quantize_biases(self) -> None:
        for bias, mark in self.bias_marks.items():
            if bias in self.results:
                continue
            scales = []
            for what, value in (("weight", mark.weight), ("input", mark.input)):
                scale = self._scale_of(value, mark.node)
                if scale is None:
                    raise ValueError(
                        f"{mark.node.label}: its bias {bias.name!r} cannot be quantized, because its {what} {value.name!r} is not"
                    )
                scales.append(scale)
            op_type, quantized = self.quantized_bias(bias, scales[1], scales[0], mark.beta)
            constant = dense(bias)
            assert constant is not None
            real = Value(bias.name, TensorType(constant.dtype, constant.shape))
            self.drop_constant(bias)
            for node, index in list(bias.uses):
                node.set_input(index, real)
            name = f"{bias.name}_DequantizeLinear"
            if op_type == "Cast":
                attr = Attr("to", AttrKind.INT, constant.dtype.onnx)
                cast = Node("Cast", [quantized.data], [real], [attr], version=self.opset_version, name=name)
                self._added.append(cast)
            else:
                parameters = Parameters(np.zeros(()), np.zeros(()), dtypes.INT32, quantized.axis)
                self._node(op_type, name, quantized.data, quantized.scale, quantized.zero, real, parameters)
            self.results[bias] = Result(quantized)
