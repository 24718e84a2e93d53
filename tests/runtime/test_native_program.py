"""Native programs as sessions use them: dynamic sizes, contradictions, host steps, concurrency, bounded memory."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from native_support import compile_native
from sardonyx import errors
from threads import at_once

F32 = np.float32


def model(nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], weights: dict[str, Any] | None = None) -> bytes:
    """A float32 model; outputs carry no shapes."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return made


def chain() -> bytes:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Mul", ["r", "x"], ["y"]),
    ]
    return model(nodes, {"x": ["N", 8]}, ["y"], {"b": np.arange(8, dtype=F32) - 4})


def expected(x: Any) -> Any:
    return np.maximum(x + (np.arange(8, dtype=F32) - 4), 0) * x


def test_one_session_serves_all_sizes() -> None:
    session = sardonyx.InferenceSession(chain())
    for size in (3, 1, 100, 0, 7, 7, 2000):
        x = np.random.default_rng(size).normal(size=(size, 8)).astype(F32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-6)


def test_results_of_earlier_runs_stay_as_they_are() -> None:
    session = sardonyx.InferenceSession(chain())
    inputs = [np.full((4, 8), value, F32) for value in range(5)]
    results = [session.run(None, {"x": x})[0] for x in inputs]
    for x, result in zip(inputs, results):
        np.testing.assert_allclose(result, expected(x))


def test_strided_and_readonly_feeds_are_taken() -> None:
    session = sardonyx.InferenceSession(chain())
    wide = np.random.default_rng(0).normal(size=(5, 16)).astype(F32)
    x = wide[:, ::2]
    wide.flags.writeable = False
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-6)


def test_the_fast_way_still_checks_what_is_fed() -> None:
    session = sardonyx.InferenceSession(chain())
    x = np.zeros((2, 8), F32)
    for _ in range(3):
        session.run(None, {"x": x})
    with pytest.raises(errors.InvalidArgument, match="Got: 9 Expected: 8"):
        session.run(None, {"x": np.zeros((2, 9), F32)})
    with pytest.raises(errors.InvalidArgument, match="Unexpected input data type"):
        session.run(None, {"x": x.astype(np.float64)})
    with pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x))


def test_one_name_fed_with_two_sizes_gives_numpys_answer() -> None:
    content = model([helper.make_node("Add", ["x", "y"], ["z"])], {"x": ["N"], "y": ["N"]}, ["z"])
    session = sardonyx.InferenceSession(content)
    one, many = np.ones(1, F32), np.arange(5, dtype=F32)
    np.testing.assert_array_equal(session.run(None, {"x": many, "y": one})[0], many + 1)
    np.testing.assert_array_equal(session.run(None, {"x": one, "y": many})[0], many + 1)
    with pytest.raises(errors.InvalidArgument, match="Add"):
        session.run(None, {"x": many, "y": np.ones(3, F32)})


def test_unrelated_sizes_broadcast_or_say_why_not() -> None:
    content = model(
        [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Relu", ["s"], ["z"])],
        {"x": ["N", 3], "y": ["M", 3]},
        ["z"],
    )
    session = sardonyx.InferenceSession(content)
    rng = np.random.default_rng(0)
    for n, m in ((4, 1), (1, 4), (4, 4), (1, 1), (0, 1)):
        x, y = rng.normal(size=(n, 3)).astype(F32), rng.normal(size=(m, 3)).astype(F32)
        np.testing.assert_allclose(session.run(None, {"x": x, "y": y})[0], np.maximum(x + y, 0))
    with pytest.raises(errors.InvalidArgument, match="Add"):
        session.run(None, {"x": np.zeros((4, 3), F32), "y": np.zeros((5, 3), F32)})


def test_a_model_that_lies_about_a_shape_is_not_believed() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("NonZero", ["x"], ["i"]),
            helper.make_node("Cast", ["i"], ["f"], to=1),
            helper.make_node("Relu", ["f"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "N"])],
        value_info=[helper.make_tensor_value_info("f", TensorProto.FLOAT, [1, "N"])],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = sardonyx.InferenceSession(content)
    x = np.array([0, 1, 0, 2, 0, 0], F32)
    assert session.run(None, {"x": x})[0].tolist() == [[1, 3]]
    assert session.run(None, {"x": np.zeros(6, F32)})[0].shape == (1, 0)


def test_many_threads_get_their_own_answers() -> None:
    session = sardonyx.InferenceSession(chain())
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            x = rng.normal(size=(int(rng.integers(1, 3000)), 8)).astype(F32)
            if not np.allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5):
                wrong.append(seed)

    at_once(work, range(6))
    assert not wrong


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_number_of_threads_does_not_change_a_bit(workers: int) -> None:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = workers
    x = np.random.default_rng(0).normal(size=(5000, 8)).astype(F32)
    alone = sardonyx.SessionOptions()
    alone.intra_op_num_threads = 1
    one = sardonyx.InferenceSession(chain(), alone).run(None, {"x": x})[0]
    many = sardonyx.InferenceSession(chain(), options).run(None, {"x": x})[0]
    assert one.tobytes() == many.tobytes()


def test_memory_stays_bounded_over_many_sizes() -> None:
    session = sardonyx.InferenceSession(chain())
    largest = np.zeros((200_000, 8), F32)
    session.run(None, {"x": largest})
    before = resident()
    rng = np.random.default_rng(0)
    for _ in range(100):
        session.run(None, {"x": largest[: int(rng.integers(1, len(largest)))]})
    assert resident() < before * 1.2 + (8 << 20)


def resident() -> int:
    """Bytes of memory this process holds."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("outputs", [["y", "x"], ["x"], ["x", "y"], ["w", "y"]])
def test_an_output_may_be_an_input_or_a_weight(outputs: list[str]) -> None:
    content = model([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": ["N", 2]}, outputs, {"w": np.array([2, 3], F32)})
    session = sardonyx.InferenceSession(content)
    x = np.array([[1, 2], [3, 4]], F32)
    expected_values = {"x": x, "y": x * np.array([2, 3], F32), "w": np.array([2, 3], F32)}
    for _ in range(3):
        results = session.run(None, {"x": x})
        for name, result in zip(outputs, results):
            np.testing.assert_array_equal(result, expected_values[name])
            result[...] = -1  # it belongs to the caller
    assert x.tolist() == [[1, 2], [3, 4]]


def test_a_size_that_cannot_be_had_is_an_error_that_names_the_node() -> None:
    weights = {"s": np.array([1 << 40, 1 << 10])}
    content = model([helper.make_node("ConstantOfShape", ["s"], ["y"], name="huge")], {}, ["y"], weights)
    with pytest.raises(errors.SardonyxError, match="ConstantOfShape 'huge'"):
        sardonyx.InferenceSession(content).run(None, {})


def test_a_second_session_opens_the_saved_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(F32)
    first = sardonyx.InferenceSession(chain())
    (saved,) = tmp_path.glob("*.program")
    second = sardonyx.InferenceSession(chain())
    assert type(second._opened.program).__name__ == "SavedModel"
    np.testing.assert_array_equal(first.run(None, {"x": x})[0], second.run(None, {"x": x})[0])
    assert [port.shape for port in second.get_inputs()] == [["N", 8]]
    np.testing.assert_allclose(second.run(["r"], {"x": x})[0], np.maximum(x + (np.arange(8, dtype=F32) - 4), 0))
    damaged = bytearray(saved.read_bytes())
    damaged[-60] ^= 0xFF  # the constants come last, each filled up to a cache line
    saved.write_bytes(damaged)
    third = sardonyx.InferenceSession(chain())
    assert type(third._opened.program).__name__ == "NativeModel"
    np.testing.assert_array_equal(third.run(None, {"x": x})[0], first.run(None, {"x": x})[0])


def test_branches_on_sizes_are_compiled_for_shapes_that_come_again() -> None:
    squeeze = helper.make_graph(
        [helper.make_node("Squeeze", ["x", "last"], ["s"])],
        "then",
        [],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, None)],
    )
    keep = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["k"])], "else", [], [helper.make_tensor_value_info("k", TensorProto.FLOAT, None)]
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["v"], then_branch=squeeze, else_branch=keep),
        helper.make_node("Exp", ["v"], ["y"]),
    ]
    weights = {"last": np.array([1]), "one": np.array([1])}
    session = sardonyx.InferenceSession(model(nodes, {"x": ["N", "M"]}, ["y"], weights))
    for shape in [(4, 1), (4, 3), (4, 1), (4, 1), (4, 3), (4, 3)]:
        x = np.random.default_rng(0).normal(size=shape).astype(F32)
        wanted = np.exp(x[:, 0] if shape[1] == 1 else x)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5)


def test_a_value_listed_twice_as_output_comes_twice() -> None:
    session = sardonyx.InferenceSession(model([helper.make_node("Neg", ["x"], ["y"])], {"x": ["N"]}, ["y", "y"]))
    first, second = session.run(None, {"x": np.ones(2, F32)})
    assert first.tolist() == second.tolist() == [-1, -1]
    assert not np.shares_memory(first, second)


def test_constants_are_loaded_once_by_threads_that_come_at_once() -> None:
    """Loaded twice, the first thread's context would hold addresses of arrays that the second one's take the place of."""
    content = model([helper.make_node("Add", ["x", "b"], ["y"])], {"x": ["N", 8]}, ["y"], {"b": np.ones(8, F32)})
    core: Any = compile_native(content)[1].program.core
    load, start = core._load, threading.Barrier(4)
    calls: list[None] = []
    found: list[Any] = []

    def slow_load() -> Any:
        calls.append(None)
        time.sleep(0.02)
        return load()

    core._load, core._constants = slow_load, None

    def ask() -> None:
        start.wait()
        found.append(core.constants)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert all(each is found[0] for each in found)
