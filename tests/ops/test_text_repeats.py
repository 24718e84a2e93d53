"""Texts that repeat are computed once, n-grams of integers by tables: the same results as one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import sardonyx as sx
from sardonyx.ir.tensor import Array
from sardonyx.ops.text.repeats import distinct_texts

TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def _run(x: Array, op: str, domain: str = "", **attributes: Any) -> Array:
    kind = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], domain=domain, **attributes)],
        "texts",
        [helper.make_tensor_value_info("x", kind, [None] * x.ndim)],
        [helper.make_empty_tensor_value_info("y")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    (result,) = sx.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    found: Array = result
    return found


def _texts(count: int, words: list[str]) -> Array:
    chosen = np.random.default_rng(0).integers(0, len(words), count)
    return np.array([words[number] for number in chosen], object)


@given(st.lists(st.sampled_from(["", "a", "b\0", "é", "日本", "a b"]), max_size=600))
@settings(max_examples=20, deadline=None)
def test_distinct_texts_and_their_numbers(texts: list[str]) -> None:
    found = distinct_texts(texts)
    if found is None:
        return
    distinct, numbers = found
    assert len(set(distinct)) == len(distinct)
    assert [distinct[number] for number in numbers] == texts


def test_texts_that_do_not_repeat_are_left_alone() -> None:
    assert distinct_texts([str(number) for number in range(1000)]) is None
    assert distinct_texts(["a"] * 100) is None


@pytest.mark.parametrize("words", [["", "w1x", "é12", "日本", "w22x"], [f"w{number}x" for number in range(5000)]])
def test_hashes_and_matches_of_many_texts_are_those_of_each(words: list[str]) -> None:
    x = _texts(3000, words)
    hashes, matches = _run(x, "MurmurHash3", "com.microsoft", positive=1), _run(x, "RegexFullMatch", pattern="w[0-9]+x")
    one_by_one = [_run(x[at : at + 1], "MurmurHash3", "com.microsoft", positive=1)[0] for at in range(0, 3000, 97)]
    np.testing.assert_array_equal(hashes[::97], one_by_one)
    np.testing.assert_array_equal(matches, [text.startswith("w") for text in x])


@given(data=st.data(), dtype=st.sampled_from(TYPES))
@settings(max_examples=60, deadline=None)
def test_integers_as_texts(data: st.DataObject, dtype: Any) -> None:
    limits = np.iinfo(dtype)
    middle = data.draw(st.sampled_from([int(limits.min), int(limits.max), 0, 7]))
    spread = data.draw(st.sampled_from([1, 20, 1 << 40]))
    values = data.draw(st.lists(st.integers(max(limits.min, middle - spread), min(limits.max, middle + spread)), max_size=60))
    x = np.array(values, dtype)
    assert _run(x, "Cast", to=TensorProto.STRING).tolist() == [str(value) for value in values]


@pytest.mark.parametrize("dtype", TYPES)
def test_all_small_integers_as_texts(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = np.arange(max(limits.min, -300), min(limits.max, 300), dtype=dtype).repeat(2)
    assert _run(x, "Cast", to=TensorProto.STRING).tolist() == [str(value) for value in x.tolist()]


def test_truth_values_as_texts() -> None:
    x = np.array([[True, False], [False, True]])
    assert _run(x, "Cast", to=TensorProto.STRING).tolist() == [["1", "0"], ["0", "1"]]


@given(
    tokens=st.lists(st.integers(-3, 9), min_size=1, max_size=40),
    far=st.sampled_from([0, 1 << 40]),
    skips=st.integers(0, 2),
    mode=st.sampled_from(["TF", "IDF"]),
    dtype=st.sampled_from([np.int32, np.int64]),
)
@settings(max_examples=60, deadline=None)
def test_counts_of_integers_and_pairs(tokens: list[int], far: int, skips: int, mode: str, dtype: Any) -> None:
    """`far` is a token that no table reaches."""
    single = [1, 5, 8, *([far] if far else [])]
    pairs = [(1, 1), (5, 8), (2, 3)]
    x = np.array(tokens, dtype)
    pool = [*single, *(token for pair in pairs for token in pair)]
    columns = list(range(len(single) + len(pairs)))[::-1]
    sizes: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": skips}
    found = _run(x, "TfIdfVectorizer", mode=mode, ngram_indexes=columns, pool_int64s=pool, ngram_counts=[0, len(single)], **sizes)
    grams = [*zip(tokens), *pairwise(tokens)]
    grams += [gram for skip in range(2, skips + 2) for gram in zip(tokens, tokens[skip:])]
    counts = [grams.count(gram) for gram in (*((token,) for token in single), *pairs)][::-1]
    np.testing.assert_array_equal(found, np.minimum(counts, 1) if mode == "IDF" else counts)


def test_distinct_texts_are_in_order() -> None:
    words = ["b", "a", "é", "", "日本", "B"]
    x = _texts(500, words)
    graph = helper.make_graph(
        [helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"])],
        "unique",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [None])],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "first", "inverse", "counts")],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    y, first, inverse, counts = sx.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert y.tolist() == sorted(words)
    assert y[inverse].tolist() == x.tolist()
    assert first.tolist() == [x.tolist().index(word) for word in y]
    assert counts.tolist() == [x.tolist().count(word) for word in y]
