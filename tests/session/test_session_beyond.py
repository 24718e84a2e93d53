"""What goes beyond onnxruntime: intermediate values, pickling, forks, asyncio, feeds of other libraries."""

from __future__ import annotations

import array
import asyncio
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.runtime import dlpack

Model = Callable[[str], str]
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def test_any_value_of_the_graph_can_be_fetched(model: Model) -> None:
    session = sardonyx.InferenceSession(model("add_mul"))
    t, y, w, x = session.run(["T", "Y", "W", "X"], {"X": X})
    np.testing.assert_array_equal(t, 2 * X)
    np.testing.assert_array_equal(y, 2 * X * w)
    np.testing.assert_array_equal(x, X)
    for result in (t, y, w, x):
        assert result.flags.writeable
        assert not np.shares_memory(result, X)
    w[:] = 0
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], y)


def test_a_name_nobody_has_is_explained(model: Model) -> None:
    with pytest.raises(sardonyx.InvalidArgument, match=r"no value is called 'nope'; outputs are: Y\n.*any intermediate value"):
        sardonyx.InferenceSession(model("add_mul")).run(["nope"], {"X": X})


def test_a_model_object_and_an_open_file_are_taken(model: Model) -> None:
    with open(model("mul_1"), "rb") as file:
        sessions = [
            sardonyx.InferenceSession(onnx.load(model("mul_1"))),
            sardonyx.InferenceSession(file),
            sardonyx.InferenceSession(memoryview(Path(model("mul_1")).read_bytes())),
            sardonyx.InferenceSession(bytearray(Path(model("mul_1")).read_bytes())),
        ]
    for session in sessions:
        np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * X)


@pytest.mark.parametrize("source", ["path", "bytes"])
def test_sessions_pickle(model: Model, source: str) -> None:
    options = sardonyx.SessionOptions()
    options.logid = "kept"
    options.add_initializer("W", sardonyx.OrtValue.ortvalue_from_numpy(np.full((3, 2), 7, np.float32)))
    given = model("mul_1") if source == "path" else Path(model("mul_1")).read_bytes()
    session = sardonyx.InferenceSession(given, options, providers=["SardonyxReferenceExecutionProvider"])
    for other in (pickle.loads(pickle.dumps(session)), copy.copy(session)):
        np.testing.assert_array_equal(other.run(None, {"X": X})[0], 7 * X)
        assert other.get_session_options().logid == "kept"
        assert other.get_providers() == session.get_providers()


def test_a_pickled_session_finds_its_model_from_another_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    stored = pickle.dumps(sardonyx.InferenceSession("mul_1.onnx"))
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(pickle.loads(stored).run(None, {"X": X})[0], X * X)


class _Named(sardonyx.InferenceSession):
    """A session with an attribute of its own."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.title = "mine"


def test_subclasses_pickle_with_their_attributes(model: Model) -> None:
    other = pickle.loads(pickle.dumps(_Named(model("mul_1"))))
    assert type(other) is _Named
    assert other.title == "mine"
    np.testing.assert_array_equal(other.run(None, {"X": X})[0], X * X)


def test_a_session_goes_to_a_process_that_is_started_anew(model: Model) -> None:
    program = (
        "import pickle, sys; s = pickle.load(sys.stdin.buffer); print(s.run(None, {'X': [[1, 2], [3, 4], [5, 6]]})[0].sum())"
    )
    stored = pickle.dumps(sardonyx.InferenceSession(model("mul_1")))
    result = subprocess.run([sys.executable, "-c", program], input=stored, capture_output=True, timeout=120, check=True)
    assert result.stdout.strip() == b"91.0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_session_works_after_a_fork(model: Model) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    session.run(None, {"X": X})
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(session.run(None, {"X": X})[0].sum().item()))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert queue.get() == (X * X).sum()
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * X)


def test_runs_are_awaited(model: Model) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))

    async def both() -> tuple[list[Any], list[Any]]:
        return await asyncio.gather(session.arun(None, {"X": X}), session.arun(["Y"], {"X": 2 * X}))

    [first], [second] = asyncio.run(both())
    np.testing.assert_array_equal(second, 2 * first)


def test_a_task_that_is_cancelled_stops_its_run(model: Model) -> None:
    session = sardonyx.InferenceSession(model("long"))
    options = sardonyx.RunOptions()

    async def cancel() -> None:
        task = asyncio.create_task(session.arun(None, {"v0": np.zeros(400_000, np.float32)}, options))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert options.terminate


def test_another_thread_terminates_a_run(model: Model) -> None:
    session = sardonyx.InferenceSession(model("long"))
    options = sardonyx.RunOptions()
    timer = threading.Timer(0.05, lambda: setattr(options, "terminate", True))
    timer.start()
    started = time.monotonic()

    def run_until_stopped() -> None:
        while time.monotonic() - started < 20:
            session.run(None, {"v0": np.zeros(2_000_000, np.float32)}, options)

    with pytest.raises(sardonyx.Fail, match="Exiting due to terminate flag being set to true"):
        run_until_stopped()
    options.terminate = False
    assert session.run(None, {"v0": np.zeros(2, np.float32)}, options)[0].tolist() == [0, 0]


def test_a_session_is_freed_when_nobody_holds_it(model: Model) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    session.run(None, {"X": X})
    gone = weakref.ref(session)
    del session
    assert gone() is None


class _Arrayed:
    """Something with `__array__`, like a data frame."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.values, dtype)


class _Tensor:
    """What torch's tensors look like to a consumer: nothing is exported while gradients are recorded."""

    def __init__(self, values: Any, requires_grad: bool = False) -> None:
        self.values = values
        self.requires_grad = requires_grad
        self.dtype = "torch.something"

    def detach(self) -> _Tensor:
        return _Tensor(self.values)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return dlpack.to_dlpack(self.values)


@pytest.mark.parametrize("wrap", [_Arrayed, _Tensor, lambda x: _Tensor(x, requires_grad=True), lambda x: x.tolist(), memoryview])
def test_anything_that_gives_an_array_can_be_fed(model: Model, wrap: Callable[[Any], Any]) -> None:
    [y] = sardonyx.InferenceSession(model("mul_1")).run(None, {"X": wrap(X)})
    np.testing.assert_array_equal(y, X * X)


def test_bfloat16_comes_in_by_dlpack_and_goes_out_as_an_array(model: Model) -> None:
    x = np.array([-1.5, 2], ml_dtypes.bfloat16)
    session = sardonyx.InferenceSession(model("bfloat16"))
    for fed in (x, _Tensor(x), _Tensor(x, requires_grad=True), [-1.5, 2]):
        [y] = session.run(None, {"X": fed})
        assert y.dtype == ml_dtypes.bfloat16
        assert y.tolist() == [1.5, 2]


def test_an_array_with_a_dtype_is_not_converted_whoever_brings_it(model: Model) -> None:
    with pytest.raises(sardonyx.InvalidArgument, match=r"Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)"):
        sardonyx.InferenceSession(model("mul_1")).run(None, {"X": _Tensor(X.astype(np.float64))})


def test_scalars_and_buffers_take_the_type_of_the_input(model: Model) -> None:
    scalar = sardonyx.InferenceSession(model("scalar"))
    for fed in (-3, np.int64(-3), np.int32(-3), np.array(-3)):
        [y] = scalar.run(None, {"X": fed})
        assert (y.dtype, y.shape, y.item()) == (np.int64, (), 3)
    [y] = sardonyx.InferenceSession(model("bytes")).run(None, {"X": array.array("B", [1, 255])})
    assert y.tolist() == [1, 255]


def test_numbers_in_the_other_byte_order_are_understood(model: Model) -> None:
    [y] = sardonyx.InferenceSession(model("mul_1")).run(None, {"X": X.astype(">f4")})
    np.testing.assert_array_equal(y, X * X)


def test_feeds_are_never_changed(model: Model) -> None:
    x = X.copy()
    x.flags.writeable = False
    session = sardonyx.InferenceSession(model("add_mul"))
    session.run(None, {"X": x})
    np.testing.assert_array_equal(x, X)


def test_initializers_given_by_the_user_share_their_memory(model: Model) -> None:
    w = np.ones((3, 2), np.float32)
    options = sardonyx.SessionOptions()
    options.add_initializer("W", sardonyx.OrtValue.ortvalue_from_numpy(w))
    session = sardonyx.InferenceSession(model("add_mul"), options)
    [handed_out] = session.run(["W"], {"X": X})
    handed_out[:] = 5
    assert (w == 1).all()


def test_a_session_says_what_it_is(model: Model) -> None:
    assert repr(sardonyx.InferenceSession(model("mul_1"))).startswith("InferenceSession('")
    assert "a model in memory" in repr(sardonyx.InferenceSession(Path(model("mul_1")).read_bytes()))
