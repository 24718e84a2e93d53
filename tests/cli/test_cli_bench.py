"""`sardonyx bench`."""

from __future__ import annotations

import json
import re

import pytest

import sardonyx
from sardonyx.cli.main import main

pytest.importorskip("onnxruntime")
QUICK = ("--seconds", "0.02", "--quick")


def test_times_of_both_engines_stand_in_a_table(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", adder, *QUICK, "--threads", "1"]) == 0
    head, titles, *rows = capsys.readouterr().out.splitlines()
    assert head == f"{adder}, 1 thread: a float32 1x3, b float32 1x3"
    assert titles.split()[:4] == ["engine", "version", "best", "median"]
    assert [row.split()[0] for row in rows[:-1]] == ["sardonyx", "onnxruntime"]
    assert re.fullmatch(r"load in the last minute: [\d.]+ on \d+ cores?, our own work included", rows[-1])


def test_every_batch_size_is_measured(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", adder, *QUICK, "--batch", "1,8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["batch"], each["inputs"]["a"]) for each in found["results"]] == [(1, "float32 1x3"), (8, "float32 8x3")]
    engine = found["results"][1]["engines"]["onnxruntime"]
    assert engine["ratio_best"] > 0
    assert engine["difference"] == 0
    assert found["machine"]["cores"] >= 1


def test_callers_that_run_together_are_compared_with_one(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", adder, *QUICK, "--threads", "2", "--callers", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("runs per second:")
    assert lines[at + 1].split() == ["engine", "one", "caller", "3", "callers", "together"]
    assert [line.split()[0] for line in lines[at + 2 : at + 4]] == ["sardonyx", "onnxruntime"]
    assert all(re.fullmatch(r"\w+ +[\d.]+ +[\d.]+ +[\d.]+x", line.strip()) for line in lines[at + 2 : at + 4])
    assert main(["bench", adder, *QUICK, "--peers", "", "--callers", "2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert found["engines"]["sardonyx"]["one_caller"] > 0
    assert found["engines"]["sardonyx"]["callers"] > 0


def test_one_caller_is_no_comparison(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", adder, *QUICK, "--callers", "1"]) == 2
    assert "--callers 1: expected 2 or more" in capsys.readouterr().err


def test_shapes_and_values_can_be_given(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", adder, *QUICK, "--input", "b=[[1, 2, 3]]", "--shape", "a=5x3", "--peers", ""]) == 0
    assert "b float32 1x3, a float32 5x3" in capsys.readouterr().out


def test_memory_and_session_creation_are_measured_in_fresh_processes(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", adder, "--seconds", "0.02", "--json"]) == 0
    [result] = json.loads(capsys.readouterr().out)["results"]
    for engine in ("sardonyx", "onnxruntime"):
        assert result["engines"][engine]["peak_bytes"] > 10_000_000
        assert result["engines"][engine]["create_warm"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "abacus"], "there is no peer 'abacus'"),
        (["--batch", "none"], "is not a list of positive numbers"),
        (["--batch", "0"], "is not a list of positive numbers"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    adder: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", adder, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_model_with_a_fixed_batch_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from sardonyx.cli.demo import demo_files

    model, _ = demo_files()
    fixed = isinstance(sardonyx.InferenceSession(model).get_inputs()[0].shape[0], int)
    code = main(["bench", str(model), *QUICK, "--batch", "2"])
    assert code == (2 if fixed else 0)


def test_a_peer_that_is_not_installed_is_named(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    if sardonyx.benchmarking.is_installed("openvino"):
        pytest.skip("openvino is installed")
    assert main(["bench", adder, *QUICK, "--peers", "openvino"]) == 0
    assert "openvino: openvino is not installed (pip install openvino)" in capsys.readouterr().out
