"""Packed weights in the files of models: what a packing is known by there, and how one is found.

    sardonyx.pack_strips.1.x86_64-256x16+0f3c…        transform, its version, what packings depend on of the machine + digest

The digest names the constants it was made of (the range of the file and its checksum), the parts of them and all parameters. So
weights that were changed since, another version and another machine look for other keys, find nothing and pack as always. What
is found must have the right size and checksum; else it is not used, with a warning. The bytes stay in the mapped file: no copy,
and processes that open the same model share them.

Only transforms whose results kernels compute with are taken from files (`Transform.is_numbers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from math import prod
from operator import attrgetter
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.formats.onnx.packings import PREFIX, Packed
from sardonyx.ir.tensor import ExternalLocation, Tensor
from sardonyx.program.constants import Constant, Derived, key_of
from sardonyx.runtime.known_checksums import KnownChecksums

Array = np.ndarray[Any, Any]

_SMALL: Final = 1 << 16  # bytes of constants that are known by their content, wherever they lie

_log = logging.getLogger("sardonyx")


class _Unsaved(Exception):
    """A constant is made of something that no file has."""


def _tensors(constant: Constant) -> Iterator[Tensor]:
    """The data of the model that a constant is made of."""
    if isinstance(constant, Tensor):
        yield constant
        return
    for part in constant.sources:
        if part is not None:
            yield from _tensors(part.constant)


def _is_numbers(constant: Constant) -> bool:
    if isinstance(constant, Tensor):
        return True
    parts = (part.constant for part in constant.sources if part is not None)
    return constant.transform.is_numbers and all(_is_numbers(each) for each in parts)


def packing_key(
    constant: Derived,
    location_of: Callable[[Tensor], ExternalLocation | None],
    checksum_of: Callable[[Tensor], int] = attrgetter("checksum"),
) -> str:
    """What a packed constant is known by in the file of its model, given where the model's data lies there."""

    def identity(tensor: Tensor) -> str:
        location = location_of(tensor)
        if location is not None:
            return f"{location.offset}+{location.length}+{checksum_of(tensor):08x}"
        if tensor.dtype is dtypes.STRING or tensor.nbytes > _SMALL:
            raise _Unsaved
        return tensor.digest

    digest = blake2b(key_of(constant, identity).encode(), digest_size=20).hexdigest()
    target = constant.target.replace(" ", "-")
    return f"{PREFIX}{constant.transform.name}.{constant.transform.version}.{target}+{digest}"


def _size(constant: Derived) -> int:
    return prod(constant.shape) * constant.dtype.numpy.itemsize


def saved_packing(constant: Derived, checksums: KnownChecksums) -> Array | None:
    """A packed constant in the file that has the data it is made of; None if there is none that can be used."""
    known = [packing for tensor in _tensors(constant) for packing in tensor.packings]
    if not known or not _is_numbers(constant):
        return None
    try:
        key = packing_key(constant, lambda tensor: tensor.external, checksums.of_tensor)
    except _Unsaved:
        return None
    for packing in known:
        if packing.key != key:
            continue
        need = _size(constant)
        if packing.length != need:
            text = "packed weights %r have %d bytes, expected %d: they are packed again"
            _log.warning(text, key, packing.length, need)
            continue
        content = packing.file()[packing.offset : packing.offset + packing.length]
        if f"{checksums.of(content):08x}" != packing.checksum:
            _log.warning("packed weights %r are damaged (wrong checksum): they are packed again", key)
            continue
        found = np.frombuffer(content, constant.dtype.numpy).reshape(constant.shape)
        if not found.flags.writeable:
            return found
    return None


def packings_of(constants: Mapping[Derived, Callable[[], Array]], tensors: Mapping[int, Tensor]) -> dict[int, list[Packed]]:
    """How packed constants are to be written beside `tensors`, the external data of a model by their ids; by those ids.

    Constants that are made of other data are left out: whoever opens the model makes them.
    """
    found: dict[int, list[Packed]] = {}
    for constant, array_of in constants.items():
        home = next((tensor for tensor in _tensors(constant) if id(tensor) in tensors), None)
        if home is None or not _is_numbers(constant):
            continue

        key = partial(_written_key, constant)
        try:
            key({each: ExternalLocation("", 0, tensor.nbytes) for each, tensor in tensors.items()})
        except _Unsaved:
            continue
        found.setdefault(id(home), []).append(Packed(_size(constant), key, array_of))
    return found


def _written_key(constant: Derived, locations: Mapping[int, ExternalLocation]) -> str:
    return packing_key(constant, lambda tensor: locations.get(id(tensor)))
