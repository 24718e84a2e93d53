"""A program file -> the program, its code and its constants, all checked.

Checked is everything that reading and setting up a program rely on: every index, span and position lies inside, operations refer
to rows before them, buffers whose addresses are used have one. What its code does when it is run is not: a file is as trusted as
the folder it lies in.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.formats.program.container import ALIGNMENT, Container, FormatError
from sardonyx.formats.program.schema import FIRST_OF_SEGMENTS, IMAGE_TABLES, INPUT, NATIVE, SEGMENT_KINDS, TABLES, VERSION
from sardonyx.mapped_file import checksum
from sardonyx.program.image import ImagePort, ProgramImage, numpy_type
from sardonyx.program.sizes import NUMBER, OPERATIONS, SYMBOL, SizeTable

if TYPE_CHECKING:
    from sardonyx.formats.program.description import Description
    from sardonyx.program.calls import SegmentCode

Array = np.ndarray[Any, Any]

_MOST_FAULT_ENTRIES: Final = 64
GROUPS, TYPE_KINDS, SIZE_KINDS = 3, 5, 3  # of the description's tables


class ProgramCode:
    """A program but for its constants."""

    __slots__ = ("driver", "image", "object_of_step", "objects", "segments")

    def __init__(
        self,
        image: ProgramImage,
        objects: list[bytes],
        object_of_step: list[int],
        driver: bytes,
        segments: SegmentCode | None = None,
    ) -> None:
        self.image = image
        self.objects = objects  # machine code, each kernel once
        self.object_of_step = object_of_step
        self.driver = driver  # empty for bodies, which run on that of the program around them
        self.segments = segments  # what it does in Python; None if it never comes back to it


Reference = tuple[str, "np.dtype[Any]", tuple[int, ...]]  # a constant that lies in a weight store: its key, type and shape


class ProgramFile:
    """A file whose outside was read. `program` is None for a model of which only specialisations have programs.

    The program of a body is a record without contents: it lies among those of the file around it (`contents`), as its constants
    do. `depth` tells how many programs are around it.
    """

    def __init__(self, data: memoryview, contents: memoryview | None = None, depth: int = 0) -> None:
        self.container = container = Container(data, VERSION, TABLES)
        self.depth = depth
        self.contents: memoryview = container.data[container.contents :] if contents is None else contents
        if len(container["program"]) != 1:
            raise FormatError(f"it has {len(container['program'])} programs, expected one")
        key, self.node_count, *sizes, driver, is_specialised = container["program"][0].tolist()
        counts = (sizes[0], sizes[1], sizes[2])
        self._is_segmented = container.has(FIRST_OF_SEGMENTS)
        limits = _check(container, counts, len(self.contents))
        if self._is_segmented:
            from sardonyx.formats.program.read_segments import check_tables  # lazy: most programs stay in native code

            check_tables(container, limits)
        self.is_specialised = bool(is_specialised)
        self.key = container.text(key)
        self.deciding = tuple(container.texts(container["deciding"][:, 0].tolist()))
        self.files = tuple((container.text(path), container.text(digest)) for path, digest in container["files"].tolist())
        self.keys: dict[int, str] = {}  # of constants that a weight store knows, inside the file or not
        self.references: dict[int, Reference] = {}
        self._inside: dict[int, tuple[np.dtype[Any], tuple[int, ...], int, int, int]] = {}  # type, shape, position, bytes, sum
        self._located: dict[int, Array] = {}  # references that somebody has found
        self._arrays: dict[int, Array] | None = None
        self._list_constants()
        if depth and driver >= 0:
            raise FormatError("the program of a body has a driver of its own")
        self.has_program = driver >= 0 or depth > 0
        self._counts, self._driver = counts, driver
        self._read: ProgramCode | None = None

    @property
    def program(self) -> ProgramCode | None:
        """The program, read and checked when it is first asked for."""
        if self._read is None and self.has_program:
            self._read = self._program(self._counts, self._driver)
        return self._read

    @property
    def has_savings(self) -> bool:
        """Whether it is a single call that serves some sizes worse than programs of their own do."""
        return self.has_program and not self._is_segmented and len(self.container["savings"]) > 0

    @property
    def has_description(self) -> bool:
        """Whether it says what the model takes and gives."""
        return len(self.container["metadata"]) == 1

    def description(self) -> Description | None:
        """How the model describes itself; None if the file does not say."""
        from sardonyx.formats.program.description import described  # lazy: it brings the types of the graph

        return described(self.container)

    @property
    def arrays(self) -> dict[int, Array]:
        """The constants by buffer: those inside the file, in its memory, and those that were located.

        Checksums are checked when the arrays are first asked for.
        """
        if self._arrays is None:
            inside = {number: self.array(f"constant {number}", *where) for number, where in self._inside.items()}
            self._arrays = {**inside, **self._located}
        return self._arrays

    def locate(self, number: int, content: memoryview) -> None:
        """Say where a constant lies that is not in the file; FormatError if there are not as many bytes as it has."""
        _, kind, shape = self.references[number]
        if prod(shape) * kind.itemsize != len(content):
            raise FormatError(f"constant {number} of type {kind} and shape {list(shape)} has {len(content)} bytes")
        self._located[number] = np.frombuffer(content, kind).reshape(shape)
        del self.references[number]
        del self.keys[number]

    def has_constant(self, buffer: int) -> bool:
        """Whether a buffer is a constant."""
        return buffer in self._inside or buffer in self.references or buffer in self._located

    def _list_constants(self) -> None:
        container = self.container
        shapes = container["constant_shapes"][:, 0].tolist()
        for number, dtype, first, rank, key, position, size, expected in container["constants"].tolist():
            kind, shape = dtype_of(container.text(dtype)), tuple(span(shapes, first, rank, "constant_shapes"))
            named = container.text(key)
            if named:
                self.keys[number] = named
            if position < 0:
                self.references[number] = (named, kind, shape)
            else:
                self._check_array(f"constant {number}", kind, shape, position, size)
                self._inside[number] = (kind, shape, position, size, expected)

    def array(self, name: str, kind: np.dtype[Any], shape: tuple[int, ...], position: int, size: int, expected: int) -> Array:
        """An array among the contents, which shares their memory; its checksum is checked."""
        self._check_array(name, kind, shape, position, size)
        content = self.contents[position : position + size]
        if checksum(content) != expected:
            raise FormatError(f"the checksum of {name} is wrong")
        return np.frombuffer(content, kind).reshape(shape)

    def _check_array(self, name: str, kind: np.dtype[Any], shape: tuple[int, ...], position: int, size: int) -> None:
        if prod(shape) * kind.itemsize != size:
            raise FormatError(f"{name} of type {kind} and shape {list(shape)} has {size} bytes")
        if position % ALIGNMENT or position + size > len(self.contents):
            raise FormatError(f"{name} has {size} bytes at {position}")

    def _program(self, counts: tuple[int, int, int], driver: int) -> ProgramCode:
        container = self.container
        ports: tuple[list[ImagePort], list[ImagePort]] = ([], [])
        port_dims = container["port_dims"][:, 0].tolist()
        for direction, name, dtype, first, rank, buffer in container["ports"].tolist():
            dims, kind = span(port_dims, first, rank, "port_dims"), container.text(dtype)
            dtype_of(kind)
            ports[direction].append(ImagePort(container.text(name), kind, dims, buffer))
        for _, number, axis in container["bindings"].tolist():
            if axis >= len(ports[INPUT][number].dims):
                raise FormatError(f"bindings: input {number} has no axis {axis}")
        steps = container["steps"]
        tables: dict[str, Any] = {name: container[name] for name in IMAGE_TABLES}
        tables["steps"] = steps[:, :3]
        symbols = container.texts(container["symbols"][:, 0].tolist())
        sizes = SizeTable(container["size_rows"].tolist(), container["size_results"][:, 0].tolist(), len(symbols))
        faults = [(container.text(node), container.text(text)) for node, text in container["faults"].tolist()]
        dim_texts = {dim: container.text(text) for dim, text in container["dim_texts"].tolist()}
        states = [(container.text(identity), container.text(dtype)) for identity, dtype in container["states"].tolist()]
        image = ProgramImage(tables, symbols, *ports, faults, dim_texts, counts, sizes, states)
        self._check_image(image)
        objects = [bytes(span(container.bytes, first, count, "bytes")) for first, count in container["objects"].tolist()]
        used = steps[:, 3].tolist()
        if driver < 0:
            return ProgramCode(image, objects, used, b"", self._segments(image))
        if driver != len(objects) - 1 or driver in used:
            raise FormatError(f"object {driver} of {len(objects)} is the driver, expected the last, which no step calls")
        return ProgramCode(image, objects[:driver], used, objects[driver], self._segments(image))

    def _segments(self, image: ProgramImage) -> SegmentCode | None:
        """What the program does in Python."""
        if not self._is_segmented:
            found = self.container["segments"].tolist()
            if found != [[NATIVE, 0, len(image.steps)]]:
                raise FormatError(f"segments: {found}, expected one of {len(image.steps)} steps")
            return None
        from sardonyx.formats.program.read_segments import read_segments  # lazy: most programs stay in native code

        return read_segments(self, image)

    def _check_image(self, image: ProgramImage) -> None:
        """What holds between the tables of an image."""
        slots = len(image.dim_slots) + len(image.work_slots) + len(image.address_slots)
        if image.table_size > slots or image.fault_entries > _MOST_FAULT_ENTRIES or len(image.work_slots) != len(image.steps):
            raise FormatError(f"{image.table_size} entries of the argument table, of which {slots} are set")
        if (image.steps[:, 2] > np.arange(1, len(image.steps) + 1)).any():
            raise FormatError("steps: a stretch begins before the first")
        if image.buffer_count * 8 > len(self.container.data):
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
            dtype_of(kind)
        known[image.state[:, 0]] = True
        known[image.fault_buffers[:, 0]] = True
        known[[port.buffer for port in (*image.inputs, *image.outputs)]] = True
        known[[*self._inside, *self.references, *self._located]] = True
        if self._is_segmented:  # what calls have made
            made = self.container["call_outputs"][:, 1]
            known[made[made >= 0]] = True
        if not known[image.address_slots[:, 1]].all():
            raise FormatError("address_slots: a buffer that lies nowhere")


def _check(container: Container, counts: tuple[int, int, int], contents: int) -> dict[str, int]:
    """Whether every integer is within what it counts or points to, and operations refer to what comes before them.

    How many there are of each thing that is counted.
    """
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
        "content": contents + 1,
        "flag": 2,
        "type row": len(container["type_rows"]),
        "type": len(container["types"]),
        "type kind": TYPE_KINDS,
        "group": GROUPS,
        "size kind": SIZE_KINDS,
    }
    container.check(TABLES, limits)
    _check_rows(container["size_rows"], len(container["symbols"]), "size_rows")
    _check_rows(container["type_rows"], container.text_count, "type_rows")
    return limits


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


def dtype_of(name: str) -> np.dtype[Any]:
    """The array type of an element type's name; FormatError if there is none."""
    try:
        return numpy_type(name)
    except (KeyError, ValueError) as error:
        raise FormatError(f"there is no element type {name!r}") from error
