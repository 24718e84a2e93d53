"""The cache of object code: whole entries or none, private, bounded, and never trusted blindly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sardonyx.codegen.object_cache import ObjectCache


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache")
    assert cache.get("a") is None
    cache.put("a", b"code")
    assert cache.get("a") == b"code"
    assert ObjectCache(tmp_path / "cache").get("a") == b"code"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"", lambda b: b[:60] + b"?" + b[61:], lambda b: b"junk" * 30]
)
def test_a_damaged_entry_counts_as_missing(tmp_path: Path, damage: object) -> None:
    cache = ObjectCache(tmp_path)
    cache.put("a", b"some object code, long enough to damage")
    (path,) = tmp_path.glob("a*")
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert cache.get("a") is None
    cache.put("a", b"new")
    assert cache.get("a") == b"new"


def test_the_oldest_entries_make_room(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, limit_bytes=10_000)
    for number in range(10):
        cache.put(f"entry{number}", bytes(1500))
        os.utime(next(tmp_path.glob(f"entry{number}*")), (number, number))
    kept = [key for key, _, _ in cache.entries()]
    assert kept[-1] == "entry9"
    assert "entry0" not in kept
    assert sum(size for _, size, _ in cache.entries()) <= 10_000


def test_clearing_deletes_all(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put("a", b"1")
    cache.put("b", b"2")
    assert cache.clear() == 2
    assert cache.entries() == []


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs file modes")
def test_a_folder_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    ObjectCache(folder).put("a", b"planted")
    folder.chmod(0o777)
    open_cache = ObjectCache(folder)
    assert open_cache.get("a") is None
    open_cache.put("b", b"x")
    assert not list(folder.glob("b*"))


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    ObjectCache(tmp_path / "new").put("a", b"x")
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ObjectCache(tmp_path / "file" / "cache")
    cache.put("a", b"x")
    assert cache.get("a") is None
