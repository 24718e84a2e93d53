"""Files of a folder by their endings: `onnxruntime.tools.file_utils`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def path_match_suffix_ignore_case(path: Path | str, suffix: str) -> bool:
    """Whether a path ends so, whatever the case of letters."""
    return str(path).casefold().endswith(suffix.casefold())


def files_from_file_or_dir(file_or_dir_path: Path | str, predicate: Callable[[Path], bool] = lambda path: True) -> list[Path]:
    """A file, or all files of a folder and the folders in it, of which the predicate holds, sorted."""
    path = Path(file_or_dir_path)
    if not path.is_dir():
        return [path] if predicate(path) else []
    found = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    return sorted(each for each in found if predicate(each))
