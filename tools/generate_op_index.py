"""Write the index that says which module defines which operator, so that a session imports only what its model uses.

python tools/generate_op_index.py            writes src/sardonyx/{ops,lower}/index.txt
python tools/generate_op_index.py --check    exits 1 if an index is out of date
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from sardonyx.lower import registry as lower_registry
from sardonyx.ops import registry

ROOT = Path(__file__).parent.parent / "src/sardonyx"


def index(package: str, families: Iterable[str], defined: Callable[[], set[tuple[str, str, int]]]) -> str:
    """Lines `domain::Name module module`, for what each family module adds when it is imported."""
    modules: dict[tuple[str, str], list[str]] = {}
    for family in families:
        before = defined()
        importlib.import_module(f"sardonyx.{package}.{family}")
        for domain, name, _ in sorted(defined() - before):
            places = modules.setdefault((domain, name), [])
            if family not in places:
                places.append(family)
    lines = [f"{domain}::{name} {' '.join(places)}" for (domain, name), places in sorted(modules.items())]
    head = "# Which module defines which operator. Written by tools/generate_op_index.py."
    return "\n".join([head, *lines]) + "\n"


def main() -> int:
    texts = {
        ROOT / "ops/index.txt": index("ops", registry.FAMILIES, registry.defined),
        ROOT / "lower/index.txt": index("lower", lower_registry.FAMILIES, lower_registry.defined),
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
