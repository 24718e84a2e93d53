"""Floats that were counted in steps of a byte: what an instruction that narrows to the nearest byte makes superfluous.

    (round(min(max(x, 0 - z), 255 - z)) as i32 + z) as u8          QuantizeLinear with a zero point z, and the like of it

x86 converts what is too large for an i32 to its smallest number, which is the largest without a sign: so a machine that narrows
integers without a sign to the nearest byte needs the lower bound only, also where x is infinite. NaN is at the lower bound.
"""

from __future__ import annotations

from typing import Final

from sardonyx.kernel.expr import Expr
from sardonyx.records import dataclass

_MOST: Final = 255


@dataclass(frozen=True)
class CountedSteps:
    """How a byte was made of a float."""

    value: Expr  # from 0 to 255, less the origin, if it is cut off there
    divisor: Expr | None  # of the value, which is cut off after the division (`expr.quotient`)
    least: Expr
    origin: Expr | None  # an i32


def counted_steps(node: Expr) -> CountedSteps | None:
    """How an unsigned byte was made of a float between its bounds; None if it was not."""
    if (node.op, node.type) != ("cast", "u8") or node.args[0].type != "i32":
        return None
    whole, origin = node.args[0], None
    if whole.op == "add":
        whole, origin = whole.args
    if whole.op != "cast" or (whole.args[0].op, whole.args[0].type) != ("round", "f32"):
        return None
    bounded = whole.args[0].args[0]
    if bounded.op == "quotient":
        value, divisor, least, most = bounded.args
    elif bounded.op == "minr" and bounded.args[0].op == "maxr":
        (value, least), most, divisor = bounded.args[0].args, bounded.args[1], None
    else:
        return None
    if not (_is_bound(least, 0, origin) and _is_bound(most, _MOST, origin)):
        return None
    return CountedSteps(value, divisor, least, origin)


def _is_bound(bound: Expr, limit: int, origin: Expr | None) -> bool:
    """Whether a float is a limit of the byte seen from the origin, itself a byte."""
    if origin is None:
        return bound.op == "const" and bound.param == limit
    if origin.op != "cast" or origin.args[0].type != "u8" or bound.op != "sub":
        return False
    first, second = bound.args
    return first.op == "const" and first.param == limit and second == origin.args[0].cast("f32")
