"""Names of new values, of the form that ONNX Runtime gives them."""

from __future__ import annotations

import itertools

_numbers = itertools.count(1)


def fresh_name(token: str) -> str:
    """A name nobody uses."""
    return f"onnx::{token}::{next(_numbers)}"
