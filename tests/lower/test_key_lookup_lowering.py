"""Keys looked up in tables of slots: as dictionaries find them, whatever the keys, and inside of their buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classical_support import assert_classical_agrees, expanded, ml_model
from guarded_session import guarded_feeds, guarded_memory
from native_support import compile_native, run_native
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import Array
from sardonyx.ops import registry
from sardonyx.ops.ml.key_lookup import first_slots, key_bits, slots_of

few = settings(max_examples=25, deadline=None)
TYPES = ("int64", "int32", "int16", "float32", "float64")


def keys_of(rng: np.random.Generator, kind: str, count: int) -> Array:
    """Keys far apart, in no order, some of them twice, with the edges of the type."""
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        found = (rng.normal(size=count) * 10.0 ** rng.integers(-20, 20, count)).astype(dtype)
        return np.concatenate([found, found[:3], np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.nan], dtype)])
    edges = np.iinfo(dtype)
    found = rng.integers(edges.min, edges.max, count, dtype, endpoint=True)
    return np.concatenate([found, found[:3], np.array([edges.min, edges.max, 0], dtype)])


def looked_up(x: Array, slots: Array, values: Array, empty: int) -> Array:
    definition = registry.lookup("sardonyx", "KeyLookup", 1)
    assert definition is not None
    ctx = registry.EvalContext(version=1, outputs=(True,))
    (found,) = registry.call(definition, [x, slots, values], {"empty": empty}, ctx)
    return found  # type: ignore[no-any-return]


@few
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(TYPES), count=st.integers(1, 300))
def test_slots_find_what_a_dictionary_finds(seed: int, kind: str, count: int) -> None:
    rng = np.random.default_rng(seed)
    keys = keys_of(rng, kind, count)
    slots, values, empty = slots_of(keys, np.arange(len(keys)), -1)
    known: dict[int, int] = {}
    for number, bits in enumerate(key_bits(keys).tolist()):
        known.setdefault(bits, number)
    others = rng.permutation(np.concatenate([keys, keys_of(rng, kind, 50), key_bits(slots[:5]).astype(keys.dtype)]))
    expected = [known.get(bits, -1) for bits in key_bits(others).tolist()]
    assert looked_up(others, slots, values, empty).tolist() == expected
    assert (slots == empty).sum() >= len(slots) // 2
    assert first_slots(key_bits(others), len(slots)).max() < len(slots)


@few
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(TYPES), value=st.sampled_from(TYPES), version=st.sampled_from([3, 4]))
def test_encoders_of_many_keys_agree_with_their_definition(seed: int, kind: str, value: str, version: int) -> None:
    rng = np.random.default_rng(seed)
    if version == 3:  # its types are those of attributes
        kind = {"int": "int64", "flo": "float32"}[kind[:3]]
        value = {"int": "int64", "flo": "float32"}[value[:3]]
    keys = keys_of(rng, kind, int(rng.integers(50, 400)))
    values = rng.integers(-1000, 1000, len(keys)).astype(value)
    attrs: dict[str, Any] = {"keys_tensor": keys, "values_tensor": values, "default_tensor": np.array([-7], value)}
    if version == 3:
        names = {"int64": "int64s", "float32": "floats"}
        attrs = {f"keys_{names[kind]}": keys.tolist(), f"values_{names[value]}": values.tolist()}
    x = rng.permutation(np.concatenate([keys, keys_of(rng, kind, 40)]))
    feeds = [{"x": x[:count].reshape(-1, 1)} for count in (1, 37, len(x), 0)]
    assert_classical_agrees(ml_model("LabelEncoder", feeds[0], version=version, **attrs), feeds, tolerance=0)


def test_ten_thousand_keys_far_apart_are_native() -> None:
    keys = np.unique(np.random.default_rng(0).integers(-(2**62), 2**62, 10_000))
    attrs: dict[str, Any] = {"keys_int64s": keys.tolist(), "values_floats": np.arange(len(keys), dtype=np.float32).tolist()}
    feeds = [{"x": np.concatenate([keys[::7], keys[::3] + 1]).reshape(-1, 1)}]
    assert_classical_agrees(ml_model("LabelEncoder", feeds[0], **attrs), feeds, tolerance=0)


def lookup_graph(kind: str) -> tuple[Model, Array]:
    keys = keys_of(np.random.default_rng(1), kind, 100)
    attrs: dict[str, Any] = {"keys_tensor": keys, "values_tensor": np.arange(len(keys)), "default_tensor": np.array([-1])}
    content = ml_model("LabelEncoder", {"x": keys.reshape(-1, 1)}, version=4, **attrs)
    return expanded(content)[0], keys


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_lookups_touch_nothing_outside_their_buffers(kind: str, at_start: bool) -> None:
    made, keys = lookup_graph(kind)
    graph, compiled = compile_native(made)
    for count in (1, 5, len(keys)):
        with guarded_memory(at_start=at_start) as guard:
            run_native(graph, compiled, guarded_feeds(guard, {"x": keys[:count].reshape(-1, 1)}))


def test_a_search_in_slots_that_are_all_taken_ends() -> None:
    found = looked_up(np.array([99, 3]), np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40]), 7)
    assert found[1] == 30
