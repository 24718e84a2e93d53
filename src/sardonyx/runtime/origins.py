"""The files a saved program was made of: whether they are still what they were, without reading all of them.

A program belongs to the content of its model, not to the file's name or times: its key has the digest of the content. Reading a
model of 400 MB to digest it takes longer than opening its program, so the digest is remembered beside what the file system says
of the file (device, inode, size, times of change). A file whose identity is the remembered one is taken to have that digest if

- it was not changed just before it was read: times have steps, and a second change may fall into the same one; and
- a sample of its content has the remembered checksum: all of a file up to 64 KB, 16 blocks of a larger one. That is for file
  systems whose times cannot be relied on.

Any other file is read whole. So a copied, moved or touched model keeps its program, and a changed one never gets the old one,
unless it was changed between the sampled blocks with its size, its times and its inode put back on purpose.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Mapping
from typing import Final

from sardonyx.cache_folder import CacheFolder
from sardonyx.formats.program.container import COUNT, Container, FormatError, Schema, Texts, pack
from sardonyx.mapped_file import FileIdentity, identity_of, is_settled
from sardonyx.options import environment

_VERSION: Final = 1
_TABLES: Final[Schema] = {
    "origin": (10, ("text",)),  # whose files they are
    "stamps": (11, ("text", "text", "flag", COUNT, "text")),  # path, identity ("": no file), settled, sample, digest
}
_SUFFIX: Final = ".origin"
_FOLDER_LIMIT: Final = 16 << 20  # bytes of remembered origins
_LARGEST_FILE: Final = 1 << 20
_SMALL: Final = 1 << 16  # bytes of a file that is sampled whole
_BLOCK: Final = 1 << 12
_BLOCKS: Final = 16
_CHUNK: Final = 1 << 20
LARGEST: Final = 16 << 30  # bytes of a file that is digested; programs of larger ones are not saved
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Stamp:
    """What is remembered of a file."""

    __slots__ = ("digest", "identity", "sample", "settled")

    def __init__(self, identity: str, settled: bool, sample: int, digest: str) -> None:
        self.identity = identity  # "": there was no file
        self.settled = settled  # its last change was long enough ago
        self.sample = sample
        self.digest = digest

    def plain(self) -> tuple[str, bool, int, str]:
        """What it was made of."""
        return self.identity, self.settled, self.sample, self.digest


_NO_FILE: Final = Stamp("", True, 0, "")


def content_digest(content: bytes | memoryview) -> str:
    """Names a content."""
    from hashlib import sha256  # lazy: it takes milliseconds to load, and files that are remembered are not read

    return sha256(content).hexdigest()


def _file_digest(descriptor: int, size: int) -> str:
    """The digest of a file's content, which is read piece by piece: mapped, it would count as memory of this process."""
    from hashlib import sha256  # lazy: as above

    digest = sha256()
    for start in range(0, size, _CHUNK):
        digest.update(os.pread(descriptor, min(_CHUNK, size - start), start))
    return digest.hexdigest()


def _text(identity: FileIdentity) -> str:
    return " ".join(map(str, identity))


def _sample(descriptor: int, size: int) -> int:
    """A checksum of parts of a file; of all of it, if it is small."""
    if size <= _SMALL:
        return zlib.crc32(os.pread(descriptor, size, 0))
    checksum = 0
    for block in range(_BLOCKS):
        checksum = zlib.crc32(os.pread(descriptor, _BLOCK, block * (size - _BLOCK) // (_BLOCKS - 1)), checksum)
    return checksum


def examine(path: str, known: Stamp | None) -> Stamp | None:
    """What a file is now: `known`, if that is still true of it. None: it cannot be read, or is too large to be."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return _NO_FILE if known is None or known.identity else known
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode) or size > LARGEST:
            return None
        identity = _text(identity_of(status))
        sample = _sample(descriptor, size)
        unchanged = known is not None and known.identity == identity and known.sample == sample
        if known is not None and unchanged and (known.settled or size <= _SMALL):
            return known
        settled = is_settled(status.st_mtime_ns, status.st_ctime_ns)  # before it is read: a change while it is must show
        digest = _file_digest(descriptor, size)
        after = os.fstat(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if _text(identity_of(after)) != identity:
        return None  # somebody is writing to it
    return Stamp(identity, settled, sample, digest)


class Origin:
    """The files of one model, as they were when they were last looked at. `name` tells it from those of other models."""

    def __init__(self, folder: str, name: str) -> None:
        self._files = CacheFolder(folder, _SUFFIX, _FOLDER_LIMIT, environment().cache_trusted)
        self.name = name
        content = name.encode("utf-8", "surrogatepass")
        self._key = f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"
        self._remembered = self._read()
        self._now: dict[str, Stamp] = {}

    def digest(self, path: str) -> str | None:
        """The digest of a file's content; "" if there is no file, None if it cannot be told."""
        stamp = self._now.get(path)
        if stamp is None:
            stamp = examine(path, self._remembered.get(path))
            if stamp is None:
                return None
            self._now[path] = stamp
        return stamp.digest

    def remembers(self, path: str) -> bool:
        """Whether a file was looked at before, in whatever state."""
        return path in self._remembered

    def is_unchanged(self, path: str, identity: FileIdentity | None) -> bool:
        """Whether a file is what its digest was made of, and was it when it had an identity."""
        stamp = self._now[path]
        again = examine(path, stamp)
        return (
            again is not None and again.digest == stamp.digest and stamp.identity == ("" if identity is None else _text(identity))
        )

    def keep(self) -> None:
        """Remember what was found out, if it is anything new."""
        if all(self._remembered.get(path) is stamp for path, stamp in self._now.items()):
            return
        texts = Texts()
        stamps = {**self._remembered, **self._now}
        rows = []
        for path, stamp in stamps.items():
            identity, settled, sample, digest = stamp.plain()
            rows.append((texts.number(path), texts.number(identity), settled, sample, texts.number(digest)))
        self._files.keep(self._key, *pack(_VERSION, _TABLES, {"origin": [texts.number(self.name)], "stamps": rows}, texts))
        self._files.make_room()
        self._remembered = stamps

    def _read(self) -> Mapping[str, Stamp]:
        found = self._files.open(self._key)
        if found is None:
            return {}
        descriptor, size = found
        try:
            content = os.pread(descriptor, size, 0) if size <= _LARGEST_FILE else b""
        except OSError:
            content = b""
        finally:
            os.close(descriptor)
        try:
            container = Container(memoryview(content), _VERSION, _TABLES)
            container.check(_TABLES, {"flag": 2})
            if container.texts(container["origin"][:, 0].tolist()) != [self.name]:
                return {}
            return {
                container.text(path): Stamp(container.text(identity), bool(settled), sample, container.text(digest))
                for path, identity, settled, sample, digest in container["stamps"].tolist()
            }
        except FormatError:
            return {}
