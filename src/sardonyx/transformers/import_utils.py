"""Whether a package is there: `onnxruntime.transformers.import_utils`."""

from __future__ import annotations

import importlib.metadata
import importlib.util


def is_installed(package: str) -> bool:
    """Whether a distribution, or a module, of this name is installed."""
    try:
        importlib.metadata.distribution(package)
        return True
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # a.b without an a
        return False
