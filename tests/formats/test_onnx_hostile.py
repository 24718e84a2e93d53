"""Files made to do harm: a clear error with the place, in bounded time and memory."""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sardonyx.errors import InvalidGraph, InvalidProtobuf, SardonyxError
from sardonyx.formats.onnx import load
from sardonyx.formats.onnx.wire import encode_varint


def message(field: int, content: bytes) -> bytes:
    return encode_varint(field << 3 | 2) + encode_varint(len(content)) + content


def model_with(graph: bytes, more: bytes = b"") -> bytes:
    return b"\x08\x0a" + message(7, graph) + message(8, b"\x10\x15") + more


def nested(fields: tuple[int, ...], depth: int) -> bytes:
    """Messages inside messages, `depth` times around the given fields, without copying at each level."""
    headers: list[bytes] = []
    size = 0
    for _ in range(depth):
        for field in reversed(fields):
            headers.append(encode_varint(field << 3 | 2) + encode_varint(size))
            size += len(headers[-1])
    return b"".join(reversed(headers))


@pytest.mark.parametrize(
    "data",
    [
        model_with(nested((1, 5, 6), 20_000)),
        model_with(nested((1, 5, 11), 20_000)),
        model_with(message(11, message(2, nested((4, 1), 20_000)))),
        model_with(message(11, message(2, nested((5, 2), 20_000)))),
        model_with(message(13, message(2, nested((9, 1), 20_000)))),
        model_with(message(1, message(5, message(14, nested((4, 1), 20_000))))),
        model_with(b"", message(25, message(7, message(5, message(6, nested((1, 5, 6), 20_000)))))),
    ],
    ids=["graphs", "graph lists", "sequence types", "map types", "optional types", "type attributes", "function bodies"],
)
def test_deeply_nested_messages_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidProtobuf, match=r"nested more than 100 deep \((graph|functions)"):
        load(data)


def test_a_million_nested_subgraphs_are_refused() -> None:
    with pytest.raises(InvalidProtobuf, match=r"messages nested more than 100 deep \(graph\.node\[0\]\.attribute\[0\]\.g\."):
        load(model_with(nested((1, 5, 6), 1_000_000)))


def test_thirty_nested_subgraphs_are_read() -> None:
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [], [helper.make_tensor_value_info("y", 1, None)])
    for _ in range(30):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph)
        graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", 1, None)])
    graph.input.extend([helper.make_tensor_value_info("x", 1, None), helper.make_tensor_value_info("c", 9, None)])
    model = load(helper.make_model(graph))
    inner = model.graph
    while len(inner) and next(iter(inner.nodes)).subgraphs():
        inner = next(iter(inner.nodes)).subgraphs()[0]
    assert next(iter(inner.nodes)).inputs == (model.graph.inputs[0],)


def sample() -> ModelProto:
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.arange(4, dtype=np.float32), "v")),
        helper.make_node("Conv", ["x", "w", ""], ["t"], name="conv", kernel_shape=[3, 3], alpha=0.5, mode="SAME"),
        helper.make_node("Add", ["t", "c"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, None]) for name in ("x", "y", "t")]
    weights = [
        numpy_helper.from_array(np.ones((2, 3), np.float32), "w"),
        helper.make_tensor("i", TensorProto.INT64, [3], [1, 2, 300]),
    ]
    return helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:2], weights, value_info=values[2:]))


def test_every_truncation_is_refused() -> None:
    data = sample().SerializeToString()
    for end in range(len(data)):
        with pytest.raises((InvalidProtobuf, InvalidGraph)):
            load(data[:end])


def test_truncation_names_the_field_and_the_byte() -> None:
    data = sample().SerializeToString()
    with pytest.raises(InvalidProtobuf, match=r"a field claims \d+ bytes, \d+ are left \(graph, byte \d+\)"):
        load(data[:100])


def test_damage_inside_names_the_path_of_fields() -> None:
    data = bytearray(sample().SerializeToString())
    at = data.index(b"\x4a\x10" + np.arange(2, dtype=np.float32).tobytes())  # raw_data of the Constant, 16 bytes
    data[at + 1] = 0x70
    with pytest.raises(InvalidProtobuf) as caught:
        load(bytes(data))
    assert f"a field claims 112 bytes, 16 are left (graph.node[0].attribute[0].t.raw_data, byte {at})" in str(caught.value)


def test_a_wrong_encoding_names_the_field() -> None:
    node = message(1, b"x") + message(2, b"y") + b"\x20\x05"
    with pytest.raises(InvalidProtobuf, match=r"op_type is encoded as a number, .* \(graph\.node\[0\]\.op_type, byte \d+\)"):
        load(model_with(message(1, node)))


def test_a_second_graph_is_refused() -> None:
    data = sample().SerializeToString()
    with pytest.raises(InvalidProtobuf, match=rf"a second graph \(graph, byte {len(data)}\)"):
        load(data + message(7, b""))


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (
            TensorProto(name="w", data_type=1, dims=[1 << 31, 1 << 31], raw_data=b"1234"),
            "f32.* needs 18446744073709551616 bytes|any memory",
        ),
        (TensorProto(name="w", data_type=1, dims=[1 << 50], raw_data=b"1234"), "needs 4503599627370496 bytes, raw_data has 4"),
        (TensorProto(name="w", data_type=8, dims=[1 << 50]), "needs 1125899906842624 strings, string_data has 0"),
        (TensorProto(name="w", data_type=22, dims=[1 << 50]), "needs 562949953421312 numbers in int32_data, which has 0"),
    ],
)
def test_a_tensor_cannot_claim_data_it_does_not_have(tensor: TensorProto, text: str) -> None:
    with pytest.raises(InvalidGraph, match=text):
        load(model_with(message(5, tensor.SerializeToString())))


COUNT = 20_000
NODE = message(4, b"A") + message(2, b"y")
TENSOR = message(8, b"w") + b"\x10\x01"


def floods() -> Iterator[tuple[str, bytes]]:
    """Many tiny messages, in every place that takes more than one."""
    for field in (1, 5, 11, 12, 13, 14, 15, 16):
        yield f"graph field {field}", model_with(message(field, b"") * COUNT)
    for field in (8, 14, 20, 25, 26):
        yield f"model field {field}", model_with(b"", message(field, b"") * COUNT)
    for field in (1, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 21, 22, 23):
        attribute = message(1, b"a") + message(field, b"") * COUNT
        yield f"attribute field {field}", model_with(message(1, NODE + message(5, attribute)))
    for field in range(1, 17):
        yield f"tensor field {field}", model_with(message(5, TENSOR + message(field, b"") * COUNT))
    yield "single integers", model_with(message(5, TENSOR + b"\x28\x01\x38\x01" * COUNT))
    yield "single floats", model_with(message(5, TENSOR + b"\x25abcd\x51abcdefgh" * COUNT))
    yield "packed integers", model_with(message(5, TENSOR + b"\x3a\x01\x01" * COUNT))
    yield "packed floats", model_with(message(5, TENSOR + b"\x22\x04abcd" * COUNT))
    shape = message(2, message(1, b"") * COUNT)
    yield "dimensions", model_with(message(11, message(1, b"x") + message(2, message(1, shape))))
    yield "node inputs", model_with(message(1, NODE + message(1, b"") * COUNT))
    yield "node outputs", model_with(message(1, NODE + message(2, b"") * COUNT))
    yield "function inputs", model_with(b"", message(25, message(1, b"f") + message(4, b"") * COUNT))
    yield "unknown fields", model_with(message(99, b"") * COUNT)


FLOODS = dict(floods())


@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_tiny_messages_costs_a_small_multiple_of_its_size(data: bytes) -> None:
    for measured in (False, True):  # once before, so that what is set up once does not count
        if measured:
            tracemalloc.start()
        with contextlib.suppress(SardonyxError):
            load(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * len(data) + 500_000


def test_the_report_of_problems_ends() -> None:
    with pytest.raises(InvalidGraph, match="100 problems or more") as caught:
        load(model_with(message(1, b"") * 1_000_000))
    assert len(caught.value.problems) == 100


def long_chains() -> Iterator[bytes]:
    names = [f"v{index}".encode() for index in range(20_000)]
    nodes = [message(1, message(1, a) + message(2, b) + message(4, b"Abs")) for a, b in itertools.pairwise(names)]
    yield b"".join(reversed(nodes)) + message(11, message(1, names[0]))
    yield b"".join(nodes) + message(1, message(1, names[-1]) + message(2, names[0]) + message(4, b"Abs"))


def test_long_chains_in_reverse_are_sorted_and_long_cycles_reported() -> None:
    reverse, cycle = long_chains()
    assert next(iter(load(model_with(reverse)).graph.nodes)).inputs[0] is not None
    with pytest.raises(InvalidGraph, match=r"the nodes form a cycle: .* \(and 19990 more\)"):
        load(model_with(cycle))


def test_files_are_refused_like_bytes(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(sample().SerializeToString()[:50])
    with pytest.raises(InvalidProtobuf, match=rf"INVALID_PROTOBUF : {path}: a field claims"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidProtobuf, match=rf"{path}: not an ONNX file: it is empty \(0 bytes\)"):
        load(path)
