"""Numbers looked up among many keys that lie far apart: a table of slots, each key at the first free one from its hash on.

    keys 7, -3, 10**12 with values a, b, c, default d    =>    slots [-, 10**12, -, 7, -3, -, -, -]
                                                               values [d, c, d, a, b, d, d, d]

An element is compared with the slots from its hash on until one has its bits or is empty; the value there is the result, so that
empty slots have the default. Empty is a number that is no key. Bits are those of the element as an integer of 64 bits: of a zero
those of +0, of a NaN those of one NaN.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult

FACTOR: Final = 0x9E3779B97F4A7C15  # of the hash: its highest bits are the first slot
NAN_BITS: Final = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000}
_EMPTY: Final = 0x5A5D1E995C5EED01


def key_bits(x: Array) -> Array:
    """The bits that elements are compared by."""
    if x.dtype.kind != "f":
        return x.astype(np.int64)
    x = np.where(np.isnan(x), x.dtype.type(np.nan), x + x.dtype.type(0))
    return x.view(np.uint32).astype(np.int64) if x.dtype == np.float32 else x.view(np.int64)


def first_slots(bits: Array, size: int) -> Array:
    """Where the search for each element starts in so many slots, a power of two."""
    hashes = bits.view(np.uint64) * np.uint64(FACTOR)
    return (hashes >> np.uint64(65 - size.bit_length())).astype(np.int64)


def slots_of(keys: Array, values: Array, default: Any) -> tuple[Array, Array, int]:
    """The slots of keys, the values at them, and what is in empty slots; of equal keys the first counts."""
    bits, firsts = np.unique(key_bits(keys), return_index=True)
    known = set(bits.tolist())
    empty = next(number for number in range(_EMPTY, _EMPTY + len(known) + 1) if number not in known)
    size = 1 << max(1, (4 * len(bits) - 1).bit_length())
    slots = np.full(size, empty, np.int64)
    table = np.full(size, default, values.dtype)
    wanted, waiting = first_slots(bits, size), np.arange(len(bits))
    while len(waiting):
        free = waiting[slots[wanted[waiting]] == empty]
        taken, winners = np.unique(wanted[free], return_index=True)
        placed = free[winners]
        slots[taken], table[taken] = bits[placed], values[firsts[placed]]
        waiting = np.setdiff1d(waiting, placed, assume_unique=True)
        wanted[waiting] = (wanted[waiting] + 1) & (size - 1)
    return slots, table, empty


def _key_lookup(x: Array, slots: Array, values: Array, *, empty: int) -> Array:
    bits, size = key_bits(x), len(slots)
    at = first_slots(bits, size)
    for _ in range(size):
        found = slots[at]
        missed = (found != bits) & (found != empty)
        if not missed.any():
            break
        at = np.where(missed, (at + 1) & (size - 1), at)
    return np.asarray(values[at])


def _infer_key_lookup(ctx: InferContext) -> InferResult:
    values = ctx.type(2)
    return TensorType(values.dtype, ctx.shape(0)) if isinstance(values, TensorType) else None


op("KeyLookup", domain="sardonyx", eval=_key_lookup, infer=_infer_key_lookup, traits=Trait.QUIET)
