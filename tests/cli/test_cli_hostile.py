"""Wrong input of every kind: one line that says what is wrong, an exit code, and never a traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.cli import entry, tables
from sardonyx.cli.main import main
from sardonyx.cli.progress import Progress

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
DATA = Path(sardonyx.__file__).parent / "data"
COMMANDS = ("run", "inspect", "explain", "bench")


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sardonyx", *arguments], capture_output=True, text=True, check=False, **options)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    assert main(list(arguments)) == code
    text = capsys.readouterr().err
    assert text.startswith("sardonyx: error: ")
    assert "Traceback" not in text
    assert "defect" not in text
    return text


def files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that are no models, and what is said about them."""
    model = (DATA / "digits.onnx").read_bytes()
    contents = {
        "text": (b"hello world, this is text", "not an ONNX file"),
        "zeros": (bytes(500), "not an ONNX file"),
        "empty": (b"", "not an ONNX file: it is empty"),
        "html": (b"<!DOCTYPE html><html></html>", "this looks like an HTML page"),
        "numpy": ((DATA / "seven.npy").read_bytes(), "this looks like a NumPy array"),
        "half": (model[: len(model) // 2], "are left"),
    }
    found = {}
    for name, (content, said) in contents.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(content)
        found[name] = path, said
    with zipfile.ZipFile(folder / "zip.onnx", "w") as archive:
        archive.writestr("a", "b")
    found["zip"] = folder / "zip.onnx", "not an ONNX file"
    (folder / "folder.onnx").mkdir()
    found["folder"] = folder / "folder.onnx", "is a folder"
    found["nothing"] = folder / "nothing.onnx", "there is no model file"
    return found


@pytest.mark.parametrize("subcommand", COMMANDS)
@pytest.mark.parametrize("name", ["text", "zeros", "empty", "html", "numpy", "half", "zip", "folder", "nothing"])
def test_what_is_no_model_is_said_in_one_line(
    subcommand: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = files(tmp_path)[name]
    assert said in refused(capsys, subcommand, str(path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "secret.onnx"
    path.write_bytes(b"x")
    path.chmod(0)
    assert "secret.onnx" in refused(capsys, "run", str(path))


@pytest.mark.parametrize("subcommand", ["run", "inspect", "check", "explain"])
def test_names_beyond_ascii_are_escaped_on_an_ascii_terminal(build: Any, subcommand: str) -> None:
    path = build([helper.make_node("Relu", ["größe"], ["höhe"], name="日本")], {"größe": (FLOAT, [2])}, {"höhe": (FLOAT, [2])})
    done = command(subcommand, path, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def identity(build: Any) -> str:
    """`o = i` over one int64."""
    return str(build([helper.make_node("Identity", ["i"], ["o"])], {"i": (INT64, [])}, {"o": (INT64, [])}))


@pytest.mark.parametrize("literal", ["1.5", "1e30", "99999999999999999999", '"x"', "null", "[1, [2]]", "{}", "1,2"])
def test_text_that_is_no_such_number_is_refused(identity: str, literal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--input i=" in refused(capsys, "run", identity, "--input", f"i={literal}", code=2)


def test_a_whole_number_with_a_point_is_one(identity: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", identity, "--input", "i=3.0"]) == 0
    assert re.search(r"o +int64 +scalar +3", capsys.readouterr().out)


@pytest.mark.parametrize("size", ["100000000000", "99999999999999999999999"])
def test_sizes_beyond_memory_are_refused(adder: str, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "would need" in refused(capsys, "run", adder, "--shape", f"N={size}")


def test_a_result_beyond_memory_is_one_line(build: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shape = np.array([1 << 22, 1 << 22, 1 << 10], np.int64)
    nodes = [helper.make_node("Expand", ["x", "shape"], ["a"]), helper.make_node("CumSum", ["a", "axis"], ["y"])]
    path = build(nodes, {"x": (FLOAT, [1])}, {"y": (FLOAT, None)}, {"shape": shape, "axis": np.array(0)})
    refused(capsys, "run", path)


def test_labels_that_are_too_few_or_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, binary = tmp_path / "short.txt", tmp_path / "binary.txt"
    short.write_text("a\nb\n")
    binary.write_bytes(b"\xff\xfe\x00")
    for demo in (["--demo"], [str(DATA / "digits.onnx")]):
        assert "short.txt has 2 labels, but no output has as many classes" in refused(
            capsys, "run", *demo, "--labels", str(short), code=2
        )
    assert "not a text file" in refused(capsys, "run", "--demo", "--labels", str(binary), code=2)
    assert "missing.txt" in refused(capsys, "run", "--demo", "--labels", "missing.txt")


def test_an_array_file_that_is_none(adder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.npy"
    path.write_bytes(b"\x00\x01\x02" * 50)
    assert "is not a NumPy file" in refused(capsys, "run", adder, "--input", f"a={path}", code=2)


def test_a_misspelt_input_has_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'image'?" in refused(capsys, "run", str(DATA / "digits.onnx"), "--input", "imag=1", code=2)


@pytest.mark.parametrize(("redirection", "code"), [(">&-", 0), ("2>&-", 0), (">/dev/full", 1)])
def test_closed_and_full_outputs_are_no_tracebacks(redirection: str, code: int) -> None:
    line = f"{sys.executable} -m sardonyx inspect {DATA / 'digits.onnx'} {redirection}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_whatever_else_goes_wrong_is_one_line_too(
    adder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(sardonyx, "check_model", broken, raising=False)
    assert main(["check", adder]) == 1
    assert "this is a defect of Sardonyx: KeyError: 'oops'" in capsys.readouterr().err
    with pytest.raises(KeyError):
        main(["check", adder, "--debug"])


class Interrupted(types.ModuleType):
    """A module while the user loses patience with it."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["while loading", "while running"])
def test_an_interrupt_is_one_line(moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    module = Interrupted("sardonyx.cli.main")
    if moment == "while running":
        module.main = interrupted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sardonyx.cli.main", module)
    assert entry.main() == 130
    assert capsys.readouterr().err == "sardonyx: error: interrupted\n"


def test_inspect_opens_a_broken_model(build: Any, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Relu", ["nowhere"], ["a"]), helper.make_node("Neg", ["a"], ["y"], domain="far.away")]
    path = build(nodes, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])})
    assert main(["inspect", path]) == 0
    text = capsys.readouterr().out
    assert re.search(r"1 +Relu +17 +native", text)
    assert "the graph is broken (2 problems; `sardonyx check` lists all there are):" in text
    assert "input 0 is 'nowhere', which nothing produces" in text
    assert main(["check", path]) == 1


def test_inspect_and_explain_agree_on_what_runs_in_python(build: Any) -> None:
    constant = numpy_helper.from_array(np.array([-1]))
    kernel = np.ones((2, 3, 2, 2), np.float32)
    nodes = [
        helper.make_node("Constant", [], ["minus"], value=constant),
        helper.make_node("ConvTranspose", ["x", "k"], ["up"], strides=[2, 2]),
        helper.make_node("Shape", ["up"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "start", "end"], ["some"]),
        helper.make_node("Concat", ["some", "minus"], ["shape"], axis=0),
        helper.make_node("Reshape", ["up", "shape"], ["flat"]),
        helper.make_node("MaxRoiPool", ["x", "m"], ["d"], pooled_shape=[1, 1]),
        helper.make_node("Mul", ["flat", "d"], ["y"]),
    ]
    weights = {"k": kernel, "start": np.array([0]), "end": np.array([1])}
    path = build(nodes, {"x": (FLOAT, ["N", 2, 4, 4]), "m": (FLOAT, [1, 5])}, {"y": (FLOAT, None)}, weights)
    inspected = {use.name for use in sardonyx.summarize_model(path).operators if use.execution == "host"}
    explained = {node.operator for node in sardonyx.explain_model(path).nodes if node.placement == "host"}
    assert inspected == explained == {"MaxRoiPool"}


def test_long_cells_are_cut_to_the_terminal_and_not_in_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("x", "f32[" + ",".join(f"floordiv(height + {n}, 2)" for n in range(20)) + "]", "a note")]
    assert len(tables.columns(rows, fit=True)[0]) > 300
    monkeypatch.setattr(tables, "terminal_width", lambda: 60)
    [line] = tables.columns(rows, fit=True)
    assert len(line) == 60
    assert line.startswith("  x  f32[floordiv(height")
    assert line.endswith("...  a note")


def test_what_takes_long_says_so_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sardonyx.cli.progress.is_watched", lambda: True)
    monkeypatch.setattr("sardonyx.cli.progress.PATIENCE", 0.0)
    with Progress(None, "opening model.onnx") as progress:
        while not progress.shown:
            pass
    text = capsys.readouterr().err
    assert "\ropening" not in text
    assert "opening model.onnx, " in text
    assert text.endswith("\r\x1b[K")
