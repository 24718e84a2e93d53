"""What the system says of the machine this process runs on, without asking LLVM, which takes 50 ms to load."""

from __future__ import annotations

import platform
import zlib
from functools import cache
from typing import Final

from sardonyx import errors
from sardonyx.options import environment

LINUX: Final = "linux"  # our own loader, and workers that wait in native code
PLAIN: Final = "plain"  # LLVM's loader, and workers that wait in Python: works everywhere
_LINUX_ARCHITECTURES: Final = ("x86_64", "aarch64")
_ARCHITECTURES: Final = {"AMD64": "x86_64", "arm64": "aarch64"}  # names that systems have for the same


def architecture_named(name: str) -> str:
    """A family of instruction sets by any of its names."""
    return _ARCHITECTURES.get(name, name)


@cache
def architecture() -> str:
    """The family of this machine's instruction set: x86_64, aarch64, or another."""
    return architecture_named(platform.machine())


@cache
def system() -> str:
    """The operating system: Linux, Darwin, Windows, or another."""
    return platform.system()


def runtime_of(architecture: str, system: str) -> str:
    """How programs are loaded and run on a system: the best there is an implementation of."""
    return LINUX if system.lower() == "linux" and architecture in _LINUX_ARCHITECTURES else PLAIN


def runtime() -> str:
    """How programs are loaded and run here: by what the system has, or plainly if SARDONYX_RUNTIME says so."""
    chosen = environment().runtime
    if chosen not in ("native", PLAIN):
        raise errors.InvalidArgument(f"SARDONYX_RUNTIME is {chosen!r}: expected 'native' or {PLAIN!r}", hint="unset it")
    return PLAIN if chosen == PLAIN else runtime_of(architecture(), system())


@cache
def _processor() -> str:
    """What the system says of the first processor: the file is long on large machines, and slow to make."""
    with open("/proc/cpuinfo", "rb") as file:
        return file.read(8192).partition(b"\n\n")[0].decode("ascii", "replace")


# Levels of x86-64 (see `levels`) by the names that Linux has for what each adds to the one before
_LEVEL_FLAGS: Final = {
    "x86-64-v2": "cmov cx8 cx16 fxsr mmx popcnt lahf_lm sse sse2 pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}


def has_level(name: str) -> bool:
    """Whether this machine has a level of its architecture; False if the system does not tell."""
    if name not in _LEVEL_FLAGS:
        return name == architecture() == "aarch64"
    try:
        line = next(line for line in _processor().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        return False
    levels = list(_LEVEL_FLAGS)
    wanted = " ".join(_LEVEL_FLAGS[each] for each in levels[: levels.index(name) + 1]).split()
    return architecture() == "x86_64" and set(wanted) <= set(line.partition(":")[2].split())


def processor_name() -> str:
    """What the system calls its processor; the architecture, if it has no name."""
    return platform.processor() or architecture()


@cache
def machine_fingerprint() -> str:
    """Changes with the processor."""
    text = f"{platform.machine()} {system()} "
    try:
        first = _processor()
        wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
        text += "".join(line for line in first.splitlines() if line.startswith(wanted))
    except OSError:
        text += processor_name()
    content = text.encode()
    return f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"


def cache_bytes(root: str = "/sys/devices/system/cpu/cpu0/cache") -> dict[int, int]:
    """The sizes of the data caches that one core sees, by level; what the system does not tell is left out."""
    found: dict[int, int] = {}
    for index in range(8):
        folder = f"{root}/index{index}"
        try:
            kind, level, size = (_line(f"{folder}/{name}") for name in ("type", "level", "size"))
            if kind in ("Data", "Unified"):
                found[int(level)] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return found


def _line(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
