"""Text files inside packages: the tables of operators."""

from __future__ import annotations

import os
import sys
from typing import Any


def read_table(package: str, *path: str) -> str:
    """The text of a file in a package that is imported.

    Its loader reads it, as it may lie in an archive; `importlib.resources` takes as long to import as a small model to open.
    """
    module: Any = sys.modules[package]
    content: bytes = module.__loader__.get_data(os.path.join(os.path.dirname(module.__file__), *path))
    return content.decode().replace("\r\n", "\n")
