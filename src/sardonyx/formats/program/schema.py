"""The tables of a program file, and what each of their columns counts or points to.

The names of columns are those of what is counted: a `slot` is an entry of the argument table, a `dim` a result of the size table.
A `?` behind the name allows -1, for nothing.
"""

from __future__ import annotations

from typing import Final

from sardonyx.formats.program.container import ANY, COUNT, Schema

VERSION: Final = 1

TABLES: Final[Schema] = {
    # key, nodes of the model, entries of the argument table, buffers, entries of a fault record, the driver's code
    "program": (10, ("text", COUNT, COUNT, COUNT, COUNT, "object?")),
    "deciding": (11, ("text",)),  # inputs whose numbers tell specialisations apart
    "files": (12, ("text", "text")),  # other files it was made of: path from the model's folder, digest ("": there was none)
    # Sizes
    "symbols": (20, ("text",)),
    "size_rows": (21, ("operation", ANY, ANY)),  # see `program.sizes`
    "size_results": (22, ("row",)),
    # The image (see `program.image`)
    "steps": (30, ("end", "slot", "object")),  # where arguments begin, unit count, code
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
    "segments": (44, ("segment kind", "end of steps", COUNT)),  # what is run, in order: its kind, first step, how many
    "worker": (45, ("buffer",)),
    "state": (46, ("buffer", "dim", COUNT)),
    "states": (47, ("text", "text")),  # for each row of `state`: what it holds, element type
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

IMAGE_TABLES: Final = (
    "dim_slots", "work_slots", "address_slots", "arena", "worker", "state", "late", "fault_buffers", "checks",
    "equalities", "bindings",
)  # fmt: skip
INPUT, OUTPUT = 0, 1  # directions of ports
NATIVE: Final = 0  # kind of a segment; host, provider and loop segments will be others
SEGMENT_KINDS: Final = 1
