"""One-hot encoders that must know each element: native like the others, and they refuse what their definition refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classical_support import assert_classical_agrees, expanded, ml_model
from guarded_session import guarded_feeds, guarded_memory
from native_support import compile_native, run_native
from sardonyx import InferenceSession, errors

few = settings(max_examples=20, deadline=None)


@few
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["int64", "int32", "float32", "float64"]), count=st.integers(1, 40))
def test_encoders_that_know_every_element_agree_with_their_definition(seed: int, kind: str, count: int) -> None:
    rng = np.random.default_rng(seed)
    categories = rng.permutation(np.unique(rng.integers(-50, 50, count)))
    if kind == "int64":
        categories = np.concatenate([categories, [np.iinfo(np.int64).min, np.iinfo(np.int64).max]])
    feeds = [{"x": rng.choice(categories, (rows, 3)).astype(kind)} for rows in (1, 9, 0, 100)]
    content = ml_model("OneHotEncoder", feeds[0], version=1, cats_int64s=categories.tolist(), zeros=0)
    assert_classical_agrees(content, feeds, tolerance=0)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_other_machines_encode_alike(target: str) -> None:
    feeds = [{"x": np.arange(30).reshape(10, 3)}]
    content = ml_model("OneHotEncoder", feeds[0], version=1, cats_int64s=list(range(30)), zeros=0)
    assert_classical_agrees(content, feeds, tolerance=0, target=target)


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 17])
def test_encoders_touch_nothing_outside_their_buffers(count: int, at_start: bool) -> None:
    x = np.arange(2 * count).reshape(-1, 1) % count
    content = ml_model("OneHotEncoder", {"x": x}, version=1, cats_int64s=list(range(count)), zeros=0)
    graph, compiled = compile_native(expanded(content)[0])
    with guarded_memory(at_start=at_start) as guard:
        (found,) = run_native(graph, compiled, guarded_feeds(guard, {"x": x}))
    assert found.tolist() == (x[..., None] == np.arange(count)).astype(np.float32).tolist()


@pytest.mark.parametrize("bad", [0, 5, -1])
def test_an_integer_that_is_no_category_is_named(bad: int) -> None:
    good = {"x": np.array([[3], [4]])}
    session = InferenceSession(ml_model("OneHotEncoder", good, version=1, cats_int64s=[4, 3], zeros=0).SerializeToString())
    assert session.run(None, good)[0].tolist() == [[[0, 1]], [[1, 0]]]
    with pytest.raises(errors.SardonyxError, match=f"{bad} is none of the 2 categories, and zeros is 0"):
        session.run(None, {"x": np.array([[3], [bad], [9]])})
    assert session.run(None, good)[0].tolist() == [[[0, 1]], [[1, 0]]]


@pytest.mark.parametrize("kind", [object, np.str_])
def test_a_text_that_is_no_category_is_refused(kind: Any) -> None:
    good = {"x": np.array([["red"], ["blue"]], kind)}
    content = ml_model("OneHotEncoder", {"x": good["x"].astype(object)}, version=1, cats_strings=["blue", "red"], zeros=0)
    session = InferenceSession(content.SerializeToString())
    assert session.run(None, good)[0].tolist() == [[[0, 1]], [[1, 0]]]
    with pytest.raises(errors.SardonyxError, match="a text is none of the 2 categories, and zeros is 0"):
        session.run(None, {"x": np.array([["red"], ["green"]], kind)})
