"""A program, its code and its constants -> the pieces of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from sardonyx.dtypes import from_numpy
from sardonyx.formats.program.container import Schema, Texts, pack
from sardonyx.formats.program.contents import Contents
from sardonyx.formats.program.description import Description, TypeTable, describe
from sardonyx.formats.program.read import ProgramCode
from sardonyx.formats.program.schema import IMAGE_TABLES, INPUT, NATIVE, OUTPUT, SEGMENT_TABLES, TABLES, VERSION
from sardonyx.formats.program.write_segments import NotSavable, SegmentTables
from sardonyx.program.image import ProgramImage

__all__ = ["NestedCode", "NotSavable", "Record", "write"]

Array = np.ndarray[Any, Any]


class Record(NamedTuple):
    """What is written: a model's program, or what to know of a model whose specialisations have programs of their own."""

    program: ProgramCode | None
    node_count: int
    deciding: tuple[str, ...] = ()  # inputs whose numbers tell specialisations apart
    description: Description | None = None
    files: tuple[tuple[str, str], ...] = ()  # others it was made of: path from the model's folder, digest ("": there was none)
    is_specialised: bool = False  # its first specialisations have programs of their own


class NestedCode(NamedTuple):
    """The program of a body, inside the one of the graph around it."""

    code: ProgramCode
    arrays: Mapping[int, Array]  # its constants by buffer


def write(
    key: str, record: Record, arrays: Mapping[int, Array], keys: Mapping[int, str] | None = None, outside: Collection[int] = ()
) -> list[Any]:
    """The pieces of a file. `arrays` are the constants by buffer, `keys` those that a weight store knows them by.

    Those in `outside` are not in the file: whoever reads it asks a weight store for their keys.

    OverflowError: a number does not fit into 64 bits, or the record is larger than files may be. NotSavable: something in the
    program belongs to this process.
    """
    contents = Contents()
    pieces = _record(key, record, arrays, keys or {}, outside, contents)
    return [*pack(VERSION, *pieces, contents.size), *contents.pieces]


def record_pieces(record: Record, arrays: Mapping[int, Array], contents: Contents) -> list[bytes]:
    """The record of a program whose constants lie among the contents of a file around it: a whole file but for those."""
    return pack(VERSION, *_record("", record, arrays, {}, (), contents))


def _record(
    key: str,
    record: Record,
    arrays: Mapping[int, Array],
    keys: Mapping[int, str],
    outside: Collection[int],
    contents: Contents,
    *,
    is_nested: bool = False,
) -> tuple[Schema, dict[str, Any], Texts, list[bytes]]:
    """The schema, tables, texts and bytes of a file's record; what lies behind it is added to the contents."""
    texts = Texts()
    types = TypeTable(texts)
    tables: dict[str, Any] = {}
    schema: Schema = TABLES
    program = record.program
    counts, driver = (0, 0, 0), -1
    objects: list[bytes] = []
    _constant_tables(arrays, keys, outside, tables, texts, contents)
    if program is not None:
        _image_tables(program, tables, texts)
        if program.segments is not None:
            schema = {**TABLES, **SEGMENT_TABLES}
            segments = SegmentTables(texts, types, contents, lambda nested: _nested(nested, contents))
            segments.fill(program.segments)
            tables.update(segments.tables)
        counts = program.image.counts
        objects = list(program.objects)
        if not is_nested:  # bodies run on the driver of the program around them
            driver = len(objects)
            objects.append(program.driver)
    position, spans = 0, []
    for each in objects:
        spans.append((position, len(each)))
        position += len(each)
    if record.description is not None:
        describe(record.description, tables, texts, types)
    types.fill(tables)
    tables["objects"] = spans
    tables["deciding"] = [texts.number(name) for name in record.deciding]
    tables["files"] = [(texts.number(path), texts.number(digest)) for path, digest in record.files]
    tables["program"] = [(texts.number(key), record.node_count, *counts, driver, int(record.is_specialised))]
    return schema, tables, texts, objects


def _nested(program: NestedCode, contents: Contents) -> tuple[int, int]:
    """Write the program of a body among the contents; its position and size."""
    pieces = _record("", Record(program.code, 0), program.arrays, {}, (), contents, is_nested=True)
    content = b"".join(pack(VERSION, *pieces))
    return contents.add(memoryview(content)), len(content)


def _image_tables(program: ProgramCode, tables: dict[str, Any], texts: Texts) -> None:
    image: ProgramImage = program.image
    for name in IMAGE_TABLES:
        tables[name] = getattr(image, name)
    tables["steps"] = np.column_stack([image.steps, np.asarray(program.object_of_step, np.int64)])
    tables["segments"] = [(NATIVE, 0, len(image.steps))]
    tables["symbols"] = [texts.number(name) for name in image.symbols]
    tables["size_rows"] = image.sizes.rows
    tables["size_results"] = image.sizes.results
    ports: list[tuple[int, ...]] = []
    dims: list[int] = []
    for direction, group in ((INPUT, image.inputs), (OUTPUT, image.outputs)):
        for port in group:
            names = texts.number(port.name), texts.number(port.dtype)
            ports.append((direction, *names, len(dims), len(port.dims), port.buffer))
            dims += port.dims
    tables["ports"], tables["port_dims"] = ports, dims
    tables["states"] = [(texts.number(identity), texts.number(dtype)) for identity, dtype in image.states]
    tables["faults"] = [(texts.number(node), texts.number(text)) for node, text in image.faults]
    tables["dim_texts"] = [(dim, texts.number(text)) for dim, text in image.dim_texts.items()]


def _constant_tables(
    arrays: Mapping[int, Array],
    keys: Mapping[int, str],
    outside: Collection[int],
    tables: dict[str, Any],
    texts: Texts,
    contents: Contents,
) -> None:
    """List the constants; those that are kept inside are added to the contents."""
    rows: list[tuple[int, ...]] = []
    shapes: list[int] = []
    for number, array in arrays.items():
        dtype, key = texts.number(from_numpy(array.dtype).name), texts.number(keys.get(number, ""))
        span = dtype, len(shapes), array.ndim, key
        shapes += array.shape
        if number in outside:
            rows.append((number, *span, -1, array.nbytes, 0))
        else:
            rows.append((number, *span, *contents.array(array)))
    tables["constants"], tables["constant_shapes"] = rows, shapes
