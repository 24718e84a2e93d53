"""Nothing is packed twice: not for another session of a file, set of fetched values, specialisation or body."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from native_support import in_order, prepared
from sardonyx import dtypes
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.formats.onnx import load
from sardonyx.ir.tensor import Array, from_numpy
from sardonyx.lower.matmul.weights import pack_strips
from sardonyx.program.constants import TRANSFORMS, Derived, Part, Transform
from sardonyx.runtime import weight_store
from sardonyx.runtime.weight_store import WeightStore, shared_store

F32 = np.float32
SIDE = 96


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def constant(source: Any, strip: int = 16) -> Derived:
    """Square weights packed for a product."""
    side = source.shape[0]
    return Derived(
        pack_strips, (Part(source, 0, (side, side), (side, 1)),), (strip,), dtypes.FLOAT32, (side // strip, side, strip), "any"
    )


def write_model(path: Path, nodes: list[Any], constants: dict[str, Array], outputs: list[str], inputs: Any = ()) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", SIDE]), *inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    time.sleep(0.03)  # a file that has just changed has no identity
    return path


@pytest.fixture(autouse=True)
def no_saved_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")


@pytest.fixture
def packings() -> Callable[[], int]:
    """How many arrays were packed since the last call."""
    gc.collect()
    seen = shared_store().made

    def count() -> int:
        nonlocal seen
        before, seen = seen, shared_store().made
        return seen - before

    return count


def products(path: Path) -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "v"], ["y"])]
    return write_model(path, nodes, {"w": random(SIDE, SIDE), "v": random(SIDE, SIDE, seed=1)}, ["y"])


def weights_of(session: Any) -> dict[int, Array]:
    found: dict[int, Array] = session._opened.program.main.program.constants
    return found


def test_a_second_session_of_a_file_packs_nothing(tmp_path: Path, packings: Callable[[], int]) -> None:
    path = products(tmp_path / "m.onnx")
    first = sardonyx.InferenceSession(path)
    assert packings() == 2
    second = sardonyx.InferenceSession(path)
    assert packings() == 0
    for mine, other in zip(weights_of(first).values(), weights_of(second).values(), strict=True):
        assert mine.ctypes.data == other.ctypes.data
        assert not mine.flags.writeable
    feeds = {"x": random(3, SIDE)}
    np.testing.assert_array_equal(first.run(None, feeds)[0], second.run(None, feeds)[0])


def test_sessions_that_open_at_once_pack_once(tmp_path: Path, packings: Callable[[], int]) -> None:
    path, start = products(tmp_path / "m.onnx"), threading.Barrier(4)
    sessions: list[Any] = []

    def open_session() -> None:
        start.wait()
        sessions.append(sardonyx.InferenceSession(path))

    threads = [threading.Thread(target=open_session) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sessions) == 4
    assert packings() == 2


def test_arrays_end_with_the_last_session(tmp_path: Path, packings: Callable[[], int]) -> None:
    path = products(tmp_path / "m.onnx")
    before = len(shared_store()._arrays)
    sessions = [sardonyx.InferenceSession(path) for _ in range(2)]
    assert packings() == 2
    del sessions[0]
    gc.collect()
    assert len(shared_store()._arrays) == before + 2
    del sessions[:]
    gc.collect()
    assert len(shared_store()._arrays) == before
    sardonyx.InferenceSession(path)
    assert packings() == 2


def test_another_set_of_fetched_values_packs_nothing(tmp_path: Path, packings: Callable[[], int]) -> None:
    session = sardonyx.InferenceSession(products(tmp_path / "m.onnx"))
    assert packings() == 2
    session.run(["a", "y"], {"x": random(3, SIDE)})
    session.run(["a"], {"x": random(3, SIDE)})
    assert packings() == 0


def test_compiling_a_saved_model_for_other_values_packs_nothing(
    tmp_path: Path, packings: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved program has the packed weights, and hands them to the compiler when that is needed after all."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    path = products(tmp_path / "m.onnx")
    sardonyx.InferenceSession(path)
    assert packings() == 2
    gc.collect()
    session = sardonyx.InferenceSession(path)
    x = random(3, SIDE)
    expected = sardonyx.InferenceSession(path, providers=["SardonyxReferenceExecutionProvider"]).run(["a", "y"], {"x": x})
    for found, wanted in zip(session.run(["a", "y"], {"x": x}), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    assert packings() == 0


def test_bodies_and_specialisations_pack_nothing(tmp_path: Path, packings: Callable[[], int]) -> None:
    def side(name: str, node: Any) -> Any:
        result = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node("MatMul", ["x", "w"], [f"{name}_p"]), node], name, [], [result])

    sides = [
        side("first", helper.make_node("Unsqueeze", ["first_p", "axes"], ["first_y"])),
        side("second", helper.make_node("Sigmoid", ["second_p"], ["second_y"])),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Equal", ["mode", "wanted"], ["is_first"]),
        helper.make_node("If", ["is_first"], ["b"], then_branch=sides[0], else_branch=sides[1]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    constants = {"w": random(SIDE, SIDE), "axes": np.array([0]), "wanted": np.array(1)}
    inputs = [helper.make_tensor_value_info("mode", TensorProto.INT64, [])]
    path = write_model(tmp_path / "m.onnx", nodes, constants, ["y"], inputs)
    session = sardonyx.InferenceSession(path)
    for mode, rows in ((1, 12), (0, 12), (1, 24), (0, 36), (1, 48), (0, 60), (1, 72)):  # of few rows strips may differ
        session.run(None, {"x": random(rows, SIDE), "mode": np.array(mode)})
    assert packings() == 1


def test_folded_weights_are_packed_once(tmp_path: Path, packings: Callable[[], int]) -> None:
    """Weights that passes have made are known by what they were made of."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "s"], ["b"]),
        *(helper.make_node("MatMul", ["b", each], [f"y{each}"]) for each in "pqr"),
    ]
    constants = {"w": random(SIDE, SIDE), "s": random(SIDE), **{each: random(SIDE, SIDE, seed=ord(each)) for each in "pqr"}}
    path = write_model(tmp_path / "m.onnx", nodes, constants, ["yp", "yq", "yr"])
    first = sardonyx.InferenceSession(path)
    made = packings()
    assert made
    second = sardonyx.InferenceSession(path)
    assert packings() == 0
    feeds = {"x": random(3, SIDE)}
    for mine, other in zip(first.run(None, feeds), second.run(None, feeds), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_file_that_changes_between_sessions_is_packed_again(tmp_path: Path, packings: Callable[[], int]) -> None:
    path = write_model(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": random(SIDE, SIDE)}, ["y"])
    first = sardonyx.InferenceSession(path)
    other = write_model(
        tmp_path / "n.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": random(SIDE, SIDE, seed=5)}, ["y"]
    )
    os.replace(other, path)
    time.sleep(0.03)
    second = sardonyx.InferenceSession(path)
    assert packings() == 2
    x = random(3, SIDE)
    np.testing.assert_allclose(first.run(None, {"x": x})[0], x @ random(SIDE, SIDE), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(second.run(None, {"x": x})[0], x @ random(SIDE, SIDE, seed=5), rtol=1e-3, atol=1e-3)


def compiled_with(store: WeightStore, path: Path) -> Any:
    graph = prepared(load(path))
    return compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=1, weights=store))


def test_equal_weights_of_different_files_are_shared_where_asked_for(tmp_path: Path) -> None:
    paths = [products(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    apart, together = WeightStore(), WeightStore(by_content=True)
    kept = [compiled_with(apart, path) for path in paths] + [compiled_with(together, path) for path in paths]
    assert len(kept) == 4
    assert (apart.made, together.made) == (4, 2)


def test_a_store_that_keeps_has_the_arrays_for_later_sessions(tmp_path: Path) -> None:
    path = products(tmp_path / "a.onnx")
    store = WeightStore(keeps=True)
    for _ in range(2):
        compiled_with(store, path)
        gc.collect()
    assert store.made == 2


def test_threads_that_come_at_once_pack_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def slow(array: Array) -> Array:
        time.sleep(0.05)
        return array * 2

    tensor, store, start = from_numpy(random(8)), WeightStore(), threading.Barrier(4)
    made = Derived(Transform("slow", 1, slow), (Part(tensor, 0, (8,), (1,)),), (), dtypes.FLOAT32, (8,), "any")
    found: list[Array] = []

    def ask() -> None:
        start.wait()
        found.append(store.array(made))
        calls.append(1)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.made == 1
    assert all(each is found[0] for each in found)


def test_packed_arrays_cannot_be_written_to_and_the_callers_still_can() -> None:
    weights = random(64, 64)
    packed = WeightStore().array(constant(from_numpy(weights)))
    with pytest.raises(ValueError, match="read-only"):
        packed[0, 0, 0] = 1
    owner: Any = packed
    while isinstance(owner, np.ndarray):
        assert not owner.flags.writeable
        owner = owner.base
    same = Derived(TRANSFORMS["as_float32"], (Part(from_numpy(weights), 0, (64, 64), (64, 1)),), (), dtypes.FLOAT32, (64, 64), "")
    shown = WeightStore().array(same)
    assert np.shares_memory(shown, weights)
    assert not shown.flags.writeable
    weights[0, 0] = 1


def test_a_transform_that_makes_something_else_is_named() -> None:
    wrong = Derived(
        pack_strips, (Part(from_numpy(random(64, 64)), 0, (64, 64), (64, 1)),), (16,), dtypes.FLOAT32, (3, 64, 16), ""
    )
    with pytest.raises(ValueError, match="'pack_strips' made"):
        WeightStore().array(wrong)


@pytest.mark.parametrize("transposed", [False, True])
def test_blocks_and_all_at_once_are_the_same(transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    source = from_numpy(random(64, 64))
    strides = (1, 64) if transposed else (64, 1)
    made = Derived(pack_strips, (Part(source, 0, (64, 64), strides),), (16,), dtypes.FLOAT32, (4, 64, 16), "any")
    whole = WeightStore().array(made)
    monkeypatch.setattr(weight_store, "_BLOCK", 1000)
    np.testing.assert_array_equal(WeightStore().array(made), whole)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_source_pages_leave_memory_behind_packing(tmp_path: Path) -> None:
    """Peak memory of loading is the packed weights and a block, not the packed weights and the file."""
    side = 6144  # 144 MB
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[side, side], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="weights")
    (tmp_path / "weights").write_bytes(random(side, side).tobytes())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", side])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    small = write_model(
        tmp_path / "small.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": random(SIDE, SIDE)}, ["y"]
    )
    program = """
import sys, sardonyx
def status(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) // 1024
kept = [sardonyx.InferenceSession(sys.argv[1])]
before = status("VmRSS")
kept += [sardonyx.InferenceSession(sys.argv[2])]
print(before, status("VmHWM"))
kept += [sardonyx.InferenceSession(sys.argv[2])]
print(before, status("VmHWM"))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program, str(small), str(tmp_path / "m.onnx")]
    done = subprocess.run(command, env=environment, timeout=300, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        before, peak = map(int, line.split())
        assert peak - before < 144 + 40
