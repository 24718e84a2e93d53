"""Conversion between element types as expressions: Cast, CastLike, BitCast; they mean what `ops/elementwise/cast.py` says."""

from __future__ import annotations

from typing import Final

from sardonyx.kernel.expr import BITS, FLOATS, Expr, truncated
from sardonyx.lower.registry import elementwise


def as_processor(x: Expr, type: str) -> Expr:
    """A float as an integer of any width, as processors do it (`kernel.truncation`)."""
    return truncated(x, type) if BITS[type] >= 32 else truncated(x, "i32").cast(type)


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
