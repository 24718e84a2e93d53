"""More of what ONNX Runtime's own tests cover, on both runtimes: descriptions, external data, allocators, control flow, trees."""

from __future__ import annotations

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

CPU = ["CPUExecutionProvider"]
REFERENCE = "SardonyxReferenceExecutionProvider"
NUMBER = TensorProto.FLOAT
X = np.ones((3, 2), np.float32)


def tensor(name: str, shape: Any, kind: int = NUMBER) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes: Any, inputs: Any, outputs: Any, initializers: Any = (), ml: bool = False) -> Any:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def session_of(ort: Any, model: Any, options: Any = None) -> Any:
    return ort.InferenceSession(model.SerializeToString(), options, providers=CPU)


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (["?", None, "N", 2], ["?", None, "N", 2]),
        (["N", "M"], ["a", "b"]),
        (["N", "M"], [3, 4]),
        (["N", "M"], [None, ""]),
        ([3, 2], ["a", "b"]),
        ([3, 2], [5, 2]),
        ([3, 2], [5]),
        ([3, 2], None),
        ([], []),
    ],
    ids=str,
)
def test_outputs_are_described_alike(given: Any, declared: Any) -> None:
    import onnxruntime

    model = model_of([helper.make_node("Abs", ["X"], ["Y"])], [tensor("X", given)], [tensor("Y", declared)])
    ours, theirs = session_of(sardonyx, model), session_of(onnxruntime, model)
    assert ours.get_inputs()[0].shape == theirs.get_inputs()[0].shape
    assert ours.get_outputs()[0].shape == theirs.get_outputs()[0].shape


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """The path of a model whose weight lies in w.bin beside it."""
    weight = numpy_helper.from_array(np.full((3, 2), 5, np.float32), "W")
    model = model_of([helper.make_node("Mul", ["X", "W"], ["Y"])], [tensor("X", [3, 2])], [tensor("Y", [3, 2])], [weight])
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return tmp_path / "m.onnx"


def unoptimised(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def test_bytes_have_their_external_data_in_the_current_folder(ort: Any, external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(external.parent)
    session = ort.InferenceSession(external.read_bytes(), unoptimised(ort), providers=CPU)
    assert session.run(None, {"X": X})[0].tolist() == [[5, 5]] * 3


def test_external_data_that_is_not_there_says_where_it_was_looked_for(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (external.parent / "empty").mkdir()
    monkeypatch.chdir(external.parent / "empty")
    with pytest.raises(
        sardonyx.NoSuchFile, match=r"tensor 'W' .*empty/w\.bin(.|\n)*hint: .*external_initializers_file_folder_path"
    ):
        sardonyx.InferenceSession(external.read_bytes())


def test_a_model_and_its_data_may_be_links_as_in_download_caches(ort: Any, external: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name, blob in (("m.onnx", "3f2a"), ("w.bin", "77c1")):
        (external.parent / name).rename(blobs / blob)
        os.symlink(Path("../../blobs") / blob, snapshot / name)
    session = ort.InferenceSession(snapshot / "m.onnx", unoptimised(ort), providers=CPU)
    assert session.run(None, {"X": X})[0].tolist() == [[5, 5]] * 3


def test_an_allocator_can_be_shared_by_sessions(ort: Any, external: Path) -> None:
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(memory, None)
    options = unoptimised(ort)
    options.add_session_config_entry("session.use_env_allocators", "1")
    sessions = [ort.InferenceSession(str(external), options, providers=CPU) for _ in range(2)]
    shrinking = ort.RunOptions()
    shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert [session.run(None, {"X": X}, shrinking)[0].sum() for session in sessions] == [30, 30]


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("trips", [0, 3])
def test_control_flow_in_control_flow_sees_all_values_around_it(ort: Any, flag: bool, trips: int) -> None:
    def branch(name: str, op: str) -> Any:
        return helper.make_graph([helper.make_node(op, ["state", "step"], [name])], name, [], [tensor(name, [1])])

    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("If", ["flag"], ["next"], then_branch=branch("more", "Add"), else_branch=branch("less", "Sub")),
        ],
        "body",
        [tensor("i", [], TensorProto.INT64), tensor("go", [], TensorProto.BOOL), tensor("state", [1])],
        [tensor("on", [], TensorProto.BOOL), tensor("next", [1])],
    )
    model = model_of(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        [tensor("n", [], TensorProto.INT64), tensor("flag", [], TensorProto.BOOL), tensor("x", [1]), tensor("step", [1])],
        [tensor("y", [1])],
    )
    feeds = {"n": np.array(trips), "flag": np.array(flag), "x": np.array([10], np.float32), "step": np.array([2], np.float32)}
    assert session_of(ort, model).run(None, feeds)[0].tolist() == [10 + (2 if flag else -2) * trips]


def test_labels_are_encoded_and_unknown_ones_get_the_default(ort: Any) -> None:
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["cat", "dog"], values_int64s=[3, 4], default_int64=-7
    )
    model = model_of([node], [tensor("x", ["n"], TensorProto.STRING)], [tensor("y", ["n"], TensorProto.INT64)], ml=True)
    assert session_of(ort, model).run(None, {"x": np.array(["dog", "cow", "cat"])})[0].tolist() == [4, -7, 3]


def test_a_tree_is_walked_and_its_leaves_are_added(ort: Any) -> None:
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
        nodes_featureids=[1, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0], target_nodeids=[1, 2],
        target_ids=[0, 0], target_weights=[10.0, 20.0],
    )  # fmt: skip
    model = model_of([node], [tensor("x", ["n", 2])], [tensor("y", ["n", 1])], ml=True)
    x = np.array([[9, 0.5], [9, 0.6]], np.float32)
    assert session_of(ort, model).run(None, {"x": x})[0].tolist() == [[10], [20]]


def test_an_empty_tensor_goes_through_dlpack(ort: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(np.zeros((0, 4), np.float32))
    assert np.from_dlpack(value).shape == (0, 4)
    assert ort.OrtValue.from_dlpack(np.zeros((2, 0), np.float32)).shape() == [2, 0]


_MEASURE = """
import sys, sardonyx
def resident():  # memory of its own, and pages of the weights' file: what LLVM's library takes has nothing to do with them
    total, path = 0, ""
    for line in open("/proc/self/smaps"):
        name, *rest = line.split()
        if "-" in name:
            path = rest[-1]
        elif name == "Anonymous:" or (name == "Rss:" and path.endswith("w.bin")):
            total += int(rest[0])
    return total // 1024
options = sardonyx.SessionOptions()
options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
before = resident()
session = sardonyx.InferenceSession(sys.argv[1], options, providers=[sys.argv[2]])
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux reports it")
@pytest.mark.parametrize(
    ("provider", "layers"), [(REFERENCE, 32), ("CPUExecutionProvider", 32)], ids=["2 GB, reference", "2 GB, native"]
)
def test_a_session_does_not_read_the_weights_it_opens(tmp_path: Path, provider: str, layers: int) -> None:
    side, size = 4096, 4096 * 4096 * 4
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(layers * size)  # a hole: it takes no room on the disk
    weights = []
    for index in range(layers):
        weight = onnx.TensorProto(name=f"w{index}", data_type=NUMBER, dims=[side, side], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "w.bin"), ("offset", index * size), ("length", size)):
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    names = ["x", *(f"v{index}" for index in range(layers))]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(layers)]
    model = model_of(nodes, [tensor("x", ["N", side])], [tensor(names[-1], ["N", side])], weights)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", _MEASURE, str(tmp_path / "m.onnx"), provider]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert grown < 50  # MB
