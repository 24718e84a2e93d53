"""`sardonyx run`: what it accepts, what it says, what it writes."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.cli.demo import answer, picture_lines
from sardonyx.cli.feeds import parse_shape
from sardonyx.cli.main import main
from sardonyx.cli.progress import Progress
from sardonyx.cli.usage import UsageError


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["run", *arguments]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_the_demo_draws_the_picture_and_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--demo")
    assert "@@" in text
    assert re.search(r"This is a seven \(9\d\.\d% sure\)\.", text)
    assert re.search(r"digits.onnx: loaded in .*s, ran in .*s", text)


def test_inputs_are_made_up_and_outputs_described(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, adder, "--shape", "N=4")
    assert "made-up input: a float32 4x3, b float32 4x3" in text
    assert re.search(r"y +float32 +4x3 +min .*, mean .*, max ", text)


def test_a_shape_of_one_input_fixes_the_named_dimension_of_the_others(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "b float32 5x3" in printed(capsys, adder, "--shape", "a=5x3")


def test_the_same_seed_makes_the_same_inputs(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [printed(capsys, adder, "--seed", seed).splitlines()[-1] for seed in ("1", "1", "2")]
    assert lines[0] == lines[1] != lines[2]


def test_inputs_come_from_npy_npz_pb_and_literals(adder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = np.ones((1, 3), np.float32)
    np.save(tmp_path / "one.npy", one)
    np.savez(tmp_path / "both.npz", a=one, b=one * 2)
    (tmp_path / "one.pb").write_bytes(numpy_helper.from_array(one).SerializeToString())
    assert "11, 12, 13" in printed(capsys, adder, "--input", f"a={tmp_path}/one.npy", "--input", "b=[[10, 11, 12]]")
    assert "3, 3, 3" in printed(capsys, adder, "--input", f"{tmp_path}/both.npz")
    assert "4, 4, 4" in printed(capsys, adder, "--input", f"a={tmp_path}/both.npz", "--input", "b=[[3,3,3]]")
    assert "1, 1, 1" in printed(capsys, adder, "--input", f"a={tmp_path}/one.pb", "--input", "b=[[0,0,0]]")


def test_outputs_are_written_as_npy(adder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, adder, "--input", "a=[[1,2,3]]", "--input", "b=[[1,1,1]]", "--output", str(tmp_path / "out"))
    np.testing.assert_array_equal(np.load(tmp_path / "out/y.npy"), np.array([[2, 3, 4]], np.float32))


def test_an_intermediate_value_can_be_fetched(build: Any, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["inner"]), helper.make_node("Abs", ["inner"], ["y"])]
    path = build(nodes, {"x": (TensorProto.FLOAT, [2])}, {"y": (TensorProto.FLOAT, [2])})
    assert "-1, -2" in printed(capsys, path, "--input", "x=[1,2]", "--fetch", "inner")


def test_repeat_reports_the_median(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"3 runs: median .*s, fastest .*s, slowest .*s", printed(capsys, adder, "--repeat", "3"))


def test_labels_name_the_classes(build: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"labels": json.dumps(["cat", "dog", "owl"])}
    shape = (TensorProto.FLOAT, [1, 3])
    path = build([helper.make_node("Identity", ["x"], ["y"])], {"x": shape}, {"y": shape}, metadata=labels)
    text = printed(capsys, path, "--input", "x=[[1.5, 7.25, -3]]", "--top", "2")
    assert [line.split() for line in text.splitlines()[-2:]] == [["dog", "7.25"], ["cat", "1.5"]]
    (tmp_path / "names.txt").write_text("ant\nbee\ncow\n")
    assert "bee" in printed(capsys, path, "--input", "x=[[1, 7, 3]]", "--labels", str(tmp_path / "names.txt"))


def test_probabilities_are_recognised_without_labels(build: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shape = (TensorProto.FLOAT, ["N", 4])
    path = build([helper.make_node("Softmax", ["x"], ["y"])], {"x": shape}, {"y": shape})
    text = printed(capsys, path, "--input", "x=[[0,0,9,0],[9,0,0,0],[0,0,0,0],[0,0,0,0],[0,0,0,0]]", "--top", "1")
    assert re.search(r"row 0:\n +class 2 +100\.0%\n +row 1:\n +class 0", text)
    assert "... and 2 more rows" in text


@pytest.mark.parametrize(
    ("type_", "literal", "shown"),
    [
        (TensorProto.STRING, "hello", "'hello'"),
        (TensorProto.INT64, "[1, 2]", "1, 2"),
        (TensorProto.BOOL, "[true, false]", "True, False"),
        (TensorProto.BFLOAT16, "[1.5]", "1.5"),
        (TensorProto.DOUBLE, "[]", "empty"),
    ],
)
def test_every_kind_of_element_can_be_given_and_shown(
    build: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, type_: int, literal: str, shown: str
) -> None:
    path = build([helper.make_node("Identity", ["x"], ["y"])], {"x": (type_, None)}, {"y": (type_, None)})
    assert shown in printed(capsys, path, "--input", f"x={literal}", "--output", str(tmp_path / "out"))
    np.load(tmp_path / "out/y.npy", allow_pickle=False)


@pytest.mark.parametrize(
    "type_", [TensorProto.STRING, TensorProto.INT32, TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.UINT8]
)
def test_every_kind_of_element_can_be_made_up(build: Any, capsys: pytest.CaptureFixture[str], type_: int) -> None:
    path = build([helper.make_node("Identity", ["x"], ["y"])], {"x": (type_, ["A", 2])}, {"y": (type_, ["A", 2])})
    assert "1x2" in printed(capsys, path)


def test_sequences_are_shown_and_saved_item_by_item(build: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("SplitToSequence", ["x"], ["y"], axis=0)]
    path = build(nodes, {"x": (TensorProto.FLOAT, [2, 2])}, {})
    text = printed(capsys, path, "--fetch", "y", "--output", str(tmp_path / "out"))
    assert re.search(r"y +sequence of float32 +2", text)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["y.0.npy", "y.1.npy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "c=1"], "the model has no input 'c'"),
        (["--input", "nothing"], "is not NAME=VALUE"),
        (["--input", "a=[1,"], "neither a .npy, .npz or .pb file nor JSON"),
        (["--input", "a=missing.npy"], "missing.npy: no such file"),
        (["--input", "a=1", "--input", "a=2"], "input 'a' is given twice"),
        (["--input", "a=[[1,2,3]]", "--shape", "a=1x3"], "has both a value and a shape"),
        (["--shape", "a=1y3"], "is not NAME=NUMBERxNUMBERx..."),
        (["--input", 'a=["x"]'], "could not convert string to float"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    adder: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    text = printed(capsys, adder, *arguments, code=2)
    assert message in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "M=1"], "a shape is given for 'M', which is no input and no dimension; known: a, b, N"),
        (["--shape", "N=1x2"], "dimension 'N' takes one number"),
        (["--shape", "a=1x4"], "hint: the model runs with --shape a=1x3 --shape b=1x3"),
        (["--fetch", "z"], "'z'"),
    ],
)
def test_a_failing_run_exits_with_1(adder: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    text = printed(capsys, adder, *arguments, code=1)
    assert message in text
    assert "Traceback" not in text


def test_a_model_or_the_demo_must_be_named(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "either a MODEL or --demo" in printed(capsys, code=2)
    assert "either a MODEL or --demo" in printed(capsys, adder, "--demo", code=2)


def test_shapes_are_parsed() -> None:
    assert parse_shape("image=1x3x224x224") == ("image", (1, 3, 224, 224))
    assert parse_shape("a=b=2") == ("a=b", (2,))
    assert parse_shape("scalar=") == ("scalar", ())
    with pytest.raises(UsageError, match="is not NAME"):
        parse_shape("image")


def test_the_answer_is_a_sentence() -> None:
    assert answer(np.array([[0.1, 0.9]]), ["one", "eight"]) == "This is an eight (90.0% sure)."
    assert answer(np.array([3.0, 2.0]), ["one", "two"]) == "This is a one."


def test_a_picture_is_drawn_in_shades() -> None:
    assert picture_lines(np.array([[[[0.0, 16.0], [8.0, 0.0]]]])) == ["    @@", "  ==  "]


def test_the_progress_bar_counts_and_survives_loops() -> None:
    progress = Progress(4, "nodes")
    progress.done = 2
    assert progress.line(1.5) == "[###############...............] 2/4 nodes, 1.50 s"
    progress.done = 9
    assert progress.line(1.5) == "9 nodes, 1.50 s"


def test_a_watched_run_counts_its_nodes(adder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    finished: list[Progress] = []

    class Kept(Progress):
        def __init__(self, total: int | None, noun: str) -> None:
            super().__init__(total, noun)
            finished.append(self)

    monkeypatch.setattr("sardonyx.cli.run.is_watched", lambda: True)
    monkeypatch.setattr("sardonyx.cli.run.Progress", Kept)
    assert "y  float32  1x3" in printed(capsys, adder)
    [_, progress] = finished
    assert (progress.total, progress.noun) == (1, "nodes")
    assert progress.done >= 1


def test_the_bar_is_drawn_after_a_while_and_wiped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sardonyx.cli.progress.is_watched", lambda: True)
    monkeypatch.setattr("sardonyx.cli.progress.PATIENCE", 0.0)
    progress = Progress(2, "runs")
    progress.advance()
    deadline = time.monotonic() + 10
    with progress:
        while not progress.shown and time.monotonic() < deadline:
            time.sleep(0.01)
    text = capsys.readouterr().err
    assert "1/2 runs" in text
    assert text.endswith("\r\x1b[K")
