"""LRN against the NumPy meaning of the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from model_text import model
from native_support import assert_native_agrees

TYPES: dict[str, Any] = {"float": np.float32, "double": np.float64, "float16": np.float16}


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.sampled_from([(2, 7, 5, 6), (1, 3, 70), (1, 40, 3, 4, 5), (0, 3, 4, 4), (1, 1, 2, 2), (1, 5, 0, 3)]),
    st.integers(1, 9),
    st.sampled_from([0.75, 0.5, 1.0, 0.6]),
    st.booleans(),
    st.booleans(),
)
def test_neighbouring_channels(kind: str, shape: tuple[int, ...], size: int, beta: float, symbolic: bool, special: bool) -> None:
    x = (np.random.default_rng(0).standard_normal(shape) * 3).astype(TYPES[kind])
    if special and x.size > 8:
        x.reshape(-1)[[0, 4, 7]] = np.nan, np.inf, -np.inf
    sizes = ",".join(f"D{axis}" if symbolic else str(length) for axis, length in enumerate(shape))
    graph = f"({kind}[{sizes}] x) => ({kind}[a] y) {{ y = LRN<size={size}, alpha=0.3, beta={beta}, bias=1.5>(x) }}"
    tolerance = 2e-3 if kind == "float16" else 1e-5
    assert_native_agrees(model(graph), {"x": guarded(x)}, rtol=tolerance, atol=tolerance)
