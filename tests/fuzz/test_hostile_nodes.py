"""Every operator, given ranks, lengths, axes and sizes that make no sense: a result, or an error that names the node."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from hostile_nodes import HostileCase, hostile_case, signatures
from sardonyx import errors

REFERENCE, NATIVE = "SardonyxReferenceExecutionProvider", "CPUExecutionProvider"
SIGNATURES = signatures()
PARTS = 16  # of the operators, a test each
ROUNDS = int(os.environ.get("SARDONYX_HOSTILE_ROUNDS", "1"))
MOST_MEMORY = 8 << 30  # bytes of address space that a test may have: what would take long to fill fails at once


@contextmanager
def little_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def outcome(case: HostileCase, provider: str) -> errors.SardonyxError | None:
    """What was raised on purpose; anything else passes on."""
    try:
        sardonyx.InferenceSession(case.content, providers=[provider]).run(None, case.feeds)
    except errors.SardonyxError as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("part", range(PARTS))
def test_any_node_gives_a_result_or_an_error_of_ours(part: int) -> None:
    seed = random.randrange(1 << 32)
    failures = []
    for number in range(ROUNDS):
        for definition, sig in SIGNATURES[part::PARTS]:
            case = hostile_case(definition, sig, random.Random(f"{seed} {number} {definition.label} {sig.since}"))
            for provider in (NATIVE, REFERENCE) if case is not None else ():
                assert case is not None
                try:
                    with little_memory():
                        error = outcome(case, provider)
                except Exception as escaped:
                    failures.append(f"{case.label} on {provider}: {type(escaped).__name__}: {escaped}")
                    continue
                if error is not None and definition.name not in str(error):
                    failures.append(f"{case.label} on {provider}: the error does not name the node: {error}")
    assert not failures, f"seed {seed}:\n" + "\n".join(failures)


def one_node(op: str, feeds: dict[str, Any], constants: dict[str, Any], **attrs: Any) -> bytes:
    named = {**feeds, **constants}
    node = helper.make_node(op, list(named), ["y"], name="n", **attrs)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), [f"{name}{axis}" for axis in range(array.ndim)]
        )
        for name, array in feeds.items()
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


X, PLACES = np.ones((2, 3), np.float32), np.zeros((2, 3), np.int64)
THREE, TWO = np.ones(3, np.float32), np.ones(2, np.float32)
BEYOND_ALL, BEYOND_THIS = np.array([1 << 40, 1 << 40]), np.array([1 << 33, 1 << 20])
FAILING: dict[str, tuple[bytes, dict[str, Any]]] = {
    "lengths that differ": (
        one_node("BatchNormalization", {"x": X[:, :, None], "s": THREE, "b": TWO, "m": THREE, "v": THREE}, {}),
        {"x": X[:, :, None], "s": THREE, "b": TWO, "m": THREE, "v": THREE},
    ),
    "GatherElements along no axis": (one_node("GatherElements", {"x": X, "i": PLACES}, {}, axis=5), {"x": X, "i": PLACES}),
    "ScatterElements along no axis": (
        one_node("ScatterElements", {"x": X, "i": PLACES, "u": X}, {}, axis=5),
        {"x": X, "i": PLACES, "u": X},
    ),
    "a size beyond every memory": (one_node("ConstantOfShape", {"s": BEYOND_ALL}, {}), {"s": BEYOND_ALL}),
    "a size beyond this memory": (one_node("ConstantOfShape", {"s": BEYOND_THIS}, {}), {"s": BEYOND_THIS}),
    "an index out of range": (one_node("Gather", {"x": X, "i": PLACES}, {}), {"x": X, "i": PLACES + 7}),
}  # fmt: skip


@pytest.mark.parametrize("provider", [REFERENCE, NATIVE])
@pytest.mark.parametrize("what", FAILING)
def test_a_failing_node_is_caught_by_whom_onnxruntimes_error_is_caught(what: str, provider: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    content, feeds = FAILING[what]
    with pytest.raises(Exception) as expected:  # noqa: PT011 - of whatever class it is
        onnxruntime.InferenceSession(content, providers=[NATIVE]).run(None, feeds)
    with pytest.raises(getattr(errors, type(expected.value).__name__), match="'n'"):  # when it opens, or when it runs
        sardonyx.InferenceSession(content, providers=[provider]).run(None, feeds)


@pytest.mark.parametrize("size", [np.inf, -np.inf, np.nan])
def test_sizes_that_are_no_numbers_are_refused_by_name(size: float) -> None:
    node = helper.make_node("Split", ["x", "sizes"], ["y"], name="halves")
    sizes = numpy_helper.from_array(np.array([size], np.float32), "sizes")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=8)
    for provider in (NATIVE, REFERENCE):
        with pytest.raises(errors.SardonyxError, match="Split"):
            sardonyx.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, {"x": np.ones(4, np.float32)})


@pytest.mark.parametrize("provider", [REFERENCE, NATIVE])
@pytest.mark.parametrize("repeats", [(1, 1 << 62), (1 << 31, 1 << 33), (3, 1 << 61)])
def test_tiles_beyond_every_memory_are_refused(repeats: tuple[int, int], provider: str) -> None:
    feeds = {"x": np.ones((4, 1), np.float32), "r": np.array(repeats)}
    session = sardonyx.InferenceSession(one_node("Tile", feeds, {}), providers=[provider])
    with pytest.raises(errors.SardonyxError, match="'n'"):
        session.run(None, feeds)


@pytest.mark.parametrize("provider", [REFERENCE, NATIVE])
def test_tiles_of_which_nothing_is_left_are_empty(provider: str) -> None:
    feeds = {"x": np.ones((4, 1), np.float32), "r": np.array([1 << 40, 0])}
    [result] = sardonyx.InferenceSession(one_node("Tile", feeds, {}), providers=[provider]).run(None, feeds)
    assert result.shape == (4 << 40, 0)


def test_blocks_may_be_longer_than_their_axis() -> None:
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    scale = np.array([[0.5], [2.0]], np.float32)
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=1, block_size=1 << 62)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.INT8, [2, 3]),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 1]),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = sardonyx.InferenceSession(model.SerializeToString(), providers=[REFERENCE])
    np.testing.assert_array_equal(session.run(None, {"x": x, "s": scale})[0], x * scale)


@pytest.mark.parametrize("provider", [NATIVE, REFERENCE])
def test_sizes_of_more_axes_than_numpy_iterates_over(provider: str) -> None:
    shape = numpy_helper.from_array(np.ones(48, np.int64), "shape")
    value = numpy_helper.from_array(np.array([3], np.int64))
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=value), helper.make_node("Add", ["ones", "x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "many axes",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = sardonyx.InferenceSession(model.SerializeToString(), providers=[provider])
    (found,) = session.run(None, {"x": np.array([4])})
    assert found.shape == (1,) * 48
    assert found.item() == 7


@pytest.mark.parametrize(
    ("operator", "attrs"), [("Softmax", {}), ("Concat", {"axis": 1}), ("Add", {}), ("ReduceMax", {"axes": [0]})]
)
def test_long_axes_of_tensors_without_elements_take_no_time(operator: str, attrs: dict[str, Any]) -> None:
    inputs = {"Softmax": ["x"], "Concat": ["x", "x"], "Add": ["x", "row"], "ReduceMax": ["x"]}[operator]
    described = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "M"])]
    described += [helper.make_tensor_value_info("row", TensorProto.FLOAT, ["M"])] if "row" in inputs else []
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(operator, inputs, ["y"], name="n", **attrs)], "empty", described, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"x": np.empty((1 << 40, 0), np.float32), "row": np.empty(0, np.float32)}
    (found,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, {name: feeds[name] for name in {*inputs}})
    assert found.shape == ((1, 0) if operator == "ReduceMax" else (1 << 40, 0))


HEADS = np.ones((1, 2, 3, 4), np.float32)
QKV = {"q": HEADS, "k": HEADS, "v": HEADS}
CELL = {"x": np.ones((2, 1, 3), np.float32), "w": np.ones((1, 4, 3), np.float32), "r": np.ones((1, 4, 4), np.float32)}
CODES = {"x": np.arange(3, dtype=np.uint8), "scale": np.float32(0.5) * np.ones((), np.float32)}


@pytest.mark.parametrize("provider", [NATIVE, REFERENCE])
@pytest.mark.parametrize(
    ("operator", "version", "feeds", "outputs", "attrs"),
    [
        ("Mod", 13, {"a": THREE, "b": THREE}, 1, {"fmod": 2}),
        ("RNN", 14, CELL, 1, {"hidden_size": 4, "direction": ""}),
        ("Attention", 23, QKV, 4, {"qk_matmul_output_mode": 4}),
        ("Attention", 23, QKV, 4, {"qk_matmul_output_mode": -1}),
        ("DequantizeLinear", 23, CODES, 1, {"output_dtype": TensorProto.UINT8}),
    ],
)
def test_attributes_that_mean_nothing_are_refused(
    operator: str, version: int, feeds: dict[str, Any], outputs: int, attrs: dict[str, Any], provider: str
) -> None:
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(operator, list(feeds), names, name="n", **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    graph = helper.make_graph([node], "g", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)
    with pytest.raises(errors.SardonyxError, match="'n'"):
        sardonyx.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)


def test_sizes_known_in_time_that_cannot_be_split_evenly_are_refused() -> None:
    nodes = [helper.make_node("Split", ["x"], ["a", "b", "c"], name="n", axis=0)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "abc"]
    graph = helper.make_graph(nodes, "g", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = sardonyx.InferenceSession(model.SerializeToString(), providers=[NATIVE])
    for _ in range(3):  # the second time a program may be made for these sizes
        assert [part.size for part in session.run(None, {"x": THREE})] == [1, 1, 1]
        with pytest.raises(errors.SardonyxError, match=r"'n'.* cannot be split into 3 equal parts"):
            session.run(None, {"x": TWO})
