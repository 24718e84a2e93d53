"""Floats as integers, as processors convert them: what does not fit 32 (or 64) bits becomes the smallest number.

Types narrower than that get the low bits of the 32; u32 gets those of 64.
"""

from __future__ import annotations

from sardonyx.kernel.expr import Expr, const, select


def truncated_by_range(x: Expr, type: str) -> Expr:
    """The same of conversions that saturate: what is in range, and the smallest number elsewhere."""
    if type == "i64":
        return select((x >= -(2.0**63)) & (x < 2.0**63), x.cast("i64"), const(-(2**63), "i64"))
    if type == "u64":
        large = select(x < 2.0**64, x.cast("u64"), const(0, "u64"))
        return select(x >= 2.0**63, large, truncated_by_range(x, "i64").cast("u64"))
    if type == "u32":
        return truncated_by_range(x, "i64").cast("u32")
    # Numbers just above the smallest are truncated to it; f32 has none of them.
    above = x >= -(2.0**31) if x.type == "f32" else x > -(2.0**31) - 1
    return select(above & (x < 2.0**31), x.cast("i32"), const(-(2**31), "i32"))
