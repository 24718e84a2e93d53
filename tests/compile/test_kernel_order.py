"""The default order of kernels: that of nodes where nothing is fused, onnxruntime's where something is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from benchmarks import orders
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from model_text import model
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.compile.kernel_order import kernel_order
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Node
from sardonyx.lower.groups import Grouping, form_groups
from sardonyx.plan.order import execution_order


def grouped(graph: Graph, nodes: list[Node]) -> Grouping:
    return form_groups(nodes, graph.inputs)


def typed(source: Any) -> Graph:
    read = load(source)
    infer_shapes(read)
    for position, node in enumerate(read.graph.nodes):
        node.position = position
    return read.graph


def test_where_nothing_is_fused_the_order_is_that_of_nodes() -> None:
    text = """(float[8,8] x) => (float[8,8] y) {
        a = MatMul(x, x) b = MatMul(x, a) c = MatMul(a, x) d = MatMul(c, b) e = MatMul(b, x) y = MatMul(e, d)
    }"""
    graph = typed(model(text, 17))
    nodes = execution_order(graph)
    assert kernel_order(graph, nodes, grouped(graph, nodes)) == nodes


def test_a_fused_kernel_stands_behind_those_that_are_not() -> None:
    text = """(float[8,8] x, float[8,8] v, float[8,8] w) => (float[8,8] y) {
        a = MatMul(x, v) b = Relu(a) c = MatMul(b, w) s = MatMul(x, w) y = Add(c, s)
    }"""
    graph = typed(model(text, 17))
    nodes = execution_order(graph)
    assert [node.outputs[0].name for node in nodes] == ["s", "a", "b", "c", "y"]
    ordered = kernel_order(graph, nodes, grouped(graph, nodes))
    assert [node.outputs[0].name for node in ordered] == ["a", "b", "s", "c", "y"]


def test_nodes_of_some_priority_stay_where_they_are() -> None:
    text = """(float[8,8] x, float[8,8] v, float[8,8] w) => (float[8,8] y) {
        a = MatMul(x, v) b = Relu(a) c = MatMul(b, w) s = MatMul(x, w) y = Add(c, s)
    }"""
    graph = typed(model(text, 17))
    nodes = execution_order(graph)
    nodes[0].priority = 1
    assert kernel_order(graph, nodes, grouped(graph, nodes)) == nodes


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30))
def test_every_node_stands_once_and_behind_what_it_needs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names, lines = ["x"], []
    for number in range(int(rng.integers(1, 40))):
        first, second = (names[int(rng.integers(len(names)))] for _ in range(2))
        call = (f"Add({first}, {second})", f"MatMul({first}, {second})", f"Relu({first})", f"Transpose({first})")[rng.integers(4)]
        lines.append(f"v{number} = {call}")
        names.append(f"v{number}")
    graph = typed(model(f"(float[8,8] x) => (float[8,8] {names[-1]}) {{ {' '.join(lines)} }}", 17))
    nodes = execution_order(graph)
    ordered = kernel_order(graph, nodes, grouped(graph, nodes))
    assert len(ordered) == len(nodes)
    done = set(graph.inputs)
    for node in ordered:
        assert all(value in done for value in node.inputs)
        done.update(node.outputs)
    kept = [node for node in nodes if rng.integers(2)]  # others, as those that only shapes are read of, are in no group
    ordered = kernel_order(graph, nodes, grouped(graph, kept))
    assert set(ordered) == set(nodes)
    done = set(graph.inputs)
    for node in ordered:
        assert all(value in done for value in node.inputs)
        done.update(node.outputs)


def residual_blocks(path: Path, seed: int, blocks: int = 4) -> tuple[Path, list[str]]:
    """Blocks of convolutions, each with a convolution as its shortcut, written behind it; the values of kernels."""
    rng = np.random.default_rng(seed)
    nodes: list[Any] = []
    weights: list[Any] = []
    results: list[str] = []

    def convolution(x: str, inside: int, outside: int, name: str) -> str:
        kernel = rng.standard_normal((outside, inside, 1, 1)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w_{name}"))
        nodes.append(helper.make_node("Conv", [x, f"w_{name}"], [name], name=name))
        results.append(name)
        return name

    def relu(x: str) -> str:
        results.remove(x)
        results.append(f"{x}_r")
        nodes.append(helper.make_node("Relu", [x], [f"{x}_r"], name=f"{x}_r"))
        return f"{x}_r"

    x, channels = "x", 32
    for block in range(blocks):
        wide = channels * 2
        y = x
        for layer in range(int(rng.integers(1, 4))):
            y = relu(convolution(y, channels, channels, f"b{block}_{layer}"))
        y = convolution(y, channels, wide, f"e{block}")
        shortcut = convolution(x, channels, wide, f"s{block}")
        nodes.append(helper.make_node("Add", [y, shortcut], [f"a{block}"], name=f"a{block}"))
        nodes.append(helper.make_node("Relu", [f"a{block}"], [f"x{block}"], name=f"x{block}"))
        x, channels = f"x{block}", wide
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size, 8, 8]) for name, size in (("x", 32), (x, channels))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path, results


def profiled(path: Path, folder: Path, feeds: dict[str, Any]) -> list[str]:
    """The kernels that onnxruntime runs, in order, by the names of nodes that they were made of."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = onnxruntime.InferenceSession(path, options)
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [each["name"] for each in events if each["cat"] == "Node" and each["name"].endswith("_kernel_time")]
    return [name.removesuffix("_kernel_time").removesuffix("_nchwc").split("/")[0] for name in kernels]


def kernels_here(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The kernels of a session, in order: the names of nodes that each computes."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    groups = sardonyx.InferenceSession(path)._opened.program.main.grouping.groups  # type: ignore[attr-defined]
    return [[node.name for node in group.nodes] for group in groups if group.label not in ("ToBlocked", "FromBlocked")]


@pytest.mark.parametrize("seed", range(6))
def test_convolutions_with_shortcuts_run_as_onnxruntime_runs_them(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, names = residual_blocks(tmp_path / "m.onnx", seed)
    theirs = [name for name in profiled(path, tmp_path, {"x": np.zeros((1, 32, 8, 8), np.float32)}) if name in names]
    if len(theirs) != len(names):
        pytest.skip("onnxruntime does not fuse convolutions into blocks on this machine")
    ours = [name for kernel in kernels_here(path, monkeypatch) for name in kernel if name in names]
    assert ours == theirs


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_gradients_of_weights_are_computed_when_onnxruntime_computes_them(
    tmp_path: Path, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products with a transposed matrix are new nodes, there and here: each runs as soon as it can."""
    path = tmp_path / "m.onnx"
    path.write_bytes(orders.chain_training(32, 64, layers))
    theirs = profiled(path, tmp_path, {"x": np.zeros((32, 64), np.float32)})
    ours = [kernel[0] for kernel in kernels_here(path, monkeypatch) if kernel[0] in theirs]
    assert len(ours) >= 8 * layers
    assert ours == [name for name in theirs if name in ours]


def test_the_shortcut_of_a_block_does_not_wait_for_it(tmp_path: Path) -> None:
    path, _ = residual_blocks(tmp_path / "m.onnx", 1)
    found = {each.order: each.arena_bytes for each in sardonyx.explain_memory(path)}
    assert found["DEFAULT"] <= found["PRIORITY_BASED"]
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 32, 8, 8)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(path).run(None, feeds)[0]
    for order in sardonyx.ExecutionOrder:
        options = sardonyx.SessionOptions()
        options.execution_order = order
        result = sardonyx.InferenceSession(path, options).run(None, feeds)[0]
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
