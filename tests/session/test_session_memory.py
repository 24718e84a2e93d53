"""What a session holds: given back on request, and when it is dropped; workers that sleep; forks at any moment."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import errors
from sardonyx.runtime import pool as pools
from sardonyx.runtime.arena import Arena
from threads import at_once

F32 = np.float32
SHRINK = "memory.enable_memory_arena_shrinkage"
MEGABYTE = 1 << 20


def network(weights: int = 8) -> bytes:
    """Two layers over any number of rows: 32 kB of scratch memory a row, and some rows of weights."""
    rng = np.random.default_rng(0)
    arrays = {
        "up": rng.normal(size=(weights, 4096), scale=0.1).astype(F32),
        "down": rng.normal(size=(4096, 8), scale=0.1).astype(F32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "up"], ["a"]),
            helper.make_node("Softmax", ["a"], ["b"], axis=0),
            helper.make_node("MatMul", ["b", "down"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", weights])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return made


def looping(trips: int = 2) -> bytes:
    """The network's middle as the body of a loop, which is a program of its own."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "up"], ["a"]),
            helper.make_node("Softmax", ["a"], ["b"], axis=0),
            helper.make_node("MatMul", ["b", "down"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, ["rows", 8]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, ["rows", 8]),
        ],
    )
    rng = np.random.default_rng(0)
    arrays = {
        "up": rng.normal(size=(8, 4096), scale=0.1).astype(F32),
        "down": rng.normal(size=(4096, 8), scale=0.1).astype(F32),
        "trips": np.array(trips, np.int64),
        "yes": np.array(True),
    }
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "yes", "x"], ["y"], body=body)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return made


def resident() -> int:
    """Bytes of memory this process holds."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def shrinking(devices: str = "cpu:0") -> Any:
    options = sardonyx.RunOptions()
    options.add_run_config_entry(SHRINK, devices)
    return options


LARGE = np.ones((1500, 8), F32)  # 48 MB of scratch memory
SMALL = LARGE[:2]


@pytest.mark.parametrize("make", [network, looping])
def test_a_run_that_asks_for_it_gives_memory_back(make: Callable[[], bytes], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    for _ in range(2):  # compiled, then saved
        session = sardonyx.InferenceSession(make())
        session.run(None, {"x": SMALL})
        before = resident()
        expected = session.run(None, {"x": LARGE})[0]
        held = resident()
        assert held > before + 20 * MEGABYTE
        session.run(None, {"x": SMALL}, shrinking())
        assert resident() < held - 20 * MEGABYTE
        np.testing.assert_array_equal(session.run(None, {"x": LARGE})[0], expected)


@pytest.mark.parametrize("make", [network, looping])
def test_a_dropped_session_gives_its_memory_back_at_once(make: Callable[[], bytes], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    for _ in range(2):  # compiled, then saved
        session = sardonyx.InferenceSession(make())
        session.run(None, {"x": LARGE})
        gc.collect()
        gc.disable()  # what a session holds does not wait for a search for cycles
        try:
            held = resident()
            del session
            assert resident() < held - 20 * MEGABYTE
        finally:
            gc.enable()


def test_without_an_arena_nothing_is_kept_between_runs() -> None:
    options = sardonyx.SessionOptions()
    options.enable_cpu_mem_arena = False
    session = sardonyx.InferenceSession(network(), options)
    session.run(None, {"x": SMALL})
    before = resident()
    for _ in range(3):
        session.run(None, {"x": LARGE})
    assert resident() < before + 10 * MEGABYTE


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("cpu:1", "Did not find an arena based allocator registered for device-id combination .*: cpu:1"),
        ("gpu:0", "Did not find an arena based allocator registered for device-id combination .*: gpu:0"),
        ("tpu:0", "Unsupported device specified in the memory arena shrink list: tpu"),
        ("cpu:x", "Unsupported device id in the memory arena shrink list: x"),
    ],
)
def test_devices_without_an_arena_are_refused(devices: str, message: str) -> None:
    session = sardonyx.InferenceSession(network())
    with pytest.raises(errors.InvalidArgument, match=message):
        session.run(None, {"x": SMALL}, shrinking(devices))


@pytest.mark.parametrize("devices", ["", "cpu", "cpu:0", "cpu:0;gpu:0", "cpu:0;"])
def test_ways_to_name_the_cpu(devices: str) -> None:
    assert sardonyx.InferenceSession(network()).run(None, {"x": SMALL}, shrinking(devices))[0].shape == (2, 8)


def test_run_options_do_not_open_a_saved_model_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    sardonyx.InferenceSession(network())
    session = sardonyx.InferenceSession(network())
    program: Any = session._opened.program
    session.run(None, {"x": SMALL}, sardonyx.RunOptions())
    assert program._full is None
    stopped = sardonyx.RunOptions()
    stopped.terminate = True
    with pytest.raises(errors.Fail, match="terminate flag"):
        session.run(None, {"x": SMALL}, stopped)


def test_a_run_that_fails_does_not_leave_the_wrong_sizes_behind() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "z"], ["s"]),
            helper.make_node("NonZero", ["s"], ["n"]),  # computed by the host
            helper.make_node("Cast", ["n"], ["c"], to=TensorProto.FLOAT),
        ],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"rows_{name}"]) for name in "xz"],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "sc"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = sardonyx.InferenceSession(model)
    ones = np.ones(1000, F32)
    for size in (1000, 10):
        for _ in range(2):
            total, found = session.run(None, {"x": ones[:size], "z": ones[:size]})
            assert total.tolist() == [2.0] * size
            assert found.shape == (1, size)
            with pytest.raises(errors.SardonyxError):
                session.run(None, {"x": ones[:900], "z": ones[:7]})


def test_memory_that_cannot_be_had_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy computes what does not fit; the next run of the same sizes must not use memory that is gone."""
    session = sardonyx.InferenceSession(network())
    fetched = ["a", "y"]  # another program than that of the outputs alone, which keeps its contexts after errors
    expected = session.run(fetched, {"x": LARGE})
    mapped = Arena._map

    def refused(arena: Arena, size: int) -> None:
        mapped(arena, 0)
        raise MemoryError

    for _ in range(2):
        session.run(fetched, {"x": SMALL})
        session._opened.program.shrink()
        monkeypatch.setattr(Arena, "_map", refused)
        for _ in range(2):
            for result, want in zip(session.run(fetched, {"x": LARGE}), expected):
                np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-6)
        monkeypatch.setattr(Arena, "_map", mapped)
        for result, want in zip(session.run(fetched, {"x": LARGE}), expected):
            np.testing.assert_array_equal(result, want)


def test_sizes_that_become_known_one_after_the_other() -> None:
    """A buffer that is longer than a size not known yet must wait for it."""
    nodes = []
    for name in "xz":
        nodes += [
            helper.make_node("NonZero", [name], [f"n_{name}"]),
            helper.make_node("Cast", [f"n_{name}"], [f"c_{name}"], to=TensorProto.FLOAT),
            helper.make_node("Concat", [f"c_{name}", "more"], [f"j_{name}"], axis=1),
            helper.make_node("Softmax", [f"j_{name}"], [f"s_{name}"], axis=1),
            helper.make_node("Mul", [f"s_{name}", f"j_{name}"], [f"o_{name}"]),
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"rows_{name}"]) for name in "xz"],
        [helper.make_tensor_value_info(f"o_{name}", TensorProto.FLOAT, None) for name in "xz"],
        [numpy_helper.from_array(np.ones((1, 100), F32), "more")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = sardonyx.InferenceSession(model)
    reference = sardonyx.InferenceSession(model, providers=["SardonyxReferenceExecutionProvider"])
    for x_rows, z_rows in ((3, 50_000), (50_000, 3), (0, 7), (400, 0), (20_000, 30_000)):
        feeds = {"x": np.ones(x_rows, F32), "z": np.ones(z_rows, F32)}
        for result, expected in zip(session.run(None, feeds), reference.run(None, feeds)):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("cache", ["saved", ""])
def test_sessions_that_are_opened_and_dropped_leave_nothing_behind(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / cache) if cache else "")
    path = tmp_path / "m.onnx"
    path.write_bytes(network(weights=512))  # 8 MB
    x = np.ones((100, 512), F32)

    def use() -> None:
        sardonyx.InferenceSession(path).run(None, {"x": x})

    for _ in range(20):  # until the C library's heap has found its size
        use()
    gc.collect()
    before = resident()
    for _ in range(40):
        use()
    gc.collect()
    assert resident() < before + 8 * MEGABYTE  # one model's weights
    assert sum(thread.name.startswith("sardonyx-") for thread in threading.enumerate()) < 40


@pytest.mark.parametrize("spinning", ["0", "1"])
def test_workers_spin_only_if_they_may(spinning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 5 + int(spinning)  # as no other test has
    options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    sessions = [sardonyx.InferenceSession(network(), options) for _ in range(2)]  # compiled, then saved
    assert len(sessions) == 2
    (pool,) = (pool for pool in pools._pools if pool.workers == options.intra_op_num_threads)
    assert (pool._spins > 0) == (spinning == "1")


def test_an_idle_session_uses_no_cpu() -> None:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 4
    session = sardonyx.InferenceSession(network(), options)
    session.run(None, {"x": LARGE})
    time.sleep(0.1)  # longer than a worker spins
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1


def test_threads_that_compile_the_same_kernels_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them compiled must stay loaded when another one compiled it, too."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "new"))
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        session = sardonyx.InferenceSession(network(weights=8 + number // 2))
        for _ in range(3):
            results[number] = session.run(None, {"x": np.ones((50, 8 + number // 2), F32)})[0]

    at_once(work, range(6))
    assert len(results) == 6
    for number in (0, 2, 4):
        np.testing.assert_array_equal(results[number], results[number + 1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("make", [network, looping])
def test_a_fork_may_happen_while_other_threads_run_the_session(make: Callable[[], bytes]) -> None:
    session = sardonyx.InferenceSession(make())
    feeds = [{"x": LARGE[:rows]} for rows in (300, 7, 120)]
    expected = [session.run(None, each)[0] for each in feeds]
    done = threading.Event()

    def keep_running() -> None:
        while not done.is_set():
            for each in feeds:
                session.run(None, each)

    threads = [threading.Thread(target=keep_running) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:
                same = all(np.array_equal(session.run(None, each)[0], want) for each, want in zip(feeds, expected))
                os._exit(0 if same else 1)
            deadline = time.monotonic() + 60
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.005)
            if ended[0] == 0:
                os.kill(child, 9)
                os.waitpid(child, 0)
            assert ended[0] == child, "the child hangs"
            assert os.waitstatus_to_exitcode(ended[1]) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()
