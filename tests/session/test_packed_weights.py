"""Packed weights beside external data, and shared between sessions: packed once, mapped, never used if anything is wrong."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.mapped_file import mapped_range, weight_checksum
from sardonyx.program.constants import Transform
from sardonyx.runtime import saved as saved_programs
from sardonyx.runtime.weight_store import WeightStore, content_store, shared_store
from threads import at_once

F32 = np.float32
SIDE = 96
_info = helper.make_tensor_value_info
SAVE = "session.save_external_prepacked_constant_initializers"
FILE = "session.optimized_model_external_initializers_file_name"
SHARE = "session.share_prepacked_weights"


@pytest.fixture(autouse=True)
def no_saved_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


FEEDS = {"x": random(3, SIDE, seed=7), "c": np.array(True), "i": random(1, 16, 8, 8, seed=8)}


def write_model(path: Path, seed: int = 0) -> Path:
    """A product, a convolution, and an If with a product in each branch, of different sizes: they are programs of their own."""

    def branch(name: str, seed: int, columns: int) -> Any:
        node = helper.make_node("MatMul", ["a", f"w_{name}"], [f"b_{name}"])
        weights = numpy_helper.from_array(random(SIDE, columns, seed=seed), f"w_{name}")
        return helper.make_graph([node], name, [], [_info(f"b_{name}", TensorProto.FLOAT, None)], [weights])

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("then", seed + 2, 96), else_branch=branch("else", seed + 3, 48)),
        helper.make_node("Conv", ["i", "k"], ["z"]),
    ]
    inputs = [
        _info("x", TensorProto.FLOAT, ["n", SIDE]),
        _info("c", TensorProto.BOOL, []),
        _info("i", TensorProto.FLOAT, [1, 16, 8, 8]),
    ]
    weights = {"w": random(SIDE, SIDE, seed=seed), "k": random(32, 16, 3, 3, seed=seed + 1)}
    outputs = [_info(name, TensorProto.FLOAT, None) for name in "yz"]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    time.sleep(0.03)  # a file that has just changed has no identity
    return path


def saved(folder: Path, source: Path | None = None) -> Path:
    """The model, optimised, with its packed weights."""
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(folder / "saved.onnx")
    options.add_session_config_entry(FILE, "saved.data")
    options.add_session_config_entry(SAVE, "1")
    sardonyx.InferenceSession(source or write_model(folder / "plain.onnx"), options)
    gc.collect()
    time.sleep(0.03)
    return folder / "saved.onnx"


def run(session: Any, condition: bool = True) -> list[Any]:
    results: list[Any] = session.run(None, {**FEEDS, "c": np.array(condition)})
    return results


class Counts:
    """How many arrays were packed, and found packed, since it was made."""

    def __init__(self) -> None:
        gc.collect()
        self._before = self._now()

    def _now(self) -> tuple[int, int]:
        return shared_store().made + content_store().made, shared_store().mapped + content_store().mapped

    @property
    def packed(self) -> int:
        return self._now()[0] - self._before[0]

    @property
    def mapped(self) -> int:
        return self._now()[1] - self._before[1]


def tensors_of(path: Path) -> list[Any]:
    """All external tensors of a model file."""
    model = onnx.load(path, load_external_data=False)
    graphs = [model.graph]
    graphs += [attr.g for node in model.graph.node for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH]
    return [tensor for graph in graphs for tensor in graph.initializer if tensor.external_data]


def change_entries(path: Path, change: Callable[[str], str]) -> None:
    """Write other packed entries to a model."""
    model = onnx.load(path, load_external_data=False)
    graphs = [model.graph]
    graphs += [attr.g for node in model.graph.node for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH]
    for graph in graphs:
        for tensor in graph.initializer:
            for entry in tensor.external_data:
                if entry.key.startswith("prepacked_"):
                    entry.value = change(entry.value)
    path.write_bytes(model.SerializeToString())


def pieces(path: Path) -> list[tuple[str, int, int, str]]:
    """Key, offset, length and checksum of all packed weights."""
    found = []
    for tensor in tensors_of(path):
        for entry in tensor.external_data:
            if entry.key.startswith("prepacked_"):
                key, numbers = entry.value.split("|")
                offset, length, value = numbers.split(";")
                found.append((key, int(offset), int(length), value))
    return found


def test_packed_weights_are_written_in_onnxruntimes_form_with_a_real_checksum(tmp_path: Path) -> None:
    path = saved(tmp_path)
    found, content = pieces(path), (tmp_path / "saved.data").read_bytes()
    assert sorted(key.split(".")[1] for key, *_ in found) == ["pack_conv_winograd", "pack_strips", "pack_strips", "pack_strips"]
    for key, offset, length, value in found:
        tag, _, digest = key.partition("+")
        assert tag.startswith("sardonyx.")
        assert len(digest) == 40
        assert offset % 64 == 0
        assert f"{weight_checksum(memoryview(content)[offset : offset + length]):08x}" == value
    by_name = {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in tensors_of(path)}
    inside = by_name["w_then"]
    assert int(inside["offset"]) + int(inside["length"]) <= int(inside["prepacked_0"].split("|")[1].split(";")[0])


def test_a_saved_model_opens_without_packing_and_reads_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path)
    expected = run(sardonyx.InferenceSession(tmp_path / "plain.onnx")) + run(
        sardonyx.InferenceSession(tmp_path / "plain.onnx"), False
    )
    counts = Counts()
    session = sardonyx.InferenceSession(path)
    results = run(session) + run(session, False)
    assert (counts.packed, counts.mapped) == (1, 4)  # there is no bias to pack, but zeros are made for one
    constants: dict[int, Any] = session._opened.program.main.program.constants  # type: ignore[attr-defined]
    large = [array for array in constants.values() if array.nbytes > 1024]
    assert len(large) == 3  # both packed arrays, and the convolution's kernels as they are
    assert all(mapped_range(array) is not None and not array.flags.writeable for array in large)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_onnxruntime_opens_what_we_write(tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(saved(tmp_path))
    for ours, theirs in zip(run(sardonyx.InferenceSession(tmp_path / "saved.onnx")), run(session), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_what_onnxruntime_packed_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry(FILE, "saved.data")
    options.add_session_config_entry(SAVE, "1")
    onnxruntime.InferenceSession(write_model(tmp_path / "plain.onnx"), options)
    assert any("prepacked" in entry.key for tensor in tensors_of(tmp_path / "saved.onnx") for entry in tensor.external_data)
    session = sardonyx.InferenceSession(tmp_path / "saved.onnx")
    np.testing.assert_array_equal(run(session)[0], run(sardonyx.InferenceSession(tmp_path / "plain.onnx"))[0])
    assert caplog.text == ""


def test_a_model_saved_twice_keeps_its_packed_weights(tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    path = saved(again, saved(tmp_path))
    counts = Counts()
    run(sardonyx.InferenceSession(path))
    assert (counts.packed, counts.mapped) == (1, 3)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("length", lambda text: text.replace(f";{SIDE * SIDE * 4};", f";{SIDE * SIDE * 4 - 4};")),
        ("beyond the end", lambda text: text.split("|")[0] + "|999936;64;00000000"),
        ("offset", lambda text: text.split("|")[0] + f"|{int(text.split('|')[1].split(';')[0]) + 4}" + text[text.index(";") :]),
        ("checksum", lambda text: text.rsplit(";", 1)[0] + ";00000000"),
        ("form", lambda text: text.replace(";", ",")),
        ("number", lambda text: text.split("|")[0] + "|-64;64;00000000"),
    ],
)
def test_bad_entries_are_not_used_and_said_so(
    tmp_path: Path, name: str, change: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path)
    change_entries(path, change)
    counts = Counts()
    session = sardonyx.InferenceSession(path)
    assert counts.packed >= 2
    np.testing.assert_array_equal(run(session)[0], run(sardonyx.InferenceSession(tmp_path / "plain.onnx"))[0])
    assert "packed again" in caplog.text or "prepacked_0" in caplog.text


def change_data(path: Path, change: Callable[[dict[str, dict[str, str]]], None]) -> None:
    """Write other entries of external data to a model: those of each tensor, by its name."""
    read = onnx.load(path, load_external_data=False)
    held = {each.name: each for each in read.graph.initializer if each.external_data}
    entries = {name: {entry.key: entry.value for entry in tensor.external_data} for name, tensor in held.items()}
    change(entries)
    for name, tensor in held.items():
        del tensor.external_data[:]
        for key, value in entries[name].items():
            tensor.external_data.add(key=key, value=value)
    path.write_bytes(read.SerializeToString())


def _swap(entries: dict[str, dict[str, str]]) -> None:
    entries["w"]["prepacked_0"], entries["k"]["prepacked_0"] = entries["k"]["prepacked_0"], entries["w"]["prepacked_0"]


def _point_at_weights(entries: dict[str, dict[str, str]]) -> None:
    """The weights themselves, which have as many bytes as their packed form."""
    key, _, numbers = entries["w"]["prepacked_0"].partition("|")
    entries["w"]["prepacked_0"] = f"{key}|{entries['w']['offset']};{';'.join(numbers.split(';')[1:])}"


def _many(entries: dict[str, dict[str, str]]) -> None:
    text = entries["w"]["prepacked_0"]
    for number in range(5000):
        entries["w"][f"prepacked_{number}"] = f"{text[:-8]}{number:08x}"


def _huge(entries: dict[str, dict[str, str]]) -> None:
    for tensor in entries.values():
        key = tensor["prepacked_0"].split("|")[0]
        tensor["prepacked_0"] = f"{key}|{'9' * 19};{'9' * 19};00000000"
        tensor["prepacked_1"] = f"{key}|{1 << 64};{(1 << 64) - 1};00000000"
        tensor["prepacked_2"] = f"{key}|0;{'9' * 4000};00000000"


def _other_digits(entries: dict[str, dict[str, str]]) -> None:
    for tensor in entries.values():
        key, _, numbers = tensor["prepacked_0"].partition("|")
        tensor["prepacked_0"] = f"{key}|{numbers.translate({48 + digit: 0x660 + digit for digit in range(10)})}"


def _upper(entries: dict[str, dict[str, str]]) -> None:
    for tensor in entries.values():
        text = tensor["prepacked_0"]
        tensor["prepacked_0"] = f"{text[:-8]}+{text[-7:]}"


def _empty(entries: dict[str, dict[str, str]]) -> None:
    for tensor in entries.values():
        tensor["prepacked_0"] = "sardonyx.|0;0;00000000"
        tensor["prepacked_1"] = "sardonyx."
        tensor["prepacked_"] = "|;;"


@pytest.mark.parametrize("attack", [_swap, _point_at_weights, _many, _huge, _other_digits, _upper, _empty])
def test_entries_that_mean_harm_are_not_used(tmp_path: Path, attack: Callable[[dict[str, dict[str, str]]], None]) -> None:
    path = saved(tmp_path)
    expected = run(sardonyx.InferenceSession(tmp_path / "plain.onnx"))
    gc.collect()
    change_data(path, attack)
    session = sardonyx.InferenceSession(path)
    for ours, theirs in zip(run(session), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("part", [1, 2, 3])
def test_what_another_version_or_machine_packed_is_packed_again(
    tmp_path: Path, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The transform's name, its version, and what packings depend on of the machine."""

    def change(text: str) -> str:
        tag, plus, rest = text.partition("+")
        words = tag.split(".")
        words[part] = "7"
        return ".".join(words) + plus + rest

    path = saved(tmp_path)
    change_entries(path, change)
    counts = Counts()
    session = sardonyx.InferenceSession(path)
    assert (counts.packed, counts.mapped) == (3, 0)
    np.testing.assert_array_equal(run(session)[0], run(sardonyx.InferenceSession(tmp_path / "plain.onnx"))[0])
    assert caplog.text == ""


def test_a_smaller_machine_packs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    expected = run(sardonyx.InferenceSession(path))
    monkeypatch.setenv("SARDONYX_TARGET", "x86-64-v2")
    counts = Counts()
    session = sardonyx.InferenceSession(path)
    assert counts.mapped == 0
    for ours, theirs in zip(run(session), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_weights_that_were_changed_in_place_are_packed_again(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = tmp_path / "saved.data"
    entries = {entry.key: entry.value for tensor in tensors_of(path) if tensor.name == "w" for entry in tensor.external_data}
    content = bytearray(data.read_bytes())
    start = int(entries["offset"]) + 4 * 17
    content[start : start + 4] = np.array(5, F32).tobytes()
    data.write_bytes(content)
    reference = onnxruntime.InferenceSession(path)
    np.testing.assert_allclose(run(sardonyx.InferenceSession(path))[0], run(reference)[0], rtol=1e-4, atol=1e-4)


def test_a_packed_table_that_kernels_find_their_way_by_is_never_read_from_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)
    from sardonyx.lower.matmul.weights import pack_strips

    assert pack_strips.is_numbers
    monkeypatch.setattr("sardonyx.runtime.packed_weights._is_numbers", lambda constant: False)
    counts = Counts()
    sardonyx.InferenceSession(path)
    assert counts.mapped == 0


def test_transforms_are_not_read_from_models_unless_they_say_so() -> None:
    def made(array: Any) -> Any:
        return array

    assert not Transform("made", 1, made).is_numbers


@pytest.mark.parametrize("seed", range(60))
def test_damaged_packed_weights_are_never_used(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Any change of the packed bytes or of what is said of them: the answer is that of the model."""
    base = _saved_once(tmp_path_factory)
    folder = tmp_path_factory.mktemp(f"damaged{seed}")
    generator = np.random.default_rng(seed)
    content = bytearray((base / "saved.data").read_bytes())
    (folder / "saved.onnx").write_bytes((base / "saved.onnx").read_bytes())
    if seed % 2:
        for _, offset, length, _ in pieces(base / "saved.onnx"):
            kind = int(generator.integers(3))
            start = offset + int(generator.integers(length))
            if kind == 0:
                content[start] ^= 1 << int(generator.integers(8))
            elif kind == 1:
                content[start : offset + length] = bytes(offset + length - start)
            else:
                content[offset : offset + length] = bytes(generator.integers(0, 256, length, np.uint8))
    else:

        def change(text: str) -> str:
            letters = list(text)
            for _ in range(int(generator.integers(1, 4))):
                letters[int(generator.integers(len(letters)))] = chr(int(generator.choice([*b"0123456789abcdef;|+.-", 48])))
            return "".join(letters)

        change_entries(folder / "saved.onnx", change)
    (folder / "saved.data").write_bytes(content)
    session = sardonyx.InferenceSession(folder / "saved.onnx")
    expected = run(sardonyx.InferenceSession(base / "plain.onnx"))
    for ours, theirs in zip(run(session), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


_kept: list[Path] = []


def _saved_once(factory: pytest.TempPathFactory) -> Path:
    if not _kept:
        _kept.append(factory.mktemp("saved"))
        saved(_kept[0])
    return _kept[0]


@pytest.mark.parametrize("missing", ["path", "file", "format", "packing"])
def test_asking_for_packed_weights_that_cannot_be_saved_is_said(
    tmp_path: Path, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(SAVE, "1")
    if missing != "path":
        options.optimized_model_filepath = str(tmp_path / ("saved.ort" if missing == "format" else "saved.onnx"))
    if missing != "file":
        options.add_session_config_entry(FILE, "saved.data")
    if missing == "packing":
        options.add_session_config_entry("session.disable_prepacking", "1")
    with caplog.at_level(logging.WARNING, "sardonyx"):
        sardonyx.InferenceSession(write_model(tmp_path / "plain.onnx"), options)
    assert f"{SAVE} is ignored" in caplog.text
    if missing in ("file", "packing"):
        assert pieces(tmp_path / "saved.onnx") == []


def test_sessions_share_a_container(tmp_path: Path) -> None:
    container = sardonyx.PrepackedWeightsContainer()
    first, second = write_model(tmp_path / "a.onnx"), write_model(tmp_path / "b.onnx")
    sessions = [sardonyx.InferenceSession(path, prepacked_weights_container=container) for path in (first, second)]
    assert container.packed == len(container) == 3
    assert container.nbytes >= SIDE * SIDE * 4
    del sessions
    gc.collect()
    counts = Counts()
    session = sardonyx.InferenceSession(second, prepacked_weights_container=container)
    assert container.packed == 3
    assert counts.packed == 0
    np.testing.assert_array_equal(run(session)[0], run(sardonyx.InferenceSession(first))[0])
    assert repr(container).startswith("PrepackedWeightsContainer(4 weights, ")  # and that of a branch that has run


def test_threads_open_sessions_with_one_container(tmp_path: Path) -> None:
    container, start = sardonyx.PrepackedWeightsContainer(), threading.Barrier(4)
    paths = [write_model(tmp_path / f"{number}.onnx") for number in range(4)]
    sessions: list[Any] = []

    def open_session(path: Path) -> None:
        start.wait()
        sessions.append(sardonyx.InferenceSession(path, prepacked_weights_container=container))

    at_once(open_session, paths)
    assert len(sessions) == 4
    assert len(container) == 3
    for other in sessions[1:]:
        np.testing.assert_array_equal(run(sessions[0])[0], run(other)[0])


def test_a_container_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected PrepackedWeightsContainer, got dict"):
        sardonyx.InferenceSession(write_model(tmp_path / "m.onnx"), prepacked_weights_container={})


def sharing() -> Any:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(SHARE, "1")
    return options


def test_equal_weights_of_different_files_are_shared_if_asked_for(tmp_path: Path) -> None:
    paths = [write_model(tmp_path / f"{number}.onnx") for number in range(3)]
    counts = Counts()
    sessions = [sardonyx.InferenceSession(path, sharing()) for path in paths]
    assert counts.packed == 3
    del sessions
    gc.collect()
    sessions = [sardonyx.InferenceSession(paths[0], sharing())]
    assert counts.packed == 6  # they ended with the last session
    assert len(sessions) == 1


def test_saved_programs_of_different_files_share_equal_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    text = "(float[N,96] x) => (float[N,96] y) <float[96,96] w> { y = MatMul(x, w) }"
    paths = []
    for number in range(2):
        parsed = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text.replace("<float[96,96] w> ", ""))
        parsed.graph.initializer.append(numpy_helper.from_array(random(SIDE, SIDE), "w"))
        parsed.producer_name = str(number)
        paths.append(tmp_path / f"{number}.onnx")
        paths[-1].write_bytes(parsed.SerializeToString())
    time.sleep(0.03)
    for path in paths:
        sardonyx.InferenceSession(path, sharing())
    gc.collect()
    sessions = [sardonyx.InferenceSession(path, sharing()) for path in paths]
    arrays = [session._opened.program._program.constants for session in sessions]  # type: ignore[attr-defined]
    assert [array.ctypes.data for array in arrays[0].values()] == [array.ctypes.data for array in arrays[1].values()]


def test_values_of_add_initializer_are_packed_once(tmp_path: Path) -> None:
    path, weights = write_model(tmp_path / "m.onnx"), random(SIDE, SIDE, seed=11)
    value = sardonyx.OrtValue.ortvalue_from_numpy(weights)
    options = sardonyx.SessionOptions()
    options.add_initializer("w", value)
    counts = Counts()
    sessions = [sardonyx.InferenceSession(path, options)]
    first = counts.packed
    sessions.append(sardonyx.InferenceSession(path, options))
    assert (first, counts.packed) == (3, 3)
    np.testing.assert_array_equal(run(sessions[0])[0], run(sessions[1])[0])


def test_a_value_that_was_changed_between_sessions_is_packed_again(tmp_path: Path) -> None:
    path, weights = write_model(tmp_path / "m.onnx"), random(SIDE, SIDE, seed=11)
    options = sardonyx.SessionOptions()
    options.add_initializer("w", sardonyx.OrtValue.ortvalue_from_numpy(weights))
    first = sardonyx.InferenceSession(path, options)
    before = run(first)[0]
    value = sardonyx.OrtValue.ortvalue_from_numpy(weights * 2)
    options.add_initializer("w", value)
    np.testing.assert_allclose(run(sardonyx.InferenceSession(path, options))[0], before * 2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("text", ["y = MatMul(x, w)", "y = Gemm<transB=1>(x, w)", "y = Gemm(x, w, b)"])
def test_without_packing_kernels_read_the_weights_as_they_lie(tmp_path: Path, text: str) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,96] x) => (float[N,96] y) '
    parsed = onnx.parser.parse_model(f"{head}{{ {text} }}")
    held = {"w": random(SIDE, SIDE), "b": random(SIDE, seed=3)}
    parsed.graph.initializer.extend(numpy_helper.from_array(held[name], name) for name in held if name in text)
    path = tmp_path / "m.onnx"
    path.write_bytes(parsed.SerializeToString())
    time.sleep(0.03)
    expected = onnxruntime.InferenceSession(path).run(None, {"x": FEEDS["x"]})[0]
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    counts = Counts()
    session = sardonyx.InferenceSession(path, options)
    for rows in (3, 1, 40):
        x = random(rows, SIDE, seed=rows)
        other = onnxruntime.InferenceSession(path).run(None, {"x": x})[0]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], other, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(session.run(None, {"x": FEEDS["x"]})[0], expected, rtol=1e-4, atol=1e-4)
    assert counts.packed == 0
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    assert session.get_overridable_initializers() == []


def test_processes_share_the_pages_of_packed_weights(tmp_path: Path) -> None:
    """What a process holds for itself does not grow with the weights."""
    count, side = 4, 1024
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[N,{side}] x0) => (float[N,{side}] x{count}) '
    body = " ".join(f"x{number + 1} = MatMul(x{number}, w{number})" for number in range(count))
    parsed = onnx.parser.parse_model(f"{head}{{ {body} }}")
    for number in range(count):
        parsed.graph.initializer.append(numpy_helper.from_array(random(side, side, seed=number), f"w{number}"))
    (tmp_path / "m.onnx").write_bytes(parsed.SerializeToString())
    path = saved(tmp_path, tmp_path / "m.onnx")
    program = """if True:
        import sys, numpy, sardonyx
        def private():
            lines = open("/proc/self/smaps_rollup").read().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024
        session = sardonyx.InferenceSession(sys.argv[1])
        session.run(None, {"x0": numpy.zeros((1, 1024), numpy.float32)})
        print(private())
    """
    environment = {**os.environ, "SARDONYX_CACHE_DIR": ""}
    megabytes = []
    for model in (path, tmp_path / "m.onnx"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(model)], capture_output=True, text=True, check=True, env=environment, timeout=300
        )
        megabytes.append(float(done.stdout))
    assert megabytes[0] < megabytes[1] - 0.7 * count * 4  # 4 MB each


def test_what_a_store_holds() -> None:
    assert WeightStore().kept() == []


@pytest.mark.parametrize(("room", "is_saved"), [(1 << 40, True), (1 << 16, False)])
def test_large_programs_are_saved_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, is_saved: bool
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(saved_programs, "_LARGEST", 1000)
    monkeypatch.setattr(saved_programs, "free_bytes", lambda folder: room)
    path = write_model(tmp_path / "m.onnx")
    sardonyx.InferenceSession(path)
    kept = sum(each.stat().st_size for each in (tmp_path / "cache").glob("*.program"))
    assert (kept > SIDE * SIDE * 4) is is_saved
    np.testing.assert_array_equal(run(sardonyx.InferenceSession(path))[0], run(sardonyx.InferenceSession(path))[0])
