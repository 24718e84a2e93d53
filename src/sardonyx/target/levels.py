"""Levels of an architecture: less than a machine has, chosen with SARDONYX_TARGET, for tests and measurements; and machines that
compiled models are made for.

Those of x86-64 are the ones of its ABI, which compilers and Linux distributions use: v2 has vectors of 128 bits, v3 of 256 bits
with FMA, v4 of 512 bits. That of AArch64 is what every one of them has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sardonyx import errors
from sardonyx.target.target import NATIVE, Target, describe

_V2: Final = ("cmov", "cx8", "cx16", "fxsr", "mmx", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3: Final = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4: Final = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

# Name -> architecture and features, by LLVM's names; LLVM knows those of x86-64 as CPUs of the same names.
LEVELS: Final = {
    "x86-64-v2": ("x86_64", _V2),
    "x86-64-v3": ("x86_64", _V3),
    "x86-64-v4": ("x86_64", _V4),
    "aarch64": ("aarch64", ("neon",)),
}
_CPUS: Final = {"aarch64": "generic"}


def generic(name: str, system: str = "unknown-linux-gnu") -> Target:
    """A machine that has a level and no more."""
    architecture, features = LEVELS[name]
    return describe(f"{architecture}-{system}", _CPUS.get(name, name), ",".join(f"+{feature}" for feature in features), name=name)


def level_of(machine: Target, name: str) -> Target:
    """What a machine has of a level: NATIVE is all; an error if there is no such level, or if the machine has less."""
    if name == NATIVE:
        return machine
    hint = f"set SARDONYX_TARGET to one of {', '.join([NATIVE, *levels_within(machine)])}, or unset it"
    if name not in LEVELS:
        raise errors.InvalidArgument(f"SARDONYX_TARGET is {name!r}, which is not the name of a target", hint=hint)
    missing = _missing(machine, name)
    if missing:
        raise errors.InvalidArgument(
            f"SARDONYX_TARGET is {name!r}, but this machine ({machine.cpu}) lacks {', '.join(missing)}", hint=hint
        )
    return replace(generic(name, machine.triple.partition("-")[2]), caches=machine.caches)


def levels_within(machine: Target) -> list[str]:
    """The levels that a machine has, the least first."""
    return [name for name in LEVELS if not _missing(machine, name)]


def _missing(machine: Target, name: str) -> list[str]:
    architecture, features = LEVELS[name]
    if machine.architecture != architecture:
        return [f"the instructions of {architecture}"]
    has = set(machine.features.split(","))
    return [feature for feature in features if f"+{feature}" not in has]
