"""Strips of keys that masks hide from blocks of queries are left out, and nobody can tell: against the NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from native_support import assert_native_agrees
from sardonyx.ir.tensor import Array

LOW = float(np.finfo(np.float32).min)


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def shown(kind: str, queries: int, keys: int, edge: int) -> Array:
    """Which keys each query sees."""
    query, key = np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None]
    seen: dict[str, Array] = {
        "end": np.broadcast_to(key < edge, (queries, keys)),
        "start": np.broadcast_to(key >= edge, (queries, keys)),
        "causal": key <= query,
        "window": (key <= query) & (key > query - edge),
        "holes": (key // 70 + query // 20) % 3 == edge % 3,
        "none": np.broadcast_to(key < 0, (queries, keys)),
        "some rows": np.broadcast_to(query % 5 != 1, (queries, keys)) & (key < edge),
    }
    return seen[kind]


def check(arrays: dict[str, Array], *, target: str = "", **attrs: Any) -> None:
    names = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    graph = helper.make_graph(
        [helper.make_node("Attention", list(arrays), ["y"], **attrs)],
        "masked",
        [helper.make_tensor_value_info(name, code, arrays[name].shape) for name, code in names.items()],
        [helper.make_tensor_value_info("y", names["q"], None)],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString()
    feeds = {name: guarded(array) for name, array in arrays.items()}
    tolerance = 2e-5 if arrays["q"].dtype == np.float32 else 1e-11
    with np.errstate(invalid="ignore", over="ignore"):
        assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance, target=target)


KINDS = st.sampled_from(["end", "start", "causal", "window", "holes", "none", "some rows"])
ODD = st.sampled_from(["", "infinite value", "nan value", "nan key", "infinite key", "nan query", "huge keys", "large keys"])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(6, 60), st.integers(1, 700), st.integers(1, 40), KINDS, st.integers(0, 700),
    st.sampled_from([-np.inf, LOW, -1e4, -150.0, -60.0]), ODD, st.booleans(), st.integers(0, 3),
)  # fmt: skip
def test_masks_that_hide_keys_agree(
    queries: int, keys: int, size: int, kind: str, edge: int, low: float, odd: str, is_bool: bool, seed: int
) -> None:
    k, v, q = (
        numbers(1, 2, keys, size, seed=seed),
        numbers(1, 2, keys, size + 3, seed=seed),
        numbers(1, 2, queries, size, seed=seed),
    )
    where = edge % keys
    if odd.endswith("value"):
        v[0, 1, where, 0] = np.nan if odd == "nan value" else np.inf
    elif odd.endswith("key"):
        k[0, 1, where, 0] = np.nan if odd == "nan key" else -np.inf
    elif odd == "nan query":
        q[0, 0, edge % queries, 0] = np.nan
    elif odd == "huge keys":
        k[0, 0, where] = 1e30
    elif odd == "large keys":  # products as large as what the mask adds
        k *= np.float32(40)
    seen = shown(kind, queries, keys, edge)[None, None].copy()
    if odd.endswith(("key", "query")):
        seen[..., 0] = True  # a row of which nothing is seen is zeros by definition, where it is NaN here
    mask = seen if is_bool else np.where(seen, numbers(1, 1, queries, keys, seed=1), np.float32(low))
    if low == LOW and not is_bool and odd in ("nan key", "infinite key", "huge keys"):
        low = -np.inf  # rounding decides between the lowest number and minus infinity
        mask = np.where(seen, np.float32(0), np.float32(low))
    check({"q": q, "k": k, "v": v, "mask": mask})


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("kind", ["end", "causal", "window"])
def test_other_vectors_agree(target: str, kind: str) -> None:
    seen = shown(kind, 50, 330, 100)[None, None]
    arrays = {"q": numbers(1, 2, 50, 24), "k": numbers(1, 2, 330, 24), "v": numbers(1, 2, 330, 24)}
    check({**arrays, "mask": np.where(seen, np.float32(0), np.float32(-1e4))}, target=target)


def test_double_precision_agrees() -> None:
    seen = shown("causal", 100, 300, 0)[None, None]
    arrays = {name: numbers(1, 2, count, 24, dtype="float64") for name, count in (("q", 100), ("k", 300), ("v", 300))}
    check({**arrays, "mask": np.where(seen, 0.0, -500.0)})
    check({**arrays, "mask": np.where(seen, 0.0, -np.inf)}, softcap=5.0)


def test_a_mask_for_each_batch_entry_and_head_agrees() -> None:
    arrays = {"q": numbers(2, 4, 30, 16), "k": numbers(2, 2, 500, 16), "v": numbers(2, 2, 500, 16)}
    mask = np.zeros((2, 4, 30, 500), np.float32)
    for entry in range(2):
        for head in range(4):
            mask[entry, head, :, 100 * head + 40 * entry :] = -np.inf
    check({**arrays, "mask": mask})
