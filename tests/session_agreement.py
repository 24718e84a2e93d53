"""Do two sessions give the same? The same results up to rounding, or an error in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sardonyx
from sardonyx.errors import SardonyxError

REFERENCE = ["SardonyxReferenceExecutionProvider"]
NATIVE = ["CPUExecutionProvider"]
TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1.5e-1}


def session(
    content: bytes, *, threads: int = 1, level: Any = None, disabled: Sequence[str] = (), providers: Sequence[str] = NATIVE
) -> sardonyx.InferenceSession:
    """A session with a number of threads and an optimization level."""
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    if level is not None:
        options.graph_optimization_level = level
    return sardonyx.InferenceSession(content, options, providers=list(providers), disabled_optimizers=list(disabled))


def outcome(
    opened: sardonyx.InferenceSession, feeds: Mapping[str, Any], fetches: Sequence[str] | None = None
) -> list[Any] | None:
    """The results, or None for an error that the project means to raise; anything else is a bug and passes on."""
    try:
        results: list[Any] = opened.run(fetches, dict(feeds))
    except SardonyxError:
        return None
    return results


def difference(
    actual: Any, expected: Any, loosest: str = "float64", tolerances: Mapping[str, float] = TOLERANCE, least: float = 1.0
) -> str:
    """What differs between two results; "" if they agree up to rounding.

    Floats may differ by a fraction of the largest number around, or of `least` if that is larger. `loosest` is the narrowest
    float type that values on the way had: its rounding is what can be expected.
    """
    if isinstance(expected, list):
        pairs = zip(actual, expected)
        return next((text for text in (difference(a, e, loosest, tolerances, least) for a, e in pairs) if text), "")
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if expected.dtype.name not in TOLERANCE:
        wrong = (actual != expected) & ((actual == actual) | (expected == expected))  # NaN of small floats is NaN
    else:
        ours, theirs = actual.astype(np.float64), expected.astype(np.float64)
        tolerance = max(tolerances[expected.dtype.name], tolerances[loosest])
        finite = theirs[np.isfinite(theirs)]
        scale = max(float(np.abs(finite).max(initial=0.0)), least)
        with np.errstate(invalid="ignore"):
            close = np.abs(ours - theirs) <= tolerance * scale
        wrong = ~(close | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    if not wrong.any():
        return ""
    place = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
    found, wanted = np.atleast_1d(actual)[place], np.atleast_1d(expected)[place]
    return f"{int(wrong.sum())} of {wrong.size} differ, first at {place}: {found} instead of {wanted}"


def same_bits(first: Sequence[Any] | None, second: Sequence[Any] | None) -> bool:
    """Whether two outcomes are the same to the last bit; only NaN is NaN, whatever its sign.

    What a processor makes of 0 / 0 has another sign than what NumPy does, and a program that is made for the sizes of a run folds
    by NumPy what another computes.
    """
    if first is None or second is None:
        return first is second
    return all(a.dtype == b.dtype and a.shape == b.shape and _bits(a) == _bits(b) for a, b in zip(first, second))


def _bits(array: Any) -> bytes:
    if array.dtype.name not in TOLERANCE:
        return bytes(array.tobytes())
    return bytes(np.where(np.isnan(array), np.ones((), array.dtype), array).tobytes())
