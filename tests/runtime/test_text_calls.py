"""Texts looked up and hashed natively: the same numbers as Python finds, for whatever is in an array."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

import sardonyx
from native_texts import objects
from sardonyx.ops.ml.text_lookup import TextLookup
from sardonyx.ops.text.contrib_text import hashed_texts
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.text_calls import hashes_call, positions_call

TEXT = st.text(max_size=12)
ENCODABLE = st.text(st.characters(codec="utf-8"), max_size=20)
KEYS = st.lists(TEXT, max_size=30)


@settings(max_examples=150, deadline=None)
@given(keys=KEYS, texts=st.lists(TEXT, max_size=40), data=st.data())
def test_texts_have_the_positions_that_python_finds(pool: Pool, keys: list[str], texts: list[str], data: Any) -> None:
    lookup = TextLookup(keys)
    find = positions_call(pool.native_function, lookup.numbers)
    assert find is not None
    mixed = data.draw(st.permutations([*texts, *keys]))
    wanted = [lookup.numbers.get(text, -1) for text in mixed]
    found = find(objects(mixed))
    assert found is not None
    assert found.dtype == np.int64
    assert found.tolist() == wanted
    fixed = np.array(mixed, str)
    by_row = find(fixed)
    assert by_row is not None
    assert by_row.tolist() == [lookup.numbers.get(text, -1) for text in fixed.tolist()]
    wider = fixed.astype(f"<U{fixed.dtype.itemsize // 4 + 3}")
    assert np.array_equal(find(wider), by_row)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(), (0,), (6,), (2, 3), (3, 1, 2), (0, 4)])
@pytest.mark.parametrize("kind", [object, "U"])
def test_positions_have_the_shape_of_the_texts(pool: Pool, shape: tuple[int, ...], kind: Any) -> None:
    find = positions_call(pool.native_function, {"a": 3, "bc": 5})
    assert find is not None
    texts = np.resize(np.array(["a", "bc", "", "b"]), shape).astype(kind)
    found = find(texts)
    assert found is not None
    assert found.shape == shape
    wanted = [{"a": 3, "bc": 5}.get(text, -1) for text in texts.reshape(-1).tolist()]
    assert found.reshape(-1).tolist() == wanted


def test_unpickled_arrays_are_looked_up(pool: Pool) -> None:
    find = positions_call(pool.native_function, {"a": 0, "bc": 1})
    assert find is not None
    for texts in (objects(["bc", "x", "a"]), np.array(["bc", "x", "a"])):
        unpickled = pickle.loads(pickle.dumps(texts))
        assert find(unpickled).tolist() == [1, -1, 0]  # type: ignore[union-attr]


def test_what_is_no_array_of_texts_is_left_to_python(pool: Pool) -> None:
    find = positions_call(pool.native_function, {"a": 0})
    hashes = hashes_call(pool.native_function, 0, is_positive=False)
    assert find is not None
    assert hashes is not None

    class Own(str):
        __slots__ = ()

        def __hash__(self) -> int:
            raise AssertionError("nobody may ask")

    class OwnArray(np.ndarray[Any, Any]):
        pass

    texts = objects(["a", "b", "a", "c"])
    others = [
        objects(["a", None]), objects(["a", 1]), objects([b"a"]), objects([np.str_("a")]), objects(["a", ["a"]]),
        np.zeros(3, np.float32), np.array([b"a"]), texts[::2], texts.reshape(2, 2).T, texts.view(OwnArray),
        np.empty(3, object), np.array(["a"]).astype(np.dtype(">U1")) if sys.byteorder == "little" else texts[::2],
        objects([Own("a")]),
    ]  # fmt: skip
    for other in others:
        assert find(other) is None
        assert hashes(other) is None
    assert hashes(objects(["\ud800"])) is None  # UTF-8 has nothing for it
    assert find(objects(["\ud800"])).tolist() == [-1]  # type: ignore[union-attr]
    assert find(texts).tolist() == [0, -1, 0, -1]  # type: ignore[union-attr]


def test_long_keys_and_zeros_at_the_end_are_looked_up(pool: Pool) -> None:
    keys = {"a" * 200: 0, "b\0": 1, "b": 2, "\0": 3, "": 4, "c\0d": 5}
    for known in (keys, {key: number for key, number in keys.items() if len(key) < 9}):
        find = positions_call(pool.native_function, known)
        assert find is not None
        texts = [*keys, "a" * 199, "b\0\0", "c"]
        assert find(objects(texts)).tolist() == [known.get(text, -1) for text in texts]  # type: ignore[union-attr]
        fixed = np.array(texts)
        found = find(fixed)
        assert found is None or found.tolist() == [known.get(text, -1) for text in fixed.tolist()]


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(ENCODABLE, max_size=20), seed=st.integers(0, 2**32 - 1))
def test_hashes_are_those_of_the_definition(pool: Pool, texts: list[str], seed: int) -> None:
    for is_positive in (False, True):
        hashes = hashes_call(pool.native_function, seed, is_positive=is_positive)
        assert hashes is not None
        found = hashes(objects(texts))
        assert found is not None
        assert found.dtype == (np.uint32 if is_positive else np.int32)
        np.testing.assert_array_equal(found.view(np.uint32), hashed_texts(objects(texts), seed))


def test_nothing_is_kept_and_nothing_is_lost(pool: Pool) -> None:
    keys = {f"key{number}": number + 1000 for number in range(20)}
    find = positions_call(pool.native_function, keys)
    hashes = hashes_call(pool.native_function, 0, is_positive=False)
    assert find is not None
    assert hashes is not None
    texts, bad, fixed = objects(["key1", "other"]), objects(["key1", None]), np.array(["key1", "other"])
    counted = [texts, bad, fixed, texts[0], keys["key1"], np.dtype(np.int64), np.dtype(np.int32), np.ndarray]
    before = [sys.getrefcount(each) for each in counted]
    for _ in range(200):
        for array in (texts, bad, fixed):
            find(array)
            hashes(array)
    after = [sys.getrefcount(each) for each in counted]
    assert all(abs(one - two) < 20 for one, two in zip(before, after)), (before, after)


def test_a_model_answers_the_same_for_all_kinds_of_texts() -> None:
    table = '<keys_strings = ["a", "bc"], values_floats = [1.5, 2.5], default_float = -1.0>'
    head = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> graph (string[N] x) => (float[N] y)'
    made = parser.parse_model(f"{head} {{ y = ai.onnx.ml.LabelEncoder {table} (x) }}")
    session = sardonyx.InferenceSession(made.SerializeToString())
    for _ in range(12):
        for texts in (objects(["a", "x", "bc"]), np.array(["a", "x", "bc"]), objects([np.str_("a"), "x", "bc"])):
            np.testing.assert_array_equal(session.run(None, {"x": texts})[0], [1.5, -1, 2.5])
