"""Programs that were saved, of models whose weights lie in other files: when those change, nobody gets the old answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.runtime import saved
from sardonyx.runtime.saved import SavedModel

X = np.ones(4, np.float32)
FLOATS = helper.make_tensor_value_info


def external(name: str, location: str = "w.bin", offset: int = 0) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def made(nodes: list[Any], initializers: list[Any] = (), functions: list[Any] = (), **more: Any) -> onnx.ModelProto:  # type: ignore[assignment]
    graph = helper.make_graph(
        nodes, "g", [FLOATS("x", TensorProto.FLOAT, [4])], [FLOATS("y", TensorProto.FLOAT, [4])], list(initializers), **more
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions))


def initializer() -> onnx.ModelProto:
    return made([helper.make_node("Add", ["x", "w"], ["y"])], [external("w")])


def constant_node() -> onnx.ModelProto:
    return made([helper.make_node("Constant", [], ["w"], value=external("w")), helper.make_node("Add", ["x", "w"], ["y"])])


def branch() -> onnx.ModelProto:
    output = [FLOATS("b", TensorProto.FLOAT, [4])]
    yes = helper.make_graph([helper.make_node("Add", ["x", "w"], ["b"])], "yes", [], output, [external("w")])
    no = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "no", [], output)
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=yes, else_branch=no),
    ]
    return made(nodes)


def function() -> onnx.ModelProto:
    nodes = [helper.make_node("Constant", [], ["w"], value=external("w")), helper.make_node("Add", ["a", "w"], ["b"])]
    body = helper.make_function("local", "Plus", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])
    return made([helper.make_node("Plus", ["x"], ["y"], domain="local")], functions=[body])


def folded() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Constant", [], ["v"], value=external("v")),
        helper.make_node("Neg", ["v"], ["n"]),
        helper.make_node("Sub", ["x", "n"], ["y"]),
    ]
    return made(nodes)


MAKERS: dict[str, Callable[[], onnx.ModelProto]] = {
    each.__name__: each for each in (initializer, constant_node, branch, function, folded)
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, value: float) -> None:
    """Replace a file, as one should: a new one is renamed over it."""
    new = path.with_suffix(".new")
    new.write_bytes(np.full(4, value, np.float32).tobytes())
    os.replace(new, path)


def answer(source: Any, options: sardonyx.SessionOptions | None = None) -> float:
    [y] = sardonyx.InferenceSession(source, options).run(None, {"x": X})
    assert (y == y[0]).all()
    return float(y[0])


@pytest.mark.parametrize("kind", list(MAKERS))
def test_weights_that_were_replaced_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(MAKERS[kind]().SerializeToString())
    for value in (1.0, 2.0, 3.0):
        write(tmp_path / "w.bin", value)
        for _ in range(2):
            assert answer(path) == 1 + value


@pytest.mark.parametrize("kind", list(MAKERS))
def test_weights_that_stay_make_a_saved_program(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(MAKERS[kind]().SerializeToString())
    write(tmp_path / "w.bin", 1.0)
    sardonyx.InferenceSession(path)
    session = sardonyx.InferenceSession(path)
    assert isinstance(session._opened.program, SavedModel)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_model_given_as_bytes_has_the_weights_of_the_folder_it_is_opened_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    content = MAKERS[kind]().SerializeToString()
    for value, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "w.bin", float(value))
    for _ in range(2):
        for value, name in enumerate(("a", "b")):
            monkeypatch.chdir(tmp_path / name)
            assert answer(content) == 1 + value
    write(tmp_path / "b" / "w.bin", 5.0)
    assert answer(content) == 6.0


def test_the_folder_of_an_option(tmp_path: Path) -> None:
    content = initializer().SerializeToString()
    for value, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "w.bin", float(value))
    for _ in range(2):
        for value, name in enumerate(("a", "b")):
            options = sardonyx.SessionOptions()
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path / name))
            assert answer(content, options) == 1 + value


def test_links_to_one_model_in_folders_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(initializer().SerializeToString())
    for value, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "w.bin", float(value))
        os.symlink(tmp_path / "m.onnx", tmp_path / name / "m.onnx")
    for _ in range(2):
        for value, name in enumerate(("a", "b")):
            assert answer(tmp_path / name / "m.onnx") == 1 + value


def test_data_beside_a_link_comes_before_that_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "m.onnx").write_bytes(initializer().SerializeToString())
    write(tmp_path / "real" / "w.bin", 1.0)
    os.symlink(tmp_path / "real" / "m.onnx", tmp_path / "m.onnx")
    for _ in range(2):
        assert answer(tmp_path / "m.onnx") == 2.0
    write(tmp_path / "w.bin", 2.0)
    assert answer(tmp_path / "m.onnx") == 3.0
    (tmp_path / "w.bin").unlink()
    assert answer(tmp_path / "m.onnx") == 2.0


def test_a_link_to_other_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(initializer().SerializeToString())
    write(tmp_path / "one", 1.0)
    write(tmp_path / "two", 2.0)
    for name, expected in (("one", 2.0), ("two", 3.0), ("one", 2.0)):
        (tmp_path / "w.bin").unlink(missing_ok=True)
        os.symlink(tmp_path / name, tmp_path / "w.bin")
        assert answer(path) == expected


def test_weights_that_are_gone_are_missed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(constant_node().SerializeToString())
    write(tmp_path / "w.bin", 1.0)
    answer(path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(sardonyx.NoSuchFile, match=r"w\.bin"):
        answer(path)


def test_weights_given_by_options_are_those_of_the_session(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(initializer().SerializeToString())
    write(tmp_path / "w.bin", 1.0)
    assert answer(path) == 2.0
    for value in (5.0, 6.0):
        options = sardonyx.SessionOptions()
        content = np.full(4, value, np.float32).tobytes()
        options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [len(content)])
        assert answer(path, options) == 1 + value
        options = sardonyx.SessionOptions()
        options.add_initializer("w", sardonyx.OrtValue.ortvalue_from_numpy(np.full(4, value, np.float32)))
        assert answer(path, options) == 1 + value
    assert answer(path) == 2.0


ROWS = 300


def large(path: Path, value: float, *, inside: bool) -> None:
    """A model that reads a large table as it is; `inside` keeps the table in the model's file."""
    table = np.full((ROWS, 256), value, np.float32)
    tensor = onnx.numpy_helper.from_array(table, "table")
    if not inside:
        tensor = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=table.shape, data_location=TensorProto.EXTERNAL)
        for key, text in (("location", "w.bin"), ("offset", "4096"), ("length", str(table.nbytes))):
            tensor.external_data.add(key=key, value=text)
        (path.parent / "w.bin").write_bytes(bytes(4096) + table.tobytes())
        settle(path.parent / "w.bin")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "rows"], ["y"])],
        "g",
        [FLOATS("rows", TensorProto.INT64, ["n"])],
        [FLOATS("y", TensorProto.FLOAT, ["n", 256])],
        [tensor],
    )
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    settle(path)


def settle(path: Path) -> None:
    """Wait until another change of a file would be seen in its times."""
    while time.time_ns() - path.stat().st_ctime_ns < 100_000_000:
        time.sleep(0.01)


def rows_of(path: Path) -> tuple[type, Any]:
    session = sardonyx.InferenceSession(path)
    results = session.run(None, {"rows": np.array([0, ROWS - 1])})
    return type(session._opened.program), results[0]


@pytest.mark.parametrize("inside", [False, True], ids=["beside the model", "in the model"])
def test_a_saved_program_refers_to_large_weights(tmp_path: Path, cache: Path, inside: bool) -> None:
    path = tmp_path / "m.onnx"
    large(path, 3.0, inside=inside)
    rows_of(path)
    (file,) = cache.glob("*.program")
    assert file.stat().st_size < ROWS * 256 * 4 / 2
    kind, found = rows_of(path)
    assert kind is SavedModel
    np.testing.assert_array_equal(found, np.full((2, 256), 3.0, np.float32))
    large(path, 4.0, inside=inside)
    np.testing.assert_array_equal(rows_of(path)[1], np.full((2, 256), 4.0, np.float32))


@pytest.mark.parametrize("kept", [0, 5000, 4096 + ROWS * 256 * 4 - 1])
def test_weights_that_were_cut_are_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "m.onnx"
    large(path, 3.0, inside=False)
    rows_of(path)
    data = tmp_path / "w.bin"
    data.write_bytes(data.read_bytes()[:kept])
    with pytest.raises(sardonyx.errors.SardonyxError, match=r"w\.bin"):
        rows_of(path)


@pytest.mark.parametrize("key", ["file 0+0", "file 7+0", "file 1+99999999999", "file 1+-4", "file x", "file 1", "other"])
def test_programs_that_refer_to_what_is_not_there_are_made_anew(
    tmp_path: Path, cache: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    large(path, 3.0, inside=False)
    with monkeypatch.context() as patched:
        patched.setattr(saved.CacheEntry, "locations", lambda self, arrays, looked_at: dict.fromkeys(arrays, key))
        rows_of(path)
    kind, found = rows_of(path)
    assert kind is not SavedModel
    np.testing.assert_array_equal(found, np.full((2, 256), 3.0, np.float32))
