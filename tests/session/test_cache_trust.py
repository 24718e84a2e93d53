"""What lies in the cache folder is run: only what is ours, whole, and under its own name; and opening never waits for it."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import sardonyx
from model_text import model
from sardonyx import cache_folder
from sardonyx.codegen.host import host
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.compile import assemble
from sardonyx.formats.program.write import Record
from sardonyx.mapped_file import map_file, mapping_of
from sardonyx.options import environment
from sardonyx.runtime import saved

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners and modes of files")
TWO_KERNELS = model("(float[N,4] x) => (float[M] y, float[K] z) { a = Sin(x) y = ReduceSum<keepdims=0>(a) z = Softmax(x) }", 13)
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """As in a new process: nothing loaded, nothing said."""

    def forget() -> None:
        assemble._libraries.clear()
        host.cache_clear()
        cache_folder._named.clear()

    forget()
    yield
    forget()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def results(content: bytes = TWO_KERNELS) -> list[np.ndarray]:
    return sardonyx.InferenceSession(content).run(None, {"x": X})


def assert_right(found: list[np.ndarray]) -> None:
    np.testing.assert_allclose(found[0], np.sin(X).sum(), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.exp(X) / np.exp(X).sum(1, keepdims=True), rtol=1e-5)


def compiled_kernels(folder: Path) -> int:
    return assemble.library(folder).compiled


def test_object_code_under_another_name_is_not_run(folder: Path) -> None:
    assert_right(results())
    for path in folder.glob("*.program"):
        path.unlink()
    paths = sorted(folder.glob("*.obj"))
    assert len(paths) >= 3
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    assemble._libraries.clear()
    assert_right(results())
    assert compiled_kernels(folder) == len(paths)


def test_a_saved_program_under_another_name_is_not_run(folder: Path) -> None:
    double, triple = (
        model(f"(float[N,4] x) => (float[N,4] y) {{ c = Constant<value_float={n}>() y = Mul(x, c) }}") for n in (2.0, 3.0)
    )
    results(double)
    [first] = folder.glob("*.program")
    content = first.read_bytes()
    results(triple)
    [second] = set(folder.glob("*.program")) - {first}
    second.write_bytes(content)
    np.testing.assert_array_equal(results(triple)[0], 3 * X)


def link_to_pipe(path: Path) -> None:
    os.mkfifo(f"{path}.pipe")
    os.symlink(f"{path}.pipe", path)


def terabyte(path: Path) -> None:
    path.touch(mode=0o600)
    os.truncate(path, 1 << 40)


PLANTED: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a link to a pipe": link_to_pipe,
    "a device": lambda path: os.symlink("/dev/zero", path),
    "a link to nothing": lambda path: os.symlink("nowhere", path),
    "a link to itself": lambda path: os.symlink(path, path),
    "a file of a terabyte": terabyte,
    "an empty file": lambda path: path.touch(mode=0o600),
}


@pytest.mark.parametrize("planted", list(PLANTED))
@pytest.mark.parametrize("suffix", [".obj", ".program", ".target"])
def test_opening_never_waits_for_what_lies_in_the_folder(folder: Path, planted: str, suffix: str) -> None:
    assert_right(results())
    if suffix != ".program":
        for path in folder.glob("*.program"):
            path.unlink()
    for path in folder.glob(f"*{suffix}"):
        path.unlink()
        PLANTED[planted](path)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import sardonyx; from test_cache_trust import TWO_KERNELS, X, assert_right\n"
        "assert_right(sardonyx.InferenceSession(TWO_KERNELS).run(None, {'x': X}))"
    )
    command = [sys.executable, "-c", program, *filter(None, sys.path), str(Path(__file__).parent)]
    subprocess.run(command, timeout=120, check=True)
    kinds = (sardonyx.object_cache(), sardonyx.program_cache())
    for kind in kinds:
        assert kind is not None
        kind.make_room()
        kind.clear()


def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ObjectCache(tmp_path)
    cache.put("a", b"code")
    os.chmod(cache.path("a"), 0o622)
    assert cache.get("a") is None
    os.chmod(cache.path("a"), 0o600)
    assert cache.get("a") == b"code"
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cache.get("a") is None


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_folder_of_another_user_is_named_once_and_used_if_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert before
    assemble._libraries.clear()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    for _ in range(2):
        assert_right(results())
    assert compiled_kernels(folder) > 0
    [line] = warnings_of(caplog)
    assert str(folder) in line
    assert f"another user (number {folder.stat().st_uid}; this one is 12345)" in line
    assert "SARDONYX_CACHE_TRUSTED=1" in line
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before

    caplog.clear()
    assemble._libraries.clear()
    monkeypatch.setenv("SARDONYX_CACHE_TRUSTED", "1")
    for path in folder.glob("*.program"):
        path.unlink()
    assert_right(results())
    assert compiled_kernels(folder) == 0
    assert not warnings_of(caplog)


def test_a_folder_that_cannot_be_written_to_is_named_once_unless_it_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results()
    opened = os.open

    def read_only(path: str, flags: int, *rest: int, **more: int) -> int:
        if str(path).startswith(str(folder)) and flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    other = model("(float[N,4] x) => (float[N,4] y) { y = Tanh(x) }")
    for _ in range(2):
        np.testing.assert_allclose(results(other)[0], np.tanh(X), rtol=1e-5)
    [line] = warnings_of(caplog)
    assert "not written to: Read-only file system" in line
    caplog.clear()
    cache_folder._named.clear()
    monkeypatch.setenv("SARDONYX_CACHE_TRUSTED", "1")
    assemble._libraries.clear()
    results(other)
    assert not warnings_of(caplog)


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    for _ in range(2):
        assert_right(results())
    [line] = warnings_of(caplog)
    assert "SARDONYX_CACHE_TRUSTED" not in line, "trust makes no folder"
    assert "it cannot be made (Not a directory)" in line


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"XDG_CACHE_HOME": "relative"}, None),
        ({"XDG_CACHE_HOME": "/var/cache/x"}, "/var/cache/x/sardonyx"),
        ({"SARDONYX_CACHE_DIR": "~/cache"}, None),
        ({"SARDONYX_CACHE_DIR": ""}, None),
        ({"SARDONYX_CACHE_DIR": "relative"}, "relative"),
        ({"HOME": "/home/me", "SARDONYX_CACHE_DIR": "~/cache"}, "/home/me/cache"),
        ({"HOME": "/home/me"}, "/home/me/.cache/sardonyx"),
        ({"HOME": "~"}, None),
    ],
)
def test_without_a_home_there_is_no_folder(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str | None
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "SARDONYX_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pwd = pytest.importorskip("pwd")

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert environment().cache_folder == expected


def test_sessions_keep_no_file_descriptors(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    path = tmp_path / "m.onnx"
    path.write_bytes(TWO_KERNELS)
    program = """
import resource, sys
import numpy as np
import sardonyx
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
for provider in ("CPUExecutionProvider", "SardonyxReferenceExecutionProvider"):
    for _ in range(80):
        kept.append(sardonyx.InferenceSession(sys.argv[1], providers=[provider]))
for session in kept:
    session.run(None, {"x": np.ones((2, 4), np.float32)})
"""
    environment = {**os.environ, "SARDONYX_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program, str(path)], env=environment, timeout=300, check=True)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_mapping_goes_with_its_last_view(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")

    def is_mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    with path.open("rb") as file:
        view = map_file(file.fileno(), 10)
    part = np.frombuffer(view, np.uint8, 4, 2)
    mapping = mapping_of(view[3:])
    assert mapping is not None
    mapping.release_pages()
    assert view.readonly
    assert not part.flags.writeable
    del view, mapping
    gc.collect()
    assert is_mapped()
    assert part.tobytes() == b"2345"
    del part
    gc.collect()
    assert not is_mapped()


def test_an_empty_file_and_one_that_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert not len(map_file(file.fileno(), 0))
    with pytest.raises(OSError, match="10 bytes cannot be mapped"):
        map_file(-1, 10)


def test_the_key_of_a_saved_program_is_checked(tmp_path: Path) -> None:
    one, two = (saved.CacheEntry(str(tmp_path), content, "", "settings") for content in (b"one", b"two"))
    saved.save(one, Record(None, 1), {})
    assert saved.read(one) is not None
    files = saved.programs(str(tmp_path))
    os.rename(files.path(one.name()[0]), files.path(two.name()[0]))
    assert saved.read(two) is None
