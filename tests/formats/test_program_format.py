"""Program files: what is written is read, by any Python; whatever else is in one is refused with a reason."""

from __future__ import annotations

import random
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from model_text import model
from sardonyx import dtypes
from sardonyx.compile.compiler import compile_model
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.onnx import load
from sardonyx.formats.program import container, schema
from sardonyx.formats.program.container import Container, FormatError, Texts, pack
from sardonyx.formats.program.description import Description
from sardonyx.formats.program.read import ProgramFile
from sardonyx.formats.program.read_segments import check_loop
from sardonyx.formats.program.write import Record, write
from sardonyx.ir.dims import broadcast, dim_max, dim_min, floordiv, mod, symbol
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.mapped_file import checksum
from sardonyx.program.image import TABLES
from sardonyx.program.segments import BoundSegments
from saved_models import MODELS

TEXT = "(float[N,4] x, float[4,8] w, int64[M] i) => (float[N,8] y, float[M,4] z) { y = Gemm(x, w) z = Gather(x, i) }"
N, M = symbol("N"), symbol("M")
TYPES: list[Type | None] = [
    TensorType(dtypes.FLOAT32, (N, 3, floordiv(N * M + 1, 2))),
    TensorType(dtypes.BFLOAT16, None),
    TensorType(dtypes.INT64, ()),
    SparseTensorType(dtypes.FLOAT32, (mod(N, 3), dim_max(N, M), dim_min(N, M - 7), broadcast(N, M))),
    OptionalType(SequenceType(TensorType(dtypes.STRING, (M,)))),
    MapType(dtypes.INT64, TensorType(dtypes.FLOAT32, ())),
    None,
]
DESCRIPTION = Description(
    typed=([(f"in{number}", type_) for number, type_ in enumerate(TYPES)], [("out", TYPES[0])], []),
    arguments=([("in", "tensor(float)", [3, "N", None])], [("out\ud800", "seq(tensor(string))", [])], []),
    texts=("producer", "graph", "", "a text\0with zeros", "größe"),
    version=(1 << 63) - 1,
    metadata={"key": "value", "": ""},
)


def program_code() -> tuple[Any, dict[int, np.ndarray]]:
    made: Any = compile_model(load(model(TEXT)), CompileOptions.of(sardonyx.SessionOptions(), initializers={}))
    code = made.saved_program()
    assert code is not None
    return code, {**made.main.program.constants, 900: np.zeros((0, 3), np.float32)}


@pytest.fixture(scope="module")
def content() -> bytes:
    code, arrays = program_code()
    arrays = {number: array for number, array in arrays.items() if number < code.image.buffer_count}
    arrays[0] = np.arange(5000, dtype=np.float64).reshape(50, 100)
    record = Record(code, 2, ("i",), DESCRIPTION, (("w.bin", "digest"), ("none", "")))
    return b"".join(map(bytes, write("the key", record, arrays)))


@pytest.fixture(scope="module", params=["branches", "forest", "texts", "sequences", "detector", "scan", "sparse"])
def segmented(request: pytest.FixtureRequest) -> bytes:
    """A file of a program that comes back to Python, with the programs of its bodies."""
    content, runs = MODELS[request.param]()
    made: Any = compile_model(load(content), CompileOptions.of(sardonyx.SessionOptions(), initializers={}))
    made._specialise = None  # every run is one of the program for all cases
    for feeds in runs:
        made.run(feeds, [port.name for port in made.outputs])
    code = made.saved_program()
    record = Record(code, 2, (), DESCRIPTION)
    return b"".join(map(bytes, write("the key", record, made.main.program.constants)))


def read(content: bytes) -> ProgramFile:
    file = ProgramFile(memoryview(content))
    read_all(file)
    return file


def read_all(file: ProgramFile) -> None:
    """What is read when it is needed: constants, and the programs of bodies."""
    _ = file.arrays
    if file.program is None or file.program.segments is None:
        return
    BoundSegments(file.program.image, file.program.segments.plan)
    for call in file.program.segments.calls:
        for body in call.bodies.values():
            if body.program is not None:
                read_all(body.program.read())
        if call.loop is not None:
            inside = call.loop.program.read()
            read_all(inside)
            check_loop(call.loop, inside.program.image)


def test_what_is_written_is_read(content: bytes) -> None:
    code, _ = program_code()
    file = read(content)
    assert (file.key, file.node_count, file.deciding) == ("the key", 2, ("i",))
    assert file.files == (("w.bin", "digest"), ("none", ""))
    assert file.program is not None
    image = file.program.image
    for name in TABLES:
        np.testing.assert_array_equal(getattr(image, name), getattr(code.image, name))
    assert image.symbols == code.image.symbols
    assert image.counts == code.image.counts
    assert image.faults == code.image.faults
    assert image.dim_texts == code.image.dim_texts
    assert image.sizes(3, 5) == code.image.sizes(3, 5)
    for ours, theirs in zip((*image.inputs, *image.outputs), (*code.image.inputs, *code.image.outputs), strict=True):
        assert (ours.name, ours.dtype, ours.dims, ours.buffer) == (theirs.name, theirs.dtype, theirs.dims, theirs.buffer)
    assert (file.program.objects, file.program.driver) == (code.objects, code.driver)
    assert file.program.object_of_step == code.object_of_step
    np.testing.assert_array_equal(file.arrays[0], np.arange(5000, dtype=np.float64).reshape(50, 100))
    assert file.description() == DESCRIPTION


def test_constants_lie_aligned_in_the_file_and_are_not_copied(content: bytes) -> None:
    data = memoryview(content)
    array = ProgramFile(data).arrays[0]
    start = np.frombuffer(data, np.uint8).ctypes.data
    assert start <= array.ctypes.data < start + len(data)
    assert (array.ctypes.data - start) % 64 == 0


def test_constants_may_stay_in_a_weight_store() -> None:
    code, arrays = program_code()
    arrays = {number: array for number, array in arrays.items() if number < code.image.buffer_count}
    arrays[0] = np.zeros((1000, 1000), np.float32)
    content = b"".join(map(bytes, write("key", Record(code, 2), arrays, {0: "digest|transposed"}, [0])))
    assert len(content) < 1 << 20
    assert read(content).keys == {0: "digest|transposed"}
    assert read(content).references == {0: ("digest|transposed", np.dtype(np.float32), (1000, 1000))}


def test_a_model_without_a_program_of_its_own_is_written_too() -> None:
    file = read(b"".join(map(bytes, write("key", Record(None, 7, ("sr",), DESCRIPTION), {}))))
    assert (file.program, file.node_count, file.deciding) == (None, 7, ("sr",))
    assert file.description() == DESCRIPTION


def test_a_stretch_of_steps_that_begins_before_the_first_is_refused() -> None:
    code, arrays = program_code()
    arrays = {number: array for number, array in arrays.items() if number < code.image.buffer_count}
    for length in (1, 2):
        code.image.steps[0, 2] = length
        content = b"".join(map(bytes, write("key", Record(code, 2), arrays)))
        if length == 1:
            assert read(content).program is not None
        else:
            with pytest.raises(FormatError, match="a stretch begins before the first"):
                read(content)


def test_numbers_beyond_64_bits_are_not_written() -> None:
    with pytest.raises(OverflowError):
        write("key", Record(None, 1 << 63), {})


def test_nothing_in_the_format_belongs_to_a_version_of_python(content: bytes) -> None:
    sources = Path(container.__file__).parents[2]
    for path in (*sources.glob("formats/program/*.py"), *sources.glob("program/*.py"), sources / "runtime/saved.py"):
        assert not re.search(r"\b(marshal|pickle|sys\.version)\b", path.read_text("utf-8")), path
    code, _ = program_code()
    assert code.image.sizes.rows
    assert b"<sizes>" not in content  # the name of compiled code


def fixed(content: bytearray) -> bytes:
    """The content with right checksums, as somebody would make it who means harm."""
    header = list(container._HEADER.unpack_from(content))
    record = content[container._HEADER.size : container._HEADER.size + header[3]]
    header[4:6] = len(content), zlib.crc32(record)
    container._HEADER.pack_into(content, 0, *header)
    struct.pack_into("<I", content, container._HEADER_SUM_AT, zlib.crc32(content[: container._HEADER_SUM_AT]))
    return bytes(content)


def survives(content: bytes, outer: ProgramFile | None = None) -> bool:
    """Whether a file is read; if not, the reason is told."""
    try:
        file = ProgramFile(memoryview(content)) if outer is None else ProgramFile(memoryview(content), outer.contents, 1)
        read_all(file)
        file.description()
        if file.program is not None:
            file.program.image.sizes(*range(1, len(file.program.image.symbols) + 1))
    except FormatError as error:
        return not str(error)
    return True


def test_a_truncated_file_is_refused(content: bytes) -> None:
    for length in [*range(200), *range(200, len(content), 997)]:
        assert not survives(content[:length])
        assert not survives(fixed(bytearray(content[: max(length, 64)]))) or length + 64 > len(content)


def test_every_flipped_bit_of_header_and_record_is_noticed(content: bytes) -> None:
    end = 64 + struct.unpack_from("<Q", content, 16)[0]
    for position in [*range(40), *range(64, end, 61)]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        assert not survives(bytes(damaged)), position


def test_damaged_constants_are_noticed(content: bytes) -> None:
    whole = bytearray(content)
    whole[-40_000] ^= 1
    with pytest.raises(FormatError, match="the checksum of constant 0 is wrong"):
        read(bytes(whole))


@pytest.mark.parametrize("seed", range(8))
def test_hostile_files_are_refused_or_harmless(content: bytes, seed: int) -> None:
    """Random changes with right checksums: numbers everywhere, also such as a reader might trust."""
    assert_harmless(content, seed)


@pytest.mark.parametrize("seed", range(3))
def test_hostile_files_of_programs_that_come_back_to_python_are_refused_or_harmless(segmented: bytes, seed: int) -> None:
    survives_as_it_is = read(segmented)
    assert survives_as_it_is.program is not None
    assert survives_as_it_is.program.segments is not None
    assert_harmless(segmented, seed)
    for call in survives_as_it_is.program.segments.calls:
        for nested in (*(body.program for body in call.bodies.values()), call.loop and call.loop.program):
            if nested is not None:
                assert_harmless(bytes(survives_as_it_is.contents[nested.span]), seed, survives_as_it_is)


def assert_harmless(content: bytes, seed: int, outer: ProgramFile | None = None) -> None:
    rng = random.Random(seed)
    end = 64 + struct.unpack_from("<Q", content, 16)[0]
    code = content.find(b"\x7fELF")
    code = end if code < 0 else code  # the tables end there
    read_anyway = 0
    for _ in range(400):
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            position = rng.randrange(8, end)
            if rng.random() < 0.6:  # a whole number of the directory or of a table
                position = 64 + rng.randrange((code - 64) // 8) * 8
                value = rng.choice((-1, 0, 1, 2, 7, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63), rng.randrange(1 << 16)))
                struct.pack_into("<q", changed, position, value)
            else:
                changed[position] ^= 1 << rng.randrange(8)
        read_anyway += survives(fixed(changed), outer)
    assert read_anyway < 400


def texts_of(*names: str) -> Texts:
    texts = Texts()
    for name in names:
        texts.number(name)
    return texts


def packed(tables: dict[str, Any], *names: str) -> Container:
    small: container.Schema = {"pairs": (10, ("text", "thing?")), "free": (11, (container.ANY, container.COUNT))}
    read = Container(memoryview(b"".join(pack(1, small, tables, texts_of(*names)))), 1, small)
    read.check(small, {"thing": 3})
    return read


@pytest.mark.parametrize("many", [False, True])
def test_every_column_has_its_limits(many: bool) -> None:
    more = [(0, 0)] * 100 if many else []
    packed({"pairs": [(1, 2), (0, -1), *more], "free": [(-(1 << 63), 0), ((1 << 63) - 1, (1 << 63) - 1)]}, "a", "b")
    for wrong, reason in (((2, 0), "text 2"), ((-1, 0), "text -1"), ((0, 3), r"thing\? 3"), ((0, -2), r"thing\? -2")):
        with pytest.raises(FormatError, match=f"pairs: row {len(more)} has {reason}, expected"):
            packed({"pairs": [*more, wrong]}, "a", "b")
    with pytest.raises(FormatError, match="free: row 0 has count -1"):
        packed({"free": [(0, -1)]})


def test_another_version_is_refused_by_name(content: bytes) -> None:
    other = bytearray(content)
    struct.pack_into("<I", other, 8, schema.VERSION + 1)
    with pytest.raises(FormatError, match=f"version {schema.VERSION + 1}, expected {schema.VERSION}"):
        read(fixed(other))


def test_the_checksum_of_a_constant_finds_bits_pages_and_ends() -> None:
    data = bytearray(np.random.default_rng(0).bytes(3 * 4096 + 100))
    right = checksum(memoryview(bytes(data)))
    for position in (0, 4096, 9000, len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= 4
        assert checksum(memoryview(bytes(changed))) != right
    swapped = data[4096:8192] + data[:4096] + data[8192:]
    assert checksum(memoryview(bytes(swapped))) != right
    assert checksum(memoryview(bytes(data[:-1]))) != right
