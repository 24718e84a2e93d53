"""What a program does in Python -> tables of its file: segments, calls with their attributes, bodies."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.dtypes import from_numpy
from sardonyx.formats.program.container import Texts
from sardonyx.formats.program.contents import Contents
from sardonyx.formats.program.description import TypeTable
from sardonyx.formats.program.schema import (
    ARRAY,
    CALL,
    INTEGER,
    INTEGERS,
    NATIVE,
    NOTHING,
    REAL,
    REALS,
    SEGMENT_TABLES,
    SIZES,
    SPARSE,
    TEXT,
    TEXT_ARRAY,
    TEXTS,
    TUPLE,
    TYPE,
)
from sardonyx.ir.graph import SparseConstant
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType
from sardonyx.program.calls import BodyCode, CallCode, HostNode, LoopCode, SegmentCode
from sardonyx.program.segments import BoundView, CallOutput, CallSegment, SegmentOperand, Sizes, StepSegment

Array = np.ndarray[Any, Any]

_TYPES: Final = (TensorType, SparseTensorType, SequenceType, OptionalType, MapType)
_FLOAT: Final = struct.Struct("<d")
_INTEGER: Final = struct.Struct("<q")


class NotSavable(TypeError):
    """Something in a program belongs to this process, as what another provider has made."""


class SegmentTables:
    """The tables under construction. `nested` writes the program of a body and gives its position and size."""

    def __init__(self, texts: Texts, types: TypeTable, contents: Contents, nested: Callable[[Any], tuple[int, int]]) -> None:
        self._texts = texts
        self._types = types
        self._contents = contents
        self._nested = nested
        self._views: dict[tuple[Any, ...], int] = {}
        self.tables: dict[str, list[Any]] = {name: [] for name in (*SEGMENT_TABLES, "segments")}

    def fill(self, code: SegmentCode) -> None:
        """Fill the tables with all that a program does in Python."""
        plan, tables = code.plan, self.tables
        tables["value_counts"] = [plan.value_count]
        tables["host_constants"] = [self._value(array) for array in code.constants]
        tables["program_inputs"] = [(self._texts.number(each.name), each.default) for each in plan.inputs]
        tables["native_values"] = [*plan.native_inputs, *plan.native_outputs]
        tables["results"] = [(result.kind, result.number) for result in plan.results]
        for number, segment in enumerate(plan.segments):
            if isinstance(segment, StepSegment):
                tables["segments"].append((NATIVE, segment.first, segment.steps))
                tables["segment_symbols"] += [(number, symbol) for symbol in segment.symbols]
            elif isinstance(segment, CallSegment):
                tables["segments"].append((CALL, 0, len(tables["call_segments"])))
                self._call_segment(segment)
            else:
                tables["segments"].append((SIZES, 0, len(tables["size_segments"])))
                tables["size_segments"].append((segment.counts, self._sizes(segment.sizes)))
        for call in code.calls:
            self._call(call)

    def _span(self, name: str, rows: Sequence[Any]) -> tuple[int, int]:
        """Add rows to a table; where they begin, and how many."""
        first = len(self.tables[name])
        self.tables[name] += rows
        return first, len(rows)

    def _sizes(self, sizes: Sizes) -> int:
        self.tables["size_lists"].append((self._texts.number(sizes.label), *self._span("listed_dims", sizes.dims)))
        return len(self.tables["size_lists"]) - 1

    def _call_segment(self, segment: CallSegment) -> None:
        first, _ = self._span("operands", [self._operand(each) for each in (*segment.inputs, *segment.captured)])
        outputs = self._span("call_outputs", [self._output(each) for each in segment.outputs])
        self.tables["call_segments"].append((segment.call, first, len(segment.inputs), len(segment.captured), *outputs))

    def _output(self, output: CallOutput) -> tuple[int, int, int]:
        return output.value, output.buffer, -1 if output.sizes is None else self._sizes(output.sizes)

    def _operand(self, operand: SegmentOperand) -> tuple[int, int, int]:
        return operand.kind, operand.number, -1 if operand.view is None else self._view(operand.view)

    def _view(self, view: BoundView) -> int:
        dtype, is_constant = self._texts.number(from_numpy(view.dtype).name), int(view.is_constant)
        known = (view.buffer, dtype, view.shape, view.strides, view.offset)
        if known not in self._views:
            self._views[known] = len(self._views)
            first, _ = self._span("view_dims", [*view.shape, *view.strides])
            rank, offset, size = len(view.shape), view.offset, view.size
            self.tables["views"].append((view.buffer, dtype, is_constant, first, rank, offset, size))
        return self._views[known]

    def _call(self, call: CallCode) -> None:
        node = call.node
        names = [self._texts.number(text) for text in (node.name, node.label, node.provider)]
        wanted = self._span("wanted", [int(each) for each in node.wanted])
        attributes = self._span("attributes", self._attributes(node))
        bodies = self._span("bodies", [self._body(name, body) for name, body in call.bodies.items()])
        loop = -1
        if call.loop is not None:
            loop = len(self.tables["loops"])
            self.tables["loops"].append(self._loop(call.loop))
        operator = self._texts.number(node.domain), self._texts.number(node.op_type), node.version
        self.tables["calls"].append((*operator, *names, *wanted, *attributes, *bodies, call.loop_state, loop))

    def _attributes(self, node: HostNode) -> list[tuple[int, int]]:
        return [(self._texts.number(name), self._value(value)) for name, value in node.attrs.items() if value is not None]

    def _body(self, name: str, body: BodyCode) -> tuple[int, ...]:
        node = body.node
        types = [-1 if each is None else self._types.number(each) for each in (*node.input_types, *node.output_types)]
        first, _ = self._span("body_types", types)
        captures = self._span("captures", node.captures)
        counts = len(node.input_types), len(node.output_types)
        return self._texts.number(name), self._texts.number(node.name), first, *counts, *captures, self._program(body.program)

    def _program(self, program: Any) -> int:
        if program is None:
            return -1
        self.tables["nested"].append(self._nested(program))
        return len(self.tables["nested"]) - 1

    def _loop(self, loop: LoopCode) -> tuple[int, ...]:
        signature = loop.signature
        carried = self._span("carried", signature.carried)
        slices = (*signature.sliced, *signature.stacked)
        rows = [(-1, 0, 0) if each is None else (each.position, each.axis, int(each.backwards)) for each in slices]
        first, _ = self._span("slices", rows)
        counts = len(signature.sliced), len(signature.stacked)
        captures = self._span("captures", loop.captures)
        program = self._program(loop.program)
        return program, int(signature.has_counter), signature.condition, *carried, first, *counts, *captures

    # Values that operators take

    def _value(self, value: Any) -> int:
        """The number of a value, which is added behind those that it is made of."""
        kind, number, parts = self._encoded(value)
        self.tables["host_values"].append((kind, number, *self._span("host_parts", parts)))
        return len(self.tables["host_values"]) - 1

    def _encoded(self, value: Any) -> tuple[int, int, list[int]]:
        if value is None:
            return NOTHING, 0, []
        if isinstance(value, int):
            return INTEGER, value, []
        if isinstance(value, float):
            return REAL, _INTEGER.unpack(_FLOAT.pack(value))[0], []
        if isinstance(value, str):
            return TEXT, self._texts.number(value), []
        if isinstance(value, np.ndarray):
            return (TEXT_ARRAY, self._texts_array(value), []) if value.dtype == object else (ARRAY, self._array(value), [])
        if isinstance(value, _TYPES):
            return TYPE, self._types.number(value), []
        if isinstance(value, SparseConstant):
            return SPARSE, 0, [self._value(value.values.numpy()), self._value(value.indices.numpy()), self._value(value.shape)]
        if isinstance(value, tuple):
            kinds = {type(item) for item in value}
            if kinds == {int}:
                return INTEGERS, self._array(np.array(value, np.int64)), []
            if kinds == {float}:
                return REALS, self._array(np.array(value, np.float64)), []
            if kinds == {str}:
                return TEXTS, self._array(np.array([self._texts.number(item) for item in value], np.int64)), []
            return TUPLE, 0, [self._value(item) for item in value]
        raise NotSavable(f"{value!r} is nothing that a program file holds")

    def _texts_array(self, array: Array) -> int:
        texts = array.reshape(-1).tolist()
        if not all(isinstance(text, str) for text in texts):
            raise NotSavable("an array holds objects that are no texts")
        return self._array(np.array([self._texts.number(text) for text in texts], np.int64).reshape(array.shape))

    def _array(self, array: Array) -> int:
        shape = self._span("array_shapes", array.shape)
        self.tables["arrays"].append((self._texts.number(from_numpy(array.dtype).name), *shape, *self._contents.array(array)))
        return len(self.tables["arrays"]) - 1
