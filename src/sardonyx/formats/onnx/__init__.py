"""ONNX models and tensors: files to the graph IR and back, without the onnx package or protobuf.

model = load("model.onnx")                               the file is mapped; weights stay where they are
model = load(data, base_dir="weights")                   bytes, with external data in a folder
save(model, "out.onnx", external_data="out.onnx.data")   large weights in a file beside it
array = load_tensor("input_0.pb")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from numpy.typing import NDArray

from sardonyx.errors import InvalidProtobuf
from sardonyx.formats.onnx import external, schema
from sardonyx.formats.onnx.context import ReadContext
from sardonyx.formats.onnx.packings import Packed
from sardonyx.formats.onnx.read import read_model
from sardonyx.formats.onnx.save import dense_initializers, model_to_bytes, save_model
from sardonyx.formats.onnx.values import read_value, root_message, write_optional, write_value
from sardonyx.formats.onnx.wire import WireError
from sardonyx.formats.onnx.write import Externalise, Listed, keep_inside, list_none
from sardonyx.formats.shared.source import open_source, recognise
from sardonyx.ir.graph import Model
from sardonyx.ir.types import OptionalType, Type

__all__ = [
    "dense_initializers",
    "load",
    "load_tensor",
    "load_value",
    "load_with_problems",
    "save",
    "tensor_to_bytes",
    "to_bytes",
    "value_to_bytes",
]

_Result = TypeVar("_Result")


def load(
    source: Any,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external_files: Mapping[str, Any] | None = None,
    replaced: Collection[str] = (),
) -> Model:
    """Read a model from a path, bytes, a memoryview, a binary file, or an object with SerializeToString.

    A file is mapped and its weights are views of the mapping; a buffer handed over must stay unchanged while the model is used.
    External data is looked for beside the file, or in `base_dir` if that is given; `external_files` has, by location, buffers
    that stand for files; `replaced` names initializers that will get other data, so that theirs may be missing. Raises
    InvalidProtobuf for bytes that are no model, InvalidGraph (with all problems) for a model that makes no sense, NoSuchFile for
    a file that is not there.
    """
    model, path = _read(source, "model", "Model", read_model, base_dir, external_files, replaced)
    model.path = path
    return model


def load_with_problems(source: Any) -> tuple[Model, tuple[str, ...]]:
    """A model as far as it can be read, for looking at it, and all for which `load` refuses it.

    Names nothing defines have values without a type; nodes of a cycle come last. Bytes that are no model raise as for `load`.
    """
    found: list[str] = []

    def read(ctx: ReadContext) -> Model:
        ctx.tolerant = True
        model = read_model(ctx)
        found.extend(ctx.problems)
        return model

    model, path = _read(source, "model", "Model", read, None, None)
    model.path = path
    return model, tuple(found)


def load_tensor(source: Any) -> NDArray[Any]:
    """The array in a TensorProto file, or in its bytes."""
    array: NDArray[Any] = load_value(source, None)
    return array


def load_value(source: Any, type_: Type | None) -> Any:
    """The value in a file with one TensorProto, SequenceProto, MapProto, OptionalProto or SparseTensorProto.

    The file does not say which of them it holds: `type_` does. None stands for a tensor.
    """
    return _read(source, "tensor", root_message(type_), read_value, None, None)[0]


def _read(
    source: Any,
    what: str,
    message: str,
    read: Callable[[ReadContext], _Result],
    base_dir: str | os.PathLike[str] | None,
    given: Mapping[str, Any] | None,
    replaced: Collection[str] = (),
) -> tuple[_Result, str]:
    opened = open_source(source, what)
    if opened.path and base_dir is None:
        files = external.for_model(opened.path, given)
    else:
        files = external.for_folder(None if base_dir is None else os.fsdecode(base_dir), given)
    ctx = ReadContext(opened.buf, opened.name, files, message, replaced)
    if not len(opened.buf) and message not in ("Sequence", "Map", "Optional"):  # no bytes are an empty sequence
        raise InvalidProtobuf(f"{opened.name}: not an ONNX file: it is empty (0 bytes)")
    try:
        return read(ctx), opened.path
    except WireError as error:
        meaning, remedy = recognise(opened)
        stranger = "not an ONNX file: " if meaning or not schema.can_begin(message, opened.buf[0]) else ""
        text = f"{opened.name}: {stranger}{error.text} ({ctx.location(error.offset)})"
        raise InvalidProtobuf(f"{text}; this looks like {meaning}" if meaning else text, hint=remedy) from None


def to_bytes(model: Model, externalise: Externalise = keep_inside) -> bytes:
    """The model as the bytes of an ONNX file; InvalidArgument if that would be more than 2 GB.

    All data is inside, but for initializers of which `externalise` says that their data lies elsewhere already.
    """
    return model_to_bytes(model, externalise)


def save(
    model: Model,
    path: str | os.PathLike[str],
    *,
    external_data: str | None = None,
    external_threshold: int = 1024,
    alignment: int = 4096,
    externalise: Externalise = keep_inside,
    packings: Mapping[int, Sequence[Packed]] | None = None,
    listed: Listed = list_none,
) -> None:
    """Write the model to a file, which appears complete or not at all.

    `external_data` names a file beside it that takes every initializer of `external_threshold` bytes or more, each at a multiple
    of `alignment`. Without it everything goes into the one file, which can hold 2 GB, but for initializers of which
    `externalise` says that their data lies elsewhere already. `packings` are packed forms of tensors, by their ids, which are
    written behind the external data. Small initializers may be written as lists of numbers, as ONNX's own helpers write them,
    for programs that look there: `listed` says by name which are.
    """
    save_model(model, os.fsdecode(path), external_data, external_threshold, alignment, externalise, packings, listed)


def tensor_to_bytes(array: Any, name: str = "") -> bytes:
    """The bytes of a TensorProto file with this array."""
    return write_value(array, name).to_bytes()


def value_to_bytes(value: Any, type_: Type | None = None, name: str = "") -> bytes:
    """The bytes of a file with this value; `type_` matters for optionals, which hold a value or None."""
    return (write_optional if isinstance(type_, OptionalType) else write_value)(value, name).to_bytes()
