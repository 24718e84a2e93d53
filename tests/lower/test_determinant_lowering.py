"""Determinants: elimination in native code gives what a library gives in float64, inside of its buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded_session import guarded_feeds, guarded_memory
from model_text import model
from native_support import compile_native, host_nodes, run_native
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.determinant import LARGEST

KINDS: dict[str, Any] = {"float": np.float32, "double": np.float64}


def determinants(x: Array, kind: str, target: str = "") -> Array:
    sizes = ",".join([*(f"N{axis}" for axis in range(x.ndim - 2)), str(x.shape[-1]), str(x.shape[-1])])
    results = ",".join(f"N{axis}" for axis in range(x.ndim - 2))
    shape = f"[{results}]" if results else ""
    graph, compiled = compile_native(model(f"({kind}[{sizes}] x) => ({kind}{shape} y) {{ y = Det (x) }}", 22), target=target)
    assert host_nodes(compiled) == []
    with guarded_memory() as guard:
        (found,) = run_native(graph, compiled, guarded_feeds(guard, {"x": x}))
    assert found.dtype == x.dtype
    assert found.shape == x.shape[:-2]
    determinant: Array = found
    return determinant


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(list(KINDS)),
    size=st.integers(0, 40) | st.sampled_from([64, 100, LARGEST]),
    batch=st.lists(st.integers(0, 4), max_size=2),
    target=st.sampled_from(["", "x86-64-v3", "x86-64-v2"]),
)
def test_determinants_agree_with_a_library(seed: int, kind: str, size: int, batch: list[int], target: str) -> None:
    rng = np.random.default_rng(seed)
    # Elements of a size that keeps the determinant of a large matrix among the numbers of its type
    x: Array = (rng.normal(size=(*batch, size, size)) / max(size / 2.7, 1) ** 0.5).astype(KINDS[kind])
    if size > 2 and x.size and seed % 3 == 0:
        x[..., 0, :] = 0 if seed % 2 else x[..., 1, :]  # no inverse
    found, exact = determinants(x, kind, target), np.linalg.det(x.astype(np.float64))
    scale = np.prod(np.linalg.norm(x.astype(np.float64), axis=-1), axis=-1)  # no determinant is larger
    limit = np.finfo(KINDS[kind]).eps * (size + 1) * scale + np.finfo(KINDS[kind]).tiny
    assert (np.abs(found - exact) <= limit).all()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0, 1], [1, 0]], -1.0),
        ([[0, 0], [0, 0]], 0.0),
        ([[0, 2, 0], [0, 0, 3], [4, 0, 0]], 24.0),
        ([[np.nan, 1], [1, 1]], np.nan),
        ([[1, np.nan], [1, 1]], np.nan),
        ([[np.inf, 0], [0, 1]], np.inf),
        ([[1e-320, 0], [0, 1e300]], 1e-320 * 1e300),
        ([[5.0]], 5.0),
    ],
)
def test_determinants_of_special_matrices(rows: Any, expected: float) -> None:
    np.testing.assert_allclose(determinants(np.array(rows, np.float64), "double"), expected, rtol=1e-12)


@pytest.mark.parametrize("sizes", ["N,M", f"{LARGEST + 1},{LARGEST + 1}"])
def test_large_matrices_and_open_sizes_are_left_to_a_library(sizes: str) -> None:
    _, compiled = compile_native(model(f"(float[{sizes}] x) => (float y) {{ y = Det (x) }}", 22))
    assert host_nodes(compiled) == ["Det"]
