"""Programs that come back to Python: feeds that fitted once take the short way, all others are checked in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import errors


def session_of(nodes: list[Any], inputs: list[Any], output: Any, initializers: tuple[Any, ...] = ()) -> sardonyx.InferenceSession:
    graph = helper.make_graph(nodes, "mixed", inputs, [output], list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return sardonyx.InferenceSession(model.SerializeToString())


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sardonyx.InferenceSession:
    """Texts and numbers: each text with its number behind it."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    nodes = [
        helper.make_node("Mul", ["n", "n"], ["square"]),
        helper.make_node("Cast", ["square"], ["digits"], to=TensorProto.STRING),
        helper.make_node("StringConcat", ["x", "digits"], ["y"]),
    ]
    texts = helper.make_tensor_value_info("x", TensorProto.STRING, ["k"])
    numbers = helper.make_tensor_value_info("n", TensorProto.INT64, ["k"])
    return session_of(nodes, [texts, numbers], helper.make_tensor_value_info("y", TensorProto.STRING, ["k"]))


def feeds_of(texts: list[str], kind: Any = object) -> dict[str, Any]:
    return {"x": np.array(texts, kind), "n": np.arange(len(texts))}


def test_feeds_that_fitted_once_take_the_short_way(joined: sardonyx.InferenceSession) -> None:
    for texts in (["a", "b"], ["c", "d"], ["e"], ["f", "g"], ["h"]):
        (found,) = joined.run(None, feeds_of(texts))
        assert found.tolist() == [f"{text}{number * number}" for number, text in enumerate(texts)]
    assert joined._opened.run_fast(feeds_of(["i"])) is not None
    assert joined._opened.run_fast(feeds_of(["i"], "U1")) is not None  # NumPy's own texts
    assert joined._opened.run_fast(feeds_of(["i", "j", "k"])) is None  # another size


def test_what_is_no_text_is_converted_by_the_full_path(joined: sardonyx.InferenceSession) -> None:
    joined.run(None, feeds_of(["a", "b"]))
    odd = {"x": np.array([b"a", 7], object), "n": np.arange(2)}
    assert joined._opened.run_fast(odd) is None
    assert joined.run(None, odd)[0].tolist() == ["a0", "71"]


def test_a_feed_of_another_type_is_refused_after_one_that_fitted(joined: sardonyx.InferenceSession) -> None:
    joined.run(None, feeds_of(["a", "b"]))
    with pytest.raises(errors.InvalidArgument, match="Unexpected input data type"):
        joined.run(None, {"x": np.array(["a", "b"], object), "n": np.arange(2.0)})
    with pytest.raises(ValueError, match="Required inputs"):
        joined.run(None, {"x": np.array(["a", "b"], object)})


def test_errors_name_the_node_on_the_short_way_too() -> None:
    texts = helper.make_tensor_value_info("x", TensorProto.STRING, ["k"])
    node = helper.make_node("Cast", ["x"], ["y"], name="reader", to=TensorProto.INT64)
    session = session_of([node], [texts], helper.make_tensor_value_info("y", TensorProto.INT64, ["k"]))
    assert session.run(None, {"x": np.array(["1", "22"], object)})[0].tolist() == [1, 22]
    with pytest.raises(errors.SardonyxError, match=r"reader.*cannot read 'two'"):
        session.run(None, {"x": np.array(["1", "two"], object)})
    assert session.run(None, {"x": np.array(["3 apples", "18446744073709551615"], object)})[0].tolist() == [3, -1]


def test_results_share_no_memory_with_feeds() -> None:
    texts = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    nodes = [helper.make_node("Cast", ["x"], ["same"], to=TensorProto.STRING), helper.make_node("Reshape", ["same", "s"], ["y"])]
    shape = numpy_helper.from_array(np.array([2, 1]), "s")
    session = session_of(nodes, [texts], helper.make_tensor_value_info("y", TensorProto.STRING, [2, 1]), (shape,))
    feed = {"x": np.array(["a", "b"], object)}
    for _ in range(3):
        (found,) = session.run(None, feed)
        found[0, 0] = "changed"
        assert feed["x"].tolist() == ["a", "b"]


def test_inputs_with_defaults_may_be_left_out_or_given() -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.STRING, [1]) for name in ("x", "tail")]
    default = helper.make_tensor("tail", TensorProto.STRING, [1], [b"!"])
    node = helper.make_node("StringConcat", ["x", "tail"], ["y"])
    session = session_of([node], inputs, helper.make_tensor_value_info("y", TensorProto.STRING, [1]), (default,))
    for _ in range(3):
        assert session.run(None, {"x": np.array(["a"], object)})[0].tolist() == ["a!"]
    for _ in range(3):
        given = {"x": np.array(["a"], object), "tail": np.array(["?"], object)}
        assert session.run(None, given)[0].tolist() == ["a?"]
    assert session.run(None, {"x": np.array(["b"], object)})[0].tolist() == ["b!"]


def test_a_saved_program_takes_the_short_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    texts = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="a+")
    output = helper.make_tensor_value_info("y", TensorProto.BOOL, [2])
    feeds = {"x": np.array(["aa", "ab"], object)}
    for _ in range(2):
        session = session_of([node], [texts], output)
        for _ in range(3):
            assert session.run(None, feeds)[0].tolist() == [True, False]
        assert session._opened.run_fast(feeds) is not None
