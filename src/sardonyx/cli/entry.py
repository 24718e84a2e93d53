"""Where the command begins: an interrupt is one line, also while the program is still being loaded."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> int:
    """Load and run the command line; returns the exit code."""
    try:
        from sardonyx.cli.main import main as run  # lazy: loading takes a moment, in which an interrupt may come

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("sardonyx: error: interrupted", file=sys.stderr)
        return INTERRUPTED
