"""Options of the whole test suite."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Object code and saved programs of tests stay in the project, not among the user's.
os.environ.setdefault("SARDONYX_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "tests"))

# Whatever is compiled, the graph is verified after every pass.
os.environ.setdefault("SARDONYX_VERIFY", "1")

# How long an example takes decides nothing: the machine may be busy. Examples are the same in every run, so that a change is
# judged by what it changes; `--random-examples` (make properties) looks for new ones.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("random examples", settings.get_profile("any machine"), derandomize=False)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("random examples" if config.getoption("--random-examples") else "any machine")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """What a test says about all loggers ends with it."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the code gives into the golden files")
    parser.addoption("--random-examples", action="store_true", help="property tests draw new examples instead of the fixed ones")
    parser.addoption(
        "--share", type=int, default=1, metavar="N", help="run one of N tests, always the same: by the hash of its name"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = config.getoption("--share")
    if share > 1:
        kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % share == 0]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept
