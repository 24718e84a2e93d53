"""Quantized images with their channels last.

    QLinearConv(x)            =>   Transpose(com.microsoft::QLinearConv(Transpose(x)) {channels_last = 1})
    MaxPool(x: u8 or i8)      =>   Transpose(com.microsoft::NhwcMaxPool(Transpose(x)))

The bytes of one pixel lie side by side then, which is how products of bytes read them. PushTransposes behind this pass takes the
Transposes in between away. Refuses: images of unknown rank, pools that give indices.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sardonyx.ir.graph import Node
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.quantized_values import BYTES
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_RANKS: Final = (3, 4, 5)


@dataclass(frozen=True)
class AssignChannelsLast(Rule[int]):
    """Ensures: no quantized convolution and no pool of bytes with channels in front."""

    name: ClassVar[str] = "AssignChannelsLast"
    ort_names: ClassVar[tuple[str, ...]] = ("NhwcTransformer",)
    roots: ClassVar[frozenset[str]] = frozenset(("QLinearConv", "MaxPool"))

    def match(self, g: Rewriter, node: Node) -> int | Reject | None:
        image = node.inputs[0]
        if image is None or dtype_of(image) not in BYTES:
            return None
        if node.op_type == "QLinearConv" and dtype_of(node.inputs[3]) not in BYTES:
            return None
        rank = len(image.shape or ())
        return rank if rank in _RANKS else Reject("the rank of the image is not known")

    def check(self, g: Rewriter, found: int) -> Any:
        node = g.anchor
        if node.op_type == "QLinearConv":
            return None if g.constant_of(node.inputs[3]) is not None else Reject("the kernels are not constant")
        if len([value for value in node.outputs if value.name]) > 1 or node.attr("storage_order", 0):
            return Reject("a pool that gives indices")
        return None if found == 4 else Reject("a pool of other than two spatial axes")

    def rewrite(self, g: Rewriter, found: int, facts: Any) -> None:
        node = g.anchor
        to_last, to_front = (0, *range(2, found), 1), (0, found - 1, *range(1, found - 1))
        image = node.inputs[0]
        assert image is not None
        last = g.op("Transpose", image, perm=to_last)
        attrs = {name: attr.value for name, attr in node.attrs.items()}
        if node.op_type == "MaxPool":
            attrs.pop("storage_order", None)
            result = g.op("NhwcMaxPool", last, domain=MICROSOFT, **attrs)
        else:
            result = g.op("QLinearConv", last, *node.inputs[1:], domain=MICROSOFT, channels_last=1, **attrs)
        g.replace(node.outputs[0], g.op("Transpose", result, perm=to_front))
