"""Encoders of texts: positions are looked up where texts enter, native code does the rest, as the definitions say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from classical_support import expanded
from native_support import run_reference
from sardonyx import InferenceSession
from sardonyx.ir.tensor import Array
from sardonyx.ops.ml.text_lookup import TextLookup
from sardonyx.ops.ml.token_counts import ANY_CHARACTER, TokenCounter

ML = "ai.onnx.ml"
few = settings(max_examples=15, deadline=None)
TEXTS = ["red", "green", "blue", "", "ärmel", "a rather long text that nobody has as a key", "r", "Red", "😀"]


def model(
    nodes: list[Any], outputs: list[str], inputs: dict[str, list[Any]], constants: dict[str, Any] | None = None
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [helper.make_tensor(name, TensorProto.INT64, np.shape(value), value) for name, value in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def columns_model() -> ModelProto:
    """Two columns of one input, encoded in four ways beside numbers; a dictionary for each row at the end."""
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["a"], axis=1),
        helper.make_node("Gather", ["x", "second"], ["b"], axis=1),
        helper.make_node("OneHotEncoder", ["a"], ["hot"], domain=ML, cats_strings=["red", "green", "ärmel"], zeros=1),
        helper.make_node("Reshape", ["hot", "rows"], ["flat"]),
        helper.make_node("LabelEncoder", ["b"], ["code"], domain=ML, keys_strings=["blue", "red", "blue"],
                         values_floats=[1.5, 2.5, 9.0], default_float=-3.0),
        helper.make_node("CategoryMapper", ["b"], ["mapped"], domain=ML, cats_strings=["r", "green"], cats_int64s=[7, 8],
                         default_int64=-2),
        helper.make_node("Cast", ["mapped"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["flat", "code", "number", "n"], ["features"], axis=1),
        helper.make_node("LabelEncoder", ["a"], ["words"], domain=ML, keys_strings=["red", "Red"], values_strings=["rot", "Rot"],
                         default_string="?"),
        helper.make_node("ZipMap", ["features"], ["maps"], domain=ML, classlabels_int64s=list(range(7))),
    ]  # fmt: skip
    inputs = {"x": [TensorProto.STRING, [None, 2]], "n": [TensorProto.FLOAT, [None, 2]]}
    return model(nodes, ["features", "words", "maps"], inputs, {"first": [0], "second": [1], "rows": [-1, 3]})


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, list):
            assert one == other
        else:
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert one.tolist() == other.tolist()


@few
@given(seed=st.integers(0, 2**32 - 1), counts=st.lists(st.sampled_from((1, 2, 5, 80)), min_size=1, max_size=3))
def test_columns_of_texts_are_encoded(seed: int, counts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    content = columns_model().SerializeToString()
    session = InferenceSession(content)
    for count in [*counts, *counts]:
        texts, numbers = rng.choice(TEXTS, (count, 2)), rng.normal(size=(count, 2)).astype(np.float32)
        wanted = run_reference(content, {"x": texts.astype(object), "n": numbers})
        for given_texts in (texts, texts.astype(object), texts.T.copy().T):
            assert_same(session.run(None, {"x": given_texts, "n": numbers}), wanted)


def test_the_lookup_is_all_that_python_does_and_a_saved_program_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    path = tmp_path / "m.onnx"
    path.write_bytes(columns_model().SerializeToString())
    feeds = {"x": np.array([["red", "blue"], ["x", "r"]]), "n": np.ones((2, 2), np.float32)}
    wanted = run_reference(path.read_bytes(), {"x": feeds["x"].astype(object), "n": feeds["n"]})
    for _ in range(2):
        session = InferenceSession(path)
        for _ in range(3):
            assert_same(session.run(None, feeds), wanted)
        assert session._opened.run_fast(feeds) is not None


def test_inputs_of_their_own_are_looked_up_before_they_are_joined() -> None:
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["x"], axis=1),
        helper.make_node("OneHotEncoder", ["x"], ["y"], domain=ML, cats_strings=["red", "green"], zeros=1),
    ]
    inputs = {name: [TensorProto.STRING, ["N", 1]] for name in ("a", "b")}
    content = model(nodes, ["y"], inputs).SerializeToString()
    session = InferenceSession(content)
    a, b = (np.array([[text] for text in texts]) for texts in (["red", "x"], ["green", "red"]))
    for _ in range(3):
        (found,) = session.run(None, {"a": a, "b": b})
        assert found.tolist() == [[[1, 0], [0, 1]], [[0, 0], [1, 0]]]
    (found,) = session.run(None, {"a": a[:1], "b": b[:1]})
    assert found.tolist() == [[[1, 0], [0, 1]]]


def test_texts_that_are_fed_are_looked_up_before_anything_native_runs() -> None:
    nodes = [
        helper.make_node("Cast", ["n"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Exp", ["number"], ["power"]),
        helper.make_node("LabelEncoder", ["a"], ["c"], domain=ML, keys_strings=["red", "green"], values_floats=[1.0, 2.0]),
        helper.make_node("Mul", ["c", "power"], ["product"]),
        helper.make_node("LabelEncoder", ["b"], ["d"], domain=ML, keys_strings=["red", "blue"], values_floats=[3.0, 4.0]),
        helper.make_node("Concat", ["product", "d"], ["y"], axis=1),
    ]
    inputs: dict[str, list[Any]] = {name: [TensorProto.STRING, ["N", 1]] for name in ("a", "b")}
    content = model(nodes, ["y"], {"n": [TensorProto.INT64, ["N", 1]], **inputs}).SerializeToString()
    session = InferenceSession(content)
    for count in (1, 3, 100):
        a, b = (np.resize(np.array([["red"], ["green"], ["blue"]]), (count, 1))[::step] for step in (1, -1))
        feeds = {"n": np.arange(count)[:, None] % 7, "a": a, "b": b}
        wanted = run_reference(content, {"n": feeds["n"], "a": a.astype(object), "b": b.astype(object)})
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, feeds)[0], wanted[0], rtol=1e-6)
        assert session._opened.run_fast(feeds) is not None


@pytest.mark.parametrize("positive", [0, 1])
def test_hashes_of_texts_are_made_before_anything_native_runs(positive: int) -> None:
    nodes = [
        helper.make_node("MurmurHash3", ["x"], ["h"], domain="com.microsoft", positive=positive, seed=3),
        helper.make_node("Cast", ["h"], ["w"], to=TensorProto.INT64),
        helper.make_node("Abs", ["w"], ["y"]),
    ]
    made = model(nodes, ["y"], {"x": [TensorProto.STRING, ["N", 2]]})
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    content = made.SerializeToString()
    session = InferenceSession(content)
    for count in (1, 3, 40):
        x = np.resize(np.array(TEXTS), (count, 2))
        wanted = run_reference(content, {"x": x.astype(object)})
        for given_texts in (x, x.astype(object), x.T.copy().T):
            assert_same(session.run(None, {"x": given_texts}), wanted)
        assert session._opened.run_fast({"x": x}) is not None
    odd = np.array([["a", 5]], object)
    assert_same(session.run(None, {"x": odd}), run_reference(content, {"x": odd.astype(str).astype(object)}))


@pytest.mark.parametrize("count", [1, 2, 60, 700, 5000])
@pytest.mark.parametrize("width", [6, 7])
def test_any_number_of_keys_is_looked_up(count: int, width: int) -> None:
    rng = np.random.default_rng(count)
    keys = ["".join(map(chr, row)) for row in rng.integers(97, 110, (count, 6))]
    numbers = {key: number for number, key in reversed(list(enumerate(keys)))}
    texts = np.array([*keys[:200], *(key[::-1] for key in keys[:200]), "", "aaaaaaa"] * 2, f"<U{width}")
    texts = np.resize(texts, 300)
    assert TextLookup(keys)(texts).tolist() == [numbers.get(text, -1) for text in texts.tolist()]


@pytest.mark.parametrize("odd", [b"red", 5, None, 1.5, ("red",)], ids=repr)
def test_what_is_no_text_is_converted_as_ever(odd: Any) -> None:
    nodes = [
        helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, keys_strings=["red", "5", "None"], values_int64s=[1, 2, 3])
    ]
    content = model(nodes, ["y"], {"x": [TensorProto.STRING, ["N"]]}).SerializeToString()
    session = InferenceSession(content)
    plain = InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"])
    texts = np.empty(2, object)
    texts[:] = ["red", "5"]
    session.run(None, {"x": texts})
    texts[1] = odd
    assert session.run(None, {"x": texts})[0].tolist() == plain.run(None, {"x": texts})[0].tolist()


def test_feeds_that_do_not_fit_are_refused_as_ever() -> None:
    session = InferenceSession(columns_model().SerializeToString())
    numbers = np.ones((2, 2), np.float32)
    for _ in range(2):
        with pytest.raises(Exception, match="Unexpected input data type"):
            session.run(None, {"x": numbers, "n": numbers})
        with pytest.raises(Exception, match="Invalid rank for input: x"):
            session.run(None, {"x": np.array(["red"]), "n": numbers})
        with pytest.raises(Exception, match="Got invalid dimensions for input: x"):
            session.run(None, {"x": np.array([["red"] * 3]), "n": numbers})
        with pytest.raises(ValueError, match="missing from input feed"):
            session.run(None, {"n": numbers})
        session.run(None, {"x": np.array([["red", "blue"]] * 2), "n": numbers})


@given(
    keys=st.lists(st.text(max_size=6), max_size=12),
    texts=st.lists(st.text(max_size=8), max_size=6),
    times=st.sampled_from((1, 30)),
    width=st.integers(1, 40),
)
@settings(deadline=None)
def test_texts_of_a_fixed_width_are_found_as_texts_are(keys: list[str], texts: list[str], times: int, width: int) -> None:
    lookup = TextLookup(keys)
    numbers: dict[str, int] = {}
    for number, key in enumerate(keys):
        numbers.setdefault(key, number)
    narrow: Array = np.array([*texts, *keys] * times, f"<U{width}")
    assert lookup(narrow).tolist() == [numbers.get(text, -1) for text in narrow.tolist()]
    assert lookup(narrow.astype(object)).tolist() == [numbers.get(text, -1) for text in narrow.tolist()]
    turned = narrow[: len(narrow) // 2 * 2].reshape(2, -1).T
    assert lookup(turned).tolist() == [[numbers.get(text, -1) for text in row] for row in turned.tolist()]


EXPRESSIONS = (
    "[a-c]+", "[a-zA-Z0-9_]+", "[b-]+", "a|b", ".", "[a-c]{2,}", r"\w+", r"\b\w\w+\b", "[a-c][a-c]+", r"[\w]{1,}\w",
    r"\b[a-c]+\b",
)  # fmt: skip
POOLS: dict[str, dict[str, Any]] = {
    "words": {"ngram_counts": [0], "ngram_indexes": [2, 0, 1, 3], "pool_strings": ["a", "bc", "B_1", "x y"]},
    "pairs": {"ngram_counts": [0, 2], "ngram_indexes": [4, 0, 1, 3], "pool_strings": ["a", "bc", "a", "b", "a", "a"]},
    "pairs alone": {"ngram_counts": [0, 0], "ngram_indexes": [1, 0], "pool_strings": ["a", "b", "bc", "a"]},
    "all lengths": {"ngram_counts": [0, 1, 3], "ngram_indexes": [0, 2, 1], "pool_strings": ["x", "b", "a", "a", "a", "a"]},
    "long": {"ngram_counts": [0], "ngram_indexes": [0, 1, 2], "pool_strings": ["abcabcab", "abcabcabca", "ä"]},
}


def counting_model(
    mode: str, expression: str, least: int, flat: bool, weights: bool, name: str = "words", case: str = ""
) -> ModelProto:
    pool = {**POOLS[name], "mode": mode}
    if weights:
        pool["weights"] = [0.5, 2.0, 3.0, 1.0][: len(pool["ngram_indexes"])]
    lengths = {"min_gram_length": 2 if name == "pairs alone" else 1, "max_gram_length": len(pool["ngram_counts"])}
    tokens = {"mark": 0, "mincharnum": least, "pad_value": "#", "tokenexp": expression}
    normalize = [
        helper.make_node("Reshape", ["x", "all"], ["v"]),
        helper.make_node("StringNormalizer", ["v"], ["l"], case_change_action=case, locale="C"),
    ]
    nodes = [
        *(normalize if case else []),
        helper.make_node("Tokenizer", ["l" if case else "x"], ["t"], domain="com.microsoft", **tokens),
        *([] if flat else [helper.make_node("Flatten", ["t"], ["f"], axis=1)]),
        helper.make_node("TfIdfVectorizer", ["t" if flat else "f"], ["c"], max_skip_count=0, **lengths, **pool),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    made = model(nodes, ["y"], {"x": [TensorProto.STRING, ["N"] if flat else ["N", 1]]}, {"all": [-1]} if case else {})
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


@few
@given(
    texts=st.lists(st.text("abcB_1 \0#xyäßΣ-\n", max_size=12), max_size=6),
    mode=st.sampled_from(("TF", "IDF", "TFIDF")),
    expression=st.sampled_from(EXPRESSIONS),
    least=st.integers(1, 3),
    flat=st.booleans(),
    weights=st.booleans(),
    pool=st.sampled_from(list(POOLS)),
    case=st.sampled_from(("", "NONE", "LOWER", "UPPER")),
    times=st.sampled_from((1, 60)),
)
def test_words_are_counted(
    texts: list[str], mode: str, expression: str, least: int, flat: bool, weights: bool, pool: str, case: str, times: int
) -> None:
    if expression == ".":
        least = 1
    content = counting_model(mode, expression, least, flat, weights, pool, case).SerializeToString()
    if not texts and not case:
        texts = [""]
    repeated = [text * (1 + number % 3) for number, text in enumerate(texts * times)]
    x = np.empty(len(repeated), object)
    x[:] = repeated
    x = x if flat else x[:, None]
    session = InferenceSession(content)
    wanted = run_reference(content, {"x": x})
    for _ in range(2):
        assert_same(session.run(None, {"x": x}), wanted)
    narrow = x.astype(str)  # which ends at trailing zeros
    assert_same(session.run(None, {"x": narrow}), run_reference(content, {"x": narrow.astype(object)}))


@pytest.mark.parametrize("name", ["words", "pairs"])
@pytest.mark.parametrize("expression", [".", "[a-z]+"])
def test_counting_is_one_call_before_native_code(name: str, expression: str) -> None:
    session = InferenceSession(counting_model("TF", expression, 1, False, False, name, "LOWER").SerializeToString())
    for count in (1, 3, 400):
        feeds = {"x": np.array([["A bc a"], ["b a"], [""]] * count)[:count]}
        session.run(None, feeds)
        assert session._opened.run_fast(feeds) is not None


def test_counts_of_what_is_no_text_are_those_of_its_text() -> None:
    content = counting_model("TF", "[a-z]+", 1, True, False).SerializeToString()
    session, plain = InferenceSession(content), InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"])
    x = np.empty(3, object)
    x[:] = ["a bc", b"a a", 5]
    for _ in range(2):
        assert_same(session.run(None, {"x": x}), plain.run(None, {"x": x}))


def test_long_lists_of_texts_are_counted_in_blocks_like_single_texts() -> None:
    rng = np.random.default_rng(0)
    words = [*"abc", "a", "b", "b", "c", "ä"]
    counter = TokenCounter(ANY_CHARACTER, 1, words, [0, 1, 2, 4, 5, 6], [1, 1, 1, 2, 2, 1], "")
    lengths = [0, 20_000, *rng.integers(0, 60, 400).tolist(), 7_000, 0]
    texts = np.array(["".join(rng.choice(list("abcxä"), length)) for length in lengths], object)
    expected = []
    for text in texts:
        pairs = [text[at : at + 2] for at in range(len(text) - 1)]
        row = [text.count("a"), text.count("b"), text.count("c"), 0, pairs.count("ab"), pairs.count("bc"), text.count("ä")]
        expected.append(row)
    assert counter(texts).tolist() == expected
    assert [counter(texts[number : number + 1])[0].tolist() for number in range(len(texts))] == expected


@pytest.mark.parametrize("expression", ["[a-c]{2,}", r"\w+", r"\b\w\w+\b", "[a-c][a-c]+"])
def test_runs_of_a_least_length_are_one_operator(expression: str) -> None:
    counted = expanded(counting_model("TF", expression, 1, True, False))[0].graph.nodes
    assert "TokenCounts" in [node.op_type for node in counted]
