"""`sardonyx explain`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from sardonyx.cli.main import main

node = helper.make_node


@pytest.fixture
def network(build: Callable[..., str]) -> str:
    """A product with an activation in its kernel, then an operator without one."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="product"),
        node("Relu", ["p"], ["r"], name="rectified"),
        node("Unique", ["r"], ["u"], name="few"),
        node("Neg", ["u"], ["y"], name="negated"),
    ]
    inputs, outputs = {"x": (TensorProto.FLOAT, ["N", 4])}, {"y": (TensorProto.FLOAT, ["K"])}
    return build(nodes, inputs, outputs, {"w": np.ones((4, 8), np.float32)})


def test_each_node_has_its_kernel_or_the_reason_why_not(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", network, "--shape", "N=32"]) == 0
    text = capsys.readouterr().out
    assert "4 nodes" in text.splitlines()[0]
    assert "1 host step" in text
    assert "sizes: N = 32" in text
    rows = {line.split()[0] + line.split()[1]: line for line in text.splitlines() if "'" in line and line.startswith("  ")}
    assert "MatMul+Relu" in rows["MatMul'product'"]
    assert "MatMul+Relu" in rows["Relu'rectified'"]
    assert "no native lowering" in text
    assert "live memory" in text


def test_the_facts_as_json(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", network, "--json", "--shape", "x=32x4"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    placed = {each["operator"]: each["placement"] for each in facts["nodes"]}
    assert placed == {"MatMul": "kernel", "Relu": "kernel", "Unique": "host", "Neg": "kernel"}
    assert facts["host_steps"] == 1
    assert facts["sizes"] == {"N": 32}
    assert facts["memory"]["arena_bytes"] >= facts["memory"]["lower_bound_bytes"] >= 32 * 8 * 4
    assert facts["memory"]["unplanned"] >= 0
    kernel = next(step for step in facts["steps"] if step["label"] == "MatMul+Relu")
    assert kernel["work_ns"] > 0


def test_larger_sizes_mean_more_work_and_memory(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    def arena(rows: int) -> tuple[int, int]:
        assert main(["explain", network, "--json", "--shape", f"N={rows}"]) == 0
        facts = json.loads(capsys.readouterr().out)
        return facts["memory"]["arena_bytes"], sum(step["work_ns"] or 0 for step in facts["steps"])

    assert arena(1000) > arena(10)


def test_a_model_without_nodes_is_explained_too(build: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    shape = (TensorProto.FLOAT, [2])
    path = build([node("Identity", ["x"], ["y"])], {"x": shape}, {"y": shape})
    assert main(["explain", path]) == 0
    assert "memory:" in capsys.readouterr().out


def test_a_missing_file_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nowhere.onnx"]) == 1
    assert "nowhere.onnx" in capsys.readouterr().err


def test_an_unknown_dimension_is_an_error(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", network, "--shape", "Q=3"]) == 1
    assert "'Q'" in capsys.readouterr().err


def test_layout_assignment_is_among_the_passes(build: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"], name="filter"), node("Conv", ["c", "v"], ["y"], name="computed")]
    inputs = {"x": (TensorProto.FLOAT, [1, 4, 8, 8]), "v": (TensorProto.FLOAT, ["M", 32, 1, 1])}
    path = build(nodes, inputs, {"y": (TensorProto.FLOAT, [1, "M", 8, 8])}, {"w": np.ones((32, 4, 3, 3), np.float32)})
    assert main(["explain", path, "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assigned = next(each for each in facts["passes"] if each["name"] == "AssignLayout")
    assert assigned["changes"] == 1
    assert assigned["removed"] == ["Conv 'filter'"]
    assert assigned["reasons"] == ["Conv 'computed': its types are not float32 or its channels are not known"]
    made = next(each for each in facts["nodes"] if each["operator"] == "BlockedConv")
    assert made["passes"] == ["AssignLayout"]
    assert main(["explain", path]) == 0
    assert "AssignLayout" in capsys.readouterr().out
