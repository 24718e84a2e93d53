"""Saved packed weights are opened at once: their checksums are remembered, and so is the program of the model they lie beside."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx import mapped_file
from sardonyx.mapped_file import map_file, weight_checksum
from sardonyx.runtime import known_checksums
from sardonyx.runtime.known_checksums import KnownChecksums

from .test_packed_weights import Counts, pieces, random, run, tensors_of
from .test_packed_weights import saved as save_packed

PAGE = 4096


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as changed long ago."""
    monkeypatch.setattr(known_checksums, "is_settled", lambda *moments: True)


def forget_programs(cache: Path) -> None:
    for each in cache.glob("*.program"):
        each.unlink()


def mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return map_file(file.fileno(), path.stat().st_size)


def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes are read for each checksum from now on."""
    found: list[int] = []

    def read(content: memoryview, *, is_used_soon: bool = False) -> int:
        found.append(len(content))
        return weight_checksum(content, is_used_soon=is_used_soon)

    monkeypatch.setattr(known_checksums, "weight_checksum", read)
    monkeypatch.setattr("sardonyx.ir.tensor.weight_checksum", read)
    return found


@pytest.mark.usefixtures("settled")
def test_checksums_are_computed_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_packed(tmp_path)
    expected = run(sardonyx.InferenceSession(path))
    forget_programs(cache)
    gc.collect()
    read = readings(monkeypatch)
    counts = Counts()
    results = run(sardonyx.InferenceSession(path))
    assert counts.mapped == 3
    assert read == []
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("settled")
def test_a_file_that_was_changed_since_is_read_again(tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = save_packed(tmp_path)
    expected = run(sardonyx.InferenceSession(path))
    forget_programs(cache)
    gc.collect()
    with (tmp_path / "saved.data").open("r+b") as file:
        for _, offset, length, _ in pieces(path):
            file.seek(offset + length // 2)
            file.write(b"\x7f\x7f")
    time.sleep(0.03)
    counts = Counts()
    results = run(sardonyx.InferenceSession(path))
    assert counts.mapped == 0
    assert "wrong checksum" in caplog.text
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nothing_is_remembered_of_a_file_that_was_changed_just_now(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_checksums, "is_settled", lambda *moments: False)
    path = save_packed(tmp_path)
    run(sardonyx.InferenceSession(path))
    assert not list(cache.glob("*.checksums"))


@pytest.mark.usefixtures("settled")
def test_a_sample_shows_changes_that_left_the_times_as_they_were(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_file, "identity_of", lambda status: (1, 2, status.st_size, 3, 4))
    path = tmp_path / "file"
    content = bytearray(random(16 * PAGE).tobytes())
    path.write_bytes(content)
    time.sleep(0.03)
    known = KnownChecksums()
    first = known.of(mapped(path)[:PAGE])
    known.keep()
    assert len(list(cache.glob("*.checksums"))) == 1
    del known
    gc.collect()
    content[7] ^= 1
    path.write_bytes(content)
    time.sleep(0.03)
    assert KnownChecksums().of(mapped(path)[:PAGE]) == weight_checksum(memoryview(content)[:PAGE]) != first


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("seed", range(20))
def test_damaged_notes_are_not_believed(tmp_path: Path, cache: Path, seed: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(random(4 * PAGE, seed=seed).tobytes())
    time.sleep(0.03)
    view = mapped(path)
    known = KnownChecksums()
    expected = [known.of(view[start : start + PAGE]) for start in range(0, len(view), PAGE)]
    known.keep()
    (note,) = cache.glob("*.checksums")
    content = bytearray(note.read_bytes())
    generator = np.random.default_rng(seed)
    if seed % 2:
        content[int(generator.integers(len(content)))] ^= 1 << int(generator.integers(8))
    else:
        del content[int(generator.integers(len(content))) :]
    note.write_bytes(content)
    again = KnownChecksums()
    assert [again.of(view[start : start + PAGE]) for start in range(0, len(view), PAGE)] == expected


def test_without_a_cache_folder_everything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    path = save_packed(tmp_path)
    for _ in range(2):
        read = readings(monkeypatch)
        sardonyx.InferenceSession(path)
        gc.collect()
        assert len(read) == 4  # two weights, and what they were packed to


def test_whoever_opens_a_model_saved_with_packed_weights_finds_its_program(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_packed(tmp_path)
    assert len(list(cache.glob("*.program"))) == 1

    def compiled(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the model is compiled")

    monkeypatch.setattr("sardonyx.session.full_opening.open_fully", compiled)
    monkeypatch.setattr("sardonyx.runtime.origins._file_digest", compiled)
    session = sardonyx.InferenceSession(path)
    monkeypatch.undo()
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    for ours, theirs in zip(run(session), run(sardonyx.InferenceSession(tmp_path / "plain.onnx")), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_saving_without_a_cache_folder_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    save_packed(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["plain.onnx", "saved.data", "saved.onnx"]


@pytest.mark.parametrize("distance", [8, 64, 512, PAGE, 2 * PAGE + 8])
def test_words_that_change_places_show(distance: int) -> None:
    content = bytearray(random(8 * PAGE).tobytes())
    before = weight_checksum(memoryview(content))
    content[:8], content[distance : distance + 8] = content[distance : distance + 8], content[:8]
    assert weight_checksum(memoryview(content)) != before


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, (4 << 20) + 3 * PAGE + 5])
def test_any_size_has_a_checksum_whoever_asks(tmp_path: Path, size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    path = tmp_path / "file"
    path.write_bytes(content)
    found = {weight_checksum(view, is_used_soon=soon) for view in (memoryview(content), mapped(path)) for soon in (False, True)}
    assert len(found) == 1


def test_rows_of_weights_that_change_places_are_packed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    path = save_packed(tmp_path)
    (weights,) = [tensor for tensor in tensors_of(path) if tensor.name == "w"]
    offset = int(next(entry.value for entry in weights.external_data if entry.key == "offset"))
    content = bytearray((tmp_path / "saved.data").read_bytes())
    row = 96 * 4
    first, second = content[offset : offset + row], content[offset + row : offset + 2 * row]
    content[offset : offset + 2 * row] = second + first
    (tmp_path / "saved.data").write_bytes(content)
    time.sleep(0.03)
    counts = Counts()
    sardonyx.InferenceSession(path)
    assert counts.mapped == 1  # the convolution's
