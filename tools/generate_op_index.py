"""Write the index that says which module defines which operator, so that a session imports only what its model uses.

python tools/generate_op_index.py            writes src/sardonyx/{ops,lower}/index.txt
python tools/generate_op_index.py --check    exits 1 if an index is out of date
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from unittest import mock

from sardonyx.lower import registry as lower_registry
from sardonyx.ops import registry

ROOT = Path(__file__).parent.parent / "src/sardonyx"
FAMILY_DEPTH = 3  # points in the name of a module in a folder of a family: sardonyx.ops.matmul.matmul


def index(package: str, defined: Callable[[], set[tuple[str, str, int]]]) -> str:
    """Lines `domain::Name module module`: what every module of a family adds while its own code runs."""
    families: dict[tuple[str, str], set[str]] = {}
    known = defined()
    if known:
        raise SystemExit(f"operators are defined before any module was looked at: {sorted(known)[:5]}")
    execute = SourceFileLoader.exec_module

    def noting(loader: SourceFileLoader, module: ModuleType) -> None:
        execute(loader, module)  # what it imports first is noted first, as its own
        family = module.__name__.removeprefix(f"sardonyx.{package}.")
        for domain, name, _ in defined() - known:
            families.setdefault((domain, name), set()).add(family)
        known.update(defined())

    with mock.patch.object(SourceFileLoader, "exec_module", noting):
        for found in pkgutil.walk_packages([str(ROOT / package)], f"sardonyx.{package}."):
            if found.name.count(".") == FAMILY_DEPTH:
                importlib.import_module(found.name)
    lines = [f"{domain}::{name} {' '.join(sorted(modules))}" for (domain, name), modules in sorted(families.items())]
    head = "# Which module defines which operator. Written by tools/generate_op_index.py."
    return "\n".join([head, *lines]) + "\n"


def main() -> int:
    texts = {
        ROOT / "ops/index.txt": index("ops", registry.defined),
        ROOT / "lower/index.txt": index("lower", lower_registry.defined),
    }
    stale = []
    for path, text in texts.items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT.parent)))
    if stale:
        print(f"out of date: {', '.join(stale)}; run python tools/generate_op_index.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
