"""A saved program belongs to what is in a model's files: copies keep it, changes lose it, whatever the file system says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from model_text import model
from sardonyx.compile import compiler
from sardonyx.mapped_file import FileIdentity
from sardonyx.runtime import origins, saved
from sardonyx.runtime.origins import Origin, Stamp, examine
from sardonyx.runtime.saved import SavedModel

X = np.ones((2, 4), np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def times(factor: float) -> bytes:
    return model(f"(float[N,4] x) => (float[N,4] y) {{ c = Constant<value_float={factor}>() y = Mul(x, c) }}")


def answer(path: Path) -> tuple[float, bool]:
    """A number of the model's output, and whether its program was saved."""
    session = sardonyx.InferenceSession(path)
    return float(session.run(None, {"x": X})[0][0, 0]), isinstance(session._opened.program, SavedModel)


def test_a_touched_moved_or_copied_model_keeps_its_program(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(times(2.0))
    assert answer(path) == (2.0, False)
    assert answer(path) == (2.0, True)
    os.utime(path, ns=(1, 1))
    assert answer(path) == (2.0, True)
    copy = tmp_path / "elsewhere" / "n.onnx"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    assert answer(copy) == (2.0, True)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    assert answer(path) == (2.0, True)
    session = sardonyx.InferenceSession(content)  # not a file at all
    assert isinstance(session._opened.program, SavedModel)


def test_a_model_with_external_data_keeps_its_program_in_another_folder(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("length", "16")):
        weights.external_data.add(key=key, value=value)
    info = helper.make_tensor_value_info
    ends = [info("x", TensorProto.FLOAT, ["N", 4])], [info("y", TensorProto.FLOAT, ["N", 4])]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", *ends, [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (here / "m.onnx").write_bytes(made.SerializeToString())
    (here / "w.bin").write_bytes(np.full(4, 5, np.float32).tobytes())
    assert answer(here / "m.onnx") == (6.0, False)
    shutil.copytree(here, there)
    assert answer(there / "m.onnx") == (6.0, True)
    (there / "w.bin").write_bytes(np.full(4, 7, np.float32).tobytes())
    assert answer(there / "m.onnx") == (8.0, False)
    assert answer(here / "m.onnx")[0] == 6.0


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that says the same of every file."""

    def same(status: Any) -> FileIdentity:
        return (0, 0, 0, 0, 0)

    monkeypatch.setattr(origins, "identity_of", same)
    monkeypatch.setattr(saved, "identity_at", lambda path: same(None))


def test_a_small_model_is_known_by_its_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blind(monkeypatch)
    path = tmp_path / "m.onnx"
    for factor in (2.0, 3.0, 2.0, 3.0):
        path.write_bytes(times(factor))
        assert answer(path)[0] == factor
    assert answer(path) == (3.0, True)


def stamped(path: Path, known: Stamp | None = None) -> Stamp:
    found = examine(str(path), known)
    assert found is not None
    return found


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blind(monkeypatch)
    path = tmp_path / "file"
    content = bytearray(1 << 20)
    path.write_bytes(content)
    new = stamped(path)
    assert not new.settled
    content[10_000] = 1  # not in a block that is sampled
    path.write_bytes(content)
    assert stamped(path, new).digest != new.digest


def test_a_file_that_changed_long_ago_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "is_settled", lambda *moments: True)
    path = tmp_path / "file"
    content = bytearray(1 << 20)
    path.write_bytes(content)
    old = stamped(path)
    assert old.settled
    monkeypatch.setattr(origins, "_file_digest", lambda descriptor, size: "read")
    assert stamped(path, old) is old
    blind(monkeypatch)
    for position in (0, 100, len(content) - 1):
        changed = content.copy()
        changed[position] = 1
        path.write_bytes(changed)
        assert stamped(path, Stamp("0 0 0 0 0", True, old.sample, old.digest)).digest == "read"


def test_what_cannot_be_read_has_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine(str(tmp_path), None) is None  # a folder
    assert stamped(tmp_path / "missing").digest == ""
    os.mkfifo(tmp_path / "pipe")
    assert examine(str(tmp_path / "pipe"), None) is None
    (tmp_path / "large").write_bytes(bytes(100))
    monkeypatch.setattr(origins, "LARGEST", 99)
    assert examine(str(tmp_path / "large"), None) is None


def test_a_damaged_origin_is_forgotten(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(times(2.0))
    answer(path)
    [file] = cache.glob("*.origin")
    content = file.read_bytes()
    name = f"{path}|{tmp_path}"
    assert Origin(str(cache), name).remembers(str(path))
    assert not Origin(str(cache), "another").remembers(str(path))
    for damage in (content[:-1], b"", content[:70] + bytes([content[70] ^ 1]) + content[71:]):
        file.write_bytes(damage)
        assert not Origin(str(cache), name).remembers(str(path))
        assert answer(path) == (2.0, True)


def test_a_large_new_model_is_read_while_it_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "_LONG_TO_READ", 1)
    path, copy = tmp_path / "m.onnx", tmp_path / "n.onnx"
    path.write_bytes(times(2.0))
    assert answer(path) == (2.0, False)
    assert answer(path) == (2.0, True)
    shutil.copy(path, copy)
    assert answer(copy) == (2.0, True)  # a program of a model of its size is there: it is worth looking
    path.write_bytes(times(3.0))
    assert answer(path) == (3.0, False)
    assert answer(path) == (3.0, True)


def test_a_model_that_changes_while_it_is_compiled_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(times(2.0))

    def meanwhile(*given: Any) -> Any:
        made = compiler.compile_model(*given)
        path.write_bytes(times(3.0))
        return made

    monkeypatch.setattr("sardonyx.session.full_opening.compile_model", meanwhile)
    assert answer(path) == (2.0, False)
    monkeypatch.undo()
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    assert answer(path) == (3.0, False)
