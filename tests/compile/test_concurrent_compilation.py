"""Several threads compile at once: one model, or different ones; each has the answer it has alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from session_agreement import same_bits, session
from small_nets import NETS

THREADS = 4


def _together(names: list[str]) -> list[list[Any]]:
    """Open and run the nets, all at the same time."""
    start = threading.Barrier(len(names))

    def work(name: str) -> list[Any]:
        content, feeds = NETS[name]()
        start.wait()
        results: list[Any] = session(content).run(None, feeds)
        return results

    with ThreadPoolExecutor(len(names)) as threads:
        return list(threads.map(work, names))


@pytest.mark.parametrize(
    "names", [["perceptron"] * THREADS, ["perceptron", "chain", "audio_net", "recurrent_nets"]], ids=["one", "many"]
)
def test_models_compiled_at_once_give_what_they_give_alone(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "together"))
    together = _together(names)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "alone"))
    for name, found in zip(names, together):
        content, feeds = NETS[name]()
        assert same_bits(found, session(content).run(None, feeds))
