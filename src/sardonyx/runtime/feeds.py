"""What a caller feeds -> what a program takes, and back: conversion and checks by the types the model declares.

    NumPy array             as it is; the dtype must be the declared one
    list, tuple, scalar     converted to the declared dtype, if no value changes by it
    OrtValue, SparseTensor  what they hold
    __dlpack__, __array__   the array they give (torch tensors too, also those that require gradients)
    sequence, map, optional list, dict, None

Every refusal names the input, what came and what is expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.dtypes import DType
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import MapType, OptionalType, PlainMaps, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.runtime import dlpack, feed_hints
from sardonyx.runtime.sparse import SparseTensor
from sardonyx.runtime.values import OrtValue, type_of

_FIX = " Please fix either the inputs/outputs or the model."


class DeclaredPort(Protocol):
    """An input or output: its name and declared type."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> Type | None: ...


class MissingInputs(errors.InvalidArgument):
    """Inputs were left out of a feed; its text is exactly ONNX Runtime's, unless a name is misspelt: then it says so, too."""

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class Unconvertible(errors.InvalidArgument, RuntimeError):
    """Of a Python value no value of an ONNX type can be made. ONNX Runtime raises RuntimeError then, which this is as well."""


class FeedReader:
    """Checks and converts the feeds of one model."""

    def __init__(self, inputs: Iterable[DeclaredPort], overridable: Iterable[DeclaredPort] = ()) -> None:
        inputs = list(inputs)
        self._types = {port.name: port.type for port in [*inputs, *overridable]}
        self._required = [port.name for port in inputs if not isinstance(port.type, OptionalType)]
        self._optional = [port.name for port in inputs if isinstance(port.type, OptionalType)]
        self._names = [port.name for port in inputs]

    def require(self, feed: Mapping[str, Any]) -> None:
        """Refuse a feed that is no dictionary or lacks an input."""
        if not isinstance(feed, Mapping):
            raise TypeError(f"expected a dictionary {{input name: value}} as feed, got {type(feed).__name__}")
        missing = [name for name in self._required if name not in feed]
        if missing:
            unknown = [name for name in feed if isinstance(name, str) and name not in self._types]
            text = f"Required inputs ({missing}) are missing from input feed ({list(feed)})."
            raise MissingInputs(text, hint=feed_hints.missing_hint(missing, unknown))

    def read(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a feed as the program takes them; absent optional inputs are None."""
        self.require(feed)
        values = {name: self.convert(name, value) for name, value in feed.items()}
        for name in self._optional:
            values.setdefault(name, None)
        return values

    def explain(self, error: errors.SardonyxError, feed: Mapping[str, Any]) -> None:
        """Give the error of a run a hint, if the feed contradicts itself."""
        if not error.hint:
            error.hint = feed_hints.disagreement(feed, self._types)

    def convert(self, name: str, value: Any) -> Any:
        """One value of a feed as the program takes it."""
        try:
            expected = self._types[name]
        except KeyError:
            if not isinstance(name, str):
                raise TypeError(f"names of inputs are strings, got {name!r}") from None
            raise errors.InvalidArgument(f"Invalid input name: {name}", hint=feed_hints.name_hint(name, self._names)) from None
        if type(value) is np.ndarray and isinstance(expected, TensorType):
            dtype = expected.dtype
            if value.dtype == dtype.numpy and dtype is not dtypes.STRING:
                check_shape(name, value.shape, expected)
                return value
        return convert(name, value, expected)


def convert(name: str, value: Any, expected: Type | None) -> Any:
    """A value as a program takes it for an input of this type."""
    if isinstance(value, OrtValue):
        value = value.value
    if isinstance(expected, OptionalType):
        return None if value is None else convert(name, value, expected.element)
    if isinstance(expected, SequenceType):
        if not isinstance(value, (list, tuple)):
            _refuse(name, value, expected)
        return [convert(f"{name}[{index}]", item, expected.element) for index, item in enumerate(value)]
    if isinstance(expected, MapType):
        if not isinstance(value, Mapping):
            _refuse(name, value, expected)
        return _map(name, value, expected)
    if isinstance(value, SparseTensor):
        if isinstance(expected, TensorType):
            _refuse(name, value, expected)
        value = value.to_dense()
    if value is None or isinstance(value, Mapping):
        _refuse(name, value, expected)
    if expected is None:
        return as_array(name, value)
    array = _tensor(name, value, expected)
    check_shape(name, array.shape, expected)
    return array


def _map(name: str, value: Mapping[Any, Any], expected: MapType) -> dict[Any, Any]:
    wants_text = expected.key is dtypes.STRING
    for key in value:
        if isinstance(key, str) is not wants_text or not isinstance(key, (str, int, np.integer)):
            kind = "std::string" if wants_text else "int64_t"  # ONNX Runtime's words, two spaces included
            raise Unconvertible(f"Unexpected key type  {type(key)}, it cannot be linked to C type {kind} for input {name!r}.")
    return {key: _map_value(name, key, item, expected) for key, item in value.items()}


def _map_value(name: str, key: Any, item: Any, expected: MapType) -> Any:
    """One value of a map, in the map's type: text for strings, any number for floats, integers alone for integers."""
    if not isinstance(expected.value, TensorType):
        return convert(f"{name}[{key!r}]", item, expected.value)
    dtype = expected.value.dtype
    number = item.reshape(())[()] if isinstance(item, np.ndarray) and item.size == 1 else item
    if dtype is dtypes.STRING and isinstance(number, (str, bytes)):
        return number
    kinds = (int, np.integer, np.bool_, float, np.floating) if dtype.is_float else (int, np.integer, np.bool_)
    if dtype is not dtypes.STRING and isinstance(number, kinds):
        try:
            return dtype.numpy.type(number)
        except OverflowError:  # an integer of more bits
            pass
    raise Unconvertible(
        f"Unexpected value type  {type(item)} of key {key!r} for input {name!r}: {item!r} is no value of {expected.ort}"
    )


def _tensor(name: str, value: Any, expected: TensorType | SparseTensorType) -> Array:
    dtype = expected.dtype
    if isinstance(value, (bool, int, float, complex, str, bytes, list, tuple, np.generic)):
        return _from_python(name, value, expected)
    array = as_array(name, value)
    try:
        found = dtypes.from_numpy(array.dtype)
    except ValueError as error:
        raise Unconvertible(f"input {name!r}: {error}; expected {expected.ort}") from None
    if found is not dtype:
        _refuse(name, array, expected)
    if dtype is dtypes.STRING:
        return text_array(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_array(name: str, value: Any) -> Array:
    """The array another library's object gives."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a torch tensor that requires gradients exports nothing
        value = value.detach()
    if hasattr(value, "__dlpack__"):
        try:
            return dlpack.from_dlpack(value)
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            if not hasattr(value, "__array__"):
                raise Unconvertible(f"input {name!r}: {error}") from error
    try:
        array: Array = np.asarray(value)
    except Exception as error:  # whatever an object's own __array__ raises
        raise Unconvertible(f"input {name!r}: no array can be made of {type(value).__name__}: {error}") from error
    if array.dtype == object and array.ndim == 0:
        raise Unconvertible(f"input {name!r}: Unable to handle object of type {type(value)}")
    return array


def _from_python(name: str, value: Any, expected: TensorType | SparseTensorType) -> Array:
    """Numbers and text without a dtype of their own, in the dtype that is expected."""
    dtype = expected.dtype
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    try:
        array: Array = np.asarray(value)
    except ValueError as error:
        raise Unconvertible(f"input {name!r}: Could not create tensor from given input list: {error}") from None
    if dtype is dtypes.STRING:
        if array.dtype.kind not in "USO" and array.size:
            _refuse(name, array, expected, Unconvertible)
        return text_array(array)
    if array.size == 0:
        return array.astype(dtype.numpy)
    try:
        found = dtypes.from_numpy(array.dtype)
    except ValueError:
        _refuse(name, array, expected, Unconvertible)
    if not _fits(found, dtype):
        _refuse(name, array, expected, Unconvertible)
    if dtype.is_integer:
        low, high = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype in dtypes.SIGNED else (0, (1 << dtype.bits) - 1)
        smallest, largest = int(array.min()), int(array.max())
        if smallest < low or largest > high:
            raise Unconvertible(f"input {name!r}: {smallest} to {largest} does not fit {expected.ort}, expected {low} to {high}")
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy)


def _fits(found: DType, wanted: DType) -> bool:
    if found is wanted:
        return True
    if wanted in (dtypes.COMPLEX64, dtypes.COMPLEX128):
        return found is not dtypes.STRING
    if wanted.is_float:
        return found.is_float or found.is_integer or found is dtypes.BOOL
    return wanted.is_integer and (found.is_integer or found is dtypes.BOOL)


def text_array(array: Array) -> Array:
    """An array of any of NumPy's string kinds as an object array of `str`; bytes are UTF-8."""
    kind = array.dtype.kind
    if kind == "S":
        array = np.char.decode(array, "utf-8", "surrogateescape")
    if kind in "UST":
        return array.astype(object)
    if kind == "O" and set(map(type, array.reshape(-1).tolist())) <= {str}:
        return array
    result: Array = np.empty(array.shape, object)
    items = (item.tobytes() if isinstance(item, np.void) else item for item in array.reshape(-1))
    result.reshape(-1)[:] = [_text(item) for item in items]
    return result


def _text(item: Any) -> str:
    if isinstance(item, str):
        return item
    return item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)


def check_shape(name: str, found: Sequence[int], expected: TensorType | SparseTensorType, what: str = "input") -> None:
    """Refuse a shape whose rank or a fixed size is not the declared one.

    As in ONNX Runtime, a declared scalar takes any shape: programs feed arrays of one element there.
    """
    shape = expected.shape
    if not shape:
        return
    if len(found) != len(shape):
        text = f"Invalid rank for {what}: {name} Got: {len(found)} Expected: {len(shape)}{_FIX}"
        raise errors.InvalidArgument(text, hint=feed_hints.shape_hint(name, found, shape) if what == "input" else "")
    for size, dim in zip(found, shape):
        if size != dim and isinstance(dim, int):
            wrong = (
                f" index: {axis} Got: {got} Expected: {wanted}\n"
                for axis, (got, wanted) in enumerate(zip(found, shape))
                if got != wanted and isinstance(wanted, int)
            )
            text = f"Got invalid dimensions for {what}: {name} for the following indices\n{''.join(wrong)}{_FIX}"
            raise errors.InvalidArgument(text, hint=feed_hints.shape_hint(name, found, shape) if what == "input" else "")


def _refuse(
    name: str, value: Any, expected: Type | None, kind: type[errors.InvalidArgument] = errors.InvalidArgument
) -> NoReturn:
    found = type_of(list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value)
    actual = found.ort if found is not None else "None" if value is None else type(value).__name__
    wanted = expected.ort if expected is not None else "a tensor"
    text = f"Unexpected input data type. Actual: ({actual}) , expected: ({wanted}) for input: {name}"
    error = kind if isinstance(value, np.ndarray) else Unconvertible
    raise error(text, hint=feed_hints.dtype_hint(name, value, expected))


def present(value: Any, declared: Type | None) -> Any:
    """A result as callers get it: sparse outputs as SparseTensor, numbers in maps as Python's."""
    if isinstance(declared, OptionalType):
        declared = declared.element
    if isinstance(declared, SparseTensorType) and isinstance(value, np.ndarray):
        return SparseTensor.from_dense(value)
    if isinstance(value, list) and value and not isinstance(value[0], np.ndarray):
        return list(value) if isinstance(value, PlainMaps) else [present(item, None) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


def _plain(item: Any) -> Any:
    if isinstance(item, np.ndarray) and item.ndim == 0:
        item = item[()]
    return item.item() if isinstance(item, np.generic) and item.dtype.isbuiltin == 1 else item
