"""Words of texts counted natively: the counts that Python finds, for whatever is in an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.ops.ml.token_counts import ANY_CHARACTER, TokenCounter
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.word_calls import word_counts_call

WORDS = ["ab", "a", "b", "ba", "abba", "é", "zz", "a" * 70, "B", "Ab"]
TEXT = st.one_of(
    st.lists(st.sampled_from([*WORDS, "c", "cc", ",", ";a", "\0", "ab\0b"]), max_size=12).map(" ".join),
    st.text("ab ,_é", max_size=20),
    st.text("abAB", max_size=80),
)


@st.composite
def counters(draw: Any, words: list[str], characters: str) -> TokenCounter:
    sequences = draw(st.lists(st.lists(st.sampled_from(words), min_size=1, max_size=3), min_size=1, max_size=8, unique_by=tuple))
    columns = draw(st.permutations(range(len(sequences) + 2)))[: len(sequences)]
    flat = [word for sequence in sequences for word in sequence]
    case = draw(st.sampled_from(["", "NONE", "LOWER", "UPPER"]))
    least = 1 if characters == ANY_CHARACTER else draw(st.integers(1, 3))
    return TokenCounter(characters, least, flat, columns, [len(sequence) for sequence in sequences], case)


def assert_counted(pool: Pool, counter: TokenCounter, texts: list[str]) -> None:
    count = word_counts_call(pool.native_function, counter.tables())
    assert count is not None
    objects = np.array(texts, object).reshape(-1, 1)
    for given_texts in (objects, objects.astype(str)):
        found, wanted = count(given_texts), counter(given_texts)
        if found is None:
            assert not texts or not "".join(texts).isascii()
            continue
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)


@settings(max_examples=200, deadline=None)
@given(counter=counters(WORDS, "a-zA-Z"), texts=st.lists(TEXT, max_size=8))
def test_words_and_sequences_are_counted_as_python_counts_them(pool: Pool, counter: TokenCounter, texts: list[str]) -> None:
    assert_counted(pool, counter, texts)


@settings(max_examples=200, deadline=None)
@given(counter=counters(["a", "b", " ", "A", ",", "é"], ANY_CHARACTER), texts=st.lists(TEXT, max_size=8))
def test_characters_are_counted_as_python_counts_them(pool: Pool, counter: TokenCounter, texts: list[str]) -> None:
    assert_counted(pool, counter, texts)


def test_long_texts_of_many_words_are_counted(pool: Pool) -> None:
    random = np.random.default_rng(0)
    words = [f"word{number}" for number in range(400)]
    pairs = [word for _ in range(900) for word in random.choice(words, 2)]
    unique_pairs = list(dict.fromkeys(zip(pairs[::2], pairs[1::2])))
    flat = [*words, *(word for pair in unique_pairs for word in pair)]
    lengths = [1] * len(words) + [2] * len(unique_pairs)
    counter = TokenCounter("a-z0-9", 2, flat, list(range(len(lengths))), lengths)
    texts = [" ".join(random.choice([*words, "x", "unknown"], 60)) for _ in range(50)]
    assert_counted(pool, counter, texts)


def test_what_is_no_array_of_ascii_texts_is_left_to_python(pool: Pool) -> None:
    counter = TokenCounter("a-z", 1, ["cat", "dog"], [0, 1])
    count = word_counts_call(pool.native_function, counter.tables())
    assert count is not None
    for texts in (["cat", "é"], ["cat", 3], ["cat", None]):
        assert count(np.array(texts, object)) is None
    assert count(np.array(["cat", "é"])) is None
    assert count(np.array([1.0, 2.0])) is None
    assert count(np.array([], object)) is None
    assert count(np.array(["cat", "dog", "cat", "dog"], object)[::2]) is None


def test_sequences_of_very_many_words_are_left_to_python(pool: Pool) -> None:
    counter = TokenCounter("a-z", 1, ["cat"] * 9, [0], [9])
    assert word_counts_call(pool.native_function, counter.tables()) is None
