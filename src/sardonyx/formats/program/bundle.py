"""Bundles: a compiled model as one file, for one machine or several, with the model itself if it was wanted.

    header, record     as in program files: tables of targets, positions, texts; all checked
    contents           programs (each the record of a program file) ── constants, each once ── the model

A program's constants lie among the contents of the bundle, so what several programs and the model use stands there once. The
file is mapped; nothing of it is copied but machine code. docs/bundles.md has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sardonyx.formats.program.container import ALIGNMENT, COUNT, Container, FormatError, Schema
from sardonyx.formats.program.read import ProgramFile
from sardonyx.formats.program.schema import VERSION as PROGRAM_VERSION

if TYPE_CHECKING:
    from sardonyx.formats.program.contents import Contents
    from sardonyx.formats.program.write import Record

VERSION: Final = 1 << 16 | PROGRAM_VERSION  # a bundle is read by those who read its programs
WEIGHTS: Final = "weights"  # what the model inside calls the file of its external data: the contents of the bundle

TABLES: Final[Schema] = {
    "bundle": (10, ("text", COUNT)),  # version of the package that made it, version of the agreement with native code
    # name of the target, architecture, kind of runtime, processor ("": any that has the target), position, bytes
    "programs": (11, ("text", "text", "text", "text", "content", COUNT)),
    "model": (12, ("text", "content", COUNT)),  # name of its file, position, bytes; no row: it is not inside
}


class BundledTarget(NamedTuple):
    """A machine that a bundle has a program for."""

    name: str
    architecture: str
    runtime: str
    processor: str  # its fingerprint; "": any that has the target


class Bundle:
    """A bundle that was read: what it is for is known, its programs are not read yet."""

    def __init__(self, data: memoryview) -> None:
        self._container = container = Container(data, VERSION, TABLES)
        self.contents = container.data[container.contents :]
        container.check(TABLES, {"content": len(self.contents) + 1})
        if len(container["bundle"]) != 1 or not len(container["programs"]) or len(container["model"]) > 1:
            raise FormatError("expected one bundle, with a program at least, and one model at most")
        version, self.abi = container["bundle"][0].tolist()
        self.package_version = container.text(version)
        self.targets: list[BundledTarget] = []
        self._spans: list[slice] = []
        for *texts, position, size in container["programs"].tolist():
            self.targets.append(BundledTarget(*container.texts(texts)))
            self._spans.append(self._span("a program", position, size))

    def _span(self, what: str, position: int, size: int) -> slice:
        if position + size > len(self.contents):
            raise FormatError(f"{what} has {size} bytes at {position} of {len(self.contents)}")
        return slice(position, position + size)

    def program(self, number: int) -> ProgramFile:
        """The program for one of the targets, checked."""
        return ProgramFile(self.contents[self._spans[number]], self.contents)

    @property
    def model(self) -> tuple[str, memoryview] | None:
        """The name and the bytes of the model inside; its external data are the contents of the bundle."""
        for name, position, size in self._container["model"].tolist():
            return self._container.text(name), self.contents[self._span("the model", position, size)]
        return None


def version_of(data: memoryview) -> int:
    """The version in the header of a file, whatever it is."""
    return int.from_bytes(data[8:12], "little")


def add_program(record: Record, arrays: Mapping[int, Any], contents: Contents) -> tuple[int, int]:
    """Write a program and its constants among the contents of a bundle; its position and size."""
    from sardonyx.formats.program.write import record_pieces  # lazy: whoever only reads bundles writes nothing

    content = b"".join(record_pieces(record, arrays, contents))
    return contents.add(memoryview(content)), len(content)


def header(
    package_version: str,
    abi: int,
    programs: Sequence[tuple[BundledTarget, tuple[int, int]]],
    model: tuple[str, int, int] | None,
    contents: Contents,
) -> list[bytes]:
    """What stands before the contents of a bundle."""
    from sardonyx.formats.program.container import Texts, pack  # lazy: whoever only reads bundles writes nothing

    texts = Texts()
    tables: dict[str, Any] = {
        "bundle": [(texts.number(package_version), abi)],
        "programs": [(*(texts.number(text) for text in target), *span) for target, span in programs],
        "model": [] if model is None else [(texts.number(model[0]), *model[1:])],
    }
    assert contents.size % ALIGNMENT == 0
    return pack(VERSION, TABLES, tables, texts, (), contents.size)
