"""What a program does in Python, out of the tables of its file: segments, calls with their attributes, bodies; all checked.

The programs of bodies are read when they are asked for (`Nested.read`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.formats.program.container import Container, FormatError
from sardonyx.formats.program.read import ProgramFile, dtype_of, span
from sardonyx.formats.program.schema import (
    ARRAY,
    CALL,
    HOST_VALUE_KINDS,
    INTEGER,
    INTEGERS,
    NATIVE,
    NOTHING,
    REAL,
    REALS,
    SEGMENT_TABLES,
    SPARSE,
    TEXT,
    TEXT_ARRAY,
    TEXTS,
    TUPLE,
    TYPE,
)
from sardonyx.program.calls import (
    NATIVE_LOOP,
    NO_LOOP,
    BodyCode,
    BodyNode,
    CallCode,
    HostNode,
    LoopCode,
    LoopSignature,
    SegmentCode,
    SlicedPort,
)
from sardonyx.program.image import ProgramImage
from sardonyx.program.segments import (
    CONSTANT,
    OMITTED,
    VALUE,
    VIEW,
    BoundView,
    CallOutput,
    CallSegment,
    ProgramInput,
    Segment,
    SegmentOperand,
    SegmentPlan,
    Sizes,
    SizeSegment,
    StepSegment,
)

if TYPE_CHECKING:
    from sardonyx.ir.graph import SparseConstant
    from sardonyx.ir.types import Type

Array = np.ndarray[Any, Any]

_DEEPEST: Final = 32  # bodies inside bodies
_MOST_VALUES: Final = 1 << 24
_FLOAT: Final = struct.Struct("<d")
_INTEGER: Final = struct.Struct("<q")


def check_tables(container: Container, limits: Mapping[str, int]) -> None:
    """Whether the tables of segments are there, with every integer within what it counts or points to."""
    container.add(SEGMENT_TABLES)
    if len(container["value_counts"]) != 1 or container["value_counts"][0, 0] > _MOST_VALUES:
        raise FormatError("value_counts: expected one number, of values that a run could hold")
    counted = {
        "value": int(container["value_counts"][0, 0]),
        "operand kind": 4,
        "loop state": 4,
        "host value kind": HOST_VALUE_KINDS,
        "host constant": len(container["host_constants"]),
        "host value": len(container["host_values"]),
        "view": len(container["views"]),
        "size list": len(container["size_lists"]),
        "segment": len(container["segments"]),
        "call": len(container["calls"]),
        "loop": len(container["loops"]),
        "nested": len(container["nested"]),
    }
    container.check(SEGMENT_TABLES, {**limits, **counted})


class Nested:
    """The program of a body, inside a file."""

    def __init__(self, outer: ProgramFile, position: int, size: int) -> None:
        if outer.depth >= _DEEPEST:
            raise FormatError(f"there are programs inside programs, more than {_DEEPEST} deep")
        if position + size > len(outer.contents):
            raise FormatError(f"the program of a body has {size} bytes at {position}")
        self._contents = outer.contents  # not the file, which refers to this
        self._depth = outer.depth + 1
        self.span = slice(position, position + size)

    def read(self) -> ProgramFile:
        """The program, checked."""
        return ProgramFile(self._contents[self.span], self._contents, self._depth)


def check_loop(loop: LoopCode, image: ProgramImage) -> None:
    """Whether the signature of a loop speaks of inputs and outputs that the program of its body has."""
    signature, inputs, outputs = loop.signature, len(image.inputs), len(image.outputs)
    taken = [*(position for position, _ in signature.carried), *(each.position for each in signature.sliced)]
    given = [signature.condition, *(position for _, position in signature.carried)]
    given += [each.position for each in signature.stacked if each is not None]
    own = 2 * signature.has_counter + len(signature.carried) + len(signature.sliced)
    if any(each >= inputs for each in taken) or any(each >= outputs for each in given) or own + len(loop.captures) != inputs:
        raise FormatError(f"loops: a signature that does not fit {inputs} inputs and {outputs} outputs")


def read_segments(file: ProgramFile, image: ProgramImage) -> SegmentCode:
    """What the program of a file does in Python."""
    return _Reader(file, image).code()


class _Reader:
    def __init__(self, file: ProgramFile, image: ProgramImage) -> None:
        self._file = file
        self._image = image
        self._tables = file.container
        self._rows: dict[str, list[Any]] = {}
        self._types: list[Type] | None = None
        self._values: list[Any] | None = None

    def code(self) -> SegmentCode:
        tables, image = self._tables, self._image
        count = int(tables["value_counts"][0, 0])
        inputs = tuple(ProgramInput(tables.text(name), default) for name, default in self._all("program_inputs"))
        native = tuple(self._column("native_values"))
        if len(native) != len(image.inputs) + len(image.outputs) or len(inputs) > count:
            raise FormatError(f"native_values: {len(native)} for {len(image.inputs)} inputs and {len(image.outputs)} outputs")
        native_inputs, native_outputs = native[: len(image.inputs)], native[len(image.inputs) :]
        if any(value >= len(inputs) for value in native_inputs):
            raise FormatError("native_values: an input of native code is no input of the program")
        constants = [self.value(number) for number in self._column("host_constants")]
        results = tuple(self._operand(kind, number, -1) for kind, number in self._all("results"))
        if not all(result.kind in (VALUE, CONSTANT) for result in results):
            raise FormatError("results: expected values and constants")
        segments = tuple(self._segment(number, *row) for number, row in enumerate(self._all("segments")))
        plan = SegmentPlan(inputs, count, native_inputs, native_outputs, results, segments)
        calls = [segment for segment in segments if isinstance(segment, CallSegment)]
        if [segment.call for segment in calls] != list(range(len(self._all("calls")))):
            raise FormatError("call_segments: expected each call once, in order")
        self._check_steps(segments)
        made = [self._call(segment, row) for segment, row in zip(calls, self._all("calls"))]
        return SegmentCode(plan, made, constants)

    def _all(self, name: str) -> list[Any]:
        """The rows of a table."""
        if name not in self._rows:
            self._rows[name] = self._tables[name].tolist()
        return self._rows[name]

    def _column(self, name: str) -> list[int]:
        return [row[0] for row in self._all(name)]

    def _span(self, name: str, first: int, count: int) -> Any:
        return span(self._all(name), first, count, name)

    def _check_steps(self, segments: Sequence[Segment]) -> None:
        """Whether native segments take all steps in order, whose arguments stand one behind the other."""
        done = 0
        for segment in segments:
            if isinstance(segment, StepSegment):
                if segment.first != done:
                    raise FormatError(f"segments: one begins with step {segment.first}, expected {done}")
                done += segment.steps
                stretches = self._image.steps[segment.first : done, 2]
                if (stretches > np.arange(1, len(stretches) + 1)).any():
                    raise FormatError(f"segments: a stretch begins before step {segment.first}")
        starts = self._image.steps[:, 0]
        if done != len(starts) or (starts[1:] < starts[:-1]).any():
            raise FormatError(f"segments: {done} of {len(starts)} steps, or steps that are not in order")
        if len(self._image.address_slots) and not len(starts):
            raise FormatError("address_slots: there is no step whose arguments they are")

    def _segment(self, number: int, kind: int, first: int, count: int) -> Segment:
        if kind == NATIVE:
            needed = [symbol for segment, symbol in self._all("segment_symbols") if segment == number]
            return StepSegment(first, count, tuple(needed))
        rows = self._all("call_segments" if kind == CALL else "size_segments")
        if count >= len(rows):
            raise FormatError(f"segments: row {number} points to row {count} of {len(rows)}")
        if kind != CALL:
            counts, sizes = rows[count]
            return SizeSegment(counts, self._sizes(sizes))
        call, operand, inputs, captured, output, outputs = rows[count]
        operands = [self._operand(*row) for row in self._span("operands", operand, inputs + captured)]
        made = [
            CallOutput(value, buffer, None if sizes < 0 else self._sizes(sizes))
            for value, buffer, sizes in self._span("call_outputs", output, outputs)
        ]
        if any((each.buffer < 0) != (each.sizes is None) for each in made):
            raise FormatError(f"call_outputs: a result of call {call} has a buffer without sizes, or sizes without a buffer")
        return CallSegment(call, tuple(operands[:inputs]), tuple(operands[inputs:]), tuple(made))

    def _sizes(self, number: int) -> Sizes:
        label, first, count = self._all("size_lists")[number]
        return Sizes(self._tables.text(label), tuple(row[0] for row in self._span("listed_dims", first, count)))

    def _operand(self, kind: int, number: int, view: int) -> SegmentOperand:
        if kind == OMITTED:
            return SegmentOperand(OMITTED)
        if kind == VIEW:
            if view < 0:
                raise FormatError("operands: one lies nowhere")
            return SegmentOperand(VIEW, -1, self._view(view))
        limit = int(self._tables["value_counts"][0, 0]) if kind == VALUE else len(self._all("host_constants"))
        if not 0 <= number < limit:
            raise FormatError(f"operands: there is no {number} among {limit}")
        return SegmentOperand(kind, number)

    def _view(self, number: int) -> BoundView:
        buffer, dtype, is_constant, first, rank, offset, size = self._all("views")[number]
        if is_constant and not self._file.has_constant(buffer):
            raise FormatError(f"views: buffer {buffer} is no constant")
        dims = tuple(row[0] for row in self._span("view_dims", first, 2 * rank))
        kind = dtype_of(self._tables.text(dtype))
        return BoundView(buffer, kind, bool(is_constant), dims[:rank], dims[rank:], offset, size)

    def _call(self, segment: CallSegment, row: Sequence[int]) -> CallCode:
        domain, op_type, version, *row = row
        name, label, provider, wanted, wanted_count, attribute, attributes, body, bodies, state, loop = row
        text = self._tables.text
        outputs = tuple(bool(each) for (each,) in self._span("wanted", wanted, wanted_count))
        attrs = {text(key): self.value(value) for key, value in self._span("attributes", attribute, attributes)}
        inside = dict(self._body(*each, outer=len(segment.captured)) for each in self._span("bodies", body, bodies))
        if (state == NATIVE_LOOP) != (loop >= 0) or (state != NO_LOOP and not inside):
            raise FormatError(f"calls: the loop of {text(label)!r} has state {state} and number {loop}")
        node = HostNode(
            text(domain), text(op_type), version, text(name), text(label), outputs, attrs, tuple(inside), text(provider)
        )
        made = None if loop < 0 else self._loop(*self._all("loops")[loop], outer=len(segment.captured))
        return CallCode(node, inside, state, made)

    def _captures(self, first: int, count: int, outer: int) -> tuple[int, ...]:
        found = tuple(row[0] for row in self._span("captures", first, count))
        if any(each >= outer for each in found):
            raise FormatError(f"captures: {found} of {outer}")
        return found

    def _nested(self, number: int) -> Nested | None:
        return None if number < 0 else Nested(self._file, *self._all("nested")[number])

    def _body(
        self,
        attribute: int,
        name: int,
        first: int,
        inputs: int,
        outputs: int,
        capture: int,
        captures: int,
        nested: int,
        *,
        outer: int,
    ) -> tuple[str, BodyCode]:
        types = [None if row[0] < 0 else self._type(row[0]) for row in self._span("body_types", first, inputs + outputs)]
        captured = self._captures(capture, captures, outer)
        node = BodyNode(self._tables.text(name), tuple(types[:inputs]), tuple(types[inputs:]), captured)
        return self._tables.text(attribute), BodyCode(node, self._nested(nested))

    def _type(self, number: int) -> Type:
        if self._types is None:
            from sardonyx.formats.program.description import types_of  # lazy: it brings the types of the graph

            self._types = types_of(self._tables)
        return self._types[number]

    def _loop(
        self,
        nested: int,
        has_counter: int,
        condition: int,
        carried: int,
        carried_count: int,
        slices: int,
        sliced: int,
        stacked: int,
        capture: int,
        captures: int,
        *,
        outer: int,
    ) -> LoopCode:
        moved = [
            None if position < 0 else SlicedPort(position, axis, bool(backwards))
            for position, axis, backwards in self._span("slices", slices, sliced + stacked)
        ]
        taken = [each for each in moved[:sliced] if each is not None]
        if len(taken) != sliced:
            raise FormatError("slices: an input that is sliced is none")
        pairs = tuple((first, second) for first, second in self._span("carried", carried, carried_count))
        signature = LoopSignature(bool(has_counter), condition, pairs, tuple(taken), tuple(moved[sliced:]))
        return LoopCode(signature, self._captures(capture, captures, outer), self._nested(nested))

    # Values that operators take

    def value(self, number: int) -> Any:
        """A value, by a number that was checked. All are made at once, each of such that stand before it."""
        if self._values is None:
            self._values = []
            for kind, pointed, first, count in self._all("host_values"):
                parts = [row[0] for row in self._span("host_parts", first, count)]
                if any(part >= len(self._values) for part in parts):
                    raise FormatError(f"host_values: value {len(self._values)} is made of one behind it")
                self._values.append(self._decoders[kind](self, pointed, parts))
        return self._values[number]

    def _real(self, bits: int, parts: Sequence[int]) -> float:
        return float(_FLOAT.unpack(_INTEGER.pack(bits))[0])

    def _text(self, number: int, parts: Sequence[int]) -> str:
        if not 0 <= number < self._tables.text_count:
            raise FormatError(f"host_values: there is no text {number}")
        return self._tables.text(number)

    def _array(self, number: int, parts: Sequence[int]) -> Array:
        rows = self._all("arrays")
        if not 0 <= number < len(rows):
            raise FormatError(f"host_values: there is no array {number}")
        dtype, first, rank, position, size, expected = rows[number]
        shape = tuple(row[0] for row in self._span("array_shapes", first, rank))
        array = self._file.array(f"array {number}", dtype_of(self._tables.text(dtype)), shape, position, size, expected)
        array.flags.writeable = False
        return array

    def _numbers(self, number: int, parts: Sequence[int], *, dtype: Any) -> tuple[Any, ...]:
        array = self._array(number, parts)
        if array.dtype != dtype or array.ndim != 1:
            raise FormatError(f"arrays: {number} has {array.dtype}{list(array.shape)}, expected a list of {np.dtype(dtype)}")
        return tuple(array.tolist())

    def _texts(self, number: int, parts: Sequence[int]) -> tuple[str, ...]:
        made = self._text_array(number, parts)
        if made.ndim != 1:
            raise FormatError(f"arrays: {number} has shape {list(made.shape)}, expected a list of texts")
        return tuple(made.tolist())

    def _text_array(self, number: int, parts: Sequence[int]) -> Array:
        array = self._array(number, parts)
        if array.dtype != np.int64 or (array.size and not 0 <= array.min() <= array.max() < self._tables.text_count):
            raise FormatError(f"arrays: {number} does not hold the numbers of texts")
        kinds, positions = np.unique(array, return_inverse=True)  # of which there are few, in tables of trees
        found = np.empty(len(kinds), object)
        found[:] = self._tables.texts(kinds.tolist())
        made: Array = np.empty(array.shape, object)
        made[...] = found[positions.reshape(array.shape)]
        made.flags.writeable = False
        return made

    def _tuple(self, number: int, parts: Sequence[int]) -> tuple[Any, ...]:
        assert self._values is not None
        return tuple(self._values[part] for part in parts)

    def _type_value(self, number: int, parts: Sequence[int]) -> Type:
        if not 0 <= number < len(self._tables["types"]):
            raise FormatError(f"host_values: there is no type {number}")
        return self._type(number)

    def _sparse(self, number: int, parts: Sequence[int]) -> SparseConstant:
        found = self._tuple(number, parts)
        if len(found) != 3 or not isinstance(found[0], np.ndarray) or not isinstance(found[1], np.ndarray):
            raise FormatError(f"host_values: {len(found)} parts, expected the values, indices and shape of a sparse tensor")
        values, indices, shape = found
        if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
            raise FormatError(f"host_values: {shape} is no shape")
        from sardonyx.ir.graph import SparseConstant  # lazy: few programs have sparse tensors
        from sardonyx.ir.tensor import from_numpy  # lazy: the same

        return SparseConstant(from_numpy(values), from_numpy(indices), shape)

    _decoders: Final[Mapping[int, Callable[[Any, int, Sequence[int]], Any]]] = {
        NOTHING: lambda reader, number, parts: None,
        INTEGER: lambda reader, number, parts: number,
        REAL: _real,
        TEXT: _text,
        ARRAY: _array,
        INTEGERS: partial(_numbers, dtype=np.int64),
        REALS: partial(_numbers, dtype=np.float64),
        TEXTS: _texts,
        TEXT_ARRAY: _text_array,
        TUPLE: _tuple,
        TYPE: _type_value,
        SPARSE: _sparse,
    }
