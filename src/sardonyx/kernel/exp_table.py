"""e**-x by a table of 32 powers that two registers hold, where the machine looks words up in them.

    e**-x = 2**(n / 32) * e**-s      n = -32 x / ln 2, rounded; s = x + n ln 2 / 32, at most ln 2 / 64
          = 2**(n // 32) * table[n % 32] * (1 - s + s * s / 2)

Against a polynomial over ln 2 / 2 that is two multiplications less of eight. They compete with those of convolutions, whose
epilogues compute SiLU; looking up does not.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from sardonyx.kernel import math_tables as tables
from sardonyx.kernel.expr import Expr, binary, fma, lift, word_looked_up

_STEPS: Final = 32  # of a power of two
_SHIFT: Final = 18  # where the last bit of n lies in the exponent and fraction of a float: 23 - 5
_MAGIC: Final = 1.5 * 2.0**23  # a number whose last place is 1
_LEAST: Final = -128 * math.log(2)  # e**-x is infinity here: the table's first entry with the largest exponent
_MOST: Final = 87.0  # e**-x is lost beside 1 long before, and a normal number still
# s**3 / 6 is nearly a multiple of s within ln 2 / 64: three quarters of the square of that, by Chebyshev.
_SLOPE: Final = 1 + (math.log(2) / (2 * _STEPS)) ** 2 / 8


def _entry(number: int) -> int:
    """The bits of 2**(number / 32), less what the number itself adds to them."""
    (bits,) = struct.unpack("<I", struct.pack("<f", 2.0 ** (number / _STEPS)))
    return int(bits) - (number << _SHIFT)


_POWERS: Final = tuple(_entry(number) for number in range(_STEPS))


def one_and_exp_by_table(x: Expr) -> Expr:
    """1 + e**-x of an f32; infinity from e**88.72 on, 1 below e**-87, NaN stays."""
    x = binary("minr", lift(_MOST, "f32"), binary("maxr", lift(_LEAST, "f32"), x))
    shifted = fma(x, -_STEPS / math.log(2), _MAGIC)
    n = shifted - _MAGIC
    high, low = (part / _STEPS for part in tables.LN2_32)
    s = fma(n, low, fma(n, high, x))
    rest = fma(fma(s, 0.5, -_SLOPE), s, 1.0)
    bits = shifted.bitcast("u32")
    power = word_looked_up(bits, _POWERS) + (bits << _SHIFT)
    return fma(power.bitcast("f32"), rest, 1.0)
