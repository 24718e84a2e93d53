"""`session.background_compile=1`: NumPy answers until the compiled program is there."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import sardonyx
import small_nets
from model_text import model
from sardonyx import errors
from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile.native_model import NativeModel
from sardonyx.runtime.runs import RunControl
from sardonyx.session.background import BackgroundModel, Compilation
from threads import at_once

BOTH_SIGNS = model("(float[N,3] x) => (float[N,3] y) { a = Mul(x, x)  y = Sub(a, x) }")
X = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)


def options(**entries: str) -> sardonyx.SessionOptions:
    found = sardonyx.SessionOptions()
    for key, value in {"background_compile": "1", **entries}.items():
        found.add_session_config_entry(f"session.{key}", value)
    return found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Kernels are not compiled before it is set."""
    opened = threading.Event()
    prepare = KernelLibrary.prepare

    def waiting(self: KernelLibrary, kernels: Iterable[Any], workers: int, *more: Any) -> None:
        opened.wait()
        prepare(self, kernels, workers, *more)

    monkeypatch.setattr(KernelLibrary, "prepare", waiting)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    yield opened
    opened.set()


def background(session: sardonyx.InferenceSession) -> tuple[BackgroundModel, Compilation]:
    program = session._opened.program
    assert isinstance(program, BackgroundModel)
    return program, program._compilation


def test_it_answers_before_and_after_the_program_is_there(gate: threading.Event) -> None:
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    _, compilation = background(session)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X - X)
    np.testing.assert_array_equal(session.run(["a"], {"x": X})[0], X * X)
    gate.set()
    compilation.wait()
    assert isinstance(session._opened.program, NativeModel)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X - X)
    np.testing.assert_array_equal(session.run(["a"], {"x": X})[0], X * X)


@pytest.mark.parametrize("net", [small_nets.residual_net, small_nets.transformer, small_nets.recurrent_nets])
def test_both_answers_are_those_of_a_plain_session(net: Callable[[], tuple[bytes, Any]], gate: threading.Event) -> None:
    content, feeds = net()
    session = sardonyx.InferenceSession(content, options())
    _, compilation = background(session)
    early = session.run(None, feeds)
    gate.set()
    compilation.wait()
    late = session.run(None, feeds)
    for first, then, plain in zip(early, late, sardonyx.InferenceSession(content).run(None, feeds)):
        np.testing.assert_array_equal(then, plain)
        np.testing.assert_allclose(first, plain, rtol=1e-3, atol=1e-4)


def test_a_run_goes_over_to_the_program(gate: threading.Event) -> None:
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    program, _ = background(session)

    class Slow:
        """Never ends by itself."""

        outputs = program.outputs

        def run(self, feeds: Any, fetches: Any, control: RunControl) -> list[Any]:
            gate.set()
            while True:
                control.stop_if_asked()

    program._quick = Slow()  # type: ignore[assignment]
    np.testing.assert_array_equal(program.run({"x": X}, ["y"])[0], X * X - X)


def test_threads_run_it_while_it_is_exchanged(gate: threading.Event) -> None:
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())

    def work(number: int) -> None:
        x = X + number
        for repetition in range(60):
            if repetition == 20:
                gate.set()
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * x - x)

    at_once(work, range(4))


def test_what_the_compiler_raises_the_next_run_raises(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    def failing(*args: Any) -> None:
        gate.wait()
        raise errors.InvalidGraph("no such thing")

    monkeypatch.setattr(KernelLibrary, "prepare", failing)
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    _, compilation = background(session)
    session.run(None, {"x": X})
    gate.set()
    compilation.wait()
    fed = X.copy()
    kept = weakref.ref(fed)
    for _ in range(2):
        with pytest.raises(errors.InvalidGraph, match="no such thing"):
            session.run(None, {"x": fed})
    del fed
    gc.collect()
    assert kept() is None  # the error is there for all runs to come, and keeps nothing of those that had it


def test_a_bad_model_is_refused_at_once() -> None:
    with pytest.raises(errors.InvalidGraph):
        sardonyx.InferenceSession(model("(float[N,3] x) => (float[N,4] y) { a = Reshape(x, x)  y = MatMul(a, a) }"), options())


def test_bad_feeds_are_refused_as_ever(gate: threading.Event) -> None:
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    with pytest.raises(errors.InvalidArgument, match="x"):
        session.run(None, {"x": X.astype(np.int64)})


def test_terminating_a_run_ends_it(gate: threading.Event) -> None:
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    run = sardonyx.RunOptions()
    run.terminate = True
    with pytest.raises(errors.Fail, match="terminate"):
        session.run(None, {"x": X}, run)
    program, _ = background(session)
    with pytest.raises(errors.Fail, match="terminate"):
        program.run({"x": X}, ["y"], RunControl(lambda: True))
    run.terminate = False
    np.testing.assert_array_equal(session.run(None, {"x": X}, run)[0], X * X - X)


def test_loading_can_be_cancelled_while_it_compiles(gate: threading.Event) -> None:
    wanted = options()
    session = sardonyx.InferenceSession(BOTH_SIGNS, wanted)
    _, compilation = background(session)
    wanted.set_load_cancellation_flag(True)
    gate.set()
    compilation.wait()
    with pytest.raises(errors.ModelLoadCanceled):
        session.run(None, {"x": X})


def test_a_dropped_session_ends_its_compilation(gate: threading.Event) -> None:
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    _, compilation = background(session)
    del session, _
    gc.collect()
    gate.set()
    compilation.wait()
    assert compilation.program is None
    assert compilation.error is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_compiles_what_its_parent_had_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    started = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)  # as if the parent had no time for it
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    monkeypatch.setattr(threading.Thread, "start", started)
    _, compilation = background(session)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            first = session.run(None, {"x": X})[0]
            compilation.wait()
            then = session.run(None, {"x": X})[0]
            code = 0 if np.array_equal(first, then) and isinstance(session._opened.program, NativeModel) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_it_compiles_works_in_the_child() -> None:
    content, feeds = small_nets.perceptron()
    session = sardonyx.InferenceSession(content, options())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if np.isfinite(session.run(None, feeds)[0]).all() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_waits_for_runs_in_numpy() -> None:
    """A fork ends the threads of NumPy's matrix products, for which a run would wait for ever."""
    session = sardonyx.InferenceSession(BOTH_SIGNS, sardonyx.SessionOptions(), providers=["SardonyxReferenceExecutionProvider"])
    forked = threading.Event()

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        forked.set()
        os.waitpid(child, 0)

    forker = threading.Thread(target=fork)

    def on_node(_: Any) -> None:
        if forker.ident is None:
            forker.start()
        assert not forked.wait(0.1)

    [y] = session._opened.program.run({"x": X}, ["y"], RunControl(on_node=on_node))
    np.testing.assert_array_equal(y, X * X - X)
    forker.join()
    assert forked.is_set()


def test_a_process_may_end_while_it_compiles(tmp_path: Any) -> None:
    content, _ = small_nets.residual_net()
    (tmp_path / "m.onnx").write_bytes(content)
    code = (
        "import sardonyx\noptions = sardonyx.SessionOptions()\n"
        "options.add_session_config_entry('session.background_compile', '1')\n"
        f"session = sardonyx.InferenceSession({str(tmp_path / 'm.onnx')!r}, options)\n"
    )
    environment = {**os.environ, "SARDONYX_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_program_is_saved_for_the_next_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    session = sardonyx.InferenceSession(BOTH_SIGNS, options())
    program = session._opened.program
    if isinstance(program, BackgroundModel):
        program._compilation.wait()
    for wanted in (options(), sardonyx.SessionOptions()):  # the entry changes nothing about the program
        later = sardonyx.InferenceSession(BOTH_SIGNS, wanted)
        assert type(later._opened.program).__name__ == "SavedModel"
        np.testing.assert_array_equal(later.run(None, {"x": X})[0], X * X - X)
