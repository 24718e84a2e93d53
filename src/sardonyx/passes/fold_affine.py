"""Fold what scales or shifts whole channels into the weights of the product before it.

    y = BatchNormalization(Conv(x, w, b), ...)     =>   y = Conv(x, w', b')
    y = Mul(Conv(x, w), s: f32[C,1,1])             =>   y = Conv(x, w')
    y = Add(Gemm(a, w, c), t: f32[N])              =>   y = Gemm(a, w, c')
    y = Conv(Mul(x, s: f32[C,1,1]), w)             =>   y = Conv(x, w')

For Conv, ConvTranspose, Gemm, and scales of MatMul. Factors are computed in float64, weights scaled in float32 (or float64, if
they are). Runs after FoldConstants: weights and factors must be literal. Refuses: factors that are not one number per channel,
products that are used elsewhere too, large weights that others share (they would exist twice), weights that would overflow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.dtypes import DType
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array, origin_of
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_PRODUCTS: Final = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
SHARED: Final = 1 << 16  # bytes of weights that may be copied although others use them


@dataclass(frozen=True)
class _Affine:
    """A node that computes scale * product + shift, the factors one per channel (or None), in float64."""

    product: Node
    scale: Array | None
    shift: Array | None


def _channels(g: Rewriter, product: Node) -> int | None:
    """The number of output channels, from the weights."""
    weights = g.constant_of(product.inputs[1])
    if weights is None or not weights.shape or not weights.dtype.is_float:
        return None
    groups = int(product.attr("group", 1))
    if groups < 1 or weights.shape[0] % groups:
        return None
    if product.op_type == "Conv":
        return weights.shape[0]
    if product.op_type == "ConvTranspose":
        return weights.shape[1] * groups if len(weights.shape) > 1 else None
    if len(weights.shape) < 2:
        return None
    return weights.shape[-2] if product.op_type == "Gemm" and product.attr("transB", 0) else weights.shape[-1]


def _channel_axis(product: Node, rank: int) -> int:
    return 1 if product.op_type in ("Conv", "ConvTranspose") else rank - 1


def _per_channel(factor: Array, rank: int, axis: int, channels: int) -> Array | None:
    """A constant operand as a vector over the channels; None if it varies along another axis or adds one."""
    if factor.ndim > rank:
        return None
    shape = (1,) * (rank - factor.ndim) + factor.shape
    if any(size != 1 for dimension, size in enumerate(shape) if dimension != axis) or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(np.asarray(factor, np.float64).reshape(-1), (channels,))


def _product_before(g: Rewriter, value: Value | None) -> Node | None:
    """The product that makes a value, if its weights are literal."""
    node = None if value is None else value.producer
    if node is None or node.op_type not in _PRODUCTS or not is_standard(node):
        return None
    return node if _channels(g, node) is not None else None


class _FoldAfter(Rule[_Affine]):
    """A scale or shift after a product."""

    def check(self, g: Rewriter, found: _Affine) -> Any:
        product = found.product
        if not g.is_private(product.outputs[0]):
            return Reject(f"the result of {product.label} is used elsewhere too")
        if product.graph is not g.anchor.graph:
            return Reject(f"{product.label} stands in another graph")
        return _folded(g, found)

    def rewrite(self, g: Rewriter, found: _Affine, facts: Any) -> None:
        weights, bias, keep_shift = facts
        product, node = found.product, g.anchor
        inputs = list(product.inputs)
        if weights is not None:
            assert found.scale is not None
            facts = (product.op_type, product.attr("group", 1), product.attr("transB", 0), found.scale.tobytes())
            origin = origin_of("scale output channels", [g.constant_of(inputs[1])], facts)
            inputs[1] = g.constant(weights, inputs[1].name if inputs[1] is not None else "weights", origin)
        if bias is not None:
            inputs[2:] = [g.constant(bias, "bias")]
        changes = {"beta": 1.0} if product.op_type == "Gemm" and bias is not None and "beta" in product.attrs else {}
        result = g.clone(product, inputs, **changes)[0]
        if keep_shift is not None:
            result = g.op("Add", result, g.constant(keep_shift, "shift"))
        g.replace(node.outputs[0], result)


def _folded(g: Rewriter, found: _Affine) -> Reject | tuple[Array | None, Array | None, Array | None]:
    """New weights and bias (None: as they are), and a shift that a MatMul cannot take."""
    product, scale, shift = found.product, found.scale, found.shift
    held = g.constant_of(product.inputs[1])
    assert held is not None
    given = product.inputs[2] if len(product.inputs) > 2 else None
    bias = g.array(given)
    if given is not None and bias is None:
        return Reject(f"its bias {given.name!r} is not a constant")
    dtype = held.dtype
    weights: Array | None = None
    if scale is not None:
        source = product.inputs[1]
        if source is not None and len(source.uses) > 1 and held.nbytes > SHARED:
            return Reject(f"the weights {source.name!r} are used elsewhere too")
        data = g.array(source)
        if data is None:
            return Reject("the weights cannot be read")
        with np.errstate(all="ignore"):
            weights = rounded(_scaled(product, data, scale), dtype)
        if weights is None:
            return Reject("the weights would overflow")
    if product.op_type == "MatMul":
        kept = None if shift is None else rounded(shift, dtype)
        return Reject("the shift would overflow") if shift is not None and kept is None else (weights, None, kept)
    beta = float(product.attr("beta", 1.0)) if product.op_type == "Gemm" else 1.0
    total: Array | None = None if bias is None else np.asarray(bias, np.float64) * beta
    if total is not None and scale is not None:
        total = total * scale
    if shift is not None:
        total = shift if total is None else total + shift
    if total is None:
        return weights, None, None
    if total.size > max(0 if bias is None else bias.size, (0 if shift is None else shift.size)):
        return Reject(f"the bias of shape {list(total.shape)} would be larger than what it is made of")
    new = rounded(total, dtype)
    return Reject("the bias would overflow") if new is None else (weights, new, None)


def _scaled(product: Node, weights: Array, scale: Array) -> Array:
    """The weights with every output channel multiplied by its factor."""
    wide = _wide(weights)
    scale = scale.astype(wide.dtype)
    if product.op_type == "Conv":
        return wide * scale.reshape(-1, *[1] * (wide.ndim - 1))
    if product.op_type == "ConvTranspose":
        groups = int(product.attr("group", 1))
        grouped = wide.reshape(groups, wide.shape[0] // groups, *wide.shape[1:])
        factors = scale.reshape(groups, 1, wide.shape[1], *[1] * (wide.ndim - 2))
        scaled: Array = (grouped * factors).reshape(wide.shape)
        return scaled
    return wide * (scale[:, None] if product.op_type == "Gemm" and product.attr("transB", 0) else scale)


def rounded(data: Array, dtype: DType) -> Array | None:
    """The data in the type of the weights; None if a number in it is not finite."""
    with np.errstate(all="ignore"):
        result: Array = data.astype(dtype.numpy, copy=False)
        checked = result if dtype.bits >= 32 else result.astype(np.float32)
        # One number that is not finite makes the sum so, too; the sum alone costs a third of looking at each.
        if np.isfinite(checked.sum()) or np.isfinite(checked).all():
            return result
    return None


def _wide(weights: Array) -> Array:
    """The weights in the type in which they are scaled."""
    return weights if weights.dtype == np.float64 else np.asarray(weights, np.float32)


def normalization_factors(g: Rewriter, node: Node, channels: int | None) -> tuple[Array, Array] | Reject:
    """What a BatchNormalization multiplies each channel with, and what it adds."""
    if node.attr("training_mode", 0) or node.attr("spatial", 1) != 1:
        return Reject("its statistics are not per channel and fixed")
    if any(value.uses or g.is_output(value) for value in node.outputs[1:]):
        return Reject("its statistics are used")
    parameters = [g.array(value) for value in node.inputs[1:5]]
    scale, bias, mean, variance = (None if data is None else np.asarray(data, np.float64) for data in parameters)
    if scale is None or bias is None or mean is None or variance is None:
        return Reject("its parameters are not constants")
    if any(data.shape != (channels,) for data in (scale, bias, mean, variance)):
        return Reject(f"its parameters are not of shape [{channels}]")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(node.attr("epsilon", 1e-5)))
        return factor, bias - mean * factor


@dataclass(frozen=True)
class FoldBatchNorm(_FoldAfter):
    """Fold a BatchNormalization with constant statistics into the product before it."""

    name: ClassVar[str] = "FoldBatchNorm"
    ort_names: ClassVar[tuple[str, ...]] = ("ConvBNFusion", "MatmulBNFusion", "MatMulBNFusion")
    roots: ClassVar[frozenset[str]] = frozenset(("BatchNormalization",))
    needs: ClassVar[frozenset[str]] = _PRODUCTS

    def match(self, g: Rewriter, node: Node) -> _Affine | Reject | None:
        product = _product_before(g, node.inputs[0])
        if product is None or len(node.inputs) != 5:
            return None
        if product.op_type in ("Gemm", "MatMul") and len(product.outputs[0].shape or ()) != 2:
            return Reject(f"the channels of {product.label} are not the second axis")
        factors = normalization_factors(g, node, _channels(g, product))
        if isinstance(factors, Reject):
            return factors
        factor, shift = factors
        return _Affine(product, factor, shift)


class _FoldOperand(_FoldAfter):
    """A binary operator with a product on one side and a constant on the other."""

    def match(self, g: Rewriter, node: Node) -> _Affine | Reject | None:
        for position, other in ((0, 1), (1, 0)):
            product, factor = _product_before(g, node.inputs[position]), g.array(node.inputs[other])
            if product is not None and factor is not None:
                break
        else:
            return None
        shape, channels = product.outputs[0].shape, _channels(g, product)
        if shape is None or channels is None:
            return None
        vector = _per_channel(factor, len(shape), _channel_axis(product, len(shape)), channels)
        if vector is None:
            return Reject(f"the constant of shape {list(factor.shape)} is not one number for each of {channels} channels")
        return self.affine(product, vector, constant_first=other == 0)

    def affine(self, product: Node, vector: Array, constant_first: bool) -> _Affine | None:
        """What the operator does with the constant."""
        raise NotImplementedError


@dataclass(frozen=True)
class FoldScale(_FoldOperand):
    """Fold a Mul or Div by a constant, or a Neg, into the product before it."""

    name: ClassVar[str] = "FoldScale"
    ort_names: ClassVar[tuple[str, ...]] = ("ConvMulFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Mul", "Div", "Neg"))
    needs: ClassVar[frozenset[str]] = _PRODUCTS

    def match(self, g: Rewriter, node: Node) -> _Affine | Reject | None:
        if node.op_type == "Neg":
            product = _product_before(g, node.inputs[0])
            return None if product is None else _Affine(product, np.full(_channels(g, product) or 0, -1.0), None)
        found = super().match(g, node)
        if node.op_type == "Mul" or not isinstance(found, _Affine) or found.scale is None:
            return found
        if found.product is not (node.inputs[0].producer if node.inputs[0] is not None else None):
            return None  # a constant divided by the product
        with np.errstate(all="ignore"):
            return replace(found, scale=1 / found.scale)

    def affine(self, product: Node, vector: Array, constant_first: bool) -> _Affine | None:
        return _Affine(product, vector, None)


@dataclass(frozen=True)
class FoldShift(_FoldOperand):
    """Fold an Add of a constant, or a Sub either way, into the bias of the product before it; a MatMul has none."""

    name: ClassVar[str] = "FoldShift"
    ort_names: ClassVar[tuple[str, ...]] = ("ConvAddFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Add", "Sub"))
    needs: ClassVar[frozenset[str]] = _PRODUCTS

    def match(self, g: Rewriter, node: Node) -> _Affine | Reject | None:
        found = super().match(g, node)
        if node.op_type == "Add" or not isinstance(found, _Affine) or found.shift is None:
            return found
        first = node.inputs[0]
        if first is not None and first.producer is found.product:
            return replace(found, shift=-found.shift)
        return replace(found, scale=np.full(found.shift.shape, -1.0))

    def affine(self, product: Node, vector: Array, constant_first: bool) -> _Affine | None:
        return None if product.op_type == "MatMul" else _Affine(product, None, vector)


@dataclass(frozen=True)
class _InputScale:
    product: Node
    scaling: Node
    source: Value
    factor: Array  # one per input channel


@dataclass(frozen=True)
class FoldInputScale(Rule[_InputScale]):
    """Fold a scale of the input channels into the weights of the product that reads them."""

    name: ClassVar[str] = "FoldInputScale"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = _PRODUCTS
    needs: ClassVar[frozenset[str]] = frozenset(("Mul", "Div"))

    def match(self, g: Rewriter, node: Node) -> _InputScale | Reject | None:
        value = node.inputs[0]
        scaling = None if value is None else value.producer
        if value is None or scaling is None or scaling.op_type not in ("Mul", "Div") or not is_standard(scaling):
            return None
        held, shape = g.constant_of(node.inputs[1]), value.shape
        if held is None or shape is None or len(held.shape) < 2 or _channels(g, node) is None:
            return None
        factor, source = g.array(scaling.inputs[1]), scaling.inputs[0]
        if factor is None and scaling.op_type == "Mul":
            factor, source = g.array(scaling.inputs[0]), scaling.inputs[1]
        if factor is None or source is None or source.shape != shape:
            return None
        axis, channels = _input_axis(node, len(shape)), _input_channels(node, held.shape)
        vector = _per_channel(factor, len(shape), axis, channels)
        if vector is None:
            return Reject(f"{scaling.label} does not scale each of the {channels} input channels by one number")
        with np.errstate(all="ignore"):
            return _InputScale(node, scaling, source, vector if scaling.op_type == "Mul" else 1 / vector)

    def check(self, g: Rewriter, found: _InputScale) -> Any:
        weights = found.product.inputs[1]
        held = g.constant_of(weights)
        if not g.is_private(found.scaling.outputs[0]):
            return Reject(f"the result of {found.scaling.label} is used elsewhere too")
        if weights is None or held is None or (len(weights.uses) > 1 and held.nbytes > SHARED):
            return Reject("the weights are used elsewhere too")
        data = g.array(weights)
        if data is None:
            return Reject("the weights cannot be read")
        with np.errstate(all="ignore"):
            scaled = rounded(_scaled_inputs(found.product, _wide(data), found.factor), held.dtype)
        if scaled is None or dtype_of(found.source) is not held.dtype:
            return Reject("the weights would overflow")
        return scaled

    def rewrite(self, g: Rewriter, found: _InputScale, facts: Any) -> None:
        node = found.product
        weights = node.inputs[1]
        parameters = (node.op_type, node.attr("group", 1), node.attr("transB", 0), found.factor.tobytes())
        origin = origin_of("scale input channels", [g.constant_of(weights)], parameters)
        constant = g.constant(facts, weights.name if weights is not None else "weights", origin)
        g.replace(node.outputs[0], g.clone(node, [found.source, constant, *node.inputs[2:]])[0])


def _input_axis(product: Node, rank: int) -> int:
    if product.op_type in ("Conv", "ConvTranspose"):
        return 1
    return 0 if product.op_type == "Gemm" and product.attr("transA", 0) else rank - 1


def _input_channels(product: Node, weights: tuple[int, ...]) -> int:
    if product.op_type == "Conv":
        return weights[1] * int(product.attr("group", 1))
    if product.op_type == "ConvTranspose":
        return weights[0]
    return weights[-1] if product.op_type == "Gemm" and product.attr("transB", 0) else weights[-2]


def _scaled_inputs(product: Node, wide: Array, factor: Array) -> Array:
    """The weights with everything that meets an input channel multiplied by its factor."""
    factor = factor.astype(wide.dtype)
    if product.op_type == "Conv":
        groups = int(product.attr("group", 1))
        grouped = wide.reshape(groups, wide.shape[0] // groups, *wide.shape[1:])
        factors = factor.reshape(groups, 1, wide.shape[1], *[1] * (wide.ndim - 2))
        scaled: Array = (grouped * factors).reshape(wide.shape)
        return scaled
    if product.op_type == "ConvTranspose":
        return wide * factor.reshape(-1, *[1] * (wide.ndim - 1))
    return wide * (factor if product.op_type == "Gemm" and product.attr("transB", 0) else factor[:, None])
