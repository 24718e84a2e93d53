"""Weights of 4 or 2 bits that meet quantized activations as bytes of the same numbers.

    Conv(DequantizeLinear(x: u8), DequantizeLinear(w: i4, scale, zero: i4))   =>   ... DequantizeLinear(w: i8, scale, zero: i8)

The passes behind compute such products in integers, as those of weights that were bytes from the start. A DequantizeLinear of
com.microsoft, as ONNX Runtime writes it into models of opsets without integers of 4 bits, becomes that of ONNX, too. Comes after
FormBlockProducts, which takes products of floats with weights as they are stored. Refuses: scales of blocks.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Derivation, Tensor, origin_of, release_pages
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.quantized_values import dequantized
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_WIDER: Final[dict[DType, DType]] = {
    dtypes.INT2: dtypes.INT8, dtypes.UINT2: dtypes.UINT8, dtypes.INT4: dtypes.INT8, dtypes.UINT4: dtypes.UINT8,
}  # fmt: skip
_AXES: Final = 13  # the opset version since which a DequantizeLinear has an axis
_PRODUCTS: Final = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))


def _multiplies_bytes(user: Node, position: int) -> bool:
    """Whether an input is the weights of a product with activations that were bytes."""
    other = dequantized(user.inputs[0])
    return user.op_type in _PRODUCTS and is_standard(user) and position == 1 and other is not None and other.is_bytes


@dataclass(frozen=True)
class WidenNibbles(Rule[Node]):
    """Constants of fewer bits than a byte, dequantized for products with quantized activations."""

    name: ClassVar[str] = "WidenNibbles"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQSelectorActionTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("DequantizeLinear",))
    domains: ClassVar[frozenset[str]] = frozenset(("", MICROSOFT))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        made = node.outputs[0]
        if dtype_of(node.inputs[0]) not in _WIDER or g.is_output(made) or not made.uses:
            return None
        return node if all(_multiplies_bytes(user, position) for user, position in made.uses) else None

    def check(self, g: Rewriter, found: Node) -> Any:
        held = [g.constant_of(value) for value in (found.inputs[0], *found.inputs[2:]) if value is not None]
        if any(each is None for each in held):
            return Reject("the weights or their zero points are not constants")
        if attribute_values(found).get("block_size"):
            return Reject("the scales are those of blocks")
        return Reject(f"opset {g.version} does not dequantize along an axis") if g.version < _AXES else None

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        weights, scale, *zero_points = found.inputs
        wide = [None if value is None else _widened(g, value) for value in (weights, *zero_points)]
        g.replace(found.outputs[0], g.op("DequantizeLinear", wide[0], scale, *wide[1:], axis=found.attr("axis")))


def _widened(g: Rewriter, value: Value) -> Value:
    """A constant of the same numbers in bytes, made when it is read."""
    held = g.constant_of(value)
    assert held is not None
    dtype = _WIDER[held.dtype]

    def load() -> memoryview:
        made = held.numpy().astype(dtype.numpy)
        release_pages((held,))
        return np.ascontiguousarray(made).reshape(-1).view(np.uint8).data

    origin = origin_of("bytes of nibbles", (held,), ())
    return g.constant(Tensor(dtype, held.shape, load, origin=origin, derivation=Derivation("", (), ())), f"{value.name}_bytes")
