"""How LLVM spells the types and constants of elements, in memory and in registers."""

from __future__ import annotations

import math
import struct
from typing import Final

from sardonyx.kernel.expr import BITS

_SCALAR: Final = {"f16": "half", "bf16": "i16", "f32": "float", "f64": "double", "bool": "i1"}


def scalar_type(kind: str) -> str:
    """The LLVM type of one element in a register."""
    return _SCALAR.get(kind) or f"i{BITS[kind]}"


def memory_type(kind: str) -> str:
    """The LLVM type of one element in memory."""
    return "i8" if kind == "bool" else scalar_type(kind)


def vector_type(kind: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements in registers; for one lane, of the element."""
    return scalar_type(kind) if lanes == 1 else f"<{lanes} x {scalar_type(kind)}>"


def wide_type(kind: str, lanes: int) -> str:
    """The same of an LLVM type."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def constant(kind: str, value: float, lanes: int) -> str:
    """A constant in every lane."""
    text = _literal(kind, value)
    return text if lanes == 1 else f"splat ({scalar_type(kind)} {text})"


def _literal(kind: str, value: float) -> str:
    if kind == "f32":
        value = struct.unpack("<f", struct.pack("<f", _to_f32(value)))[0]
    if kind in ("f32", "f64"):
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if kind == "f16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if kind == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", _to_f32(value)))[0]
        return str((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    if kind == "bool":
        return "true" if value else "false"
    return str(int(value))


def _to_f32(value: float) -> float:
    limit = 3.4028235677973366e38  # from here on rounding gives infinity, which struct refuses to do
    return value if math.isnan(value) or abs(value) < limit else (float("inf") if value > 0 else float("-inf"))


def memory_suffix(kind: str) -> str:
    """How intrinsics spell an element type."""
    return {"f16": "f16", "bf16": "i16", "f32": "f32", "f64": "f64", "bool": "i8"}.get(kind) or f"i{BITS[kind]}"


def intrinsic_suffix(kind: str, lanes: int) -> str:
    """How intrinsics spell a register type: v8f32."""
    suffix = "i1" if kind == "bool" else memory_suffix(kind)
    return suffix if lanes == 1 else f"v{lanes}{suffix}"
