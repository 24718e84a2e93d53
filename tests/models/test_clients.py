"""Programs written for onnxruntime run unchanged on Sardonyx and give the same answers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")
from clients import CLIENTS, PACKAGES

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).parent / "clients.py")


def answer(*launcher: str) -> tuple[str, Any]:
    """The engine a client ran on, and what it answered."""
    done = subprocess.run([sys.executable, *launcher], capture_output=True, text=True, check=False, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert lines, f"{launcher} gave no answer:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    engine, found = json.loads(lines[-1].removeprefix("ANSWER "))
    return engine, found


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def assert_close(actual: Any, expected: Any) -> None:
    """Equal, except that rounded scores may differ in their last digit."""
    if isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=2e-3)
    elif isinstance(expected, (list, dict)):
        assert len(actual) == len(expected)
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            assert_close(actual[key], expected[key])
    else:
        assert actual == expected


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gives_the_same_answer_on_sardonyx(client: str) -> None:
    package = PACKAGES.get(client, client)
    if not is_installed(package):
        pytest.skip(f"{package} is not installed; `make models` installs it")
    their_engine, expected = answer(SCRIPT, client)
    our_engine, actual = answer("-m", "sardonyx.as_onnxruntime", SCRIPT, client)
    assert (their_engine, our_engine) == ("onnxruntime", "sardonyx")
    assert_close(actual, expected)
