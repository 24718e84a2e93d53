"""Look rows up before they are dequantized.

    y = Gather(DequantizeLinear(table, scale, zero), ids)     =>   y = DequantizeLinear(Gather(table, ids), scale, zero)

A table of a language model has tens of thousands of rows, of which a run needs a few. Refuses: scales of slices, whose axis the
result may not have, and tables that are computed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sardonyx.ir.graph import Node
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.quantized_values import Quantization, dequantized
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass


@dataclass(frozen=True)
class PushDequantize(Rule[Quantization]):
    """Ensures: no Gather from a constant that is dequantized by one scale."""

    name: ClassVar[str] = "PushDequantize"
    ort_names: ClassVar[tuple[str, ...]] = ("QDQPropagationTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("Gather",))

    def match(self, g: Rewriter, node: Node) -> Quantization | Reject | None:
        found = dequantized(node.inputs[0]) if is_standard(node) else None
        if found is None or g.constant_of(found.tensor) is None:
            return None
        return found if found.axis is None else Reject("the table has several scales")

    def check(self, g: Rewriter, found: Quantization) -> Any:
        return None

    def rewrite(self, g: Rewriter, found: Quantization, facts: Any) -> None:
        node = g.anchor
        rows = g.clone(node, [found.tensor, *node.inputs[1:]])[0]
        g.replace(node.outputs[0], g.clone(found.node, [rows, *found.node.inputs[1:]])[0])
