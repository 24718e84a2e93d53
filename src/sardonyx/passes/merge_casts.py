"""Leave out a Cast to a wider type on the way to another type.

    y = Cast(Cast(x: f16, f32), bf16)     =>   y = Cast(x, bf16)

Only if the first Cast keeps every value exactly, so the second one sees the same numbers. Refuses: narrowing first casts (their
rounding or wrapping is part of the result), strings, 8-bit and narrower floats.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.graph import Node
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_DIGITS: Final = {dtypes.FLOAT16: 11, dtypes.BFLOAT16: 8, dtypes.FLOAT32: 24, dtypes.FLOAT64: 53}  # whole bits kept exactly
_WIDER: Final = {
    dtypes.FLOAT16: (dtypes.FLOAT32, dtypes.FLOAT64),
    dtypes.BFLOAT16: (dtypes.FLOAT32, dtypes.FLOAT64),
    dtypes.FLOAT32: (dtypes.FLOAT64,),
}


def is_exact(source: DType, target: DType) -> bool:
    """Whether every value of one type is one of the other."""
    if source is target:
        return True
    if source is dtypes.BOOL:
        return target.is_integer or target in _DIGITS
    if source.is_float:
        return target in _WIDER.get(source, ())
    if not source.is_integer:
        return False
    signed = source in dtypes.SIGNED
    digits = source.bits - signed
    if target in _DIGITS:
        return digits <= _DIGITS[target]
    if not target.is_integer or (signed and target not in dtypes.SIGNED):
        return False
    return digits <= target.bits - (target in dtypes.SIGNED)


@dataclass(frozen=True)
class MergeCasts(Rule[Node]):
    """Two Casts in a row become one."""

    name: ClassVar[str] = "MergeCasts"
    ort_names: ClassVar[tuple[str, ...]] = ("CastChainElimination",)
    roots: ClassVar[frozenset[str]] = frozenset(("Cast",))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        first = node.inputs[0].producer if node.inputs[0] is not None else None
        return first if first is not None and first.op_type == "Cast" and is_standard(first) else None

    def check(self, g: Rewriter, found: Node) -> Any:
        source, between, target = dtype_of(found.inputs[0]), dtype_of(found.outputs[0]), dtype_of(g.anchor.outputs[0])
        if source is None or between is None or target is None:
            return Reject("a type is not known")
        if not is_exact(source, between):
            return Reject(f"{between} does not hold every value of {source}")
        if target is dtypes.STRING or (target.is_float and target not in _DIGITS):
            return Reject(f"a {target} depends on the type it is made from")
        return None

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        node = g.anchor
        g.replace(node.outputs[0], g.clone(node, [found.inputs[0]])[0])
