"""Providers are found by name: registered by a program, or brought by an installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from model_text import model
from provider_support import CPU, Recording, registered

CONTENT = model("(float[2] x) => (float[2] y) { y = Relu(x) }")
X = np.array([-1, 2], np.float32)

PACKAGE = """
from sardonyx.providers import ExecutionProvider


class Plugin(ExecutionProvider):
    name = "PluginExecutionProvider"

    def __init__(self, options):
        self.factor = float(options.get("factor", "1"))

    def claim(self, view):
        return view.regions(node for node in view.nodes if node.op_type == "Relu")

    def compile(self, region):
        return lambda inputs: [(inputs[0] * self.factor).astype("float32")]
"""


def test_a_registered_provider_is_available() -> None:
    with registered(Recording):
        assert sardonyx.get_available_providers()[0] == Recording.name
        assert Recording.name in sardonyx.get_all_providers()
        assert sardonyx.get_all_providers()[-1] == CPU
        options = sardonyx.SessionOptions()
        options.add_provider(Recording.name, {"operators": "Relu"})
        assert sardonyx.InferenceSession(CONTENT, options).get_providers() == [Recording.name, CPU]
    assert Recording.name not in sardonyx.get_available_providers()
    with pytest.warns(UserWarning, match="'RecordingExecutionProvider' is not in available"):
        assert sardonyx.InferenceSession(CONTENT, providers=[Recording.name]).get_providers() == [CPU]


def test_a_session_keeps_the_provider_it_was_opened_with() -> None:
    with registered(Recording):
        session = sardonyx.InferenceSession(CONTENT, providers=[(Recording.name, {"operators": "Relu"})])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], [0, 2])
    assert session.get_providers() == [Recording.name, CPU]


@pytest.mark.parametrize(
    ("name", "factory", "error", "text"),
    [
        ("", Recording, TypeError, "the name of an execution provider is a string, got ''"),
        (3, Recording, TypeError, "is a string, got 3"),
        (CPU, Recording, ValueError, "CPUExecutionProvider is built in"),
        ("P", 3, TypeError, "the factory of P is called with a dictionary of options, got 3"),
    ],
)
def test_registrations_that_make_no_sense(name: Any, factory: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sardonyx.register_provider(name, factory)


def test_only_what_was_registered_can_be_taken_away() -> None:
    with pytest.raises(ValueError, match="no execution provider was registered as 'Foo'"):
        sardonyx.unregister_provider("Foo")


def test_a_factory_that_returns_something_else() -> None:
    sardonyx.register_provider("OddExecutionProvider", lambda options: 3)
    try:
        with pytest.raises(sardonyx.EPFail, match=r"OddExecutionProvider returned 3, expected a sardonyx\.providers"):
            sardonyx.InferenceSession(CONTENT, providers=["OddExecutionProvider"])
    finally:
        sardonyx.unregister_provider("OddExecutionProvider")


def install(folder: Path, target: str = "plugin_package:Plugin") -> None:
    """What pip leaves of a package with a provider."""
    (folder / "plugin_package.py").write_text(PACKAGE)
    info = folder / "plugin_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sardonyx.providers]\nPluginExecutionProvider = {target}\n")


def run_python(program: str, folder: Path) -> str:
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_package_brings_a_provider_by_its_entry_point(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "model.onnx").write_bytes(CONTENT)
    out = run_python(
        f"""
import numpy as np, sardonyx
print(sardonyx.get_available_providers()[0])
session = sardonyx.InferenceSession({str(tmp_path / "model.onnx")!r}, providers=[("PluginExecutionProvider", {{"factor": 3}})])
print(session.get_providers(), session.run(None, {{"x": np.array([-1, 2], np.float32)}})[0].tolist())
""",
        tmp_path,
    )
    assert out.splitlines() == [
        "PluginExecutionProvider",
        "['PluginExecutionProvider', 'CPUExecutionProvider'] [-3.0, 6.0]",
    ]


def test_other_packages_are_not_looked_for_without_need(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "model.onnx").write_bytes(CONTENT)
    out = run_python(
        f"""
import sardonyx
for providers in (None, ["CPUExecutionProvider"], ["SardonyxReferenceExecutionProvider", "CPUExecutionProvider"]):
    sardonyx.InferenceSession({str(tmp_path / "model.onnx")!r}, providers=providers)
print("importlib.metadata" in sys.modules, "plugin_package" in sys.modules)
""",
        tmp_path,
    )
    assert out.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("target", "text"),
    [("plugin_package:Missing", "PluginExecutionProvider of plugin_package:Missing cannot be imported: AttributeError"),
     ("plugin_package:__name__", "PluginExecutionProvider: plugin_package:__name__ is no factory of providers")],
)  # fmt: skip
def test_an_entry_point_that_leads_nowhere(target: str, text: str, tmp_path: Path) -> None:
    install(tmp_path, target)
    (tmp_path / "model.onnx").write_bytes(CONTENT)
    out = run_python(
        f"""
import sardonyx
try:
    sardonyx.InferenceSession({str(tmp_path / "model.onnx")!r}, providers=["PluginExecutionProvider"])
except sardonyx.EPFail as error:
    print(error)
""",
        tmp_path,
    )
    assert text in out
