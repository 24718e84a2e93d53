"""AttributeProto to ir.graph.Attr."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sardonyx.formats.onnx import schema, wire
from sardonyx.formats.onnx.context import ReadContext
from sardonyx.formats.onnx.schema import tags
from sardonyx.formats.onnx.tensors import read_sparse, read_tensor
from sardonyx.formats.onnx.wire import WireError, fields, signed
from sardonyx.ir.graph import Attr, AttrKind

_RUN: Final = 32  # after so many elements in a row the rest is decoded in bulk
_FEW_KINDS: Final = 8  # different strings among those, if the rest may be more of them
_ATTRIBUTE: Final = tags("Attribute")
_KINDS: Final = {int(kind): kind for kind in AttrKind}
_LISTS: Final = {
    AttrKind.FLOATS, AttrKind.INTS, AttrKind.STRINGS, AttrKind.TENSORS, AttrKind.GRAPHS, AttrKind.SPARSE_TENSORS,
    AttrKind.TYPE_PROTOS,
}  # fmt: skip
_DEFAULTS: Final[dict[AttrKind, Any]] = {AttrKind.FLOAT: 0.0, AttrKind.INT: 0, AttrKind.STRING: ""}

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH = AttrKind.FLOAT, AttrKind.INT, AttrKind.STRING, AttrKind.TENSOR, AttrKind.GRAPH
_FLOATS, _INTS, _STRINGS = AttrKind.FLOATS, AttrKind.INTS, AttrKind.STRINGS


def read_attr(ctx: ReadContext, reader: Any, pos: int, end: int, depth: int) -> Attr | None:
    """The attribute in [pos, end); None, after noting the problem, if it makes no sense.

    `reader` reads what lies inside: graphs (as records, see records.py) and types.
    """
    buf = ctx.buf
    name = ref = doc = ""
    declared = 0
    found: dict[AttrKind, Any] = {}  # usually one
    stream = fields(buf, pos, end)
    for tag, start, stop in stream:
        if tag == _ATTRIBUTE.name:
            name = wire.text(buf, start, stop)
        elif tag == _ATTRIBUTE.i:
            found[_INT] = signed(start)
        elif tag == _ATTRIBUTE.type:
            declared = start
        elif tag == _ATTRIBUTE.ints:
            ints = found.setdefault(_INTS, [])
            ints.append(signed(start))
            if len(ints) % _RUN == 0:
                numbers, at = wire.varint_run(buf, tag, stop, end)
                ints.extend(numbers.view(np.int64).tolist())
                stream.send(at)
        elif tag == _ATTRIBUTE.f:
            found[_FLOAT] = wire.float32(buf, start)
        elif tag == _ATTRIBUTE.s:
            found[_STRING] = wire.text(buf, start, stop)
        elif tag == _ATTRIBUTE.t:
            found[_TENSOR] = read_tensor(ctx, start, stop)
        elif tag == _ATTRIBUTE.g:
            found[_GRAPH] = reader.graph(start, stop, depth + 1)
        elif tag == _ATTRIBUTE.floats:
            floats = found.setdefault(_FLOATS, [])
            floats.append(wire.float32(buf, start))
            if len(floats) % _RUN == 0:
                raw, at = wire.fixed_run(buf, tag, stop, end, 4)
                floats.extend(raw.view("<f4").tolist())
                stream.send(at)
        elif tag == _ATTRIBUTE.strings:
            strings = found.setdefault(_STRINGS, [])
            strings.append(wire.text(buf, start, stop))
            if len(strings) % _RUN == 0 and len(known := set(strings[-_RUN:])) <= _FEW_KINDS:
                more, at = wire.text_run(buf, tag, stop, end, sorted(known))
                strings.extend(more)
                stream.send(at)
        elif tag == _ATTRIBUTE.ref_attr_name:
            ref = wire.text(buf, start, stop)
        elif tag == _ATTRIBUTE.doc_string:
            doc = wire.text(buf, start, stop)
        elif not _rare_field(ctx, reader, found, tag, start, stop, depth):
            schema.check_skipped("Attribute", tag, stop - 1)
    return _make(ctx, name, declared, found, ref, doc, pos)


def _rare_field(ctx: ReadContext, reader: Any, found: dict[AttrKind, Any], tag: int, start: int, stop: int, depth: int) -> bool:
    if tag == _ATTRIBUTE.ints_packed:
        found.setdefault(_INTS, []).extend(wire.packed_varints(ctx.buf, start, stop).view(np.int64).tolist())
    elif tag == _ATTRIBUTE.floats_packed:
        if (stop - start) % 4:
            raise WireError(f"floats has {stop - start} bytes, not a multiple of 4", start)
        found.setdefault(_FLOATS, []).extend(np.frombuffer(ctx.buf, "<f4", (stop - start) // 4, start).tolist())
    elif tag == _ATTRIBUTE.tensors:
        found.setdefault(AttrKind.TENSORS, []).append(read_tensor(ctx, start, stop))
    elif tag == _ATTRIBUTE.graphs:
        found.setdefault(AttrKind.GRAPHS, []).append(reader.graph(start, stop, depth + 1))
    elif tag == _ATTRIBUTE.tp:
        found[AttrKind.TYPE_PROTO] = reader.types.type(start, stop, depth + 1)
    elif tag == _ATTRIBUTE.type_protos:
        found.setdefault(AttrKind.TYPE_PROTOS, []).append(reader.types.type(start, stop, depth + 1))
    elif tag == _ATTRIBUTE.sparse_tensor:
        found[AttrKind.SPARSE_TENSOR] = read_sparse(ctx, start, stop)[0]
    elif tag == _ATTRIBUTE.sparse_tensors:
        found.setdefault(AttrKind.SPARSE_TENSORS, []).append(read_sparse(ctx, start, stop)[0])
    else:
        return False
    return True


def _make(ctx: ReadContext, name: str, declared: int, found: dict[AttrKind, Any], ref: str, doc: str, pos: int) -> Attr | None:
    if not name:
        ctx.problem(f"{ctx.location(pos - 1)}: an attribute without a name")
        return None
    if declared == 0:  # files older than IR version 2 do not say
        if len(found) != 1:
            ctx.problem(f"{ctx.location(pos - 1)}: attribute {name!r} does not say its type and has {_listing(found)}")
            return None
        kind = next(iter(found))
    elif declared in _KINDS:
        kind = _KINDS[declared]
    else:
        ctx.problem(f"{ctx.location(pos - 1)}: attribute {name!r} has type {declared}, which does not exist")
        return None
    if ref:
        return Attr(name, kind, None, ref, doc)
    value = found.get(kind)
    if value is None:
        if found and kind not in found:
            ctx.problem(f"{ctx.location(pos - 1)}: attribute {name!r} says it is {kind.name}, but has {_listing(found)}")
            return None
        if kind in _LISTS:
            return Attr(name, kind, (), "", doc)
        if kind not in _DEFAULTS:
            if kind not in found:  # otherwise the problem is noted where it was read
                ctx.problem(f"{ctx.location(pos - 1)}: attribute {name!r} says it is {kind.name}, but has no value")
            elif kind is AttrKind.TYPE_PROTO:
                ctx.problem(f"{ctx.location(pos - 1)}: attribute {name!r} is a type without an element type")
            return None
        value = _DEFAULTS[kind]
    return Attr(name, kind, tuple(value) if kind in _LISTS else value, "", doc)


def _listing(found: dict[AttrKind, Any]) -> str:
    return " and ".join(kind.name for kind in found) or "no value"
