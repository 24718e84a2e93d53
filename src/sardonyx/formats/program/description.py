"""How a model describes itself, in the tables of a program file: inputs, outputs and metadata.

Sizes in types are expressions; they stand in a table of operations like the sizes of a program (`program.sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Union

from sardonyx import dtypes, errors
from sardonyx.formats.program.container import Container, FormatError, Texts
from sardonyx.formats.program.read import span
from sardonyx.ir.dims import Dim, broadcast, dim_max, dim_min, floordiv, mod, symbol, symbols_of
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.program.sizes import ADD, BROADCAST, FLOORDIV, MAX, MIN, MOD, MUL, NUMBER, SYMBOL
from sardonyx.program.symbolic_sizes import size_table

Size = Union[int, str, None]  # a number, a name, or nothing known

_TENSOR, _SPARSE, _SEQUENCE, _OPTIONAL, _MAP = range(5)  # kinds of types
_NUMBER, _NAME, _UNKNOWN = range(3)  # kinds of sizes as sessions tell them
_APPLY: Final[Mapping[int, Callable[[Dim, Dim], Dim]]] = {
    ADD: lambda a, b: a + b,
    MUL: lambda a, b: a * b,
    FLOORDIV: floordiv,
    MOD: mod,
    BROADCAST: broadcast,
    MAX: dim_max,
    MIN: dim_min,
}

Typed = tuple[str, "Type | None"]  # name and type
Argument = tuple[str, str, list[Size]]  # name, type and shape as ONNX Runtime writes them


class Description(NamedTuple):
    """What a session tells of a model. Groups are inputs, outputs, initializers that a feed may replace."""

    typed: tuple[Sequence[Typed], ...]
    arguments: tuple[Sequence[Argument], ...]
    texts: tuple[str, str, str, str, str]  # producer, name of the graph, domain, description, description of the graph
    version: int
    metadata: Mapping[str, str]


def describe(given: Description, tables: dict[str, Any], texts: Texts, types: TypeTable) -> None:
    """Fill the tables that describe a model."""
    tables["typed"] = [
        (group, texts.number(name), -1 if type_ is None else types.number(type_))
        for group, ports in enumerate(given.typed)
        for name, type_ in ports
    ]
    sizes: list[tuple[int, int]] = []
    rows = []
    for group, arguments in enumerate(given.arguments):
        for name, type_name, shape in arguments:
            rows.append((group, texts.number(name), texts.number(type_name), len(sizes), len(shape)))
            sizes += [_size_row(size, texts) for size in shape]
    tables["arguments"], tables["argument_sizes"] = rows, sizes
    tables["metadata"] = [(*(texts.number(text) for text in given.texts), given.version)]
    tables["metadata_entries"] = [(texts.number(key), texts.number(value)) for key, value in given.metadata.items()]


def _size_row(size: Size, texts: Texts) -> tuple[int, int]:
    if size is None:
        return _UNKNOWN, 0
    return (_NUMBER, size) if isinstance(size, int) else (_NAME, texts.number(size))


class TypeTable:
    """Types under construction: a type stands behind the one inside it."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self.rows: list[tuple[int, int, int, int, int]] = []  # kind, element type, type inside, rank or -1, first size
        self.sizes: list[Dim] = []

    def number(self, type_: Type) -> int:
        """The number of a type, which is added."""
        inside, dtype, rank, first = -1, "", -1, len(self.sizes)
        if isinstance(type_, (TensorType, SparseTensorType)):
            kind, dtype = (_TENSOR if isinstance(type_, TensorType) else _SPARSE), type_.dtype.name
            if type_.shape is not None:
                rank = len(type_.shape)
                self.sizes += type_.shape
        elif isinstance(type_, MapType):
            kind, dtype, inside = _MAP, type_.key.name, self.number(type_.value)
        else:
            kind = _SEQUENCE if isinstance(type_, SequenceType) else _OPTIONAL
            inside = self.number(type_.element)
        self.rows.append((kind, self._texts.number(dtype), inside, rank, first))
        return len(self.rows) - 1

    def fill(self, tables: dict[str, Any]) -> None:
        """Fill the tables of types."""
        tables["types"] = self.rows
        names = sorted({name for dim in self.sizes for name in symbols_of(dim)})
        table = size_table(self.sizes, names)
        numbers = [self._texts.number(name) for name in names]
        tables["type_rows"] = [(op, numbers[a] if op == SYMBOL else a, b) for op, a, b in table.rows]
        tables["type_sizes"] = table.results


def described(container: Container) -> Description | None:
    """What the tables say; None if they say nothing."""
    if len(container["metadata"]) != 1:
        return None
    types = types_of(container)
    typed: tuple[list[Typed], ...] = ([], [], [])
    for group, name, number in container["typed"].tolist():
        typed[group].append((container.text(name), None if number < 0 else types[number]))
    arguments: tuple[list[Argument], ...] = ([], [], [])
    sizes = container["argument_sizes"].tolist()
    for group, name, type_name, first, rank in container["arguments"].tolist():
        shape = [_size(container, *row) for row in span(sizes, first, rank, "argument_sizes")]
        arguments[group].append((container.text(name), container.text(type_name), shape))
    producer, graph, domain, text, graph_text, version = container["metadata"][0].tolist()
    facts = (container.text(producer), container.text(graph), container.text(domain), container.text(text))
    entries = {container.text(key): container.text(value) for key, value in container["metadata_entries"].tolist()}
    return Description(typed, arguments, (*facts, container.text(graph_text)), version, entries)


def _size(container: Container, kind: int, value: int) -> Size:
    if kind == _NAME:
        if not 0 <= value < container.text_count:
            raise FormatError(f"argument_sizes: there is no text {value}")
        return container.text(value)
    return value if kind == _NUMBER else None


def types_of(container: Container) -> list[Type]:
    """The types of a file, by number."""
    values: list[Dim] = []
    for op, a, b in container["type_rows"].tolist():
        if op == NUMBER:
            values.append(a)
        elif op == SYMBOL:
            values.append(symbol(container.text(a)))
        else:
            try:
                values.append(_APPLY[op](values[a], values[b]))
            except (ValueError, ArithmeticError) as error:
                raise FormatError(f"type_rows: row {len(values)}: {error}") from error
    sizes = [values[row] for row in container["type_sizes"][:, 0].tolist()]
    types: list[Type] = []
    for kind, dtype, inside, rank, first in container["types"].tolist():
        if inside >= len(types) or (kind in (_SEQUENCE, _OPTIONAL, _MAP)) != (inside >= 0):
            raise FormatError(f"types: type {len(types)} is made of type {inside}")
        shape = None if rank < 0 else tuple(span(sizes, first, rank, "type_sizes"))
        if kind in (_SEQUENCE, _OPTIONAL):
            types.append(SequenceType(types[inside]) if kind == _SEQUENCE else OptionalType(types[inside]))
            continue
        try:
            element = dtypes.from_name(container.text(dtype))
        except (errors.SardonyxError, KeyError, ValueError) as error:
            raise FormatError(f"types: {error}") from error
        if kind == _MAP:
            types.append(MapType(element, types[inside]))
        else:
            types.append((TensorType if kind == _TENSOR else SparseTensorType)(element, shape))
    return types
