"""Random masks: a function of a seed and the position of an element, as `ops/creation/random.py` says."""

from __future__ import annotations

from typing import Final

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import product
from sardonyx.kernel.expr import Expr, binary, const, index, load
from sardonyx.lower.creation.creation import scalar_input
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import indexed_loop
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.lower.views import reshaped
from sardonyx.ops.indexing.layout import DOMAIN

_GOLDEN: Final = 0x9E3779B97F4A7C15
_ROUNDS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _mix(value: Expr) -> Expr:
    value = value + const(_GOLDEN, "u64")
    for shift, factor in _ROUNDS:
        value = binary("xor", value, binary("shr", value, const(shift, "u64"))) * const(factor, "u64")
    return binary("xor", value, binary("shr", value, const(31, "u64")))


@template("RandomMask", domain=DOMAIN)
def random_mask(ctx: LowerContext, group: Group) -> None:
    """True with the probability 1 - ratio."""
    node = root_of(group)
    result = node.outputs[0]
    target = ctx.output(result)
    whole = target if target.is_contiguous else ctx.scratch(target.buffer.dtype, target.shape)
    flat = reshaped(whole, (product(list(whole.shape)),))
    assert flat is not None
    views = [scalar_input(ctx, node, 1), scalar_input(ctx, node, 2)]
    stream = const(int(attribute_values(node)["stream"]), "u64")
    start = _mix(binary("xor", load(0, "i64").cast("u64"), stream))
    bits = binary("shr", _mix(start + index(0).cast("u64")), const(40, "u64"))
    uniform = bits.cast("i64").cast("f32") * const(2.0**-24, "f32")
    indexed_loop(ctx, flat.shape, views, flat, uniform >= load(1, "f32"), group.label)
    if whole is not target:
        ctx.copy(whole, target, "copy")
