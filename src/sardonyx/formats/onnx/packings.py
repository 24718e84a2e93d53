"""Packed weights beside external data: entries of a tensor that say what lies where.

    location     "m.data"
    offset       "0"
    length       "65536"
    prepacked_0  "sardonyx.pack_strips.1.x86_64-256x16+5e0c…|65536;65536;1f2e…"       key|offset;length;checksum

ONNX Runtime writes and reads the same form, with keys of its own. Of other keys than ours nothing is said here: whoever made
them knows them. What ours cannot mean is passed over with a warning; weights are then packed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sardonyx.formats.onnx.external import ExternalFile
from sardonyx.ir.tensor import ExternalLocation, SavedPacking

PREFIX: Final = "sardonyx."  # begins our keys
ALIGNMENT: Final = 64  # of packed weights: kernels read them where they lie
PAGE_ALIGNMENT: Final = 4096  # of larger ones
_LARGE: Final = 1 << 20
_ENTRY: Final = "prepacked_"

_log = logging.getLogger("sardonyx")


class Packed(NamedTuple):
    """A packed form that is to be written behind a tensor's data."""

    nbytes: int
    key: Callable[[Mapping[int, ExternalLocation]], str]  # given where tensors lie, by their ids
    content: Callable[[], Any]  # an array; asked for once, when it is written


def aligned(position: int, size: int) -> int:
    """Where packed weights of some size may begin, from a position on."""
    step = PAGE_ALIGNMENT if size > _LARGE else ALIGNMENT
    return -(-position // step) * step


def entry_of(key: str, offset: int, length: int, checksum: int) -> str:
    """What is written of one."""
    return f"{key}|{offset};{length};{checksum:08x}"


def read_packings(entries: Mapping[str, str], file: ExternalFile, tensor: str) -> tuple[SavedPacking, ...]:
    """The packed forms of a tensor that its file has, those made here; their bytes are not looked at yet."""
    found = []
    for name, text in entries.items():
        if not name.startswith(_ENTRY) or not text.startswith(PREFIX):
            continue
        key, *pieces = text.split("|")
        numbers = pieces[0].split(";") if len(pieces) == 1 else []
        if len(numbers) != 3 or not all(each.isascii() and each.isdigit() and len(each) < 20 for each in numbers[:2]):
            _log.warning("tensor %r: %s is %r, expected 'key|offset;length;checksum': it is not used", tensor, name, text)
            continue
        offset, length, checksum = int(numbers[0]), int(numbers[1]), numbers[2]
        if offset + length > file.size:
            _log.warning("tensor %r: %s ends at byte %d of %r, which has %d", tensor, name, offset + length, file.path, file.size)
            continue
        if offset % ALIGNMENT:
            _log.warning("tensor %r: %s begins at byte %d, no multiple of %d: it is not used", tensor, name, offset, ALIGNMENT)
            continue
        found.append(SavedPacking(key, offset, length, checksum, file.view))
    return tuple(found)
