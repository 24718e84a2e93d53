"""Engines against each other: times, agreement, and what happens to an engine that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from sardonyx import benchmarking
from sardonyx.benchmarking.comparing import largest_difference


@pytest.fixture
def doubler(tmp_path: Path) -> Path:
    """`y = x + x`."""
    port = helper.make_tensor_value_info
    shape = ["N", 3]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "graph",
        [port("x", TensorProto.FLOAT, shape)],
        [port("y", TensorProto.FLOAT, shape)],
    )
    path = tmp_path / "doubler.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


FEEDS: dict[str, Any] = {"x": np.ones((2, 3), np.float32)}


def test_two_engines_are_compared_on_one_model(doubler: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = benchmarking.compare(doubler, FEEDS, threads=1, seconds=0.05)
    ours, theirs = found.engines
    assert (ours.name, theirs.name) == ("sardonyx", "onnxruntime")
    assert ours.timing is not None
    assert theirs.timing is not None
    assert theirs.difference == 0
    assert found.ratio("onnxruntime") == pytest.approx(theirs.timing.best / ours.timing.best)
    assert found.ratio("onnxruntime", "median") == pytest.approx(theirs.timing.median / ours.timing.median)
    assert found.ratio("openvino") is None


def test_an_engine_that_is_missing_or_unknown_is_listed_with_the_reason(doubler: Path) -> None:
    found = benchmarking.compare(doubler, FEEDS, peers=("abacus",), threads=1, seconds=0.02)
    ours, abacus = found.engines
    assert ours.timing is not None
    assert "there is no engine 'abacus'" in abacus.error
    assert abacus.timing is None


def test_a_feed_our_engine_refuses_is_its_error(doubler: Path) -> None:
    found = benchmarking.compare(doubler, {"x": np.ones((2, 4), np.float32)}, peers=(), seconds=0.02)
    [ours] = found.engines
    assert ours.timing is None
    assert "x" in ours.error


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([np.array([1.0, 2.0])], [np.array([1.0, 2.0])], 0.0),
        ([np.array([1.0, 2.2])], [np.array([1.0, 2.0])], 0.1),
        ([np.array([np.nan, np.inf])], [np.array([np.nan, np.inf])], 0.0),
        ([np.array([np.nan])], [np.array([1.0])], float("inf")),
        ([np.array([1.0])], [np.array([np.inf])], float("inf")),
        ([np.array([1.0])], [np.array([0.0])], float("inf")),
        ([np.ones(2)], [np.ones(3)], float("inf")),
        ([np.ones(2)], [], float("inf")),
        ([[np.ones(1)]], [[np.ones(1)]], 0.0),
        ([{"a": 1.0}], [{"a": 2.0}], 0.5),
        ([{"a": 1.0}], [{"b": 1.0}], float("inf")),
        ([np.array(["a"], object)], [np.array(["a"], object)], 0.0),
        ([np.array(["a"], object)], [np.array(["b"], object)], float("inf")),
        ([np.zeros((0, 2))], [np.zeros((0, 2))], 0.0),
    ],
)
def test_the_difference_is_a_share_of_the_largest_number(ours: list[Any], theirs: list[Any], expected: float) -> None:
    assert largest_difference(ours, theirs) == pytest.approx(expected)


def test_steps_are_timed_by_kernel(doubler: Path) -> None:
    [step] = benchmarking.step_times(doubler, FEEDS, threads=1, runs=2)
    assert (step.label, step.host, step.calls) == ("Add", False, 1)
    assert 0 < step.seconds < 0.1


def test_a_step_in_python_is_told_apart(tmp_path: Path) -> None:
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Unique", ["x"], ["u"], name="few"), helper.make_node("Neg", ["u"], ["y"])],
        "graph",
        [port("x", TensorProto.FLOAT, [4])],
        [port("y", TensorProto.FLOAT, ["K"])],
    )
    path = tmp_path / "unique.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    steps = benchmarking.step_times(path, {"x": np.array([1, 2, 2, 1], np.float32)}, runs=1)
    assert {(step.operator, step.host) for step in steps} == {("Unique", True), ("Neg", False)}


def test_fresh_processes_tell_memory_and_start(doubler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    assert benchmarking.peak_memory("sardonyx", doubler, FEEDS, 1, runs=2) > 10_000_000
    created = benchmarking.creation("sardonyx", doubler, FEEDS, 1, attempts=1)
    assert 0 < created.warm < 60
    assert 0 < created.cold < 60
    assert min(created.cold_peak, created.warm_peak) > 10_000_000
    start = benchmarking.fresh_start("sardonyx", doubler, FEEDS, 1, attempts=1)
    assert start.total == pytest.approx(start.imported + start.created + start.first_run, rel=1e-3)
    varied, alone = benchmarking.shapes_memory("sardonyx", doubler, [{"x": np.ones((n, 3), np.float32)} for n in (1, 5, 3)], 1)
    assert 0.5 < varied / alone < 2


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    from sardonyx import Fail

    with pytest.raises(Fail, match=r"sardonyx failed in a process of its own: .*nowhere\.onnx"):
        benchmarking.peak_memory("sardonyx", tmp_path / "nowhere.onnx", {}, 1)


def test_facts_about_the_machine_name_processor_and_versions() -> None:
    facts = benchmarking.machine_facts()
    assert facts["cores"] >= 1
    assert facts["processor"]
    assert facts["packages"]["numpy"] == np.__version__
