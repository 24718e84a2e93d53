"""Options of the whole test suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Object code and saved programs of tests stay in the project, not among the user's.
os.environ.setdefault("SARDONYX_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "tests"))

# Whatever is compiled, the graph is verified after every pass.
os.environ.setdefault("SARDONYX_VERIFY", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the code gives into the golden files")
