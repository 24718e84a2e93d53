"""`onnxruntime.tools` behind the alias: the same calls on ONNX Runtime's own modules and on ours."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.tools import onnx_model_utils, reduced_build_config_parser, remove_initializer_from_input
from sardonyx.tools.onnxruntime_test import run_model
from sardonyx.tools.symbolic_shape_infer import SymbolicShapeInference

TOOLS = (
    "convert_onnx_models_to_ort", "file_utils", "make_dynamic_shape_fixed", "onnx_model_utils", "onnxruntime_test",
    "optimize_onnx_model", "reduced_build_config_parser", "remove_initializer_from_input", "symbolic_shape_infer",
    "update_onnx_opset",
)  # fmt: skip
NEEDS_SYMPY = ("symbolic_shape_infer",)  # which ONNX Runtime's own needs


def model() -> Any:
    """Sizes that follow from named ones, a branch, and one that only the data tells."""
    info = helper.make_tensor_value_info
    then = helper.make_graph([helper.make_node("Relu", ["r"], ["t"])], "then", [], [info("t", 1, None)])
    other = helper.make_graph([helper.make_node("Neg", ["r"], ["e"])], "else", [], [info("e", 1, None)])
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["c"], axis=0),
        helper.make_node("Reshape", ["c", "to"], ["r"]),
        helper.make_node("If", ["b"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("MatMul", ["x", "w"], ["m"]),
    ]
    constants = [numpy_helper.from_array(np.array([-1]), "to"), numpy_helper.from_array(np.ones((4, 5), np.float32), "w")]
    outputs = [info("y", 1, None), info("n", 7, None), info("m", 1, ["N", 5])]
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["N", 4]), info("b", TensorProto.BOOL, [])], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shape(info: Any) -> list[int | str]:
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in info.type.tensor_type.shape.dim]


def test_shapes_of_all_values_are_inferred() -> None:
    given = model()
    before = given.SerializeToString()
    shaped = SymbolicShapeInference.infer_shapes(given, auto_merge=True)
    assert given.SerializeToString() == before
    onnx.checker.check_model(shaped)
    found = {info.name: shape(info) for info in (*shaped.graph.value_info, *shaped.graph.output)}
    assert found["c"] == ["2*N", 4]
    assert found["r"] == ["8*N"]
    assert found["y"] == ["8*N"]
    assert found["n"] == [2, "unk__0"]
    assert found["m"] == ["N", 5]
    (branch,) = (each.g for each in shaped.graph.node[2].attribute if each.name == "then_branch")
    assert shape(branch.output[0]) == ["8*N"]
    kinds = {info.name: info.type.tensor_type.elem_type for info in shaped.graph.output}
    assert kinds["n"] == TensorProto.INT64


def test_shapes_that_cannot_be_told_are_an_error_unless_that_is_fine() -> None:
    info = helper.make_tensor_value_info
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="example.org")
    graph = helper.make_graph([node], "g", [info("x", 1, [2])], [info("y", 1, None)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("example.org", 1)]
    unknown = helper.make_model(graph, opset_imports=imports, ir_version=8)
    with pytest.raises(Exception, match="Incomplete symbolic shape inference"):
        SymbolicShapeInference.infer_shapes(unknown)
    assert SymbolicShapeInference.infer_shapes(unknown, guess_output_rank=True) is not None


def both() -> list[Any]:
    return [onnx_model_utils, importlib.import_module("onnxruntime.tools.onnx_model_utils")]


def test_dimensions_are_fixed_as_onnxruntime_does() -> None:
    made = []
    for utils in both():
        first, second = model(), model()
        utils.make_dim_param_fixed(first.graph, "N", 3)
        utils.make_input_shape_fixed(second.graph, "x", [3, 4])
        for each in (first, second):
            utils.fix_output_shapes(each)
            made.append(([shape(info) for info in each.graph.input], shape(each.graph.output[2])))
        for name, wrong, text in (("x", [3, 5], "fixed size"), ("x", [3], "Rank mismatch"), ("q", [1], "not found")):
            with pytest.raises(ValueError, match=text):
                utils.make_input_shape_fixed(model().graph, name, wrong)
    assert all(each == ([[3, 4], []], [3, 5]) for each in made)


def test_the_other_helpers_agree_with_onnxruntimes(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    results = []
    for utils in both():
        given = model()
        names: list[str] = []
        utils.iterate_graph_per_node_func(given.graph, lambda node, into: into.append(node.op_type), into=names)
        graphs: list[str] = []
        utils.iterate_graph_per_graph_func(given.graph, lambda graph, into: into.append(graph.name), into=graphs)
        updated = utils.update_onnx_opset(tmp_path / "m.onnx", 18, tmp_path / "newer.onnx")
        utils.optimize_model(tmp_path / "m.onnx", tmp_path / "optimized.onnx")
        facts = (
            sorted(names), sorted(graphs), utils.get_opsets_imported(given), updated.opset_import[0].version,
            utils.is_fixed_size_tensor(given.graph.output[2]), utils.get_optimization_level("all").name,
        )  # fmt: skip
        results.append(facts)
        assert onnx.load(tmp_path / "optimized.onnx").graph.node
        assert utils.ModelProtoWithShapeInfo(tmp_path / "m.onnx").model_with_shape_info.graph.value_info
    assert results[0] == results[1]
    with pytest.raises(ValueError, match="Invalid optimization level"):
        onnx_model_utils.get_optimization_level("most")
    producers, consumers = onnx_model_utils.get_producer_consumer_maps(model().graph)
    assert (producers, consumers) == ({1: [0], 2: [1]}, {0: [1], 1: [2]})


def test_configurations_initializers_and_timing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.config").write_text('ai.onnx;13;Add{"inputs": {"0": ["float"]}},Mul\n')
    operators, types = reduced_build_config_parser.parse_config(str(tmp_path / "c.config"), True)
    assert operators == {"ai.onnx": {13: {"Add", "Mul"}}}
    assert types == {("ai.onnx", "Add"): {"inputs": {"0": ["float"]}}}
    given = model()
    given.graph.input.append(helper.make_tensor_value_info("w", 1, [4, 5]))
    assert remove_initializer_from_input.remove_initializer_from_input(given)
    assert [each.name for each in given.graph.input] == ["x", "b"]
    onnx.save(model(), tmp_path / "m.onnx")
    code, feeds, outputs = run_model(str(tmp_path / "m.onnx"), 2, symbolic_dims={"N": 3})
    assert code == 0
    assert feeds["x"].shape == (3, 4)
    assert outputs[2].shape == (3, 5)
    assert "over 2 runs" in capsys.readouterr().out


def by_alias(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sardonyx.as_onnxruntime", "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))


def test_the_command_lines_behind_the_alias(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    by_alias("onnxruntime.tools.convert_onnx_models_to_ort", str(path), "--optimization_style", "Fixed")
    assert (tmp_path / "m.ort").is_file()
    assert (tmp_path / "m.required_operators.config").is_file()
    by_alias("onnxruntime.tools.symbolic_shape_infer", "--input", str(path), "--output", str(tmp_path / "s.onnx"), "--auto_merge")
    assert onnx.load(tmp_path / "s.onnx").graph.value_info
    fixed = str(tmp_path / "f.onnx")
    by_alias("onnxruntime.tools.make_dynamic_shape_fixed", "--dim_param", "N", "--dim_value", "2", str(path), fixed)
    assert [each.shape for each in sardonyx.InferenceSession(fixed).get_inputs()] == [[2, 4], []]


def test_the_names_are_there_and_what_is_missing_says_what_to_do() -> None:
    program = f"""
import sardonyx; sardonyx.install_as_onnxruntime()
import importlib
for name in {TOOLS!r}:
    module = importlib.import_module("onnxruntime.tools." + name)
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
import onnxruntime.tools.convert_onnx_models_to_ort as convert
assert convert.OptimizationStyle.Fixed.value == 0
try:
    import onnxruntime.tools.qnn
except ModuleNotFoundError as error:
    assert "use them with onnxruntime itself" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    for name in TOOLS:
        if name in NEEDS_SYMPY:
            continue
        theirs = importlib.import_module(f"onnxruntime.tools.{name}")
        ours = importlib.import_module(f"sardonyx.tools.{name}")
        functions = [key for key, value in vars(theirs).items() if getattr(value, "__module__", "") == theirs.__name__]
        missing = [key for key in functions if not key.startswith("_") and not hasattr(ours, key)]
        assert [key for key in missing if key not in ("get_args",)] == []
