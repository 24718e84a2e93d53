"""A program file -> the program, its code and its constants, all checked.

Checked is everything that reading and setting up a program rely on: every index, span and position lies inside, operations refer
to rows before them, buffers whose addresses are used have one. What its code does when it is run is not: a file is as trusted as
the folder it lies in.
"""

from __future__ import annotations

import zlib
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.formats.program.container import ALIGNMENT, Container, FormatError
from sardonyx.formats.program.schema import IMAGE_TABLES, INPUT, SEGMENT_KINDS, TABLES, VERSION
from sardonyx.program.image import ImagePort, ProgramImage, numpy_type
from sardonyx.program.sizes import NUMBER, OPERATIONS, SYMBOL, SizeTable

if TYPE_CHECKING:
    from sardonyx.formats.program.description import Description

Array = np.ndarray[Any, Any]

_PAGE: Final = 4096
_MOST_FAULT_ENTRIES: Final = 64
GROUPS, TYPE_KINDS, SIZE_KINDS = 3, 5, 3  # of the description's tables


class ProgramCode:
    """A program but for its constants."""

    __slots__ = ("driver", "image", "object_of_step", "objects")

    def __init__(self, image: ProgramImage, objects: list[bytes], object_of_step: list[int], driver: bytes) -> None:
        self.image = image
        self.objects = objects  # machine code, each kernel once
        self.object_of_step = object_of_step
        self.driver = driver


Reference = tuple[str, "np.dtype[Any]", tuple[int, ...]]  # a constant that lies in a weight store: its key, type and shape


def checksum(content: memoryview) -> int:
    """Of a constant. Large ones by the sums of their pages, which takes a tenth of the time: it finds damage, not intent."""
    whole = len(content) // _PAGE * _PAGE
    if not whole:
        return zlib.crc32(content)
    sums = np.frombuffer(content, "<u8", whole // 8).reshape(-1, _PAGE // 8).sum(axis=1, dtype=np.uint64)
    return zlib.crc32(content[whole:], zlib.crc32(sums.astype("<u8").data))


class ProgramFile:
    """A file that was read. `program` is None for a model whose specialisations have files of their own."""

    def __init__(self, data: memoryview) -> None:
        self._container = container = Container(data, VERSION, TABLES)
        if len(container["program"]) != 1:
            raise FormatError(f"it has {len(container['program'])} programs, expected one")
        key, self.node_count, *counts, driver = container["program"][0].tolist()
        _check(container, (counts[0], counts[1], counts[2]))
        self.key = container.text(key)
        self.deciding = tuple(container.texts(container["deciding"][:, 0].tolist()))
        self.files = tuple((container.text(path), container.text(digest)) for path, digest in container["files"].tolist())
        self.arrays: dict[int, Array] = {}
        self.keys: dict[int, str] = {}  # of constants that a weight store knows, inside the file or not
        self.references: dict[int, Reference] = {}
        self._read_constants()
        self.program = None if driver < 0 else self._program((counts[0], counts[1], counts[2]), driver)

    def description(self) -> Description | None:
        """How the model describes itself; None if the file does not say."""
        from sardonyx.formats.program.description import described  # lazy: it brings the types of the graph

        return described(self._container)

    def _read_constants(self) -> None:
        container = self._container
        shapes = container["constant_shapes"][:, 0].tolist()
        start = container.contents
        for number, dtype, first, rank, key, position, size, expected in container["constants"].tolist():
            kind, shape = _dtype(container.text(dtype)), tuple(span(shapes, first, rank, "constant_shapes"))
            if prod(shape) * kind.itemsize != size:
                raise FormatError(f"constant {number} of type {kind} and shape {list(shape)} has {size} bytes")
            named = container.text(key)
            if named:
                self.keys[number] = named
            if position < 0:
                self.references[number] = (named, kind, shape)
                continue
            if position % ALIGNMENT or start + position + size > len(container.data):
                raise FormatError(f"constant {number} has {size} bytes at {position}")
            content = container.data[start + position : start + position + size]
            if checksum(content) != expected:
                raise FormatError(f"the checksum of constant {number} is wrong")
            self.arrays[number] = np.frombuffer(content, kind).reshape(shape)

    def _program(self, counts: tuple[int, int, int], driver: int) -> ProgramCode:
        container = self._container
        ports: tuple[list[ImagePort], list[ImagePort]] = ([], [])
        port_dims = container["port_dims"][:, 0].tolist()
        for direction, name, dtype, first, rank, buffer in container["ports"].tolist():
            dims, kind = span(port_dims, first, rank, "port_dims"), container.text(dtype)
            _dtype(kind)
            ports[direction].append(ImagePort(container.text(name), kind, dims, buffer))
        for _, number, axis in container["bindings"].tolist():
            if axis >= len(ports[INPUT][number].dims):
                raise FormatError(f"bindings: input {number} has no axis {axis}")
        steps = container["steps"]
        tables: dict[str, Any] = {name: container[name] for name in IMAGE_TABLES}
        tables["steps"] = steps[:, :2]
        symbols = container.texts(container["symbols"][:, 0].tolist())
        sizes = SizeTable(container["size_rows"].tolist(), container["size_results"][:, 0].tolist(), len(symbols))
        faults = [(container.text(node), container.text(text)) for node, text in container["faults"].tolist()]
        dim_texts = {dim: container.text(text) for dim, text in container["dim_texts"].tolist()}
        states = [(container.text(identity), container.text(dtype)) for identity, dtype in container["states"].tolist()]
        image = ProgramImage(tables, symbols, *ports, faults, dim_texts, counts, sizes, states)
        self._check_image(image)
        objects = [bytes(span(container.bytes, first, count, "bytes")) for first, count in container["objects"].tolist()]
        used = steps[:, 2].tolist()
        if driver != len(objects) - 1 or driver in used:
            raise FormatError(f"object {driver} of {len(objects)} is the driver, expected the last, which no step calls")
        return ProgramCode(image, objects[:driver], used, objects[driver])

    def _check_image(self, image: ProgramImage) -> None:
        """What holds between the tables of an image."""
        slots = len(image.dim_slots) + len(image.work_slots) + len(image.address_slots)
        if image.table_size > slots or image.fault_entries > _MOST_FAULT_ENTRIES or len(image.work_slots) != len(image.steps):
            raise FormatError(f"{image.table_size} entries of the argument table, of which {slots} are set")
        if image.buffer_count * 8 > len(self._container.data):
            raise FormatError(f"{image.buffer_count} buffers, more than the file can tell of")
        sharing = image.arena[image.arena[:, 4] >= 0]
        if (sharing[:, 4] >= sharing[:, 0]).any():
            raise FormatError("arena: a buffer takes over the memory of one behind it")
        known = np.zeros(image.buffer_count, np.bool_)
        known[image.arena[:, 0]] = True
        if not (known[image.late[:, 0]].all() and known[image.worker[:, 0]].all() and known[sharing[:, 4]].all()):
            raise FormatError("arena: a buffer that it lacks is late, shared, or there for each worker")
        if len(image.states) != len(image.state):
            raise FormatError(f"states: {len(image.states)} for {len(image.state)} buffers")
        for _, kind in image.states:
            _dtype(kind)
        known[image.state[:, 0]] = True
        known[image.fault_buffers[:, 0]] = True
        known[[port.buffer for port in (*image.inputs, *image.outputs)]] = True
        known[[*self.arrays, *self.references]] = True
        if not known[image.address_slots[:, 1]].all():
            raise FormatError("address_slots: a buffer that lies nowhere")
        native = [(first, count) for _, first, count in self._container["segments"].tolist()]
        if native != [(0, len(image.steps))]:  # others come with the segments that Python runs
            raise FormatError(f"segments: {native}, expected one of {len(image.steps)} steps")


def _check(container: Container, counts: tuple[int, int, int]) -> None:
    """Whether every integer is within what it counts or points to, and operations refer to what comes before them."""
    table_size, buffer_count, _ = counts
    directions = container["ports"][:, 0]
    limits = {
        "slot": table_size,
        "end": table_size + 1 if table_size < 1 << 62 else 0,
        "buffer": buffer_count,
        "object": len(container["objects"]),
        "operation": len(OPERATIONS),
        "row": len(container["size_rows"]),
        "dim": len(container["size_results"]),
        "symbol": len(container["symbols"]),
        "input": len(directions) - int(directions.sum()) if len(directions) else 0,
        "direction": 2,
        "segment kind": SEGMENT_KINDS,
        "end of steps": len(container["steps"]) + 1,
        "content": len(container.data),
        "type row": len(container["type_rows"]),
        "type": len(container["types"]),
        "type kind": TYPE_KINDS,
        "group": GROUPS,
        "size kind": SIZE_KINDS,
    }
    container.check(TABLES, limits)
    _check_rows(container["size_rows"], len(container["symbols"]), "size_rows")
    _check_rows(container["type_rows"], container.text_count, "type_rows")


def _check_rows(rows: Array, symbol_count: int, name: str) -> None:
    """Whether operations refer to rows before theirs, and symbols are there."""
    for number, (op, a, b) in enumerate(rows.tolist()):
        if op == NUMBER:
            continue
        if (not 0 <= a < symbol_count) if op == SYMBOL else not (0 <= a < number and 0 <= b < number):
            raise FormatError(f"{name}: row {number} refers to what is not before it")


def span(whole: Any, first: int, count: int, name: str) -> Any:
    """A part of a table or of bytes; FormatError if it is not all there."""
    if first + count > len(whole):
        raise FormatError(f"{name}: {count} from {first} on, but there are {len(whole)}")
    return whole[first : first + count]


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return numpy_type(name)
    except (KeyError, ValueError) as error:
        raise FormatError(f"there is no element type {name!r}") from error
