"""Convolutions between DequantizeLinear and QuantizeLinear in integers, and what else stays quantized.

    QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), bias))   =>   QLinearConv(x, ..., w, ..., bias as i32)
    QuantizeLinear(Add(DequantizeLinear(a), DequantizeLinear(b)))          =>   com.microsoft::QLinearAdd(a, ..., b, ...)
    QuantizeLinear(MaxPool(DequantizeLinear(x)))                           =>   MaxPool(QuantizeLinear(DequantizeLinear(x)))
    QuantizeLinear(Relu(x))                                                =>   Max(QuantizeLinear(x), zero point)
    QuantizeLinear(DequantizeLinear(x)), equal parameters                  =>   x

Sums are exact, and rounded once: a result may be one step from what the floats would give. Moving a QuantizeLinear up through
what only moves or chooses elements changes nothing. A constant bias of floats, or of another scale than the product of both, is
quantized with that product if it is much finer than the result. Refuses: kernels with scales of other axes, any other bias,
results that others read as floats.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ops.quant.quant import dequantize
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.form_integer_matmuls import integer_bias
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.quantized_values import Quantization, dequantized, quantizing, same_parameters
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_LAYERS: Final = ("Add", "Mul", "Sigmoid", "LeakyRelu", "GlobalAveragePool")
_FINER: Final = 1 / 64  # steps of a bias in steps of the result, at most: then its rounding is hardly ever seen
_MOST_BIAS: Final = 1 << 30  # room is left for the sum of products
_BYTES_SINCE: Final = {"Relu": 12, "Clip": 12, "MaxPool": 12}  # the opset from which on Max, Min and MaxPool take bytes


@dataclass(frozen=True)
class Behind:
    """A QuantizeLinear and what it reads."""

    own: Quantization
    maker: Node


def before_quantize(g: Rewriter, node: Node) -> Behind | None:
    """A QuantizeLinear to bytes by one known scale, and the node whose only reader it is."""
    own = quantizing(node)
    source = node.inputs[0]
    if own is None or own.axis is not None or not own.is_bytes or source is None:
        return None
    if source.producer is None or not g.is_private(source) or not is_standard(source.producer):
        return None
    scale = g.number(own.scale)
    return Behind(own, source.producer) if scale is not None and scale > 0.0 else None


def _is_of_integers(value: Value | None) -> bool:
    """Whether a value is made of dequantized ones by what can be computed in integers; so it is never NaN."""
    maker = None if value is None else value.producer
    if maker is None or maker.op_type not in ("Conv", "ConvTranspose", *_LAYERS) or not is_standard(maker):
        return False
    return all(dequantized(each) is not None for each in maker.inputs[:2])


@dataclass(frozen=True)
class PullQuantize(Rule[Behind]):
    """Quantize before elements are moved or chosen."""

    name: ClassVar[str] = "PullQuantize"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer", "ReluQuantFusion", "ClipQuantFusion")
    roots: ClassVar[frozenset[str]] = frozenset(("QuantizeLinear",))
    rounds: ClassVar[int] = 3

    def match(self, g: Rewriter, node: Node) -> Behind | Reject | None:
        found = before_quantize(g, node)
        if found is None:
            return None
        maker = found.maker
        if node.version < _BYTES_SINCE.get(maker.op_type, 0):
            return None
        if maker.op_type in ("Relu", "Clip"):
            return found if _is_of_integers(maker.inputs[0]) else None
        keeps_numbers = maker.op_type == "Concat" or Trait.SELECTS in traits(maker)
        if not keeps_numbers or len([value for value in maker.outputs if value.name]) != 1:
            return None
        sources = maker.inputs if maker.op_type == "Concat" else maker.inputs[:1]
        return found if all(dequantized(value) is not None for value in sources) else None

    def check(self, g: Rewriter, found: Behind) -> Any:
        maker, zero_point = found.maker, found.own.zero_point
        if maker.op_type not in ("Relu", "Clip"):
            return ()
        zero = 0.0 if zero_point is None else g.number(zero_point)
        if zero is None:
            return Reject("the zero point is not known")
        if maker.op_type == "Relu":
            return (0.0, None)
        limits = []
        for value in [*maker.inputs[1:], None, None][:2]:
            number = None if value is None else g.number(value)
            if value is not None and (number is None or not np.isfinite(number)):
                return Reject("the bounds are not known")
            limits.append(number)
        return tuple(limits)

    def rewrite(self, g: Rewriter, found: Behind, facts: Any) -> None:
        node, maker, own = g.anchor, found.maker, found.own

        def quantized(value: Value | None) -> Value:
            return g.clone(node, [value, *node.inputs[1:]])[0]

        if maker.op_type == "Concat":
            result = g.clone(maker, [quantized(value) for value in maker.inputs])[0]
        elif maker.op_type not in ("Relu", "Clip"):
            result = g.clone(maker, [quantized(maker.inputs[0]), *maker.inputs[1:]])[0]
        else:
            result = self._bounded(g, quantized(maker.inputs[0]), own, facts)
        g.replace(node.outputs[0], result)

    @staticmethod
    def _bounded(g: Rewriter, value: Value, own: Quantization, limits: tuple[float | None, float | None]) -> Value:
        """Bounds of floats as bounds of bytes; those that no byte exceeds are left out."""
        dtype = dtype_of(own.tensor)
        assert dtype is not None
        scale = g.number(own.scale)
        zero = 0.0 if own.zero_point is None else g.number(own.zero_point)
        assert scale is not None
        assert zero is not None
        range_ = np.iinfo(dtype.numpy)
        for name, limit, extreme in (("Max", limits[0], range_.min), ("Min", limits[1], range_.max)):
            if limit is None:
                continue
            byte = int(np.clip(np.rint(np.float32(limit) / np.float32(scale)) + np.float32(zero), range_.min, range_.max))
            if byte != extreme:
                value = g.op(name, value, g.constant(np.array(byte, dtype.numpy), "bound"))
        return value


@dataclass(frozen=True)
class RemoveRequantize(Rule[Value]):
    """Bytes that become floats and the same bytes again."""

    name: ClassVar[str] = "RemoveRequantize"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("QuantizeLinear",))

    def match(self, g: Rewriter, node: Node) -> Value | Reject | None:
        own, source = quantizing(node), dequantized(node.inputs[0])
        if own is None or source is None or not own.is_bytes or not same_parameters(g, own, source):
            return None
        return source.tensor

    def check(self, g: Rewriter, found: Value) -> Any:
        return None if g.can_replace(g.anchor.outputs[0], found) else Reject("the result of the graph needs a node of its own")

    def rewrite(self, g: Rewriter, found: Value, facts: Any) -> None:
        g.replace(g.anchor.outputs[0], found)


@dataclass(frozen=True)
class _Conv:
    own: Quantization
    conv: Node
    image: Quantization
    kernels: Quantization


@dataclass(frozen=True)
class FormQLinearConv(Rule[_Conv]):
    """A convolution of dequantized bytes that is quantized again."""

    name: ClassVar[str] = "FormQLinearConv"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("QuantizeLinear",))

    def match(self, g: Rewriter, node: Node) -> _Conv | Reject | None:
        found = before_quantize(g, node)
        if found is None or found.maker.op_type != "Conv":
            return None
        image, kernels = dequantized(found.maker.inputs[0]), dequantized(found.maker.inputs[1])
        if image is None or kernels is None:
            return None
        return _Conv(found.own, found.maker, image, kernels)

    def check(self, g: Rewriter, found: _Conv) -> Any:
        if not found.image.is_bytes or not found.kernels.is_bytes:
            return Reject("integers of more than 8 bits")
        if found.image.axis is not None:
            return Reject("the image has several scales")
        if found.kernels.axis not in (None, 0):
            return Reject("the scales of the kernels do not belong to them one by one")
        if g.constant_of(found.kernels.tensor) is None:
            return Reject("the kernels are not constant")
        bias = found.conv.inputs[2] if len(found.conv.inputs) > 2 else None
        if bias is None:
            return ()
        as_integers = integer_bias(g, bias, found.image, found.kernels)
        return (as_integers,) if as_integers is not None else _quantized_bias(g, bias, found)

    def rewrite(self, g: Rewriter, found: _Conv, facts: Any) -> None:
        parts: list[Value] = []
        for each in (found.image, found.kernels):
            parts += (each.tensor, each.scale, each.zero_or_constant(g))
        own = found.own
        attrs = {name: attr.value for name, attr in found.conv.attrs.items()}
        bias = [g.constant(each, "bias") if isinstance(each, np.ndarray) else each for each in facts]
        result = g.op("QLinearConv", *parts, own.scale, own.zero_or_constant(g), *bias, **attrs)
        g.replace(g.anchor.outputs[0], result)


def _quantized_bias(g: Rewriter, bias: Value, found: _Conv) -> tuple[Array] | Reject:
    """A constant bias as integers whose scale is the product of both others."""
    numbers = _floats(g, bias)
    scales = [g.array(each.scale) for each in (found.image, found.kernels, found.own)]
    if numbers is None or any(scale is None for scale in scales):
        return Reject("the bias is neither constant nor quantized with the product of both scales")
    image, kernels, own = (np.asarray(scale, np.float64).reshape(-1) for scale in scales)
    steps = image * kernels
    if numbers.ndim != 1 or steps.size not in (1, numbers.size):
        return Reject("the bias has no number for each kernel")
    if not (steps > 0.0).all() or (steps > own * _FINER).any():
        return Reject("the product of both scales is too coarse for the bias")
    integers = np.rint(numbers / steps)
    if not (np.abs(integers) <= _MOST_BIAS).all():  # NaN is not, either
        return Reject("the bias has no integers of the product of both scales")
    return (integers.astype(np.int32),)


def _floats(g: Rewriter, value: Value) -> Array | None:
    """A constant, or what a constant is dequantized to."""
    source = dequantized(value)
    if source is None:
        held = g.array(value)
        return None if held is None else held.astype(np.float64)
    given = [g.array(value) for value in (source.tensor, source.scale, source.zero_point) if value is not None]
    if any(each is None for each in given) or len(source.tensor.shape or ()) != 1:
        return None
    tensor, scale, *zero = (np.asarray(each) for each in given)
    if any(each.size not in (1, tensor.size) for each in (scale, *zero)):
        return None
    return dequantize(tensor, scale, zero[0] if zero else None, axis=0).astype(np.float64)


@dataclass(frozen=True)
class FormQLinearLayer(Rule[Behind]):
    """Sums, products, activations and means of whole images of dequantized bytes that are quantized again."""

    name: ClassVar[str] = "FormQLinearLayer"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("QuantizeLinear",))

    def match(self, g: Rewriter, node: Node) -> Behind | Reject | None:
        found = before_quantize(g, node)
        if found is None or found.maker.op_type not in _LAYERS:
            return None
        dtype = dtype_of(found.own.tensor)
        for value in found.maker.inputs:
            source = dequantized(value)
            if source is None or source.axis is not None or dtype_of(source.tensor) is not dtype:
                return None
        return found

    def rewrite(self, g: Rewriter, found: Behind, facts: Any) -> None:
        inputs: list[Value] = []
        for value in found.maker.inputs:
            source = dequantized(value)
            assert source is not None
            inputs += (source.tensor, source.scale, source.zero_or_constant(g))
        attrs = {name: attr.value for name, attr in found.maker.attrs.items()}
        result = g.op(
            f"QLinear{found.maker.op_type}", *inputs, found.own.scale, found.own.zero_or_constant(g), domain=MICROSOFT, **attrs
        )
        g.replace(g.anchor.outputs[0], result)
