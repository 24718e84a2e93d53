"""Take operators apart that ONNX Runtime has fused, so that every pass and kernel for the parts serves them, too.

    y = com.microsoft.FusedConv(x, w, b, z) {activation = "Relu"}     =>   y = Relu(Add(Conv(x, w, b), z))
    y = com.microsoft.GemmFastGelu(x, w, b)                           =>   y = FastGelu(MatMul(x, w), b)

Models that ONNX Runtime has optimised and saved are full of them. Runs first: what it leaves is the model as it was written,
which the compiler fuses by its own rules. Refuses: narrow floats, which the fused operator rounds once and its parts after every
step; a sum whose operand is not known to have the shape of the result (the parts would broadcast it, the fused operator
refuses); activations that the opset of the model does not have, or with a wrong number of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.ops import registry
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_CLIP_BY_INPUTS: Final = 11  # the opset version since which the bounds of a Clip are inputs
_CONV: Final = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_PRODUCT: Final = ("alpha", "transA", "transB", "transBatchA", "transBatchB")


@dataclass(frozen=True)
class Activation:
    """An activation by name, with all its parameters."""

    name: str
    parameters: Mapping[str, float]

    def apply(self, g: Rewriter, x: Value) -> Value:
        """The node that computes it."""
        if self.name == "Clip" and g.version >= _CLIP_BY_INPUTS:
            dtype = dtype_of(x)
            assert dtype is not None
            low, high = (g.constant(np.asarray(limit, dtype.numpy), "bound") for limit in self.parameters.values())
            return g.op("Clip", x, low, high)
        return g.node(self.name, [x], 1, **dict[str, Any](self.parameters))[0] if self.name else x


def activation_of(g: Rewriter, name: str | None, given: Sequence[float] | None) -> Activation | Reject:
    """The activation that a fused operator names, with its parameters by position; an empty name for none."""
    if not name:
        return Activation("", {})
    from sardonyx.ops.matmul.contrib_fused import ACTIVATIONS  # lazy: few models have fused operators

    defaults: Mapping[str, float] | None = {"min": 0.0, "max": 0.0} if name == "Clip" else None
    if name in ACTIVATIONS:
        defaults = ACTIVATIONS[name][1]
    if defaults is None or registry.lookup(ONNX_DOMAIN, name, g.version) is None:
        return Reject(f"opset {g.version} has no activation {name!r}")
    if len(given or ()) != len(defaults) and (given or name == "Clip"):
        return Reject(f"{name} takes {len(defaults)} parameters, found {len(given or ())}")
    return Activation(name, dict(zip(defaults, given, strict=True)) if given else defaults)


def _named_activation(g: Rewriter, node: Node) -> Activation | Reject:
    """The activation of a fused product, with its parameters by name."""
    name = node.attr("activation")
    found = activation_of(g, name, None)
    if isinstance(found, Reject):
        return found
    given = {key: node.attr(f"activation_{key}") for key in found.parameters}
    return Activation(found.name, {key: found.parameters[key] if value is None else value for key, value in given.items()})


def inputs_of(node: Node, count: int) -> list[Value | None]:
    """The first inputs of a node, None for those that are left off."""
    return [*node.inputs, *[None] * count][:count]


def conv_attributes(node: Node) -> dict[str, Any]:
    """The attributes that a fused convolution shares with Conv, as far as it carries them."""
    return {key: node.attrs[key].value for key in _CONV if key in node.attrs}


def sum_operand(node: Node) -> Value | Reject | None:
    """What a fused convolution adds to its result."""
    z = node.inputs[3] if len(node.inputs) > 3 else None
    if z is not None and (z.shape is None or z.shape != node.outputs[0].shape):
        return Reject(f"adds {z.type} to {node.outputs[0].type}, whose shape may be another")
    return z


def _check_conv(g: Rewriter, node: Node) -> Any:
    z = sum_operand(node)
    return z if isinstance(z, Reject) else activation_of(g, node.attr("activation"), node.attr("activation_params"))


def _conv(g: Rewriter, node: Node, activation: Activation) -> Value:
    x, w, b, z = (*node.inputs, None, None)[:4]
    result = g.op("Conv", x, w, *(() if b is None else (b,)), **conv_attributes(node))
    return activation.apply(g, result if z is None else g.op("Add", result, z))


def _check_product(g: Rewriter, node: Node) -> Any:
    if node.attr("activation") != "Softmax":
        return _named_activation(g, node)
    shape, axis = node.outputs[0].shape, node.attr("activation_axis")
    if g.version < 13 and (shape is None or axis not in (None, -1, len(shape) - 1)):
        return Reject(f"Softmax of opset {g.version} takes all axes from {axis} on together")
    return None


def _product(g: Rewriter, node: Node, activation: Activation | None) -> Value:
    attrs = attribute_values(node)
    result = g.op("FusedMatMul", *node.inputs, domain=MICROSOFT, **{key: attrs[key] for key in _PRODUCT})
    if activation is not None:
        return activation.apply(g, result)
    axis = node.attr("activation_axis")
    return g.op("Softmax", result, axis=-1 if axis is None else axis)


def _gemm_fast_gelu(g: Rewriter, node: Node, facts: None) -> Value:
    x, w, bias = (*node.inputs, None)[:3]
    return g.op("FastGelu", g.op("MatMul", x, w), *(() if bias is None else (bias,)), domain=MICROSOFT)


def _check_bias(g: Rewriter, node: Node) -> Any:
    bias, result = (*node.inputs, None)[2], node.outputs[0]
    if bias is None:
        return None
    if bias.shape is None or result.shape is None or len(bias.shape) != 1 or bias.shape[0] != result.shape[-1]:
        return Reject(f"bias {bias.type} of {result.type} may broadcast")
    return None


def _check_bias_softmax(g: Rewriter, node: Node) -> Any:
    data, bias = node.inputs
    if data is None or bias is None or data.shape is None or bias.shape is None or len(bias.shape) > len(data.shape):
        return Reject("the ranks are not known")
    pairs = zip(data.shape[len(data.shape) - len(bias.shape) :], bias.shape, strict=True)
    if any(other not in (1, size) for size, other in pairs):
        return Reject(f"bias {bias.type} may broadcast {data.type}")
    if node.attr("axis", 1) not in (-1, len(data.shape) - 1):
        return Reject("works on several axes together")
    return None


def _bias_softmax(g: Rewriter, node: Node, facts: None) -> Value:
    return g.op("Softmax", g.op("Add", *node.inputs), axis=-1)


@dataclass(frozen=True)
class Expansion:
    """What must hold (its finding goes to `body`), and how the parts are put together."""

    body: Callable[[Rewriter, Node, Any], Value | list[Value | None]]  # of all outputs, None for those nobody reads
    check: Callable[[Rewriter, Node], Any] = lambda g, node: None


class ExpandingRule(Rule[Node]):
    """A rule that puts several nodes in the place of one, by a table of operators."""

    expands: ClassVar[bool] = True
    expansions: ClassVar[Mapping[str, Expansion]]

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        if dtype_of(node.outputs[0]) not in (dtypes.FLOAT32, dtypes.FLOAT64):
            return Reject(f"{node.outputs[0].type} is rounded once at the end, the parts would round each step")
        return node

    def check(self, g: Rewriter, found: Node) -> Any:
        return self.expansions[found.op_type].check(g, found)

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        made = self.expansions[found.op_type].body(g, found, facts)
        for old, new in zip(found.outputs, made if isinstance(made, list) else [made]):
            if new is not None:
                g.replace(old, new)


_EXPANSIONS: Final[Mapping[str, Expansion]] = {
    "FusedConv": Expansion(_conv, _check_conv),
    "FusedMatMulActivation": Expansion(_product, _check_product),
    "GemmFastGelu": Expansion(_gemm_fast_gelu, _check_bias),
    "BiasSoftmax": Expansion(_bias_softmax, _check_bias_softmax),
}


@dataclass(frozen=True)
class ExpandFused(ExpandingRule):
    """Operators that ONNX Runtime has fused become their parts."""

    name: ClassVar[str] = "ExpandFused"
    roots: ClassVar[frozenset[str]] = frozenset(_EXPANSIONS)
    domains: ClassVar[frozenset[str]] = frozenset((MICROSOFT,))
    expansions: ClassVar[Mapping[str, Expansion]] = _EXPANSIONS
