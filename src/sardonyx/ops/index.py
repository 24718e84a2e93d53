"""Which modules define which operator: importing all of them takes longer than opening a small model.

The indices (`ops/index.txt`, `lower/index.txt`) are written by tools/generate_op_index.py; a line is `domain::Name module ...`.
"""

from __future__ import annotations

import importlib
from functools import cache

from sardonyx.ops.tables import read_table


@cache
def read_index(package: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """The index of a package: (domain, operator) -> its modules."""
    importlib.import_module(package)
    found = {}
    for line in read_table(package, "index.txt").splitlines():
        if not line.startswith("#"):
            label, *families = line.split()
            domain, _, name = label.rpartition("::")
            found[domain, name] = tuple(families)
    return found


def load_all(package: str) -> None:
    """Import every module an index names."""
    for module in sorted({module for modules in read_index(package).values() for module in modules}):
        importlib.import_module(f"{package}.{module}")
