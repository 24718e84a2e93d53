"""Quantization by operators on integers: QLinear operators with fixed scales, or integer operators that scale at run time.

    Conv(x, w, b)      ->   QLinearConv(x_quantized, w_quantized, b_quantized)                               static
    MatMul(x, w)       ->   MatMulInteger(DynamicQuantizeLinear(x), w_quantized), Cast, Mul by both scales   dynamic

The nodes are rebuilt in order. A rule (`operators.qlinear`, `operators.dynamic`) emits what stands for a node, and records the
quantized form of its results; where a node without a rule reads a value that exists in quantized form only, a DequantizeLinear
makes it first.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.dtypes import DType
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Attr, Graph, Model, Node, Value, captured_values
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.quantization import arithmetic
from sardonyx.quantization.base_quantizer import (
    QUANTIZED,
    BaseQuantizer,
    Parameters,
    QuantizedTensor,
    normalized_axis,
    require_constant,
)
from sardonyx.quantization.gemm import split_gemms
from sardonyx.quantization.models import CONTRIB_OPERATORS, computed, dense, order_nodes, remove_unused_initializers
from sardonyx.quantization.operators import dynamic, qlinear
from sardonyx.quantization.tensors_data import TensorData, TensorsData
from sardonyx.quantization.types import QuantizationMode, QuantType, element_type

logger = logging.getLogger(__name__)


class ONNXQuantizer(BaseQuantizer):
    """Quantizes a model by operators on integers."""

    def __init__(
        self,
        model: Any,
        per_channel: bool,
        reduce_range: bool,
        mode: QuantizationMode,
        static: bool,
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
        if mode not in QuantizationMode:
            raise ValueError(f"unsupported quantization mode {mode}")
        self.mode = mode
        self.static = static
        self.q_matmul_const_b_only = bool(self.extra_options.get("MatMulConstBOnly", False))
        self.fuse_dynamic_quant = self.opset_version > 10
        if not static:
            split_gemms(self.ir)
            infer_shapes(self.ir)
        self.adjust_tensor_ranges()
        self.parameters: dict[str, Parameters] = {
            name: self.activation_parameters(data, self.tensor_quant_overrides.get_per_tensor_overrides(name, {}) or {})
            for name, data in self.known_ranges()
        }
        self.parent: ONNXQuantizer | None = None
        self.graph_scope = "/"
        self._enter(self.graph)

    def _enter(self, graph: Graph) -> None:
        """Begin to rebuild a graph."""
        self.graph = graph
        self.quantized: dict[Value, QuantizedTensor] = {}
        self.made: set[Value] = {value for value in graph.inputs if value.constant is None}  # what exists in its real form
        self.real_constants: dict[Value, Value] = {}  # constants that are dequantized again, by the original
        self.nodes: list[Node] = []
        self._constants = {}
        self._products: dict[str, Value] = {}
        self._own = {*graph.inputs, *graph.initializers.values()}
        self._own.update(value for node in graph.nodes for value in node.outputs)

    # The whole.

    def quantize_ir(self) -> Model:
        """Quantize the model; gives our own form of it."""
        if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in self.graph.nodes):
            logger.warning("the model has QuantizeLinear or DequantizeLinear: it may be quantized already, and run as it is")
        self._rebuild()
        remove_unused_initializers(self.graph)
        self._finish()
        return self.ir

    def _rebuild(self) -> None:
        rules = dynamic.RULES if self.mode is QuantizationMode.IntegerOps else qlinear.RULES
        nodes = list(self.graph.nodes)
        for node in nodes:
            self.graph.detach(node)
        for node in nodes:
            if self.enable_subgraph_quantization:
                for inner in node.subgraphs():
                    self._quantize_subgraph(inner, node)
            rule = rules.get(node.op_type)
            if rule is None or not self.should_quantize_node(node) or not rule(self, node):
                self.keep(node)
            else:
                for index in range(len(node.inputs)):  # others stand for it
                    node.set_input(index, None)
            self.on_progress(node.name)
        for value in self.graph.outputs:
            self.real(value)
        order_nodes(self.graph, self.nodes)

    def _quantize_subgraph(self, graph: Graph, node: Node) -> None:
        inner = copy.copy(self)
        inner.parent = self
        inner.graph_scope = f"{self.graph_scope}{node.name}/"
        inner._enter(graph)
        inner._rebuild()

    # What rules ask.

    def is_float_tensor(self, value: Value | None) -> bool:
        """Whether a value is known to be a tensor that can be quantized."""
        return self.real_type(value) is not None

    def result_type(self, value: Value) -> DType:
        """The element type of a result; if it is not known, the one that the option DefaultTensorType names."""
        if isinstance(value.type, TensorType):
            return value.type.dtype
        if "DefaultTensorType" in self.extra_options:
            return element_type(self.extra_options["DefaultTensorType"])
        raise RuntimeError(
            f"Unable to find data type for weight_name={value.name!r}: it follows from no input, perhaps because an operator is "
            "not known. You may use extra_options `DefaultTensorType` to say the type, usually `onnx.TensorProto.FLOAT`."
        )

    def find_quantized(self, value: Value | None) -> QuantizedTensor | None:
        """The quantized form of a value, here or in a graph around."""
        if value is None:
            return None
        if value in self.quantized:
            return self.quantized[value]
        return None if self.parent is None else self.parent.find_quantized(value)

    def can_quantize(self, node: Node, indices: Iterable[int]) -> bool:
        """Whether these inputs can be quantized: with fixed scales, if the range of each is known."""
        for index in indices:
            value = node.inputs[index] if index < len(node.inputs) else None
            if value is None or self.find_quantized(value) is not None or dense(value) is not None:
                continue
            if self.static and value.name not in self.parameters:
                return False
        return True

    def output_parameters(self, value: Value, scale: float | None = None, zero: int | None = None) -> tuple[Value, Value] | None:
        """Scale and zero point of a result, as constants; None if its range is not known. Both may be prescribed."""
        parameters = self.parameters.get(value.name)
        if parameters is None:
            return None
        if scale is not None and zero is not None:
            parameters = Parameters(
                np.array(zero, self.activation_dtype.numpy), np.array(scale, parameters.scale.dtype), self.activation_dtype
            )
        scales = self.constant(f"{value.name}_scale", parameters.scale.reshape(()))
        return scales, self.constant(f"{value.name}_zero_point", parameters.zero.reshape(()))

    def quantize_inputs(self, node: Node, indices: Sequence[int]) -> list[QuantizedTensor]:
        """Inputs in quantized form, as activations."""
        return [self._quantized(require(node.inputs[index], node), self.activation_dtype, False, None) for index in indices]

    def quantize_weight(self, node: Node, index: int, reduce_range: bool, axis: int | None = None) -> QuantizedTensor:
        """An input in quantized form, as a weight if it is constant: by channels along an axis, or as a whole."""
        value = require(node.inputs[index], node)
        return self._quantized(value, self.weight_dtype, reduce_range, axis if self.per_channel else None)

    def _quantized(self, value: Value, dtype: DType, reduce_range: bool, axis: int | None) -> QuantizedTensor:
        known = self.quantized.get(value)
        if known is not None:
            return known
        if value not in self._own and self.parent is not None:
            return self.parent._quantized(value, dtype, reduce_range, axis)
        if dense(value) is not None:
            return self.quantize_constant(value, dtype, reduce_range, axis)
        name = f"{value.name}_QuantizeLinear"
        data = Value(value.name + QUANTIZED)
        parameters = self.output_parameters(value)
        if parameters is not None:
            self.emit("QuantizeLinear", [value, *parameters], [data], name)
            found = QuantizedTensor(data, *parameters)
        elif self.fuse_dynamic_quant and self.activation_dtype is dtypes.UINT8:
            scale, zero = Value(f"{value.name}_scale"), Value(f"{value.name}_zero_point")
            given = value
            if self.real_type(value) is dtypes.FLOAT16:  # it takes 32 bits only
                given = Value(f"{value.name}_float32")
                self.emit("Cast", [value], [given], given.name, [make_attr("to", dtypes.FLOAT32.onnx)])
            self.emit("DynamicQuantizeLinear", [given], [data, scale, zero], name)
            found = QuantizedTensor(data, scale, zero)
        else:
            scale, zero = dynamic.measured(self, value, self.activation_dtype)
            self.emit("QuantizeLinear", [value, scale, zero], [data], name)
            found = QuantizedTensor(data, scale, zero)
        self.quantized[value] = found
        return found

    def quantize_constant(
        self, value: Value, dtype: DType, reduce_range: bool = False, axis: int | None = None
    ) -> QuantizedTensor:
        """A constant in quantized form."""
        if value in self.quantized:
            return self.quantized[value]
        data = self.weight_data(value)
        parameters = self._weight_parameters(value, data, dtype, self.reduce_range and reduce_range, axis)
        found = self._constants_of(value, parameters, axis)
        self.quantized[value] = found
        self.release(value)
        return found

    def _constants_of(self, value: Value, parameters: Parameters, stated_axis: int | None) -> QuantizedTensor:
        """A weight's integers, scales and zero points; its axis is written as the rule has stated it."""
        source = dense(value)
        assert source is not None
        zero, scale, axis = parameters.zero, parameters.scale, parameters.axis

        def quantize(numbers: Array) -> Array:
            return arithmetic.quantize_weight(numbers, parameters.dtype, zero, scale, axis)

        name = value.name + QUANTIZED
        scales = self.constant(f"{value.name}_scale", scale)
        zeros = self.constant(f"{value.name}_zero_point", zero)
        held = self.constant(name, computed(name, parameters.dtype, source.shape, source, quantize))
        return QuantizedTensor(held, scales, zeros, stated_axis)

    def _weight_parameters(self, value: Value, data: Array, dtype: DType, reduce_range: bool, axis: int | None) -> Parameters:
        if axis is None:
            override = self.tensor_quant_overrides.get_per_tensor_overrides(value.name, {}) or {}
            dtype = override["quant_type"].dtype if "quant_type" in override else dtype
            if "scale" in override and "zero_point" in override:
                zero = np.array(override["zero_point"]).astype(dtype.numpy).reshape(())
                return Parameters(zero, np.array(override["scale"]).astype(data.dtype).reshape(()), dtype)
            symmetric = self.is_weight_symmetric(dtype) if dtype is self.weight_dtype else self.is_activation_symmetric
            zero, scale = arithmetic.compute_data_quant_params(
                data.reshape(-1),
                dtype,
                override.get("symmetric", symmetric),
                override.get("reduce_range", reduce_range),
                self.min_real_range,
                override.get("rmin"),
                override.get("rmax"),
            )
            return Parameters(zero, scale, dtype)
        axis = normalized_axis(axis, data.ndim, f"Weight {value.name}")
        overrides = self.tensor_quant_overrides.get_per_channel_overrides(value.name, [{"axis": axis}]) or [{"axis": axis}]
        first = overrides[0]
        if normalized_axis(first["axis"], data.ndim, f"Weight {value.name}") != axis:
            raise ValueError(
                f"Tensor quantization overrides for {value.name} specify an unexpected axis. Expected {axis}, "
                f"but got {first['axis']}."
            )
        dtype = first["quant_type"].dtype if "quant_type" in first else dtype
        every = overrides * data.shape[axis] if len(overrides) == 1 else overrides
        if "scale" in first and "zero_point" in first:
            zeros = np.array([each["zero_point"] for each in every]).astype(dtype.numpy)
            return Parameters(zeros, np.array([each["scale"] for each in every]).astype(data.dtype), dtype, axis)
        limits = [(each.get("rmin"), each.get("rmax")) for each in every]
        symmetric = first.get("symmetric", self.is_weight_symmetric(dtype))
        reduce_range = first.get("reduce_range", reduce_range)
        zero, scale = arithmetic.channel_parameters(data, dtype, axis, symmetric, reduce_range, self.min_real_range, limits)
        return Parameters(zero, scale, dtype, axis)

    def quantize_bias(self, node: Node, index: int, given: QuantizedTensor, weight: QuantizedTensor, beta: float = 1.0) -> Value:
        """A bias in units of the scales of input and weight; the weight's is enlarged if the bias would not fit 32 bits."""
        bias = require_constant(node.inputs[index], node, "its bias")
        input_scale, weight_scale = (dense(require_constant(each.scale, node, "a scale")) for each in (given, weight))
        assert input_scale is not None
        assert weight_scale is not None
        scale = weight_scale.numpy()
        zero = dense(weight.zero)
        if zero is not None and zero.dtype is dtypes.INT8 and not zero.numpy().any():
            per_channel = weight.axis is not None
            adjusted = arithmetic.least_weight_scale(self.weight_data(bias), input_scale.numpy(), scale, per_channel)
            if not np.array_equal(adjusted, scale):
                scale = adjusted
                self._requantize(node.inputs[1], weight, scale)
        _, found = self.quantized_bias(bias, input_scale.numpy(), scale, beta)
        self.quantized.setdefault(bias, found)
        return found.data

    def _requantize(self, value: Value | None, weight: QuantizedTensor, scale: Array) -> None:
        """Give a quantized weight another scale."""
        zero = dense(weight.zero)
        if value is None or dense(value) is None or zero is None:
            return
        for held in (weight.data, weight.scale, weight.zero):
            self._constants = {name: each for name, each in self._constants.items() if each is not held}
            del self.graph.initializers[held.name]
        axis = None if weight.axis is None else normalized_axis(weight.axis, len(weight.data.shape or ()), value.name)
        made = self._constants_of(value, Parameters(zero.numpy(), scale, zero.dtype, axis), weight.axis)
        for held, new in ((weight.data, made.data), (weight.scale, made.scale), (weight.zero, made.zero)):
            held.constant = new.constant  # nodes may read it already: it stays the same value
            self.graph.initializers[held.name] = held
            self._constants[held.name] = held

    # What rules emit.

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        name: str = "",
        attrs: Iterable[Attr] = (),
        domain: str = "",
    ) -> Node:
        """One more node."""
        version = 1 if domain == CONTRIB_OPERATORS else self.opset_version
        node = Node(op_type, inputs, outputs, attrs, domain=domain, version=version, name=name)
        self.nodes.append(node)
        self.made.update(outputs)
        return node

    def emit_quantized(
        self,
        node: Node,
        op_type: str,
        inputs: Sequence[Value | None],
        parameters: tuple[Value, Value],
        attrs: Iterable[Attr] = (),
        domain: str = CONTRIB_OPERATORS,
    ) -> None:
        """The operator on integers that stands for a node with one result."""
        data = Value(node.outputs[0].name + QUANTIZED)
        self.emit(op_type, inputs, [data], quantized_name(node), attrs, domain)
        self.quantized[node.outputs[0]] = QuantizedTensor(data, *parameters)

    def emit_moved(self, node: Node, given: QuantizedTensor, name: str, inputs: Sequence[Value | None] | None = None) -> None:
        """The same operator, on integers: its results have the parameters of its first input."""
        results = [Value(value.name + QUANTIZED) for value in node.outputs[:1]] + list(node.outputs[1:])
        rest = node.inputs[1:] if inputs is None else inputs
        self.emit(node.op_type, [given.data, *rest], results, name, node.attrs.values(), node.domain)
        self.quantized[node.outputs[0]] = QuantizedTensor(results[0], given.scale, given.zero)

    def product_of_scales(self, name: str, left: Value, right: Value) -> Value:
        """The product of two scales, computed once."""
        if name not in self._products:
            self._products[name] = Value(f"{name}:0")
            self.emit("Mul", [left, right], [self._products[name]], name)
        return self._products[name]

    def keep(self, node: Node) -> None:
        """The node as it is, after what it needs to read reals."""
        for index, value in enumerate(node.inputs):
            if value is not None:
                real = self.real(value)
                if real is not value:
                    node.set_input(index, real)
        for inner in node.subgraphs():
            for value in captured_values(inner):
                if value.constant is None:
                    self.real(value)
        self.nodes.append(node)
        self.made.update(node.outputs)

    def real(self, value: Value) -> Value:
        """A value in its real form, which a DequantizeLinear makes if it is not there."""
        if value in self.made:
            return value
        if value in self.real_constants:
            return self.real_constants[value]
        found = self.quantized.get(value)
        if found is None:
            if self.parent is not None and value not in self._own:
                return self.parent.real(value)
            return value
        result = value
        if value.constant is not None:
            result = self.real_constants[value] = Value(value.name, value.type)
        attrs = [] if found.axis is None else [make_attr("axis", found.axis)]
        self.emit("DequantizeLinear", [found.data, found.scale, found.zero], [result], f"{value.name}_DequantizeLinear", attrs)
        return result


def quantized_name(node: Node) -> str:
    """The name of the operator that stands for a node."""
    return node.name and f"{node.name}_quant"


def require(value: Value | None, node: Node) -> Value:
    """An input that must be there."""
    if value is None:
        raise ValueError(f"{node.label}: an input that is to be quantized is missing")
    return value
