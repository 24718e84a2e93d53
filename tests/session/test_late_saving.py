"""Programs that take long to write are saved after their session is there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.codegen.library import KernelLibrary
from sardonyx.runtime import saved
from sardonyx.session import full_opening
from saved_models import MODELS

WIDTH = 2304  # 21 MB of weights
X = np.linspace(-1, 1, WIDTH, dtype=np.float32)[None]
CHILD = """
import sys, numpy, sardonyx
from sardonyx.session import full_opening
full_opening._LONG_TO_WRITE = 1 << 20
sardonyx.InferenceSession(sys.argv[1]).run(None, {"x": numpy.zeros((1, int(sys.argv[2])), numpy.float32)})
print("llvmlite" in sys.modules)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(full_opening, "_LONG_TO_WRITE", 1 << 20)
    weights = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)
    found = tmp_path / "wide.onnx"
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, WIDTH])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), found)
    return str(found)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is written before it is set."""
    opened, save = threading.Event(), saved.save

    def waiting(*args: Any) -> None:
        opened.wait(60)
        save(*args)

    monkeypatch.setattr(saved, "save", waiting)
    return opened


def programs() -> list[str]:
    folder = os.environ["SARDONYX_CACHE_DIR"]
    return [name for name in os.listdir(folder) if name.endswith(".program")]


def in_another_process(path: str) -> str:
    """Whether it needed LLVM."""
    command = [sys.executable, "-c", CHILD, path, str(WIDTH)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True).stdout.strip()


def test_the_session_is_there_before_its_program_is_saved(path: str, gate: threading.Event) -> None:
    session = sardonyx.InferenceSession(path)
    expected = session.run(None, {"x": X})[0]
    assert programs() == []
    gate.set()
    again = sardonyx.InferenceSession(path)  # waits for what the first one writes
    assert len(programs()) == 1
    assert isinstance(again._opened.program, saved.SavedModel)
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], expected)


def test_a_process_ends_when_it_has_saved(path: str) -> None:
    assert in_another_process(path) == "True"
    assert len(programs()) == 1
    assert in_another_process(path) == "False"


def test_a_model_that_changes_meanwhile_is_not_saved(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, files = threading.Event(), saved.CacheEntry.files

    def waiting(self: saved.CacheEntry, looked_at: Any) -> Any:
        opened.wait(60)
        return files(self, looked_at)

    monkeypatch.setattr(saved.CacheEntry, "files", waiting)
    session = sardonyx.InferenceSession(path)
    before = session.run(None, {"x": X})[0]
    content = bytearray(Path(path).read_bytes())
    start = len(content) // 2
    content[start : start + 4096] = bytes(4096)
    os.unlink(path)  # what is mapped stays
    Path(path).write_bytes(content)
    opened.set()
    after = sardonyx.InferenceSession(path).run(None, {"x": X})[0]
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_waits_for_it(path: str) -> None:
    session = sardonyx.InferenceSession(path)
    child = os.fork()
    if child == 0:
        works = False
        try:
            works = len(programs()) == 1 and session.run(None, {"x": X})[0].shape == X.shape
            works = works and sardonyx.InferenceSession(path).run(None, {"x": X})[0].shape == X.shape
        finally:
            os._exit(0 if works else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("name", MODELS)
def test_what_is_compiled_meanwhile_is_saved_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(full_opening, "_LONG_TO_WRITE", 0)
    content, runs = MODELS[name]()
    model = tmp_path / "model.onnx"
    model.write_bytes(content)
    session = sardonyx.InferenceSession(model)
    threading.Timer(0.05, gate.set).start()
    expected = [session.run(None, feeds) for feeds in runs]
    again = sardonyx.InferenceSession(model)
    monkeypatch.setattr(KernelLibrary, "prepare", None)  # nothing is compiled
    for feeds, wanted in zip(runs, expected):
        for actual, one in zip(again.run(None, feeds), wanted):
            pairs = zip(actual, one, strict=True) if isinstance(one, list) else [(actual, one)]
            for got, expected_one in pairs:
                np.testing.assert_array_equal(got, expected_one)
