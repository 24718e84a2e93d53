"""Runs that take long are stopped between their steps: by `terminate`, and by signals, which Python tells nobody meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.runtime import native_core
from sardonyx.runtime.long_runs import in_parts

WIDTH = 256
LAYERS = 400
ROWS = 40_000  # all layers take minutes


def session(threads: int, *, counted: bool = False) -> sardonyx.InferenceSession:
    """A chain of products; if `counted`, behind a size that is known only in the run."""
    nodes = [helper.make_node("MatMul", [f"v{i}", "w"], [f"v{i + 1}"]) for i in range(LAYERS)]
    before = [
        helper.make_node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=0),
        helper.make_node("NonZero", ["most"], ["found"]),
        helper.make_node("Squeeze", ["found", "zero"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["v0"]),
    ]
    graph = helper.make_graph(
        [*before, *nodes] if counted else nodes,
        "chain",
        [helper.make_tensor_value_info("x" if counted else "v0", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info(f"v{LAYERS}", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w"), numpy_helper.from_array(np.array([0]), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def rows(count: int, name: str = "v0") -> dict[str, Any]:
    return {name: np.ones((count, WIDTH), np.float32)}


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_another_thread_stops_a_run(threads: int, *, counted: bool) -> None:
    chain, name = session(threads, counted=counted), "x" if counted else "v0"
    expected = chain.run(None, rows(2, name))[0]
    options = sardonyx.RunOptions()
    timer = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    timer.start()
    start = time.monotonic()
    with pytest.raises(sardonyx.Fail, match="Exiting due to terminate flag being set to true"):
        chain.run(None, rows(ROWS, name), options)
    assert time.monotonic() - start < 30
    np.testing.assert_array_equal(chain.run(None, rows(2, name))[0], expected)


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("counted", [False, True])
def test_a_signal_ends_a_run(*, counted: bool) -> None:
    chain, name = session(2, counted=counted), "x" if counted else "v0"
    expected = chain.run(None, rows(2, name))[0]
    for _ in range(2):
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt), interrupted_after(0.3):
            chain.run(None, rows(ROWS, name))
        assert time.monotonic() - start < 30
        np.testing.assert_array_equal(chain.run(None, rows(2, name))[0], expected)


def test_a_long_run_has_the_results_of_a_short_one() -> None:
    chain = session(2)
    few, many = chain.run(None, rows(8))[0], chain.run(None, rows(1000))[0]
    np.testing.assert_array_equal(np.tile(few, (125, 1)), many)


@given(st.integers(1, 200), st.booleans())
def test_parts_are_all_steps_in_order(count: int, is_watched: bool) -> None:
    done: list[int] = []
    pauses: list[int] = []
    between: Callable[[], None] | None = (lambda: pauses.append(len(done))) if is_watched else None
    in_parts(count, lambda first, number: done.extend(range(first, first + number)), between, int)
    assert done == list(range(count))
    assert all(0 < pause < count for pause in pauses)
    assert bool(pauses) == (is_watched and count > 1)


def test_slow_steps_come_one_by_one() -> None:
    sizes: list[int] = []

    def run(first: int, number: int) -> None:
        sizes.append(number)
        time.sleep(0.04 * number)

    in_parts(5, run, None, int)
    assert sizes == [1] * 5


@given(st.integers(1, 40), st.integers(0, 39), st.integers(2, 9))
def test_a_stretch_of_steps_is_one_part(count: int, first: int, length: int) -> None:
    stop = min(first + length, count)
    parts: list[tuple[int, int]] = []
    in_parts(count, lambda *part: parts.append(part), None, lambda end: stop if first < end < stop else end)
    assert [step for begin, number in parts for step in range(begin, begin + number)] == list(range(count))
    assert not any(first < begin < stop for begin, _ in parts)


@pytest.mark.parametrize("counted", [False, True])
def test_the_times_of_a_recurrent_layer_stay_together(monkeypatch: pytest.MonkeyPatch, *, counted: bool) -> None:
    monkeypatch.setattr(native_core, "LONG_FROM", 0)
    rng = np.random.default_rng(1)
    weights = {"W": rng.standard_normal((1, 400, 8)), "R": rng.standard_normal((1, 400, 100)) / 10}
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,1,8] x, float[2] o) => (float[N,1,1,100] l, float[4] z) '
    first = "k = NonZero(x) m = Shape(k) n = CastLike(m, x) " if counted else "n = Identity(o) "
    body = "{ " + first + "z = Concat<axis = 0>(n, o) l = LSTM <hidden_size = 100> (x, W, R) }"
    layer = onnx.parser.parse_model(head + body)
    layer.graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items())
    feeds = {"x": rng.standard_normal((30, 1, 8)).astype(np.float32), "o": np.ones(2, np.float32)}
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 2
    found = sardonyx.InferenceSession(layer.SerializeToString(), options)
    reference = sardonyx.InferenceSession(layer.SerializeToString(), providers=["SardonyxReferenceExecutionProvider"])
    expected = reference.run(None, feeds)
    for _ in range(3):
        for ours, theirs in zip(found.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
