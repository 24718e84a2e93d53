"""Models to files: in one piece, or with the large tensors in one aligned file beside the model.

The file of large tensors may have packed forms of them as well, each behind the data it was made of (see `packings`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx.external import Refused, check_location
from sardonyx.formats.onnx.packings import Packed, aligned, entry_of
from sardonyx.formats.onnx.wire import Writer
from sardonyx.formats.onnx.write import Externalise, Listed, keep_inside, list_none, write_model
from sardonyx.formats.shared.replacing import replacing
from sardonyx.ir.graph import Graph, Model, walk
from sardonyx.ir.tensor import ExternalLocation, Tensor
from sardonyx.mapped_file import weight_checksum

_PROTOBUF_LIMIT: Final = (1 << 31) - 1  # bytes; readers built on protobuf refuse more


def model_to_bytes(model: Model, externalise: Externalise = keep_inside) -> bytes:
    """The model in one piece; `externalise` says which initializers have their data elsewhere already."""
    return _checked(write_model(model, externalise)).to_bytes()


def _checked(message: Writer) -> Writer:
    if message.size > _PROTOBUF_LIMIT:
        raise InvalidArgument(
            f"the model would have {message.size} bytes; an ONNX file holds {_PROTOBUF_LIMIT} at most",
            hint="save it with external_data, which puts the weights into a file of their own",
        )
    return message


def save_model(
    model: Model,
    path: str,
    external_data: str | None,
    external_threshold: int,
    alignment: int,
    externalise: Externalise = keep_inside,
    packings: Mapping[int, Sequence[Packed]] | None = None,
    listed: Listed = list_none,
) -> None:
    """Write the model, and its external data if asked to; whoever reads the path meanwhile sees the old file or the new one.

    `externalise` says which initializers have their data elsewhere already: none of it is written. `packings` has, by the ids of
    tensors, their packed forms: those of external data are written behind it. Initializers that `listed` names are written as
    lists of numbers.
    """
    placed: dict[int, tuple[ExternalLocation, Tensor]] = {}
    if external_data is not None:
        _check_name(external_data, path)
        if alignment < 1:
            raise InvalidArgument(f"alignment is {alignment}, expected 1 or more")
        placed = _assign_locations(model, external_data, external_threshold, alignment, packings or {})

    def location(tensor: Tensor) -> ExternalLocation | None:
        return placed[id(tensor)][0] if id(tensor) in placed else externalise(tensor)

    def message() -> Writer:
        return _checked(write_model(model, location, listed))

    written = message()
    if external_data is not None and placed:
        # The data comes first: a model must never be seen without it.
        with replacing(os.path.join(os.path.dirname(path), external_data)) as file:
            entries = _write_data(file, placed, packings or {})
        if entries:
            placed = {
                key: (replace(location, packings=entries.get(key, ())), tensor) for key, (location, tensor) in placed.items()
            }
            written = message()
    with replacing(path) as file:
        file.writelines(written.parts)


_Placed = dict[int, tuple[ExternalLocation, Tensor]]  # by the ids of tensors


def _write_data(file: BinaryIO, placed: _Placed, packings: Mapping[int, Sequence[Packed]]) -> dict[int, tuple[str, ...]]:
    """Write tensors, each followed by its packed forms; what is to be said of those, by the ids of tensors."""
    locations = {key: location for key, (location, _) in placed.items()}
    entries: dict[int, tuple[str, ...]] = {}
    for key, (location, tensor) in placed.items():
        file.write(bytes(location.offset - file.tell()))
        file.write(tensor.raw())
        said = []
        for packed in packings.get(key, ()):
            start = aligned(file.tell(), packed.nbytes)
            content = np.ascontiguousarray(packed.content()).reshape(-1).view(np.uint8).data
            file.write(bytes(start - file.tell()))
            file.write(content)
            said.append(entry_of(packed.key(locations), start, len(content), weight_checksum(content)))
        if said:
            entries[key] = tuple(said)
    return entries


def _check_name(location: str, path: str) -> None:
    try:
        check_location(location)
    except Refused as refused:
        raise InvalidArgument(f"external_data: {refused}") from None
    if os.path.normpath(location) == os.path.basename(path):
        raise InvalidArgument(f"external_data is {location!r}, the name of the model file itself")


def _graphs(model: Model) -> Iterator[Graph]:
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield graph
        for node in walk(graph):
            yield from node.subgraphs()


def _assign_locations(
    model: Model, location: str, threshold: int, alignment: int, packings: Mapping[int, Sequence[Packed]]
) -> _Placed:
    """Where each large initializer comes to lie; one that is used twice is written once."""
    placed: _Placed = {}
    end = 0
    for _, tensor in dense_initializers(model):
        size = 0 if tensor.dtype is dtypes.STRING else tensor.nbytes
        if not size or size < threshold or id(tensor) in placed:
            continue
        offset = -(-end // alignment) * alignment
        placed[id(tensor)] = ExternalLocation(location, offset, size), tensor
        end = offset + size
        for packed in packings.get(id(tensor), ()):
            end = aligned(end, packed.nbytes) + packed.nbytes
    return placed


def dense_initializers(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Every initializer that is a dense tensor, with its name: those of the main graph first, then those of the graphs in it."""
    for graph in _graphs(model):
        for value in graph.initializers.values():
            if isinstance(value.constant, Tensor):
                yield value.name, value.constant
