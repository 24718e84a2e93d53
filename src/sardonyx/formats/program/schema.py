"""The tables of a program file, and what each of their columns counts or points to.

The names of columns are those of what is counted: a `slot` is an entry of the argument table, a `dim` a result of the size table.
A `?` behind the name allows -1, for nothing.
"""

from __future__ import annotations

from typing import Final

from sardonyx.formats.program.container import ANY, COUNT, Schema

VERSION: Final = 4

TABLES: Final[Schema] = {
    # key, nodes of the model, entries of the argument table, buffers, entries of a fault record, the driver's code, whether its
    # first specialisations have programs of their own
    "program": (10, ("text", COUNT, COUNT, COUNT, COUNT, "object?", "flag")),
    "deciding": (11, ("text",)),  # inputs whose numbers tell specialisations apart
    "files": (12, ("text", "text")),  # other files it was made of: path from the model's folder, digest ("": there was none)
    # Sizes
    "symbols": (20, ("text",)),
    "size_rows": (21, ("operation", ANY, ANY)),  # see `program.sizes`
    "size_results": (22, ("row",)),
    # The image (see `program.image`)
    "steps": (30, ("end", "slot", COUNT, "object")),  # where arguments begin, unit count, stretch, code
    "dim_slots": (31, ("slot", "dim")),
    "work_slots": (32, ("slot", "dim")),
    "address_slots": (33, ("slot", "buffer", "dim")),
    "arena": (34, ("buffer", "dim", COUNT, f"{COUNT}?", "buffer?")),
    "late": (35, ("buffer",)),
    "fault_buffers": (36, ("buffer",)),
    "checks": (37, ("dim", "dim")),
    "equalities": (38, ("dim", "dim")),
    "bindings": (39, ("symbol", "input", COUNT)),
    "ports": (40, ("direction", "text", "text", COUNT, COUNT, "buffer")),  # name, type, span of `port_dims`
    "port_dims": (41, ("dim",)),
    "faults": (42, ("text", "text")),
    "dim_texts": (43, ("dim", "text")),
    # What is run, in order. Of a native segment the first step and how many; of others 0 and the row in the table of their kind.
    "segments": (44, ("segment kind", "end of steps", COUNT)),
    "worker": (45, ("buffer",)),
    "state": (46, ("buffer", "dim", COUNT)),
    "states": (47, ("text", "text")),  # for each row of `state`: what it holds, element type
    "shared": (48, ("buffer", "buffer")),  # of an input and an output that may be the same memory
    "savings": (49, ("dim", "dim")),
    # Code and constants
    "objects": (50, (COUNT, COUNT)),  # span of the record's bytes
    # buffer, element type, span of `constant_shapes`, key in a weight store, position among the contents, bytes, checksum
    "constants": (51, ("buffer", "text", COUNT, COUNT, "text", "content?", COUNT, COUNT)),
    "constant_shapes": (52, (COUNT,)),
    # Description of the model (see `description`)
    "type_rows": (60, ("operation", ANY, ANY)),  # sizes in types; `a` of a symbol is its name
    "type_sizes": (61, ("type row",)),
    "types": (62, ("type kind", "text", "type?", ANY, COUNT)),  # element type, type inside, rank (-1: unknown), first size
    "typed": (63, ("group", "text", "type?")),  # inputs, outputs, overridable initializers: name, type
    "arguments": (64, ("group", "text", "text", COUNT, COUNT)),  # how sessions name them: name, type, span of `argument_sizes`
    "argument_sizes": (65, ("size kind", ANY)),
    "metadata": (66, ("text", "text", "text", "text", "text", ANY)),
    "metadata_entries": (67, ("text", "text")),
}

FIRST_OF_SEGMENTS: Final = 70  # number of a table

# What programs have that come back to Python (see `program.segments` and `program.calls`); others are without these tables.
SEGMENT_TABLES: Final[Schema] = {
    "value_counts": (FIRST_OF_SEGMENTS, (COUNT,)),  # one row
    "program_inputs": (71, ("text", "host constant?")),  # name, what stands for it
    "native_values": (72, ("value",)),  # of the image's inputs, then of its outputs
    "results": (73, ("operand kind", ANY)),
    "views": (
        74,
        ("buffer", "text", "flag", COUNT, COUNT, "dim", "dim"),
    ),  # type, is constant, span of `view_dims`, offset, size
    "view_dims": (75, ("dim",)),  # for each view the shape, then the strides
    "size_lists": (76, ("text", COUNT, COUNT)),  # label, span of `listed_dims`
    "listed_dims": (77, ("dim",)),
    "segment_symbols": (78, ("segment", "symbol")),  # those that a native segment needs
    "size_segments": (79, ("buffer", "size list")),
    "call_segments": (80, ("call", COUNT, COUNT, COUNT, COUNT, COUNT)),  # first operand, inputs, captured, span of `call_outputs`
    "operands": (81, ("operand kind", ANY, "view?")),
    "call_outputs": (82, ("value?", "buffer?", "size list?")),
    # domain, operator, version, name, label, provider, span of `wanted`, of `attributes`, of `bodies`, state of the loop, loop
    "calls": (
        83,
        ("text", "text", COUNT, "text", "text", "text", COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, "loop state", "loop?"),
    ),
    "wanted": (84, ("flag",)),
    "attributes": (85, ("text", "host value")),
    "host_values": (86, ("host value kind", ANY, COUNT, COUNT)),  # number or bits or what it points to, span of `host_parts`
    "host_parts": (87, ("host value",)),
    "arrays": (88, ("text", COUNT, COUNT, "content", COUNT, COUNT)),  # element type, span of `array_shapes`, position, bytes, sum
    "array_shapes": (89, (COUNT,)),
    "host_constants": (90, ("host value",)),
    # attribute, name of the graph, first of `body_types`, inputs, outputs, span of `captures`, program
    "bodies": (91, ("text", "text", COUNT, COUNT, COUNT, COUNT, COUNT, "nested?")),
    "body_types": (92, ("type?",)),
    "captures": (93, (COUNT,)),
    "nested": (94, ("content", COUNT)),  # programs of bodies: position among the contents, bytes
    # program, whether it has a counter, output that is the condition, spans of `carried`, `slices` (two in a row), `captures`
    "loops": (95, ("nested", "flag", f"{COUNT}?", COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT)),
    "carried": (96, (COUNT, f"{COUNT}?")),
    "slices": (97, (f"{COUNT}?", ANY, "flag")),
}

IMAGE_TABLES: Final = (
    "dim_slots", "work_slots", "address_slots", "arena", "worker", "state", "late", "fault_buffers", "checks",
    "equalities", "savings", "shared", "bindings",
)  # fmt: skip
INPUT, OUTPUT = 0, 1  # directions of ports
NATIVE, SIZES, CALL = range(3)  # kinds of segments
SEGMENT_KINDS: Final = 3
# Kinds of the values that operators take as attributes
NOTHING, INTEGER, REAL, TEXT, ARRAY, INTEGERS, REALS, TEXTS, TEXT_ARRAY, TUPLE, TYPE, SPARSE = range(12)
HOST_VALUE_KINDS: Final = 12
