"""What a start from a saved program imports: each module more takes a hundred microseconds of the ten milliseconds it lasts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import small_nets

# All of ours that opening and running a saved program takes. A module more needs a reason; so does one that can be done without.
NEEDED = {
    "sardonyx", "cache_folder", "errors", "forks", "mapped_file", "options", "provider_names", "sources",
    "codegen", "codegen.blocks", "codegen.elf", "codegen.loader",
    "formats", "formats.program", "formats.program.container", "formats.program.read", "formats.program.schema",
    "program", "program.image", "program.sizes",
    "runtime", "runtime.arena", "runtime.contention", "runtime.executable", "runtime.native_core", "runtime.origins",
    "runtime.pool", "runtime.saved",
    "session", "session.inference_session", "session.opening",
    "target", "target.machine",
}  # fmt: skip
PLANNED = {"plan", "plan.memory"}  # for programs of more than a few buffers
SLOW = {
    "argparse", "bisect", "concurrent.futures", "dataclasses", "difflib", "encodings.ascii", "hashlib", "heapq", "inspect",
    "json", "logging", "ml_dtypes", "pathlib", "random", "tempfile", "urllib",
}  # fmt: skip

PROGRAM = """
import sys
import numpy
with numpy.load(sys.argv[2]) as file:
    feeds = {name: file[name] for name in file}
before = set(sys.modules)
import sardonyx
session = sardonyx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, feeds)
imported = sorted(set(sys.modules) - before)
import json
print(json.dumps(imported))
"""


def imported(model: Path, feeds: Path, cache: Path) -> set[str]:
    """What a fresh process imports that opens and runs a model."""
    environment = {**os.environ, "SARDONYX_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model), str(feeds)],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(("name", "more"), [("chain", set()), ("mobile_net", PLANNED)])
def test_a_start_from_a_saved_program_imports_little(name: str, more: set[str], tmp_path: Path) -> None:
    data, feeds = small_nets.NETS[name]()
    model, arrays = tmp_path / "m.onnx", tmp_path / "m.npz"
    model.write_bytes(data)
    np.savez(arrays, **feeds)
    imported(model, arrays, tmp_path / "cache")
    found = imported(model, arrays, tmp_path / "cache")
    ours = {each.removeprefix("sardonyx.") for each in found if each.split(".")[0] == "sardonyx"}
    assert ours == NEEDED | more
    assert found & SLOW == set()
