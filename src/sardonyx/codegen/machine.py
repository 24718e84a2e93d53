"""What identifies this machine's instruction set without asking LLVM, which takes 50 ms to load."""

from __future__ import annotations

import platform
import zlib
from functools import cache


@cache
def machine_fingerprint() -> str:
    """Changes with the processor. One processor's description is read: the file is long on large machines, and slow to make."""
    text = f"{platform.machine()} {platform.system()} "
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(8192).partition(b"\n\n")[0].decode("ascii", "replace")
        wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
        text += "".join(line for line in first.splitlines() if line.startswith(wanted))
    except OSError:
        text += platform.processor()
    content = text.encode()
    return f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"
