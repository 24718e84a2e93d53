"""Compiled models out of bundles (`formats.program.bundle`): the program for this machine, ready to run.

Nothing of the compiler is imported here, nor LLVM. A bundle holds machine code: it is opened only by its name, `*.sdx`, and is as
trusted as a program that one runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from sardonyx import errors
from sardonyx.codegen.blocks import ABI_VERSION
from sardonyx.formats.program.bundle import VERSION, Bundle, BundledTarget, version_of
from sardonyx.formats.program.container import MAGIC, FormatError
from sardonyx.mapped_file import map_file
from sardonyx.runtime.saved import SavedModel, loaded
from sardonyx.target.machine import architecture, has_level, machine_fingerprint, runtime

SUFFIX: Final = ".sdx"


class NoProgram(Exception):
    """A bundle has no program that this machine and version can run; the text says why."""


def read_bundle(path: str) -> Bundle:
    """The bundle in a file, mapped and checked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.NoSuchFile(f"there is no model file {path!r}") from error
    except OSError as error:
        raise errors.Fail(f"the model file {path!r} cannot be opened: {error.strerror}") from error
    try:
        data = map_file(descriptor, os.fstat(descriptor).st_size)
    except OSError as error:
        raise errors.Fail(f"the model file {path!r} cannot be mapped: {error}") from error
    finally:
        os.close(descriptor)
    if bytes(data[: len(MAGIC)]) == MAGIC and version_of(data) != VERSION:
        raise errors.Fail(
            f"{path!r} is a file of version {version_of(data)}, this version of Sardonyx reads bundles of version {VERSION}",
            hint="compile the model again with `sardonyx compile`",
        )
    try:
        return Bundle(data)
    except FormatError as error:
        raise errors.InvalidProtobuf(f"{path!r} is no bundle, or a damaged one: {error}") from error


def open_bundled(bundle: Bundle, path: str, workers: int, spinning: bool, open_full: Callable[[], Any]) -> SavedModel:
    """The model of a bundle; NoProgram if there is none for this machine. `open_full` compiles the model inside."""
    if bundle.abi != ABI_VERSION:
        made = f"Sardonyx {bundle.package_version} (native interface {bundle.abi})"
        raise NoProgram(f"it was compiled by {made}, and this version has native interface {ABI_VERSION}")
    for number in sorted(range(len(bundle.targets)), key=lambda number: _preference(bundle.targets[number]), reverse=True):
        if not _fits(bundle.targets[number]):
            continue
        try:
            file = bundle.program(number)
            program = loaded(file, workers, spinning)
            if program is None:
                raise FormatError("its machine code cannot be loaded")
            if not file.has_description:
                raise FormatError("it does not describe the model")
        except FormatError as error:
            name = bundle.targets[number].name
            raise errors.InvalidProtobuf(f"{path!r} is a damaged bundle: the program for {name}: {error}") from error
        return SavedModel(file, program, open_full)
    raise NoProgram(f"it was compiled for {', '.join(_said(each) for each in bundle.targets)}")


def _preference(target: BundledTarget) -> tuple[bool, str]:
    """What is made for one processor alone is best, then the highest level."""
    return bool(target.processor), target.name


def _fits(target: BundledTarget) -> bool:
    if target.architecture != architecture() or target.runtime != runtime():
        return False
    return target.processor == machine_fingerprint() if target.processor else has_level(target.name)


def _said(target: BundledTarget) -> str:
    return f"one processor of {target.architecture}" if target.processor else target.name
