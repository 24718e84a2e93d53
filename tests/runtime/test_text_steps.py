"""Nodes on texts that native functions compute: what their definitions compute, or nothing."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import sardonyx
from native_texts import objects
from sardonyx import errors
from sardonyx.ops.definition import EvalContext, call, lookup
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.text_steps import native_step

MICROSOFT = "com.microsoft"
ANY_TEXT = st.one_of(
    st.text(st.sampled_from("ab ,;\t\n\x1cé√-"), max_size=12),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.text("xyz", max_size=40),
)
DECIMAL = st.from_regex(r"\A[+-]?(\d{1,25}|\d{0,20}\.\d{1,25}|\d{1,5}\.)([eE][+-]?\d{1,3})?\Z").filter(str.isascii)
NUMBER_TEXT = st.one_of(
    DECIMAL,
    st.floats(width=64).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["nan", "-INF", "Infinity", "+inf", "NaN", "0", "-0.0"]),
)
SHAPES = [(), (0,), (3,), (2, 3), (1, 0, 2)]


def defined(domain: str, op_type: str, attrs: dict[str, Any], *inputs: Any) -> tuple[Any, ...]:
    definition = lookup(domain, op_type, 1 if domain else 21)
    assert definition is not None
    every = {name: attrs.get(name) for name in definition.attr_names}
    return call(definition, inputs, every, EvalContext(21, (True,) * 4))


def assert_same(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    for one, other in zip(found, wanted):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if one.dtype == object:
            assert one.reshape(-1).tolist() == other.reshape(-1).tolist()
            assert {type(each) for each in one.reshape(-1).tolist()} <= {str}
        else:
            assert one.tobytes() == other.tobytes() or np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(NUMBER_TEXT, max_size=8), to=st.sampled_from([TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16]))
@example(["9007199254740993", "1e22", "1e23", "123456789012345678", "0.1"], TensorProto.DOUBLE)
@example(["5e-324"], TensorProto.DOUBLE)
@example(["1e400"], TensorProto.DOUBLE)
@example(["0e999", "-0.000e-999"], TensorProto.DOUBLE)
def test_texts_are_read_as_the_same_floats(pool: Pool, texts: list[str], to: int) -> None:
    step = native_step("", "Cast", {"to": to}, pool.native_function)
    assert step is not None
    found = step([objects(texts)])
    if found is not None:
        assert_same(found, defined("", "Cast", {"to": to}, objects(texts)))


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8))
def test_floats_as_they_are_usually_written_are_not_left_to_python(pool: Pool, values: list[float]) -> None:
    assume(all(value == 0 or abs(value) > 1e-300 for value in values))
    step = native_step("", "Cast", {"to": TensorProto.DOUBLE}, pool.native_function)
    assert step is not None
    found = step([objects([repr(value) for value in values])])
    assert found is not None
    assert found[0].tolist() == values


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(st.one_of(NUMBER_TEXT, ANY_TEXT), max_size=6),
    to=st.sampled_from([TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.BOOL, TensorProto.UINT64]),
)
def test_texts_are_read_as_the_same_integers(pool: Pool, texts: list[str], to: int) -> None:
    step = native_step("", "Cast", {"to": to}, pool.native_function)
    assert step is not None
    found = step([objects(texts)])
    if found is not None:
        assert_same(found, defined("", "Cast", {"to": to}, objects(texts)))


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_0", "12abc", "0x1p3", "١", ".", "-", "+-1", "1e", "e5", "1e5.", "1..2", "nanx", "in"]
)
@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64])
def test_what_is_not_a_number_alone_is_left_to_the_definition(pool: Pool, text: str, to: int) -> None:
    step = native_step("", "Cast", {"to": to}, pool.native_function)
    assert step is not None
    assert step([objects(["1", text])]) is None


@settings(max_examples=100, deadline=None)
@given(numbers=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_integers_are_written_as_python_writes_them(pool: Pool, numbers: list[int]) -> None:
    step = native_step("", "Cast", {"to": TensorProto.STRING}, pool.native_function)
    assert step is not None
    found = step([np.array(numbers, np.int64)])
    assert found is not None
    assert found[0].tolist() == [str(number) for number in numbers]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.int64])
def test_all_integers_are_written(pool: Pool, dtype: Any) -> None:
    step = native_step("", "Cast", {"to": TensorProto.STRING}, pool.native_function)
    assert step is not None
    numbers = np.array([[0, 7], [np.iinfo(dtype).max, np.iinfo(dtype).min]], dtype)[:, ::-1]
    found = step([numbers])
    if found is not None:  # an array in another order is the definition's
        assert_same(found, defined("", "Cast", {"to": TensorProto.STRING}, numbers))
    found = step([np.ascontiguousarray(numbers)])
    assert found is not None
    assert_same(found, defined("", "Cast", {"to": TensorProto.STRING}, numbers))
    for left in (np.array([1], np.uint64), np.array([1.5]), np.array([True])):
        assert step([left]) is None


SPLITS: list[dict[str, Any]] = [
    {}, {"delimiter": ""}, {"delimiter": ","}, {"delimiter": ",", "maxsplit": 0}, {"delimiter": ",", "maxsplit": 1},
    {"delimiter": " ", "maxsplit": 3},
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=12), attrs=st.sampled_from(SPLITS))
def test_texts_are_split_into_the_same_pieces(pool: Pool, texts: list[str], attrs: dict[str, Any]) -> None:
    step = native_step("", "StringSplit", attrs, pool.native_function)
    assert step is not None
    found = step([objects(texts)])
    if found is None:
        assert not attrs.get("delimiter")
        assert not "".join(texts).isascii()
    else:
        assert_same(found, defined("", "StringSplit", attrs, objects(texts)))


TOKENIZERS: list[dict[str, Any]] = [
    {"separators": (" ",)}, {"separators": (",", ";")}, {"separators": (" ", ","), "mincharnum": 2}, {"separators": ("",)},
    {"tokenexp": "."}, {"tokenexp": "[a-z]+"}, {"tokenexp": "[^ ,]+"}, {"tokenexp": "[a-y]{2,}"},
    {"tokenexp": "\\w+", "mincharnum": 3}, {"tokenexp": "[ab]{2,}", "mincharnum": 1},
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=12), attrs=st.sampled_from(TOKENIZERS), rows=st.booleans())
def test_texts_have_the_same_tokens(pool: Pool, texts: list[str], attrs: dict[str, Any], rows: bool) -> None:
    every = {"mark": 0, "mincharnum": 1, "pad_value": "#pad", **attrs}
    step = native_step(MICROSOFT, "Tokenizer", every, pool.native_function)
    assert step is not None
    given_texts = objects(texts).reshape(1, -1) if rows else objects(texts)
    found = step([given_texts])
    if found is None:
        assert not "".join(texts).isascii()
    else:
        assert_same(found, defined(MICROSOFT, "Tokenizer", every, given_texts))


@pytest.mark.parametrize(
    "attrs",
    [{"mark": 1}, {"separators": ("ab",)}, {"separators": (".",)}, {"separators": (), "tokenexp": "a+b"}, {"separators": ("é",)}],
)
def test_other_tokenizers_are_left_to_the_definition(pool: Pool, attrs: dict[str, Any]) -> None:
    every = {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": (" ",), **attrs}
    assert native_step(MICROSOFT, "Tokenizer", every, pool.native_function) is None


def test_words_that_repeat_are_right_among_many(pool: Pool) -> None:
    random = np.random.default_rng(3)
    words = [
        "a" * int(length) + chr(97 + int(last))
        for length, last in zip(random.integers(0, 60, 4000), random.integers(0, 26, 4000))
    ]
    texts = objects([" ".join(random.choice(words, 7)) for _ in range(1500)])
    step = native_step("", "StringSplit", {"delimiter": " "}, pool.native_function)
    assert step is not None
    found = step([texts])
    assert found is not None
    assert_same(found, defined("", "StringSplit", {"delimiter": " "}, texts))


def test_texts_that_change_between_counting_and_cutting_are_refused(pool: Pool) -> None:
    from sardonyx.codegen.text_pieces import ENDS_PIECE, IN_PIECE
    from sardonyx.runtime.text_calls import pieces_call

    classes = bytes(ENDS_PIECE if code == ord(",") else IN_PIECE for code in range(256))
    pieces = pieces_call(pool.native_function, classes)
    assert pieces is not None
    assert pieces.cut(objects(["a,b", "c,d,e"]), 2) is None
    assert pieces.cut(objects(["a,b"]), -1) is None
    assert pieces.cut(objects(["a,b", 3]), 2) is None
    assert pieces.cut(np.array(["a,b"]), 2) is None


PATTERNS = ["[ab]+,?", r"\bx.*z\b", "(a|b)*é?", "^$", r"(?m)^\s*a$", "a{2,5}b*", ".*", r"\w+@\w+", "", "(?i)XYZ+"]


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=8), pattern=st.sampled_from(PATTERNS))
def test_the_same_texts_match(pool: Pool, texts: list[str], pattern: str) -> None:
    step = native_step("", "RegexFullMatch", {"pattern": pattern}, pool.native_function)
    assert step is not None
    found = step([objects(texts)])
    assert found is not None
    assert_same(found, defined("", "RegexFullMatch", {"pattern": pattern}, objects(texts)))


def test_a_pattern_of_very_many_states_has_no_table(pool: Pool) -> None:
    assert native_step("", "RegexFullMatch", {"pattern": "(a|b)*a(a|b){12}"}, pool.native_function) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_results_have_the_shape_of_the_texts(pool: Pool, shape: tuple[int, ...]) -> None:
    texts = np.resize(objects(["1", "22", "-3"]), shape)
    for op_type, attrs in (
        ("Cast", {"to": TensorProto.FLOAT}),
        ("StringSplit", {"delimiter": "2"}),
        ("RegexFullMatch", {"pattern": "2+"}),
    ):
        step = native_step("", op_type, attrs, pool.native_function)
        assert step is not None
        found = step([texts])
        assert found is not None
        assert_same(found, defined("", op_type, attrs, texts))


def test_what_is_no_array_of_texts_is_refused(pool: Pool) -> None:
    step = native_step("", "Cast", {"to": TensorProto.DOUBLE}, pool.native_function)
    assert step is not None
    for given_value in (
        objects(["1", None]),
        objects(["1", 2]),
        objects([np.str_("1")]),
        np.array(["1"]),
        np.array([1.0]),
        objects(["\ud800"]),
    ):
        assert step([given_value]) is None
    assert step([objects(["1", "2", "3", "4"])[::2]]) is None
    again = pickle.loads(pickle.dumps(objects(["1", "2"])))
    found = step([again])
    assert found is not None
    assert found[0].tolist() == [1, 2]


def saved(nodes: list[Any], shape: list[Any], outputs: dict[str, tuple[int, list[Any]]]) -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, shape)]
    results = [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "g", inputs, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(made.SerializeToString())


def split_model() -> bytes:
    nodes = [
        helper.make_node("StringSplit", ["x"], ["pieces", "counts"], delimiter=","),
        helper.make_node("Cast", ["counts"], ["floats"], to=1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, ["N"])]
    outputs = [
        helper.make_tensor_value_info("pieces", TensorProto.STRING, ["N", "M"]),
        helper.make_tensor_value_info("floats", 1, ["N"]),
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    return bytes(made.SerializeToString())


def test_sessions_give_what_onnxruntime_gives_run_after_run() -> None:
    ours, theirs = sardonyx.InferenceSession(split_model()), onnxruntime.InferenceSession(split_model())
    for texts in (["a,b", "c"], ["a,b", "c"], ["ä,b,", "c"], ["x"], ["a,b", "d"]):
        feeds = {"x": objects(texts)}
        for one, other in zip(ours.run(None, feeds), theirs.run(None, feeds)):
            assert np.array_equal(one, other)
    assert ours.run(None, {"x": objects(["a", 3.5])})[0].tolist() == [["a"], ["3.5"]]


def cast_model() -> bytes:
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    return saved([cast], ["N", 2], {"y": (TensorProto.FLOAT, ["N", 2])})


def test_a_program_that_is_native_functions_alone_still_refuses_what_does_not_fit() -> None:
    session = sardonyx.InferenceSession(cast_model())
    fitting = np.array([["1", "2"], ["3", "4.5"]], object)
    for _ in range(3):
        assert session.run(None, {"x": fitting})[0].tolist() == [[1, 2], [3, 4.5]]
    assert session.run(None, {"x": fitting[::-1]})[0].tolist() == [[3, 4.5], [1, 2]]
    assert session.run(None, {"x": fitting.astype(str)})[0].tolist() == [[1, 2], [3, 4.5]]
    assert session.run(None, {"x": np.array([["1 ", "2e0 and more"]], object)})[0].tolist() == [[1, 2]]
    with pytest.raises(errors.SardonyxError, match="cannot read"):
        session.run(None, {"x": np.array([["1", "one"]], object)})
    with pytest.raises(errors.SardonyxError):
        session.run(None, {"x": np.array([["1", "2", "3"]], object)})
    with pytest.raises(errors.SardonyxError):
        session.run(None, {"x": fitting, "z": fitting})
