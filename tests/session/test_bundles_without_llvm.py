"""Compiled models are opened and run where there is no LLVM, whatever sizes and numbers come."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

import sardonyx
import saved_models
from branching_models import branching_model

PROGRAM: Final = """
import pickle, sys
sys.modules["llvmlite"] = None  # whoever imports it fails
with open(sys.argv[1], "rb") as file:
    cases = pickle.load(file)
import sardonyx
found = []
for path, runs in cases:
    session = sardonyx.InferenceSession(path)
    found.append([session.run(None, feeds) for feeds in runs])
with open(sys.argv[2], "wb") as file:
    pickle.dump(found, file)
"""


def branching(path: Path) -> list[dict[str, Any]]:
    """A model that a session specialises for sizes and a number that decides; more of them than get programs of their own."""
    branching_model(path)
    rng = np.random.default_rng(0)
    cases = [(n, m, mode) for n, m in ((1, 1), (2, 3), (4, 5), (7, 2)) for mode in (0, 1, 2)]
    return [{"x": rng.normal(size=(n, m)).astype(np.float32), "mode": np.array(mode)} for n, m, mode in cases]


def test_bundles_run_without_llvm(tmp_path: Path) -> None:
    cases: list[tuple[str, list[dict[str, Any]]]] = []
    expected: list[list[Any]] = []
    models = {name: make() for name, make in saved_models.MODELS.items() if name != "sparse"}  # whose feeds are no plain data
    for name, (content, runs) in models.items():
        (tmp_path / f"{name}.onnx").write_bytes(content)
        cases.append((str(tmp_path / f"{name}.sdx"), runs))
    cases.append((str(tmp_path / "branching.sdx"), branching(tmp_path / "branching.onnx")))
    for path, runs in cases:
        model = Path(path).with_suffix(".onnx")
        sardonyx.compile_bundle(model, path)
        session = sardonyx.InferenceSession(model)
        expected.append([session.run(None, feeds) for feeds in runs])
        model.unlink()
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "cases"), str(tmp_path / "found")]
    subprocess.run(command, check=True, env={**os.environ, "SARDONYX_CACHE_DIR": ""}, timeout=300)
    found = pickle.loads((tmp_path / "found").read_bytes())
    for (path, _), ours, theirs in zip(cases, found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            for first, second in zip(one, other, strict=True):
                if isinstance(second, np.ndarray) and second.dtype.kind == "f":
                    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5, err_msg=path)
                else:
                    np.testing.assert_equal(first, second, err_msg=path)
