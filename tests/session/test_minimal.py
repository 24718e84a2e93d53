"""Minimal sessions: models in the ORT format run without the operator table and without the reader of ONNX models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import sardonyx
import sardonyx.minimal
from ort_files import by_hand
from sardonyx import errors
from small_nets import NETS

FORBIDDEN = (
    "sardonyx.ops.signature",  # the tables of signatures
    "sardonyx.ops.registry",  # the table of all operators
    "sardonyx.matching.signatures",
    "sardonyx.formats.onnx",
    "sardonyx.formats.loading",
    "sardonyx.analysis",
    "sardonyx.lower",
    "sardonyx.compile",
    "llvmlite",
    "onnx",
    "google.protobuf",
)
PROGRAM = """
import json, sys
import numpy as np
import sardonyx.minimal

session = sardonyx.minimal.InferenceSession(sys.argv[1])
with np.load(sys.argv[2]) as held:
    results = session.run(None, dict(held))
session.get_inputs(), session.get_modelmeta()
np.savez(sys.argv[3], *results)
print(json.dumps(sorted(sys.modules)))
"""


def alone(path: str, feeds: dict[str, Any], folder: Path, cache: str = "") -> tuple[list[Any], list[str]]:
    """The results of a minimal session in a process of its own, and the modules that were imported."""
    np.savez(folder / "feeds.npz", **feeds)
    arguments = [sys.executable, "-c", PROGRAM, path, str(folder / "feeds.npz"), str(folder / "results.npz")]
    environment = {**os.environ, "SARDONYX_CACHE_DIR": cache}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    with np.load(folder / "results.npz") as held:
        return [held[name] for name in held.files], json.loads(done.stdout)


def written(content: bytes, folder: Path, engine: Any) -> str:
    options = engine.SessionOptions()
    options.optimized_model_filepath = str(folder / "m.ort")
    options.graph_optimization_level = engine.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    engine.InferenceSession(content, options)
    return str(folder / "m.ort")


@pytest.mark.parametrize("engine", [onnxruntime, sardonyx], ids=["theirs", "ours"])
@pytest.mark.parametrize("name", ["residual_net", "transformer", "recurrent_nets"])
def test_a_model_runs_without_operator_table_and_onnx_reader(name: str, engine: Any, tmp_path: Path) -> None:
    name = name if name in NETS else next(key for key in NETS if key.startswith(name.split("_", maxsplit=1)[0]))
    content, feeds = NETS[name]()
    wanted = onnxruntime.InferenceSession(content).run(None, feeds)
    found, modules = alone(written(content, tmp_path, engine), feeds, tmp_path)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert "sardonyx.formats.ort.read" in modules
    assert [module for module in modules if module.startswith(FORBIDDEN) and not module.startswith("onnxruntime")] == []


def test_a_program_that_was_compiled_before_is_used(tmp_path: Path) -> None:
    content, feeds = NETS["perceptron"]()
    path, cache = written(content, tmp_path, sardonyx), str(tmp_path / "cache")
    program = "import sardonyx, sys; sardonyx.InferenceSession(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, path], check=True, env={**os.environ, "SARDONYX_CACHE_DIR": cache})
    found, modules = alone(path, feeds, tmp_path, cache)
    np.testing.assert_allclose(found[0], onnxruntime.InferenceSession(content).run(None, feeds)[0], rtol=1e-4, atol=1e-5)
    assert [module for module in modules if module.startswith((*FORBIDDEN, "sardonyx.ops.matmul"))] == []


@pytest.fixture
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")


pytestmark = pytest.mark.usefixtures("_no_cache")


def test_the_interface_is_that_of_a_session(tmp_path: Path) -> None:
    path = tmp_path / "m.ort"
    path.write_bytes(by_hand())
    session = sardonyx.minimal.InferenceSession(path)
    assert isinstance(session, sardonyx.InferenceSession)
    assert [each.name for each in session.get_inputs()] == ["x"]
    assert session.get_providers() == ["CPUExecutionProvider"]
    x = np.array([-5, 1], np.float32)
    assert session.run(["y", "s"], {"x": x})[1].tolist() == [-4, 3]
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [0, 3]
    with pytest.raises(errors.InvalidArgument):
        session.run(None, {"x": np.zeros(2, np.float64)})


def test_initializers_can_be_replaced() -> None:
    options = sardonyx.SessionOptions()
    options.add_initializer("w", sardonyx.OrtValue.ortvalue_from_numpy(np.array([10, 20], np.float32)))
    session = sardonyx.minimal.InferenceSession(by_hand(), options)
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [10, 20]


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    open_minimal = sardonyx.minimal.InferenceSession
    with pytest.raises(errors.Fail, match=r"version \[4\] is not supported, expected 5 to 6"):
        open_minimal(by_hand(version="4"))
    with pytest.raises(errors.NotImplemented, match=r"there is no kernel for ai\.onnx Frobnicate"):
        open_minimal(by_hand(op="Frobnicate"))
    with pytest.raises(errors.Fail, match="identifier ORTM"):
        open_minimal("src/sardonyx/data/digits.onnx")
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.onnx")
    with pytest.raises(errors.InvalidArgument, match="optimized_model_filepath"):
        open_minimal(by_hand(), options)
    with pytest.raises(errors.InvalidArgument, match="SardonyxReferenceExecutionProvider"):
        open_minimal(by_hand(), providers=["SardonyxReferenceExecutionProvider"])
