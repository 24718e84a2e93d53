"""A program, its code and its constants -> the pieces of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from sardonyx.dtypes import from_numpy
from sardonyx.formats.program.container import ALIGNMENT, Texts, pack
from sardonyx.formats.program.description import Description, describe
from sardonyx.formats.program.read import ProgramCode, checksum
from sardonyx.formats.program.schema import IMAGE_TABLES, INPUT, NATIVE, OUTPUT, TABLES, VERSION
from sardonyx.program.image import ProgramImage

Array = np.ndarray[Any, Any]


class Record(NamedTuple):
    """What is written: a model's program, or what to know of a model whose specialisations have programs of their own."""

    program: ProgramCode | None
    node_count: int
    deciding: tuple[str, ...] = ()  # inputs whose numbers tell specialisations apart
    description: Description | None = None
    files: tuple[tuple[str, str], ...] = ()  # others it was made of: path from the model's folder, digest ("": there was none)


def write(
    key: str, record: Record, arrays: Mapping[int, Array], keys: Mapping[int, str] | None = None, outside: Collection[int] = ()
) -> list[Any]:
    """The pieces of a file. `arrays` are the constants by buffer, `keys` those that a weight store knows them by.

    Those in `outside` are not in the file: whoever reads it asks a weight store for their keys.

    OverflowError: a number does not fit into 64 bits, or the record is larger than files may be.
    """
    texts = Texts()
    tables: dict[str, Any] = {}
    program = record.program
    counts, driver = (0, 0, 0), -1
    objects: list[bytes] = []
    if program is not None:
        _image_tables(program, tables, texts)
        counts, driver = program.image.counts, len(program.objects)
        objects = [*program.objects, program.driver]
    position, spans = 0, []
    for each in objects:
        spans.append((position, len(each)))
        position += len(each)
    contents = _constant_tables(arrays, keys or {}, outside, tables, texts)
    if record.description is not None:
        describe(record.description, tables, texts)
    tables["objects"] = spans
    tables["deciding"] = [texts.number(name) for name in record.deciding]
    tables["files"] = [(texts.number(path), texts.number(digest)) for path, digest in record.files]
    tables["program"] = [(texts.number(key), record.node_count, *counts, driver)]
    pieces: list[Any] = list(pack(VERSION, TABLES, tables, texts, objects, sum(map(len, contents))))
    return pieces + contents


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
    arrays: Mapping[int, Array], keys: Mapping[int, str], outside: Collection[int], tables: dict[str, Any], texts: Texts
) -> list[memoryview]:
    """List the constants; the contents of those that are kept inside, each with what fills it up to the alignment."""
    rows: list[tuple[int, ...]] = []
    shapes: list[int] = []
    contents: list[memoryview] = []
    position = 0
    for number, array in arrays.items():
        dtype, key = texts.number(from_numpy(array.dtype).name), texts.number(keys.get(number, ""))
        span = dtype, len(shapes), array.ndim, key
        shapes += array.shape
        if number in outside:
            rows.append((number, *span, -1, array.nbytes, 0))
            continue
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
        rows.append((number, *span, position, len(content), checksum(content)))
        gap = -len(content) % ALIGNMENT
        contents += [content, memoryview(bytes(gap))]
        position += len(content) + gap
    tables["constants"], tables["constant_shapes"] = rows, shapes
    return contents
