"""External data: the bytes of tensors that lie in files beside the model.

    initializer "w": location "weights.bin", offset 4096, length 65536   ->   a slice of the mapped file

A model is untrusted, so what it may name is narrow: a regular file below the model's folder. Absolute paths and ".." are
refused, and so is a symbolic link that leads out of the folder. Download caches keep a model as a link to a blob in a folder of
blobs, and its data likewise; therefore the folder of the file the model's own path resolves to counts as the model's folder, too.

Files are looked at when the model is read (present, regular, large enough) and mapped when the first tensor in them is
used, once each. A file that was exchanged in between is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Final

from sardonyx.errors import Fail, MissingData
from sardonyx.formats.shared.source import as_memoryview
from sardonyx.mapped_file import FileIdentity, identity_at, identity_of, map_file

_READ_BELOW: Final = 1 << 16  # small files are read: some models have thousands, and mappings of a process are limited
_WHERE: Final = (
    "external data is looked for beside the model's file, that of a session's model in memory in the current folder; "
    "the configuration entry session.model_external_initializers_file_folder_path names another folder"
)
_MEMORY_MARKER: Final = "*/_ORT_MEM_ADDR_/*"


class Refused(Exception):
    """An external location that a model may not name; the text says why."""


class ExternalFile:
    """One file of external data, mapped at first use."""

    __slots__ = ("_buffer", "_identity", "path", "size")

    def __init__(self, path: str, size: int, identity: FileIdentity | None, buffer: memoryview | None = None) -> None:
        self.path = path
        self.size = size
        self._identity = identity
        self._buffer = buffer

    def view(self) -> memoryview:
        """All bytes of the file."""
        if self._buffer is None:
            self._buffer = self._open()
        return self._buffer

    def _open(self) -> memoryview:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise MissingData(f"external data file {self.path!r} can no longer be opened: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if self._identity is None or identity_of(found)[:4] != self._identity[:4]:  # a new link to it is no matter
                raise Fail(f"external data file {self.path!r} has changed since the model was read", hint="load the model again")
            if self.size < _READ_BELOW:
                return memoryview(file.read(self.size))
            return map_file(descriptor, self.size)


class ExternalFiles:
    """Finds the files a model's external tensors name.

    `folder` is where locations start, `roots` the resolved folders a file must lie in; `given` are buffers that stand for files.
    """

    def __init__(self, folder: str | None, roots: tuple[str, ...] = (), given: Mapping[str, Any] | None = None) -> None:
        self._folder = folder
        self._roots = roots
        self._given = {_normal(location): buffer for location, buffer in (given or {}).items()}
        self._by_location: dict[str, ExternalFile] = {}
        self._by_path: dict[str, ExternalFile] = {}
        self.looked_at: dict[str, FileIdentity | None] = {}  # what was where data was looked for; None: nothing

    def find(self, location: str, tensor: str) -> ExternalFile:
        """The file at `location`; Refused if a model may not name it, MissingData if it is not there."""
        file = self._by_location.get(location)
        if file is None:
            file = self._by_location[location] = self._find(location, tensor)
        return file

    def _find(self, location: str, tensor: str) -> ExternalFile:
        check_location(location)
        given = self._given.get(_normal(location))
        if given is not None:
            view = as_memoryview(given)
            return ExternalFile(location, len(view), None, view)
        if self._folder is None:
            raise MissingData(
                f"tensor {tensor!r} has its data in {location!r}, and a model given as bytes has no folder to look in",
                hint="pass base_dir (the folder of the data) or external_files (the data itself), or load from a path",
            )
        # A link to the model alone leaves the data where the model really is.
        candidates = [os.path.join(folder, location) for folder in (self._folder, *self._roots)]
        path = candidates[0]
        for candidate in candidates:
            self.looked_at[candidate] = identity_at(candidate)
            if self.looked_at[candidate] is not None:
                path = candidate
                break
        resolved = os.path.realpath(path)
        if not any(_is_inside(resolved, root) for root in self._roots):
            raise Refused(f"{location!r} leads to {resolved!r}, outside of the model's folder {self._roots[0]!r}")
        file = self._by_path.get(resolved)
        if file is None:
            file = self._by_path[resolved] = _look_at(resolved, path, tensor)
        return file


def for_model(path: str, given: Mapping[str, Any] | None = None) -> ExternalFiles:
    """The external files of the model at `path`."""
    folder = os.path.dirname(os.path.abspath(path))
    return ExternalFiles(folder, (os.path.realpath(folder), os.path.dirname(os.path.realpath(path))), given)


def for_folder(folder: str | None, given: Mapping[str, Any] | None = None) -> ExternalFiles:
    """The external files of a model that did not come from a path: those in `folder`, if one is given."""
    if folder is None:
        return ExternalFiles(None, (), given)
    return ExternalFiles(os.path.abspath(folder), (os.path.realpath(folder),), given)


def check_location(location: str) -> None:
    """Refused, with the reason, if a model may not name this location, whatever lies there."""
    if not location:
        raise Refused("the location of its external data is missing")
    if location == _MEMORY_MARKER:
        raise Refused("its external data is an address in the memory of the process that wrote the model")
    if "\0" in location:
        raise Refused(f"the location {location!r} contains a zero byte")
    from pathlib import PurePosixPath, PureWindowsPath  # lazy: most models have no external data

    for flavour in (PurePosixPath(location), PureWindowsPath(location)):
        if flavour.is_absolute() or flavour.drive or flavour.root:
            raise Refused(f"the location {location!r} is absolute; it must be relative to the model's folder")
        if ".." in flavour.parts:
            raise Refused(f"the location {location!r} contains '..', which could leave the model's folder")


def _normal(location: str) -> str:
    return os.path.normpath(location) if location else location


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _look_at(resolved: str, path: str, tensor: str) -> ExternalFile:
    try:
        found = os.stat(resolved)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise MissingData(f"tensor {tensor!r} has its data in {path!r}, which cannot be read: {reason}", hint=_WHERE) from error
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path!r} is not a regular file")
    return ExternalFile(resolved, found.st_size, identity_of(found))
