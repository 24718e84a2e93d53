"""Files of the cache: the ones unused for longest make room, and files that come and go meanwhile are no error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sardonyx.cache_folder import CacheFolder, write_atomically


def fill(folder: Path, count: int, size: int = 100) -> CacheFolder:
    """Files of which the first was unused for longest, in a folder that may hold five of them."""
    cache = CacheFolder(folder, ".x", 5 * size)
    folder.mkdir(exist_ok=True)
    for number in range(count):
        Path(cache.path(f"k{number}")).write_bytes(bytes(size))
        os.utime(cache.path(f"k{number}"), (1000 + number, 1000 + number))
    return cache


def test_the_files_unused_for_longest_make_room(tmp_path: Path) -> None:
    cache = fill(tmp_path, 8)
    cache.mark_used("k0")
    assert cache.make_room() == 500
    assert [entry.key for entry in cache.entries()] == ["k4", "k5", "k6", "k7", "k0"]


def test_a_folder_within_its_limit_stays_as_it_is(tmp_path: Path) -> None:
    cache = fill(tmp_path, 5)
    assert cache.make_room() == 500
    assert len(cache.entries()) == 5


def test_other_kinds_of_files_are_not_touched(tmp_path: Path) -> None:
    cache = fill(tmp_path, 8)
    (tmp_path / "old.y").write_bytes(bytes(9999))
    cache.make_room()
    cache.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["old.y"]


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "none", ".x", 10)
    assert cache.entries() == []
    assert cache.make_room() == 0
    assert cache.clear() == 0
    cache.mark_used("k")


def test_files_that_vanish_while_room_is_made_count_as_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = fill(tmp_path, 8)
    listed = cache.entries()
    os.unlink(cache.path("k0"))
    os.unlink(cache.path("k1"))
    monkeypatch.setattr(cache, "entries", lambda: listed)
    assert cache.make_room() == 500
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k3.x", "k4.x", "k5.x", "k6.x", "k7.x"]


def test_a_file_used_since_the_folder_was_listed_is_spared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = fill(tmp_path, 8)
    listed = cache.entries()
    cache.mark_used("k1")
    monkeypatch.setattr(cache, "entries", lambda: listed)
    cache.make_room()
    assert os.path.exists(cache.path("k1"))
    assert not os.path.exists(cache.path("k3"))


def test_what_was_left_half_written_goes_after_a_day(tmp_path: Path) -> None:
    cache = fill(tmp_path, 1)
    fresh, old = tmp_path / ".new-1-2-a.x", tmp_path / ".new-1-2-b.x"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 100_000,) * 2)
    assert [entry.key for entry in cache.entries()] == ["k0"]
    cache.make_room()
    assert fresh.exists()
    assert not old.exists()


def test_several_processes_make_room_at_once(tmp_path: Path) -> None:
    text = (
        "import sys; from pathlib import Path; from sardonyx.cache_folder import CacheFolder, write_atomically\n"
        "cache = CacheFolder(Path(sys.argv[1]), '.x', 2000)\n"
        "for n in range(60):\n"
        "    write_atomically(cache.path(f'{sys.argv[2]}-{n}'), bytes(100)); cache.make_room()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", text, str(tmp_path), str(number)]) for number in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    cache = CacheFolder(tmp_path, ".x", 2000)
    assert 1000 <= sum(entry.size for entry in cache.entries()) <= 2300
    assert not list(tmp_path.glob(".new-*"))


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Iterator[None]:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    write_atomically(tmp_path / "a.x", b"content")
    assert not list(tmp_path.iterdir())
