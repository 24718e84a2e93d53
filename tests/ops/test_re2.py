"""Regular expressions: what matches is what Python and RE2 say, in time that grows with the text alone."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sardonyx
from model_text import model
from sardonyx.ops.text import re2, re2_match
from sardonyx.ops.text.contrib_text import TOKENIZER
from sardonyx.ops.text.re2 import compile_re2
from sardonyx.ops.text.re2_direct import direct_match

# Python's $ matches before a newline at the end; \Z is what RE2's $ is.
ATOMS = ("a", "b", "ab", ".", "[ab]", "[^a]", r"\w", r"\W", r"\s", r"\d", "(?i:A)", "(?s:.)", r"\n", "")
ASSERTIONS = ("^", r"\z", r"\b", r"\B", "(?m:^)", "(?m:$)")
REPEATS = ("*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,3}", "{2,}", "{0}")


def patterns(atoms: tuple[str, ...]) -> st.SearchStrategy[str]:
    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, st.sampled_from(REPEATS)).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
            st.lists(inner, min_size=2, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda pieces: f"({'|'.join(pieces)})"),
        )

    return st.recursive(st.sampled_from(atoms), grown, max_leaves=8)


TEXTS = st.text("abA_ \n", min_size=1, max_size=8)  # before 3.14 Python's \B does not match the empty text


def in_python(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII)


@settings(deadline=None)
@given(patterns(ATOMS + ASSERTIONS), st.lists(TEXTS, min_size=1, max_size=6))
@example("(?:(?:a)*)*", ["aaa"])
@example(r"(?:\b)*a", ["a"])
def test_whole_texts_match_as_in_python(pattern: str, texts: list[str]) -> None:
    ours, theirs = compile_re2(pattern), in_python(pattern)
    assert [ours.fullmatch(text) for text in texts] == [theirs.fullmatch(text) is not None for text in texts]


ITEMS = ("a", "b", "[ab]", "[^a]", ".", r"\d", "[a-zA_]", "(?i:a)", "(?s:.)", r"\x{10ffff}", "-", r"\]", r"\\")
SEQUENCES = st.lists(
    st.tuples(st.sampled_from(ITEMS), st.sampled_from(["", "+", "*", "?", "{2}", "{2,}"])), min_size=1, max_size=5
)


def in_automata(pattern: str) -> re2_match.Regex:
    piece = re2._Parser(pattern).parse()
    return re2_match.Regex(pattern, piece.forwards, piece.backwards)


@settings(deadline=None, max_examples=300)
@given(SEQUENCES, st.lists(st.text("abA_1 \n-]\\\U0010ffff", max_size=9), min_size=1, max_size=5), st.integers(1, 3))
def test_sequences_of_classes_match_as_in_automata(items: list[tuple[str, str]], texts: list[str], least: int) -> None:
    pattern = "".join(map("".join, items))
    ours, slow = compile_re2(pattern), in_automata(pattern)
    assert ours.full_matches(texts) == [slow.fullmatch(text) for text in texts] == list(map(ours.fullmatch, texts))
    for text in texts:
        find, find_slowly = ours.finder(text), slow.finder(text)
        assert [find(at) for at in range(len(text) + 1)] == [find_slowly(at) for at in range(len(text) + 1)]
    found = ours.find_all(texts, least)
    if found is not None:
        assert all(len(match) >= least for row in found for match in row)
        for text, row in zip(texts, found, strict=True):
            at, spans = 0, []
            while (span := slow.finder(text)(at)) is not None:
                spans.append(text[span.start : span.end])
                at = span.end
            assert row == spans


@pytest.mark.parametrize(
    ("pattern", "is_direct", "is_searched"),
    [
        (r"[a-z0-9]+@[a-z]+\.com", True, False),
        ("[a-zA-Z0-9_]+", True, True),
        (r"\w\w+", True, True),
        ("a?b*c", True, False),
        ("a+a", False, False),
        ("a*b?a", False, False),
        ("(a+)+b", False, False),
        ("a|b", False, False),
        (r"\ba+", False, False),
        ("[a-z]{1,3}", False, False),
        ("[a-z]{40}x", True, False),
    ],
)
def test_patterns_that_could_take_long_are_left_to_automata(pattern: str, is_direct: bool, is_searched: bool) -> None:
    direct = direct_match(re2._Parser(pattern).parse().forwards)
    assert (direct is not None) == is_direct
    assert (direct is not None and direct.is_searched) == is_searched


def longest_spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Every place where a match starts, with the end of the longest there; without assertions the text around is no matter."""
    for start in range(len(text) + 1):
        for end in range(len(text), start - 1, -1):
            if pattern.fullmatch(text, start, end):
                yield start, end
                break


@settings(deadline=None)
@given(patterns(ATOMS), TEXTS)
def test_the_longest_match_is_found_at_every_place(pattern: str, text: str) -> None:
    find, expected = compile_re2(pattern).finder(text), list(longest_spans(in_python(pattern), text))
    for at in range(len(text) + 1):
        assert find(at) == next((span for span in expected if span[0] >= at), None)


@settings(deadline=None)
@given(patterns(ATOMS + ASSERTIONS), TEXTS)
def test_places_where_a_match_starts_are_those_of_python(pattern: str, text: str) -> None:
    find, theirs = compile_re2(pattern).finder(text), in_python(pattern)
    for at in range(len(text) + 1):
        ours, match = find(at), theirs.search(text, at)
        assert (ours and ours.start) == (match and match.start())
        assert ours is None or (match is not None and ours.end >= match.end())


@settings(deadline=None)
@given(patterns(ATOMS + ASSERTIONS), TEXTS)
def test_a_table_that_is_emptied_all_the_time_changes_nothing(pattern: str, text: str) -> None:
    kept = compile_re2(pattern)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(re2_match, "_MOST_STATES", 0)
        patch.setattr(re2_match, "_MOST_TRANSITIONS", 1)
        compile_re2.cache_clear()
        emptied = compile_re2(pattern)
        assert emptied.fullmatch(text) == kept.fullmatch(text)
        assert emptied.finder(text)(0) == kept.finder(text)(0)
    compile_re2.cache_clear()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("(a+)+b", "a" * 40, False),
        ("(a+)+b", "a" * 100_000 + "b", True),
        ("(a|aa)+", "a" * 50_000 + "c", False),
        ("(a*)*c", "a" * 50_000, False),
        ("(.*)(.*)(.*)(.*)(.*)x", "a" * 50_000, False),
        ("(a?){50}a{50}", "a" * 50, True),
        ("(x+x+)+y", "x" * 10_000, False),
        (r"(\w+\s?)*!", "word " * 10_000, False),
        ("[ab]*a[ab]{11}", "ab" * 3_000, True),  # it has thousands of states
    ],
)
def test_patterns_that_make_others_go_back_end_soon(pattern: str, text: str, expected: bool) -> None:
    assert compile_re2(pattern).fullmatch(text) is expected


def test_a_search_takes_the_text_twice() -> None:
    assert compile_re2("[a-z]+[0-9]").finder("a" * 100_000)(0) is None


def test_the_table_of_states_is_bounded() -> None:
    pattern = compile_re2("[ab]*a[ab]{20}")
    rng = np.random.default_rng(1)
    assert not pattern.fullmatch("".join(rng.choice(["a", "b"], 20_000)) + "c")
    assert len(pattern._forwards._states) <= re2_match._MOST_STATES + 1


@pytest.mark.parametrize("pattern", ["a{1001}", "(a{2}){501}", "((a{10}){10}){11}", r"\x{110000}", r"\é", "(?-)a", r"\C"])
def test_what_is_too_large_or_no_escape_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not RE2 syntax"):
        compile_re2(pattern)


def test_patterns_that_are_long_or_deep() -> None:
    assert compile_re2("(" * 900 + "a" + ")" * 900).fullmatch("a")
    assert compile_re2("|".join(f"word{number}" for number in range(5_000))).fullmatch("word4321")
    assert compile_re2("(?i)" + "a" * 5_000).fullmatch("A" * 5_000)
    assert compile_re2("(a{2}){500}").fullmatch("a" * 1000)
    with pytest.raises(ValueError, match="too many"):
        compile_re2("(" * 1100 + "a" + ")" * 1100)
    with pytest.raises(ValueError, match="too large"):
        compile_re2("(" + "abcdefghij" * 100 + "){200}")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("(?i)k", "kK\u212a", "l"),
        ("(?i)[^k]", "l\n", "kK\u212a"),
        (r"(?i)\w", "\u017f\u212a", "é"),
        (r"(?i)\W", "é", "\u017f\u212a"),
        ("(?i)ß", "ß\u1e9e", "s"),
        (r"\pC", "\n\x07\u200b", "a\u0378"),
        (r"\12", "\n", "1"),
        (r"\p{Greek}", "αΩ", "aжé1"),
        (r"\P{Greek}", "aж", "α"),
        (r"[\p{Han}\p{Hiragana}]", "漢ひ", "カa"),
        (r"\p{Latin}", "aéſ", "α1 "),
        (r"\p{Yi}", "ꀀ", "y"),
        (r"(?i)\p{Latin}", "a\u212a", "α"),
        (r"a(?i)?b", "bB", "a"),  # the repeat is that of what comes before the flags
    ],
)
def test_classes_of_characters(pattern: str, yes: str, no: str) -> None:
    import onnxruntime

    ours = compile_re2(pattern)
    assert [ours.fullmatch(char) for char in yes + no] == [True] * len(yes) + [False] * len(no)
    escaped = pattern.replace("\\", "\\\\")
    content = model(f'(string[N] x) => (bool[N] y) {{ y = RegexFullMatch<pattern="{escaped}">(x) }}', 20)
    session = onnxruntime.InferenceSession(content)
    [found] = session.run(None, {"x": np.array(list(yes + no), object)})
    assert found.tolist() == [True] * len(yes) + [False] * len(no)


def tokens(text: str, **attributes: object) -> list[str]:
    given = {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": None, "tokenexp": None, **attributes}
    result: list[str] = TOKENIZER.eval(np.array([text], object), **given)[0].tolist()
    return result


def test_tokens_are_the_longest_matches_as_in_onnxruntime() -> None:
    assert tokens("abab xab", tokenexp="a|ab") == ["ab", "ab", "ab"]
    assert tokens("xabyaz", separators=("a|ab",)) == ["x", "y", "z"]
    assert tokens("abab", tokenexp="a|aba", mincharnum=2) == ["aba"]
    assert tokens("aaa", tokenexp="a+?") == ["aaa"]
    assert tokens("aaa", tokenexp="^a") == ["a"]
    assert tokens("baac", tokenexp="a*") == ["aa"]


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "SardonyxReferenceExecutionProvider"])
def test_a_long_match_can_be_stopped(provider: str) -> None:
    content = model('(string[N] x) => (bool[N] y) { y = RegexFullMatch<pattern="[ab]*a[ab]{200}">(x) }', 20)
    session = sardonyx.InferenceSession(content, providers=[provider])
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(["a", "b"], 3_000_000))
    options = sardonyx.RunOptions()
    timer = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(sardonyx.Fail, match="Exiting due to terminate flag being set to true"):
        session.run(None, {"x": np.array([text], object)}, options)
    timer.join()
