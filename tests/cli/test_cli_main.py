"""The command line as a whole: exit codes, errors, pipes, inspection, checks, the operator table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.cli import tables
from sardonyx.cli.main import main

FLOATS = (TensorProto.FLOAT, ["N", 3])


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.out + captured.err


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sardonyx", *arguments], capture_output=True, text=True, timeout=120, check=False, **options
    )


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argument, expected in (("--version", f"sardonyx {sardonyx.__version__}"), ("--help", "run a model")):
        with pytest.raises(SystemExit) as stopped:
            main([argument])
        assert stopped.value.code == 0
        assert expected in capsys.readouterr().out


def test_an_unknown_command_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["fly"])
    assert stopped.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err


def test_python_m_sardonyx_is_the_command() -> None:
    result = command("--version")
    assert (result.returncode, result.stdout) == (0, f"sardonyx {sardonyx.__version__}\n")


def test_a_closed_pipe_is_no_error() -> None:
    shell = f"{sys.executable} -m sardonyx ops | head -1"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout.startswith("ai.onnx: ")
    assert result.stderr == ""


def test_output_in_a_pipe_has_no_escape_codes(adder: str) -> None:
    result = command("run", adder)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout + result.stderr


@pytest.mark.parametrize("subcommand", ["run", "inspect"])
def test_a_missing_file_is_one_message_and_exit_code_1(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, subcommand, "nowhere.onnx", code=1)
    assert "nowhere.onnx" in text
    assert text.startswith("sardonyx: error: ")


def test_debug_shows_where_the_error_came_from() -> None:
    result = command("inspect", "nowhere.onnx", "--debug")
    assert "Traceback" in result.stderr
    assert "NoSuchFile" in result.stderr


def test_inspect_shows_what_a_model_is_made_of(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "inspect", adder)
    assert "a  f32[N,3]" in text
    assert "opsets      ai.onnx 17" in text
    assert "operators: 1 node" in text
    assert ["1", "Add", "17", "native"] in [line.split() for line in text.splitlines()]


def test_inspect_writes_json(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads(output_of(capsys, "inspect", adder, "--json"))
    assert summary["inputs"][0] == {"name": "a", "type": "f32[N,3]", "onnx_type": "tensor(float)", "doc": ""}
    assert summary["operators"] == [{"domain": "ai.onnx", "name": "Add", "version": 17, "count": 1, "execution": "native"}]


def test_inspect_says_which_operators_are_not_there(build: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = build([helper.make_node("Frobnicate", ["x"], ["y"])], {"x": FLOATS}, {"y": FLOATS})
    text = output_of(capsys, "inspect", path)
    assert "not available: Frobnicate" in text


def test_check_finds_nothing_wrong_with_a_good_model(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert output_of(capsys, "check", adder) == f"{adder}: no problems\n"


def test_check_lists_all_problems_by_node(build: Any, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["m"], name="first"),
        helper.make_node("Relu", ["x", "x"], ["y"], name="second"),
    ]
    path = build(nodes, {"x": FLOATS}, {"y": FLOATS})
    text = output_of(capsys, "check", path, code=1)
    assert "2 errors" in text
    assert "error: Frobnicate 'first': " in text
    assert "error: Relu 'second': " in text


def test_check_goes_on_after_a_file_that_is_no_model(adder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff\xff\xff")
    text = output_of(capsys, "check", str(broken), adder, code=1)
    assert f"{broken}: 1 error" in text
    assert f"{adder}: no problems" in text


def test_check_writes_one_json_object_per_model(adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output_of(capsys, "check", adder, adder, "--json").splitlines()
    assert [json.loads(line) for line in lines] == [{"model": adder, "problems": []}] * 2


def test_ops_lists_every_domain(capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "ops")
    assert "ai.onnx.ml: " in text
    assert "com.microsoft: " in text


def test_ops_of_one_domain(capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "ops", "--domain", "ai.onnx.ml")
    assert "TreeEnsemble" in text
    assert "Conv" not in text


def test_ops_describes_one_operator(capsys: pytest.CaptureFixture[str]) -> None:
    text = output_of(capsys, "ops", "conv", "--domain", "ai.onnx")
    assert text.splitlines()[0] == "ai.onnx::Conv"
    assert "X: T, W: T, B?: T" in text


def test_ops_knows_similar_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert "similar: Softmax" in output_of(capsys, "ops", "Softmx", code=2)
    assert "there is no domain 'com.nobody'" in output_of(capsys, "ops", "--domain", "com.nobody", code=2)


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    lines = tables.columns([("a", 1, "x"), ("long", 200, "")], header=("name", "n", "note"))
    assert lines == ["  name    n  note", "  a       1  x", "  long  200"]
    assert tables.columns([]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (tables.byte_size(999), "999 B"),
        (tables.byte_size(1_500_000), "1.5 MB"),
        (tables.byte_size(2_500_000_000_000), "2500.0 GB"),
        (tables.duration(2.5), "2.50 s"),
        (tables.duration(0.0125), "12.5 ms"),
        (tables.duration(0.000042), "42.0 us"),
        (tables.duration(0.0000042), "4.20 us"),
        (tables.counted(1, "node"), "1 node"),
        (tables.counted(1200, "node"), "1,200 nodes"),
    ],
)
def test_sizes_and_times_are_short(text: str, expected: str) -> None:
    assert text == expected
