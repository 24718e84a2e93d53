"""Conversion between element types as expressions: Cast, CastLike, BitCast; they mean what `ops/elementwise/cast.py` says."""

from __future__ import annotations

from typing import Final

from sardonyx.kernel.expr import FLOATS, Expr, const, select
from sardonyx.lower.registry import elementwise


def as_processor(x: Expr, type: str) -> Expr:
    """A float as an integer, as processors do it: what does not fit 32 (or 64) bits becomes the smallest number.

    Types narrower than that get the low bits of the 32; u32 gets those of 64.
    """
    if type == "i64":
        return select((x >= -(2.0**63)) & (x < 2.0**63), x.cast("i64"), const(-(2**63), "i64"))
    if type == "u64":
        large = select(x < 2.0**64, x.cast("u64"), const(0, "u64"))
        return select(x >= 2.0**63, large, as_processor(x, "i64").cast("u64"))
    if type == "u32":
        return as_processor(x, "i64").cast("u32")
    # Numbers just above the smallest are truncated to it; f32 has none of them.
    above = x >= -(2.0**31) if x.type == "f32" else x > -(2.0**31) - 1
    return select(above & (x < 2.0**31), x.cast("i32"), const(-(2**31), "i32")).cast(type)


def converted(x: Expr, type: str) -> Expr:
    """A value in another type; half-precision results are rounded, then widened again to be computed with."""
    if type in ("f16", "bf16"):
        return x.cast(type).cast("f32")
    if type == "bool":
        return x.ne(0) if x.type != "bool" else x
    return as_processor(x, type) if x.type in FLOATS and type not in FLOATS else x.cast(type)


@elementwise("Cast", since=6)
def cast(x: Expr, *, out: str) -> Expr:
    return converted(x, out)


@elementwise("CastLike", since=15)
def cast_like(x: Expr, *, out: str) -> Expr:
    return converted(x, out)


# Types that are in registers what they are in memory.
_PLAIN_BITS: Final = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@elementwise("BitCast", since=26, types={"T1": _PLAIN_BITS, "T2": _PLAIN_BITS})
def bit_cast(x: Expr, *, out: str) -> Expr:
    return x.bitcast(out)
