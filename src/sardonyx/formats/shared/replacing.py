"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from sardonyx.errors import Fail, SardonyxError


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` once it is complete, and vanishes if something goes wrong."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.tmp")
    with written_to(path):
        file: Any = open(temporary, "xb")  # noqa: SIM115 - closed before the renaming
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


@contextlib.contextmanager
def written_to(path: str) -> Iterator[None]:
    """What the system raises inside (no space, no rights) becomes an error that names the file."""
    try:
        yield
    except SardonyxError:
        raise
    except OSError as error:
        raise Fail(f"{path!r} cannot be written: {error}") from error
