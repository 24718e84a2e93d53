"""Models that are native for single shapes and deciding numbers only: these are compiled when they come, saved, told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from branching_models import branching_model
from sardonyx.runtime.specialisations import SpecialisationTable

F32 = np.float32


def expected(x: Any, mode: int) -> Any:
    return (x + x)[None] if mode == 2 else x.sum()


def check(session: sardonyx.InferenceSession, rng: np.random.Generator, cases: list[tuple[int, int, int]]) -> None:
    for n, m, mode in cases:
        x = rng.normal(size=(n, m)).astype(F32)
        (found,) = session.run(None, {"x": x, "mode": np.array(mode)})
        assert found.shape == expected(x, mode).shape
        np.testing.assert_allclose(found, expected(x, mode), rtol=1e-5)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    return branching_model(tmp_path / "m.onnx")


MIXED = [(2, 3, 2), (2, 3, 2), (2, 3, 2), (2, 3, 1), (2, 3, 1), (2, 3, 1), (4, 5, 2), (4, 5, 1), (2, 3, 2), (2, 3, 0), (4, 5, 2)]


def test_cases_are_told_apart_by_shapes_and_by_the_numbers_that_decide(model: Path) -> None:
    session = sardonyx.InferenceSession(model)
    check(session, np.random.default_rng(0), MIXED)
    compiled: Any = session._opened.program
    assert compiled.deciding_inputs == ("mode",)
    assert {specialisation[0][2] for specialisation in compiled._compiled_specialisations} >= {1, 2}
    assert all(special._fast is not None for special in compiled._compiled_specialisations.values())


def test_cases_are_saved_and_found_by_the_next_session(model: Path) -> None:
    check(sardonyx.InferenceSession(model), np.random.default_rng(0), MIXED)
    session = sardonyx.InferenceSession(model)
    program: Any = session._opened.program
    assert type(program).__name__ == "SavedSpecialisations"
    check(session, np.random.default_rng(1), [(2, 3, 2), (2, 3, 1), (2, 3, 2)])
    assert program._full is None  # nothing had to be compiled
    check(session, np.random.default_rng(2), [*MIXED, (7, 1, 2), (7, 1, 2), (7, 1, 2)])


def test_a_number_that_decides_may_be_an_output_as_well(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = onnx.load(model)
    content.graph.output.append(helper.make_tensor_value_info("mode", TensorProto.INT64, []))
    session = sardonyx.InferenceSession(content.SerializeToString())
    x = np.ones((2, 3), F32)
    for mode in (2, 1, 2, 1, 0):
        found, told = session.run(None, {"x": x, "mode": np.array(mode)})
        np.testing.assert_allclose(found, expected(x, mode))
        assert told == mode
    assert not caplog.records


def test_a_saved_model_without_the_wanted_case_describes_itself_and_refuses_like_any_other(model: Path) -> None:
    sardonyx.InferenceSession(model)
    session = sardonyx.InferenceSession(model)
    assert type(session._opened.program).__name__ == "SavedSpecialisations"
    assert [(arg.name, arg.shape) for arg in session.get_inputs()] == [("x", ["n", "m"]), ("mode", [])]
    with pytest.raises(sardonyx.InvalidArgument, match="Unexpected input data type"):
        session.run(None, {"x": np.zeros((2, 3), np.float64), "mode": np.array(2)})
    check(session, np.random.default_rng(0), [(2, 3, 2)])


def test_a_damaged_case_is_compiled_again(model: Path, tmp_path: Path) -> None:
    check(sardonyx.InferenceSession(model), np.random.default_rng(0), MIXED)
    for path in (tmp_path / "cache").glob("*.program"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    check(sardonyx.InferenceSession(model), np.random.default_rng(0), MIXED)


def test_feeds_that_are_not_arrays_are_no_case() -> None:
    table = SpecialisationTable(["mode"])
    assert table.key_of({"x": [1.0]}) is None
    assert table.key_of({"x": np.zeros((2, 3)), "mode": np.array([7])}) == (("mode", (1,), 7), ("x", (2, 3), None))
    assert table.run({"x": np.zeros(3)}) is None


def summing_model(path: Path) -> Path:
    """Sums of long rows that a program for one shape makes in another order; by a number that is fed, in two ranks."""

    def side(name: str, node: Any) -> Any:
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    sides = [
        side("first", helper.make_node("Unsqueeze", ["product", "axes"], ["first_y"])),
        side("second", helper.make_node("Neg", ["product"], ["second_y"])),
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["square"]),
        helper.make_node("MatMul", ["square", "x"], ["product"]),
        helper.make_node("Equal", ["mode", "wanted"], ["is_first"]),
        helper.make_node("If", ["is_first"], ["y"], then_branch=sides[0], else_branch=sides[1]),
        helper.make_node("ReduceMean", ["y"], ["mean"], keepdims=0),
        helper.make_node("Sub", ["y", "mean"], ["z"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
        helper.make_tensor_value_info("mode", TensorProto.INT64, []),
    ]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    constants = [
        helper.make_tensor("axes", TensorProto.INT64, [1], [0]),
        helper.make_tensor("wanted", TensorProto.INT64, [], [2]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def bits(path: Path, feeds: dict[str, Any], runs: int) -> set[bytes]:
    session = sardonyx.InferenceSession(path)
    return {session.run(None, feeds)[0].tobytes() for _ in range(runs)}


def test_every_run_of_a_case_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run, later ones, those of a session that opens the saved specialisation, and those with others between them."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    path = summing_model(tmp_path / "m.onnx")
    random = np.random.default_rng(0)
    all_feeds = [
        {"x": random.standard_normal((n, 300)).astype(F32), "mode": np.array(mode)}
        for n, mode in ((3, 2), (3, 1), (40, 2), (41, 2), (42, 2), (43, 1))  # more than are compiled
    ]
    first = bits(path, all_feeds[0], 3)
    assert len(first) == 1
    assert bits(path, all_feeds[0], 3) == first
    session = sardonyx.InferenceSession(path)
    found: list[set[bytes]] = [set() for _ in all_feeds]
    for _ in range(4):
        for results, feeds in zip(found, all_feeds):
            results.add(session.run(None, feeds)[0].tobytes())
    assert [len(results) for results in found] == [1] * len(all_feeds)
    assert found[0] == first
