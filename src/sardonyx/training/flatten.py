"""Nested inputs and outputs as a flat list of tensors and a schema, and back.

    value   {"x": tensor, "more": [tensor, None], "n": 3}
    leaves  [tensor, tensor, 3]
    schema  MappingSchema(dict, ("x", "more", "n"), (TensorSchema(float32, 2), SequenceSchema(list, (...)), ScalarSchema(int)))

Tensors, and numbers that may change from call to call, are *leaves*: they become graph inputs or outputs, numbers as tensors
of rank 0. None, bool and str decide what a module does, so their values belong to the schema, and two calls that differ in
them have different schemas; so do numbers, if `numbers` says that they are constants. Schemas are tuples: comparing two costs
well under a microsecond a tensor, which is what makes it cheap to look at the inputs of every call.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import torch


class TensorSchema(NamedTuple):
    """A tensor: what a graph depends on, element type and rank; sizes may differ from call to call."""

    dtype: torch.dtype
    rank: int


class ScalarSchema(NamedTuple):
    """A number whose value may differ from call to call: it is fed as a tensor of rank 0."""

    type: type


class ConstantSchema(NamedTuple):
    """A value that is part of the graph: None, bool, str, or a number that the graph has taken up."""

    type: type
    value: Any


class SequenceSchema(NamedTuple):
    """A list, a tuple, a named tuple, or another sequence that can be made of its elements."""

    type: type
    children: tuple[Any, ...]


class MappingSchema(NamedTuple):
    """A dict or another mapping, as the outputs of transformers' models."""

    type: type
    keys: tuple[Any, ...]
    children: tuple[Any, ...]


class RecordSchema(NamedTuple):
    """A dataclass that is no mapping, or a cache of keys and values that a model of transformers gives back."""

    type: type
    names: tuple[str, ...]
    children: tuple[Any, ...]


Schema: TypeAlias = TensorSchema | ScalarSchema | ConstantSchema | SequenceSchema | MappingSchema | RecordSchema
Leaf: TypeAlias = torch.Tensor | int | float

_NUMBERS: Final = (int, float)
_CONSTANTS: Final = (bool, str, type(None), torch.dtype, torch.device)
_PLAIN_MAPPINGS: Final = (dict, collections.OrderedDict)


class UnsupportedType(TypeError):
    """A value that neither is nor holds tensors, numbers, text and None; the message says where it sits.

    `path` is where, as an expression (`batch['x'][0]`); `found` is the type.
    """

    def __init__(self, path: str, found: type) -> None:
        super().__init__(
            f"{path} is a {found}; expected tensors, None, str, bool, int, float, or lists, tuples, named tuples, dicts and "
            "dataclasses of them: pass its tensors one by one, or make it a dataclass"
        )
        self.path = path
        self.found = found


def flatten(value: Any, leaves: list[Leaf], *, numbers: bool = True, caches: bool = False, path: str = "the value") -> Schema:
    """Append the leaves of a value, depth first, and return its schema.

    `numbers` says whether an int or float is a leaf (True) or a constant of the schema; `caches`, whether those of transformers
    are taken apart: a result may hold one, but one that is passed would have to be changed by the call. UnsupportedType says
    where a value of another type sits; `path` is how messages call the whole.
    """
    try:
        return _Flattener(leaves, numbers, caches).schema(value)
    except _Found as found:
        raise UnsupportedType(path + "".join(reversed(found.steps)), found.type) from None


def fits(schema: Schema, value: Any, leaves: list[Leaf], *, numbers: bool = True) -> bool:
    """Whether `flatten` would give this schema for a value; appends the leaves, as far as it fits.

    It costs a fraction of flattening, since nothing is made: what is there is compared.
    """
    return _fits(schema, value, leaves, numbers)


def _fits(schema: Schema, value: Any, leaves: list[Leaf], numbers: bool) -> bool:
    """The same; lists take half the time of generators."""
    if isinstance(schema, TensorSchema):
        if not isinstance(value, torch.Tensor) or value.dtype is not schema.dtype or value.ndim != schema.rank:
            return False
        leaves.append(value)
        return True
    expected: Any = schema.type
    if type(value) is not expected:
        return False
    if isinstance(schema, SequenceSchema):
        if len(schema.children) != len(value):
            return False
        return False not in [_fits(child, item, leaves, numbers) for child, item in zip(schema.children, value)]
    if isinstance(schema, MappingSchema):
        if schema.keys != tuple(value):
            return False
        return False not in [_fits(child, value[key], leaves, numbers) for key, child in zip(schema.keys, schema.children)]
    if isinstance(schema, ScalarSchema):
        leaves.append(value)
        return numbers
    if isinstance(schema, ConstantSchema):
        return bool(schema.value == value) and not (numbers and schema.type in _NUMBERS)
    return flatten(value, leaves, numbers=numbers) == schema


class _Found(Exception):
    """An unsupported value on its way up: each level adds the step that leads to it, innermost first."""

    def __init__(self, type: type) -> None:
        self.type = type
        self.steps: list[str] = []


class _Flattener:
    """Takes values apart, and gathers their leaves."""

    def __init__(self, leaves: list[Leaf], numbers: bool, caches: bool) -> None:
        self._leaves, self._numbers, self._caches = leaves, numbers, caches

    def schema(self, value: Any) -> Schema:
        if isinstance(value, torch.Tensor):
            self._leaves.append(value)
            return TensorSchema(value.dtype, value.ndim)
        kind = type(value)
        if kind in _NUMBERS:
            if self._numbers:
                self._leaves.append(value)
                return ScalarSchema(kind)
            return ConstantSchema(kind, value)
        if kind in _CONSTANTS or isinstance(value, (str, bool)):
            return ConstantSchema(kind, value)
        if isinstance(value, Mapping):
            return MappingSchema(kind, tuple(value), self._children((f"[{key!r}]", item) for key, item in value.items()))
        if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview, range)):
            return SequenceSchema(kind, self._children((f"[{index}]", item) for index, item in enumerate(value)))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._record(value, [field.name for field in dataclasses.fields(value)])
        if self._caches and _is_cache(value):
            return self._record(value, vars(value))
        if self._caches and isinstance(value, type):  # a cache says what it makes its layers of
            return ConstantSchema(kind, value)
        raise _Found(kind)

    def _record(self, value: Any, names: Iterable[str]) -> Schema:
        return RecordSchema(type(value), tuple(names), self._children((f".{name}", getattr(value, name)) for name in names))

    def _children(self, items: Iterable[tuple[str, Any]]) -> tuple[Schema, ...]:
        children = []
        for step, item in items:
            try:
                children.append(self.schema(item))
            except _Found as found:
                found.steps.append(step)
                raise
        return tuple(children)


def _is_cache(value: Any) -> bool:
    """Whether a value is a cache of transformers, or a layer of one."""
    module = sys.modules.get("transformers.cache_utils")
    kinds = [getattr(module, name, None) for name in ("Cache", "CacheLayerMixin")]
    return isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type)))


def unflatten(schema: Schema, leaves: Sequence[Any]) -> Any:
    """The value that has this schema and these leaves: what `flatten` took apart."""
    remaining = iter(leaves)
    value = _unflatten(schema, remaining)
    rest = sum(1 for _ in remaining)
    if rest:
        raise ValueError(f"a schema of {len(leaves) - rest} leaves was given {len(leaves)}")
    return value


def _unflatten(schema: Schema, leaves: Iterator[Any]) -> Any:
    match schema:
        case TensorSchema() | ScalarSchema():
            try:
                return next(leaves)
            except StopIteration:
                raise ValueError("there are fewer leaves than the schema has places") from None
        case ConstantSchema(_, value):
            return value
        case SequenceSchema(kind, children):
            items = [_unflatten(child, leaves) for child in children]
            make = getattr(kind, "_make", kind)  # a named tuple takes its elements one by one
            return items if kind is list else make(items)
        case MappingSchema(kind, keys, children):
            return _mapping(kind, dict(zip(keys, (_unflatten(child, leaves) for child in children), strict=True)))
        case RecordSchema(kind, names, children):
            made: Any = object.__new__(kind)  # neither __init__ nor __post_init__: they may change what the fields hold
            for name, child in zip(names, children, strict=True):
                object.__setattr__(made, name, _unflatten(child, leaves))
            return made


def _mapping(kind: Any, items: dict[Any, Any]) -> Any:
    if kind in _PLAIN_MAPPINGS:
        return kind(items)
    if hasattr(kind, "__dataclass_fields__"):  # as the outputs of transformers' models, which are both
        return kind(**items)
    if issubclass(kind, collections.defaultdict):
        return kind(None, items)
    return kind(items)


def is_leaf(schema: Schema) -> bool:
    """Whether one leaf stands for this."""
    return isinstance(schema, (TensorSchema, ScalarSchema))


def leaf_schemas(schema: Schema, name: str) -> Iterator[tuple[str, TensorSchema | ScalarSchema]]:
    """The leaves in order with their names: `name` alone, or followed by `_<index>`, `_<key>` at each level."""
    match schema:
        case TensorSchema() | ScalarSchema():
            yield name, schema
        case SequenceSchema(_, children):
            for index, child in enumerate(children):
                yield from leaf_schemas(child, f"{name}_{index}")
        case MappingSchema(_, keys, children) | RecordSchema(_, keys, children):
            for key, child in zip(keys, children, strict=True):
                yield from leaf_schemas(child, f"{name}_{key}")
        case ConstantSchema():
            return


def constants(schema: Schema, name: str) -> Iterator[tuple[str, ConstantSchema]]:
    """The values that are part of the schema, with the names that leaves in their places would have."""
    match schema:
        case ConstantSchema():
            yield name, schema
        case SequenceSchema(_, children):
            for index, child in enumerate(children):
                yield from constants(child, f"{name}_{index}")
        case MappingSchema(_, keys, children) | RecordSchema(_, keys, children):
            for key, child in zip(keys, children, strict=True):
                yield from constants(child, f"{name}_{key}")
        case _:
            return
