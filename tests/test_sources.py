"""The version of the package's own source: another one after every edit of a checkout, and after every installation."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import sardonyx
from sardonyx import sources

LONG_AGO = time.time_ns() - 3_600_000_000_000


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of a small package, whose folders count as old enough to be remembered."""
    root = tmp_path / "site" / "sardonyx"
    (root / "ops" / "signatures").mkdir(parents=True)
    for name in ("__init__.py", "errors.py", "ops/__init__.py", "ops/conv.py", "ops/signatures/ai.onnx.txt"):
        (root / name).write_text(f"# {name}\n", "utf-8")
    monkeypatch.setattr(sources, "_JUST_NOW", -1)
    return root


def version(root: Path) -> str:
    sources.source_version.cache_clear()
    return sources.source_version(str(root.parent.parent / "cache"), False, str(root))


def remembered(root: Path) -> int:
    return len(list((root.parent.parent / "cache").glob("*.sources")))


def edit_in_place(path: Path) -> None:
    """Same size, same inode, same time of the last change of content; the folder does not notice."""
    before = path.stat()
    with path.open("r+", encoding="utf-8") as file:
        file.write("!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_an_unchanged_checkout_keeps_its_version(package: Path) -> None:
    first = version(package)
    assert remembered(package) == 1
    assert version(package) == first
    (package / "__pycache__").mkdir()  # changes the time of the folder, no source
    (package / "notes.md").write_text("x", "utf-8")
    assert version(package) == first


@pytest.mark.parametrize("name", ["__init__.py", "ops/conv.py", "ops/signatures/ai.onnx.txt"])
def test_an_edit_in_place_is_noticed(package: Path, name: str) -> None:
    versions = {version(package), version(package)}
    edit_in_place(package / name)
    assert version(package) not in versions


def test_files_that_come_go_or_are_replaced_are_noticed(package: Path) -> None:
    versions = [version(package)]
    (package / "ops" / "pool.py").write_text("", "utf-8")
    versions.append(version(package))
    (package / "ops" / "signatures" / "new").mkdir()
    (package / "ops" / "signatures" / "new" / "more.py").write_text("", "utf-8")
    versions.append(version(package))
    (package / "ops" / "pool.py").rename(package / "ops" / "pooling.py")
    versions.append(version(package))
    (package / "ops" / "pooling.py").unlink()
    versions.append(version(package))
    other = package / "ops" / "conv.py.new"
    other.write_text("# ops/conv_py\n", "utf-8")
    was = (package / "ops" / "conv.py").stat()
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(package / "ops" / "conv.py")
    versions.append(version(package))
    assert len(set(versions)) == len(versions)


def test_what_changed_just_now_is_walked_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_JUST_NOW", 2_000_000_000)
    version(package)
    assert remembered(package) == 0


def test_a_list_that_is_damaged_or_of_another_folder_is_not_used(package: Path) -> None:
    first = version(package)
    [path] = (package.parent.parent / "cache").glob("*.sources")
    content = path.read_bytes()
    for bad in (b"", content[:40], content[:-1], content.replace(b"conv", b"vonc")):
        path.write_bytes(bad)
        assert version(package) == first
        assert path.read_bytes() == content
    moved = package.parent / "elsewhere"
    package.rename(moved)
    assert version(moved) == first
    assert remembered(moved) == 2


def record_of(root: Path) -> Path:
    return root.parent / f"sardonyx-{sardonyx.__version__}.dist-info" / "RECORD"


def test_an_installed_package_is_known_by_its_record(package: Path) -> None:
    record = record_of(package)
    record.parent.mkdir()
    record.write_text("sardonyx/__init__.py,sha256=abc,17\nsardonyx/ops/conv.py,sha256=def,14\n", "utf-8")
    first = version(package)
    assert remembered(package) == 0
    os.utime(package / "errors.py", ns=(LONG_AGO, LONG_AGO))  # unpacked from an image
    assert version(package) == first
    record.write_text("sardonyx/__init__.py,sha256=abc,17\nsardonyx/ops/conv.py,sha256=dfe,14\n", "utf-8")  # installed again
    assert version(package) != first


def test_the_contents_of_folders_are_those_of_files_or_of_the_record(package: Path) -> None:
    assert list(sources.contents_of("ops", root=str(package))) == [
        b"ops/__init__.py", b"# ops/__init__.py\n", b"ops/conv.py", b"# ops/conv.py\n",
        b"ops/signatures/ai.onnx.txt", b"# ops/signatures/ai.onnx.txt\n",
    ]  # fmt: skip
    record = record_of(package)
    record.parent.mkdir()
    line = "sardonyx/ops/conv.py,sha256=def,14"
    compiled = "sardonyx/ops/__pycache__/conv.cpython-311.pyc,,"
    record.write_text(f"sardonyx/__init__.py,sha256=abc,17\n{line}\n{compiled}\n", "utf-8")
    assert list(sources.contents_of("ops", root=str(package))) == [line.encode()]


def test_an_editable_install_is_a_checkout(package: Path) -> None:
    record = record_of(package)
    record.parent.mkdir()
    record.write_text("__editable__.sardonyx-0.1.0.pth,sha256=abc,17\n", "utf-8")
    first = version(package)
    edit_in_place(package / "errors.py")
    assert version(package) != first


def test_folders_that_do_not_count_lie_above_those_that_do() -> None:
    from test_layers import LAYERS

    assert {name for name in sources.ABOVE if LAYERS[name] < LAYERS["session"]} == set()


def test_the_version_number_of_the_metadata_is_the_package_s() -> None:
    """The metadata's folder is named by it."""
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    assert f'\nversion = "{sardonyx.__version__}"\n' in text
