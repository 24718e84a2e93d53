"""Models converted to the ORT format: files, their names, and the list of operators, compared with ONNX Runtime's tool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.cli.main import main
from sardonyx.conversion.required_operators import read_configuration
from sardonyx.formats import ort
from small_nets import NETS

onnxruntime.set_default_logger_severity(3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with models, one of them deeper."""
    (tmp_path / "models/deep").mkdir(parents=True)
    shutil.copy("src/sardonyx/data/digits.onnx", tmp_path / "models/deep/digits.onnx")
    (tmp_path / "models/net.onnx").write_bytes(NETS["perceptron"]()[0])
    x, i = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2]), helper.make_tensor_value_info("i", 7, [2])
    outputs = [helper.make_tensor_value_info("h", TensorProto.FLOAT, None), helper.make_tensor_value_info("c", 7, None)]
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"]),
        helper.make_node("OneHot", ["i", "d", "v"], ["o"]),
        helper.make_node("Cast", ["g"], ["c"], to=7),
        helper.make_node("Where", ["b", "o", "o"], ["h"]),
    ]
    constants = [
        helper.make_tensor("d", 7, [1], [4]),
        helper.make_tensor("v", 1, [2], [0.0, 1.0]),
        helper.make_tensor("b", TensorProto.BOOL, [1], [True]),
    ]
    graph = helper.make_graph(nodes, "g", [x, i], outputs, constants)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (tmp_path / "models/hot.onnx").write_bytes(content)
    (tmp_path / "models/old.optimized.onnx").write_bytes(content)
    return tmp_path / "models"


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def their_tool(source: Path, output: Path, *arguments: str, level: str = "all") -> None:
    environment = {**os.environ, "ORT_CONVERT_ONNX_MODELS_TO_ORT_OPTIMIZATION_LEVEL": level}
    command = [sys.executable, "-m", "onnxruntime.tools.convert_onnx_models_to_ort", str(source), "--output_dir", str(output)]
    subprocess.run([*command, *arguments], check=True, capture_output=True, env=environment)


@pytest.mark.parametrize("single", [False, True])
def test_files_have_the_names_that_onnxruntime_gives_them(single: bool, folder: Path, tmp_path: Path) -> None:
    source = folder / "net.onnx" if single else folder
    done = sardonyx.convert_models(source, tmp_path / "ours", enable_type_reduction=single, save_optimized_onnx=single)
    sardonyx.convert_models(source, tmp_path / "ours", level="basic", styles=["fixed"])
    their_tool(source, tmp_path / "theirs", *(["--enable_type_reduction", "--save_optimized_onnx_model"] if single else []))
    their_tool(source, tmp_path / "theirs", "--optimization_style", "Fixed", level="basic")
    assert names(tmp_path / "ours") == names(tmp_path / "theirs")
    assert [each.style for each in done] == ["fixed", "runtime"]
    assert all(path.is_file() for each in done for path in (*each.models, *each.optimized))


def test_the_operators_and_types_are_those_that_onnxruntime_lists(folder: Path, tmp_path: Path) -> None:
    sardonyx.convert_models(folder, tmp_path / "ours", styles=["fixed"], level="disable", enable_type_reduction=True)
    their_tool(folder, tmp_path / "theirs", "--optimization_style", "Fixed", "--enable_type_reduction", level="disable")
    config = "required_operators_and_types.disable.config"
    assert lines(tmp_path / "ours" / config) == lines(tmp_path / "theirs" / config)


def test_converted_models_run_in_both_engines(folder: Path, tmp_path: Path) -> None:
    content, feeds = NETS["perceptron"]()
    wanted = onnxruntime.InferenceSession(content).run(None, feeds)
    for each in sardonyx.convert_models(folder / "net.onnx", tmp_path / "out"):
        (path,) = each.models
        for engine in (onnxruntime, sardonyx, sardonyx.minimal):
            np.testing.assert_allclose(engine.InferenceSession(str(path)).run(None, feeds)[0], wanted[0], rtol=1e-4, atol=1e-5)


def test_the_runtime_style_writes_optimisations_down_and_lists_what_they_make(folder: Path, tmp_path: Path) -> None:
    done = sardonyx.convert_models(folder / "deep", tmp_path / "out", styles=["runtime"])
    assert [record.action for record in ort.load(done[0].models[0]).saved_optimisations] == ["ConvAct", "ConvAct"]
    assert done[0].config is not None
    listed = read_configuration(done[0].config).operators
    assert "FusedConv" in listed["com.microsoft"][1]
    assert any("Conv" in found for found in listed[""].values())


def test_a_model_that_cannot_be_converted_stops_the_others_or_not(folder: Path, tmp_path: Path) -> None:
    (folder / "broken.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(sardonyx.InvalidProtobuf):
        sardonyx.convert_models(folder, tmp_path / "out", styles=["fixed"])
    (done,) = sardonyx.convert_models(folder, tmp_path / "out", styles=["fixed"], allow_failures=True)
    assert [path.name for path in done.failures] == ["broken.onnx"]
    assert len(done.models) == 3


def test_choices_that_do_not_exist_are_refused(folder: Path) -> None:
    for wrong in ({"styles": ["quick"]}, {"level": "most"}, {"target_platform": "vax"}):
        with pytest.raises(sardonyx.InvalidArgument, match="expected"):
            sardonyx.convert_models(folder, **wrong)
    with pytest.raises(sardonyx.NoSuchFile):
        sardonyx.convert_models(folder / "missing")
    (folder / "empty").mkdir()
    with pytest.raises(sardonyx.InvalidArgument, match=r"no \.onnx files"):
        sardonyx.convert_models(folder / "empty")


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["convert", str(folder), "--output-dir", str(tmp_path / "out"), "--optimization-style", "fixed"]
    assert main([*arguments, "--enable-type-reduction", "--target-platform", "arm"]) == 0
    shown = capsys.readouterr().out
    assert "digits.onnx -> " in shown
    assert "3 models" in shown
    assert main([*arguments, "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert facts["style"] == "fixed"
    assert len(facts["models"]) == 3
    (folder / "broken.onnx").write_bytes(b"nothing of the kind")
    assert main([*arguments, "--allow-conversion-failures"]) == 1
    assert main(["convert", str(folder / "missing")]) == 1


def test_configurations_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "needed.config"
    path.write_text('#\n\nai.onnx;11,13;Add{"inputs": {"0": ["float", "int64_t"]}},Conv , Cast{"outputs": {"0": ["bool"]}}\n')
    found = read_configuration(path)
    assert found.operators == {"": {11: {"Add", "Conv", "Cast"}, 13: {"Add", "Conv", "Cast"}}}
    assert found.types == {("", "Add"): {"inputs": {"0": ["float", "int64_t"]}}, ("", "Cast"): {"outputs": {"0": ["bool"]}}}
    path.write_text("!globally_allowed_types;float,int8_t\n!no_ops_specified_means_all_ops_are_required\n")
    assert read_configuration(path).allowed_types == frozenset(("float", "int8_t"))
    assert read_configuration(path).needs_all
    for wrong in ("ai.onnx;13", "ai.onnx;x;Add", 'ai.onnx;13;Add{"inputs"', 'ai.onnx;13;Add{"a": 1}Mul',
                  "!globally_allowed_types;float\n!globally_allowed_types;float",
                  '!globally_allowed_types;float\nai.onnx;13;Add{"inputs": {}, "a": 1}'):  # fmt: skip
        path.write_text(wrong)
        with pytest.raises(sardonyx.InvalidArgument, match=r"needed\.config"):
            read_configuration(path)
