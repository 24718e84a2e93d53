"""Targets for tests: descriptions of machines of every vector width, and the levels of the machine that tests run on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

import pytest

from sardonyx.codegen.host import host
from sardonyx.codegen.library import KernelLibrary
from sardonyx.options import environment
from sardonyx.target.levels import generic, level_of, levels_within
from sardonyx.target.target import Target, describe

LEVEL_OF_LANES: Final = {4: "x86-64-v2", 8: "x86-64-v3", 16: "x86-64-v4"}
CORTEX: Final = describe("aarch64-unknown-linux-gnu", "cortex-a72", "+neon")
ZEN5: Final = replace(generic("x86-64-v4"), cpu="znver5", flops_per_ns=280, has_whole_vectors=True, has_faster_half_vectors=False)
NEOVERSE: Final = describe("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+fullfp16,+dotprod")


def described(lanes: int) -> Target:
    """A machine of x86-64 whose vectors have some float32 lanes, whatever this one is."""
    return generic(LEVEL_OF_LANES[lanes])


def here(lanes: int = 0) -> Target:
    """This machine, or what it has of the level with so many float32 lanes; the test is skipped where it has less."""
    if not lanes:
        return host()
    name = LEVEL_OF_LANES[lanes]
    if name not in levels_within(host()):
        pytest.skip(f"this machine does not have {name}")
    return level_of(host(), name)


def of_sessions() -> Target:
    """What sessions compile for."""
    return level_of(host(), environment().target)


def here_and_less() -> list[Target]:
    """This machine, and all levels of it with narrower vectors."""
    levels = [level_of(host(), name) for name in levels_within(host())]
    return [host(), *(level for level in levels if level.vector_bits < host().vector_bits)]


def convolving() -> list[Target]:
    """The same, and this machine as if it computed its widest vectors in another way: convolutions choose their tiles by that."""
    other = replace(host(), has_whole_vectors=not host().has_whole_vectors)
    return [*here_and_less(), *([other] if host().has_broadcast_operands else [])]


def names_here() -> list[str]:
    """The names of these targets, for `NativeSettings`."""
    return [target.name for target in here_and_less()]


@cache
def library_for(target: Target) -> KernelLibrary:
    """Kernels for a target, outside any cache on disk; kept, because pools go on using its driver."""
    return KernelLibrary(target, None)
