"""What `optimized_model_filepath` writes at every level: operators others know, same answers in ONNX Runtime and here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from random_steps import random_model
from session_agreement import difference
from small_nets import NETS

LEVELS = list(sardonyx.GraphOptimizationLevel)
RUN_BY_ONNXRUNTIME = (3, 4, 5, 8, 15, 18, 25)  # others it refuses, or ends the process: no kernel for a type, as bfloat16
STANDARD = {"", "ai.onnx.ml", "com.microsoft"}


def nodes_of(nodes: Sequence[Any]) -> Iterator[Any]:
    """All nodes, those of subgraphs included."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from nodes_of(graph.node)


def saved(content: bytes | Path, folder: Path, level: Any, external: bool = False) -> Path:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = folder / f"level{int(level)}.onnx"
    if external:
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "256")
    sardonyx.InferenceSession(content, options)
    return Path(options.optimized_model_filepath)


def check_saved(content: bytes, feeds: dict[str, Any], path: Path, loosest: str = "float32") -> None:
    """The file has operators of ONNX and com.microsoft only, and answers like the model itself in both engines."""
    written = onnx.load(path)
    assert {node.domain for node in nodes_of(written.graph.node)} <= STANDARD
    providers = ["CPUExecutionProvider"]
    for engine in (onnxruntime, sardonyx):
        expected = engine.InferenceSession(content, providers=providers).run(None, feeds)
        actual = engine.InferenceSession(str(path), providers=providers).run(None, feeds)
        assert difference(actual, expected, loosest) == "", engine.__name__


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("name", NETS)
def test_nets_are_saved_in_operators_that_onnxruntime_knows(name: str, level: Any, tmp_path: Path) -> None:
    content, feeds = NETS[name]()
    check_saved(content, feeds, saved(content, tmp_path, level))


@pytest.mark.parametrize("seed", RUN_BY_ONNXRUNTIME)
def test_random_models_are_saved_in_operators_that_onnxruntime_knows(seed: int, tmp_path: Path) -> None:
    made = random_model(seed, steps=16)
    feeds = made.feeds({"N": 3, "S": 5, "T": 2})
    for level in LEVELS:
        check_saved(made.content, feeds, saved(made.content, tmp_path, level), made.loosest)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_convolutions_in_branches_and_functions_are_saved_as_such(level: Any, external: bool, tmp_path: Path) -> None:
    content, feeds = _branches_and_functions()
    path = saved(content, tmp_path, level, external)
    assert (tmp_path / "weights.bin").exists() is external
    for condition in (True, False):
        check_saved(content, {**feeds, "flag": np.array(condition)}, path)


def test_the_basic_level_adds_no_operator_of_onnxruntimes_own(tmp_path: Path) -> None:
    for name in ("transformer", "residual_net"):
        path = saved(NETS[name]()[0], tmp_path, sardonyx.GraphOptimizationLevel.ORT_ENABLE_BASIC)
        assert {node.domain for node in nodes_of(onnx.load(path).graph.node)} == {""}


def test_a_compiled_model_has_no_blocked_layout_either(tmp_path: Path) -> None:
    content, feeds = _branches_and_functions()
    level = sardonyx.GraphOptimizationLevel.ORT_ENABLE_ALL
    compiler = sardonyx.ModelCompiler(sardonyx.SessionOptions(), content, graph_optimization_level=level)
    compiler.compile_to_file(tmp_path / "compiled.onnx")
    (tmp_path / "bytes.onnx").write_bytes(compiler.compile_to_bytes())
    for name in ("compiled.onnx", "bytes.onnx"):
        check_saved(content, feeds, tmp_path / name)


def _branches_and_functions() -> tuple[bytes, dict[str, Any]]:
    """A net whose convolutions lie in the main graph, in both branches of an If and in a function."""
    random = np.random.default_rng(0)
    info = helper.make_tensor_value_info
    shape = ["N", 16, 12, 12]

    def weights(name: str) -> Any:
        return numpy_helper.from_array((random.normal(size=(16, 16, 3, 3)) / 12).astype(np.float32), name)

    def conv(source: str, weight: str, target: str) -> Any:
        return helper.make_node("Conv", [source, weight], [target], pads=[1, 1, 1, 1])

    def branch(name: str) -> Any:
        output = [info(f"{name}_out", TensorProto.FLOAT, shape)]
        return helper.make_graph([conv("a", "W", f"{name}_out")], name, [], output, [weights("W")])

    function = helper.make_function(
        "local", "Twice", ["x", "w"], ["z"], [conv("x", "w", "y"), conv("y", "w", "z")], [helper.make_opsetid("", 17)]
    )
    nodes = [
        conv("x", "W0", "c"),
        helper.make_node("Relu", ["c"], ["a"]),
        helper.make_node("If", ["flag"], ["b"], then_branch=branch("then"), else_branch=branch("else")),
        helper.make_node("Twice", ["b", "W0"], ["t"], domain="local"),
        helper.make_node("GlobalAveragePool", ["t"], ["y"]),
    ]
    inputs = [info("x", TensorProto.FLOAT, shape), info("flag", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, ["N", 16, 1, 1])], [weights("W0")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[function])
    onnx.checker.check_model(model)
    feeds = {"x": random.normal(size=(2, 16, 12, 12)).astype(np.float32), "flag": np.array(True)}
    return model.SerializeToString(), feeds
