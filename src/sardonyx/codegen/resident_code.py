"""Gives the memory of LLVM's own code back when nothing is compiled for a while.

A library's pages stay in a process's memory once they were touched: 70 MB of LLVM after the first compilation, as long as the
process lives. Pages that nobody has written are in the file, too: if they are needed, the system reads them again from its cache.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_LIBRARY: Final = "libllvmlite"
_DONT_NEED: Final = 4  # MADV_DONTNEED


def release_compiler_code() -> int:
    """Have the system forget pages of LLVM that it can read again; how many bytes of memory they took."""
    if not sys.platform.startswith("linux") or "llvmlite" not in sys.modules:
        return 0
    released = 0
    with suppress(OSError, AttributeError, ValueError):  # another system than expected: the pages just stay
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, end, resident in _clean_mappings(Path("/proc/self/smaps").read_text("utf-8", "replace")):
            if advise(start, end - start, _DONT_NEED) == 0:
                released += resident
    return released


def _clean_mappings(smaps: str) -> list[tuple[int, int, int]]:
    """Begin, end and bytes in memory of those of the library's mappings that nobody may write to, or has written to before."""
    found: list[tuple[int, int, int]] = []
    bounds: tuple[int, int] | None = None
    resident = 0
    for line in smaps.splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            rights = rest.split(" ", 1)[0]
            start, _, end = name.partition("-")
            bounds = (int(start, 16), int(end, 16)) if _LIBRARY in line and "w" not in rights and "p" in rights else None
        elif bounds is not None and name == "Rss:":
            resident = int(rest.split()[0]) * 1024
        elif bounds is not None and name == "Private_Dirty:":
            if int(rest.split()[0]) == 0 and resident:
                found.append((*bounds, resident))
            bounds = None
    return found
