"""`sardonyx compile` and `sardonyx simplify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.cli.main import main

F32 = np.float32


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A constant expression, an Identity, a Gelu written out, a product."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y) {
        two = Constant<value_float = 2.0>() four = Mul(two, two) s = Sqrt(four) same = Identity(x)
        d = Div(same, r) e = Erf(d) one = Constant<value_float = 1.0>() p = Add(e, one) q = Mul(same, p)
        half = Constant<value_float = 0.5>() gelu = Mul(q, half) z = MatMul(gelu, w) y = Mul(z, s)
    }"""
    parsed = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(F32)
    parsed.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    parsed.graph.initializer.append(numpy_helper.from_array(np.array(np.sqrt(2), F32), "r"))
    path = tmp_path / "m.onnx"
    path.write_bytes(parsed.SerializeToString())
    return str(path)


def run(path: Any, engine: Any = onnxruntime) -> Any:
    return engine.InferenceSession(str(path)).run(None, {"x": np.linspace(-2, 2, 24, dtype=F32).reshape(3, 8)})[0]


def test_simplify_writes_a_model_of_onnx_operators_and_a_table(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "simple.onnx"
    assert main(["simplify", model, "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "13 nodes -> " in text
    assert "Identity" in text
    assert "FoldConstants" in text
    written = onnx.load(out)
    onnx.checker.check_model(written)
    assert {node.domain for node in written.graph.node} <= {""}
    assert len(written.graph.node) < 7
    np.testing.assert_allclose(run(out), run(model), rtol=1e-5, atol=1e-6)


def test_simplify_to_other_levels_and_formats(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, level in (("all.onnx", "all"), ("all.ort", "all"), ("none.onnx", "disable")):
        out = tmp_path / name
        assert main(["simplify", model, "-o", str(out), "--level", level, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["path"] == str(out)
        assert facts["operators"].get("com.microsoft.Gelu", [0, 0]) == ([0, 1] if level == "all" else [0, 0])
        np.testing.assert_allclose(run(out), run(model), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(run(out, sardonyx), run(model), rtol=1e-5, atol=1e-6)


def test_simplify_fixes_dimensions_and_takes_weights_out(model: str, tmp_path: Path) -> None:
    out = tmp_path / "fixed.onnx"
    assert main(["simplify", model, "-o", str(out), "--dim", "N=3", "--external-data", "fixed.data"]) == 0
    written = onnx.load(out)
    assert [dim.dim_value for dim in written.graph.input[0].type.tensor_type.shape.dim] == [3, 8]
    np.testing.assert_allclose(run(out), run(model), rtol=1e-5, atol=1e-6)


def test_simplify_counts_bodies(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])],
        "body", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )  # fmt: skip
    info = helper.make_tensor_value_info
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    graph = helper.make_graph([node], "g", [info("x", 1, [2]), info("c", TensorProto.BOOL, [])], [info("y", 1, None)])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    done = sardonyx.simplify_model(path, tmp_path / "out.onnx")
    assert dict(done.before) == {"If": 1, "Identity": 2, "Neg": 2}
    assert dict(done.after) == {"If": 1, "Neg": 2}
    assert done.operators[0] == ("Identity", 2, 0)


def test_compile_and_run(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", model, "--target", "native", "aarch64,x86-64-v2", "--include-model"]) == 0
    text = capsys.readouterr().out
    made = tmp_path / "m.sdx"
    assert f"written to {made}" in text
    assert "3 targets, the model inside" in text
    np.testing.assert_allclose(run(made, sardonyx), run(model), rtol=1e-5, atol=1e-6)
    assert main(["run", str(made), "--shape", "N=4"]) == 0
    assert "y" in capsys.readouterr().out
    assert main(["compile", model, "-o", str(tmp_path / "n.sdx"), "--dim", "N=3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [each["target"] for each in facts["targets"]] == ["native"]
    assert not facts["model"]
    assert sardonyx.InferenceSession(tmp_path / "n.sdx").get_inputs()[0].shape == [3, 8]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["compile", "@", "-o", "m.onnx"], "ends in '.sdx'"),
        (["compile", "@", "--target", "pdp11"], "targets are pdp11"),
        (["compile", "nowhere.onnx"], "nowhere.onnx"),
        (["simplify", "@", "-o", "m.ort", "--external-data", "d"], "have all data inside"),
        (["simplify", "@", "-o", "m.onnx", "--dim", "N=3x4"], "expected NAME=SIZE"),
    ],
)
def test_mistakes_are_one_clear_line(
    arguments: list[str],
    text: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([model if each == "@" else each for each in arguments]) in (1, 2)
    assert text in capsys.readouterr().err
