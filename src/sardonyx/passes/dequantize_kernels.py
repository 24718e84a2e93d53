"""Constants in floats, where what reads them is computed in floats.

    y = ConvTranspose(x, DequantizeLinear(w, scale, zero))     =>   y = ConvTranspose(x, const w)

Runs after all passes that compute with integers: what they have left is a layer of floats, whose weights are packed when the
program is made. The constant says how it is made and is never kept. Constants of a few elements (factors of a norm, bounds), and
those of which two or more share a byte, become floats whoever reads them; large ones only if none but layers and products do.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node
from sardonyx.ir.tensor import Derivation, Tensor, origin_of, release_pages
from sardonyx.ops.quant.quant import dequantize
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_LAYERS: Final = frozenset(("Conv", "ConvTranspose", "RNN", "GRU", "LSTM", "MatMul", "Gemm"))
_FEW: Final = 1 << 14  # elements


@dataclass(frozen=True)
class DequantizeKernels(Rule[tuple[Tensor, ...]]):
    """Ensures: no convolution, recurrent layer or product with dequantized constants."""

    name: ClassVar[str] = "DequantizeKernels"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("DequantizeLinear",))
    domains: ClassVar[frozenset[str]] = frozenset(("", MICROSOFT))

    def match(self, g: Rewriter, node: Node) -> tuple[Tensor, ...] | Reject | None:
        made = node.outputs[0]
        held = [g.constant_of(value) for value in node.inputs if value is not None]
        if any(each is None for each in held) or g.is_output(made) or dtype_of(made) is not dtypes.FLOAT32:
            return None
        found = tuple(each for each in held if each is not None)
        is_read_by_layers = all(user.op_type in _LAYERS and is_standard(user) for user, _ in made.uses)
        is_small = found[0].size <= _FEW or found[0].dtype.bits < 8
        return found if made.uses and (is_read_by_layers or is_small) else None

    def check(self, g: Rewriter, found: tuple[Tensor, ...]) -> Any:
        shape = g.anchor.outputs[0].shape or ()
        sizes = tuple(size for size in shape if isinstance(size, int))
        return sizes if len(sizes) == len(shape) else Reject("the shape is not known")

    def rewrite(self, g: Rewriter, found: tuple[Tensor, ...], facts: tuple[int, ...]) -> None:
        node = g.anchor
        attrs = attribute_values(node)
        axis, block = int(attrs.get("axis", 1) or 0), int(attrs.get("block_size") or 0)

        def load() -> memoryview:
            x, scale, *rest = (each.numpy() for each in found)
            made = dequantize(x, scale, rest[0] if rest else None, axis=axis, block_size=block)
            release_pages(found)
            return np.ascontiguousarray(made, np.float32).reshape(-1).view(np.uint8).data

        origin = origin_of("dequantized", found, (axis, block))
        held = Tensor(dtypes.FLOAT32, facts, load, origin=origin, derivation=Derivation("dequantized", (), ()))
        g.replace(node.outputs[0], g.constant(held, f"{found[0].name or 'weights'}_f32"))
