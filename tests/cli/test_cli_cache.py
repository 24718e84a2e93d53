"""`sardonyx cache`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sardonyx.cli.main import main
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.runtime.saved import programs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with two kernels and a model."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(folder))
    cache = ObjectCache(folder)
    cache.put("a" * 8, b"one")
    cache.put("b" * 8, b"three")
    Path(programs(str(folder)).path("c" * 8)).write_bytes(bytes(1000))
    return folder


def test_show_is_the_default_and_counts_what_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["folder"] == str(folder)
    assert rows["kernels"].startswith("2: ")
    assert "of at most 1.1 GB, last used today" in rows["kernels"]
    assert rows["models"].startswith("1: 1.0 kB of at most 2.1 GB")


def test_show_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "show", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kernels"]["entries"] == 2
    assert facts["kernels"]["bytes"] == sum(path.stat().st_size for path in folder.glob("*.obj"))
    assert facts["kernels"]["oldest_use"] <= facts["kernels"]["newest_use"]
    assert facts["models"]["entries"] == 1


def test_path_is_one_line_for_scripts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"


def test_clear_removes_all_entries(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 2 kernels and 1 model, ")
    assert not list(folder.iterdir())
    assert main(["cache", "show"]) == 0
    assert "kernels  0: " in capsys.readouterr().out
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] == 0


def test_a_cache_that_is_off_is_said_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    assert main(["cache"]) == 2
    assert "the cache is off" in capsys.readouterr().err


def test_an_unknown_action_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["cache", "burn"])
    assert stopped.value.code == 2
