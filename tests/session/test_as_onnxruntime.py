"""Programs that import onnxruntime run on Sardonyx; each test runs one in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APP = """
import importlib.metadata, importlib.util, sys
import onnxruntime as ort
import onnxruntime.backend, onnxruntime.datasets
from onnxruntime import InferenceSession, SessionOptions, GraphOptimizationLevel
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, Fail
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue, Session
from onnxruntime.capi.build_and_package_info import package_name
from onnxruntime.backend.backend import prepare
from onnxruntime.datasets import get_example

assert __name__ == "__main__"
assert ort.InferenceSession is InferenceSession is Session
assert C.SessionOptions is SessionOptions and ort.capi._pybind_state.Fail is Fail
assert tuple(map(int, ort.__version__.split("."))) >= (1, 17, 0)
assert ort.get_version_string() == ort.__version__ == importlib.metadata.version("onnxruntime")
assert importlib.util.find_spec("onnxruntime") is not None
assert importlib.util.find_spec("onnxruntime.training.ort_triton") is None
assert package_name == "onnxruntime" and not hasattr(ort, "no_such_name") and "InferenceSession" in dir(ort)
session = ort.InferenceSession(get_example("mul_1.onnx"), providers=C.get_available_providers())
try:
    session.run(None, {"X": [1.0]})
except InvalidArgument as error:
    print("refused:", type(error).__module__)
print("sum:", session.run(None, {"X": [[1, 1]] * 3})[0].sum(), "arguments:", sys.argv[1:])
assert prepare(session) is not None
"""


def _run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def test_a_star_import_hides_no_builtin() -> None:
    program = "from sardonyx import *; import sardonyx; assert NotImplemented is not sardonyx.NotImplemented; InferenceSession"
    assert _run("-c", program).returncode == 0


EXPECTED = "refused: sardonyx.errors\nsum: 21.0 arguments: ['--fast', 'x']\n"


def test_a_script_runs_unchanged(app: Path) -> None:
    result = _run("-m", "sardonyx.as_onnxruntime", str(app), "--fast", "x")
    assert (result.stdout, result.returncode) == (EXPECTED, 0), result.stderr


def test_a_module_runs_unchanged(app: Path) -> None:
    result = _run("-m", "sardonyx.as_onnxruntime", "-m", "app", "--fast", "x", cwd=app.parent)
    assert (result.stdout, result.returncode) == (EXPECTED, 0), result.stderr


def test_a_program_installs_it_itself(app: Path) -> None:
    program = f"import sardonyx, sys; sardonyx.install_as_onnxruntime(); sardonyx.install_as_onnxruntime(); exec({APP!r})"
    result = _run("-c", program, "--fast", "x")
    assert (result.stdout, result.returncode) == (EXPECTED, 0), result.stderr


def test_modules_beside_the_script_are_found(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import onnxruntime\nANSWER = onnxruntime.get_device()\n")
    (tmp_path / "main.py").write_text("import beside\nprint(beside.ANSWER)\n")
    assert _run("-m", "sardonyx.as_onnxruntime", str(tmp_path / "main.py")).stdout == "CPU\n"


def test_an_onnxruntime_that_was_imported_before_is_an_honest_error() -> None:
    program = "import onnxruntime, sardonyx; sardonyx.install_as_onnxruntime()"
    result = _run("-c", program)
    assert result.returncode == 1
    assert "RuntimeError: onnxruntime 1." in result.stderr
    assert "is already imported from" in result.stderr
    assert "before anything imports onnxruntime" in result.stderr


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("transformers.convert_generation", "optimize the model with onnxruntime itself, and run the result with Sardonyx"),
        ("quantization.cuda_quantizer", "use it with onnxruntime itself, and run the quantized model with Sardonyx"),
    ],
)
def test_submodules_that_sardonyx_does_not_have_are_missing(name: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(f"import onnxruntime.{name}\n")
    result = _run("-m", "sardonyx.as_onnxruntime", str(tmp_path / "main.py"))
    assert result.returncode == 1
    assert f"ModuleNotFoundError: Sardonyx, which stands for onnxruntime here, has no onnxruntime.{name}" in result.stderr
    assert advice in result.stderr


def test_programs_may_ask_whether_a_submodule_is_there() -> None:
    program = """
import importlib.util, sardonyx
sardonyx.install_as_onnxruntime()
print([importlib.util.find_spec(f"onnxruntime.{name}") is not None for name in ("capi", "backend", "training", "quantization")])
"""
    assert _run("-c", program).stdout == "[True, True, True, True]\n"


def test_training_has_its_modules() -> None:
    program = """
import sardonyx
sardonyx.install_as_onnxruntime()
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from onnxruntime.training.onnxblock.loss import MSELoss
from onnxruntime.training.optim import AdamWMode, FusedAdam
assert onnxblock.loss.MSELoss is MSELoss and artifacts.LossType.MSELoss.value == 1
print(Module.__module__, FusedAdam.__name__, AdamWMode.ADAMW_TORCH.value)
"""
    assert _run("-c", program).stdout == "sardonyx.training.api.module AdamWithModes 2\n"


def test_exit_codes_reach_the_shell(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import sys; sys.exit(7)\n")
    assert _run("-m", "sardonyx.as_onnxruntime", str(tmp_path / "main.py")).returncode == 7


@pytest.mark.parametrize("arguments", [(), ("-m",), ("no_such_file.py",)])
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    result = _run("-m", "sardonyx.as_onnxruntime", *arguments)
    assert result.returncode == 2
    assert "sardonyx.as_onnxruntime" in result.stderr


def test_help() -> None:
    result = _run("-m", "sardonyx.as_onnxruntime", "--help")
    assert result.returncode == 0
    assert "APP.py" in result.stdout
