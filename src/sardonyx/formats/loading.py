"""One way to read a model, whatever its format: ONNX, or ORT."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, Final

from sardonyx.errors import InvalidArgument
from sardonyx.formats import onnx
from sardonyx.ir.graph import Model

_IDENTIFIER: Final = b"ORTM"  # of the ORT format
_IDENTIFIER_AT: Final = slice(4, 8)


def is_ort(source: Any, chosen: str = "") -> bool:
    """Whether a model is in the ORT format: `chosen` says so ("ORT" or "ONNX"), or its file name, or its first bytes do."""
    if chosen:
        if chosen not in ("ORT", "ONNX"):
            raise InvalidArgument(f"a model format is {chosen!r}, expected 'ORT' or 'ONNX'")
        return chosen == "ORT"
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        if path.lower().endswith(".ort"):
            return True
        try:
            with open(path, "rb") as file:
                return file.read(8)[_IDENTIFIER_AT] == _IDENTIFIER
        except (OSError, ValueError):  # reading it says what is wrong
            return False
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[_IDENTIFIER_AT]) == _IDENTIFIER
    return False


def load(
    source: Any,
    *,
    chosen: str = "",
    base_dir: str | os.PathLike[str] | None = None,
    external_files: Mapping[str, Any] | None = None,
    replaced: Collection[str] = (),
) -> Model:
    """Read a model as `formats.onnx.load` and `formats.ort.load` do; `chosen` is its format, if that is not to be found out."""
    if is_ort(source, chosen):
        from sardonyx.formats import ort  # lazy: most models are in the other format

        return ort.load(source)
    return onnx.load(source, base_dir=base_dir, external_files=external_files, replaced=replaced)


def load_with_problems(source: Any) -> tuple[Model, tuple[str, ...]]:
    """A model as far as it can be read, and all for which `load` refuses it; an ORT model that it refuses raises."""
    if is_ort(source):
        from sardonyx.formats import ort  # lazy: most models are in the other format

        return ort.load(source), ()
    return onnx.load_with_problems(source)
