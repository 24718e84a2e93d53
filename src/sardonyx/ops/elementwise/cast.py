"""Conversion between element types: Cast, CastLike, BitCast.

Where ONNX leaves the result open, it is what ONNX Runtime gives: a float that does not fit an integer type converts as the
processor does it; a wider integer loses its high bits; text is printed with eight significant digits, NaN, INF and -INF; text
is read as the longest integer or float at its beginning, as C does it: in ASCII digits, hexadecimal floats too; a float that is
too large for float64, or too small, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import ml_dtypes
import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.tensor import Array, codes_to_elements
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, same_as
from sardonyx.ops.precision import widen

_FLOAT8: Final = frozenset((dtypes.FLOAT8E4M3FN, dtypes.FLOAT8E4M3FNUZ, dtypes.FLOAT8E5M2, dtypes.FLOAT8E5M2FNUZ))
_FLOAT8_MAX: Final = {
    dtype: float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
    for dtype in _FLOAT8
}
_INTEGER_TEXT: Final = re.compile(r"\s*([+-]?\d+)", re.ASCII)
_FLOAT_TEXT: Final = re.compile(
    r"""\s*(?P<text>[+-]?(?:
        (?P<hexadecimal>0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)(?:p[+-]?\d+)?)
      | (?P<decimal>(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)
      | inf(?:inity)? | nan))""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_PYTHONS_OWN: Final = "_\x1c\x1d\x1e\x1f"  # what Python reads over in numbers, beside digits that are not ASCII
_SHORT: Final = 300  # digits that a float64 without an exponent may have
_SMALLEST_NORMAL: Final = float(np.finfo(np.float64).tiny)


def format_number(value: Any) -> str:
    """A number as Cast to string writes it."""
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    return _float_text(value) if isinstance(value, float) else str(value)


def _float_text(value: float) -> str:
    text = f"{value:.8g}"
    return _SPECIAL_TEXTS.get(text, text)


_SPECIAL_TEXTS: Final = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def _to_text(x: Array) -> Array:
    if x.dtype.itemsize == 1 and x.dtype.kind not in "biu" and dtypes.from_numpy(x.dtype).is_integer:
        x = x.astype(np.int8) if dtypes.from_numpy(x.dtype) in dtypes.SIGNED else x.astype(np.uint8)
    if x.dtype == np.bool_:
        return _taken(["0", "1"], x)
    if x.dtype.kind in "iu":
        first, last = (int(x.min()), int(x.max())) if x.size else (0, 0)
        if last - first < x.size:  # each text is made once
            wide = x if x.dtype.itemsize == 8 else x.astype(np.int64)  # smaller types may not hold the distance
            return _taken(map(str, range(first, last + 1)), wide - wide.dtype.type(first))
        texts: Iterable[str] = map(str, x.ravel().tolist())
    else:
        texts = _float_texts(widen(x).ravel())
    return np.fromiter(texts, object, x.size).reshape(x.shape)


def _taken(texts: Iterable[str], numbers: Array) -> Array:
    """The texts with some numbers."""
    found: Array = np.array(list(texts), object).take(numbers.astype(np.intp))
    return found


def _float_texts(x: Array) -> list[str]:
    values = x.tolist()
    if not np.isfinite(x).all():
        return [_float_text(value) for value in values]
    return ("%.8g\n" * len(values) % tuple(values)).split("\n")[:-1]  # one call formats all


def _read_integer(text: str) -> int:
    match = _INTEGER_TEXT.match(text)
    if match is None:
        raise ValueError(f"cannot read {text!r} as an integer")
    value = int(match.group(1))
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{text!r} does not fit into 64 bits")
    return value


def _read_float(text: str) -> float:
    match = _FLOAT_TEXT.match(text)
    if match is None:
        raise ValueError(f"cannot read {text!r} as a number")
    found = match["text"]
    if match["hexadecimal"]:
        try:
            return float.fromhex(found)
        except OverflowError:
            raise ValueError(f"{text!r} does not fit into a float64") from None
    value = float(found)
    is_zero = match["decimal"] and not re.search("[1-9]", re.split("[eE]", found)[0])
    if match["decimal"] and not is_zero and not _SMALLEST_NORMAL <= abs(value) < np.inf:
        raise ValueError(f"{text!r} does not fit into a float64")
    return value


def _from_text(x: Array, to: DType) -> Array:
    """Text as float64 (for float types) or 64-bit integers, still to be converted to the type."""
    flat = x.ravel().tolist()
    joined = "".join(flat)
    if joined.isascii() and not any(each in joined for each in _PYTHONS_OWN):  # then Python reads what C reads, or less
        try:
            if not to.is_float:
                return x.astype(np.int64)
            values: Array = x.astype(np.float64)
        except (ValueError, OverflowError):  # something follows the number, or it has 64 bits without a sign
            pass
        else:
            if "e" in joined or "E" in joined or len(joined) > _SHORT:
                size = np.abs(values).ravel()
                for number in np.flatnonzero(~((size >= _SMALLEST_NORMAL) & (size < np.inf))).tolist():
                    _read_float(flat[number])  # zeros that were too small, infinities that were too large are refused
            return values
    if to.is_float:
        return np.array([_read_float(text) for text in flat], np.float64).reshape(x.shape)
    return np.array([_read_integer(text) % (1 << 64) for text in flat], np.uint64).view(np.int64).reshape(x.shape)


def _to_float8e8m0(x: Array, saturate: bool, round_mode: str) -> Array:
    """To the exponents -127 to 127: negative numbers become NaN, a zero the smallest power, or NaN if not saturating."""
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode is {round_mode!r}: expected 'up', 'down' or 'nearest'")
    fraction, exponent = np.frexp(x.astype(np.float64))  # x = fraction * 2**exponent, 0.5 <= fraction < 1
    # 2**(exponent - 1) <= x < 2**exponent: which of the two neighbours is taken
    bound = {"up": fraction > 0.5, "down": np.zeros(x.shape, np.bool_), "nearest": fraction >= 0.75}[round_mode]
    code = np.where(bound, exponent, exponent - 1).astype(np.int64) + 127
    code = np.where(x == 0, 0 if saturate else 255, code)
    code = np.where(np.isinf(x), 254 if saturate else 255, code)
    code = np.clip(code, 0, 254) if saturate else np.where((code < 0) | (code > 254), 255, code)
    code = np.where((x < 0) | np.isnan(x), 255, code)
    return code.astype(np.uint8).view(dtypes.FLOAT8E8M0.numpy)


def cast(x: Array, to: DType, saturate: bool = True, round_mode: str = "up") -> Array:
    """The values in another element type. `saturate` and `round_mode` matter for the float8 types only."""
    if to is dtypes.STRING and x.dtype != object:
        return _to_text(x)
    with np.errstate(all="ignore"):
        return np.asarray(_cast(x, to, saturate, round_mode))


def _cast(x: Array, to: DType, saturate: bool, round_mode: str) -> Array:
    source = dtypes.from_numpy(x.dtype)
    if source is to:
        return x
    if source is dtypes.STRING:
        x = _from_text(x, to)
    elif source.is_float:
        x = widen(x)
    elif source.is_packed:
        x = x.astype(np.int8) if source in dtypes.SIGNED else x.astype(np.uint8)
    if to is dtypes.BOOL:
        return np.asarray(x != 0)
    if to is dtypes.FLOAT8E8M0:
        return _to_float8e8m0(x, saturate, round_mode)
    if to in _FLOAT8:
        x = x.astype(np.float32, copy=False) if x.dtype != np.float64 else x
        return (np.clip(x, -_FLOAT8_MAX[to], _FLOAT8_MAX[to]) if saturate else x).astype(to.numpy)
    if to.is_packed and to.is_integer:
        low_bits = x.astype(np.int64).astype(np.uint8) & np.uint8((1 << to.bits) - 1)
        return codes_to_elements(np.asarray(low_bits), to)
    if to.is_packed:
        x = x.astype(np.float32, copy=False)
    return x.astype(to.numpy)


def _cast_to_code(x: Array, *, to: int, saturate: int | None, round_mode: str | None) -> Array:
    return cast(x, dtypes.from_onnx(to), saturate != 0, round_mode or "up")


def _named_type(name: str) -> DType:
    for dtype in dtypes.ALL:
        if name.upper() in ("DOUBLE" if dtype is dtypes.FLOAT64 else dtype.ort.upper(), dtype.name.upper()):
            return dtype
    raise ValueError(f"to is {name!r}: expected the name of an element type, such as 'FLOAT'")


def infer_cast(ctx: InferContext) -> InferResult:
    """The shape of the input, with the element type of the attribute `to`."""
    to = ctx.attr("to")
    return TensorType(_named_type(to) if isinstance(to, str) else dtypes.from_onnx(to), ctx.shape(0))


def _cast_like(x: Array, target: Array, *, saturate: int | None, round_mode: str | None) -> Array:
    return cast(x, dtypes.from_numpy(target.dtype), saturate != 0, round_mode or "up")


def _bit_cast(x: Array, *, to: int) -> Array:
    source, target = dtypes.from_numpy(x.dtype), dtypes.from_onnx(to)
    if dtypes.STRING in (source, target):
        raise TypeError("strings have no bit pattern")
    if source.bits != target.bits:
        raise ValueError(f"{source} has {source.bits} bits but {target} has {target.bits}: the widths must agree")
    contiguous = np.ascontiguousarray(x).reshape(x.shape)
    if not source.is_packed:
        return contiguous.view(target.numpy)
    return codes_to_elements(np.asarray(contiguous.view(np.uint8) & np.uint8((1 << source.bits) - 1)), target)


CAST_1 = op("Cast", eval=lambda x, *, to: cast(x, _named_type(to)), infer=infer_cast, traits=Trait.ELEMENTWISE)
CAST = op("Cast", eval=_cast_to_code, infer=infer_cast, traits=Trait.ELEMENTWISE, since=6)
CAST_LIKE = op("CastLike", eval=_cast_like, infer=same_as(0), since=15, traits=Trait.AHEAD)
BIT_CAST = op("BitCast", eval=_bit_cast, infer=infer_cast, traits=Trait.ELEMENTWISE, since=26)
