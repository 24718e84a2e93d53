"""Runs the kernel benchmarks: `python -m benchmarks.kernels [NAME ...]`, or `make bench-kernels`.

Each is a script of its own that prints a table: our time, onnxruntime's, the ratio, and the share of the peak that `peak.py`
measures on this machine (multiply-adds or bytes per second).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks there are; the peaks come first."""
    found = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    return sorted(found, key=lambda name: (name != "peak", name))


def main(arguments: list[str]) -> int:
    """Run those that are named, or all; how many failed."""
    unknown = [name for name in arguments if name not in names()]
    if unknown:
        print(f"there is no kernel benchmark {unknown[0]!r}; known: {', '.join(names())}", file=sys.stderr)
        return 2
    failed = 0
    for name in arguments or names():
        print(f"== {name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.kernels.{name}"], check=False).returncode != 0
        print(flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
