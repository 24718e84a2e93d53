"""What happens if native code cannot be made, or what the cache has is not what was put there: the right answer all the same."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.codegen import emit
from sardonyx.compile import assemble
from sardonyx.kernel.loops import LoopKernel
from sardonyx.kernel.matmul.matmul import MatMulKernel
from sardonyx.lower import registry
from sardonyx.matching.kernels import KernelDef
from small_nets import NETS

X = np.random.default_rng(0).normal(size=(7, 64)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32) / 8


def content() -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Softmax", ["h"], ["s"], name="rows"),
        helper.make_node("Transpose", ["s"], ["y"], name="turned", perm=[1, 0]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return made


def expected() -> Any:
    scores = np.exp(X @ WEIGHTS)
    return (scores / scores.sum(axis=1, keepdims=True)).T


def check(session: sardonyx.InferenceSession) -> None:
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected(), rtol=1e-4)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache without anything in it: the kernels of a process are kept by folder."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))


def open_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> sardonyx.InferenceSession:
    """A session that knows nothing but what the folder has: under another name it is another one to the process."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(folder / ".." / folder.name))
    return sardonyx.InferenceSession(content())


def _raises(*_: Any) -> Any:
    raise KeyError("a bug")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("kind", "node"), [(MatMulKernel, "MatMul 'product'"), (LoopKernel, "Softmax 'rows'")])
@pytest.mark.parametrize("how", ["emitter raises", "no IR", "wrong IR"])
def test_a_kernel_that_cannot_be_compiled_is_computed_by_the_host(
    kind: type, node: str, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = emit.kernel_ir
    wrong = "this is no IR" if how == "no IR" else "define void @kernel() {\n  %a = add i32 %b, 1\n  ret void\n}\n"
    if how == "emitter raises":
        emitter = emit.emitter
        monkeypatch.setattr(emit, "emitter", lambda specification: _raises if specification is kind else emitter(specification))
    else:
        monkeypatch.setattr(emit, "kernel_ir", lambda kernel, target: wrong if type(kernel) is kind else written(kernel, target))
    with caplog.at_level(logging.WARNING, "sardonyx"):
        check(sardonyx.InferenceSession(content()))
    assert any(node in record.getMessage() for record in caplog.records)


@pytest.mark.usefixtures("fresh")
def test_a_lowering_rule_that_fails_leaves_its_node_to_the_host(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert registry.has_rule("", "MatMul", 17)
    broken = registry.Template(KernelDef("MatMul"), _raises, lambda node: "", fuses=False)
    monkeypatch.setitem(registry._TEMPLATES, ("", "MatMul"), broken)
    with caplog.at_level(logging.WARNING, "sardonyx"):
        check(sardonyx.InferenceSession(content()))
    assert any("MatMul 'product'" in record.getMessage() for record in caplog.records)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "nothing left": lambda data: b"",
    "a changed byte": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0xFF]) + data[len(data) // 2 + 1 :],
    "something else": lambda data: b"junk" * 50,
    "longer": lambda data: data + b"more",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".obj", ".program"])
def test_damaged_files_of_the_cache_are_made_anew(
    damage: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    check(sardonyx.InferenceSession(content()))
    found = list(tmp_path.glob(f"*{suffix}"))
    assert found
    for path in found:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    if suffix == ".obj":
        for path in tmp_path.glob("*.program"):
            path.unlink()
    check(open_again(tmp_path, monkeypatch))


def test_whole_entries_with_foreign_code_are_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    check(sardonyx.InferenceSession(content()))
    for path in tmp_path.glob("*.program"):
        path.unlink()
    cache = assemble.library(tmp_path)._cache
    assert cache is not None
    for key, _, _ in cache.entries():
        kept = cache.get(key)
        assert kept is not None
        cache.put(key, kept[:18] + b"\x08\x00" + kept[20:])  # an object for MIPS, its checksum right
    check(open_again(tmp_path, monkeypatch))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs file modes")
def test_a_cache_that_others_can_write_is_neither_read_nor_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    check(sardonyx.InferenceSession(content()))
    for path in tmp_path.iterdir():  # whoever reads one of these files now gets nonsense
        path.write_bytes(b'["mips", "", "", 1, 1, 1]')
    names = sorted(tmp_path.iterdir())
    tmp_path.chmod(0o777)
    check(open_again(tmp_path, monkeypatch))
    assert sorted(tmp_path.iterdir()) == names


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    check(sardonyx.InferenceSession(content()))


def test_a_file_in_the_place_of_the_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "file"))
    check(sardonyx.InferenceSession(content()))


def test_processes_that_fill_one_cache_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content())
    np.save(tmp_path / "x.npy", X)
    code = (
        "import sys, numpy as np, sardonyx\n"
        "for _ in range(3):\n"
        "    y = sardonyx.InferenceSession('model.onnx').run(None, {'x': np.load('x.npy')})[0]\n"
        "np.save(sys.argv[1], y)\n"
    )
    environment = {**os.environ, "SARDONYX_CACHE_DIR": str(tmp_path / "cache")}
    running = [
        subprocess.Popen([sys.executable, "-c", code, f"y{number}.npy"], cwd=tmp_path, env=environment) for number in range(3)
    ]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    results = [np.load(tmp_path / f"y{number}.npy") for number in range(3)]
    np.testing.assert_allclose(results[0], expected(), rtol=1e-4)
    assert len({result.tobytes() for result in results}) == 1
    assert not list((tmp_path / "cache").glob(".new-*"))


def test_a_graph_that_a_pass_has_broken_is_an_error_where_graphs_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tests run so (`tests/conftest.py`): what the verifier finds must not end in NumPy."""
    monkeypatch.setattr("sardonyx.passes.layout_region.Region.give_back", lambda region: None)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    with pytest.raises(sardonyx.EngineError, match="pass AssignLayout left the graph inconsistent"):
        sardonyx.InferenceSession(NETS["residual_net"]()[0])
