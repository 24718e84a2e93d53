"""Operators on text against onnxruntime (RE2 itself, for patterns) and by example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, by_reference, i64, known_shape, run, seeds, text

from sardonyx import dtypes
from sardonyx.ir.dims import symbol
from sardonyx.ir.types import TensorType
from sardonyx.ops.text.re2 import compile_re2

quick = settings(max_examples=30, deadline=None)


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("rows", [(), (1,)])
def test_stop_words_go_and_the_rest_changes_case(action: str, sensitive: int, rows: tuple[int, ...]) -> None:
    x = text("Monday", "monday", "Tuesday", "ÄRGER").reshape(*rows, 4)
    attrs: dict[str, Any] = {"case_change_action": action, "is_case_sensitive": sensitive, "stopwords": ["monday"]}
    result = run("StringNormalizer", x, version=10, **attrs)
    kept = [word for word in x.reshape(-1) if (word if sensitive else word.lower()) != "monday"]
    changes: dict[str, Any] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    assert result.shape == (*rows, len(kept))
    assert result.reshape(-1).tolist() == [changes[action](word) for word in kept]


def test_if_nothing_is_left_there_is_one_empty_string() -> None:
    assert run("StringNormalizer", text("a"), stopwords=["A"]).tolist() == [""]
    assert run("StringNormalizer", text("a").reshape(1, 1), stopwords=["a"]).tolist() == [[""]]
    assert run("StringNormalizer", text()).tolist() == [""]


def test_letters_without_a_single_other_case_stay() -> None:
    assert run("StringNormalizer", text("straße"), case_change_action="UPPER").tolist() == ["STRAßE"]


def test_normalizer_refuses_other_shapes_and_actions() -> None:
    with pytest.raises(ValueError, match=r"the input has shape \(2, 1\); expected \[C\] or \[1, C\]"):
        run("StringNormalizer", text("a", "b").reshape(2, 1))
    with pytest.raises(ValueError, match="case_change_action is 'TITLE'; expected NONE, LOWER, UPPER"):
        run("StringNormalizer", text("a"), case_change_action="TITLE")


TEXTS = text(
    "", "a", "ab\n", "abc", "ABC", "a.b", "12", "٣", "é", "É", "a b", "foo@bar.com", "aXb", "\n", "a\nb", "{,3}", "xxxxx", "a|b",
    "_", "αβγ", "ß", "A", "\x07", "a-b]",
)  # fmt: skip
PATTERNS = (
    r"\w+", r"\d+", r"\D+", r"[[:alpha:]]+", r"[^[:alpha:]]+", r"\pL+", r"\p{Lu}+", r"\PL+", r"\p{^L}+", r"\p{Any}*", r"(?i)abc",
    r"a(?i)bc|x+", r"a.b", r"(?s)a.b", r"a$", r"ab$\n?", r"(?m)ab$\n", r"\Qa.b\E", r"\Qa.b", r"a{,3}", r"\{,3\}", r"{,3}",
    r"x{2,5}", r"x{5}?",
    r"x{2,}", r"[a-z&&x]+", r"[]a]+", r"\x{e9}", r"(?i)é", r"[\d\-a]+", r"a\b.b", r"a\Bb\n", r"^a\z", r"(?P<n>a)b\n",
    r"(?<n>a)b\n", r"", r"\s+", r"[^\n]", r".", r"(?U)a+b\n", r"(a|b|)*", r"\W", r"[\W]+", r"a\|b", r"(?i)[À-Ý]", r"(?i-s:a.b)",
    r"[[:^digit:]]*", r"\pN", r"(?i:É)", "(?m)^a$\n^b$", r"\Aabc", r"\x41BC", r"\101", r"^*a", r"(|a)+", r"[-a]", r"[a-]", r"\_",
    r"\a", r"(?:a|(?i)b)c?", r"((?i)a)bc|ABC", r"[\pL\s]+", r"[^\d\W]+", r"a\-b\]",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_what_re2_matches(pattern: str) -> None:
    result = run("RegexFullMatch", TEXTS, version=20, pattern=pattern)
    (expected,) = by_onnxruntime("RegexFullMatch", TEXTS, like=[result], version=20, pattern=pattern)
    assert [found for found, match in zip(TEXTS, result, strict=True) if match] == [
        found for found, match in zip(TEXTS, expected, strict=True) if match
    ]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(?=a)a", "a group RE2 does not have at position 0"),
        (r"(a)\1", r"the escape \\1 at position 3"),
        (r"a++", "a repetition of a repetition at position 2"),
        (r"a**", "a repetition of a repetition"),
        (r"x{1001}", r"bad repetition \{1001\}"),
        (r"x{3,2}", r"bad repetition \{3,2\}"),
        (r"[z-a]", "a bad range in a character class"),
        (r"[a-\d]", "a bad range in a character class"),
        (r"(a", "a group that is not closed"),
        (r"a)", r"a \) without \( at position 1"),
        (r"\y", r"the escape \\y"),
        (r"[[:foo:]]", r"the class \[:foo:\]"),
        (r"[^", "a character class that is not closed"),
        (r"[a-", "a character class that is not closed"),
        (r"*a", r"nothing to repeat before '\*'"),
        (r"a|*", "nothing to repeat"),
        (r"\p{Klingon}", "a Unicode class that is neither a general category nor a script"),
        ("a\\", r"the escape \\"),
    ],
)
def test_what_re2_refuses_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_re2(pattern)


def test_matching_keeps_the_shape() -> None:
    assert run("RegexFullMatch", text("a", "b").reshape(2, 1), pattern="a").tolist() == [[True], [False]]
    assert run("RegexFullMatch", text("a").reshape(()), pattern="a").shape == ()


def test_concatenation_broadcasts() -> None:
    result = run("StringConcat", text("a", "b").reshape(2, 1), text("x", "y", "z"))
    assert result.tolist() == [["ax", "ay", "az"], ["bx", "by", "bz"]]
    scalar = run("StringConcat", text("a").reshape(()), text("b").reshape(()))
    assert (scalar.shape, scalar.item()) == ((), "ab")


@quick
@given(
    items=st.lists(st.text("ab, ", max_size=8), max_size=4), delimiter=st.sampled_from((",", "ab", ", ")),
    maxsplit=st.sampled_from((None, 0, 1, 2)),
)  # fmt: skip
def test_splitting_by_a_delimiter_agrees_with_the_onnx_evaluator(items: list[str], delimiter: str, maxsplit: int | None) -> None:
    attrs: dict[str, Any] = {"delimiter": delimiter} | ({} if maxsplit is None else {"maxsplit": maxsplit})
    parts, counts = run("StringSplit", text(*items), outputs=2, version=20, **attrs)
    expected = by_reference("StringSplit", text(*items), outputs=2, version=20, **attrs)
    assert parts.tolist() == expected[0].tolist()
    assert counts.tolist() == expected[1].tolist()


@pytest.mark.parametrize("delimiter", [None, ""])
def test_without_a_delimiter_white_space_separates(delimiter: str | None) -> None:
    x = text(" a  b\tc ", "d", "").reshape(3, 1)
    parts, counts = run("StringSplit", x, outputs=2, delimiter=delimiter)
    assert parts.tolist() == [[["a", "b", "c"]], [["d", "", ""]], [["", "", ""]]]
    assert counts.tolist() == [[3], [1], [0]]
    parts, _ = run("StringSplit", x, outputs=2, delimiter=delimiter, maxsplit=1)
    assert parts[0].tolist() == [["a", "b\tc"]]


def test_splitting_nothing_gives_nothing() -> None:
    parts, counts = run("StringSplit", text().reshape(2, 0), outputs=2, delimiter=",")
    assert (parts.shape, counts.shape, counts.dtype) == ((2, 0, 0), (2, 0), np.int64)


def random_pool(rng: np.random.Generator) -> dict[str, Any]:
    """Some 1-grams, 2-grams and 3-grams over five tokens."""
    counts, pool = [0], []
    number = 0
    for length in (1, 2, 3):
        chosen = rng.permutation(5**length)[: rng.integers(1, 5)]
        for code in chosen:
            pool += [int(code) // 5**position % 5 for position in range(length)]
        number += len(chosen)
        counts.append(len(pool))
    return {
        "pool_int64s": pool, "ngram_counts": counts[:3],
        "ngram_indexes": [int(index) for index in rng.permutation(number + 2)[:number]],
        "weights": [float(weight) for weight in rng.integers(1, 9, number)],
    }  # fmt: skip


@quick
@given(
    seed=seeds, mode=st.sampled_from(("TF", "IDF", "TFIDF")), lengths=st.sampled_from(((1, 1), (1, 2), (2, 2), (2, 3), (1, 3))),
    skips=st.integers(0, 3), strings=st.booleans(), rank=st.integers(1, 2), tokens=st.integers(1, 8),
)  # fmt: skip
def test_n_grams_are_counted_as_onnxruntime_counts_them(
    seed: int, mode: str, lengths: tuple[int, int], skips: int, strings: bool, rank: int, tokens: int
) -> None:
    rng = np.random.default_rng(seed)
    attrs = random_pool(rng) | {
        "mode": mode,
        "max_skip_count": skips,
        "min_gram_length": lengths[0],
        "max_gram_length": lengths[1],
    }
    x: Array = rng.integers(0, 6, (3, tokens))
    if strings:
        attrs["pool_strings"] = [f"w{token}" for token in attrs.pop("pool_int64s")]
        x = text(*(f"w{token}" for token in x.reshape(-1))).reshape(x.shape)
    x = x if rank == 2 else x[0]
    result = run("TfIdfVectorizer", x, version=9, **attrs)
    (expected,) = by_onnxruntime("TfIdfVectorizer", x, like=[result], version=9, **attrs)
    np.testing.assert_array_equal(result, expected)


def test_texts_without_tokens_have_no_n_grams() -> None:
    attrs: dict[str, Any] = {"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "mode": "TF"}
    attrs |= {"pool_int64s": (1, 2), "ngram_counts": (0,), "ngram_indexes": (0, 1)}
    assert run("TfIdfVectorizer", np.empty((2, 0), np.int64), **attrs).tolist() == [[0, 0], [0, 0]]
    assert run("TfIdfVectorizer", i64(), **attrs).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "BM25"}, "mode is 'BM25'; expected TF, IDF or TFIDF"),
        ({"pool_int64s": None, "pool_strings": ("a",)}, "the input holds integers but there is no pool_int64s"),
        ({"weights": (1.0,)}, "weights has 1 entries and ngram_indexes 2: they must agree"),
        ({"ngram_counts": (0, 1), "pool_int64s": (1, 2, 3, 4)}, "ngram_counts gives 2-grams the places 1 to 4 in a pool of 4"),
        ({"pool_int64s": (1, 2, 3)}, "the pool has more n-grams than ngram_indexes, which has 2"),
    ],
)
def test_pools_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    attrs: dict[str, Any] = {"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "mode": "TF"}
    attrs |= {"pool_int64s": (1, 2), "ngram_counts": (0,), "ngram_indexes": (0, 1)}
    with pytest.raises(ValueError, match=message):
        run("TfIdfVectorizer", i64(1), **attrs | changes)


def test_shapes_of_text_are_known_where_they_can_be() -> None:
    named = TensorType(dtypes.STRING, (1, symbol("C")))
    assert [str(dim) for dim in known_shape("StringNormalizer", [named])] == ["1", "max(1, C)"]
    assert known_shape("TfIdfVectorizer", [named], ngram_indexes=(4, 2), max_gram_length=1) == (1, 5)
