"""The protobuf codec: numbers, fields, runs, and what it refuses."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.formats.onnx import wire
from sardonyx.formats.onnx.schema import check_skipped, locate
from sardonyx.formats.onnx.wire import WireError, Writer, fields

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT64)
def test_a_number_survives_encoding_and_decoding(value: int) -> None:
    encoded = wire.encode_varint(value)
    decoded, end = wire.varint(encoded, 0, len(encoded))
    assert (wire.signed(decoded), end) == (value, len(encoded))
    assert len(encoded) <= 10


@given(st.lists(INT64))
def test_packed_numbers_survive(values: list[int]) -> None:
    encoded = b"".join(map(wire.encode_varint, values))
    assert wire.packed_varints(b"\xff" + encoded + b"\xff", 1, 1 + len(encoded)).view(np.int64).tolist() == values


def test_packed_numbers_are_decoded_across_chunks() -> None:
    values = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, 300_000).tolist()  # about 2 MB: several chunks
    encoded = b"".join(map(wire.encode_varint, values))
    assert wire.packed_varints(encoded, 0, len(encoded)).view(np.int64).tolist() == values


@given(st.lists(INT64), st.binary(max_size=20))
def test_a_run_of_varint_fields_ends_where_another_field_begins(values: list[int], rest: bytes) -> None:
    writer = Writer()
    writer.integer_list(8, values)
    encoded = writer.to_bytes()
    buf = encoded + b"\x12" + rest  # 0x12 is not the tag of field 8
    numbers, end = wire.varint_run(buf, 0x40, 0, len(buf))
    assert numbers.view(np.int64).tolist() == values
    assert end == len(encoded)


@given(
    st.lists(st.text(max_size=3), min_size=1, max_size=8, unique=True).flatmap(
        lambda kinds: st.tuples(st.just(kinds), st.lists(st.sampled_from(kinds)))
    ),
    st.sampled_from([b"", b"\x12\x00", b"\x42", b"\x42\x04long", b"\x42\x7fcut"]),
    st.integers(1, 40),
)
def test_a_run_of_known_strings_ends_where_something_else_begins(
    given_: tuple[list[str], list[str]], rest: bytes, chunk: int
) -> None:
    kinds, values = given_
    writer = Writer()
    for value in values:
        writer.blob(8, value.encode())
    buf = writer.to_bytes() + rest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_DECODE_CHUNK", 16 + chunk)
        texts, end = wire.text_run(buf, 0x42, 0, len(buf), kinds)
    assert texts == values
    assert end == writer.size


@given(st.lists(st.floats(width=32, allow_nan=False)), st.binary(max_size=20))
def test_a_run_of_float_fields_ends_where_another_field_begins(values: list[float], rest: bytes) -> None:
    writer = Writer()
    writer.float32_list(7, values)
    buf = writer.to_bytes() + b"\x12" + rest
    raw, end = wire.fixed_run(buf, 0x3D, 0, len(buf), 4)
    assert raw.view("<f4").tolist() == values
    assert end == writer.size


@given(st.lists(st.tuples(st.integers(1, 1 << 28), st.one_of(st.integers(0, (1 << 64) - 1), st.binary(max_size=300)))))
def test_fields_are_read_as_they_were_written(content: list[tuple[int, int | bytes]]) -> None:
    writer = Writer()
    for number, value in content:
        if isinstance(value, int):
            writer.integer(number, value)
        else:
            writer.blob(number, value)
    buf = writer.to_bytes()
    assert len(buf) == writer.size
    found = [(tag >> 3, start if tag & 7 == 0 else buf[start:stop]) for tag, start, stop in fields(buf, 0, len(buf))]
    assert found == content


def test_fixed_width_fields_give_their_place() -> None:
    buf = b"\x15" + struct.pack("<f", 1.5) + b"\x51" + struct.pack("<d", -2.5)
    (tag, start, _), (tag64, start64, stop64) = fields(buf, 0, len(buf))
    assert (tag, wire.float32(buf, start)) == (0x15, 1.5)
    assert (tag64, buf[start64:stop64]) == (0x51, struct.pack("<d", -2.5))


def test_a_large_message_keeps_large_contents_uncopied() -> None:
    content = memoryview(bytes(1 << 20))
    inner, outer = Writer(), Writer()
    inner.blob(9, content)
    outer.message(5, inner)
    assert any(part is content for part in outer.parts)
    assert outer.size == len(outer.to_bytes())


def test_groups_are_skipped() -> None:
    group = b"\x0b" + b"\x08\x01" + b"\x13\x14" + b"\x1a\x02ab" + b"\x25abcd" + b"\x29abcdefgh" + b"\x0c"
    assert [tag for tag, _, _ in fields(group + b"\x10\x07", 0, len(group) + 2)] == [0x0B, 0x10]


@pytest.mark.parametrize(
    ("data", "text", "offset"),
    [
        (b"\x08", "the data ends inside a number", 1),
        (b"\x08\xff", "the data ends inside a number", 1),
        (b"\x08" + b"\xff" * 11, "a number of more than 10 bytes", 1),
        (b"\x0a\x05ab", "a field claims 5 bytes, 2 are left", 0),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a field claims 18446744073709551615 bytes, 0 are left", 0),
        (b"\x10\x01\x15ab", "a field of 4 bytes, 2 are left", 2),
        (b"\x11abc", "a field of 8 bytes, 3 are left", 0),
        (b"\x0c", "the end of a group that never began", 0),
        (b"\x0e", "wire type 6 does not exist", 0),
        (b"\x00\x01", "field number 0 is not allowed", 0),
        (b"\xf8\xff\xff\xff\xff\x01\x01", "field number 8589934591 is not allowed", 0),
        (b"\x0b\x08", "the data ends inside a number", 2),
        (b"\x0b\x14", "a group ends with another field number than it began", 1),
        (b"\x0b\x1a\x50", "the data ends inside a group", 1),
        (b"\x0b\x0e", "wire type 6 does not exist", 1),
        (b"\x0b" * 200, "groups nested more than 100 deep", 1),
    ],
)
def test_broken_bytes_are_refused_with_their_offset(data: bytes, text: str, offset: int) -> None:
    with pytest.raises(WireError) as caught:
        list(fields(data, 0, len(data)))
    assert (caught.value.text, caught.value.offset) == (text, offset)


def test_a_message_ends_where_its_length_says_even_if_the_buffer_goes_on() -> None:
    with pytest.raises(WireError, match="a field claims 3 bytes, 2 are left"):
        list(fields(b"\x0a\x03abc", 0, 4))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x80", "the data ends inside a number"),
        (b"\x01" * 20 + b"\xff" * 11 + b"\x01", "a packed field holds a number of 12 bytes"),
    ],
)
def test_broken_packed_numbers_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(WireError, match=text):
        wire.packed_varints(data, 0, len(data))


@given(st.binary())
def test_strings_survive_even_if_they_are_not_utf8(content: bytes) -> None:
    assert wire.encode_text(wire.text(content, 0, len(content))) == content


def test_a_known_field_in_a_wrong_encoding_is_refused_and_an_unknown_one_is_not() -> None:
    check_skipped("Node", 99 << 3, 0)
    check_skipped("Tensor", 5 << 3 | 2, 0)
    with pytest.raises(WireError, match="op_type is encoded as a number, expected a length and bytes"):
        check_skipped("Node", 4 << 3, 7)


def test_a_place_is_named_by_its_path_of_fields() -> None:
    tensor, attribute, node, graph, model = (Writer() for _ in range(5))
    tensor.blob(9, b"DATA")
    attribute.text(1, "value")
    attribute.message(5, tensor)
    node.message(5, attribute)
    for _ in range(3):
        graph.message(1, Writer())
    graph.message(1, node)
    model.integer(1, 8)
    model.message(7, graph)
    data = model.to_bytes()
    assert locate(data, "Model", data.index(b"DATA")) == "graph.node[3].attribute[0].t.raw_data"
    assert locate(data, "Model", data.index(b"value")) == "graph.node[3].attribute[0].name"
    assert locate(data, "Model", 0) == "ir_version"
    assert locate(data, "Model", len(data)) == ""
